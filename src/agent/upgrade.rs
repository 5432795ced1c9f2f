//! The upgrade in place: the agent executes its program anew, with the same arguments. The
//! guard goes on with the service meanwhile, and the new instance adopts it.
//!
//! An instance that refuses its settings would end, and the service with it; and an instance with
//! another lock would find no guard. So `putex check` of the new program sees the settings first,
//! and the private directory is tried, while this instance goes on.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::task::Task;
use crate::command::describe;
use crate::guard::{Identity, InstanceDir};
use crate::log::LogQueue;
use crate::sys::raw::Child;

/// The option whose descriptor is closed by now: its one line was written to the service manager.
const NOTIFY_FD: &[u8] = b"--notify-fd";

/// The fault of settings that the new program takes. An identity that only the new program can tell
/// counts as the same.
const OTHER_AGENT: &str = "upgrade: another agent by its settings: the place of the lock, \
                           --bucket, --key or --token changed; this instance goes on; end it and \
                           start it again for that";

/// How this process was started.
pub(super) struct Program {
    /// The file, under the name that it had at the start.
    path: PathBuf,
    /// Below this directory is the private directory.
    base: PathBuf,
    /// The identity of this agent, and a function that returns the identity by the settings as they
    /// are now, if this program can read them.
    identity: Identity,
    identity_now: fn() -> Option<Identity>,
    /// The check that is under way, which tells whether the settings are right.
    check: Option<Task<bool>>,
    /// The settings may have changed since that check began.
    checks_again: bool,
}

impl Program {
    /// Remembers the program, while its file is still there under its name.
    ///
    /// # Errors
    ///
    /// When the system does not tell the name.
    pub(super) fn find(
        base: PathBuf,
        identity: Identity,
        identity_now: fn() -> Option<Identity>,
    ) -> io::Result<Program> {
        let path = env::current_exe()?;
        Ok(Program { path, base, identity, identity_now, check: None, checks_again: false })
    }

    /// Has the file that is at the path now check the settings. Logs why they are not valid, if so.
    pub(super) fn check(&mut self) {
        if self.check.is_some() {
            self.checks_again = true;
            return;
        }
        let mut words = without_notify_fd(env::args_os()).into_iter().skip(1).peekable();
        words.next_if(|word| *word == "agent");
        let path = self.path.clone();
        let mut command = Command::new(&path);
        command.args(["check", "--connect"]).args(words).stdout(Stdio::null());
        // An agent that ends leaves no check behind, not even one that hangs.
        Child { ends_with_thread: true, ..Child::default() }.set_up(&mut command);
        let (base, identity) = (self.base.clone(), self.identity.clone());
        let identity_now = self.identity_now;
        let work = move || {
            let is_other = || identity_now().is_some_and(|now| now != identity);
            let fault = fault_of(&path, command.output())
                .or_else(|| is_other().then(|| OTHER_AGENT.to_owned()))
                .or_else(|| InstanceDir::try_out(&base, &identity).err().map(unusable));
            if let Some(why) = &fault {
                log::error!("{why}");
            }
            fault.is_none()
        };
        // The check waits for the disk that has the program, files with secrets, and servers.
        match Task::start("putex-upgrade", work) {
            Ok(check) => self.check = Some(check),
            Err(error) => log::error!("upgrade: the settings cannot be checked: {error}"),
        }
    }

    /// Returns the descriptor that becomes readable when a check has ended, if one runs.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.check.as_ref().map(|check| check.done.as_fd())
    }

    /// Returns whether the settings are right if a check has ended.
    pub(super) fn checked(&mut self) -> Option<bool> {
        let has_passed = self.check.as_ref()?.outcome()?;
        self.check = None;
        if std::mem::take(&mut self.checks_again) {
            self.check();
            return None;
        }
        Some(has_passed)
    }

    /// Executes the file that is at the path now. Returns only if that has failed, which is logged:
    /// this program goes on.
    pub(super) fn execute(&self, log: &LogQueue) {
        let path = self.path.display();
        log::info!("upgrade: executing {path}");
        log.flush();
        let mut command = Command::new(&self.path);
        if let Some((name, words)) = without_notify_fd(env::args_os()).split_first() {
            command.arg0(name).args(words);
        }
        // Blocked signals stay blocked, and wait for that program.
        let error = command.exec();
        log::error!("upgrade: {path} cannot be executed: {error}; this instance goes on");
    }
}

/// Returns why the next instance could not use its private directory, in one line.
fn unusable(error: io::Error) -> String {
    format!("upgrade: {error}; this instance goes on")
}

/// Returns why a check has not passed, in one line.
fn fault_of(path: &Path, check: io::Result<Output>) -> Option<String> {
    let path = path.display();
    let Output { status, stderr, .. } = match check {
        Err(error) => {
            return Some(format!(
                "upgrade: {path} cannot be executed: {error}; this instance goes on"
            ));
        }
        Ok(output) if output.status.success() => return None,
        Ok(output) => output,
    };
    let said = String::from_utf8_lossy(&stderr);
    let lines = said.lines().map(|line| line.strip_prefix("putex: ").unwrap_or(line));
    // A fault that is only a warning is logged again by an instance that begins.
    let faults: Vec<_> = lines.filter(|line| !line.starts_with("warning: ")).collect();
    let ended = describe(status.code(), status.signal());
    Some(format!("upgrade: {path} check: {ended}: {}; this instance goes on", faults.join("; ")))
}

fn without_notify_fd(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
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
