# shellcheck shell=sh disable=SC2154
# contrib/yocto, a layer. BitBake is not here: the recipe is read by oelint-adv, its list of
# crates is compared with Cargo.lock, and its do_install is run by a shell.

recipe=contrib/yocto/recipes-putex/putex

play() {
    skip "a build by BitBake: its variables are set by a script"
    bb=$recipe/putex_$version.bb
    [ -r "$bb" ] || fail "$bb: not there: $(ls "$recipe")"
    layer
    crates
    install_it
    lint
}

# The path after the recipe's own, in a file of the layer.
layer() {
    # shellcheck disable=SC2016  # BitBake's
    grep -q '^BBFILES += "${LAYERDIR}/recipes-\*/\*/\*.bb"$' contrib/yocto/conf/layer.conf ||
        fail "layer.conf does not name the recipe"
    up=$(sed -n "s|^EXTERNALSRC = .*'\${THISDIR}\(.*\)').*|\1|p" "$bb")
    equal "the source" "$(realpath "$recipe$up")" "$root"
    equal "md5 of the licence" "$(sed -n 's/^LIC_FILES_CHKSUM = .*md5=\(.*\)"/\1/p' "$bb")" \
        "$(md5sum LICENSE | cut -d ' ' -f 1)"
}

crates() {
    contrib/yocto/crates | diff "$recipe/putex-crates.inc" - ||
        fail "Cargo.lock has changed: contrib/yocto/crates >$recipe/putex-crates.inc"
    # The script read by somebody else.
    need_tool python3 "the list of crates, by another reader" || return 0
    python3 - "$recipe/putex-crates.inc" <<'END' || fail "putex-crates.inc is not Cargo.lock"
import re, sys, tomllib
lock = tomllib.load(open("Cargo.lock", "rb"))["package"]
locked = {(p["name"], p["version"], p["checksum"]) for p in lock if "source" in p}
text = open(sys.argv[1]).read()
assert re.fullmatch(r'# [^\n]*\n\nSRC_URI \+= " \\\n(    crate://\S+ \\\n)+"\n\n(SRC_URI\[\S+\] = "\w+"\n)+', text)
sums = dict(re.findall(r'SRC_URI\[(\S+)\.sha256sum\] = "(\w+)"', text))
listed = set()
for name, number, key in re.findall(r"crate://crates\.io/([^/]+)/([^;]+);name=(\S+)", text):
    listed.add((name, number, sums.pop(key)))
assert listed == locked and not sums, (listed ^ locked, sums)
print(f"   {len(listed)} crates")
END
}

# What is in ${@} is Python; the rest is as a shell takes it.
install_it() {
    sed -n '/^do_install()/,/^}/p' "$bb" | sed 's/\${@[^}]*systemd[^}]*}/systemd/
        s/\${@[^}]*sysv[^}]*}/sysv/' >"$work/do_install"
    grep -q '{@' "$work/do_install" && fail "do_install: $(grep '{@' "$work/do_install")"
    mkdir -p "$work/build/target/here/release"
    cp "$binary" "$work/build/target/here/release/putex"
    # shellcheck disable=SC2034
    (
        D=$work/image S=$root B=$work/build CARGO_TARGET_SUBDIR=here/release prefix=/usr
        sysconfdir=/etc systemd_system_unitdir=/usr/lib/systemd/system
        # shellcheck source=/dev/null
        . "$work/do_install"
        do_install
    ) >"$work/log" || fail "do_install: $(cat "$work/log")"
    layout systemd sysv >"$work/wanted"
    files_in "$work/image" | diff "$work/wanted" - || fail "the layouts differ"
    # What FILES has by default, by the classes that are inherited, and by the recipe.
    grep -v -e '^/usr/sbin/' -e '^/etc/' -e '^/usr/share/man/' -e '^/usr/share/doc/' \
        -e '^/usr/lib/systemd/system/' -e '^/usr/share/bash-completion/' \
        -e '^/usr/share/zsh/' -e '^/usr/share/fish/' "$work/wanted" &&
        fail "these are in no package"
    for folder in zsh fish; do
        grep -q "^FILES:.* = \"\${datadir}/$folder\"$" "$bb" || fail "$folder is in no package"
    done
}

lint() {
    if ! need_pip oelint-adv 9.11.2; then
        skip "the recipe's style: no oelint-adv"
        return
    fi
    # No look at the network. The list of crates has the form that BitBake's task gives it.
    PYTHONPATH=$pip python3 "$pip/bin/oelint-adv" --quiet --hide info \
        --suppress oelint.vars.homepageping --suppress oelint.vars.inconspaces \
        --suppress oelint.var.filesoverride "$bb" 2>&1 | tee "$work/lint"
    [ ! -s "$work/lint" ] || fail "oelint-adv"
    say "oelint-adv has nothing to say"
}
