# shellcheck shell=sh disable=SC2154
# contrib/buildroot, a tree for BR2_EXTERNAL. Buildroot is not here: a few lines of make
# stand for its part, so that variables and commands are expanded as it would, and the
# commands that install are run.

package=contrib/buildroot/package/putex

play() {
    skip "a build by Buildroot: a stub of its macros plays its part"
    need_tool make "putex.mk" || return 0
    play_make
    hashes
    config
}

play_make() {
    cat >"$work/Makefile" <<'END'
include $(BR2_EXTERNAL_PUTEX_PATH)/external.mk
INSTALL_ALL = $(PUTEX_INSTALL_TARGET_CMDS) ; $(PUTEX_INSTALL_INIT_$(INIT))
$(BUILT)/install: ; $(INSTALL_ALL)
$(BUILT)/fetch: ; $($(PUTEX_PRE_CONFIGURE_HOOKS))
show-%: ; @echo '$($*)'
END
    # Where Buildroot would have copied the source, and compiled it.
    mkdir -p "$work/build/target/some-target/release"
    cp -r contrib man LICENSE "$work/build"
    cp "$binary" "$work/build/target/some-target/release/putex"
    equal PUTEX_VERSION "$(play_buildroot show-PUTEX_VERSION)" "$version"
    equal PUTEX_SITE "$(play_buildroot show-PUTEX_SITE)" "$root"
    equal PUTEX_SITE_METHOD "$(play_buildroot show-PUTEX_SITE_METHOD)" local
    [ -e "$(play_buildroot show-PUTEX_SITE)/Cargo.lock" ] || fail "no source there"
    equal "cargo-package" "$(play_buildroot show-CARGO_PACKAGE)" evaluated
    play_buildroot -n "$work/build/fetch" | grep -q "cd $work/build && .* cargo fetch --locked$" ||
        fail "crates are not fetched"
    for init in SYSV:busybox OPENRC:openrc SYSTEMD:systemd; do
        rm -rf "$work/target" "$work/layout"
        play_buildroot "$work/build/install" INIT="${init%:*}" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
        layout "${init#*:}" >"$work/wanted"
        files_in "$work/target" | diff "$work/wanted" - || fail "the layouts differ: $init"
    done
}

play_buildroot() {
    make -s -f "$work/Makefile" BR2_EXTERNAL_PUTEX_PATH="$root/contrib/buildroot" \
        TARGET_DIR="$work/target" RUSTC_TARGET_NAME=some-target BUILT="$work/build" \
        PKG_CARGO_ENV=CARGO_HOME=/nowhere cargo-package='CARGO_PACKAGE = evaluated' "$@"
}

hashes() {
    while read -r kind sum file; do
        case $kind in
        sha256) equal "hash of $file" "$sum" "$(sha256sum "$file" | cut -d ' ' -f 1)" ;;
        '#' | '') ;;
        *) fail "$package/putex.hash: $kind" ;;
        esac
    done <"$package/putex.hash"
    grep -q "  $(play_buildroot show-PUTEX_LICENSE_FILES)$" "$package/putex.hash" ||
        fail "no hash of the licence"
    grep -q "^name: PUTEX$" contrib/buildroot/external.desc || fail "external.desc: no name"
}

config() {
    if ! need_pip kconfiglib 14.1.0; then
        skip "Config.in: no kconfiglib"
        return
    fi
    cat >"$work/Config.in" <<'END'
mainmenu "stub"
config BR2_PACKAGE_HOST_RUSTC_TARGET_ARCH_SUPPORTS
	bool
	default y
config BR2_USE_MMU
	bool
	default y
config BR2_PACKAGE_HOST_RUSTC
	bool
source "$BR2_EXTERNAL_PUTEX_PATH/Config.in"
END
    BR2_EXTERNAL_PUTEX_PATH=$root/contrib/buildroot PYTHONPATH=$pip python3 - "$work/Config.in" <<'END' ||
import sys, kconfiglib
tree = kconfiglib.Kconfig(sys.argv[1], warn_to_stderr=True)
tree.syms["BR2_PACKAGE_PUTEX"].set_value(2)
assert tree.syms["BR2_PACKAGE_PUTEX"].str_value == "y", "it cannot be chosen"
assert tree.syms["BR2_PACKAGE_HOST_RUSTC"].str_value == "y", "no compiler is selected"
assert not tree.warnings, tree.warnings
END
        fail "Config.in"
    say "Config.in is read by kconfiglib"
}
