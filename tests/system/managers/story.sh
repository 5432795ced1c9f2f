# shellcheck shell=sh disable=SC2154
# What every service manager is put through. It gives the acts: m_start, m_ready,
# m_status, m_reload, m_stop, m_log, m_wrong, m_end.

work=$(mktemp -d /tmp/putex-manager-XXXXXX)
key=m${work##*-}
config=$work/etc/putex/$key
mkdir -p "$config" "$work/sbin"
cp "$PUTEX_UNDER_TEST" "$work/sbin/putex"

# R 500 ms, T 3 s, C * R 1 s: a manager has 2.5 s to bring an agent back that died.
options="--dir $work/lock --token one -r 500ms -f 6"

cat >"$config/start" <<END
#!/bin/sh
[ -e $work/up ] || { echo start >>$work/history; : >$work/up; }
END
cat >"$config/stop" <<END
#!/bin/sh
[ ! -e $work/up ] || { echo stop >>$work/history; rm -f $work/up; }
END
echo "OPTIONS=\"$options\"" >"$config/env"
chmod 755 "$work" "$config/start" "$config/stop"

unpack() {
    # unpack FOLDER PACKAGE...: Debian's packages, one beside the other.
    [ ! -e "$tools/$1/.done" ] || return 0
    folder=$tools/$1
    shift
    rm -rf "$folder"
    mkdir -p "$folder/deb"
    (
        cd "$folder/deb" || exit
        apt-get -qq download "$@" 2>/dev/null || { apt-get -qq update && apt-get -qq download "$@"; }
        for deb in *.deb; do dpkg -x "$deb" ..; done
    )
    touch "$folder/.done"
}

# A namespace with a /dev and a /run of its own, and BusyBox for a syslog daemon in it;
# the rest of it is a script of the manager, which ends as the supervisor.
enter() {
    unpack busybox busybox-static
    mkdir -p "$work/bin"
    "$tools/busybox/bin/busybox" --install -s "$work/bin"
    cat >"$work/inside" <<END
set -e
mount -t tmpfs tmpfs /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 666 /dev/random c 1 8
mknod -m 666 /dev/urandom c 1 9
mount -t tmpfs tmpfs /run
$work/bin/syslogd -O $work/messages
$1
exec sleep 1000
END
    unshare -m --propagation private sh "$work/inside" &
    supervisor=$!
    wait_for 10 test -e "$work/entered" || fail "the namespace"
}
inside() { nsenter -t "$supervisor" -m "$@"; }
leave() {
    for pid in $(find_in "$supervisor"); do kill -9 "$pid"; done
    wait "$supervisor"
}
# Processes in the mount namespace of one.
find_in() {
    space=$(readlink "/proc/$1/ns/mnt")
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/ns/mnt" 2>/dev/null)" != "$space" ] || echo "${proc#/proc/}"
    done
}

say() {
    echo "   $*"
}

fail() {
    echo "   FAILED: $*"
    echo "   --- log"
    m_log 2>&1 | tail -n 40
    echo "   --- history: $(history)"
    clear_up
    exit 1
}

clear_up() {
    m_end >/dev/null 2>&1 || true
    for pid in $(find_all agent) $(find_all guard); do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf /run/putex/.agents/"$key"-*
    rm -rf "$work"
}

# wait_for SECONDS COMMAND...
wait_for() {
    left=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.1
    done
}

# find_all agent|guard: the processes of this story, as this host numbers them.
find_all() {
    case $1 in
    agent) wanted="*putex agent --key $key *" ;;
    guard) wanted="putex guard $key *" ;;
    esac
    grep -las -- "$key" /proc/[0-9]*/cmdline | while read -r proc; do
        proc=${proc%/cmdline}
        words=$({ tr '\0' ' ' <"$proc/cmdline"; } 2>/dev/null) || continue
        # shellcheck disable=SC2254  # a pattern
        case $words in $wanted) echo "${proc#/proc/}" ;; esac
    done
}

is_up() { [ -e "$work/up" ]; }
is_down() { [ ! -e "$work/up" ]; }
history() { [ ! -e "$work/history" ] || tr '\n' ' ' <"$work/history"; }
logged() { m_log | grep -q -e "$1"; }
adopted() { [ "$(m_log | grep -c 'adopted as revision')" -ge "$1" ]; }
has_other_agent() {
    other=$(find_all agent)
    [ -n "$other" ] && [ "$other" != "$1" ]
}
not_there() { ! kill -0 "$1" 2>/dev/null; }
nobody() { [ -z "$(find_all agent)$(find_all guard)" ]; }

play() {
    m_prepare
    say "wrong options are refused"
    echo "OPTIONS=\"--dir $work/lock -f 1\"" >"$config/env"
    m_wrong || fail "wrong options were taken"
    echo "OPTIONS=\"$options\"" >"$config/env"

    say "start"
    m_start || fail "start"
    wait_for 20 m_ready || fail "it is not ready"
    is_down || fail "ready means standing by"
    wait_for 30 is_up || fail "the service does not run"
    m_status || fail "status"
    wait_for 5 logged 'the service runs here' || fail "the log"
    say "log: $(m_log | grep 'the service runs here')"

    say "reload: the agent executes its program anew, and goes on"
    agent=$(find_all agent)
    m_reload || fail "reload"
    wait_for 5 logged 'upgrade: executing' || fail "reload is not in the log"
    wait_for 5 adopted 1 || fail "it did not go on"
    [ "$(find_all agent)" = "$agent" ] || fail "reload restarted the agent"

    say "kill -9 of the agent: another goes on"
    kill -9 "$agent"
    wait_for 5 has_other_agent "$agent" || fail "no other agent"
    wait_for 5 adopted 2 || fail "it did not go on"
    sleep 2
    [ "$(history)" = "start " ] || fail "the service was touched: $(history)"

    say "kill -9 of agent and guard: stop is run"
    agent=$(find_all agent)
    # A child of the guard that has not executed its command yet looks the same.
    guard=$(find_all guard | sort -n | head -n 1)
    # An agent that sees its guard die starts another.
    kill -STOP "$agent"
    kill -9 "$guard" "$agent"
    wait_for 5 is_down || fail "nobody stopped the service"
    finish=$(m_log | grep 'finish: stop' | tail -n 1)
    [ -z "$finish" ] || say "log: $finish"
    wait_for 5 has_other_agent "$agent" || fail "no other agent"
    wait_for 30 is_up || fail "the service did not come back"
    [ "$(history)" = "start stop start " ] || fail "history: $(history)"

    more_of_it
    say "stop"
    m_stop || fail "stop"
    is_down || fail "the service runs"
    wait_for 3 nobody || fail "left: $(find_all agent) $(find_all guard)"
    logged 'the lock is released' || fail "the lock is not released"
    m_status && fail "status says that it runs"
    clear_up
}

# What one manager has beyond the others.
more_of_it() { :; }
