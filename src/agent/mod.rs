//! The agent: threads, channels and the turn loop around the pump.
//!
//! | thread | owns | blocks in | tells the pump |
//! |---|---|---|---|
//! | `putex` (the main thread) | the pump, the signals | its inbox, until a deadline | signals |
//! | `putex-store` (`store_thread`) | the store and its connection | poll(2) | answers, hints |
//! | `putex-guard` (`guard_client`) | the socket to the guard | poll(2) | its reports, its end |
//! | `putex-check` (`check_thread`) | the health check | poll(2), until a deadline | its end |
//! | `putex-change` (`change_thread`) | on-change | poll(2), until a deadline | that all is told |
//! | `putex-metrics` (`metrics_thread`) | the file with the metrics | writing to it | |
//! | `putex-log` (`crate::log`) | stderr | writing to it | |
//!
//! Only the main thread reads the inbox, and it never blocks on a send, so no two threads wait
//! for each other. A full queue becomes an event with its reason.

mod change_thread;
mod check_thread;
mod guard_client;
mod inbox;
mod metrics_thread;
pub mod reload;
pub mod service_manager;
pub mod signals;
mod store_thread;
mod upgrade;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::change_thread::ChangeHandle;
use self::check_thread::CheckHandle;
use self::guard_client::{GuardHandle, Order};
use self::inbox::{Inbox, inbox};
use self::metrics_thread::MetricsHandle;
use self::service_manager::ServiceManager;
use self::signals::Signals;
use self::store_thread::{StoreHandle, StoreRequest};
use self::upgrade::Program;
use crate::command::Change;
use crate::core::report::{Report, SettingsLine};
use crate::core::{
    AgentId, Config, Effect, Ending, Event, Instant, Level, LockContext, Metrics, Ms, Notice,
    Priority, Pump, Reloadable, SLACK, StatusRequest, bounce,
};
use crate::exit::{Exit, Refusal};
use crate::guard::protocol::Settings;
use crate::guard::{AGENT_LOCK, HeldDir, Identity, InstanceDir, status_file};
use crate::log::{Destination, LogQueue, end_on_panic, panic_if_asked, say};
use crate::store::LockKey;
use crate::sys;

/// Events that may wait for the pump. It drains them faster than a server, three commands and a
/// person can make them; a thread that finds the queue full waits.
const EVENTS_MAX: usize = 256;

/// Time for the exit, besides stopping the service.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts of a second agent to lock `agent.lock`.
const AGENT_LOCK_POLL: Duration = Duration::from_millis(20);

/// How long the agent waits for a signal that was sent together with SIGUSR2.
const SIGNALS_WITHIN: Duration = Duration::from_millis(2);

/// The settings and resources of an agent.
pub struct Setup<'a> {
    /// How the pump was set up.
    pub config: Config,
    /// The token, incarnation and host of this agent.
    pub id: AgentId,
    /// The settings of the guard, with the commands; [`run`] fills in the directory.
    pub guard: Settings,
    /// The log.
    pub log: &'a LogQueue,
    /// Where the log goes.
    pub destination: Destination,
    /// Below this directory is the private directory of agent and guard.
    pub base: PathBuf,
    /// What all instances of this agent have in common: location, bucket, key and token.
    pub identity: Identity,
    /// Where the lock is kept.
    pub store: LockKey,
    /// Whether the lock is in a directory of this host.
    pub is_local: bool,
    /// The service manager.
    pub service_manager: ServiceManager,
    /// The signals that the agent takes.
    pub signals: Signals,
}

/// The files that an agent needs on a host, and what for.
const REQUIRED_FILES: [(&str, &str); 4] = [
    ("/bin/sh", "which runs the commands"),
    ("/proc/self/exe", "from which the guard is started"),
    ("/dev/null", "which commands read"),
    ("/proc/sys/kernel/random/boot_id", "without which no note is known to be of this boot"),
];

/// Runs an agent until it is told to end.
///
/// # Errors
///
/// When the system has no thread, pipe or signal handler to give, or lacks a file
/// that every agent needs.
pub fn run(mut setup: Setup<'_>) -> io::Result<Exit> {
    check_required_files()?;
    let program = Program::find();
    let dir = InstanceDir::open(&setup.base, &setup.identity)?;
    end_on_panic(setup.destination, &setup.guard.commands.key)?;
    let (events, inbox) = inbox(EVENTS_MAX)?;
    let startup_lines = describe_settings(&setup);
    let agent_lock = match wait_for_agent_lock(&dir, &mut setup, &inbox)? {
        Ok(lock) => lock,
        Err(exit) => return Ok(exit),
    };
    setup.guard.dir = dir.path.display().to_string();
    let dir_path = dir.path.clone();
    let dir = HeldDir::new(dir, agent_lock)?;
    let check = CheckHandle::start(setup.guard.commands.clone(), events.clone())?;
    let on_change = match setup.guard.commands.on_change {
        Some(_) => Some(ChangeHandle::start(setup.guard.commands.clone(), events.clone())?),
        None => None,
    };
    let metrics = start_metrics(&setup, &dir_path)?;
    let guard = GuardHandle::start(dir, setup.guard, events.clone())?;
    let pause = setup.config.timing.renewal() / 4;
    let store = StoreHandle::start(setup.store, pause, events)?;
    let notice = Notice {
        token: setup.id.token.clone(),
        incarnation: setup.id.incarnation.to_string(),
        host: setup.id.host.clone(),
    };
    let timing = setup.config.timing;
    let pump = Pump::new(setup.config, setup.id, sys::now());
    let performer = Performer {
        check,
        on_change,
        guard,
        metrics,
        store,
        notice,
        service_manager: setup.service_manager,
        signals: setup.signals,
        destination: setup.destination,
        program,
        log: setup.log,
        inbox: &inbox,
        end_within: timing.validity() + timing.stop_budget() + timing.renewal() + END_WITHIN,
        last_move: (sys::now(), "started".to_owned()),
        taken: String::new(),
        state: pump.state(),
        lock: LockContext::default(),
        dir: dir_path,
        identity: setup.identity,
        is_local: setup.is_local,
        queued_events: VecDeque::from([Event::Tick]),
    };
    Ok(turn_until_end(pump, performer, startup_lines))
}

/// Starts the thread that writes the metrics, if there is a file for them.
fn start_metrics(setup: &Setup<'_>, dir: &Path) -> io::Result<Option<MetricsHandle>> {
    let Some(path) = &setup.guard.metrics_file else { return Ok(None) };
    let Identity { bucket, key, token, .. } = &setup.identity;
    let metrics = Metrics::new(bucket, key, token, setup.config.seats);
    let renewal = setup.config.timing.renewal();
    MetricsHandle::start(path, dir, metrics, renewal).map(Some)
}

/// Waits up to T for `agent.lock`. If another process still holds it, that process is a second
/// agent. No command runs meanwhile. The error is the exit status of an agent that ends without
/// `agent.lock`.
fn wait_for_agent_lock(
    dir: &InstanceDir,
    setup: &mut Setup<'_>,
    inbox: &Inbox<Event>,
) -> io::Result<Result<File, Exit>> {
    let until = sys::now().after(setup.config.timing.lock_time());
    loop {
        if let Some(lock) = dir.lock(AGENT_LOCK, Duration::ZERO)? {
            return Ok(Ok(lock));
        }
        if sys::now() >= until {
            let token = &setup.id.token;
            let text = format!(
                "another agent with this bucket, key and token {token} runs on this host; give \
                 each its own --token"
            );
            return Ok(Err(setup.destination.refuse(&Refusal::new(Exit::Unsafe, text))));
        }
        let signal = || setup.signals.next(&setup.service_manager);
        let until = Some(sys::now().after(AGENT_LOCK_POLL));
        let event = inbox.next_or([setup.signals.as_fd()], until, signal);
        if let Some(Event::Shutdown(_)) = event {
            return Ok(Err(Exit::Success));
        }
        if let Some(Event::Reloaded(reloadable)) = event {
            setup.config.reloadable = reloadable;
        }
    }
}

/// Checks the required files, so that the error names the missing one.
fn check_required_files() -> io::Result<()> {
    REQUIRED_FILES.into_iter().try_for_each(|(file, why)| {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{file}, {why}: {error}"));
        std::fs::metadata(file).map(drop).map_err(named)
    })
}

/// Returns the lines about the settings of this agent.
fn describe_settings(setup: &Setup<'_>) -> Vec<String> {
    let timing = setup.config.timing;
    let settings = SettingsLine {
        version: env!("CARGO_PKG_VERSION"),
        token: &setup.id.token,
        renewal: Ms(timing.renewal()),
        failures: timing.failures(),
        confirmations: timing.confirmations(),
        stop_budget: Ms(timing.stop_budget()),
    };
    let mut lines = vec![settings.to_string()];
    let Reloadable { priority, failback } = setup.config.reloadable;
    if priority == Priority::Never {
        lines.push("priority never: not a candidate".to_owned());
    } else if priority != Priority::FIRST || failback.is_some() || setup.config.seats > 1 {
        let failback = failback.map_or("never".to_owned(), |after| Ms(after).to_string());
        let seats = setup.config.seats;
        lines.push(format!("priority {priority}, failback {failback}, seats {seats}"));
    }
    if setup.config.observes {
        lines.push("it only observes: no lock is taken, no service is run".to_owned());
    }
    if !setup.config.check {
        lines.push("no --healthcheck: a host that is up counts as fit".to_owned());
    }
    lines
}

/// The turn loop: one event, one bounce, its effects, then the next.
fn turn_until_end(
    mut pump: Pump,
    mut performer: Performer<'_>,
    mut startup_lines: Vec<String>,
) -> Exit {
    let mut latest = Duration::ZERO;
    loop {
        let event = match performer.queued_events.pop_front() {
            Some(event) => event,
            None => next_event(&pump, &mut performer, &mut latest),
        };
        panic_if_asked("putex");
        if let Event::Opened(_) = event {
            performer.store.opened();
            // Not before, so that an error of the configuration is the only line.
            startup_lines.drain(..).for_each(|text| log::info!("{text}"));
        }
        if let Event::Shutdown(_) = event {
            performer.service_manager.send_stopping(performer.end_within);
        }
        let now = sys::now();
        if let Event::StatusRequested(request) = &event {
            performer.send_status(request, &pump, now);
        }
        if let Some(metrics) = &mut performer.metrics {
            metrics.handle_event(&event, now);
        }
        let lock_before = performer.on_change.as_ref().map(|_| pump.lock_context());
        let (after, effects) = bounce(pump, &event, now);
        pump = after;
        if let Some(before) = lock_before {
            let lock = pump.lock_context();
            performer.lock = if lock.term.is_some() { lock } else { before };
        }
        for effect in effects {
            if let Effect::Upgrade = effect {
                // The next instance does not know what the manager was not told.
                performer.service_manager.notify(pump.state(), pump.is_ready());
            }
            if let Some(metrics) = &mut performer.metrics {
                metrics.handle_effect(&effect, now);
            }
            if let Some(exit) = performer.perform(effect) {
                log::debug!("this agent woke {} late at the most", Ms(latest));
                return exit;
            }
        }
        if let Some(metrics) = &mut performer.metrics {
            metrics.update(&pump, now);
        }
        while let Ok((level, text)) = performer.guard.lines.try_recv() {
            performer.service_manager.note(level, &text);
        }
        performer.service_manager.notify(pump.state(), pump.is_ready());
        performer.service_manager.keepalive(now);
    }
}

/// Waits for an event, until the pump's deadline at the longest; sends the service manager's
/// keepalive and has the metrics written meanwhile. Updates `latest`, the longest delay after a
/// deadline.
fn next_event(pump: &Pump, performer: &mut Performer<'_>, latest: &mut Duration) -> Event {
    let Performer { inbox, metrics, signals, service_manager: manager, .. } = performer;
    let deadline = pump.deadline();
    let at = deadline.map(|deadline| deadline.at);
    loop {
        let metrics_due = metrics.as_ref().map(MetricsHandle::due);
        let until = [at, manager.keepalive_due(), metrics_due].into_iter().flatten().min();
        let event = inbox.next_or([signals.as_fd()], until, || signals.next(manager));
        if let Some(event) = event {
            return event;
        }
        let now = sys::now();
        manager.keepalive(now);
        if let Some(metrics) = metrics {
            metrics.update(pump, now);
        }
        let Some(deadline) = deadline.filter(|deadline| now >= deadline.at) else { continue };
        let late = now.since(deadline.at);
        *latest = late.max(*latest);
        if late > SLACK {
            log::warn!("woke {} late: this host is overloaded or was suspended", Ms(late));
            log::debug!("the deadline was for {:?}", deadline.timer);
        }
        return Event::Tick;
    }
}

/// Performs the pump's effects. No effect blocks.
struct Performer<'a> {
    check: CheckHandle,
    on_change: Option<ChangeHandle>,
    guard: GuardHandle,
    metrics: Option<MetricsHandle>,
    store: StoreHandle,
    notice: Notice,
    service_manager: ServiceManager,
    signals: Signals,
    destination: Destination,
    program: Program,
    log: &'a LogQueue,
    inbox: &'a Inbox<Event>,
    /// How long the exit may take.
    end_within: Duration,
    /// When the state has changed last, and why.
    last_move: (Instant, String),
    /// What the last take was of; blank without one.
    taken: String,
    /// The state as it was told last.
    state: &'static str,
    /// The lock that this agent holds, or has held until this turn.
    lock: LockContext,
    /// The directory of this agent on this host, and what it is of.
    dir: PathBuf,
    identity: Identity,
    /// The bucket is a directory: those who want to know the status are on this host.
    is_local: bool,
    /// Events to handle before the inbox: failures of full queues, and events read early.
    queued_events: VecDeque<Event>,
}

impl Performer<'_> {
    fn perform(&mut self, effect: Effect) -> Option<Exit> {
        match effect {
            Effect::Read { seat, deadline } => {
                self.ask_store(StoreRequest::Read { seat, deadline });
            }
            Effect::Write { seat, expected, record, deadline } => {
                self.ask_store(StoreRequest::Write { seat, expected, record, deadline });
            }
            Effect::RequestFailback(request) => {
                self.ask_store(StoreRequest::RequestFailback(request))
            }
            Effect::Announce => self.ask_store(StoreRequest::Announce(self.notice.clone())),
            Effect::RunCheck(run) => self.queued_events.extend(self.check.run(run)),
            Effect::ExtendCheck(deadline) => self.check.extend(deadline),
            Effect::KillCheck => self.check.kill(),
            Effect::ConnectGuard(number, messages) => {
                self.order_guard(Order::Connect(number, messages));
            }
            Effect::TellGuard(message) => self.order_guard(Order::Tell(message)),
            Effect::KillGuard => self.order_guard(Order::Kill),
            Effect::KillCgroup => self.guard.kill_cgroup(),
            Effect::Upgrade => self.upgrade(),
            Effect::Report(report) => {
                let (level, text) = (report.level(), report.to_string());
                if let Report::Moved { to, why, .. } = &report {
                    self.note_move(to, why.to_string());
                    if level != Level::Debug {
                        self.tell_change(to, why.to_string());
                    }
                } else if let Report::Ends(why) = &report {
                    self.last_move.1 = why.to_string();
                }
                say(level, &text);
                self.service_manager.note(level, &text);
            }
            Effect::Exit(ending) => return Some(self.end(ending)),
        }
        None
    }

    /// Ends what depends on this agent; returns its exit status.
    fn end(&mut self, ending: Ending) -> Exit {
        self.check.kill();
        let why = match &ending {
            Ending::Clean => self.last_move.1.clone(),
            Ending::NotStopped => "the service could not be stopped".to_owned(),
            Ending::Rejected(error) => error.to_string(),
        };
        self.tell_change("ended", why);
        if ending != Ending::NotStopped {
            self.guard.end();
        }
        self.metrics.iter().for_each(MetricsHandle::end);
        self.on_change.iter().for_each(ChangeHandle::end);
        match ending {
            Ending::Clean => Exit::Success,
            Ending::NotStopped => Exit::NotStopped,
            Ending::Rejected(error) => self.destination.refuse(&error.into()),
        }
    }

    /// Notes why the state has changed. An active agent is so because of what it has taken.
    fn note_move(&mut self, to: &str, why: String) {
        let why = match to {
            "taking" => {
                self.taken = format!("taken {why}");
                why
            }
            "active" if !self.taken.is_empty() => std::mem::take(&mut self.taken),
            _ => why,
        };
        self.last_move = (sys::now(), why);
    }

    /// Has the operator's command told a change. The log does not tell of the others either: they
    /// are one of many while the store refuses.
    fn tell_change(&mut self, new: &'static str, why: String) {
        let old = std::mem::replace(&mut self.state, new);
        if let Some(on_change) = &self.on_change {
            // No variable can have a zero in it.
            let (why, context) = (why.replace('\0', " "), self.lock.clone());
            on_change.tell(Change { old, new, why, context });
        }
    }

    /// Sends the status of this agent to whoever has requested it. In a directory one message would
    /// replace that of another agent: there it is a file.
    fn send_status(&mut self, request: &StatusRequest, pump: &Pump, now: Instant) {
        let (moved_at, why) = &self.last_move;
        let status = pump.status(*moved_at, why, now);
        match request {
            StatusRequest::Command(number) if self.is_local => {
                // Best effort: it is requested again.
                let _ = status_file::write(&self.dir, &self.identity, number, status);
            }
            StatusRequest::Command(_) | StatusRequest::MicroService => {
                self.ask_store(StoreRequest::SendStatus(request.clone(), Box::new(status)));
            }
        }
    }

    fn ask_store(&mut self, request: StoreRequest) {
        self.queued_events.extend(self.store.send(request));
    }

    fn order_guard(&mut self, order: Order) {
        self.queued_events.extend(self.guard.order(order));
    }

    /// Executes the program anew, unless a signal tells the agent to end: this instance knows
    /// the lock that is to be released then.
    fn upgrade(&mut self) {
        if self.on_change.as_ref().is_some_and(ChangeHandle::delays_upgrade) {
            return log::info!("SIGUSR2: waiting for the end of on-change");
        }
        self.program.announce();
        self.log.flush();
        let until = sys::now().after(SIGNALS_WITHIN);
        while sys::now() < until {
            let signalled = self.inbox.wait([self.signals.as_fd()], Some(until));
            if signalled.is_ok_and(|signalled| signalled)
                && let Some(end @ Event::Shutdown(_)) = self.signals.next(&self.service_manager)
            {
                return self.queued_events.push_back(end);
            }
        }
        self.program.execute();
    }
}
