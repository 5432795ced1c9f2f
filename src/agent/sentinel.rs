//! The agent's end of its guard: starts it, or goes on with that of a life before,
//! tells it what it has to know, and notices at once when it is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};

use super::handover::{Handover, end};
use super::life::Life;
use crate::command::{describe, remove_agents_own, remove_secrets};
use crate::core::command::{Command, LockContext};
use crate::core::event::Sentry;
use crate::core::guard::Watch;
use crate::core::time::Instant;
use crate::guard::send;
use crate::guard::word::{Answer, SetUp, Word};
use crate::sys::{self, Alarm, Want};

/// Shortest and longest pause before a guard is started again after one that did
/// not even live for that long.
const AGAIN_MIN: Duration = Duration::from_millis(20);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// How long a guard takes to end that has nothing left to do.
const END_WITHIN: Duration = Duration::from_millis(300);

/// Largest answer.
pub(super) const ANSWER_MAX: usize = 4096;

/// The guard, as the agent knows it.
#[derive(Debug)]
pub(super) struct Sentinel {
    set_up: SetUp,
    /// What the guards of this agent are named after.
    name: String,
    life: Option<Life>,
    line: Option<Line>,
    /// Guards that were started.
    started: u32,
    pause: Duration,
    start_at: Instant,
    /// What the guard was told last; another is told at once, before the pump knows
    /// of it: the agent may be gone a moment after its guard.
    watch: Option<Watch>,
    under: Option<LockContext>,
    groups: [Option<Group>; Command::ALL.len()],
    alarm: Alarm,
}

/// The process group of a command that runs.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) number: i32,
    /// Its first process: once that has ended, the number may be a stranger's.
    pub(super) leader: OwnedFd,
}

/// A guard that lives.
#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    process: OwnedFd,
    /// To be reaped, unless a life before started it.
    child: Option<Child>,
    /// It has answered.
    answered: bool,
    since: Instant,
}

impl Sentinel {
    /// Prepares; nothing is started yet.
    pub(super) fn new(
        set_up: SetUp,
        life: Option<Life>,
        handover: Option<Handover>,
        alarm: Alarm,
        now: Instant,
    ) -> Sentinel {
        let mut sentinel = Sentinel {
            name: set_up.name.clone(),
            set_up,
            life,
            line: None,
            started: 0,
            pause: AGAIN_MIN,
            start_at: now,
            watch: None,
            under: None,
            groups: [const { None }; Command::ALL.len()],
            alarm,
        };
        if let Some(handover) = handover {
            sentinel.set_up.name = handover.name;
            if let Some(left) = handover.left {
                sentinel.watch = Some(Watch::MayRun(left.fence));
                sentinel.under = Some(left.under);
            }
            sentinel.groups[Command::Start as usize] = handover.start;
            sentinel.line = Some(Line {
                socket: handover.socket,
                process: handover.process,
                child: None,
                answered: true,
                since: now,
            });
        }
        sentinel
    }

    /// Says how an inherited guard is to be set up from now on.
    pub(super) fn greet(&mut self) -> Option<Sentry> {
        self.line.as_ref()?;
        self.send(&Word::SetUp(Box::new(self.set_up.clone())))
    }

    /// Returns what becomes readable when the guard says something or is gone.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(|line| line.socket.as_fd())
    }

    /// Returns when [`Sentinel::ensure`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.line.is_none().then_some(self.start_at)
    }

    /// Starts a guard when there is none and it is time; says what came of it, if
    /// nothing did.
    pub(super) fn ensure(&mut self, now: Instant) -> Option<Sentry> {
        if self.line.is_some() || now < self.start_at {
            return None;
        }
        self.started += 1;
        self.set_up.name = format!("{}-{}", self.name, self.started);
        self.write_down();
        match self.start(now) {
            Ok(line) => self.line = Some(line),
            Err(error) => return Some(self.lost(&format!("it cannot be started: {error}"), now)),
        }
        let mut words = vec![Word::SetUp(Box::new(self.set_up.clone()))];
        words.extend(self.under.clone().map(Word::LockContext));
        words.extend(self.watch.map(Word::Watch));
        let lost = words.iter().find_map(|word| self.send(word));
        let tell = |command| self.send_group(command);
        let lost = lost.or_else(|| Command::ALL.into_iter().find_map(tell));
        let stops = self.groups[Command::Stop as usize].is_some();
        if lost.is_some() || !stops {
            return lost;
        }
        self.stop_begins()
    }

    fn start(&self, now: Instant) -> io::Result<Line> {
        let (own, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // This very program, also when its file has been replaced.
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0("putex").arg("guard").arg(&self.set_up.key);
        remove_secrets(&mut command);
        remove_agents_own(&mut command);
        command.stdin(theirs).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.inspect_err(|_| {
            // Without it, its end would be waited for in vain.
            let _ = child.kill();
        })?;
        Ok(Line {
            socket: own,
            process,
            child: Some(child),
            answered: false,
            since: now,
        })
    }

    /// Takes in one thing that the guard says, or its end; `None` when there is
    /// nothing more.
    pub(super) fn heed(&mut self, now: Instant) -> Option<Sentry> {
        let mut buffer = [0; ANSWER_MAX];
        loop {
            let line = self.line.as_ref()?;
            let answer = match rustix::net::recv(&line.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((count, _)) => Answer::decode(&buffer[..count]),
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => continue,
                Err(_) => None,
            };
            let Some(answer) = answer else {
                return Some(self.lost(ENDED, now));
            };
            if let Some(line) = &mut self.line {
                line.answered = true;
            }
            match answer {
                Answer::Ready(..) => return Some(Sentry::Ready),
                Answer::Armed => return Some(Sentry::Armed),
                Answer::Unfit(why) => return Some(Sentry::Unfit(why)),
                Answer::Remark(true, text) => log::warn!("{text}"),
                Answer::Remark(false, text) => log::info!("{text}"),
                // It makes an end of this agent too.
                Answer::Acting(_) => {}
            }
        }
    }

    /// The next life of this agent finds the guard by its name.
    fn write_down(&mut self) {
        let written = self
            .life
            .as_ref()
            .map(|life| life.write(Some(&self.set_up.name)));
        if let Some(Err(error)) = written {
            log::warn!("a restarted agent will not know this one: {error}");
        }
    }

    /// Tells how long the service may run, and under which lock.
    pub(super) fn tell(&mut self, watch: Watch, under: LockContext) -> Option<Sentry> {
        let news = self.under.as_ref() != Some(&under);
        self.watch = Some(watch);
        if news {
            self.under = Some(under.clone());
            let lost = self.send(&Word::LockContext(under));
            if lost.is_some() {
                return lost;
            }
        }
        self.send(&Word::Watch(watch))
    }

    /// Tells in which process group a command runs that the guard has to kill
    /// before it may run stop.
    pub(super) fn tell_group(&mut self, command: Command, group: Group) -> Option<Sentry> {
        if command == Command::Check {
            return None;
        }
        self.groups[command as usize] = Some(group);
        self.send_group(command)
    }

    /// Returns whether a guard is there that will stop the service.
    pub(super) fn watches(&self) -> bool {
        let line = self.line.as_ref().filter(|line| line.answered);
        let lives = line.is_some_and(|line| !sys::is_ready(&line.process));
        lives && matches!(self.watch, Some(Watch::MayRun(_)))
    }

    /// Tells that stop has leave to begin: from now on it has its time.
    pub(super) fn stop_begins(&mut self) -> Option<Sentry> {
        self.send(&Word::StopBegins)
    }

    /// Returns whether a guard is there that was told of this command's group.
    pub(super) fn knows(&self, command: Command) -> bool {
        self.line.is_some() && self.groups[command as usize].is_some()
    }

    /// Returns what becomes readable when the start has ended that the guard knows of: one
    /// of this life, or one of the life before that was killed.
    pub(super) fn start_known(&self) -> Option<BorrowedFd<'_>> {
        let start = self.groups[Command::Start as usize].as_ref();
        start.map(|start| start.leader.as_fd())
    }

    /// A command has ended: a guard that is started later need not know of it.
    pub(super) fn forget_group(&mut self, command: Command) {
        self.groups[command as usize] = None;
    }

    /// Makes an end of a guard that hangs.
    pub(super) fn drop_line(&mut self) -> Option<Sentry> {
        self.line.as_ref()?;
        Some(self.lost("it did not answer", sys::now()))
    }

    /// Has what lives before left in other control groups killed too.
    pub(super) fn kill_service(&mut self) -> Option<Sentry> {
        self.send(&Word::KillService)
    }

    /// The agent ends, although the service may run if `given_up`. Waits until the
    /// guard has put the watchdog device away and ended.
    pub(super) fn end(&mut self, given_up: bool) {
        // Nobody is left to be told of a failure.
        if given_up {
            let _ = self.send(&Word::GivenUp);
        } else if let Some(life) = &self.life {
            let _ = life.leave_nothing();
        }
        if let Some(line) = self.line.take() {
            drop(line.socket);
            let until = sys::now().after(END_WITHIN);
            // One that takes longer is left to itself.
            let ended = [(line.process.as_fd(), Want::Read)];
            let _ = self.alarm.wait(ended, Some(until));
        }
    }

    fn send_group(&mut self, command: Command) -> Option<Sentry> {
        let line = self.line.as_ref()?;
        let group = self.groups[command as usize].as_ref()?;
        let word = Word::Group(command, group.number);
        let leader = Some(group.leader.as_fd());
        let sent = send(line.socket.as_fd(), &word.encode(), leader);
        self.sent(sent)
    }

    fn send(&mut self, word: &Word) -> Option<Sentry> {
        let line = self.line.as_ref()?;
        let sent = send(line.socket.as_fd(), &word.encode(), None);
        self.sent(sent)
    }

    /// A guard that takes nothing in is as good as gone.
    fn sent(&mut self, sent: Result<(), Errno>) -> Option<Sentry> {
        match sent {
            Ok(()) => None,
            Err(Errno::AGAIN) => Some(self.lost("it takes nothing in", sys::now())),
            Err(error) => Some(self.lost(&error.to_string(), sys::now())),
        }
    }

    /// Makes an end of a guard that is gone or as good as gone.
    fn lost(&mut self, why: &str, now: Instant) -> Sentry {
        if let Some(line) = self.line.take() {
            if now.since(line.since) > AGAIN_MAX {
                self.pause = AGAIN_MIN;
                self.start_at = now;
            } else {
                self.start_at = now.after(self.pause);
                self.pause = (self.pause * 2).min(AGAIN_MAX);
            }
            end(&line.process, self.set_up.timing.renewal() / 4, &self.alarm);
            if let Some(how) = reap(line.child).filter(|_| why == ENDED) {
                return Sentry::Lost(format!("{why}: {how}"));
            }
        } else {
            self.start_at = now.after(self.pause);
            self.pause = (self.pause * 2).min(AGAIN_MAX);
        }
        Sentry::Lost(why.to_owned())
    }
}

/// Said of a guard that has closed its end of the socket.
const ENDED: &str = "it has ended";

/// Reaps a guard that has ended and says how, if it is a child of this process; one that
/// cannot even be killed is not waited for.
fn reap(child: Option<Child>) -> Option<String> {
    child?.try_wait().ok()?.map(describe)
}
