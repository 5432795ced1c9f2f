################################################################################
#
# putex
#
################################################################################

PUTEX_VERSION = 0.3.0
# The source that this tree of packages stands in.
PUTEX_SITE = $(realpath $(BR2_EXTERNAL_PUTEX_PATH)/../..)
PUTEX_SITE_METHOD = local
PUTEX_OVERRIDE_SRCDIR_RSYNC_EXCLUSIONS = --exclude /target
PUTEX_LICENSE = Apache-2.0
PUTEX_LICENSE_FILES = LICENSE

# Crates come with a source that is downloaded, and are fetched for one that is not.
define PUTEX_FETCH_CRATES
	cd $(@D) && $(TARGET_MAKE_ENV) $(PKG_CARGO_ENV) cargo fetch --locked
endef
PUTEX_PRE_CONFIGURE_HOOKS += PUTEX_FETCH_CRATES

PUTEX_INSTALL = DESTDIR=$(TARGET_DIR) PREFIX=/usr $(@D)/contrib/install
PUTEX_BINARY = $(@D)/target/$(RUSTC_TARGET_NAME)/$(if $(BR2_ENABLE_DEBUG),debug,release)/putex

define PUTEX_INSTALL_TARGET_CMDS
	$(PUTEX_INSTALL) $(PUTEX_BINARY)
endef

define PUTEX_INSTALL_INIT_SYSV
	$(PUTEX_INSTALL) - busybox
endef

define PUTEX_INSTALL_INIT_OPENRC
	$(PUTEX_INSTALL) - openrc
endef

define PUTEX_INSTALL_INIT_SYSTEMD
	$(PUTEX_INSTALL) - systemd
endef

$(eval $(cargo-package))
