//! Performs the effects that the pump asks for. No effect blocks.

use std::collections::VecDeque;

use log::Level;

use super::change_thread::ChangeHandle;
use super::guard_client::GuardClient;
use super::health_check::HealthCheck;
use super::metrics::MetricsHandle;
use super::service_manager::ServiceManager;
use super::signals::{Order, Signals};
use super::status_file::StatusFile;
use super::store_thread::{StoreHandle, StoreRequest};
use super::upgrade::Program;
use crate::command::Change;
use crate::core::report::{Reason, Report};
use crate::core::{AgentState, Effect, Ending, Event, Instant, LockContext, Pump, Since, Timing};
use crate::exit::Exit;
use crate::log::LogQueue;
use crate::sys;

/// The threads and handles by which effects are performed, and the reports that were made last.
pub(super) struct Performer<'a> {
    pub(super) check: HealthCheck,
    pub(super) on_change: Option<ChangeHandle>,
    pub(super) guard: GuardClient,
    pub(super) metrics: Option<MetricsHandle>,
    pub(super) store: StoreHandle,
    pub(super) service_manager: ServiceManager,
    pub(super) signals: Signals,
    pub(super) program: Program,
    pub(super) log: &'a LogQueue,
    pub(super) upgrade: Upgrade,
    pub(super) timing: Timing,
    /// A signal has told this agent to end.
    pub(super) is_told_to_end: bool,
    /// When the state and the service have changed last, and why.
    pub(super) since: Since,
    /// Why the last take began, for the active state that follows; blank without a take.
    pub(super) taken: String,
    /// The state as on-change was told it last.
    pub(super) state: AgentState,
    /// The lock that this agent holds, or has held until this turn.
    pub(super) lock: LockContext,
    /// Writes the status if the bucket is a directory: then its readers are on this host.
    pub(super) status_file: Option<StatusFile>,
    /// Events to handle before the inbox: failures of full queues, and events read early.
    pub(super) queued_events: VecDeque<Event>,
}

/// The upgrade that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    NotDue,
    /// The settings are valid for the program that is to be executed anew, since this instant.
    Due(Instant),
    /// The upgrade is due, and the log has said that it waits.
    Late,
}

impl Performer<'_> {
    /// Performs an effect; returns the exit status if the agent ends with it.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Exit> {
        match effect {
            Effect::Read { seat, deadline } => {
                self.ask_store(StoreRequest::Read { seat, deadline });
            }
            Effect::Write { seat, expected, record, deadline } => {
                self.ask_store(StoreRequest::Write { seat, expected, record, deadline });
            }
            Effect::ReadPause => self.ask_store(StoreRequest::ReadPause),
            Effect::RequestSwitchover(request) => {
                self.ask_store(StoreRequest::RequestSwitchover(request));
            }
            Effect::RunCheck(run) => self.queued_events.extend(self.check.run(run)),
            Effect::ExtendCheck(deadline) => self.check.extend(deadline),
            Effect::KillCheck => self.check.kill(),
            Effect::ConnectGuard(number, messages) => {
                self.queued_events.extend(self.guard.connect(number, messages));
            }
            Effect::TellGuard(message) => self.queued_events.extend(self.guard.tell(&message)),
            Effect::KillGuard => self.guard.kill(),
            Effect::KillCgroup => self.guard.kill_cgroup(),
            Effect::Report(report) => {
                let level = report.level();
                if let Report::Moved { to, why, .. } = &report {
                    self.note_move(*to, why);
                    if level != Level::Debug {
                        self.tell_change(*to, why.to_string());
                    }
                } else if let Report::Ends(why) = &report {
                    self.since.why = why.to_string();
                }
                log::log!(level, "{report}");
            }
            Effect::Exit(ending) => return Some(self.end(ending)),
        }
        None
    }

    /// Ends the parts that depend on this agent; returns its exit status.
    fn end(&mut self, ending: Ending) -> Exit {
        self.check.end();
        let why = match &ending {
            Ending::Clean => self.since.why.clone(),
            Ending::NotStopped => "the service could not be stopped".to_owned(),
            Ending::Rejected(error) => error.to_string(),
        };
        if ending == Ending::NotStopped {
            match self.guard.pid() {
                Some(pid) => log::error!(
                    "ended with status 70: {why}; the guard goes on running stop until it \
                     succeeds; to end that too: kill -9 {pid}"
                ),
                None => log::error!(
                    "ended with status 70: {why}; there is no guard that could go on running stop"
                ),
            }
        }
        self.tell_change(AgentState::Ended, why);
        if ending != Ending::NotStopped {
            self.guard.end();
        }
        self.metrics.iter().for_each(MetricsHandle::end);
        self.on_change.iter().for_each(ChangeHandle::end);
        match ending {
            Ending::Clean => Exit::Success,
            Ending::NotStopped => Exit::NotStopped,
            Ending::Rejected(error) => self.log.destination.refuse(&error.into()),
        }
    }

    /// Notes why the state has changed. An active agent is active because of its take.
    fn note_move(&mut self, to: AgentState, why: &Reason) {
        if to == AgentState::Taking && *why != Reason::TriedAgain {
            self.taken = format!("taken: {why}");
        }
        let is_taken = to == AgentState::Active && !self.taken.is_empty();
        let why = if is_taken { std::mem::take(&mut self.taken) } else { why.to_string() };
        (self.since.state, self.since.why) = (sys::now(), why);
    }

    /// Has the operator's command run for a change. The caller leaves out changes of level debug:
    /// many follow each other while the store refuses writes.
    fn tell_change(&mut self, new: AgentState, why: String) {
        let old = std::mem::replace(&mut self.state, new);
        if let Some(on_change) = &self.on_change {
            // A variable cannot have a zero byte in it.
            let (why, context) = (why.replace('\0', " "), self.lock.clone());
            on_change.tell(Change { old: old.to_string(), new: new.to_string(), why, context });
        }
    }

    /// Sends the status of this agent to the processes that have requested it, or writes a file.
    pub(super) fn send_status(&mut self, pump: &Pump, now: Instant) {
        let status = pump.status(&self.since, now);
        match &mut self.status_file {
            Some(file) => file.write(now, status),
            None => self.ask_store(StoreRequest::SendStatus(Box::new(status))),
        }
    }

    /// Updates the service manager and the metrics file.
    pub(super) fn show_status(&mut self, pump: &Pump, now: Instant) {
        let service = pump.service();
        if self.since.service.0 != service {
            self.since.service = (service, now);
        }
        if self.service_manager.is_told() {
            self.service_manager.notify(&pump.status(&self.since, now), pump.is_ready());
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.update(pump, &self.since, now);
        }
    }

    fn ask_store(&mut self, request: StoreRequest) {
        self.queued_events.extend(self.store.send(request));
    }

    /// Takes in whether the settings are valid for an upgrade.
    pub(super) fn end_check(&mut self, is_right: bool) {
        self.service_manager.send_reloaded();
        self.upgrade = if is_right { Upgrade::Due(sys::now()) } else { Upgrade::NotDue };
    }

    /// Executes the program anew if that is due, unless the agent is told to end: only this
    /// instance knows the lock that is to be released then. `is_let`: the pump lets another
    /// instance follow.
    pub(super) fn upgrade_if_due(&mut self, is_let: bool, now: Instant) {
        if self.upgrade == Upgrade::NotDue || self.is_told_to_end {
            return;
        }
        if !is_let {
            if let Upgrade::Due(since) = self.upgrade
                && now.since(since) > self.timing.lock_time()
            {
                self.upgrade = Upgrade::Late;
                log::warn!(
                    "upgrade: waits until F*R covers a guard that hangs, or the service is down"
                );
            }
            return;
        }
        self.upgrade = Upgrade::NotDue;
        // A signal that is not read here waits for the next instance.
        if let Some(Order::End(signal)) = self.signals.next() {
            self.is_told_to_end = true;
            return self.queued_events.push_back(Event::Shutdown(signal));
        }
        // The kernel kills a health check with the thread that has spawned it.
        self.program.execute(self.log);
    }
}
