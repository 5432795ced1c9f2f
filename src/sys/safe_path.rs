//! The path of a directory: a user who can replace one of the directories on it, or a symbolic
//! link, decides what is found at its end.

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
    resolve(&absolute(path), &mut 0).map(drop)
}

/// Makes and checks an absolute path; returns it without symbolic links, of which there have been
/// so many.
fn resolve(path: &Path, links: &mut u32) -> Result<PathBuf, Unusable> {
    let mut above = match path.parent() {
        Some(above) => resolve(above, links)?,
        None => PathBuf::new(),
    };
    let at = match path.components().next_back() {
        Some(Component::ParentDir) => {
            above.pop();
            return Ok(above);
        }
        last => above.join(last.unwrap_or(Component::RootDir)),
    };
    let metadata = find_or_make(&at)?;
    check_entries_safe(&at, &metadata).map_err(Unusable::Unsafe)?;
    if !metadata.is_symlink() {
        return Ok(at);
    }
    *links += 1;
    if *links > LINKS_MAX {
        return Err(Unusable::Failed(at, rustix::io::Errno::LOOP.into()));
    }
    let target = fs::read_link(&at).map_err(|error| Unusable::Failed(at, error))?;
    resolve(&above.join(target), links)
}

/// Finds a directory or a symbolic link, or makes a directory of this user alone, whatever the
/// umask is. Nobody else can replace it: see [`make_dir`].
fn find_or_make(path: &Path) -> Result<Metadata, Unusable> {
    let failed = |error| Unusable::Failed(path.to_owned(), error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = DirBuilder::new().mode(0o700).create(path);
            match made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700))) {
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
