//! The guard client: connects to the guard that lives, or starts one, sends it the messages of the
//! pump, and passes its reports on. The pump decides when to do each.
//!
//! The main thread does everything but connecting, and never waits for the guard. Connecting waits
//! for file systems, which may hang: each attempt has a thread of its own.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

use super::guard_link::{Connector, Link, OutdatedOrder, reap};
use super::task::Task;
use crate::command::describe;
use crate::core::{
    Event, GuardEvent, GuardReport, Instant, LockContext, ServiceState, Stake, StopOrder, ToGuard,
};
use crate::guard::next_packet;
use crate::guard::protocol::{GuardPacket, VERSION};
use crate::sys;

/// How long a guard may take to end after it has closed its socket, or after its agent has.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Most packets that are taken in at once.
const PACKETS_MAX: usize = 16;

/// The agent's end of the connection to its guard, if there is one.
pub(super) struct GuardClient {
    connector: Arc<Connector>,
    /// The number that the pump has given the guard that was connected to last.
    number: u64,
    state: State,
    /// The attempt to connect that is under way. One that was given up ends before the next one
    /// begins, so that there is one guard at a time.
    attempt: Option<Task<Outcome>>,
    /// The file `cgroup.kill`, by which all processes in the control group of start are killed.
    kill_file: Option<File>,
    /// The reading end of start's output, for the next guard.
    output: Option<Arc<OwnedFd>>,
    /// Guards that were killed, have ended or have closed the socket: each is reaped at its end.
    unreaped: Vec<OwnedFd>,
}

/// The connection to the guard that the pump wants.
#[derive(Default)]
enum State {
    /// No guard is wanted, or the last one was lost.
    #[default]
    Absent,
    /// An attempt to connect is under way; these messages follow its first ones.
    Connecting(Vec<ToGuard>),
    Connected(Link),
    /// The guard has closed its socket. It counts as lost when its process has ended, or at this
    /// instant.
    Ending(Link, Instant),
}

/// The outcome of an attempt to connect: the link, and the messages that are still to be sent.
type Outcome = io::Result<(Link, Vec<ToGuard>)>;

impl GuardClient {
    /// Makes the client; no guard is connected to yet.
    pub(super) fn new(connector: Connector) -> GuardClient {
        GuardClient {
            connector: Arc::new(connector),
            number: 0,
            state: State::Absent,
            attempt: None,
            kill_file: None,
            output: None,
            unreaped: Vec::new(),
        }
    }

    /// Connects to a guard or starts one, and sends it these messages first. Returns the loss of
    /// that guard if no attempt can be made.
    pub(super) fn connect(&mut self, number: u64, messages: Vec<ToGuard>) -> Option<Event> {
        debug_assert!(matches!(self.state, State::Absent), "the previous guard is lost or killed");
        self.number = number;
        if self.attempt.is_some() {
            return Some(self.lost("the attempt before, which was given up, has not ended"));
        }
        let (connector, output) = (Arc::clone(&self.connector), self.output.clone());
        let work = move || connector.open(messages, output.as_deref());
        match Task::start("putex-connect", work) {
            Ok(attempt) => {
                self.state = State::Connecting(Vec::new());
                self.attempt = Some(attempt);
                None
            }
            Err(error) => Some(self.not_started(&error)),
        }
    }

    /// Sends the guard a message; without a guard, none is sent. A guard that takes no message
    /// is killed, and its loss returned.
    pub(super) fn tell(&mut self, message: &ToGuard) -> Option<Event> {
        match &mut self.state {
            State::Absent => None,
            State::Connecting(messages) => {
                messages.push(message.clone());
                None
            }
            State::Connected(link) => {
                link.keep_unanswered(message);
                let packet = match &mut link.outdated {
                    Some(outdated) if *message == ToGuard::AskReport => {
                        outdated.sent_count += 1;
                        self.connector.encode(&outdated.order)
                    }
                    Some(_) | None => self.connector.encode(message),
                };
                let sent = link.send(packet);
                self.kill_unless_sent(sent)
            }
            State::Ending(link, _) => {
                link.keep_unanswered(message);
                None
            }
        }
    }

    /// Returns the number of the guard's process; `None` if no guard is known to be there.
    pub(super) fn pid(&self) -> Option<Pid> {
        if let State::Connected(link) = &self.state { Some(link.guard.pid) } else { None }
    }

    /// Kills the guard. An attempt to connect is given up.
    pub(super) fn kill(&mut self) {
        let link = self.take_link();
        self.unreaped.extend(link.map(Link::kill));
    }

    /// Kills all processes in the control group of start.
    pub(super) fn kill_cgroup(&mut self) {
        if let Some(file) = &mut self.kill_file {
            // A control group that is gone holds no process.
            let _ = file.write_all(b"1");
        }
    }

    /// Waits until the guard, whose service is down, has put the watchdog device away and ended.
    pub(super) fn end(&mut self) {
        if let Some(link) = self.take_link() {
            drop(link.guard.socket);
            // A guard that takes longer is left to itself.
            sys::is_ready_soon(&link.guard.process, END_WITHIN);
        }
    }

    /// Returns the descriptor that becomes readable when [`GuardClient::tend`] has something to do.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Absent | State::Connecting(_) => {
                self.attempt.as_ref().map(|attempt| attempt.done.as_fd())
            }
            State::Connected(link) => Some(link.guard.socket.as_fd()),
            State::Ending(link, _) => Some(link.guard.process.as_fd()),
        }
    }

    /// Returns when [`GuardClient::tend`] has something to do even if nothing is readable.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Absent | State::Connecting(_) => None,
            State::Connected(link) => link.send_at,
            State::Ending(_, until) => Some(*until),
        }
    }

    /// Does what is due. If the descriptor is readable, takes in a report of the guard, the outcome
    /// of an attempt, or the end of the guard. Returns the event for the pump.
    pub(super) fn tend(&mut self, readable: bool, now: Instant) -> Option<Event> {
        self.unreaped.retain(|process| matches!(reap(process), Ok(None)));
        let is_due = self.due().is_some_and(|due| now >= due);
        match &mut self.state {
            State::Absent | State::Connecting(_) => {
                readable.then(|| self.attempt_ended()).flatten()
            }
            State::Ending(..) => (readable || is_due).then(|| self.ended()).flatten(),
            State::Connected(link) => {
                if is_due {
                    let sent = link.send_unsent();
                    return self.kill_unless_sent(sent);
                }
                readable.then(|| self.take_packets(now)).flatten()
            }
        }
    }

    fn take_link(&mut self) -> Option<Link> {
        match std::mem::take(&mut self.state) {
            State::Connected(link) | State::Ending(link, _) => Some(link),
            State::Absent | State::Connecting(_) => None,
        }
    }

    /// Takes the link of an attempt that has ended. The guard of an attempt that was given up
    /// meanwhile is killed.
    fn attempt_ended(&mut self) -> Option<Event> {
        let opened = self.attempt.as_ref()?.outcome()?;
        self.attempt = None;
        match (std::mem::take(&mut self.state), opened) {
            (State::Connecting(later), Ok((link, first))) => {
                self.state = State::Connected(link);
                first.iter().chain(&later).find_map(|message| self.tell(message))
            }
            (State::Connecting(_), Err(error)) => Some(self.not_started(&error)),
            (_, opened) => {
                self.unreaped.extend(opened.ok().map(|(link, _)| link.kill()));
                None
            }
        }
    }

    /// Takes in packets of the guard up to the first report, or the end of its socket.
    fn take_packets(&mut self, now: Instant) -> Option<Event> {
        // The descriptors that a guard sends come before its first report.
        for _ in 0..PACKETS_MAX {
            let State::Connected(link) = &mut self.state else { return None };
            let (packet, file) = next_packet(link.guard.socket.as_fd())?;
            if packet.is_empty() {
                // A guard that ends closes its socket first.
                self.state = State::Ending(self.take_link()?, now.after(END_WITHIN));
                return None;
            }
            if link.unanswered.take().is_some() {
                log::info!(
                    "connected to a guard that runs: its lines are in the log it began with"
                );
            }
            match serde_json::from_slice(&packet) {
                Ok(GuardPacket::Report(VERSION, report)) => {
                    return Some(Event::Guard(self.number, GuardEvent::Report(report)));
                }
                Ok(GuardPacket::Report(_, report)) => return self.replace_outdated(report),
                Ok(GuardPacket::KillFile) => {
                    self.kill_file = file.map(File::from).or(self.kill_file.take());
                }
                Ok(GuardPacket::Output) => self.output = file.map(Arc::new).or(self.output.take()),
                // A guard of another version may send other packets.
                Err(_) => {}
            }
        }
        None
    }

    /// Tells a guard of another version to stop the service, and kills it when the service is down.
    /// Until then the pump gets reports that the service is being stopped.
    fn replace_outdated(&mut self, mut report: GuardReport) -> Option<Event> {
        let State::Connected(link) = &mut self.state else { return None };
        let Some(OutdatedOrder { sent_count, .. }) = link.outdated else {
            log::warn!("the guard is of another version of putex: it stops the service first");
            let dead_by = match &report.service {
                ServiceState::Up(grant, _) => grant.dead_by,
                ServiceState::Unknown | ServiceState::Down | ServiceState::Stopping { .. } => {
                    sys::now().after(self.connector.settings.timing.stop_budget())
                }
            };
            let order = StopOrder { dead_by, stake: Stake::Lock, context: LockContext::default() };
            link.outdated = Some(OutdatedOrder { order: ToGuard::Stop(order), sent_count: 0 });
            // The order is sent in the place of a question.
            return self.tell(&ToGuard::AskReport).or_else(|| self.stopping(report));
        };
        if report.service == ServiceState::Down {
            self.kill();
            return Some(self.lost("it was of another version; the service is down"));
        }
        // The pump does not count the orders that this client has sent.
        report.heard = report.heard.saturating_sub(sent_count);
        self.stopping(report)
    }

    /// Returns the report of a guard of another version as one that stops the service.
    fn stopping(&self, report: GuardReport) -> Option<Event> {
        let service = ServiceState::Stopping { overdue: false };
        let report = GuardReport { service, start_failure: None, ..report };
        Some(Event::Guard(self.number, GuardEvent::Report(report)))
    }

    /// The guard has closed the socket, and has ended or used up its time to end.
    fn ended(&mut self) -> Option<Event> {
        let link = self.take_link()?;
        let has_ended = sys::is_ready(&link.guard.process);
        let status = reap(&link.guard.process);
        self.unreaped.push(link.guard.process);
        // The guard ended before it answered: the previous instance had no more need of it.
        if let Some(messages) = link.unanswered.filter(|_| has_ended) {
            log::info!("the guard that was connected to has ended: another one is started");
            return self.connect(self.number, messages);
        }
        Some(match status {
            Ok(Some(status)) => {
                let how = describe(status.exit_status(), status.terminating_signal());
                self.lost(format!("it has ended: {how}"))
            }
            Err(_) if has_ended => self.lost("it has ended"),
            Ok(None) | Err(_) => self.lost("it has closed the connection"),
        })
    }

    fn kill_unless_sent(&mut self, sent: Result<(), Errno>) -> Option<Event> {
        let error = sent.err()?;
        self.kill();
        Some(self.lost(format!("it takes nothing in: {error}")))
    }

    fn not_started(&self, error: &io::Error) -> Event {
        self.lost(format!("it cannot be started: {error}"))
    }

    fn lost(&self, why: impl Into<String>) -> Event {
        Event::Guard(self.number, GuardEvent::Lost(why.into()))
    }
}
