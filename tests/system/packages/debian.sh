# shellcheck shell=sh disable=SC2154
# The Debian package for real: built twice, looked at by lintian, installed in a root that
# debootstrap made, under systemd as the first process and without it, with a
# nats-server on loopback; upgraded while its service runs, removed, purged.

key=pkg
arch=$(dpkg --print-architecture)

play() {
    [ "$(id -u)" = 0 ] || fail "this needs root"
    need_deb lintian lintian || fail "no lintian"
    need_deb debootstrap debootstrap || fail "no debootstrap"
    build_twice
    same_layout
    look_at_it
    make_a_root
    start_server
    live_under systemd
    live_under sysv
}

clear_up() {
    [ -z "${first:-}" ] || kill -9 "$first" 2>/dev/null || true
    [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
}

build_twice() {
    say "built twice, the second time in another place: the same bytes"
    cp -r contrib man "$work"
    OUT=$work/one contrib/debian/build "$binary" "$arch" >/dev/null
    sleep 1.1
    OUT=$work/two "$work/contrib/debian/build" "$binary" "$arch" >/dev/null
    one=$(sha256sum <"$work/one/putex_${version}_$arch.deb")
    two=$(sha256sum <"$work/two/putex_${version}_$arch.deb")
    equal "sha256" "$one" "$two"
    package=$work/one/putex_${version}_$arch.deb
    say "${one%% *} $(stat -c %s "$package") bytes"
    # The next version, which brings another init script.
    dpkg-deb -R "$package" "$work/next"
    sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
    echo "# Next." >>"$work/next/etc/init.d/putex"
    next=$work/next.deb
    dpkg-deb --root-owner-group -Znone --build "$work/next" "$next" >/dev/null
}

# What Debian wants beyond contrib/install stands here.
same_layout() {
    say "it has what contrib/install installs, and what Debian wants"
    {
        DESTDIR=$work/layout PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions \
            contrib/install "$binary" systemd sysv | sed '/share\/man/s/$/.gz/'
        echo /etc/needrestart/conf.d/putex.conf
        echo /usr/lib/systemd/system/putex.service
        echo /usr/share/doc/putex/changelog.gz
        echo /usr/share/doc/putex/copyright
        echo /usr/share/lintian/overrides/putex
    } | sort >"$work/wanted"
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed 's/^\.//' |
        grep '[^/]$' | sort >"$work/found"
    diff "$work/wanted" "$work/found" || fail "the layouts differ"
}

look_at_it() {
    say "lintian"
    lintian --allow-root --no-cfg --fail-on error,warning "$package" || fail "lintian"
    # It is written in Perl.
    perl -ce "$(cat contrib/debian/needrestart.conf)" 2>/dev/null || fail "needrestart.conf"
}

make_a_root() {
    base=$tools/debian/root
    if [ ! -e "$base.done" ]; then
        say "making a root with debootstrap"
        rm -rf "$base"
        mkdir -p "$base"
        debootstrap --variant=minbase --include=systemd bookworm "$base" \
            http://deb.debian.org/debian >"$work/debootstrap" || fail "debootstrap: $(tail -n 3 "$work/debootstrap")"
        touch "$base.done"
    fi
}

start_server() {
    nats=${NATS_SERVER:-$tools/bin/nats-server}
    [ -x "$nats" ] || fail "no nats-server: tests/tools installs one"
    "$nats" -a 127.0.0.1 -p -1 -js -sd "$work/js" --ports_file_dir "$work" 2>"$work/nats.log" &
    server=$!
    wait_for 10 find_server || fail "no nats-server: $(cat "$work/nats.log")"
}
find_server() {
    url=$(cat "$work"/*.ports | tr -d ' \n' | sed 's/.*"nats":\["\([^"]*\)".*/\1/')
    [ -n "$url" ]
}

copy_root() {
    box=$work/box
    rm -rf "$box"
    cp -a "$base" "$box"
}

# A first process in the copy of the root: in namespaces of its own, that nothing of it
# gets out, or is left.
boot() {
    # Of systemd's units, those that are the host's business are not there.
    find "$box/usr/lib/systemd/system" -mindepth 1 ! -name '*.target' ! -name '*journald*' \
        ! -name sockets.target.wants -delete 2>/dev/null || true
    cat >"$work/pid1" <<END
set -e
mount --bind $box $box
mount -t proc proc $box/proc
mount -t tmpfs tmpfs $box/run
mount -t tmpfs tmpfs $box/dev
mount -t tmpfs tmpfs $box/tmp
for node in 'null 1 3' 'zero 1 5' 'full 1 7' 'random 1 8' 'urandom 1 9'; do
    set -- \$node
    mknod -m 666 $box/dev/\$1 c \$2 \$3
done
mkdir -p $box/sys/fs/cgroup
mount -t tmpfs tmpfs $box/sys
mkdir -p $box/sys/fs/cgroup
mount -t cgroup2 cgroup2 $box/sys/fs/cgroup
mkdir $box/run/lock
: >$box/run/entered
hostname putex-box
exec env -i PATH=/usr/sbin:/usr/bin LC_ALL=C container=private chroot $box $1
END
    unshare -m -p -C -u -i -f --propagation private --kill-child=KILL sh "$work/pid1" \
        </dev/null >"$work/console" 2>&1 &
    outer=$!
    wait_for 5 pgrep -P "$outer" || fail "no first process"
    first=$(pgrep -P "$outer")
    wait_for 10 inside test -e /run/entered || fail "no root: $(cat "$work/console")"
}

# What is run there has its root for a root, also before the first process has: what
# is removed in it is never removed here.
inside() {
    nsenter -t "$first" -m -p -C -u -i chroot "$box" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}

# What is on the disk of the box, but for dpkg's own books.
files() {
    (cd "$box" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log \) -prune \
        -o -printf '%p %y %m %U:%G %s %l\n' | sed '/ d /s/ [0-9]* $//' | sort)
}

# putex's processes in the box, by their names for the host.
processes() {
    space=$(readlink "/proc/$first/ns/pid")
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/ns/pid" 2>/dev/null)" = "$space" ] || continue
        case $(tr '\0' ' ' 2>/dev/null <"$proc/cmdline") in
        *putex*"$1 "*) echo "${proc#/proc/}" ;;
        esac
    done
}
nobody() { [ -z "$(processes agent)$(processes guard)$(processes keep)" ]; }
has_other_agent() {
    other=$(processes agent)
    [ -n "$other" ] && [ "$other" != "$1" ]
}
is_up() { [ -e "$box/srv/up" ]; }
history() { tr '\n' ' ' <"$box/srv/history"; }

# What a person does to have a service kept.
write_key() {
    dir=$box/etc/putex/$key
    mkdir -p "$dir"
    # R 500 ms, T 5 s, C * R 1 s.
    echo "NATS_URL=$url" >"$dir/env"
    echo "OPTIONS=\"--bucket $1 -r 500ms -f 10\"" >>"$dir/env"
    cat >"$dir/start" <<'END'
#!/bin/sh
[ -e /srv/up ] || { echo start >>/srv/history; : >/srv/up; }
END
    cat >"$dir/stop" <<'END'
#!/bin/sh
[ ! -e /srv/up ] || { echo stop >>/srv/history; rm -f /srv/up; }
END
    chmod 755 "$dir/start" "$dir/stop"
    chmod 600 "$dir/env"
}

live_under() {
    manager=$1
    say "-- $manager"
    copy_root
    case $manager in
    systemd)
        boot "/usr/lib/systemd/systemd --system --unit=basic.target --log-target=null"
        wait_for 20 inside systemctl is-active basic.target || fail "no systemd: $(cat "$work/console")"
        ;;
    sysv)
        # Where systemd is, update-rc.d asks it; invoke-rc.d looks for an init.
        chroot "$box" dpkg --purge systemd >/dev/null 2>&1 || fail "systemd stays"
        [ ! -e "$box/usr/bin/systemctl" ] || fail "systemd stays"
        ln -s /bin/true "$box/usr/sbin/init"
        # It has to wait for processes that lost their parents.
        boot "/bin/sh -c 'while :; do sleep 1; done'"
        ;;
    esac
    files >"$work/before"

    say "installed: nothing is enabled, nothing runs"
    deb "$package"
    inside dpkg --verify putex || fail "dpkg --verify"
    equal version "$(inside putex --version | head -n 1)" "putex $version"
    not_enabled
    nobody || fail "something runs"

    say "told of a service, the service runs"
    write_key "$manager"
    : >"$box/srv/history"
    start_it
    wait_for 30 is_up || fail "the service does not run: $(logs)"
    agent=$(processes agent)

    say "upgraded: the service and its agent go on, what was changed stays"
    conffile=$box/etc/init.d/putex
    echo "# Mine." >>"$conffile"
    deb --force-confold "$next"
    sleep 2
    equal "the agent" "$(processes agent)" "$agent"
    equal "what was done to the service" "$(history)" "start "
    [ "$(tail -n 1 "$conffile")" = "# Mine." ] || fail "the conffile was overwritten"
    [ -e "$conffile.dpkg-dist" ] || fail "the new conffile is not beside it"
    still_enabled

    say "an agent that dies is followed by one of the new version, which goes on"
    kill -9 "$agent"
    wait_for 10 has_other_agent "$agent" || fail "no other agent"
    sleep 3
    equal "what was done to the service" "$(history)" "start "

    say "removed: the service is stopped first"
    inside dpkg --remove putex >"$work/dpkg" 2>&1 || fail "dpkg --remove: $(cat "$work/dpkg")"
    equal "what was done to the service" "$(history)" "start stop "
    nobody || fail "left: $(processes agent) $(processes guard) $(processes keep)"
    [ ! -e "$box/usr/sbin/putex" ] || fail "the binary is left"
    [ -e "$conffile" ] || fail "a removal is no purge"

    say "purged: but for what a person wrote, all is as it was"
    inside dpkg --purge putex >"$work/dpkg" 2>&1 || fail "dpkg --purge: $(cat "$work/dpkg")"
    inside test ! -e /run/putex || fail "/run/putex is left"
    [ -x "$dir/start" ] || fail "what a person wrote is gone"
    rm -r "$box/etc/putex" "$box/srv/history"
    files >"$work/after"
    diff "$work/before" "$work/after" || fail "the purge left something"
    kill -9 "$first"
    wait "$outer" 2>/dev/null || true
    first=''
}

# deb [OPTION] PACKAGE: installs it.
deb() {
    for last in "$@"; do :; done
    cp "$last" "$box/putex.deb"
    [ "$last" = "$1" ] || option=$1
    inside dpkg ${option:+"$option"} --install /putex.deb >"$work/dpkg" 2>&1 ||
        fail "dpkg --install: $(cat "$work/dpkg")"
    option=''
    rm "$box/putex.deb"
}

rc_links() { (cd "$box/etc" && ls rc?.d) | grep -c "^$1[0-9]*putex\$" || true; }

not_enabled() {
    equal "links that start it" "$(rc_links S)" 0
    [ "$manager" = sysv ] || equal "is-enabled" \
        "$(inside systemctl is-enabled "putex@$key" 2>&1)" disabled
}

start_it() {
    case $manager in
    systemd) inside systemctl enable --now "putex@$key" 2>/dev/null || fail "systemctl enable --now" ;;
    sysv)
        inside update-rc.d putex enable || fail "update-rc.d putex enable"
        inside /etc/init.d/putex start >/dev/null || fail "/etc/init.d/putex start"
        inside /etc/init.d/putex status >/dev/null || fail "/etc/init.d/putex status"
        ;;
    esac
}

still_enabled() {
    case $manager in
    systemd) equal "is-enabled" "$(inside systemctl is-enabled "putex@$key")" enabled ;;
    sysv) [ "$(rc_links S)" -gt 0 ] || fail "it is not enabled any more" ;;
    esac
}

logs() { inside journalctl -q --no-pager -n 40 2>&1; }
