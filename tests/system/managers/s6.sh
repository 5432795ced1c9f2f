# shellcheck shell=sh disable=SC2154
# s6: s6-svscan and s6-log. Debian's programs look for each other below /usr, so they
# are laid over it, in a mount namespace.

m_prepare() {
    unpack s6 s6 execline libs6-2.11 libexecline2.9 libskarnet2.13
    service=$work/scan/putex-$key
    mkdir -p "$work/scan" "$work/log" "$work/s6"
    cp -RL contrib/s6/putex-db "$service"
    sed -i "s#^dir=.*#dir=$work/etc/putex/\$key#; s#^putex=.*#putex=$work/sbin/putex#" \
        "$service/data/conf"
    sed -i "s#/var/log#$work/log#" "$service/log/run"
    touch "$service/down"
    cat >"$work/inside" <<END
mount -t tmpfs tmpfs $work/s6
cp -R $tools/s6/. $work/s6
for folder in bin sbin lib; do
    [ ! -d $work/s6/\$folder ] || cp -R $work/s6/\$folder $work/s6/usr/
done
mount -t overlay overlay -o lowerdir=$work/s6/usr:/usr /usr
exec s6-svscan $work/scan
END
    unshare -m --propagation private sh "$work/inside" &
    supervisor=$!
    wait_for 10 inside s6-svok "$service" || fail "s6-svscan"
}
m_wrong() {
    inside s6-svc -u "$service"
    wait_for 10 logged 'is less than 2' && sleep 2
    inside s6-svstat "$service" | grep '^down.*exitcode 78' &&
        [ "$(m_log | grep -c 'is less than 2')" = 2 ]
}
m_start() { inside s6-svc -wU -T 20000 -u "$service"; }
m_ready() { inside s6-svstat -o ready "$service" | grep true; }
m_status() { inside s6-svstat "$service" | grep '^up'; }
m_reload() { inside s6-svc -2 "$service"; }
m_stop() { inside s6-svc -wD -T 30000 -d "$service"; }
m_log() { cat "$work/log/putex-$key/current"; }
m_end() {
    inside s6-svscanctl -t "$work/scan"
    wait_for 10 not_there "$supervisor"
}
