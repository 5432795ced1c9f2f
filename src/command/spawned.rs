//! A command as a process group: how it is spawned, released, killed and reaped.

use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{self, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::{Prepared, describe};
use crate::core::{Instant, Outcome};
use crate::sys::{self, end_session, kill_with_group};

/// A command that was spawned, with its process group.
pub struct Process {
    /// The process group; its number is also the process's own.
    pub group: Pid,
    /// The process did not exist before.
    pub ordered_at: Instant,
    child: process::Child,
    /// Becomes readable when the process has ended.
    exit: OwnedFd,
    release: Option<PipeWriter>,
    /// The process leads a session.
    own_session: bool,
    /// The process was killed here.
    pub killed: bool,
}

impl Process {
    /// Runs a prepared command in a process group of its own, with its output into `output`.
    /// Returns only when the kernel has read the shell, which a disk that hangs prevents: a thread
    /// that has deadlines leaves it to a [`super::Runner`]. A command that waits for its release
    /// has not begun yet.
    ///
    /// # Errors
    ///
    /// When the system has no process or descriptor to give or no shell, or a text has a zero in
    /// it.
    pub fn spawn(prepared: Prepared, output: &PipeWriter) -> io::Result<Process> {
        let Prepared { mut command, child, waits } = prepared;
        let (stdin, release) = match waits.then(io::pipe).transpose()? {
            Some((reader, writer)) => (Stdio::from(reader), Some(writer)),
            None => (Stdio::null(), None),
        };
        command.stdin(stdin).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let own_session = child.own_session;
        child.set_up(&mut command);
        let ordered_at = sys::now();
        let child = command.spawn()?;
        let group = Pid::from_child(&child);
        let exit = sys::open_spawned(group)?;
        Ok(Process { group, ordered_at, child, exit, release, own_session, killed: false })
    }

    /// Lets a command begin that waits for its release.
    pub fn release(&mut self) {
        if let Some(mut release) = self.release.take() {
            // A process that was killed meanwhile reads nothing.
            let _ = release.write_all(b"\n");
        }
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&self) -> bool {
        sys::is_ready(&self.exit)
    }

    /// Kills the process with its group, which the process may have left. Allocates nothing, and
    /// takes no longer than the group is large.
    pub fn kill(&mut self) {
        self.killed = true;
        // The process is not reaped yet, so the number is still its own.
        kill_with_group(self.group, &self.exit);
    }

    /// Returns whether the process leads a session which has to end with it: the process was
    /// killed, or has ended without success. The kernel, when memory runs out, and others may kill
    /// the script of an operator and leave its shell, which ends with an exit status; the rest of
    /// the session may be in other groups, and goes on. An end that is not known, since a debugger
    /// is to reap the process, is no success.
    pub fn session_must_end(&self) -> bool {
        let has_succeeded = || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let status = rustix::process::waitid(WaitId::Pid(self.group), options);
            status.is_ok_and(|status| status.and_then(|status| status.exit_status()) == Some(0))
        };
        self.own_session && (self.killed || self.has_ended() && !has_succeeded())
    }

    /// Kills the process with its group and session and waits for its end, but for no debugger that
    /// reaps it first; returns how it ended.
    pub fn end(self) -> Outcome {
        kill_with_group(self.group, &self.exit);
        if self.own_session {
            end_session(self.group);
        }
        let _ = sys::poll(&mut [PollFd::new(&self.exit, PollFlags::IN)]);
        self.reap()
    }

    /// Reaps a process that has ended, and kills the processes in its group if it was killed;
    /// returns how it ended.
    #[must_use]
    pub fn reap(mut self) -> Outcome {
        if self.killed {
            // A process that joined the group after the first kill is killed too.
            self.kill();
        }
        // A process that a debugger has attached to is the debugger's to reap first, at any time.
        match self.child.try_wait() {
            _ if self.killed => Outcome::Overran,
            Ok(Some(status)) if status.success() => Outcome::Succeeded,
            Ok(Some(status)) => Outcome::Failed(describe(status.code(), status.signal())),
            Ok(None) => Outcome::Failed("its end is not known".to_owned()),
            Err(error) => Outcome::Failed(format!("its end could not be read: {error}")),
        }
    }
}

impl AsFd for Process {
    /// Returns the descriptor that becomes readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }
}
