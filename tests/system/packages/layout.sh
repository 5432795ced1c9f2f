# shellcheck shell=sh disable=SC2154
# contrib/install, which all packages are made with.

managers="openrc systemd busybox"

play() {
    everything_is_installed
    paths_are_those_of_the_installation
    settings_are_kept
    bad_arguments_do_nothing
    it_runs_with_busybox
}

# install_into FOLDER COMMAND...: with paths that nobody else has.
install_into() {
    into=$1
    shift
    # shellcheck disable=SC2086  # names
    DESTDIR=$into PREFIX=/opt/p SYSCONFDIR=/opt/e "$@" contrib/install "$binary" $managers
}

everything_is_installed() {
    install_into "$work/one" env >"$work/printed" || fail "contrib/install"
    files_in "$work/one" >"$work/list"
    sort "$work/printed" | diff - "$work/list" || fail "what is printed is not what is there"
    wanted=$(for kind in completions examples grafana nats openrc prometheus runit s6 s6-rc systemd \
        sysv; do
        find -L "contrib/$kind" -type f
    done | wc -l)
    pages=$(find man -maxdepth 1 -name '*.[1-8]' | wc -l)
    schemas=$(find contrib -maxdepth 1 -name '*.schema.json' | wc -l)
    # The binary and putex.conf are the others.
    equal "files installed" "$(wc -l <"$work/list")" $((wanted + pages + schemas + 2))
    cmp "$binary" "$work/one/opt/p/sbin/putex" || fail "the binary"
    say "$(wc -l <"$work/list") files"
}

paths_are_those_of_the_installation() {
    grep -rIl -e /usr/sbin/putex -e /etc/putex "$work/one/opt/e" "$work/one/opt/p/lib" \
        "$work/one/opt/p/share" && fail "these name another place"
    # systemd and init run what they are told to: it is there.
    grep -rIho '/[a-z/]*sbin/putex' "$work/one/opt/e" "$work/one/opt/p/lib" | sort -u >"$work/named"
    equal "the binary that is run" "$(cat "$work/named")" /opt/p/sbin/putex
    find "$work/one" -type f ! -perm 644 ! -perm 755 | grep . && fail "these have another mode"
    find "$work/one/opt/e" "$work/one/opt/p/share/doc" -type f -perm 644 \
        -exec grep -l '^#!' {} + && fail "these are scripts that do not run"
    return 0
}

settings_are_kept() {
    for file in putex/putex.conf conf.d/putex; do
        echo "# Mine." >>"$work/one/opt/e/$file"
    done
    install_into "$work/one" env >"$work/printed" || fail "contrib/install, again"
    equal "files left as they were" "$(grep -c 'left as it is' "$work/printed")" 2
    for file in putex/putex.conf conf.d/putex; do
        tail -n 1 "$work/one/opt/e/$file" | grep -q Mine || fail "$file was overwritten"
    done
}

# refused STATUS ARGUMENT...
refused() {
    wanted=$1
    shift
    status=0
    DESTDIR=$work/none contrib/install "$@" >/dev/null 2>&1 || status=$?
    equal "status of contrib/install $*" "$status" "$wanted"
    [ ! -e "$work/none" ] || fail "something was installed"
}

bad_arguments_do_nothing() {
    refused 64
    refused 64 "$binary" upstart
    # Both are /etc/init.d/putex.
    refused 64 "$binary" openrc sysv
    refused 66 "$work/no-such-file" systemd
    refused 66 "$work" systemd
    says=$(contrib/install "$work" 2>&1) || :
    equal "message" "$says" "contrib/install: $work: a directory; name the binary in it"
}

it_runs_with_busybox() {
    if ! need_busybox; then
        skip "contrib/install under BusyBox: no busybox"
        return
    fi
    mkdir -p "$work/bin"
    "$busybox" --install -s "$work/bin"
    install_into "$work/two" "$work/bin/env" PATH="$work/bin" "$work/bin/sh" >/dev/null ||
        fail "contrib/install under BusyBox"
    rm -r "$work/one"
    install_into "$work/one" env >/dev/null
    diff -r "$work/one" "$work/two" || fail "BusyBox installs something else"
    say "the same with $("$busybox" | sed -n '1s/ (.*//p')"
}
