//! An agent: the pump, the store and a simulated guard, in one thread. The store is served as by
//! the threads of a real agent, except that a deadline which comes during a request is noticed
//! after it.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use putex::core::report::Report;
use putex::core::{
    AgentId, AgentState, Config, DeviceUse, Effect, Event, Incarnation, Instant, Outcome, Priority,
    Pump, StoreError, StoreErrorKind as Kind, Timing, Written, bounce,
};
use putex::nats::{Client, ConnectOptions, Login, Server};
use putex::store::LockKey;
use putex::store::nats::{API, NatsSettings, NatsStore};
use putex::store::reopening;
use putex::sys::{self, Alarm, PollFlags, Waker};

use crate::counters::Counters;
use crate::guard::Guard;

/// The bucket of all agents.
pub(crate) const BUCKET: &str = "scale";

/// As of the store thread of a real agent.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// State that all agents share.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) timing: Timing,
    pub(crate) replicas: u32,
    /// Wakes all agents at the end.
    pub(crate) end: Waker,
    pub(crate) is_over: AtomicBool,
}

pub(crate) struct Agent {
    pub(crate) shared: Arc<Shared>,
    store: LockKey,
    guard: Guard,
    /// When the renewal under way was sent first.
    renewal_sent: Option<Instant>,
}

impl Agent {
    /// Returns an agent of this key with its pump.
    ///
    /// # Errors
    ///
    /// When the system has no random number.
    pub(crate) fn new(
        shared: Arc<Shared>,
        urls: &str,
        key: &str,
        token: &str,
    ) -> Result<(Agent, Pump), String> {
        let random = sys::random().map_err(|error| error.to_string())?;
        let (incarnation, host) = (Incarnation(random), format!("host-{token}"));
        let token = token.to_owned();
        let config = Config {
            timing: shared.timing,
            check: false,
            start_grace: Duration::ZERO,
            check_failures: 1,
            priority: Priority::FIRST,
            failback: None,
            seats: 1,
            observes: false,
            agents: None,
            last_resort: false,
            device: DeviceUse::None,
        };
        let store = store(&shared, urls, key, &token)?;
        let id = AgentId { token, incarnation, host, boot: sys::boot_id().expect("it has one") };
        let pump = Pump::new(config, id, None, sys::now());
        let guard = Guard::new();
        Ok((Agent { shared, store, guard, renewal_sent: None }, pump))
    }

    /// Runs until all agents end.
    pub(crate) fn run(mut self, mut pump: Pump) {
        pump = self.handle(pump, Event::Tick);
        while !self.is_over() {
            pump = match self.store.open(sys::now().after(OPEN_WITHIN)) {
                Ok(opened) => {
                    self.shared.counters.opened();
                    pump = self.handle(pump, Event::Opened(opened));
                    self.serve(pump)
                }
                Err(StoreError { kind: Kind::Unreachable | Kind::Unfit, text }) => {
                    self.shared.counters.not_opened(&text);
                    self.handle(pump, Event::Closed(text))
                }
                Err(error) => {
                    self.shared.counters.not_opened(&error.text);
                    self.handle(pump, Event::Rejected(error))
                }
            };
            pump = self.pause(pump);
        }
    }

    /// Serves the open store until it is lost, or all agents end.
    fn serve(&mut self, mut pump: Pump) -> Pump {
        while !self.is_over() {
            let deadline = pump.deadline().map(|deadline| deadline.at);
            pump = match self.store.watch(self.shared.end.as_fd(), deadline) {
                Ok(Some(event)) => self.handle(pump, event),
                Ok(None) => self.tick(pump, deadline),
                Err(why) => {
                    self.shared.counters.closed(&why);
                    return self.handle(pump, Event::Closed(why));
                }
            };
        }
        pump
    }

    /// Pauses between two attempts to open the store.
    fn pause(&mut self, mut pump: Pump) -> Pump {
        let random = sys::random().unwrap_or_default();
        let over =
            sys::now().after(reopening::pause(&self.shared.timing, self.store.is_held(), random));
        while !self.is_over() && sys::now() < over {
            let deadline = pump.deadline().map(|deadline| deadline.at);
            let until = deadline.map_or(over, |deadline| deadline.min(over));
            let end = (self.shared.end.as_fd(), PollFlags::IN);
            // A pause that the kernel refuses does no harm.
            let _ = Alarm::new().and_then(|alarm| alarm.wait([end], Some(until)));
            pump = self.tick(pump, deadline);
        }
        pump
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Relaxed)
    }

    fn tick(&mut self, pump: Pump, deadline: Option<Instant>) -> Pump {
        let now = sys::now();
        let Some(deadline) = deadline.filter(|deadline| now >= *deadline) else { return pump };
        self.shared.counters.delays.add(now.since(deadline));
        self.handle(pump, Event::Tick)
    }

    /// Has the pump handle an event, and those that follow from its effects.
    fn handle(&mut self, mut pump: Pump, event: Event) -> Pump {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (next, effects) = bounce(pump, &event, sys::now());
            pump = next;
            for effect in effects {
                events.extend(self.perform(effect, pump.state()));
            }
        }
        pump
    }

    fn perform(&mut self, effect: Effect, state: AgentState) -> Option<Event> {
        match effect {
            Effect::Read { seat, deadline } => {
                let answer = self.store.read(seat, deadline);
                match &answer {
                    Ok(_) => self.shared.counters.read(),
                    Err(why) => self.shared.counters.not_answered(why),
                }
                Some(Event::Read(answer))
            }
            Effect::Write { seat, expected, record, deadline } => {
                let sent = *self.renewal_sent.get_or_insert(sys::now());
                let written = self.store.write(seat, expected, &record, deadline);
                self.count_write(&written, sent, state == AgentState::Active);
                Some(Event::Written(written))
            }
            Effect::ReadPause => self.store.read_pause().ok().map(Event::PauseRead),
            Effect::RequestSwitchover { .. } => unreachable!("no lock goes back"),
            Effect::ConnectGuard(number, messages) => Some(self.guard.connect(number, messages)),
            Effect::TellGuard(message) => Some(self.guard.tell(message)),
            Effect::RunCheck(_) => Some(Event::CheckEnded(Outcome::Succeeded)),
            Effect::Report(report) => {
                self.count_report(&report);
                None
            }
            Effect::Exit(ending) => {
                self.shared.counters.note("agent ended", &format!("{ending:?}"));
                None
            }
            Effect::KillGuard | Effect::KillCgroup | Effect::ExtendCheck(_) | Effect::KillCheck => {
                None
            }
        }
    }

    fn count_write(&mut self, written: &Written, sent: Instant, is_renewal: bool) {
        let counters = &self.shared.counters;
        match written {
            Written::Stored(_) if is_renewal => counters.renewed(sys::now().since(sent)),
            Written::Stored(_) => {}
            Written::Moved(_) => counters.note("write refused", "another revision stands there"),
            Written::Denied(why) => counters.note("write refused", &why.text),
            Written::Unknown(why) => {
                counters.not_answered(why);
                return;
            }
        }
        self.renewal_sent = None;
    }

    fn count_report(&mut self, report: &Report) {
        let Report::Moved { from, to, why, .. } = report else { return };
        let counters = &self.shared.counters;
        self.renewal_sent = None;
        if *from == AgentState::Active {
            counters.lost(&why.to_string());
        }
        if *to == AgentState::Active {
            counters.taken();
        }
    }
}

/// Returns the store of an agent, made as [`putex::cli::connect::store`] makes it.
fn store(shared: &Shared, urls: &str, key: &str, token: &str) -> Result<LockKey, String> {
    let renewal = shared.timing.renewal();
    let options = ConnectOptions::new(Login::None, format!("putex {key} {token}"), renewal);
    let client = Client::new(Server::parse_list(urls)?, options);
    let settings = NatsSettings {
        bucket: BUCKET.to_owned(),
        replicas: shared.replicas,
        allow_memory: false,
        for_locks: false,
        api: API.to_owned(),
    };
    let bucket = Box::new(NatsStore::new(client, settings));
    Ok(LockKey::new(bucket, key, 1, renewal / 2))
}
