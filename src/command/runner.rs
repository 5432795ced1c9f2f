//! The thread that spawns a command again and again, and the process that runs.
//!
//! Spawning returns only when the kernel has read the program, which a disk that hangs prevents. So
//! a thread with deadlines never spawns: it gives orders to a runner, waits for its waker and for
//! the end of the process in poll(2), and kills.
//!
//! A start that does not succeed, whatever has killed it, has ended when all processes of its
//! session have: of whatever group they are, they could start the service beside the next start or
//! after the stop. To find them takes a listing of the processes of the host, which may be many:
//! the runner does that too.

use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::process::Pid;

use super::{Prepared, Process};
use crate::core::{Command, Outcome};
use crate::sys::{Waker, end_session, start_small_thread};

/// A command: the thread that spawns it, and its process while it runs.
pub struct Runner {
    orders: Sender<Order>,
    spawned: Receiver<io::Result<Process>>,
    /// The outcomes of processes whose session had to end with them.
    ended: Receiver<Outcome>,
    is_spawning: bool,
    /// The process that was spawned last, until it is taken.
    pub process: Option<Process>,
}

enum Order {
    Spawn(Box<Prepared>),
    /// The thread ends a process with its session.
    End(Process),
    /// The thread ends the session of a process that another runner has spawned. The leader of the
    /// session may be gone.
    EndSession(Pid),
}

impl Runner {
    /// Starts the thread. The command writes into `output`. `prepare` is called in the thread for
    /// each process before anybody else knows of it; a process for which that fails is ended.
    /// `waker` is woken when a process was spawned, or could not be, and when a session has ended.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub fn start(
        command: Command,
        output: &PipeWriter,
        waker: Arc<Waker>,
        mut prepare: impl FnMut(&Process) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Runner> {
        let output = output.try_clone()?;
        let (orders, ordered) = bounded(1);
        let (was_spawned, spawned) = bounded(1);
        let (has_ended, ended) = bounded(1);
        let mut spawn = move |prepared| {
            let process = Process::spawn(prepared, &output)?;
            if let Err(error) = prepare(&process) {
                let _ = process.end();
                return Err(error);
            }
            Ok(process)
        };
        let serve = move || {
            for order in ordered {
                let is_told = match order {
                    Order::Spawn(prepared) => was_spawned.send(spawn(*prepared)).is_ok(),
                    Order::End(process) => has_ended.send(process.end()).is_ok(),
                    Order::EndSession(session) => {
                        end_session(session);
                        has_ended.send(Outcome::Overran).is_ok()
                    }
                };
                if !is_told {
                    return;
                }
                waker.wake();
            }
        };
        start_small_thread(&format!("putex-{}", command.name()), serve)?;
        Ok(Runner { orders, spawned, ended, is_spawning: false, process: None })
    }

    /// Has the command spawned. Returns whether it will be: not before the previous process was
    /// spawned and taken.
    pub fn spawn(&mut self, prepared: Box<Prepared>) -> bool {
        if self.is_spawning || self.process.is_some() {
            return false;
        }
        self.is_spawning = self.orders.try_send(Order::Spawn(prepared)).is_ok();
        self.is_spawning
    }

    /// Returns, once, that the command was spawned, or why it could not be.
    pub fn take_spawned(&mut self) -> Option<io::Result<()>> {
        let spawned = self.spawned.try_recv().ok()?;
        self.is_spawning = false;
        Some(spawned.map(|process| self.process = Some(process)))
    }

    /// Returns the descriptor that becomes readable when the command has ended, if it runs.
    pub fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(Process::as_fd)
    }

    /// Lets the command begin, if it waits for its release.
    pub fn release(&mut self) {
        self.process.iter_mut().for_each(Process::release);
    }

    /// Kills the command with its group, if it runs, and has its session ended if that has to be.
    pub fn kill(&mut self) {
        self.process.iter_mut().for_each(Process::kill);
        self.end_with_session();
    }

    fn end_with_session(&mut self) {
        if let Some(process) = self.process.take_if(|process| process.session_must_end()) {
            // There is room. A start that nobody ends never counts as ended.
            let _ = self.orders.try_send(Order::End(process));
        }
    }

    /// Has the session of a process ended that another runner has spawned. Its end is told as that
    /// of a process of this one.
    pub fn end_session(&self, session: Pid) {
        let _ = self.orders.try_send(Order::EndSession(session));
    }

    /// Reaps the command if it has ended, and its session with it if that has to be; returns how.
    pub fn reap(&mut self) -> Option<Outcome> {
        self.end_with_session();
        let reap = || self.process.take_if(|process| process.has_ended()).map(Process::reap);
        self.ended.try_recv().ok().or_else(reap)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::process::{PidfdFlags, Signal};

    use super::*;
    use crate::command::{Commands, OutputPipe};
    use crate::core::{LockContext, Role, Run};
    use crate::sys::{self, Alarm, PATIENCE, PollFlags};

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
        let mut process = Process::spawn(commands.prepare(&run, None, now), &output.writer)
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

    /// Has a start ended, and checks that no process of its session is left. Returns how it ended.
    fn end(begin: impl FnOnce(&mut Runner), member: &OwnedFd) -> Outcome {
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let output = OutputPipe::new(Command::Start, None).expect("a descriptor");
        let prepare = |_process: &_| Ok(());
        let runner = Runner::start(Command::Start, &output.writer, Arc::clone(&waker), prepare);
        let mut runner = runner.expect("a thread");
        begin(&mut runner);
        wait(waker.as_fd());
        let outcome = runner.reap().expect("it woke");
        assert!(runner.reap().is_none());
        assert!(sys::is_ready(member), "a process of its session lives");
        outcome
    }

    fn end_own(start: Process, member: &OwnedFd) -> Outcome {
        let begin = |runner: &mut Runner| {
            runner.process = Some(start);
            assert_eq!(runner.reap(), None);
        };
        end(begin, member)
    }

    #[test]
    fn a_killed_start_has_ended_when_its_session_has() {
        let (mut start, member) = spawn();
        start.kill();
        assert!(!sys::is_ready(&member), "it is in the group of start");
        assert!(start.session_must_end());
        assert_eq!(end_own(start, &member), Outcome::Overran);
    }

    /// The kernel kills the start when memory runs out, or the operator does.
    #[test]
    fn so_has_a_start_that_somebody_else_has_killed() {
        let (start, member) = spawn();
        assert!(!start.session_must_end());
        rustix::process::kill_process(start.group, Signal::KILL).expect("it lives");
        wait(start.as_fd());
        assert!(start.session_must_end());
        let outcome = end_own(start, &member);
        assert_eq!(outcome, Outcome::Failed("killed by signal 9".to_owned()));
    }

    #[test]
    fn so_has_one_of_the_previous_guard_whose_leader_is_gone() {
        let (start, member) = spawn();
        let session = start.group;
        rustix::process::kill_process_group(session, Signal::KILL).expect("it lives");
        wait(start.as_fd());
        let _ = start.reap();
        let outcome = end(|runner| runner.end_session(session), &member);
        assert_eq!(outcome, Outcome::Overran);
    }

    /// A start whose script the kernel has killed ends so too: its shell ends with an exit status.
    #[test]
    fn so_has_a_start_that_has_failed() {
        let (start, member) =
            spawn_script("timeout 1000 sh -c 'echo $$; exec sleep 1000' & exit 137");
        wait(start.as_fd());
        assert!(start.session_must_end());
        let outcome = end_own(start, &member);
        assert_eq!(outcome, Outcome::Failed("exit status 137".to_owned()));
    }

    #[test]
    fn what_a_start_that_has_succeeded_leaves_in_its_session_is_the_service() {
        let (start, _) = spawn_script("echo $$; true");
        wait(start.as_fd());
        assert!(!start.session_must_end());
    }
}
