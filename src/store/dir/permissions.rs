//! Checks of a bucket's folder: no other user can replace it or write to it, and no other host
//! shares its file system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::store::{StoreError, StoreErrorKind, StoreResult};
use crate::sys;
use crate::sys::safe_path::{self, Unusable};

/// File systems of one host, by the number of statfs(2), written as in linux/magic.h: tmpfs, ramfs,
/// overlayfs, ext2 to ext4, XFS, Btrfs, ZFS, bcachefs, F2FS, JFS, NILFS, ReiserFS, UBIFS, JFFS2,
/// eCryptfs, exFAT, FAT, NTFS. Any other one may be shared, such as NFS, and whatever is mounted by
/// FUSE: the clock and the boot in `epoch` have no meaning on a second host.
const LOCAL_FILE_SYSTEMS: [u64; 18] = [
    0x01021994, 0x858458f6, 0x794c7630, 0xef53, 0x58465342, 0x9123683e, 0x2fc12fc1, 0xca451a4e,
    0xf2f52010, 0x3153464a, 0x3434, 0x52654973, 0x24051905, 0x72b6, 0xf15f, 0x2011bab0, 0x4d44,
    0x7366746e,
];

/// Checks that a bucket may be made in the folder `base`: that this folder, or where it does not
/// exist the folder above it, exists and cannot be replaced. Makes nothing.
///
/// # Errors
///
/// As those of [`open_private`].
pub(super) fn check_place(base: &Path) -> StoreResult<()> {
    check_above(base)?;
    let exists = matches!(base.try_exists(), Ok(true));
    base.parent().filter(|_| !exists).map_or_else(|| make_safe(base), make_safe)
}

/// Opens the folder at `path`; creates it and `base` when they do not exist, but no folder above
/// `base`: a mistyped path must not be a lock that nobody else has.
///
/// # Errors
///
/// [`StoreErrorKind::Unsafe`] if the folder above `base` does not exist.
///
/// [`StoreErrorKind::Unsafe`] if other users could write to one of them, open the folder at `path`,
/// or replace a directory above them.
pub(in crate::store) fn open_private(base: &Path, path: &Path) -> StoreResult<File> {
    check_above(base)?;
    make_safe(path)?;
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let dir = opened.map_err(|error| refused_folder("open", path, &error))?;
    let at = dir.metadata().map_err(|error| refused("check", path, &error))?;
    // A user who can open the folder can keep its lock from everybody.
    sys::check_own(path, &at).map_err(|text| StoreErrorKind::Unsafe.error(text))?;
    let system = rustix::fs::fstatfs(&dir);
    let system = system.map_err(|error| refused("check", path, &error.into()))?;
    // The numbers have 32 bits, but their type is signed on some architectures.
    let number = system.f_type as u64 & 0xffff_ffff;
    if !LOCAL_FILE_SYSTEMS.contains(&number) {
        return Err(StoreErrorKind::Unsafe.error(format!(
            "{} is on a file system that other hosts may share (type {number:#x}), and this store \
             is for one; take a directory on another one, such as /run",
            path.display()
        )));
    }
    Ok(dir)
}

/// Checks that the folder above `base` exists.
fn check_above(base: &Path) -> StoreResult<()> {
    let Some(above) = base.parent().filter(|above| matches!(above.try_exists(), Ok(false))) else {
        return Ok(());
    };
    let (above, base) = (above.display(), base.display());
    let text = format!("{base}: {above} does not exist; make it first, or correct the path");
    Err(StoreErrorKind::Unsafe.error(text))
}

/// Makes a folder unless it exists, and checks that nobody else can replace it.
fn make_safe(path: &Path) -> StoreResult<()> {
    safe_path::make_dir(path).map_err(|unusable| match unusable {
        Unusable::Unsafe(text) => StoreErrorKind::Unsafe.error(text),
        Unusable::Failed(at, error) => refused_folder("make or check", &at, &error),
    })
}

/// Returns the error of operation `what` on a path.
pub(super) fn refused(what: &str, path: &Path, error: &io::Error) -> StoreError {
    let hint = match error.kind() == io::ErrorKind::PermissionDenied {
        true => "; run putex as the user of this directory, or write another --dir",
        false => "",
    };
    kind_of(error).error(format!("cannot {what} {}: {error}{hint}", path.display()))
}

/// Returns the error of operation `what` on a folder. A directory serves one user: a person has to
/// change that.
fn refused_folder(what: &str, path: &Path, error: &io::Error) -> StoreError {
    let StoreError { kind, text } = refused(what, path, error);
    let is_of_another = error.kind() == io::ErrorKind::PermissionDenied;
    if is_of_another { StoreErrorKind::Unsafe.error(text) } else { kind.error(text) }
}

/// Returns the kind of the error of a system call. A path that is no file or folder of this
/// program, or on a file system without locks, stays so until a person changes it.
fn kind_of(error: &io::Error) -> StoreErrorKind {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOLCK) => StoreErrorKind::System,
        Some(Errno::ISDIR | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
        | Some(Errno::EXIST | Errno::OPNOTSUPP | Errno::NOSYS) => StoreErrorKind::Unsafe,
        _ => StoreErrorKind::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On GlusterFS, sshfs and virtiofs, which are mounted by FUSE, two hosts held one lock.
    #[test]
    fn a_file_system_that_is_not_known_counts_as_shared() {
        const FUSE: u64 = 0x65735546;
        const NFS: u64 = 0x6969;
        const UNKNOWN: u64 = 0x12345;
        assert!([FUSE, NFS, UNKNOWN].iter().all(|it| !LOCAL_FILE_SYSTEMS.contains(it)));
        let here = rustix::fs::statfs("/proc/self/..").expect("a number").f_type as u64;
        assert!(!LOCAL_FILE_SYSTEMS.contains(&here), "nor is proc a place for a lock");
    }
}
