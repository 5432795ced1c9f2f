# shellcheck shell=sh
# Guests in QEMU, for scripts that source this: what they say is kept with the time of the
# host, CLOCK_BOOTTIME in milliseconds, and where it came from.

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Installs, of "command:package" pairs, the packages whose commands are missing.
need_commands() {
    needed=
    for each in "$@"; do
        command -v "${each%%:*}" >/dev/null || needed="$needed ${each#*:}"
    done
    [ -n "$needed" ] || return 0
    echo "$0: installing$needed"
    as_root apt-get -qq update
    # shellcheck disable=SC2086 # Packages are words.
    DEBIAN_FRONTEND=noninteractive \
        as_root apt-get -qq install -y --no-install-recommends $needed >/dev/null
}

# The time since the host's boot. The kernel gives hundredths of a second here, without
# a process for each line.
now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}0"
}

# Puts the time, and where it came from, before each line.
stamp() {
    cr=$(printf '\r')
    while IFS= read -r line; do
        read -r up _ </proc/uptime
        echo "${up%.*}${up#*.}0 $1 ${line%"$cr"}" >>"$2"
    done
}

# Runs a guest until it ends: guest FOLDER LOG SECONDS ARGUMENT... In FOLDER, of this
# guest alone, are "pid", what is killed to end it from here, "qemu", QEMU's own process,
# and "commands", which takes commands of QMP. A kernel needs no_timer_check: where the
# host is busy it gets less of a timer than it expects, and would panic.
guest() {
    dir=$1 log=$2 limit=$3
    shift 3
    rm -rf "$dir"
    mkdir -p "$dir"
    mkfifo "$dir/serial" "$dir/commands"
    : >"$log"
    stamp serial "$log" <"$dir/serial" &
    reader=$!
    {
        echo '{"execute":"qmp_capabilities"}' >&3
        {
            timeout -k 2 "$limit" qemu-system-x86_64 -accel tcg -display none -no-reboot \
                -no-user-config -serial "file:$dir/serial" -qmp stdio -pidfile "$dir/qemu" \
                "$@" <&3 2>&1 &
            echo $! >"$dir/pid"
            # Whatever ended it: a shell would say so here.
            { wait $! || true; } 2>/dev/null
        } | stamp qmp "$log"
    } 3<>"$dir/commands"
    # Frees the reader should QEMU never have opened the other end.
    : <>"$dir/serial"
    wait $reader
    rm -rf "$dir"
}

# Ends the guests that are still there, by their folders.
end_guests() {
    for each in "$@"; do
        [ ! -e "$each/pid" ] || kill "$(cat "$each/pid")" || true
    done
}
