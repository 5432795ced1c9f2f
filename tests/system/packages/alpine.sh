# shellcheck shell=sh disable=SC2154
# contrib/alpine/APKBUILD. abuild needs Alpine: its place is taken by a few lines that
# run prepare, build and package with a cargo that compiles nothing, and sort what was
# installed into packages as abuild does.

# A package of abuild's, and what it moves there.
moves='putex-doc usr/share/doc usr/share/man
putex-openrc etc/init.d etc/conf.d
putex-bash-completion usr/share/bash-completion
putex-zsh-completion usr/share/zsh
putex-fish-completion usr/share/fish'

play() {
    skip "a build by abuild: it needs Alpine; abuild's part is played by a script"
    sh -n contrib/alpine/APKBUILD || fail "sh -n"
    mkdir -p "$work/bin" "$work/src" "$work/pkg"
    cat >"$work/bin/cargo" <<END
#!/bin/sh
echo "\$*" >>$work/cargo
case \$* in
*build*)
    mkdir -p "\$CARGO_TARGET_DIR/release"
    cp "$binary" "\$CARGO_TARGET_DIR/release/putex" ;;
esac
END
    chmod 755 "$work/bin/cargo"
    sh -eu -c '
        default_prepare() { [ -e "$builddir/Cargo.toml" ]; }
        startdir=$1 srcdir=$2/src pkgdir=$2/pkg CTARGET=x86_64-alpine-linux-musl
        export PATH="$2/bin:$PATH"
        . "$startdir/APKBUILD"
        for act in prepare build check package; do (cd "$builddir" && $act); done >&2
        echo "$pkgname $pkgver" $subpackages
    ' sh "$root/contrib/alpine" "$work" >"$work/said" 2>"$work/log" || fail "$(cat "$work/log")"
    read -r name number packages <"$work/said"
    equal "name" "$name" putex
    equal "version" "$number" "$version"
    grep -v -e --locked -e --frozen "$work/cargo" && fail "this does not take Cargo.lock as it is"
    equal "calls of cargo" "$(wc -l <"$work/cargo")" 3
    layout openrc >"$work/wanted"
    files_in "$work/pkg" | diff "$work/wanted" - || fail "the layouts differ"
    split
}

split() {
    echo "$moves" >"$work/moves"
    equal "packages" "$packages" "$(cut -d ' ' -f 1 "$work/moves" | tr '\n' ' ' | sed 's/ $//')"
    while read -r package places; do
        for place in $places; do
            [ -e "$work/pkg/$place" ] || fail "$package: no $place"
            rm -r "$work/pkg/$place"
        done
    done <"$work/moves"
    rest=$(files_in "$work/pkg" | tr '\n' ' ')
    equal "what is left for putex" "$rest" "/etc/putex/putex.conf /usr/sbin/putex "
}
