# shellcheck shell=sh disable=SC2154
# BusyBox: its shell, setsid and syslogd; nothing but the script looks after the agent.

m_prepare() {
    script=$work/S50putex
    sed "1s#.*#\#!$work/bin/sh#; s#^putex=.*#putex=$work/sbin/putex#
        s#^config=.*#config=$work/etc/putex#; s#^run=.*#run=$work#" contrib/sysv/S50putex >"$script"
    chmod 755 "$script"
    enter "touch $work/entered"
}
does() { inside env PATH="$work/bin" "$script" "$@"; }
m_wrong() { ! does checkconfig && ! does start && [ -z "$(find_all agent)" ]; }
m_start() { does start; }
m_ready() { logged 'looking -> standby'; }
m_status() { does status "$key"; }
m_reload() { does reload; }
m_stop() { does stop "$key"; }
m_log() { grep "putex.*$key" "$work/messages"; }
m_end() { leave; }
