//! Until when a pause may keep a service running whose record is lost: a file in the private
//! directory of an agent, for the next instance of it.
//!
//! | file | content |
//! |---|---|
//! | `kept` | the boot, the revision of the pause, milliseconds since that boot, and the epoch |

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use super::private_file;
use crate::core::{Instant, Kept, Revision};
use crate::sys;

const FILE: &str = "kept";

/// The first word; the boot follows.
const FORMAT: &str = "putex-kept-1";

/// The largest file that is read.
const BYTES_MAX: u64 = 256;

/// Writes the file into the private directory of an agent, or removes it.
///
/// # Errors
///
/// When the file cannot be written or removed.
pub fn write(dir: &Path, kept: Option<&Kept>) -> io::Result<()> {
    let Some(Kept { epoch, revision, until }) = kept else {
        return match fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    // Rounded up.
    let until_ms = until.since_boot().as_millis() + 1;
    let text = format!("{FORMAT} {} {revision} {until_ms} {epoch}\n", sys::boot_id());
    private_file::replace(dir, FILE, text.as_bytes())
}

/// Reads the file in the private directory of an agent; `None` if it is of another boot, or there
/// is none.
///
/// # Errors
///
/// When there is a file that cannot be read or understood, with what to do about it: how long a
/// service may run on is not known then.
pub fn read(dir: &Path) -> io::Result<Option<Kept>> {
    let path = dir.join(FILE);
    read_file(&path).map_err(|error| {
        let text = "it says how long a pause keeps a service running; remove it if no host runs \
                    the service";
        io::Error::new(error.kind(), format!("{}: {error}; {text}", path.display()))
    })
}

fn read_file(path: &Path) -> io::Result<Option<Kept>> {
    let file = match private_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "damaged");
    let mut words = text.split_whitespace();
    let (format, boot) = (words.next(), words.next().ok_or_else(damaged)?);
    let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(damaged);
    let (revision, until_ms) = (number()?, number()?);
    let epoch = words.next().unwrap_or_default().to_owned();
    if format != Some(FORMAT) {
        return Err(damaged());
    }
    let until = Instant::from_boot(Duration::from_millis(until_ms));
    let kept = Kept { epoch, revision: Revision(revision), until };
    Ok(Some(kept).filter(|_| boot == sys::boot_id()))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::PathBuf;
    use std::process;

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = env::temp_dir().join(format!("putex-kept-{}-{name}", process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Dir(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_next_instance_reads_what_the_last_one_has_noted() {
        let dir = Dir::new("noted");
        let until = Instant::from_boot(Duration::from_micros(7_000_500));
        let kept = Kept { epoch: "e1".to_owned(), revision: Revision(8), until };
        assert_eq!(read(&dir.0).expect("no file"), None);
        write(&dir.0, Some(&kept)).expect("a file");
        let later = Instant::from_boot(Duration::from_millis(7001));
        assert_eq!(read(&dir.0).expect("a file"), Some(Kept { until: later, ..kept }));
        write(&dir.0, None).expect("no file");
        write(&dir.0, None).expect("no file either");
        assert_eq!(read(&dir.0).expect("no file"), None);
    }

    #[test]
    fn what_another_boot_has_noted_counts_no_more_and_a_damaged_file_is_an_error() {
        let dir = Dir::new("damaged");
        let put = |text: &str| fs::write(dir.0.join(FILE), text).expect("a file");
        put(&format!("{FORMAT} another-boot 8 7001\n"));
        assert_eq!(read(&dir.0).expect("a file"), None);
        for damaged in ["", "putex-kept-2 b 8 7001", "putex-kept-1 b 8", "putex-kept-1 b 8 x"] {
            put(damaged);
            let error = read(&dir.0).expect_err(damaged).to_string();
            assert!(error.contains("/kept: damaged; ") && error.contains("remove it"), "{error}");
        }
    }
}
