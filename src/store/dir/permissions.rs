//! Checks of a bucket's folder: other users can neither replace it nor write to it, and it
//! is on a file system of this host alone.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::text::Names;
use crate::store::StoreError;

/// Longest file name of Linux file systems; bounds the escaped key.
const NAME_BYTES_MAX: usize = 255;
/// File systems that several hosts can share, by the number of statfs(2): NFS, SMB (three
/// of them), Ceph, 9P, AFS, OCFS2, GFS2. The clock and the boot in `epoch` have no meaning on
/// a second host.
const SHARED_FILE_SYSTEMS: [u64; 9] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x7461_636f,
    0x0116_1970,
];

/// Checks that the names of a key's files are not too long.
///
/// # Errors
///
/// [`StoreError::Unsafe`] when one is.
pub(super) fn check_key(names: &Names) -> Result<(), StoreError> {
    let name = names.longest();
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(StoreError::Unsafe(format!(
        "the key is too long: the file name {name} has {} bytes, more than the maximum \
         of {NAME_BYTES_MAX}",
        name.len()
    )))
}

/// Opens the folder at `path`; creates it and `base` when they do not exist.
///
/// # Errors
///
/// [`StoreError::Unsafe`] when other users could write to either of them.
pub(super) fn open_private(base: &Path, path: &Path) -> Result<File, StoreError> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    let made = builder.recursive(true).create(base);
    made.map_err(|error| refused("create", base, &error))?;
    let me = check_base(base)?;
    match builder.recursive(false).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused("create", path, &error));
        }
        Ok(()) | Err(_) => {}
    }
    check_private(path, me)
}

/// Opens the folder at `path` if it exists, and creates nothing.
///
/// # Errors
///
/// As [`open_private`].
pub(super) fn find_private(base: &Path, path: &Path) -> Result<Option<File>, StoreError> {
    let missing = |path: &Path| match fs::symlink_metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(refused("check", path, &error)),
    };
    if missing(base)? {
        return Ok(None);
    }
    let me = check_base(base)?;
    match missing(path)? {
        true => Ok(None),
        false => check_private(path, me).map(Some),
    }
}

/// Checks that other users cannot replace the folders in the base; returns this user.
fn check_base(base: &Path) -> Result<u32, StoreError> {
    let at = fs::metadata(base).map_err(|error| refused("check", base, &error))?;
    let me = rustix::process::geteuid().as_raw();
    let (mode, owner) = (at.mode() & 0o7777, at.uid());
    let shown = base.display();
    if owner != me && owner != 0 {
        return Err(StoreError::Unsafe(format!(
            "{shown} belongs to user {owner}, who could replace what is in it"
        )));
    }
    // In a sticky folder other users cannot replace the files of this one.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Err(StoreError::Unsafe(format!(
            "{shown} is writable by others (mode {mode:04o}), who could replace what is in it"
        )));
    }
    Ok(me)
}

/// Opens an existing folder that only its owner `me` can write to.
fn check_private(path: &Path, me: u32) -> Result<File, StoreError> {
    let shown = path.display();
    let refuse = |what: String| Err(StoreError::Unsafe(format!("{shown} {what}")));
    let at = fs::symlink_metadata(path).map_err(|error| refused("check", path, &error))?;
    if at.file_type().is_symlink() {
        return refuse("is a symbolic link, not a folder".to_owned());
    }
    if !at.is_dir() {
        return refuse("is not a folder".to_owned());
    }
    let folder = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(folder).open(path);
    let dir = opened.map_err(|error| refused("open", path, &error))?;
    // The metadata of the opened folder: the path may lead elsewhere by now.
    let at = dir.metadata().map_err(|error| refused("check", path, &error))?;
    let (mode, owner) = (at.mode() & 0o7777, at.uid());
    if owner != me {
        return refuse(format!("belongs to user {owner}, not to user {me} (mode {mode:04o})"));
    }
    if mode & 0o022 != 0 {
        return refuse(format!("is writable by group or others (mode {mode:04o})"));
    }
    let system =
        rustix::fs::fstatfs(&dir).map_err(|error| refused("check", path, &error.into()))?;
    // The numbers have 32 bits, but their type is signed on some machines.
    let number = system.f_type as u64 & 0xffff_ffff;
    if SHARED_FILE_SYSTEMS.contains(&number) {
        return refuse(format!(
            "is on a file system that other hosts share (type {number:#x}); this store is for one"
        ));
    }
    Ok(dir)
}

fn refused(what: &str, path: &Path, error: &io::Error) -> StoreError {
    let text = format!("cannot {what} {}: {error}", path.display());
    // A file is in the place of a folder: another attempt does not change that.
    if error.kind() == io::ErrorKind::NotADirectory || error.kind() == io::ErrorKind::AlreadyExists
    {
        return StoreError::Unsafe(text);
    }
    StoreError::Unreachable(text)
}
