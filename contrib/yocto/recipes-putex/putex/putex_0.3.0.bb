SUMMARY = "At most one copy of a service over several hosts"
DESCRIPTION = "An agent on each host competes for one lock, a key of a NATS JetStream \
KV bucket; the one that holds it has the service started, the others have it stopped."
HOMEPAGE = "https://crates.io/crates/putex"
SECTION = "admin"
LICENSE = "Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE;md5=da641040a4fd101e7e77dbec0e049d7d"

# Made by contrib/yocto/crates; bitbake -c update_crates putex would make the same list.
require putex-crates.inc

inherit cargo cargo-update-recipe-crates externalsrc systemd update-rc.d bash-completion

# The source that this layer stands in. For another, drop this and set SRC_URI.
EXTERNALSRC = "${@os.path.realpath('${THISDIR}/../../../..')}"

# None is enabled: each is for one key, and what it keeps is the image's to say.
SYSTEMD_SERVICE:${PN} = "putex@.service"
SYSTEMD_AUTO_ENABLE = "disable"
# Keeps what has a directory in /etc/putex.
INITSCRIPT_NAME = "putex"
INITSCRIPT_PARAMS = "defaults 90 10"

do_install() {
    DESTDIR="${D}" PREFIX="${prefix}" SYSCONFDIR="${sysconfdir}" \
        UNITDIR="${systemd_system_unitdir}" \
        ${S}/contrib/install "${B}/target/${CARGO_TARGET_SUBDIR}/putex" \
        ${@bb.utils.filter('DISTRO_FEATURES', 'systemd', d)} \
        ${@bb.utils.contains('DISTRO_FEATURES', 'sysvinit', 'sysv', '', d)}
}

PACKAGES =+ "${PN}-zsh-completion ${PN}-fish-completion"
FILES:${PN}-zsh-completion = "${datadir}/zsh"
FILES:${PN}-fish-completion = "${datadir}/fish"
CONFFILES:${PN} = "${sysconfdir}/putex/putex.conf"
