//! The agent: threads, channels and the turn loop around the pump.
//!
//! | thread | owns | blocks in | tells the pump |
//! |---|---|---|---|
//! | `putex` (the main thread) | the pump | its inbox, until a deadline | |
//! | `putex-store` (`keeper`) | the store and its connection | poll(2) | answers, hints |
//! | `putex-child` (`children`) | the commands and their output | poll(2) | how a command ended |
//! | `putex-watch` (`watchdog`) | nothing; it reads atomics | poll(2), until a deadline | |
//! | `putex-signal` (`signals`) | the signal pipe | that pipe | SIGTERM, SIGINT |
//! | `putex-log` (`journal`) | stderr | writing to it | |
//!
//! Only the pump drains the inbox, and it never blocks on a send, so the wait
//! graph has no cycle. A queue that is full is a fault with a name.

mod children;
mod inbox;
pub mod journal;
mod keeper;
mod signals;
mod watchdog;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use self::children::{Children, Commands};
use self::inbox::{Inbox, inbox};
use self::keeper::{Ask, Keeper};
use self::watchdog::Watchdog;
use crate::core::event::{
    Command, Effect, Ending, Event, Level, Notice, Outcome, Rejection, Written,
};
use crate::core::pump::{Config, Me, Pump, bounce};
use crate::core::timing::Ms;
use crate::exit::Exit;
use crate::store::Store;
use crate::sys;

/// An agent wakes later than this only on a host in trouble: said with the number.
const LATE: Duration = Duration::from_millis(10);

/// All that an agent is set up with.
pub struct Setup {
    /// How the pump was set up.
    pub config: Config,
    /// Who this agent is.
    pub me: Me,
    /// The key, as commands are told.
    pub key: String,
    /// The operator's commands.
    pub check: Option<String>,
    /// See `check`.
    pub start: String,
    /// See `check`.
    pub stop: String,
    /// Where the lock is kept.
    pub store: Box<dyn Store>,
    /// What is said once the store is open: before, a mistake in the set-up shall
    /// be the only line.
    pub greeting: Vec<(log::Level, String)>,
}

/// Runs an agent until it is told to end.
///
/// # Errors
///
/// When the system has no thread, pipe or signal handler to give.
pub fn run(setup: Setup) -> io::Result<Exit> {
    let (post, inbox) = inbox()?;
    signals::watch(post.clone())?;
    let watchdog = Watchdog::start()?;
    let commands = Commands {
        check: setup.check,
        start: setup.start,
        stop: setup.stop,
        key: setup.key,
        token: setup.me.token.clone(),
    };
    let children = Children::start(commands, Arc::clone(&watchdog), post.clone())?;
    let pause = setup.config.timing.renewal() / 4;
    let keeper = Keeper::start(setup.store, pause, post)?;
    let notice = Notice {
        token: setup.me.token.clone(),
        incarnation: setup.me.incarnation.to_string(),
        host: setup.me.host.clone(),
    };
    let pump = Pump::new(setup.config, setup.me, sys::now());
    let hands = Hands {
        watchdog,
        children,
        keeper,
        notice,
        faults: VecDeque::new(),
    };
    Ok(turn_until_end(pump, hands, &inbox, setup.greeting))
}

/// The turn loop: one event, one bounce, its effects, then the next.
fn turn_until_end(
    mut pump: Pump,
    mut hands: Hands,
    inbox: &Inbox,
    mut greeting: Vec<(log::Level, String)>,
) -> Exit {
    loop {
        let event = match hands.faults.pop_front() {
            Some(fault) => fault,
            None => next_event(&pump, inbox),
        };
        if let Event::Opened(_) = event {
            hands.keeper.opened();
            for (level, text) in greeting.drain(..) {
                log::log!(level, "{text}");
            }
        }
        let now = sys::now();
        let (after, effects) = bounce(pump, &event, now);
        pump = after;
        for effect in effects {
            if let Some(exit) = hands.perform(effect) {
                return exit;
            }
        }
    }
}

/// Waits for an event, until the pump's deadline at the longest.
fn next_event(pump: &Pump, inbox: &Inbox) -> Event {
    let deadline = pump.deadline();
    inbox.next(deadline).unwrap_or_else(|| {
        let late = deadline.map_or(Duration::ZERO, |at| sys::now().since(at));
        if late > LATE {
            log::warn!(
                "woke {} late: this host is overloaded or was suspended",
                Ms(late)
            );
        }
        Event::Tick
    })
}

/// What performs the pump's effects. Nothing here blocks.
struct Hands {
    watchdog: Arc<Watchdog>,
    children: Children,
    keeper: Keeper,
    notice: Notice,
    /// Answers to what could not even be asked.
    faults: VecDeque<Event>,
}

impl Hands {
    fn perform(&mut self, effect: Effect) -> Option<Exit> {
        match effect {
            Effect::Read { deadline } => {
                if !self.keeper.ask(Ask::Read { deadline }) {
                    self.faults
                        .push_back(Event::Read(Err(KEEPER_FULL.to_owned())));
                }
            }
            Effect::Write {
                expected,
                record,
                deadline,
            } => {
                if !self.keeper.ask(Ask::Write {
                    expected,
                    record,
                    deadline,
                }) {
                    let unknown = Written::Unknown(KEEPER_FULL.to_owned());
                    self.faults.push_back(Event::Written(unknown));
                }
            }
            // Best effort: it is asked for again while the twin lives.
            Effect::Announce => drop(self.keeper.ask(Ask::Announce(self.notice.clone()))),
            Effect::Run(run) => {
                let command = run.command;
                self.watchdog.arm(command, run.deadline);
                if !self.children.run(run) {
                    let failed = Outcome::Failed("too many commands are under way".to_owned());
                    self.faults.push_back(Event::Ended(command, failed));
                }
            }
            Effect::Extend(command, deadline) => self.watchdog.arm(command, deadline),
            Effect::Kill(command) => self.watchdog.kill(command),
            Effect::Say(level, text) => say(level, &text),
            Effect::Exit(ending) => {
                for command in Command::ALL {
                    self.watchdog.kill(command);
                }
                return Some(ended(&ending));
            }
        }
        None
    }
}

const KEEPER_FULL: &str = "the store thread does not keep up";

fn say(level: Level, text: &str) {
    match level {
        Level::Error => log::error!("{text}"),
        Level::Warn => log::warn!("{text}"),
        Level::Info => log::info!("{text}"),
        Level::Debug => log::debug!("{text}"),
    }
}

fn ended(ending: &Ending) -> Exit {
    match ending {
        Ending::Clean => Exit::Success,
        Ending::NotStopped => Exit::NotStopped,
        Ending::Rejected(rejection) => {
            eprintln!("putex: {rejection}");
            match rejection {
                Rejection::Credentials(_) => Exit::Credentials,
                Rejection::Unsafe(_) => Exit::Unsafe,
            }
        }
    }
}
