# shellcheck shell=sh disable=SC2154
# runit: runsv and svlogd, without root.

m_prepare() {
    # Of its programs, tests/tools puts only runsv into PATH.
    if ! command -v sv >/dev/null; then
        [ -x "$tools/runit/usr/bin/runsv" ] || unpack runit runit
        PATH=$tools/runit/usr/bin:$PATH
    fi
    service=$work/sv/putex-$key
    mkdir -p "$work/sv" "$work/log"
    cp -R contrib/runit/putex-db "$service"
    sed -i "s#^dir=.*#dir=$work/etc/putex/\$key#; s#^putex=.*#putex=$work/sbin/putex#" "$service/conf"
    sed -i "s#/var/log#$work/log#" "$service/log/run"
    touch "$service/down"
    runsv "$service" &
    supervisor=$!
    wait_for 5 test -p "$service/supervise/ok" || fail "runsv"
}
m_wrong() {
    sv up "$service"
    wait_for 10 logged 'is less than 2' && sleep 1.5
    # The agent says it once, and so does finish.
    sv status "$service" | grep '^down:' && [ "$(m_log | grep -c 'is less than 2')" = 2 ]
}
m_start() { sv -w 20 start "$service"; }
m_ready() { sv check "$service"; }
m_status() { sv status "$service" | grep '^run:'; }
m_reload() { sv 2 "$service"; }
m_stop() { sv -w 30 stop "$service"; }
m_log() { cat "$work/log/putex-$key/current"; }
m_end() {
    kill -HUP "$supervisor"
    sv -w 30 exit "$service"
}
