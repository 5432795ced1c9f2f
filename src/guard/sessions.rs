//! The thread that ends a start that does not succeed: it has failed, or was killed by anybody, or
//! with the guard before. It has ended when all processes of its session have: of whatever group
//! they are, they could start the service beside the next start or after the stop. To find them
//! takes a listing of the processes of the host, which may be many, so nobody with a deadline does
//! it.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::process::Pid;

use crate::command::Process;
use crate::core::Outcome;
use crate::sys::{self, Waker, end_session};

/// A start that does not succeed.
pub(super) enum FailedStart {
    /// One of this guard.
    Own(Process),
    /// One of the previous guard: its session. Its leader may be gone.
    OfPreviousGuard(Pid),
}

impl FailedStart {
    /// Kills its session, and waits until all processes of it have ended; returns how it ended.
    fn end(self) -> Outcome {
        match self {
            FailedStart::Own(process) => process.end(),
            FailedStart::OfPreviousGuard(session) => {
                end_session(session);
                Outcome::Overran
            }
        }
    }
}

/// The guard's end of the thread.
pub(super) struct Sessions {
    failed: Sender<FailedStart>,
    ended: Receiver<Outcome>,
}

impl Sessions {
    /// Starts the thread. `waker` is woken when a start has ended.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(waker: Arc<Waker>) -> io::Result<Sessions> {
        // No start is run before the last one has ended.
        let (failed, ordered) = bounded::<FailedStart>(1);
        let (done, ended) = bounded(1);
        let work = move || {
            for start in ordered {
                if done.send(start.end()).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        sys::start_small_thread("putex-sessions", work)?;
        Ok(Sessions { failed, ended })
    }

    /// Has a start ended with its session.
    pub(super) fn end(&self, start: FailedStart) {
        // There is room. A start that nobody ends never counts as ended.
        let _ = self.failed.try_send(start);
    }

    /// Returns, once, how a start has ended whose session has.
    pub(super) fn take_ended(&self) -> Option<Outcome> {
        self.ended.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::process::{PidfdFlags, Signal};

    use super::*;
    use crate::command::{Commands, OutputPipe};
    use crate::core::{Command, LockContext, Role, Run};
    use crate::sys::{Alarm, PATIENCE, PollFlags};

    /// Spawns a start that has made a process in another group, as timeout(1) does; returns both.
    fn spawn() -> (Process, OwnedFd) {
        spawn_script("timeout 1000 sh -c 'echo $$; exec sleep 1000'; true")
    }

    /// Spawns a start; returns it, and the process whose number it tells.
    fn spawn_script(start: &str) -> (Process, OwnedFd) {
        let (command, context) = (Command::Start, LockContext::default());
        let commands = Commands { start: start.to_owned(), ..Commands::sample() };
        let now = sys::now();
        let run = Run { command, role: Role::Active, deadline: now, starting: true, context };
        let mut output = OutputPipe::new(command, None).expect("a descriptor");
        let mut process = Process::spawn(commands.prepare(&run, None, now), output.writer())
            .expect("it can be run");
        process.release();
        wait(output.as_fd());
        let mut number = None;
        output.flush(&mut |_, line| {
            number = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
        });
        let member = number.and_then(Pid::from_raw).expect("its number");
        (process, rustix::process::pidfd_open(member, PidfdFlags::empty()).expect("it lives"))
    }

    fn wait(fd: BorrowedFd<'_>) {
        let (alarm, until) = (Alarm::new().expect("a descriptor"), sys::now().after(PATIENCE));
        assert_eq!(alarm.wait([(fd, PollFlags::IN)], Some(until)).expect("it waits"), [true]);
    }

    /// Has a start ended; whoever is told of that finds none of its session. Returns how it ended.
    fn end(start: FailedStart, member: &OwnedFd) -> Outcome {
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let sessions = Sessions::start(Arc::clone(&waker)).expect("a thread");
        sessions.end(start);
        wait(waker.as_fd());
        let outcome = sessions.take_ended().expect("it woke");
        assert!(sessions.take_ended().is_none());
        assert!(sys::is_ready(member), "a process of its session lives");
        outcome
    }

    #[test]
    fn a_killed_start_has_ended_when_its_session_has() {
        let (mut start, member) = spawn();
        start.kill();
        assert!(!sys::is_ready(&member), "it is in the group of start");
        assert!(start.session_must_end());
        assert_eq!(end(FailedStart::Own(start), &member), Outcome::Overran);
    }

    /// The kernel kills it when memory runs out, or the operator does.
    #[test]
    fn so_has_a_start_that_somebody_else_has_killed() {
        let (start, member) = spawn();
        assert!(!start.session_must_end());
        rustix::process::kill_process(start.group, Signal::KILL).expect("it lives");
        wait(start.as_fd());
        assert!(start.session_must_end());
        let outcome = end(FailedStart::Own(start), &member);
        assert_eq!(outcome, Outcome::Failed("killed by signal 9".to_owned()));
    }

    #[test]
    fn so_has_one_of_the_previous_guard_whose_leader_is_gone() {
        let (start, member) = spawn();
        let session = start.group;
        rustix::process::kill_process_group(session, Signal::KILL).expect("it lives");
        wait(start.as_fd());
        let _ = start.reap();
        assert_eq!(end(FailedStart::OfPreviousGuard(session), &member), Outcome::Overran);
    }

    /// So does one whose script the kernel has killed: its shell ends with an exit status.
    #[test]
    fn so_has_a_start_that_has_failed() {
        let (start, member) =
            spawn_script("timeout 1000 sh -c 'echo $$; exec sleep 1000' & exit 137");
        wait(start.as_fd());
        assert!(start.session_must_end());
        let outcome = end(FailedStart::Own(start), &member);
        assert_eq!(outcome, Outcome::Failed("exit status 137".to_owned()));
    }

    #[test]
    fn what_a_start_that_has_succeeded_leaves_in_its_session_is_the_service() {
        let (start, _) = spawn_script("echo $$; true");
        wait(start.as_fd());
        assert!(!start.session_must_end());
    }
}
