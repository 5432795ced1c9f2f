# shellcheck shell=sh disable=SC2154
# Each of contrib/examples under contrib/systemd/putex@.service, with the drop-in that its
# own header names and no other.

# under_the_unit EXAMPLE ENVIRONMENT ARGUMENTS...: begins an instance of the unit.
under_the_unit() {
    example=$1 environment=$2
    shift 2
    name=$key$example
    settings=$work/etc/putex/$name
    mkdir -p "$settings" "$units/putex@$name.service.d"
    cp "contrib/examples/$example" "$work/$example"
    for act in start stop healthcheck; do
        printf '#!/bin/sh\nexec %s %s\n' "$work/$example" "$act $*" >"$settings/$act"
        chmod 755 "$settings/$act"
    done
    printf '%s\n' "$environment" "OPTIONS=\"--dir $work/lock --token one -r 1s \
--healthcheck /etc/putex/$name/healthcheck\"" >"$settings/env"
    sed -n '/^#   \[Service\]$/,/^# \{0,2\}[^ ]/s/^#   //p' "contrib/examples/$example" \
        >"$units/putex@$name.service.d/drop-in.conf"
    within systemctl daemon-reload
    within systemctl start "putex@$name" || fail "$example under the unit"
}

# The instance ends, and has ended what it kept.
ends_under_the_unit() {
    within systemctl stop "putex@$name" || fail "$example under the unit does not stop"
    [ "$(within systemctl show -P Result "putex@$name")" = success ] || fail "$example: it failed"
}

keep_an_address() {
    say "an address is kept by contrib/examples/address, with its drop-in"
    within ip link add name kept0 type veth peer name kept1
    within ip link set kept0 up
    within ip link set kept1 up
    under_the_unit address '' 192.0.2.10/24 kept0
    wait_for 30 has_address || fail "there is no address"
    ends_under_the_unit
    has_address && fail "the address is still there"
    return 0
}
has_address() { within ip -o address show dev kept0 | grep -q '192\.0\.2\.10/24'; }

# Its engine is a script here, with a process for a container.
keep_a_container() {
    say "a container is kept by contrib/examples/container"
    cat >"$work/engine" <<END
#!/bin/sh
state=$work/running
case \$1 in
ps) [ ! -e \$state ] || echo running ;;
inspect) cat \$state ;;
stop) : ;;
rm) rm -f \$state ;;
run) echo "\$PUTEX_TERM" >\$state ;;
esac
END
    chmod 755 "$work/engine"
    under_the_unit container "ENGINE=$work/engine" web image
    wait_for 30 test -e "$work/running" || fail "there is no container"
    ends_under_the_unit
    [ ! -e "$work/running" ] || fail "the container is still there"
}

# A cluster of Debian, with its unit and its paths: one server, a quorum of one.
keep_postgresql() {
    if [ ! -x /usr/bin/pg_createcluster ] || [ ! -d /usr/lib/postgresql/15 ]; then
        say "skipped: postgresql: there is no postgresql-15 of Debian here"
        return
    fi
    say "a cluster of Debian is kept by contrib/examples/postgresql, with its drop-in"
    within pg_createcluster --start-conf=manual -p 5432 15 kept >/dev/null || fail "pg_createcluster"
    cp '/lib/systemd/system/postgresql@.service' "$units/"
    under_the_unit postgresql 'SERVERS=127.0.0.1
SELF=127.0.0.1
CLUSTER=15-kept'
    wait_for 60 is_primary || {
        within tail -n 5 /var/lib/postgresql/15/kept.putex/log /var/log/postgresql/postgresql-15-kept.log
        within systemctl status postgresql@15-kept
        fail "it is no primary"
    }
    wait_for 10 within systemctl is-active postgresql@15-kept || fail "its unit does not run"
    ends_under_the_unit
    is_primary && fail "it is still a primary"
    return 0
}
is_primary() {
    [ "$(within setpriv --reuid postgres --regid postgres --init-groups \
        psql -XAtqw --cluster 15/kept -d postgres -c 'SELECT pg_is_in_recovery()')" = f ]
}
