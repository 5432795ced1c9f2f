# shellcheck shell=sh disable=SC2154
# Inside the namespaces: a bridge with nats-server and clients, three hosts with a cable to
# it each, a server and an agent on every host. Then the story that is named.
set -eu
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir "$work/data" "$work/logs"
mount -t tmpfs tmpfs "$work/data"
chmod 1777 "$work/data"
cp "${PUTEX_EXAMPLE:-$root/contrib/examples/postgresql}" "$work/postgresql"
cp "$PUTEX_UNDER_TEST" "$work/putex"
chmod 755 "$work/postgresql" "$work/putex"
PATH=$bin:$PATH
port=5432
# Two runs at a time share the host's control groups, which have the name of the key.
key=db${work##*-}
all='10.78.0.1 10.78.0.2 10.78.0.3'
# R, F and C of the agents.
times='-r 2s -f 3 -c 3'

say() { echo "   $(since_start) $*"; }
since_start() { printf '%6.1f s' "$(awk -v a="$(now)" -v b="$started" 'BEGIN { print a - b }')"; }
now() { date +%s.%N; }
started=$(now)
fail() {
    say "FAILED: $*"
    # Why nothing went on, perhaps.
    [ ! -e "$work/data/seen-1" ] || overlaps
    for host in 1 2 3; do
        echo "   --- agent $host"
        tail -n 15 "$work/logs/agent-$host" 2>/dev/null || true
        echo "   --- server $host"
        tail -n 5 "$work/data/$host/main.putex/server.log" 2>/dev/null || true
        cp "$work/data/$host/main.putex/server.log" "$work/logs/server-$host" 2>/dev/null || true
        cp "$work/data/$host/main.putex/log" "$work/logs/repair-$host" 2>/dev/null || true
    done
    exit 1
}
# wait_for SECONDS COMMAND...
wait_for() {
    end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.2
    done
}

on() {
    place=$1
    shift
    nsenter --net="/run/netns/host$place" "$@"
}
as_owner() { setpriv --reuid nobody --regid "$(id -g nobody)" --init-groups "$@"; }
address() { echo "10.78.0.$1"; }
# A server, as its own host sees it: its socket is in its folder.
ask() {
    place=$1
    shift
    PGOPTIONS='-c statement_timeout=5s -c synchronous_commit=local' timeout 8 \
        psql -XAtqw -h "$work/data/$place" -p "$port" -U nobody -d postgres -c "$@"
}
# Whatever server accepts writes, as a client finds it.
write() {
    PGOPTIONS='-c statement_timeout=4s' PGCONNECT_TIMEOUT=2 timeout 8 psql -XAtqw -U nobody \
        "host=10.78.0.1,10.78.0.2,10.78.0.3 port=$port dbname=postgres target_session_attrs=read-write" -c "$@"
}
is_primary() { [ "$(ask "$1" 'SELECT pg_is_in_recovery()' 2>/dev/null)" = f ]; }
# Sets primary.
find_primary() {
    for host in 1 2 3; do
        if is_primary "$host"; then
            primary=$host
            return
        fi
    done
    return 1
}
# The others say that they receive from the primary: it does not see at once that one is gone.
is_whole() {
    find_primary || return 1
    for host in 1 2 3; do
        [ "$host" = "$primary" ] || [ "$(ask "$host" "SELECT sender_host FROM pg_stat_wal_receiver
            WHERE status = 'streaming'")" = "$(address "$primary")" ] || return 1
    done
}

lay_cables() {
    ip link add name switch type bridge
    ip link set switch up
    ip address add 10.78.0.254/24 dev switch
    mkdir -p /run/netns
    for host in 1 2 3; do
        ip netns add "host$host"
        ip link add name "cable$host" type veth peer name eth0 netns "host$host"
        ip link set "cable$host" master switch up
        on "$host" ip link set lo up
        on "$host" ip address add "$(address "$host")/24" dev eth0
        on "$host" ip link set eth0 up
    done
}

begin_servers() {
    quoted='"10.78.0.1", "10.78.0.2", "10.78.0.3"'
    synchronous=${PUTEX_SYNCHRONOUS-ANY 1 ($quoted)}
    as_owner mkdir "$work/data/1" "$work/data/2" "$work/data/3"
    as_owner initdb -D "$work/data/1/main" -U nobody -A trust --no-sync >/dev/null
    echo "host all,replication nobody 10.78.0.0/24 trust" >>"$work/data/1/main/pg_hba.conf"
    cat >>"$work/data/1/main/postgresql.conf" <<END
listen_addresses = '*'
unix_socket_directories = '..'
synchronous_standby_names = '$synchronous'
wal_log_hints = on
wal_keep_size = 512MB
wal_receiver_timeout = 5s
wal_sender_timeout = 5s
shared_buffers = 16MB
jit = off
log_line_prefix = '%m [%p] '
END
    as_owner mkdir "$work/data/1/main.putex" "$work/data/2/main.putex" "$work/data/3/main.putex"
    launch 1
    ask 1 'CREATE TABLE rows (id bigint PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())'
    for host in 2 3; do
        as_owner pg_basebackup -h "$work/data/1" -p "$port" -U nobody -D "$work/data/$host/main" \
            -c fast --no-sync 2>/dev/null
    done
    as_owner pg_ctl -s -D "$work/data/1/main" -m fast -w stop
}
launch() {
    on "$1" setpriv --reuid nobody --regid "$(id -g nobody)" --init-groups pg_ctl -s \
        -D "$work/data/$1/main" -l "$work/data/$1/main.putex/server.log" -w start
}

begin_agent() {
    place=$1
    # shellcheck disable=SC2086  # several
    nsenter --net="/run/netns/host$place" env SERVERS="$all" SELF="$(address "$place")" PGDATA="$work/data/$place/main" \
        PGHOST="$work/data/$place" PGUSER=nobody PGPORT="$port" LAG="${LAG:-1048576}" \
        setsid "$work/putex" agent --nats nats://10.78.0.254:4222 --bucket locks --key "$key" \
        --token "host$place" --start "$work/postgresql start" --stop "$work/postgresql stop" \
        --healthcheck "$work/postgresql healthcheck" --check-failures 2 $times \
        </dev/null >>"$work/logs/agent-$place" 2>&1 &
    agents="$agents $place:$!"
}
agents=''
# The last one of a host.
agent_of() {
    found=''
    for pair in $agents; do [ "${pair%:*}" != "$1" ] || found=${pair#*:}; done
    echo "$found"
}
lives() { kill -0 "$1" 2>/dev/null && ! grep -qs '^State:.[ZX]' "/proc/$1/status"; }
# Ends an agent, and says with which status.
end_agent() {
    pid=$(agent_of "$1")
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
}

processes_of() {
    space=$(on "$1" readlink /proc/self/ns/net | tr -dc 0-9)
    # shellcheck disable=SC2012  # the names are numbers
    ls -ld /proc/[0-9]*/ns/net 2>/dev/null | sed -n "s|.*/proc/\([0-9]*\)/ns/net -> net:.$space.\$|\1|p"
}
cut() { ip link set "cable$1" down; }
connect() { ip link set "cable$1" up; }
# Frames are lost, and nobody is told: the carrier stays.
freeze() { bridge link set dev "cable$1" state 0; }
thaw() { bridge link set dev "cable$1" state 3; }
# A host that loses power sends nothing any more.
kill_host() {
    cut "$1"
    for _ in 1 2 3; do
        pids=$(processes_of "$1")
        # shellcheck disable=SC2086  # several
        [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
    done
}

lay_cables
mkdir "$work/data/nats"
"$NATS_SERVER" -js -sd "$work/data/nats" -a 10.78.0.254 -p 4222 >"$work/logs/nats" 2>&1 &
begin_servers
# shellcheck source=tests/system/postgresql/stories.sh
. "$root/tests/system/postgresql/stories.sh"
"$1"
