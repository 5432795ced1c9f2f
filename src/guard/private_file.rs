//! Small files in the private directory of an agent: each is replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::{O_NOFOLLOW, O_NONBLOCK};

/// Replaces the file of this name, or makes it: writes `NAME.new` and renames it.
///
/// # Errors
///
/// When the file cannot be written.
pub(super) fn replace(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(O_NOFOLLOW);
    options.open(&new)?.write_all(text)?;
    fs::rename(new, dir.join(name))
}

/// Opens such a file for reading. Opening a pipe in its place does not block.
///
/// # Errors
///
/// When there is no such file, or it cannot be read.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)
}
