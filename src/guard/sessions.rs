//! The thread that ends a start that was killed. Start has ended when all processes of its session
//! have: of whatever group they are, they could start the service after the stop. To find them
//! takes a listing of the processes of the host, which may be many, so nobody with a deadline does
//! it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Pid;

use crate::command::Process;
use crate::sys::{self, Waker, end_session};

/// A start that was killed with its group.
pub(super) enum KilledStart {
    /// One of this guard.
    Own(Process),
    /// One of the previous guard: its number, which is also that of its session, and what becomes
    /// readable when it has ended.
    OfPreviousGuard(Pid, OwnedFd),
}

impl KilledStart {
    /// Kills its session, and waits until all processes of it have ended.
    fn end(self) {
        match self {
            KilledStart::Own(process) => process.end(),
            KilledStart::OfPreviousGuard(session, exit) => {
                end_session(session);
                // Without /proc nothing was killed there.
                let _ = sys::poll(&mut [PollFd::new(&exit, PollFlags::IN)]);
            }
        }
    }
}

/// The guard's end of the thread.
pub(super) struct Sessions {
    killed: Sender<KilledStart>,
    ended: Receiver<()>,
}

impl Sessions {
    /// Starts the thread. `waker` is woken when a start has ended.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(waker: Arc<Waker>) -> io::Result<Sessions> {
        // No start is run before the last one has ended.
        let (killed, ordered) = bounded::<KilledStart>(1);
        let (done, ended) = bounded(1);
        let work = move || {
            for start in ordered {
                start.end();
                if done.send(()).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        sys::start_small_thread("putex-sessions", work)?;
        Ok(Sessions { killed, ended })
    }

    /// Has a start ended with its session.
    pub(super) fn end(&self, start: KilledStart) {
        // There is room. A start that nobody ends never counts as ended.
        let _ = self.killed.try_send(start);
    }

    /// Returns, once, whether a start has ended with its session.
    pub(super) fn take_ended(&self) -> bool {
        self.ended.try_recv().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use rustix::process::{PidfdFlags, Signal};

    use super::*;
    use crate::command::{Commands, OutputPipe};
    use crate::core::{Command, LockContext, Role, Run};
    use crate::sys::{Alarm, PATIENCE};

    /// Spawns a start that has made a process in another group, as timeout(1) does; returns both.
    fn spawn() -> (Process, OwnedFd) {
        let (command, context) = (Command::Start, LockContext::default());
        let start = "timeout 1000 sh -c 'echo $$; exec sleep 1000'; true".to_owned();
        let commands = Commands { start, ..Commands::sample() };
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

    /// Has a start ended; whoever is told of that finds none of its session.
    fn end(start: KilledStart, member: &OwnedFd) {
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let sessions = Sessions::start(Arc::clone(&waker)).expect("a thread");
        sessions.end(start);
        wait(waker.as_fd());
        assert!(sessions.take_ended() && !sessions.take_ended());
        assert!(sys::is_ready(member), "a process of its session lives");
    }

    #[test]
    fn a_killed_start_has_ended_when_its_session_has() {
        let (mut start, member) = spawn();
        start.kill();
        assert!(!sys::is_ready(&member), "it is in the group of start");
        end(KilledStart::Own(start), &member);
    }

    #[test]
    fn so_has_one_of_the_previous_guard() {
        let (start, member) = spawn();
        let exit = rustix::process::pidfd_open(start.group, PidfdFlags::empty());
        let exit = exit.expect("it lives");
        rustix::process::kill_process_group(start.group, Signal::KILL).expect("it lives");
        end(KilledStart::OfPreviousGuard(start.group, exit), &member);
        let _ = start.reap();
    }
}
