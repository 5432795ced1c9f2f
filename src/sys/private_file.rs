//! Small files in a private directory: each is replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
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
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(O_NOFOLLOW);
    let replace = |mut file: File| {
        file.write_all(text)?;
        fs::rename(&new, dir.join(name))
    };
    options.open(&new).and_then(replace).inspect_err(|_| {
        let _ = fs::remove_file(&new);
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
