# shellcheck shell=sh disable=SC2154
# Inside the namespaces: three servers of one cluster on addresses of lo, a name server that is
# dead and one that knows n1 to n3. Then the story that is named.
set -eu
dead=10.66.1.53
names=10.66.0.53
url=nats://n1.test,nats://n2.test,nats://n3.test

say() { echo "   $*"; }
fail() {
    say "FAILED: $*"
    exit 1
}
putex() { "$PUTEX_UNDER_TEST" "$@"; }

ip link set lo up
for host in 1 2 3 53; do ip address add "10.66.0.$host/32" dev lo; done
# What is sent there arrives, and nobody answers.
ip link add void type veth peer name nobody
ip link set void up
ip link set nobody up
ip address add 10.66.2.1/32 dev void

# drop ADDRESS: its host is off.
drop() {
    ip address delete "$1/32" dev lo 2>/dev/null || true
    ip route add "$1/32" dev void
    ip neighbour add "$1" lladdr 02:00:00:00:00:01 dev void
}
keep() {
    ip route delete "$1/32" dev void
    ip address add "$1/32" dev lo
}

start() {
    "$NATS_SERVER" -n "n$1" -a "10.66.0.$1" -p 4222 -js -sd "$work/js$1" \
        -cluster_name reach -cluster "nats://10.66.0.$1:6222" \
        -routes nats://10.66.0.1:6222,nats://10.66.0.2:6222,nats://10.66.0.3:6222 \
        --no_advertise >>"$work/n$1.log" 2>&1 &
    echo $! >"$work/n$1.pid"
}
# signal NUMBER SIGNAL
signal() { kill "-$2" "$(cat "$work/n$1.pid")"; }

# until_had: until locks have been had for 10 s, so that elections are over.
until_had() {
    export NATS_URL=nats://10.66.0.1,nats://10.66.0.2,nats://10.66.0.3
    begun=$(date +%s)
    good=$begun
    while [ "$(date +%s)" -lt "$((good + 10))" ]; do
        putex lock --replicas 3 -w 30 ready true 2>>"$work/ready" || good=$(date +%s)
        [ "$good" -lt "$((begun + 60))" ] || fail "no lock: $(tail -n 1 "$work/ready")"
        sleep 0.5
    done
}

python3 "$root/tests/system/reach/name_server.py" "$names" &
for host in 1 2 3; do start "$host"; done
until_had

# timed COMMAND...: prints seconds and status.
timed() {
    begun=$(date +%s%N)
    status=0
    "$@" >"$work/said" 2>&1 || status=$?
    awk -v ns="$(($(date +%s%N) - begun))" -v status="$status" \
        'BEGIN { printf "%.3f %d\n", ns / 1e9, status }'
}

# expect STATUS COMMAND...: a command with a dead name server.
expect() {
    expected=$1
    shift
    result=$(timed putex "$@")
    say "$(printf '%6s s, status %s: %s' "${result% *}" "${result#* }" "$*")"
    [ "${result#* }" = "$expected" ] || fail "status $expected is due: $(cat "$work/said")"
}

names() {
    drop "$dead"
    printf 'nameserver %s\nnameserver %s\n' "$dead" "$names" >"$work/resolv.conf"
    echo 'hosts: dns' >"$work/nsswitch.conf"
    mount --bind "$work/resolv.conf" /etc/resolv.conf
    mount --bind "$work/nsswitch.conf" /etc/nsswitch.conf
    mount -t tmpfs tmpfs /run
    agent="--key web --healthcheck true --start true --stop true"
    # shellcheck disable=SC2086
    NATS_URL=nats://10.66.0.1 "$PUTEX_UNDER_TEST" agent $agent -r 1s -f 3 -c 1 --replicas 3 \
        >"$work/agent.log" 2>&1 &
    agents=$!
    until_logged active "$work/agent.log" || fail "no agent: $(tail -n 3 "$work/agent.log")"
    export NATS_URL=$url
    expect 0 lock -n db true
    expect 0 lock -w 1 db true
    expect 0 lock db true
    expect 0 grab --for 15 db
    expect 0 release db
    expect 1 lease check db
    expect 100 put --lease db value x
    expect 0 status
    # shellcheck disable=SC2086
    expect 0 check --connect $agent --token other
    expect 0 pause --for 10s web
    expect 0 resume web
    expect 75 switchover web
    expect 0 doctor
    # shellcheck disable=SC2086
    "$PUTEX_UNDER_TEST" agent --token other $agent -r 1s -f 3 -c 1 >"$work/other.log" 2>&1 &
    agents="$agents $!"
    result=$(timed until_logged 'held by' "$work/other.log")
    say "$(printf '%6s s: agent, until it knows the holder' "${result% *}")"
    [ "${result#* }" = 0 ] || fail "no holder: $(tail -n 3 "$work/other.log")"
    # The control groups of killed guards would stay on the host.
    # shellcheck disable=SC2086
    kill $agents && wait $agents
}

# until_logged WORDS FILE
until_logged() {
    end=$(($(date +%s) + 60))
    until grep -q " $1" "$2"; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.05
    done
}

# hundred WHAT: 100 times a lock that nobody has.
hundred() {
    had=0
    : >"$work/times"
    for _ in $(seq 100); do
        result=$(timed putex lock -n "$1" true)
        [ "${result#* }" != 0 ] || had=$((had + 1))
        echo "${result% *}" >>"$work/times"
        [ "${result#* }" = 0 ] || cat "$work/said" >>"$work/refused"
    done
    sort -n "$work/times" | awk -v what="$1" -v had="$had" '
        { ms[NR] = $1 * 1000 }
        END {
            printf "   %-10s %d of %d had it; min %d ms, median %d ms, max %d ms\n",
                what, had, NR, ms[1], ms[int((NR + 1) / 2)], ms[NR]
        }'
    [ "$had" = 100 ] || fail "$(sort "$work/refused" | uniq -c | sort -rn | head -n 3)"
}

servers() {
    hundred well
    signal 3 STOP
    until_had
    hundred hung
    signal 3 KILL
    drop 10.66.0.3
    until_had
    hundred off
    keep 10.66.0.3
    until_had
    hundred refusing
}

"$1"
