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

more_of_it() {
    incomplete_is_told_of
    restart_looks_at_the_options_first
    kill_keeper
    lost_agent_is_told_of
    lost_agent_has_a_keeper_again
    kill_keeper
    lost_agent_is_stopped
    stranger_is_left_alone
    stop_comes_before_the_agent
    stop_that_fails_is_told_of
    m_start || fail "start"
    wait_for 30 is_up || fail "the service did not come back"
}

incomplete_is_told_of() {
    say "a key without start or stop is left out, and that is said"
    keys=${config%/*}
    for act in start checkconfig; do
        told=0
        said=$(does "$act" nosuch 2>"$work/told") || told=$?
        [ "$told$said" = 1 ] || fail "$act nosuch: $told, $said"
        left_out nosuch || fail "$act nosuch: $(cat "$work/told")"
    done
    mkdir "$keys/half"
    touch "$keys/half/start" "$keys/half/stop"
    chmod 755 "$keys/half/start"
    said=$(does start 2>"$work/told") || fail "start of all that are whole"
    [ "$said" = "putex $key: runs already" ] || fail "start: $said"
    left_out half || fail "start: $(cat "$work/told")"
    # What runs is not lost, whatever became of its files.
    chmod 644 "$config/stop"
    said=$(does status 2>"$work/told") || fail "status"
    chmod 755 "$config/stop"
    case $said in "putex $key: runs, keeper "*) ;; *) fail "status: $said" ;; esac
    rm -r "$keys/half"
}
left_out() {
    [ "$(cat "$work/told")" = "putex $1: $keys/$1/start or $keys/$1/stop is missing or not \
executable: left out" ]
}

restart_looks_at_the_options_first() {
    say "restart with wrong options ends nothing"
    agent=$(find_all agent) before=$(history)
    echo "OPTIONS=\"--dir $work/lock -f 1\"" >"$config/env"
    told=0
    does restart >/dev/null 2>&1 || told=$?
    echo "OPTIONS=\"$options\"" >"$config/env"
    [ "$told" = 78 ] || fail "restart: $told"
    [ "$(find_all agent)" = "$agent" ] || fail "restart ended the agent"
    [ "$(history)" = "$before" ] || fail "the service was touched: $(history)"
}

# Nobody keeps the agent then, which goes on.
kill_keeper() {
    keeper=$(cat "$work/putex-$key.pid")
    agent=$(find_all agent) before=$(history)
    kill -9 "$keeper"
    wait_for 5 not_there "$keeper" || fail "the keeper lives"
}

lost_agent_is_told_of() {
    say "kill -9 of the keeper: status says that the agent has none"
    told=0
    said=$(does status "$key") || told=$?
    [ "$said" = "putex $key: runs without its keeper, agent $agent" ] || fail "status: $said"
    [ "$told" = 150 ] || fail "status of status: $told"
    reloads=$(m_log | grep -c 'upgrade: executing')
    m_reload || fail "reload"
    wait_for 5 reloaded_since "$reloads" || fail "the agent was not told to reload"
}
reloaded_since() { [ "$(m_log | grep -c 'upgrade: executing')" -gt "$1" ]; }

lost_agent_has_a_keeper_again() {
    say "start: a keeper for the agent that is there"
    said=$(does start "$key") || fail "start"
    say "$said"
    sleep 3
    [ "$(find_all agent)" = "$agent" ] || fail "agents: $(find_all agent)"
    m_status || fail "status"
    kill -9 "$agent"
    wait_for 5 has_other_agent "$agent" || fail "no other agent"
    sleep 2
    [ "$(history)" = "$before" ] || fail "the service was touched: $(history)"
    keeper=$(cat "$work/putex-$key.pid")
    m_reload || fail "reload"
    [ "$(cat "$work/putex-$key.pid")" = "$keeper" ] || fail "another keeper"
}

lost_agent_is_stopped() {
    say "stop without a keeper"
    m_stop || fail "stop"
    is_down || fail "the service runs"
    wait_for 3 nobody || fail "left: $(find_all agent) $(find_all guard)"
    m_status && fail "status says that it runs"
    :
}

# Its pid was a keeper's and an agent's once.
stranger_is_left_alone() {
    say "a stranger with the pid of one that is gone"
    sleep 1000 &
    stranger=$!
    echo "$stranger" | tee "$work/putex-$key.agent" >"$work/putex-$key.pid"
    told=0
    m_status || told=$?
    [ "$told" = 3 ] || fail "status: $told"
    m_stop || fail "stop"
    [ ! -e "$work/putex-$key.pid" ] || fail "the pid is still noted"
    echo "$stranger" >"$work/putex-$key.pid"
    said=$(does start "$key")
    [ "$said" = "putex $key: started" ] || fail "start: $said"
    m_stop || fail "stop"
    kill "$stranger" || fail "stop ended a stranger"
    wait "$stranger" 2>/dev/null || :
}

# The keeper is told to end while it looks for an agent that was noted, and then starts one. The
# shell of this host runs the cat of PATH, that of BusyBox its own.
stop_comes_before_the_agent() {
    say "stop while the keeper starts its agent"
    of_busybox=$script
    mkdir "$work/slow"
    script=$work/slow/S50putex
    sed '1s#.*#\#!/bin/sh#' "$of_busybox" >"$script"
    rm "$work/bin/cat"
    cat >"$work/bin/cat" <<END
#!$work/bin/sh
case \$1 in *.agent) sleep 0.5 ;; esac
exec $work/bin/busybox cat "\$@"
END
    chmod 755 "$script" "$work/bin/cat"
    for _ in 1 2 3 4; do
        m_start || fail "start"
        m_stop || fail "stop"
        nobody || fail "left: $(find_all agent) $(find_all guard)"
    done
    ln -sf busybox "$work/bin/cat"
    script=$of_busybox
}

stop_that_fails_is_told_of() {
    say "stop that fails: told, with a keeper and without"
    sed -i "2i [ ! -e $work/stuck ] || exit 1" "$config/stop"
    for lost in '' lost; do
        m_start || fail "start"
        wait_for 30 is_up || fail "the service did not come back"
        [ -z "$lost" ] || kill_keeper
        touch "$work/stuck"
        told=0
        said=$(does stop "$key" 2>&1) || told=$?
        rm "$work/stuck"
        case $told$said in
        "1"*"putex $key: the service may still run: see the log") ;;
        *) fail "stop, $lost: $told, $said" ;;
        esac
        # Its guard has gone on with stop.
        wait_for 10 nobody || fail "left: $(find_all agent) $(find_all guard)"
        is_down || fail "the service runs"
    done
    m_stop || fail "stop of what does not run"
}
