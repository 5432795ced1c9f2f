# shellcheck shell=sh disable=SC2154,SC2034
# systemd, that of this host, as the first process of a PID namespace, with the journal.
# Of its units only the needed ones are there; the others are the host's business.

# shellcheck source=tests/system/managers/examples.sh
. tests/system/managers/examples.sh

# T 8 s, C * R 2 s: the watchdog and the restart take most of 3 s on a busy machine.
options="--dir $work/lock --token one -r 1s -f 8"

m_prepare() {
    units=$work/units
    mkdir -p "$units" "$work/journal"
    for target in default multi-user basic sysinit network-online shutdown sockets; do
        printf '[Unit]\nDefaultDependencies=no\n' >"$units/$target.target"
    done
    for unit in systemd-journald.service systemd-journald.socket; do
        sed '/^Requires=\|^Sockets=\|^Also=/s/systemd-journald-[a-z-]*\.socket//g' \
            "/lib/systemd/system/$unit" >"$units/$unit"
    done
    cp contrib/systemd/putex@.service "$units/putex@.service"
    mkdir "$units/putex@.service.d"
    printf '[Service]\nWatchdogSec=2s\n' >"$units/putex@.service.d/time.conf"
    cat >"$work/pid1" <<END
mount --make-rprivate /
mount -t tmpfs tmpfs /run
umount -l /sys/fs/cgroup || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind $work/journal /var/log
mkdir -p /run/systemd /run/lock $work/fs
mount -t tmpfs tmpfs $work/fs
mkdir $work/fs/upper $work/fs/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=$work/fs/upper,workdir=$work/fs/work /etc
ln -s $work/etc/putex /etc/putex
mkdir $work/fs/sbin
cp $work/sbin/putex $work/fs/sbin
mount -t overlay overlay -o lowerdir=$work/fs/sbin:/usr/sbin /usr/sbin
hostname putex-test
ip link set lo up
for folder in lib log; do
    [ ! -d /var/\$folder/postgresql ] || mount -t tmpfs -o mode=1777 tmpfs /var/\$folder/postgresql
done
exec env -i PATH=\$PATH container=private SYSTEMD_UNIT_PATH=$units SYSTEMD_LOG_LEVEL=info \\
    /lib/systemd/systemd --system --unit=default.target --log-target=journal-or-kmsg \\
    --show-status=no
END
    unshare -m -p -C -u -i -n -f --mount-proc --kill-child=KILL sh "$work/pid1" </dev/null \
        >"$work/console" 2>&1 &
    outer=$!
    wait_for 5 pgrep -P "$outer" || fail "no systemd"
    supervisor=$(pgrep -P "$outer")
    wait_for 20 within systemctl start systemd-journald.service || fail "no journal"
    unit=putex@$key.service
    mkdir -p "$work/man/man8"
    cp man/putex.8 "$work/man/man8"
    within env MANPATH="$work/man" SYSTEMD_UNIT_PATH="$units" \
        systemd-analyze verify "$units/putex@.service" || fail "systemd-analyze verify"
    say "$(systemd-analyze security --offline=true contrib/systemd/putex@.service | tail -n 1)"
}
within() { nsenter -t "$supervisor" -m -p -C -u -i -n "$@"; }
shown() { within systemctl show "$unit" -p "$1" --value; }
m_wrong() {
    ! within systemctl start "$unit" && sleep 2 &&
        [ "$(shown ActiveState) $(shown ExecMainStatus) $(shown NRestarts)" = "failed 78 0" ] &&
        within systemctl reset-failed "$unit"
}
m_start() { within systemctl start "$unit"; }
m_ready() { [ "$(shown ActiveState)" = active ]; }
m_status() {
    m_ready && say "status: $(shown StatusText)"
}
m_reload() { within systemctl reload "$unit"; }
m_stop() { within systemctl stop "$unit"; }
m_log() { within journalctl -q -o short -t putex --no-pager; }
m_end() {
    kill -9 "$supervisor"
    wait "$outer"
}
more_of_it() {
    say "an agent that hangs is killed by the watchdog, and another goes on"
    agent=$(find_all agent)
    restarts=$(shown NRestarts)
    : >"$work/history"
    kill -STOP "$agent"
    wait_for 15 has_other_agent "$agent" || fail "the watchdog does nothing"
    within journalctl -q --no-pager | grep 'Watchdog timeout' || fail "it was not the watchdog"
    say "restarts: $restarts, then $(shown NRestarts)"
    sleep 4
    [ "$(history)" = "" ] || fail "the service was touched: $(history)"
    [ "$(within journalctl -q -t putex -p warning -o cat --no-pager | grep -c ': warning: ')" -gt 0 ] ||
        fail "no priorities in the journal"

    say "systemctl kill -s KILL: everything is killed, and stop is run"
    : >"$work/history"
    agent=$(find_all agent)
    within systemctl kill -s KILL "$unit"
    wait_for 5 is_down || fail "nobody stopped the service"
    wait_for 5 has_other_agent "$agent" || fail "no other agent"
    wait_for 30 is_up || fail "the service did not come back"
    within find /sys/fs/cgroup -path "*$unit/putex-*" -name cgroup.kill | grep . ||
        fail "no control group for start"
    keep_a_unit
    keep_an_address
    keep_a_container
    keep_postgresql
}
# The commands are under what the unit allows, and do this all the same.
keep_a_unit() {
    say "another unit, whose worker is not ended with it, is kept by contrib/examples/service"
    printf '[Unit]\nDefaultDependencies=no\n[Service]\nKillMode=process\n%s\n' \
        "ExecStart=/bin/sh -c 'sleep 100077 & exec sleep 1000'" >"$units/kept.service"
    within systemctl daemon-reload
    mkdir "${config}x"
    cp contrib/examples/service "$work/service"
    for act in start stop healthcheck; do
        printf '#!/bin/sh\nexec %s/service %s kept.service\n' "$work" "$act" >"${config}x/$act"
        chmod 755 "${config}x/$act"
    done
    check="--healthcheck /etc/putex/${key}x/healthcheck"
    echo "OPTIONS=\"--dir $work/lock --token one -r 1s $check\"" >"${config}x/env"
    within systemctl start "putex@${key}x" || fail "the second instance"
    wait_for 30 within systemctl is-active kept.service || fail "it was not started"
    wait_for 5 within pgrep -f 'sleep 100077' || fail "it has no worker"
    within systemctl stop "putex@${key}x" || fail "the second instance does not stop"
    within systemctl is-active kept.service && fail "it was not stopped"
    within pgrep -f 'sleep 100077' && fail "its worker was not ended"
    return 0
}
