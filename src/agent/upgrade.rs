//! The upgrade in place: the agent executes its program anew, with the same arguments. The
//! guard goes on with the service meanwhile, and the new instance adopts it.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::sys::raw;

/// The option whose descriptor is closed by now: the service manager was told once.
const NOTIFY_FD: &[u8] = b"--notify-fd";

/// How this process was started.
pub(super) struct Program {
    /// The file, under the name that it had at the start; `None` when that is not known.
    path: Option<PathBuf>,
    arguments: Vec<OsString>,
}

impl Program {
    /// Remembers the program, while its file is still there under its name.
    pub(super) fn find() -> Program {
        Program { path: env::current_exe().ok(), arguments: without_notify_fd(env::args_os()) }
    }

    /// Logs that the program is executed next.
    pub(super) fn announce(&self) {
        match &self.path {
            Some(path) => log::info!("SIGUSR2: executing {}; the service goes on", path.display()),
            None => log::error!("SIGUSR2: the name of this program is not known"),
        }
    }

    /// Executes the file that has the name now. Returns only when that has failed, which it
    /// says: this program goes on.
    pub(super) fn execute(&self) {
        let Some(path) = &self.path else { return };
        let Err(error) = raw::execute(path, &self.arguments);
        let show = path.display();
        log::error!("SIGUSR2: {show} cannot be executed: {error}; this instance goes on");
    }
}

fn without_notify_fd(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_bytes().strip_prefix(NOTIFY_FD) {
            Some(b"") => drop(words.next()),
            Some([b'=', ..]) => {}
            Some(_) | None => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_for_the_service_manager_is_used_once() {
        let kept = |text: &str| {
            let words = text.split(' ').map(OsString::from);
            let kept = without_notify_fd(words);
            let kept: Vec<_> = kept.iter().map(|word| word.to_string_lossy()).collect();
            kept.join(" ")
        };
        assert_eq!(kept("putex agent --notify-fd 3 -r 1s"), "putex agent -r 1s");
        assert_eq!(kept("putex agent --notify-fd=3 -r 1s"), "putex agent -r 1s");
        assert_eq!(kept("putex -r 1s --notify-fd"), "putex -r 1s");
    }
}
