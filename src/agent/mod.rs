//! The agent: threads, channels and the turn loop around the pump.
//!
//! | thread | owns | blocks in | tells the pump |
//! |---|---|---|---|
//! | `putex` (the main thread) | the pump | its inbox, until a deadline | |
//! | `putex-store` (`store_thread`) | the store and its connection | poll(2) | answers, hints |
//! | `putex-child` (`children`) | the commands, the guard | poll(2) | their ends, its words |
//! | `putex-watch` (`watchdog`) | nothing; it reads atomics | poll(2), until a deadline | |
//! | `putex-signal` (`signals`) | the signal pipe | that pipe | SIGTERM, SIGINT, SIGHUP |
//! | `putex-log` (`crate::log`) | stderr | writing to it | |
//!
//! Only the pump drains the inbox, and it never blocks on a send, so the wait
//! graph has no cycle. A queue that is full is a fault with a name.

mod children;
pub mod finish;
mod handover;
mod inbox;
pub(crate) mod life;
mod sentinel;
pub mod service_manager;
mod signals;
mod store_thread;
mod threads;
mod watchdog;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::MlockAllFlags;

use self::children::Children;
use self::handover::take_over;
use self::inbox::{Inbox, inbox};
pub use self::life::Identity;
use self::life::{Before, Life};
use self::sentinel::Sentinel;
use self::service_manager::ServiceManager;
use self::store_thread::{StoreHandle, StoreRequest};
use self::threads::Threads;
use self::watchdog::Watchdog;
use crate::cgroup::{Cage, PREFIX};
use crate::command::Commands;
use crate::core::command::{Command, Outcome};
use crate::core::event::{Effect, Ending, Event, Level, Notice, Rejection, Written};
use crate::core::pump::{AgentId, Config, Pump, bounce};
use crate::core::time::Ms;
use crate::core::timing::{SLACK, Timing};
use crate::exit::Exit;
use crate::guard::word::SetUp;
use crate::log::{Destination, FatalLog, panic_if_asked};
use crate::store::LockKey;
use crate::sys::{self, Alarm, raw};

/// What ending takes beside stopping the service.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How often ending takes a stop budget at the most: for stop, for the last resort, and for
/// stop once more.
const END_BUDGETS: u32 = 3;

/// What is said once the store is open.
type Greeting = Vec<(log::Level, String)>;

/// All that an agent is set up with.
pub struct Setup {
    /// How the pump was set up.
    pub config: Config,
    /// Who this agent is.
    pub me: AgentId,
    /// The operator's commands.
    pub commands: Commands,
    /// The watchdog device, if there is one, and whether it is required.
    pub device: Option<(String, bool)>,
    /// Run with real-time priority, and locked in memory.
    pub realtime: bool,
    /// Where the log goes.
    pub destination: Destination,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
    /// Below this folder stands the file by which the next life knows this one.
    pub base: PathBuf,
    /// By which the next life finds it there.
    pub name: Identity,
    /// Where the lock is kept.
    pub store: LockKey,
    /// The service manager.
    pub service_manager: ServiceManager,
    /// What is said once the store is open: before, a mistake in the set-up shall
    /// be the only line.
    pub greeting: Greeting,
}

/// What an agent needs of a host besides its kernel.
const NEEDED: [(&str, &str); 3] = [
    ("/bin/sh", "which runs the commands"),
    ("/proc/self/exe", "from which the guard is started"),
    ("/dev/null", "which commands read"),
];

/// Runs an agent until it is told to end.
///
/// # Errors
///
/// When the system has no thread, pipe or signal handler to give, or lacks a file
/// that every agent needs.
pub fn run(setup: Setup) -> io::Result<Exit> {
    find_needed()?;
    let fatal_log = FatalLog::prepare(setup.destination, &setup.commands.key)?;
    let threads = Threads {
        realtime: setup.realtime,
    };
    let (post, inbox) = inbox()?;
    signals::watch(post.clone(), setup.service_manager.socket(), threads)?;
    let watchdog = Watchdog::start(threads)?;
    let mut greeting = setup.greeting.clone();
    if setup.realtime {
        greeting.extend(go_realtime());
    }
    let (life, before) = begin_life(&setup, &mut greeting);
    let cage = make_cage(&setup, life.as_ref(), &mut greeting);
    let alarm = Alarm::new()?;
    let guard = before.guard.as_deref();
    let taken_over = guard.map(|name| take_over(name, setup.config.timing, &alarm, &inbox));
    let handover = match taken_over.transpose() {
        Ok(handover) => handover.flatten(),
        Err(signal) => {
            log::warn!("{signal}: ending; the guard of the previous life stops the service");
            return Ok(Exit::NotStopped);
        }
    };
    let set_up = guards_set_up(&setup, cage.as_ref());
    let me = AgentId {
        dead: before.dead,
        ..setup.me
    };
    let left = handover.as_ref();
    let inherited = left.and_then(|handover| handover.left.clone());
    let sentinel = Sentinel::new(set_up, life, handover, alarm, sys::now());
    let children = Children::start(
        setup.commands,
        cage,
        sentinel,
        Arc::clone(&watchdog),
        post.clone(),
        threads,
        fatal_log,
    )?;
    let pause = setup.config.timing.renewal() / 4;
    let store = StoreHandle::start(setup.store, pause, post, threads)?;
    let notice = Notice {
        token: me.token.clone(),
        incarnation: me.incarnation.to_string(),
        host: me.host.clone(),
    };
    let timing = setup.config.timing;
    let pump = Pump::new(setup.config, me, inherited, sys::now());
    let hands = Hands {
        watchdog,
        children,
        store,
        notice,
        service_manager: setup.service_manager,
        destination: setup.destination,
        end_within: end_within(timing),
        faults: VecDeque::new(),
    };
    Ok(turn_until_end(pump, hands, &inbox, greeting))
}

/// Returns how long ending may take. What cannot be killed is waited for for R.
fn end_within(timing: Timing) -> Duration {
    let stops = END_BUDGETS * timing.stop_budget();
    timing.validity() + stops + timing.renewal() + END_WITHIN
}

/// Returns what the guard has to know of how the agent was set up.
fn guards_set_up(setup: &Setup, cage: Option<&Cage>) -> SetUp {
    SetUp {
        name: format!("putex-guard-{}", setup.me.incarnation),
        timing: setup.config.timing,
        key: setup.commands.key.clone(),
        token: setup.me.token.clone(),
        stop: setup.commands.stop.clone(),
        last_resort: setup.commands.last_resort.clone(),
        device: setup.device.clone(),
        cage: cage.map(|cage| cage.dir().display().to_string()),
        realtime: setup.realtime,
        level: setup.level,
        syslog: setup.destination == Destination::Syslog,
    }
}

/// Begins this agent's life; says why the next one will not know of it, if so.
fn begin_life(setup: &Setup, greeting: &mut Greeting) -> (Option<Life>, Before) {
    let (path, me) = (setup.name.path(&setup.base), &setup.me);
    match Life::begin(&path, me.incarnation, &me.boot) {
        Ok((life, before)) => (Some(life), before),
        Err(why) => {
            let text = format!("a restarted agent will not know this one: {why}");
            greeting.push((log::Level::Warn, text));
            (None, Before::default())
        }
    }
}

/// Makes a control group for start, where it is this agent's to make: one for all lives
/// of it, so that whoever has to end the service finds what each of them left. Where that
/// cannot be had, this life has one of its own.
fn make_cage(setup: &Setup, life: Option<&Life>, greeting: &mut Greeting) -> Option<Cage> {
    let make = |name: String| Cage::make(&format!("{PREFIX}{name}"));
    let shared = life.and_then(|life| make(life.name().ok()?).ok());
    match shared.map_or_else(|| make(setup.me.incarnation.to_string()), Ok) {
        Ok(cage) => Some(cage),
        Err(why) => {
            greeting.push((log::Level::Debug, format!("no control group: {why}")));
            None
        }
    }
}

/// A host that is nearly empty shall be told what is missing, by name.
fn find_needed() -> io::Result<()> {
    for (file, why) in NEEDED {
        if let Err(error) = std::fs::metadata(file) {
            let text = format!("{file}, {why}: {error}");
            return Err(io::Error::new(error.kind(), text));
        }
    }
    Ok(())
}

/// Asks for real-time priority and locked memory; says what is not permitted.
fn go_realtime() -> Greeting {
    let priority = raw::set_realtime();
    let memory = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
    let failed = [
        ("real-time priority", priority.err()),
        ("locked memory", memory.err().map(io::Error::from)),
    ];
    let failed = failed.into_iter().filter_map(|(what, error)| {
        let text = format!("--realtime: no {what}: {}", error?);
        Some((log::Level::Warn, text))
    });
    failed.collect()
}

/// The turn loop: one event, one bounce, its effects, then the next.
fn turn_until_end(mut pump: Pump, mut hands: Hands, inbox: &Inbox, mut greeting: Greeting) -> Exit {
    let mut latest = Duration::ZERO;
    loop {
        let event = match hands.faults.pop_front() {
            Some(fault) => fault,
            None => next_event(&pump, inbox, &mut hands.service_manager, &mut latest),
        };
        panic_if_asked("putex");
        if let Event::Opened(_) = event {
            hands.store.opened();
            for (level, text) in greeting.drain(..) {
                log::log!(level, "{text}");
            }
        }
        if let Event::Shutdown(_) = event {
            hands.service_manager.send_stopping(hands.end_within);
        }
        let now = sys::now();
        let (after, effects) = bounce(pump, &event, now);
        pump = after;
        for effect in effects {
            if let Some(exit) = hands.perform(effect) {
                log::debug!("this agent woke {} late at the most", Ms(latest));
                return exit;
            }
        }
        hands.service_manager.notify(pump.state(), pump.stands_by());
        hands.service_manager.keepalive(now);
    }
}

/// Waits for an event, until the pump's deadline at the longest, and says meanwhile
/// that this loop turns. Keeps the longest time by which it woke after the deadline.
fn next_event(
    pump: &Pump,
    inbox: &Inbox,
    manager: &mut ServiceManager,
    latest: &mut Duration,
) -> Event {
    let deadline = pump.deadline();
    loop {
        let until = [deadline, manager.keepalive_due()]
            .into_iter()
            .flatten()
            .min();
        if let Some(event) = inbox.next(until) {
            return event;
        }
        let now = sys::now();
        manager.keepalive(now);
        let Some(at) = deadline.filter(|at| now >= *at) else {
            continue;
        };
        let late = now.since(at);
        *latest = late.max(*latest);
        if late > SLACK {
            log::warn!(
                "woke {} late: this host is overloaded or was suspended",
                Ms(late)
            );
        }
        return Event::Tick;
    }
}

/// What performs the pump's effects. Nothing here blocks.
struct Hands {
    watchdog: Arc<Watchdog>,
    children: Children,
    store: StoreHandle,
    notice: Notice,
    service_manager: ServiceManager,
    destination: Destination,
    /// How long ending may take.
    end_within: Duration,
    /// Answers to what could not even be asked.
    faults: VecDeque<Event>,
}

impl Hands {
    fn perform(&mut self, effect: Effect) -> Option<Exit> {
        match effect {
            Effect::Read { deadline } => {
                if !self.store.send(StoreRequest::Read { deadline }) {
                    self.faults
                        .push_back(Event::Read(Err(STORE_QUEUE_FULL.to_owned())));
                }
            }
            Effect::Write {
                expected,
                record,
                deadline,
            } => {
                if !self.store.send(StoreRequest::Write {
                    expected,
                    record,
                    deadline,
                }) {
                    let unknown = Written::Unknown(STORE_QUEUE_FULL.to_owned());
                    self.faults.push_back(Event::Written(unknown));
                }
            }
            // Best effort: it is asked for again while the twin lives.
            Effect::Announce => drop(self.store.send(StoreRequest::Announce(self.notice.clone()))),
            Effect::Run(run) => {
                let command = run.command;
                self.watchdog.arm(command, run.deadline);
                if !self.children.run(run) {
                    let failed = Outcome::Failed("too many commands are under way".to_owned());
                    self.faults.push_back(Event::Ended(command, failed));
                }
            }
            Effect::Guard(watch, under) => {
                self.children.tell(watch, under);
            }
            Effect::ReplaceGuard => self.children.replace_guard(),
            Effect::KillService => self.children.kill_service(),
            Effect::Extend(command, deadline) => self.watchdog.arm(command, deadline),
            Effect::Kill(command) => self.watchdog.kill(command),
            Effect::Say(level, text) => {
                say(level, &text);
                self.service_manager.note(level, &text);
            }
            Effect::Exit(ending) => {
                for command in Command::ALL {
                    self.watchdog.kill(command);
                }
                if let Err(error) = self.children.end(ending == Ending::NotStopped) {
                    log::error!("the guard could not be told of the end: {error}");
                }
                return Some(ended(&ending, self.destination));
            }
        }
        None
    }
}

const STORE_QUEUE_FULL: &str = "the store thread does not keep up";

fn say(level: Level, text: &str) {
    match level {
        Level::Error => log::error!("{text}"),
        Level::Warn => log::warn!("{text}"),
        Level::Info => log::info!("{text}"),
        Level::Debug => log::debug!("{text}"),
    }
}

fn ended(ending: &Ending, destination: Destination) -> Exit {
    match ending {
        Ending::Clean => Exit::Success,
        Ending::NotStopped => Exit::NotStopped,
        Ending::Rejected(rejection) => {
            let exit = match rejection {
                Rejection::Credentials(_) => Exit::Credentials,
                Rejection::Unsafe(_) => Exit::Unsafe,
            };
            destination.refuse(&rejection.to_string(), exit)
        }
    }
}
