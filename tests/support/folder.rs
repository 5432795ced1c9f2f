//! The one temporary folder of the tests.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{cgroups, process};

/// A folder that only this user can read. It is removed, with all that is in it, when it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder whose name contains `part`.
    pub(crate) fn new(part: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        process::end_all_on_signal();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("{}{number}-{part}", prefix()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Folder(path),
                // A run that was killed had the same process number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Returns the path as text, for a shell command.
    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }

    /// Returns the last part of the path: no other folder of this host has it.
    pub(crate) fn name(&self) -> &str {
        self.text().rsplit('/').next().unwrap_or_default()
    }

    /// Writes a file of this mode, in the place of one of the same name.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.join(name);
        write(&path, text, mode);
        path
    }

    /// Writes a file that only this user can read.
    pub(crate) fn secret(&self, name: &str, text: &str) -> PathBuf {
        self.file(name, text, 0o600)
    }

    /// Makes a folder in this one that only this user can read, unless it is there.
    pub(crate) fn subfolder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.expect("the folder can be written");
        path
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Writes a file that only this user can read, in the place of one of the same name.
pub(crate) fn write_secret(path: &Path, text: &str) {
    write(path, text, 0o600);
}

fn write(path: &Path, text: &str, mode: u32) {
    let _ = fs::remove_file(path);
    if mode & 0o111 != 0 {
        return write_program(path, text, mode);
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        // The mode above went through the umask.
        file.set_permissions(Permissions::from_mode(mode))
    })
    .expect("the folder can be written");
}

/// Writes a program. This process does not open the file: a process that another test makes
/// meanwhile would have it open too, until it executes its own program, and the kernel executes no
/// file that somebody has open for writing.
fn write_program(path: &Path, text: &str, mode: u32) {
    let mut install = Command::new("sh");
    let script = r#"cat >"$1" && chmod "$2" "$1""#;
    install.args(["-c", script, "sh"]).arg(path).arg(format!("{mode:o}")).stdin(Stdio::piped());
    let mut install = install.spawn().expect("a shell");
    let mut input = install.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(install.wait().expect("it ends").success(), "the folder can be written");
}

/// Returns what the names of all folders of this process begin with.
fn prefix() -> String {
    format!("putex-test-{}-", std::process::id())
}

/// Removes every folder of this process.
pub(super) fn remove_all() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix()) {
            remove(&entry.path());
        }
    }
}

/// Removes a folder, and the control groups of agents that have run in it.
fn remove(path: &Path) {
    cgroups::remove(path);
    let _ = fs::remove_dir_all(path);
}
