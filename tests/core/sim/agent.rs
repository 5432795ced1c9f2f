//! An agent's process: the shipped pump, its inbox and its effects. Its other threads are in
//! `checks` (health check, watchdog), `client` (the connection to the guard) and `wire` (the
//! store).

use std::collections::VecDeque;

use log::Level;
use putex::core::agent_status::AgentState;
use putex::core::command::Outcome;
use putex::core::event::{
    Effect, Ending, Event, GuardEvent, Opened, PauseEntry, Switchover, SwitchoverRequest, Written,
};
use putex::core::protocol::{Stake, ToGuard};
use putex::core::pump::{Deadline, Pump, bounce};
use putex::core::record::{BucketId, Incarnation, KeyState, KeyValue, Record, Revision};
use putex::core::report::Report;
use putex::core::time::Instant;

pub use super::agent_event::{AgentEvent, LockRequest, Thread};
use super::checks::Slot;
use super::client::{ClientOrder, GuardView};
use super::clock::True;
use super::counters::Sometimes;
use super::process::never;
use super::scenario::Step;
use super::wire::{Link, Operation, StoreRequest};
use super::witness::{Writing, mark};
use super::world::{Happening, World};

/// Of so many turns one is tried a second time.
const TURNED_AGAIN: u64 = 16;

/// An agent: a process.
pub struct Agent {
    pub site: usize,
    pub me: Incarnation,
    pub alive: bool,
    pub stopped: bool,
    /// Since when it has run without a pause.
    pub well_since: True,
    /// Since when it, or the instances that it has followed as upgrades, have done so.
    pub attends_since: True,
    /// The program is to be executed anew as soon as the pump lets another instance follow.
    pub upgrade_due: bool,
    pub held: Vec<AgentEvent>,
    pub pump: Option<Pump>,
    pub state: &'static str,
    /// The state that its log has it in.
    pub logged_state: &'static str,
    /// Since when it is in that state.
    pub state_since: True,
    /// When it was told last that it is not fit: by its check, or by the loss of the store.
    pub unfit_at: True,
    /// Until when it waits for `agent.lock`.
    pub lock_until: True,
    /// When the pump is woken next.
    pub wake_at: True,
    pub inbox: VecDeque<Event>,
    pub orders: VecDeque<ClientOrder>,
    pub check: Slot,
    /// The connection to its guard.
    pub line: Option<usize>,
    pub view: GuardView,
    pub link: Link,
    pub writing: Writing,
    /// Highest revision that it was shown, of the bucket and of the key.
    pub known: u64,
    pub bucket: Option<BucketId>,
    pub known_key: u64,
    /// When it was shown something under a revision of the key, or wrote it.
    pub marks: Vec<(True, u64, u64)>,
    /// The entry of the highest serial number of those that it was told.
    pub pause: PauseEntry,
    /// The pause was read since this agent has taken its lock.
    pub pause_is_read: bool,
    /// Its last write takes a lock.
    pub takes: bool,
    /// When the agent was told to end.
    pub told_to_end: Option<True>,
}

impl Agent {
    /// Notes that the agent goes on after a pause.
    pub fn resumes(&mut self, now: True) {
        (self.well_since, self.attends_since) = (now, now);
    }
}

impl World<'_> {
    pub fn turn_agent(&mut self, id: usize, event: AgentEvent) {
        match event {
            AgentEvent::Begin => self.begin_agent(id),
            AgentEvent::TryLock => self.try_agent_lock(id),
            AgentEvent::Inbox => {
                if let Some(event) = self.agents[id].inbox.pop_front() {
                    self.observe(id, &event);
                }
            }
            AgentEvent::PumpDue => self.pump_due(id),
            AgentEvent::Client => {
                if let Some(order) = self.agents[id].orders.pop_front() {
                    self.carry_out(id, order);
                }
            }
            AgentEvent::Heard(line) => self.read_guard(id, line),
            AgentEvent::LockRequested(LockRequest { seat, term, to, lasts }) => {
                let (to, until) = (
                    self.sc.sites[to].token.clone(),
                    self.clock(self.agents[id].site).after(lasts),
                );
                let request = SwitchoverRequest { seat, term, to, until };
                self.tell(id, Event::SwitchoverRequested(request));
            }
            AgentEvent::CheckBegins => self.begin_check(id),
            AgentEvent::CheckEnded(process) => self.reap_check(id, process),
            AgentEvent::KillDue => self.kill_due(id),
            AgentEvent::Request(request) => self.submit(id, *request),
            AgentEvent::Reply(number, reply) => self.reply(id, number, *reply),
            AgentEvent::AskOver(number) => self.ask_over(id, number),
            AgentEvent::OpenAgain => self.open(id),
            AgentEvent::Hint(link, seat, revision) => self.hint(id, link, seat, revision),
            AgentEvent::LinkLost(link) => self.link_lost(id, link),
        }
    }

    /// Puts an event into the pump's inbox, behind what is there.
    pub fn tell(&mut self, id: usize, event: Event) {
        let wait = self.late();
        self.agents[id].inbox.push_back(event);
        self.after(wait, Happening::Agent(id, AgentEvent::Inbox));
    }

    fn pump_due(&mut self, id: usize) {
        let agent = &mut self.agents[id];
        if self.now < agent.wake_at {
            // An earlier one took its place.
            return;
        }
        agent.wake_at = never();
        let deadline = agent.pump.as_ref().and_then(Pump::deadline);
        let site = agent.site;
        if deadline.is_some_and(|deadline| deadline.at <= self.clock(site)) {
            self.observe(id, &Event::Tick);
        } else {
            self.wake_pump(id);
        }
    }

    /// Wakes the pump at its deadline. A pump that is woken too early is put off then.
    pub fn wake_pump(&mut self, id: usize) {
        let agent = &self.agents[id];
        let Some(deadline) = agent.pump.as_ref().and_then(Pump::deadline) else {
            return;
        };
        let earliest = self.host(agent.site).clock.when(deadline.at).max(self.now);
        if earliest < agent.wake_at {
            let at = earliest + self.late();
            self.agents[id].wake_at = at;
            self.at(at, Happening::Agent(id, AgentEvent::PumpDue));
        }
    }

    /// The pump's bounce on one event, and its effects.
    pub fn observe(&mut self, id: usize, event: &Event) {
        let site = self.agents[id].site;
        let now = self.clock(site);
        let Some(pump) = self.agents[id].pump.take() else {
            return;
        };
        if let Event::Opened(_) = event {
            self.agents[id].link.pump_knows();
        }
        let lost = self.shows_a_loss(id, event);
        self.before_turn(id, event);
        let (pump, effects) = bounce(pump, event, now);
        let said = effects.iter().any(says_loss);
        if lost && !said {
            self.fail("loss", format!("{site} overlooks what the store lost: {event:?}"));
        }
        if said {
            self.forget_known(id, event);
        }
        if let Event::Opened(Opened { pause, .. }) | Event::PauseRead(pause) = event {
            self.on_pause(id, pause, &pump);
            self.agents[id].pause_is_read = true;
        }
        let state = name(pump.state());
        self.check_deadline(&pump, event, now);
        self.agents[id].pump = Some(pump);
        let old = std::mem::replace(&mut self.agents[id].state, state);
        self.hash = (self.hash ^ state.len() as u64).wrapping_mul(0x0000_0100_0000_01b3);
        if old != state {
            self.agents[id].pause_is_read &= !(old == "taking" && self.agents[id].takes);
            self.moved(id, old, state, event, said);
        }
        for effect in effects {
            if !self.agents[id].alive {
                break;
            }
            self.perform(id, effect);
        }
        self.upgrade_if_due(id, event, now);
        if self.agents[id].alive {
            self.wake_pump(id);
        }
    }

    /// A turn leaves a deadline in the future, and one that a second turn at the same instant,
    /// which finds nothing to do, would leave too.
    fn check_deadline(&mut self, pump: &Pump, event: &Event, now: Instant) {
        let (state, deadline) = (pump.state(), pump.deadline());
        if let Some(Deadline { at, timer }) = deadline
            && at <= now
        {
            self.fail("deadline", format!("in {state}, {timer:?}, after {event:?}"));
        }
        if self.hash.is_multiple_of(TURNED_AGAIN) {
            let (again, effects) = bounce(pump.clone(), &Event::Tick, now);
            if again.deadline() != deadline || !effects.is_empty() {
                let text = format!("{deadline:?}, then {:?}, {effects:?}", again.deadline());
                self.fail("deadline", format!("in {state}, {text}, after {event:?}"));
            }
        }
    }

    fn moved(
        &mut self,
        id: usize,
        old: &'static str,
        new: &'static str,
        event: &Event,
        loss: bool,
    ) {
        let site = self.agents[id].site;
        let agent = &mut self.agents[id];
        agent.state_since = self.now;
        if new == "active" {
            agent.view.asserted_at = None;
            agent.view.adopted = agent.writing.adopts;
            agent.writing.failures = 0;
        }
        self.show(site, new);
        match (old, new) {
            ("taking", "confirming") => {
                self.count(Sometimes::Takeover);
                self.step(Step::Confirming, site);
            }
            ("confirming", "active") => self.count(Sometimes::Confirmed),
            ("taking", "active") => self.count(Sometimes::TakenFree),
            (_, "stopping") => {
                self.step(Step::Stopping, site);
                self.judge_stopping(id, old, event, loss);
            }
            _ => {}
        }
    }

    pub fn show(&mut self, site: usize, state: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.state(self.now, site, state);
        }
    }

    fn perform(&mut self, id: usize, effect: Effect) {
        match effect {
            Effect::Read { seat, deadline } => {
                self.request_of_store(id, Operation::Read { seat, deadline })
            }
            Effect::Write { seat, expected, record, deadline } => {
                self.on_write(id, seat, &record);
                self.agents[id].takes = record.lease.as_ref().is_some_and(|it| it.term.is_none());
                self.step(Step::Write, self.agents[id].site);
                let expected = expected.0;
                let operation = Operation::Write { seat, expected, record, deadline };
                self.request_of_store(id, operation);
            }
            Effect::ReadPause => self.request_of_store(id, Operation::ReadPause),
            Effect::RequestSwitchover(Switchover { seat, term, lasts, .. }) => {
                let request = LockRequest { seat, term, to: self.agents[id].site, lasts };
                self.judge_lock_request(id, request);
                self.request_of_store(id, Operation::RequestLock(request));
            }
            Effect::ConnectGuard(number, messages) => {
                self.on_messages(id, &messages, true);
                self.order(id, ClientOrder::Start(number, messages));
            }
            Effect::TellGuard(message) => {
                self.on_messages(id, std::slice::from_ref(&message), false);
                self.order(id, ClientOrder::Tell(message));
            }
            Effect::KillGuard => {
                self.count(Sometimes::GuardUnanswering);
                self.judge_patience(id);
                self.order(id, ClientOrder::Kill);
            }
            Effect::KillCgroup => {
                self.count(Sometimes::AgentKillsCgroup);
                self.kill_cgroup(self.agents[id].site);
            }
            Effect::RunCheck(run) => self.run_check(id, &run),
            Effect::ExtendCheck(deadline) => self.arm_check(id, deadline),
            Effect::KillCheck => self.kill_check(id),
            Effect::Report(report) => {
                let site = self.agents[id].site;
                self.on_report(site, &report);
                self.check_log(id, &report);
                self.note(Some(site), || report.to_string());
            }
            Effect::Exit(ending) => self.exit(id, &ending),
        }
    }

    /// Each logged change begins with the state that the log names last: where a line is missing,
    /// a reader cannot tell what the agent did.
    fn check_log(&mut self, id: usize, report: &Report) {
        let Report::Moved { from, to, level, .. } = report else { return };
        if *level == Level::Debug {
            return;
        }
        let logged = self.agents[id].logged_state;
        if name(*from) != logged {
            self.fail("log", format!("{report}, and the line before says {logged}"));
        }
        self.agents[id].logged_state = name(*to);
    }

    fn exit(&mut self, id: usize, ending: &Ending) {
        self.on_exit(id, ending);
        self.kill_check(id);
        self.agents[id].pump = None;
        self.finish_orders(id);
        self.order(id, ClientOrder::Exit);
    }

    fn request_of_store(&mut self, id: usize, operation: Operation) {
        let generation = self.agents[id].link.pump_generation();
        let wait = self.late();
        let request = Box::new(StoreRequest { operation, generation });
        self.after(wait, Happening::Agent(id, AgentEvent::Request(request)));
    }

    /// Keeps what an agent was shown, and when it learnt that a write was stored.
    fn before_turn(&mut self, id: usize, event: &Event) {
        match event {
            Event::Opened(opened) => {
                self.agents[id].bucket = Some(opened.bucket.id.clone());
                self.note_revision(id, opened.bucket.last.0);
                for key_state in &opened.key_states {
                    self.saw(id, key_state);
                }
            }
            Event::Read(Ok(key_state)) => self.saw(id, key_state),
            Event::Written(Written::Stored(Revision(revision))) => {
                // Of a take that was given up on, only a read tells.
                if self.agents[id].state != "standby" {
                    self.note_revision(id, *revision);
                }
                self.step(Step::Stored, self.agents[id].site);
                self.acknowledged(id, *revision);
            }
            Event::Shutdown(_) => {
                self.told_to_end(id);
                self.count(Sometimes::Sigterm);
            }
            // The agent may end because of the refusal, as soon as it knows of its service.
            Event::Rejected(_) => self.agents[id].told_to_end = Some(0),
            Event::Guard(number, event) => self.on_guard_event(id, *number, event),
            Event::CheckEnded(Outcome::Failed(_) | Outcome::Overran) | Event::Closed(_) => {
                self.agents[id].unfit_at = self.now;
            }
            Event::Tick
            | Event::PauseRead(_)
            | Event::Read(Err(_))
            | Event::Written(Written::Moved(_) | Written::Denied(_) | Written::Unknown(_))
            | Event::Hint(..)
            | Event::SwitchoverRequested(_)
            | Event::StatusRequested
            | Event::CheckEnded(Outcome::Succeeded) => {}
        }
        self.on_event(id, event);
    }

    /// Notes the agent's knowledge of its guard, as the guard client of the core does.
    fn on_guard_event(&mut self, id: usize, number: u64, event: &GuardEvent) {
        let now = self.now;
        let view = &mut self.agents[id].view;
        if number != view.number {
            return;
        }
        match event {
            GuardEvent::Report(report) => {
                if view.report.replace(report.clone()).is_none() {
                    view.met_at = now;
                }
                if report.heard == view.said {
                    view.unguarded_since = None;
                }
            }
            GuardEvent::Lost(_) => {
                view.report = None;
                view.unguarded_since.get_or_insert(now);
            }
        }
    }

    fn on_messages(&mut self, id: usize, messages: &[ToGuard], first: bool) {
        let now = self.now;
        let view = &mut self.agents[id].view;
        if first {
            view.number += 1;
            view.said = 0;
            view.report = None;
        }
        view.said += messages.iter().filter(|message| message.is_counted()).count() as u64;
        view.unguarded_since.get_or_insert(now);
        let site = self.agents[id].site;
        let clock = self.clock(site);
        for message in messages {
            match message {
                ToGuard::Grant(_) => self.step(Step::Granted, site),
                ToGuard::Stop(order) => {
                    let agent = &self.agents[id];
                    let met = agent.view.met_at <= agent.state_since;
                    let sure = order.stake == Stake::Assurance;
                    if met && sure && self.could_be_adopted(id) {
                        let text = format!("{site} stops a service that it could adopt");
                        self.fail("needless", text);
                    }
                    self.agents[id].view.dead_by = Some(order.dead_by);
                    self.step(Step::Ordered, site);
                }
                ToGuard::AssertStart => {
                    if !self.agents[id].pause_is_read {
                        let text = format!("{site} asserts start before it has read the pause");
                        self.fail("pause", text);
                    }
                    if self.is_paused(id) {
                        self.fail("pause", format!("{site} asserts start in a pause"));
                    }
                    self.agents[id].view.asserted_at.get_or_insert(clock);
                }
                ToGuard::Hello(_) | ToGuard::AskReport => {}
            }
        }
    }

    /// Whether an event can only be had from a store that lost what it had.
    fn shows_a_loss(&self, id: usize, event: &Event) -> bool {
        let agent = &self.agents[id];
        match event {
            Event::Opened(opened) => agent.bucket.as_ref().is_some_and(|bucket| {
                *bucket != opened.bucket.id || opened.bucket.last.0 < agent.known
            }),
            Event::Written(Written::Stored(revision)) => revision.0 <= agent.known,
            _ => false,
        }
    }

    /// Drops the agent's knowledge of a store that has rolled back.
    fn forget_known(&mut self, id: usize, event: &Event) {
        let agent = &mut self.agents[id];
        (agent.known, agent.known_key) = match event {
            Event::Opened(opened) => {
                let revisions = opened.key_states.iter().map(|it| it.revision.0);
                let key = revisions.max().unwrap_or_default();
                (opened.bucket.last.0.max(key), key)
            }
            Event::Read(Ok(key_state)) => (key_state.revision.0, key_state.revision.0),
            _ => (0, 0),
        };
    }

    fn note_revision(&mut self, id: usize, revision: u64) {
        let agent = &mut self.agents[id];
        agent.known = agent.known.max(revision);
    }

    fn saw(&mut self, id: usize, key_state: &KeyState) {
        self.note_revision(id, key_state.revision.0);
        let agent = &mut self.agents[id];
        agent.known_key = agent.known_key.max(key_state.revision.0);
        agent.marks.push((self.now, key_state.revision.0, mark(&key_state.value)));
        if let KeyValue::Record(Record { lease: Some(lease), .. }) = &key_state.value
            && lease.incarnation == agent.me
        {
            self.resolved(id, lease.nonce);
        }
    }
}

fn says_loss(effect: &Effect) -> bool {
    matches!(effect, Effect::Report(Report::RolledBack(_)))
}

/// Returns the name of a state.
fn name(state: AgentState) -> &'static str {
    ["looking", "standby", "taking", "confirming", "active", "stopping", "ended"][state as usize]
}
