# shellcheck shell=sh disable=SC2154
# OpenRC: rc-service and supervise-daemon of Debian's package, which would replace the
# init system if it was installed: in a root that is this one with OpenRC laid over it.

m_prepare() {
    unpack openrc openrc librc1 libeinfo1 insserv
    base=$work/openrc
    mkdir -p "$base"
    enter "
mount -t tmpfs tmpfs $base
mkdir $base/upper $base/work $base/root
cp -R $tools/openrc $base/lower
for folder in bin sbin lib; do
    [ ! -d $base/lower/\$folder ] || cp -R $base/lower/\$folder $base/lower/usr/
    rm -rf $base/lower/\$folder
done
cd $base
mount -t overlay overlay -o lowerdir=$base/lower:/,upperdir=$base/upper,workdir=$base/work root
mount --bind /proc root/proc
mount --bind /dev root/dev
mount --bind /run root/run
mkdir -p root$work
mount --bind $work root$work
rm -rf root/etc/init.d root/etc/rc?.d root/etc/runlevels
mkdir -p root/etc/init.d root/etc/conf.d root/etc/runlevels/default
for folder in starting started stopping inactive wasinactive failed hotplugged daemons \\
    options exclusive scheduled init.d tmp; do
    mkdir -p root/run/openrc/\$folder
done
echo default >root/run/openrc/softlevel
cp $root/contrib/openrc/putex.initd root/etc/init.d/putex
cp $root/contrib/openrc/putex.confd root/etc/conf.d/putex
ln -s putex root/etc/init.d/putex.$key
ln -s $work/etc/putex root/etc/putex
cp $work/sbin/putex root/usr/sbin/putex
touch $work/entered"
}
service() { inside chroot "$base/root" rc-service "putex.$key" "$@"; }
m_wrong() {
    ! service checkconfig && ! service start && [ -z "$(find_all agent)" ] &&
        ! inside chroot "$base/root" rc-service putex start
}
m_start() { service start; }
m_ready() { logged 'looking -> standby'; }
m_status() { service status; }
m_reload() { service reload; }
m_stop() { service stop; }
m_log() { grep "putex.*$key" "$work/messages"; }
m_end() { leave; }
more_of_it() {
    say "another service is kept by contrib/examples/service"
    cp contrib/examples/service "$work/service"
    cat >"$work/kept" <<'END'
#!/sbin/openrc-run
command=/bin/sleep
command_args=1000
command_background=yes
pidfile=/run/kept.pid
END
    inside install -m 755 "$work/kept" "$base/root/etc/init.d/kept"
    inside chroot "$base/root" sh -ec "
        export PUTEX_KEY=kept
        s=$work/service
        \$s stop
        PUTEX_ROLE=standby \$s healthcheck
        if \$s healthcheck; then exit 1; fi
        \$s start
        \$s start
        \$s healthcheck
        pid=\$(cat /run/kept.pid)
        kill -0 \$pid
        \$s stop
        \$s stop
        # Dead, if not reaped: the first process of a container may not care.
        if grep -s '^State:.[^ZX]' /proc/\$pid/status; then exit 2; fi" || fail "the example: $?"
    say "the same after a start that was killed"
    cat >"$work/slow" <<'END'
#!/sbin/openrc-run
start() { touch /run/slow.begun; sleep 1000; }
stop() { rm -f /run/slow.begun; }
END
    inside install -m 755 "$work/slow" "$base/root/etc/init.d/slow"
    inside chroot "$base/root" sh -ec "
        export PUTEX_KEY=slow
        setsid $work/service start &
        until [ -e /run/slow.begun ]; do sleep 0.1; done
        kill -KILL -\$!
        if $work/service healthcheck; then exit 3; fi
        $work/service stop
        [ ! -e /run/slow.begun ]
        $work/service stop" || fail "a start that was killed: $?"
}
