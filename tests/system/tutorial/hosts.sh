# shellcheck shell=bash disable=SC2154
# The three hosts of the tutorial, and what is pasted there; see run.
set -eu
text=contrib/tutorial/README.md
said=$work/said
mount -t tmpfs -o mode=755 tmpfs "$work"
mount -t tmpfs tmpfs /run
mkdir -p "$work/units" "$said" "$work/src/target/release"
cp -RL contrib man "$work/src/"
cp "$PUTEX_UNDER_TEST" "$work/src/target/release/putex"

# Of the units of this machine only the journal's are there.
for target in default multi-user basic sysinit network-online shutdown sockets; do
    printf '[Unit]\nDefaultDependencies=no\n' >"$work/units/$target.target"
done
# All other units are after it: what they say at boot is in the journal.
printf '%s=systemd-journald.socket systemd-journald.service\n' Wants After \
    >>"$work/units/sysinit.target"
for unit in systemd-journald.service systemd-journald.socket; do
    sed '/^Requires=\|^Sockets=\|^Also=/s/systemd-journald-[a-z-]*\.socket//g' \
        "/lib/systemd/system/$unit" >"$work/units/$unit"
done
search=$work/units:/etc/systemd/system:/usr/local/lib/systemd/system

ip link add bridge type bridge
ip link set bridge up
for number in 1 2 3; do
    host=n$number
    ip netns add "$host"
    ip link add "$host" type veth peer name eth0 netns "$host"
    ip link set "$host" master bridge up
    ip -n "$host" address add "192.0.2.$number/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
    for folder in etc var local; do mkdir -p "$work/$host/$folder" "$work/$host/$folder.work"; done
    mkdir -p "$work/$host/etc/systemd/system" "$work/$host/local/bin" "$work/$host/local/src/putex" \
        "$work/$host/var/log/journal" "$work/$host/units"
    printf '127.0.0.1 localhost\n192.0.2.1 n1\n192.0.2.2 n2\n192.0.2.3 n3\n' \
        >"$work/$host/etc/hosts"
    printf '%032d\n' "$number" >"$work/$host/etc/machine-id"
    echo "$host" >"$work/$host/etc/hostname"
    cp "$NATS_SERVER" "$work/$host/local/bin/nats-server"
    cat >"$work/$host/pid1" <<END
mount --make-rprivate /
mount -t tmpfs tmpfs /run
umount -l /sys/fs/cgroup || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
disk=$work/$host
mount -t overlay overlay -o lowerdir=/etc,upperdir=\$disk/etc,workdir=\$disk/etc.work /etc
mount --bind \$disk/units /etc/systemd/system
mount -t overlay overlay -o lowerdir=/var,upperdir=\$disk/var,workdir=\$disk/var.work /var
mount -t overlay overlay -o lowerdir=/usr/local,upperdir=\$disk/local,workdir=\$disk/local.work \
    /usr/local
mount --bind $work/src /usr/local/src/putex
hostname $host
exec env -i PATH=\$PATH container=private SYSTEMD_UNIT_PATH=$search \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal-or-kmsg \
    --show-status=no
END
done

declare -A outer inner

# within HOST COMMAND ...: as from a root shell of that host.
within() {
    local host=$1
    shift
    nsenter -t "${inner[$host]}" -m -p -C -u -i -n env -i HOME=/root SYSTEMD_UNIT_PATH="$search" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# wait_for SECONDS COMMAND ...
wait_for() {
    local tries=$(($1 * 5))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.2
    done
}

boot() {
    ip netns exec "$1" unshare -m -p -C -u -i -f --mount-proc --kill-child=KILL \
        sh "$work/$1/pid1" </dev/null >>"$work/$1/console" 2>&1 &
    outer[$1]=$!
    wait_for 10 pgrep -P "${outer[$1]}"
    inner[$1]=$(pgrep -P "${outer[$1]}")
    wait_for 30 within "$1" systemctl start systemd-journald.service
}

# A host that has lost its power: nothing is run there any more.
die() {
    kill -s KILL "${inner[$1]}"
    wait "${outer[$1]}" || true
}

# paste BLOCK HOST ...: at all of them at once.
paste() {
    local block=$1 host shells=() failed=''
    shift
    for host in "$@"; do
        if grep -q sysrq-trigger "$block"; then
            die "$host"
            continue
        fi
        # As a shell reads what is pasted: a line that fails does not end it.
        (cd / && within "$host" bash -s <"$block" >"$said/$section.$count.$host" 2>&1) &
        shells+=($!)
    done
    for shell in "${shells[@]}"; do wait "$shell" || failed=yes; done
    for host in "$@"; do
        [ ! -e "$said/$section.$count.$host" ] ||
            sed "s/^/$host| /" "$said/$section.$count.$host"
    done
    [ -z "$failed" ] || {
        echo "FAILED: a block of section $section"
        journals
        exit 1
    }
}

# What the agents of hosts that run have logged.
journals() {
    for host in n1 n2 n3; do
        echo "-- $host"
        within "$host" journalctl -o cat -u putex@db || true
    done
}

# shown LINE: whether a host has said a line like it. Numbers, times and names may be others.
shown() {
    local like
    like=$(printf '%s\n' "$1" | sed 's/[][().*^$+?{}|\\]/\\&/g; s/\bn[123]\b/n@/g
        s/\b[0-9][0-9]*\(\\\.[0-9][0-9]*\)*/[0-9.]+/g; s/n@/n[123]/g
        s/^db: //')
    grep -rqE -e "$like" "$said" && return
    journals >"$said/journals"
    grep -qE -e "$like" "$said/journals"
}

for host in n1 n2 n3; do boot "$host"; done
section=0 count=0 kind='' hosts=''
end_block() {
    [ "$kind" = sh ] || return 0
    count=$((count + 1))
    echo "== section $section, block $count:$hosts"
    cat "$work/block"
    # Hosts are words.
    # shellcheck disable=SC2086
    [ -z "$hosts" ] || paste "$work/block" $hosts
    [ -n "$hosts" ] || {
        echo "FAILED: which host is block $count of section $section for?"
        exit 1
    }
}
awk -f tests/system/tutorial/blocks.awk "$text" >"$work/blocks"
while IFS= read -r line <&3; do
    case $line in
    "	"*)
        line=${line#?}
        if [ "$kind" = sh ]; then
            printf '%s\n' "$line" >>"$work/block"
        elif ! wait_for 60 shown "$line"; then
            echo "FAILED: nobody says: $line"
            journals
            exit 1
        fi
        continue
        ;;
    esac
    end_block
    kind=${line%% *}
    hosts=${line#"$kind"}
    : >"$work/block"
    if [ "$kind" = section ]; then
        section=${hosts# }
        # Its text says that the host is switched on.
        [ "$section" != 7 ] || boot n1
        kind=''
    fi
done 3<"$work/blocks"
end_block
# What was written before the failover is there after it.
grep -q '(1 row)' "$said"/6.*.n2 || {
    echo "FAILED: the table is not there"
    exit 1
}
journals
