//! Small files, each of which is replaced as a whole.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process;

use libc::{O_NOFOLLOW, O_NONBLOCK};

/// Replaces the file of this name, or makes it: writes another one and renames it. Of two processes
/// that do so at once, one is the last.
///
/// # Errors
///
/// When the file cannot be written.
pub fn replace(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.{}", process::id()));
    replace_by(&new, &dir.join(name), 0o600, text)
}

/// Writes a new file, and gives it the name of the one that it replaces. The mode does not depend
/// on the umask.
///
/// # Errors
///
/// When the file cannot be written. Then there is no new file.
pub fn replace_by(new: &Path, path: &Path, mode: u32, text: &[u8]) -> io::Result<()> {
    // The new file is there if a process was killed before it was complete.
    let _ = fs::remove_file(new);
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(mode).open(new)?;
    let written = file
        .set_permissions(Permissions::from_mode(mode))
        .and_then(|()| file.write_all(text))
        .and_then(|()| fs::rename(new, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(new);
    })
}

/// Opens such a file for reading. Opening a pipe in its place does not block.
///
/// # Errors
///
/// When there is no such file, or it cannot be read.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)
}
