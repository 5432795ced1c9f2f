//! The child thread: runs the operator's commands, passes their output on line by
//! line, reaps them, and keeps the guard.
//!
//! The pump's orders are carried out in their order, and what the guard has to know
//! comes before the next of them: it has been told until when the service may run
//! before start is run. Of several words for the guard, the last counts, so they
//! never pile up.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::inbox::Post;
use super::sentinel::{Group, Sentinel};
use super::threads::Threads;
use super::watchdog::Watchdog;
use crate::cgroup::Cage;
use crate::command::{Commands, Stage};
use crate::core::command::{Command, LockContext, Outcome, Run};
use crate::core::event::{Event, Sentry};
use crate::core::guard::Watch;
use crate::log::{FatalLog, panic_if_asked};
use crate::sys::{self, Alarm, Waker, Want};

/// The pump has one instance of each command under way; twice that is room enough.
const ORDERS_MAX: usize = 8;

/// How long an ending agent waits for its guard to be told and to end.
const END_WITHIN: Duration = Duration::from_millis(500);

/// What the pump wants of this thread.
enum Order {
    Run(Run),
    /// The agent ends; although the service may run, if so.
    End {
        given_up: bool,
        done: Arc<Waker>,
    },
}

/// What the pump wants of the guard.
#[derive(Default)]
struct Wishes {
    tell: Option<(Watch, LockContext)>,
    replace: bool,
    kill_service: bool,
}

/// The pump's end of the child thread.
pub(super) struct Children {
    orders: Sender<Order>,
    wishes: Arc<Mutex<Wishes>>,
    waker: Arc<Waker>,
}

impl Children {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn start(
        commands: Commands,
        cage: Option<Cage>,
        sentinel: Sentinel,
        watchdog: Arc<Watchdog>,
        post: Post,
        threads: Threads,
        fatal_log: Arc<FatalLog>,
    ) -> io::Result<Children> {
        let (orders, asked) = bounded(ORDERS_MAX);
        let waker = Arc::new(Waker::new()?);
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let stages = [
            Stage::new(Command::Check)?,
            Stage::new(Command::Start)?,
            Stage::new(Command::Stop)?,
            Stage::new(Command::LastResort)?,
        ];
        let nursery = Nursery {
            commands,
            entrance: cage.map(Entrance::of),
            sentinel,
            stages,
            watchdog,
            asked,
            wishes: Arc::clone(&wishes),
            waker: Arc::clone(&waker),
            alarm: Alarm::new()?,
            post,
            nothing: File::open("/dev/null")?,
            fatal_log,
            lacking: false,
        };
        threads.start("putex-child", move || nursery.work())?;
        Ok(Children {
            orders,
            wishes,
            waker,
        })
    }

    /// Asks for a command without waiting; says whether there was room.
    pub(super) fn run(&self, run: Run) -> bool {
        self.order(Order::Run(run))
    }

    /// Has the guard told, before any order that follows.
    pub(super) fn tell(&self, watch: Watch, under: LockContext) {
        self.wish(|wishes| wishes.tell = Some((watch, under)));
    }

    /// Has another guard started instead of one that hangs.
    pub(super) fn replace_guard(&self) {
        self.wish(|wishes| wishes.replace = true);
    }

    /// Has all that start left behind killed.
    pub(super) fn kill_service(&self) {
        self.wish(|wishes| wishes.kill_service = true);
    }

    /// Waits until the guard knows that the agent ends, and whether the service may
    /// run on; as a rule the guard has ended then.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left. A guard that does not know acts when
    /// the lock has run out.
    pub(super) fn end(&self, given_up: bool) -> io::Result<()> {
        let (alarm, done) = (Alarm::new()?, Arc::new(Waker::new()?));
        let end = Order::End {
            given_up,
            done: Arc::clone(&done),
        };
        if self.order(end) {
            let until = sys::now().after(END_WITHIN);
            alarm.wait([(done.as_fd(), Want::Read)], Some(until))?;
        }
        Ok(())
    }

    fn wish(&self, wish: impl FnOnce(&mut Wishes)) {
        wish(&mut self.wishes.lock().unwrap_or_else(PoisonError::into_inner));
        self.waker.wake();
    }

    fn order(&self, order: Order) -> bool {
        let room = self.orders.try_send(order).is_ok();
        self.waker.wake();
        room
    }
}

/// The control group of start, and whether the next start goes inside.
///
/// Start is asserted every R, and to go inside costs it, and every fork on the host,
/// some 10 ms. It is worth that when a service may come of it: at the first start of
/// a term, and when the service that the last one left inside has died. A start that
/// succeeds and leaves nothing there has its service run by another, such as an init
/// system or a container engine, and stays outside until a stop is run.
struct Entrance {
    cage: Cage,
    /// The start that runs went inside.
    entered: bool,
    /// The last start that went inside and succeeded left something there. Not known
    /// before there was one, or after a stop.
    inhabited: Option<bool>,
}

impl Entrance {
    fn of(cage: Cage) -> Entrance {
        Entrance {
            cage,
            entered: false,
            inhabited: None,
        }
    }

    /// Returns how a command goes inside, if it is to.
    fn door(&mut self, command: Command) -> Option<&str> {
        match command {
            Command::Check => return None,
            Command::Stop | Command::LastResort => {
                self.inhabited = None;
                self.entered = false;
            }
            Command::Start => {
                self.entered = match self.inhabited {
                    None => true,
                    Some(false) => false,
                    Some(true) => !self.cage.is_populated().unwrap_or(false),
                };
            }
        }
        self.entered.then(|| self.cage.door())
    }

    /// Looks what a start that went inside and succeeded has left there.
    fn start_succeeded(&mut self) {
        if self.entered {
            self.inhabited = Some(self.cage.is_populated().unwrap_or(true));
        }
    }
}

struct Nursery {
    commands: Commands,
    /// The control group of start, where there is one.
    entrance: Option<Entrance>,
    sentinel: Sentinel,
    stages: [Stage; Command::ALL.len()],
    watchdog: Arc<Watchdog>,
    asked: Receiver<Order>,
    wishes: Arc<Mutex<Wishes>>,
    waker: Arc<Waker>,
    alarm: Alarm,
    post: Post,
    /// What every command reads.
    nothing: File,
    fatal_log: Arc<FatalLog>,
    /// Stop, or the last resort, could not be run the last time for want of something.
    lacking: bool,
}

/// What became ready.
#[derive(Default)]
struct Ready {
    waker: bool,
    guard: bool,
    output: [bool; Command::ALL.len()],
    exit: [bool; Command::ALL.len()],
    /// The start of the life before.
    start_left: bool,
}

/// How a start has ended that was killed since its agent had died.
const KILLED_WITH_AGENT: &str = "killed: the agent that ran it died";

impl Nursery {
    /// Works until the agent has ended.
    fn work(mut self) {
        let greeted = self.sentinel.greet();
        let mut open = self.report(greeted);
        while open.is_some() {
            open = self.work_once();
        }
    }

    fn work_once(&mut self) -> Option<()> {
        // A new guard is told the newest at once.
        self.fulfil_wishes()?;
        let started = self.sentinel.ensure(sys::now());
        self.report(started)?;
        let ready = self.wait().unwrap_or_else(|error| {
            log::error!("cannot wait for commands: {error}");
            Ready {
                waker: true,
                ..Ready::default()
            }
        });
        panic_if_asked("putex-child");
        if ready.guard {
            while let Some(news) = self.sentinel.heed(sys::now()) {
                self.report(Some(news))?;
            }
        }
        if ready.waker {
            self.waker.clear();
            while let Ok(order) = self.asked.try_recv() {
                self.fulfil_wishes()?;
                self.carry_out(order)?;
            }
        }
        for at in 0..self.stages.len() {
            if ready.output[at] {
                self.stages[at].pass_on(&mut say_line);
            }
            if ready.exit[at] {
                self.reap(at)?;
            }
        }
        if ready.start_left {
            self.sentinel.forget_group(Command::Start);
            let failed = Outcome::Failed(KILLED_WITH_AGENT.to_owned());
            self.post.tell(Event::Ended(Command::Start, failed))?;
        }
        Some(())
    }

    fn report(&self, news: Option<Sentry>) -> Option<()> {
        match news {
            Some(news) => self.post.tell(Event::Guard(news)),
            None => Some(()),
        }
    }

    /// Waits for an order, output, the end of a command, or word of the guard.
    fn wait(&self) -> io::Result<Ready> {
        let mut ready = Ready::default();
        let mut fds = Vec::with_capacity(12);
        let mut places: Vec<&mut bool> = Vec::with_capacity(11);
        let here = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        fds.push(here(self.waker.as_fd()));
        places.push(&mut ready.waker);
        if let Some(socket) = self.sentinel.socket() {
            fds.push(here(socket));
            places.push(&mut ready.guard);
        }
        let places_of = ready.output.iter_mut().zip(&mut ready.exit);
        for (stage, (output, exit)) in self.stages.iter().zip(places_of) {
            fds.push(here(stage.output()));
            places.push(output);
            if let Some(ended) = stage.exit() {
                fds.push(here(ended));
                places.push(exit);
            }
        }
        if let Some(ended) = self.start_left() {
            fds.push(here(ended));
            places.push(&mut ready.start_left);
        }
        self.alarm.poll(&mut fds, self.sentinel.deadline())?;
        for (fd, place) in fds.iter().zip(places) {
            *place = !fd.revents().is_empty();
        }
        drop(fds);
        Ok(ready)
    }

    /// The start of the life before is there until it has ended: until then there is none
    /// of this life.
    fn start_left(&self) -> Option<BorrowedFd<'_>> {
        let own = self.stages[Command::Start as usize].exit();
        self.sentinel.start_known().filter(|_| own.is_none())
    }

    /// Tells the guard what it has to know by now.
    fn fulfil_wishes(&mut self) -> Option<()> {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        let Wishes {
            tell,
            replace,
            kill_service,
        } = std::mem::take(&mut *wishes);
        drop(wishes);
        if let Some((watch, under)) = tell {
            let lost = self.sentinel.tell(watch, under);
            self.report(lost)?;
        }
        if kill_service {
            // The guard does it too, but may be paused. What is gone holds nothing.
            let _ = self.entrance.as_ref().map(|inside| inside.cage.kill());
            let lost = self.sentinel.kill_service();
            self.report(lost)?;
        }
        if replace {
            let lost = self.sentinel.drop_line();
            self.report(lost)?;
        }
        Some(())
    }

    /// Carries one order out; `None` when the agent has ended.
    fn carry_out(&mut self, order: Order) -> Option<()> {
        match order {
            Order::Run(run) => self.spawn(&run),
            Order::End { given_up, done } => {
                self.sentinel.end(given_up);
                if let Some(entrance) = self.entrance.take() {
                    entrance.cage.remove();
                }
                done.wake();
                None
            }
        }
    }

    fn reap(&mut self, at: usize) -> Option<()> {
        let stage = &mut self.stages[at];
        let command = stage.command();
        let group = stage.group()?.as_raw_nonzero().get();
        // The leader is not reaped yet, so the group's number is still its own.
        let killed = self.watchdog.ended(command, group);
        let outcome = stage.reap(killed, &mut say_line);
        log::logger().flush();
        self.sentinel.forget_group(command);
        if (command, &outcome) == (Command::Start, &Outcome::Succeeded)
            && let Some(entrance) = &mut self.entrance
        {
            entrance.start_succeeded();
        }
        self.post.tell(Event::Ended(command, outcome))
    }

    fn spawn(&mut self, run: &Run) -> Option<()> {
        // This thread may have been held up since the pump asked. What comes too
        // late to be allowed is not begun; a stop is never too late.
        if self.is_over(run.command) {
            return self.post.tell(Event::Ended(run.command, Outcome::Overran));
        }
        let entrance = self.entrance.as_mut();
        let door = entrance.and_then(|entrance| entrance.door(run.command));
        let mut prepared = self.commands.prepare(run, door, sys::now());
        let stage = &mut self.stages[run.command as usize];
        match stage.spawn(&mut prepared, &self.nothing) {
            Ok(group) => {
                self.lacking = false;
                let group = group.as_raw_nonzero().get();
                self.watchdog.started(run.command, group);
                self.tell_group(run.command, group)?;
                let over = self.is_over(run.command);
                let stage = &mut self.stages[run.command as usize];
                if run.command == Command::Start && !self.sentinel.knows(Command::Start) {
                    // Nobody would know of it, should this agent die now.
                    stage.kill();
                } else if !over {
                    // Held up meanwhile, it is killed before it begins.
                    stage.give_leave();
                }
                if run.command != Command::Stop {
                    return Some(());
                }
                let lost = self.sentinel.stop_begins();
                self.report(lost)
            }
            Err(error) => {
                self.leave_to_guard(run.command, &error);
                let outcome = Outcome::Failed(format!("it could not be run: {error}"));
                self.post.tell(Event::Ended(run.command, outcome))
            }
        }
    }

    /// What is lacking here the guard has: descriptors of its own, and what this agent
    /// gives back when it ends. While it lives, the guard leaves the service to it. Not at
    /// once, since it may pass; nor as the first process of a container, which takes the
    /// guard along.
    fn leave_to_guard(&mut self, command: Command, error: &io::Error) {
        let lacking = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
        let lacking = Errno::from_io_error(error).is_some_and(|error| lacking.contains(&error));
        if !matches!(command, Command::Stop | Command::LastResort) {
            return;
        }
        let again = std::mem::replace(&mut self.lacking, lacking);
        if lacking && again && self.sentinel.watches() && std::process::id() != 1 {
            let command = command.name();
            let why = format!("{command} could not be run: {error}: it is left to the guard");
            self.fatal_log.leave_to_guard(&why);
        }
    }

    fn tell_group(&mut self, command: Command, number: i32) -> Option<()> {
        let leader = self.stages[command as usize].exit();
        // Without a descriptor to spare the guard cannot be told, and start not begun.
        let Some(Ok(leader)) = leader.map(|leader| leader.try_clone_to_owned()) else {
            return Some(());
        };
        let lost = self.sentinel.tell_group(command, Group { number, leader });
        self.report(lost)
    }

    fn is_over(&self, command: Command) -> bool {
        let endless = matches!(command, Command::Stop | Command::LastResort);
        !endless && self.watchdog.is_over(command)
    }
}

fn say_line(command: Command, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    log::info!(target: command.name(), "{line}");
}
