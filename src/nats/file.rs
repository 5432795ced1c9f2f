//! Files with secrets and certificates, and configuration files. They are read again for
//! each connection, so that a replaced file takes effect without a restart.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

use super::io_error_text;
use crate::core::{StoreError, StoreErrorKind as Kind};
use crate::sys;

/// Largest file that is read, in bytes. A bundle of all public roots has 250 KB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The largest file of settings. The thread of an agent that renews the lock reads it again at
/// SIGHUP, and must not be held up by it.
const TRUSTED_BYTES_MAX: u64 = 64 * 1024;

/// Mode bits that a secret must not have: only the owner may write the file, only the
/// owner and the group may read it.
const REFUSED_MODE: RawMode = 0o027;

/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: RawMode = 0o022;

/// Mode bit that lets users outside of the group read.
const OTHERS_READ: RawMode = 0o004;

/// The content of a file that only its owner can write; the owner is root or this user.
#[derive(Debug, Default)]
pub struct TrustedFile {
    /// The content.
    pub bytes: Vec<u8>,
    /// Whether users outside of its group can read it.
    pub others_read: bool,
}

/// Reads a file that only its owner and its group can read.
///
/// # Errors
///
/// The file that cannot be used, and the reason; of kind `Unreachable` if it does not exist or
/// is empty: it may be put there later, or be written just now.
pub fn read_secret(path: &Path) -> Result<String, StoreError> {
    read(path, true)
}

/// Reads a file whatever its mode is.
///
/// # Errors
///
/// As [`read_secret`].
pub fn read_public(path: &Path) -> Result<String, StoreError> {
    read(path, false)
}

/// Reads a file with settings, commands and servers among them: only root or this user may write
/// it.
/// `None` when the file does not exist.
///
/// # Errors
///
/// The file that cannot be used, and the reason.
pub fn read_trusted(path: &Path) -> Result<Option<TrustedFile>, String> {
    let shown = path.display();
    let Some((file, stat)) = open(path)? else { return Ok(None) };
    let (mode, owner) = (stat.st_mode & 0o777, stat.st_uid);
    if owner != 0 && owner != sys::user_id() {
        return Err(format!(
            "{shown}: belongs to user {owner}, who could change what this one does; chown it"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(format!(
            "{shown}: has mode {mode:04o}: others can write it, and change what putex does; \
             chmod go-w {shown}"
        ));
    }
    let others_read = mode & OTHERS_READ != 0;
    Ok(Some(TrustedFile { bytes: read_bytes(path, file, TRUSTED_BYTES_MAX)?, others_read }))
}

/// Opens a file; `None` when it does not exist.
fn open(path: &Path) -> Result<Option<(File, Stat)>, String> {
    let failed = |errno: Errno| format!("{}: {}", path.display(), io_error_text(&errno.into()));
    // Opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        true => Ok(Some((File::from(file), stat))),
        false => Err(format!("{}: is not a regular file", path.display())),
    }
}

fn read_bytes(path: &Path, file: File, most: u64) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{shown}: {}", io_error_text(&error)))?;
    match bytes.len() as u64 > most {
        true => Err(format!("{shown}: is longer than {most} bytes")),
        false => Ok(bytes),
    }
}

fn read(path: &Path, secret: bool) -> Result<String, StoreError> {
    let shown = path.display();
    let unusable = |text: String| Kind::Unsafe.error(text);
    let awaited = |why: &str| Kind::Unreachable.error(format!("{shown}: {why}"));
    let Some((file, stat)) = open(path).map_err(unusable)? else {
        return Err(awaited(&io_error_text(&Errno::NOENT.into())));
    };
    let mode = stat.st_mode & 0o777;
    if secret && mode & REFUSED_MODE != 0 {
        return Err(unusable(format!(
            "{shown}: has mode {mode:04o}: others can read or write this secret; \
             chmod g-w,o= {shown}"
        )));
    }
    let bytes = read_bytes(path, file, FILE_BYTES_MAX).map_err(unusable)?;
    match String::from_utf8(bytes) {
        // Its writer makes it and fills it in two steps.
        Ok(text) if text.is_empty() => Err(awaited("is empty")),
        Ok(text) => Ok(text),
        Err(_) => Err(unusable(format!("{shown}: is not UTF-8"))),
    }
}

/// Reads the one line of a file with a password or a token.
pub(super) fn read_line(path: &Path) -> Result<String, StoreError> {
    let text = read_secret(path)?;
    let unusable = |why: &str| Err(Kind::Unsafe.error(format!("{}: {why}", path.display())));
    match *text.lines().collect::<Vec<_>>() {
        [] | [""] => unusable("is empty"),
        [line] => Ok(line.to_owned()),
        _ => unusable("has more than one line"),
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str, text: &str, mode: u32) -> PathBuf {
        let path = env::temp_dir().join(format!("putex-secret-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        path
    }

    #[test]
    fn modes() {
        for (mode, fine) in [
            (0o400, true),
            (0o600, true),
            (0o440, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o604, false),
            (0o602, false),
        ] {
            let path = file("modes", "s3cr3t\n", mode);
            let outcome = read_line(&path);
            assert_eq!(outcome.is_ok(), fine, "{mode:o}: {outcome:?}");
            if let Err(StoreError { kind, text }) = outcome {
                assert_eq!(kind, Kind::Unsafe);
                assert!(text.contains(&format!("has mode {mode:04o}")), "{text}");
            }
            assert!(read_public(&path).is_ok());
            fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn one_line_and_nothing_else() {
        for (text, line) in [
            ("s3cr3t", Some("s3cr3t")),
            ("s3cr3t\r\n", Some("s3cr3t")),
            (" s3 \n", Some(" s3 ")),
            ("", None),
            ("\n", None),
            ("a\nb\n", None),
        ] {
            let path = file("lines", text, 0o600);
            assert_eq!(read_line(&path).ok().as_deref(), line, "{text:?}");
            fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_waited_for_unless_others_can_read_it() {
        for (text, mode, kind) in
            [("", 0o600, Kind::Unreachable), ("", 0o644, Kind::Unsafe), ("\n", 0o600, Kind::Unsafe)]
        {
            let path = file("written", text, mode);
            assert_eq!(read_line(&path).expect_err("no line").kind, kind, "{text:?} {mode:o}");
            fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let missing = read_line(Path::new("/nonexistent/password")).expect_err("missing");
        let text = "/nonexistent/password: no such file or directory";
        assert_eq!(missing, Kind::Unreachable.error(text));
        let nowhere = read_line(Path::new("/dev/null/password")).expect_err("no folder");
        assert_eq!(nowhere, Kind::Unsafe.error("/dev/null/password: not a directory"));
        let folder = read_line(&env::temp_dir()).expect_err("a folder").text;
        assert!(folder.ends_with(": is not a regular file"), "{folder}");
        let device = read_public(Path::new("/dev/zero")).expect_err("a device");
        assert_eq!(device, Kind::Unsafe.error("/dev/zero: is not a regular file"));
    }
}
