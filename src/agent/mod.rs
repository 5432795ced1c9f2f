//! The agent: threads, channels and the turn loop around the pump.
//!
//! | thread | owns | blocks in | tells the pump |
//! |---|---|---|---|
//! | `putex` (main) | pump, signals, link to the guard | poll(2), until a deadline | |
//! | `putex-watchdog` (`health_check`) | the health check | poll(2), until its deadline | its end |
//! | `putex-healthcheck` ([`Runner`](crate::command::Runner)) | | spawning | |
//! | `putex-store` (`store_thread`) | the store and its connection | poll(2) | answers, hints |
//! | `connect` (`crate::nats`), one an attempt | | the handshake with a server | |
//! | `putex-connect` (`guard_client`) | | connecting to a guard, starting one | |
//! | `putex-change` (`change_thread`) | on-change | spawning, poll(2) | that all is told |
//! | `putex-upgrade` (`upgrade`) | | the check before an upgrade | |
//! | `putex-status` (`status_file`) | | writing the status that others read | |
//! | `putex-metrics` (`metrics`) | | writing the file with the metrics | |
//! | `putex-log` (`crate::log`) | stderr | writing to it | |
//!
//! Only the main thread reads the inbox, and it never blocks on a send, so no two threads wait for
//! each other. A full queue becomes an event with its reason. After each wait, the main thread
//! takes in the events of each kind that have come, so that many of one kind delay no other.

mod change_thread;
mod guard_client;
mod guard_link;
mod health_check;
mod inbox;
mod metrics;
pub mod metrics_file;
mod performer;
pub mod service_manager;
pub mod signals;
mod status_file;
mod store_thread;
mod task;
mod upgrade;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitOptions;

use self::change_thread::{ChangeHandle, RUN_WITHIN};
use self::guard_client::GuardClient;
use self::guard_link::Connector;
use self::health_check::HealthCheck;
use self::inbox::{Inbox, inbox};
use self::metrics::MetricsHandle;
use self::performer::{Performer, Upgrade};
use self::service_manager::ServiceManager;
use self::signals::{Order, Signals};
use self::status_file::StatusFile;
use self::store_thread::StoreHandle;
use self::upgrade::Program;
use crate::command::inherited_texts;
use crate::core::{AgentId, Config, Event, LockContext, Ms, Priority, Pump, SLACK, Since, bounce};
use crate::exit::{Exit, Refusal};
use crate::guard::protocol::Settings;
use crate::guard::{Identity, InstanceDir};
use crate::log::{LogQueue, command_output, end_on_panic, panic_if_asked};
use crate::store::LockKey;
use crate::sys;

/// Events of the store and of on-change that may wait for the pump. A thread that finds the queue
/// full waits.
const EVENTS_MAX: usize = 64;

/// Time for the exit, besides stopping the service.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts of a second agent to lock `agent.lock`.
const AGENT_LOCK_POLL: Duration = Duration::from_millis(20);

/// After this time a second agent logs that it waits.
const AGENT_LOCK_QUIET: Duration = Duration::from_millis(500);

/// The settings and resources of an agent.
pub struct Setup<'a> {
    /// How the pump was set up.
    pub config: Config,
    /// The token, incarnation and host of this agent.
    pub id: AgentId,
    /// The settings of the guard, with the commands; [`run`] fills in the directory.
    pub guard: Settings,
    /// The path of the file with the metrics, if there is one.
    pub metrics_file: Option<String>,
    /// The log.
    pub log: &'a LogQueue,
    /// Below this directory is the private directory of agent and guard.
    pub base: PathBuf,
    /// The identity of this agent, the same for all its instances: location, bucket, key and token.
    pub identity: Identity,
    /// Returns the identity by the settings as they are now, if this program can read them.
    pub identity_now: fn() -> Option<Identity>,
    /// The store of the lock.
    pub store: LockKey,
    /// Whether the lock is in a directory of this host.
    pub is_local: bool,
    /// The service manager.
    pub service_manager: ServiceManager,
    /// The signals that the agent takes.
    pub signals: Signals,
}

/// Runs an agent until it is told to end.
///
/// # Errors
///
/// When the system has no thread, pipe or signal handler to give, or lacks a file
/// that every agent needs.
pub fn run(mut setup: Setup<'_>) -> io::Result<Exit> {
    std::fs::metadata("/bin/sh").map_err(sys::named("/bin/sh, which runs the commands"))?;
    sys::check_proc()?;
    // If the program was executed anew, the children of the previous instance are children of this
    // one.
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    let dir = InstanceDir::open(&setup.base, &setup.identity)?;
    end_on_panic(setup.log.destination, &setup.guard.commands.key);
    let (events, inbox) = inbox(EVENTS_MAX)?;
    let mut program =
        Program::find(setup.base.clone(), setup.identity.clone(), setup.identity_now)?;
    let startup_lines = describe_settings(&setup);
    let _agent_lock = match wait_for_agent_lock(&dir, &setup, &mut program)? {
        Ok(lock) => lock,
        Err(exit) => return Ok(exit),
    };
    setup.guard.dir = dir.path.display().to_string();
    let dir_path = dir.path.clone();
    let times = dir.noted_times();
    let guard_lock = dir.guard_lock()?;
    let commands = setup.guard.commands.clone();
    let on_change = commands.on_change.as_ref();
    let on_change = on_change.map(|_| ChangeHandle::start(commands.clone(), RUN_WITHIN));
    let on_change = on_change.transpose()?;
    let check = HealthCheck::new(commands, events.clone())?;
    let timing = setup.config.timing;
    let metrics = setup.metrics_file.as_ref();
    let metrics = metrics.map(|path| MetricsHandle::new(path, &dir_path, &setup.identity, &timing));
    let settings = with_environment(setup.guard);
    let guard = GuardClient::new(Connector { dir, guard_lock, settings });
    let store = StoreHandle::start(setup.store, timing, events)?;
    let pump = Pump::new(setup.config, setup.id, times, sys::now());
    let performer = Performer {
        check,
        on_change,
        guard,
        metrics,
        store,
        service_manager: setup.service_manager,
        signals: setup.signals,
        program,
        log: setup.log,
        upgrade: Upgrade::NotDue,
        timing,
        is_told_to_end: false,
        since: Since {
            state: sys::now(),
            why: "started".to_owned(),
            service: (pump.service(), sys::now()),
        },
        taken: String::new(),
        state: pump.state(),
        lock: LockContext::default(),
        status_file: setup.is_local.then(|| StatusFile::new(dir_path, setup.identity)),
        queued_events: VecDeque::from([Event::Tick]),
    };
    Ok(turn_until_end(pump, performer, &inbox, startup_lines))
}

/// Returns the settings of the guard with the environment of this agent, if they fit a packet.
fn with_environment(mut settings: Settings) -> Settings {
    settings.commands.environment = inherited_texts();
    let why = match settings.commands.environment {
        None => "it is not UTF-8",
        Some(_) if !settings.fits_a_packet() => "it is too large",
        Some(_) => return settings,
    };
    log::warn!("the guard cannot have this environment: {why}; one that runs keeps its own");
    settings.commands.environment = None;
    settings
}

/// Waits up to T for `agent.lock`. A process that still holds it then is a second agent. No command
/// runs meanwhile. The error is the exit status of an agent that ends without `agent.lock`.
fn wait_for_agent_lock(
    dir: &InstanceDir,
    setup: &Setup<'_>,
    program: &mut Program,
) -> io::Result<Result<File, Exit>> {
    let lock_time = setup.config.timing.lock_time();
    let until = sys::now().after(lock_time);
    // As a rule the previous instance is about to end.
    let mut said_at = Some(sys::now().after(AGENT_LOCK_QUIET)).filter(|at| *at < until);
    loop {
        if let Some(lock) = dir.lock_for_agent()? {
            return Ok(Ok(lock));
        }
        if said_at.take_if(|at| sys::now() >= *at).is_some() {
            let at_most = Ms(lock_time);
            log::warn!("waiting up to {at_most} for the end of another agent of this token");
        }
        if sys::now() >= until {
            let token = &setup.id.token;
            let text = format!(
                "another agent with this bucket, key and token {token} runs on this host; give \
                 each its own --token"
            );
            return Ok(Err(setup.log.destination.refuse(&Refusal::new(Exit::Unsafe, text))));
        }
        sys::is_ready_soon(&setup.signals.fd, AGENT_LOCK_POLL);
        match setup.signals.next() {
            Some(Order::End(_)) => return Ok(Err(Exit::Success)),
            // The new program is executed when this agent has begun.
            Some(Order::Upgrade) => program.check(),
            None => {}
        }
    }
}

/// Returns the lines about the settings of this agent.
fn describe_settings(setup: &Setup<'_>) -> Vec<String> {
    let timing = setup.config.timing;
    let mut lines = vec![format!(
        "putex {version}, agent {token}, process {pid}, R {renewal}, F {failures}, \
         C {confirmations}, stop budget {stop_budget}",
        version = env!("CARGO_PKG_VERSION"),
        token = setup.id.token,
        pid = std::process::id(),
        renewal = Ms(timing.renewal()),
        failures = timing.failures(),
        confirmations = timing.confirmations(),
        stop_budget = Ms(timing.stop_budget()),
    )];
    let Config { priority, failback, seats, observes, check, .. } = setup.config;
    if priority == Priority::Never {
        lines.push("priority never: not a candidate".to_owned());
    } else if priority != Priority::FIRST || failback.is_some() || seats > 1 {
        let failback = failback.map_or("never".to_owned(), |after| Ms(after).to_string());
        lines.push(format!("priority {priority}, failback {failback}, seats {seats}"));
    }
    if observes {
        lines.push("it only observes: no lock is taken, no service is run".to_owned());
    }
    if !check {
        lines.push("no --healthcheck: a host that is up counts as fit".to_owned());
    }
    lines
}

/// The turn loop: one event, one bounce, its effects, then the next.
fn turn_until_end(
    mut pump: Pump,
    mut performer: Performer<'_>,
    inbox: &Inbox<Event>,
    mut startup_lines: Vec<String>,
) -> Exit {
    let mut arrived = VecDeque::new();
    loop {
        let event = performer.queued_events.pop_front().or_else(|| arrived.pop_front());
        let Some(event) = event else {
            arrived = wait_for_events(&pump, &mut performer, inbox);
            continue;
        };
        panic_if_asked("putex");
        if let Event::Opened(_) = event {
            performer.store.opened();
        }
        if let Event::Opened(_) | Event::Closed(_) = event {
            // The lines are logged now, and not before, so that an error of the configuration is
            // the only line.
            startup_lines.drain(..).for_each(|text| log::info!("{text}"));
        }
        if let Event::Shutdown(_) = event {
            performer.service_manager.send_stopping(performer.timing.ends_within() + END_WITHIN);
        }
        let now = sys::now();
        if let Event::StatusRequested = event {
            performer.send_status(&pump, now);
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
            if let Some(metrics) = &mut performer.metrics {
                metrics.handle_effect(&effect, now);
            }
            if let Some(exit) = performer.perform(effect) {
                return exit;
            }
        }
        performer.show_status(&pump, now);
        performer.service_manager.keepalive(now);
        if let Some(is_right) = performer.program.checked() {
            performer.end_check(is_right);
        }
        performer.upgrade_if_due(pump.lets_next_instance(&event, now), now);
    }
}

/// Waits for events, until the pump's deadline at the longest; returns all that have come. Sends
/// the service manager's keepalive and has the metrics written meanwhile.
fn wait_for_events(
    pump: &Pump,
    performer: &mut Performer<'_>,
    inbox: &Inbox<Event>,
) -> VecDeque<Event> {
    let Performer { metrics, signals, program, service_manager, check, guard, since, .. } =
        performer;
    let is_told_to_end = &mut performer.is_told_to_end;
    let deadline = pump.deadline();
    let at = deadline.map(|deadline| deadline.at);
    loop {
        let metrics_due = metrics.as_ref().and_then(MetricsHandle::due);
        let due = [at, service_manager.keepalive_due(), metrics_due, guard.due()];
        let until = due.into_iter().flatten().min();
        let fds = [Some(signals.fd.as_fd()), Some(check.output.as_fd()), guard.fd(), program.fd()];
        // If the kernel refuses to wait, the agent looks at all descriptors at once.
        let ready = inbox.wait(fds, until).unwrap_or([true; 4]);
        let [is_signalled, check_has_written, guard_is_ready, is_checked] = ready;
        let now = sys::now();
        let mut arrived = VecDeque::new();
        match is_signalled.then(|| signals.next()).flatten() {
            Some(Order::End(signal)) => {
                *is_told_to_end = true;
                arrived.push_back(Event::Shutdown(signal));
            }
            Some(Order::Upgrade) => program.check(),
            None => {}
        }
        arrived.extend(inbox.take_all());
        arrived.iter().for_each(|event| check.note(event));
        if check_has_written {
            check.output.pass_on(&mut command_output);
        }
        arrived.extend(guard.tend(guard_is_ready, now));
        // The delay is reported even if events have come: it explains the events that follow.
        let passed = deadline.filter(|deadline| now >= deadline.at);
        if let Some(deadline) = &passed
            && now.since(deadline.at) > SLACK
        {
            let late = Ms(now.since(deadline.at));
            log::warn!("woke {late} late: this host is overloaded or was suspended");
            log::debug!("the deadline was for {:?}", deadline.timer);
        }
        if !arrived.is_empty() {
            return arrived;
        }
        service_manager.keepalive(now);
        if metrics_due.is_some_and(|due| now >= due) {
            metrics.iter_mut().for_each(|metrics| metrics.update(pump, since, now));
        }
        // The new program is executed after a turn.
        if passed.is_some() || is_checked {
            return VecDeque::from([Event::Tick]);
        }
    }
}
