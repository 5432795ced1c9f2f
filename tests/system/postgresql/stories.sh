# shellcheck shell=sh disable=SC2154
# The stories: see run.

# Faults on hosts while three clients write. Each client notes what was acknowledged; each
# server is asked five times a second whether it gives out transaction numbers.
rounds() {
    for host in 1 2 3; do begin_agent "$host"; done
    wait_for 120 is_whole || fail "no primary with two standbys"
    say "host $primary is the primary"
    for host in 1 2 3; do observe "$host" & done
    for writer in 1 2 3; do keep_writing "$writer" & done
    failovers=0 round=0
    while [ "$round" -lt "${count:-4}" ]; do
        round=$((round + 1))
        play_round
    done
    : >"$work/data/enough"
    sleep 3
    judge
}

# A number below $1, from the seed.
seed=${seed:-$(date +%s)}
draw() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

play_round() {
    find_primary || fail "no primary"
    before=$primary
    # Three of four hit the primary.
    draw 4
    if [ "$drawn" = 0 ]; then
        draw 2
        victim=$(((before + drawn) % 3 + 1))
    else
        victim=$before
    fi
    case $((round % 4)) in
    1) fault=end ;;
    2) fault='kill' ;;
    3) fault='cut' ;;
    0) fault=freeze ;;
    esac
    hold_back
    struck=$(now)
    case $fault in
    end) end_agent "$victim" ;;
    kill) kill_host "$victim" ;;
    cut) cut "$victim" ;;
    freeze) freeze "$victim" ;;
    esac
    [ "$fault" != end ] || [ "$status" = 0 ] || fail "agent $victim ended with $status"
    sleep 1
    # It ends before it reads what has arrived meanwhile.
    # shellcheck disable=SC2086  # one or none
    [ -z "$receiver" ] || { kill -TERM $receiver && kill -CONT $receiver; } 2>/dev/null || true
    # Clients find the next primary before the host is back.
    wait_for 120 writes_again || fail "round $round: nobody writes after $fault of host $victim"
    served=$(now)
    # Long enough for the others to miss a standby.
    [ "$victim" = "$before" ] || sleep 8
    case $fault in
    end) begin_agent "$victim" ;;
    kill) connect "$victim" && begin_agent "$victim" ;;
    cut) connect "$victim" ;;
    freeze) thaw "$victim" ;;
    esac
    wait_for 180 is_whole || fail "round $round: not whole again after $fault of host $victim"
    [ "$primary" = "$before" ] || failovers=$((failovers + 1))
    say "round $round: $fault of host $victim${held:+, host $held lags}, primary $before -> $primary," \
        "writes after $(between "$struck" "$served"), whole after $(between "$served" "$(now)")," \
        "$(cat "$work"/data/acknowledged-* | wc -l) rows"
}
# In half of the rounds a standby lacks what the other acknowledges in the last second.
hold_back() {
    receiver='' held=''
    draw 2
    [ "$drawn" = 0 ] || return 0
    draw 2
    held=$(((before + drawn) % 3 + 1))
    receiver=$(running "$held" 'postgres: walreceiver *')
    # shellcheck disable=SC2086  # one or none
    [ -z "$receiver" ] || kill -STOP $receiver || true
    sleep 1
}
between() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f s", b - a }'; }
# By somebody who is not the victim, if that was the primary.
writes_again() {
    [ "$victim" != "$before" ] || { find_primary_but "$victim" || return 1; }
    row=$((${row:-0} + 1))
    write "INSERT INTO rows VALUES ($row)" && echo "$row" >>"$work/data/acknowledged-0"
}
find_primary_but() {
    for host in 1 2 3; do
        [ "$host" = "$1" ] || ! is_primary "$host" || return 0
    done
    return 1
}

# keep_writing WRITER: one row after the other, each with a number of its own; what psql
# prints was acknowledged.
keep_writing() {
    session=0
    until [ -e "$work/data/enough" ]; do
        session=$((session + 1))
        awk -v first="$1$(printf %05d "$session")" -v enough="$work/data/enough" 'BEGIN {
            for (;;) {
                printf "INSERT INTO rows VALUES (%s%07d) RETURNING id;\n", first, ++n
                print "SELECT pg_sleep(0.02) \\g /dev/null"
                if (n % 20 == 0) { fflush(); if ((getline line < enough) >= 0) exit }
            }
        }' | psql -XAtqw -v ON_ERROR_STOP=1 -U nobody \
            "host=10.78.0.1,10.78.0.2,10.78.0.3 port=$port dbname=postgres \
            target_session_attrs=read-write connect_timeout=2 keepalives_idle=1 \
            keepalives_interval=1 keepalives_count=3 tcp_user_timeout=4000" \
            >>"$work/data/acknowledged-$1" 2>>"$work/logs/writer-$1" || true
        sleep 0.3
    done
}

# observe HOST: lines of time and timeline while it gives out transaction numbers.
observe() {
    until [ -e "$work/data/enough" ]; do
        echo "SELECT extract(epoch FROM clock_timestamp()), CASE WHEN pg_is_in_recovery() THEN ''
            WHEN txid_current() > 0 THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END \\watch 0.2" |
            psql -XAtqw -F ' ' -h "$work/data/$1" -p "$port" -U nobody -d postgres \
                >>"$work/data/seen-$1" 2>/dev/null || true
        sleep 0.2
    done
}

# Two reigns, each of a host and a timeline, must not have a moment in common.
overlaps() {
    for host in 1 2 3; do
        awk -v host="$host" 'NF == 2 {
            if (!($2 in first)) first[$2] = $1
            last[$2] = $1
        } END { for (t in first) printf "%.6f %.6f %s %s\n", first[t], last[t], host, t }' \
            "$work/data/seen-$host"
    done | sort -n | tee "$work/logs/reigns" | awk '
        NR > 1 && $1 <= end { print "host " $3 " on timeline " $4 " beside " who; bad = 1 }
        { if ($2 > end) { end = $2; who = "host " $3 " on timeline " $4 } }'
}

judge() {
    wait_for 60 is_whole || fail "not whole at the end"
    wait_for 60 all_alike || fail "the servers differ: $(sums)"
    cat "$work"/data/acknowledged-* | sort >"$work/data/acknowledged"
    ask "$primary" 'SELECT id FROM rows' | sort >"$work/data/there"
    comm -23 "$work/data/acknowledged" "$work/data/there" >"$work/logs/lost"
    overlaps >"$work/logs/overlaps"
    moments=$(cat "$work"/data/seen-* | awk 'NF == 2' | wc -l)
    say "$round rounds, $failovers failovers, $(wc -l <"$work/data/acknowledged") rows acknowledged," \
        "$(wc -l <"$work/logs/lost") lost, $(wc -l <"$work/data/there") there;" \
        "$(wc -l <"$work/logs/reigns") reigns, $(wc -l <"$work/logs/overlaps") of them with two" \
        "primaries at once, seen at $moments moments;" \
        "$(cat "$work"/data/?/main.putex/log | grep -c 'is taken back') rewinds"
    if [ ! -s "$work/data/acknowledged" ] || [ "$moments" = 0 ]; then fail "nothing was seen"; fi
    [ ! -s "$work/logs/lost" ] || fail "rows were lost: $(head -n 5 "$work/logs/lost" | tr '\n' ' ')"
    [ ! -s "$work/logs/overlaps" ] || fail "two primaries at once: $(cat "$work/logs/overlaps")"
}
sums() {
    for host in 1 2 3; do
        ask "$host" "SELECT count(*), md5(string_agg(id::text, ',' ORDER BY id)) FROM rows"
    done
}
all_alike() { [ "$(sums | sort | uniq -c | awk '{ print $1 }')" = 3 ]; }

# The servers run as standbys of host 1 before the agents do.
launch_standbys() {
    for host in 1 2 3; do
        as_owner touch "$work/data/$host/main/standby.signal"
        echo "primary_conninfo = 'host=10.78.0.1 port=$port user=nobody application_name=10.78.0.$host'" |
            as_owner tee -a "$work/data/$host/main/postgresql.auto.conf" >/dev/null
        launch "$host"
    done
}

# Each step is clean: an agent ends, and another goes on.
moves() {
    launch_standbys
    begin_agent 1
    wait_for 120 find_primary || fail "no primary"
    first=$primary
    begin_agent 2
    begin_agent 3
    wait_for 60 is_whole || fail "no standbys"
    write 'INSERT INTO rows VALUES (1)' || fail "the first row"
    say "row 1 on host $first; its agent ends"
    end_agent "$first"
    [ "$status" = 0 ] || fail "agent $first ended with $status"
    wait_for 60 find_primary || fail "no second primary"
    second=$primary
    wait_for 30 write 'INSERT INTO rows VALUES (2)' || fail "the second row"
    say "row 2 on host $second; its agent ends"
    end_agent "$second"
    [ "$status" = 0 ] || fail "agent $second ended with $status"
    # The one that is left may be promoted or not.
    if ! wait_for 25 find_primary; then
        say "nobody is promoted; the agent of host $first is back"
        begin_agent "$first"
        wait_for 90 find_primary || fail "no third primary"
    fi
    say "host $primary has $(ask "$primary" 'SELECT count(*) FROM rows') of 2 rows"
    [ "$(ask "$primary" 'SELECT count(*) FROM rows')" = 2 ] || fail "rows are lost"
}

# The process that replays is stopped on both standbys, so that a promotion hangs.
pending() {
    launch_standbys
    begin_agent 1
    wait_for 120 find_primary || fail "no primary"
    begin_agent 2
    begin_agent 3
    wait_for 120 is_whole || fail "no primary with two standbys"
    say "host $primary is the primary; replay stands still on the others, and its agent ends"
    stopped=''
    for host in 1 2 3; do
        [ "$host" != "$primary" ] || continue
        pid=$(running "$host" 'postgres: startup *')
        [ -n "$pid" ] || fail "no process replays on host $host"
        kill -STOP "$pid"
        stopped="$stopped $host:$pid"
    done
    old=$primary
    end_agent "$old"
    wait_for 60 promotes || fail "nobody is being promoted"
    say "host $promoted is being promoted; its agent ends"
    sleep 1
    end_agent "$promoted"
    say "it ended with $status"
    for pair in $stopped; do kill -CONT "${pair#*:}" 2>/dev/null || true; done
    sleep 3
    ! is_primary "$promoted" || fail "host $promoted is a primary without the lock"
    [ "$status" = 0 ] || fail "agent $promoted ended with $status"
    say "host $promoted is no primary"
}
# running HOST PATTERN: the processes there whose command line is so.
running() {
    for pid in $(processes_of "$1"); do
        words=$({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null) || continue
        # shellcheck disable=SC2254  # a pattern
        case $words in $2) echo "$pid" ;; esac
    done
}
# Sets promoted.
promotes() {
    for host in 1 2 3; do
        if [ "$host" != "$old" ] && [ -n "$(running "$host" '*pg_ctl *promote*')" ]; then
            promoted=$host
            return
        fi
    done
    return 1
}

# What putex promises is broken: nobody stops the old primary. One standby still receives
# from it, and the other, which cannot reach it, is promoted.
fenced() {
    for host in 1 2 3; do begin_agent "$host"; done
    wait_for 120 is_whole || fail "no primary with two standbys"
    old=$primary next=$((primary % 3 + 1)) voter=$(((primary + 1) % 3 + 1))
    write 'INSERT INTO rows VALUES (1)' || fail "the first row"
    end_agent "$voter"
    say "agent and guard of host $old are killed; host $next cannot reach it, host $voter can"
    on "$next" ip route add blackhole "$(address "$old")"
    # An agent that sees its guard die starts another.
    kill -STOP "$(agent_of "$old")"
    for pid in $(running "$old" "putex guard $key ") $(agent_of "$old"); do kill -KILL "$pid"; done
    wait_for 90 is_primary "$next" || fail "host $next is not promoted"
    is_primary "$old" || fail "host $old is no primary any more"
    if PGOPTIONS='-c statement_timeout=0' timeout 8 psql -XAtqw -h "$work/data/$old" -p "$port" \
        -U nobody -d postgres -c 'INSERT INTO rows VALUES (2)' >"$work/logs/old" 2>&1; then
        fail "host $old acknowledged a row"
    fi
    say "host $old acknowledges nothing; all agents are back"
    begin_agent "$voter"
    begin_agent "$old"
    on "$next" ip route del blackhole "$(address "$old")"
    wait_for 120 is_whole || fail "not whole again"
    [ "$primary" = "$next" ] || fail "host $primary is the primary"
    wait_for 30 write 'INSERT INTO rows VALUES (3)' || fail "the third row"
    wait_for 30 all_alike || fail "the servers differ: $(sums)"
    [ "$(ask "$old" 'SELECT id FROM rows ORDER BY id' | tr '\n' ' ')" = "1 3 " ] || fail "rows: $(sums)"
    say "all have rows 1 and 3"
}

# The position of the last primary is noted by each standby; here something else is noted.
behind() {
    for host in 1 2 3; do begin_agent "$host"; done
    wait_for 120 is_whole || fail "no primary with two standbys"
    old=$primary
    sleep 5
    say "host $old is killed; the others have noted a position far beyond their own"
    kill_host "$old"
    for host in 1 2 3; do
        noted=$work/data/$host/main.putex/known
        [ -s "$noted" ] || [ "$host" = "$old" ] || fail "host $host has noted nothing"
        echo 999999999999 | as_owner tee "$noted" >/dev/null
    done
    ! wait_for 25 find_primary || fail "host $primary was promoted"
    grep -q 'the last primary was seen' "$work"/logs/agent-* || fail "that is not in the log"
    for host in 1 2 3; do echo 0 | as_owner tee "$work/data/$host/main.putex/known" >/dev/null; done
    wait_for 60 find_primary || fail "nobody is promoted"
    say "host $primary is promoted when it has noted less"
}

# A server is promoted and dies before another has anything of its timeline. The next one
# must not begin the same: of two that are called the same, pg_rewind believes they are one.
forked() {
    for host in 1 2 3; do begin_agent "$host"; done
    wait_for 120 is_whole || fail "no primary with two standbys"
    old=$primary next=$((primary % 3 + 1)) voter=$(((primary + 1) % 3 + 1))
    end_agent "$voter"
    replay=$(running "$voter" 'postgres: startup *')
    kill -STOP "$replay"
    kill_host "$old"
    wait_for 90 is_primary "$next" || fail "host $next is not promoted"
    lonely=$(timeline "$next")
    # It writes what nobody has.
    ask "$next" 'CREATE TABLE alone AS SELECT generate_series(1, 1000)' || fail "host $next does not write"
    kill_host "$next"
    say "host $next began timeline $lonely, and nobody has anything of it; the others are back"
    kill -CONT "$replay"
    connect "$old"
    begin_agent "$old"
    begin_agent "$voter"
    wait_for 120 find_primary || fail "nobody is promoted"
    [ "$(timeline "$primary")" -gt "$lonely" ] || fail "timeline $lonely has begun twice"
    say "host $primary began timeline $(timeline "$primary"); host $next is back"
    connect "$next"
    begin_agent "$next"
    wait_for 120 is_whole || fail "not whole again"
    wait_for 30 all_alike || fail "the servers differ: $(sums)"
    [ "$(ask "$next" "SELECT to_regclass('alone') IS NULL")" = t ] || fail "host $next was not rewound"
    say "all are alike"
}
timeline() { ask "$1" 'SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)' | sed 's/^0*//'; }

# A primary dies soon after its promotion, with something that nobody else has. By itself
# PostgreSQL takes 270 s over the checkpoint on the new timeline, if there is much to write.
young() {
    for host in 1 2 3; do begin_agent "$host"; done
    wait_for 120 is_whole || fail "no primary with two standbys"
    old=$primary next=$((primary % 3 + 1)) voter=$(((primary + 1) % 3 + 1))
    ask "$old" 'CREATE TABLE pages AS SELECT generate_series(1, 200000)' || fail "host $old does not write"
    wait_for 30 ask "$next" 'SELECT FROM pages LIMIT 1' || fail "host $next does not receive"
    end_agent "$voter"
    end_agent "$old"
    wait_for 90 is_primary "$next" || fail "host $next is not promoted"
    begin_agent "$old"
    begin_agent "$voter"
    wait_for 120 is_whole || fail "no primary with two standbys again"
    wait_for 20 has_checkpoint "$next" || say "host $next has no checkpoint on its timeline yet"
    receivers=$(running "$old" 'postgres: walreceiver *' && running "$voter" 'postgres: walreceiver *')
    # shellcheck disable=SC2086  # two
    kill -STOP $receivers
    ask "$next" 'CREATE TABLE alone AS SELECT generate_series(1, 1000)' || fail "host $next does not write"
    kill_host "$next"
    # They end before they read what has arrived meanwhile.
    # shellcheck disable=SC2086  # two
    kill -TERM $receivers && kill -CONT $receivers
    wait_for 120 find_primary || fail "nobody is promoted"
    say "host $primary is promoted after the death of host $next, which is back"
    connect "$next"
    begin_agent "$next"
    # A server that cannot follow begins to receive again and again.
    wait_for 30 write 'INSERT INTO rows VALUES (1)' || fail "the row"
    wait_for 120 all_alike || fail "host $next does not follow: $(sums)"
    [ "$(ask "$next" "SELECT to_regclass('alone') IS NULL")" = t ] || fail "host $next was not rewound"
    say "host $next follows, without a base backup"
}
has_checkpoint() {
    [ "$(ask "$1" "SELECT timeline_id = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
        FROM pg_control_checkpoint()")" = t ]
}
