//! The path of a directory: a user who can replace one of the directories on it, or a symbolic
//! link, decides what is found at its end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::{absolute, named, user_id};

/// More symbolic links on one path than the kernel follows.
const LINKS_MAX: u32 = 40;

/// Why a path cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// Another user could replace a part of the path; the text names the directory.
    Unsafe(String),
    /// This part of the path cannot be inspected or made.
    Failed(PathBuf, io::Error),
}

impl From<Unusable> for io::Error {
    fn from(unusable: Unusable) -> io::Error {
        match unusable {
            Unusable::Unsafe(text) => io::Error::other(text),
            Unusable::Failed(path, error) => named(path.display())(error),
        }
    }
}

/// Makes a directory, and those above it, where they are missing. Nobody but root and this user can
/// replace a directory on the way, or a symbolic link; nothing is made in one that was not checked.
///
/// # Errors
///
/// When another user could replace a part of the path, or the system fails.
pub fn make_dir(path: &Path) -> Result<(), Unusable> {
    let parts = |path: &Path| -> Vec<OsString> {
        path.components().map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut rest = VecDeque::from(parts(&absolute(path)));
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        match Path::new(&part).components().next() {
            // The directory `at` is no symbolic link.
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::CurDir) | None => {}
            Some(Component::RootDir | Component::Prefix(_) | Component::Normal(_)) => {
                let next = at.join(&part);
                let metadata = find_or_make(&next)?;
                check_entries_safe(&next, &metadata).map_err(Unusable::Unsafe)?;
                if !metadata.is_symlink() {
                    at = next;
                    continue;
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(Unusable::Failed(next, rustix::io::Errno::LOOP.into()));
                }
                let target = fs::read_link(&next).map_err(|error| Unusable::Failed(next, error))?;
                parts(&target).into_iter().rev().for_each(|part| rest.push_front(part));
            }
        }
    }
    Ok(())
}

/// Makes a directory of this user alone, whatever the umask is. Nobody else can replace it: see
/// [`make_dir`].
///
/// # Errors
///
/// The error of the system, also if there is something of this name.
fn make_one(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

fn find_or_make(path: &Path) -> Result<Metadata, Unusable> {
    let failed = |error| Unusable::Failed(path.to_owned(), error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match make_one(path) {
                // Another process was faster.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
                Ok(()) | Err(_) => fs::symlink_metadata(path).map_err(failed),
            }
        }
        found => found.map_err(failed),
    }
}

/// Checks that only root and this user can replace the entries of a directory, or the target
/// of a symbolic link. `metadata` is that of `path`.
///
/// # Errors
///
/// The user or the mode that permits another user to do so.
fn check_entries_safe(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let (path, owner, mode) = (path.display(), metadata.uid(), metadata.mode() & 0o7777);
    if owner != 0 && owner != user_id() {
        return Err(format!(
            "{path} belongs to user {owner}, who could replace what is in it; use another \
             directory, or make it root's or yours"
        ));
    }
    // In a sticky directory no user can replace the files of another. The mode of a symbolic
    // link permits nothing.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 && !metadata.is_symlink() {
        return Err(format!(
            "{path} is writable by others (mode {mode:04o}), who could replace what is in it; \
             use another directory, or chmod go-w it"
        ));
    }
    Ok(())
}
