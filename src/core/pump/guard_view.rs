//! The agent's end of the guard: when a guard is started, what it is told, and whether its last
//! report still holds.
//!
//! A report holds when the guard has received all messages that were sent to it: an older report
//! may say `Down` of a service that a grant, which is still on its way, lets run.

use std::time::Duration;

use super::Config;
use super::deadline::{Deadline, Timer, Timers};
use crate::core::event::{Effect, Event, GuardEvent};
use crate::core::protocol::{Grant, GuardConfig, GuardReport, ServiceState, StartState, ToGuard};
use crate::core::record::{Incarnation, Revision};
use crate::core::report::Report;
use crate::core::time::{Instant, Ms};
use crate::core::timing::{SLACK, Timing, ask_every, guard_answer_time};

/// Shortest and longest pause before the next guard is started. A pause is at most R/4: without a
/// guard nobody stops the service.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How many times, at most, the time to answer is doubled for guards that have not reported yet.
const DOUBLED_MAX: u32 = 3;

/// The agent's knowledge of its guard.
#[derive(Clone, Debug)]
pub(super) struct GuardView {
    config: GuardConfig,
    /// This agent only observes: it has no guard, and runs no service.
    only_observes: bool,
    /// The guard that was started or connected to; `None` when there is none.
    present: Option<Box<Present>>,
    /// When the next guard is started, if there is none.
    start_at: Instant,
    /// Number of the last link; an event of another link is ignored.
    number: u64,
    /// How long to wait before the next start.
    pause: Duration,
    /// How many guards in a row were killed before their first report: a busy host may need longer
    /// to start one.
    silent_count: u32,
    /// Why there is no guard, as it was last reported.
    reported_loss: Option<String>,
    /// The times under which the previous instance may have left the service running.
    previous_times: Option<Timing>,
    /// Start may begin although this agent asserts it no more: the guard has not answered the last
    /// assertion, perhaps one of the previous instance, or spawns start. An answer to all messages
    /// settles it. The loss of the guard does not: a guard that is killed may act before it is
    /// dead.
    pub(super) start_may_begin: bool,
    /// The term of the grant that an earlier instance of this agent gave to the guard.
    pub(super) predecessor_term: Option<Revision>,
}

#[derive(Clone, Debug)]
struct Present {
    since: Instant,
    /// Messages that were sent to the guard, by [`ToGuard::is_counted`].
    sent_count: u64,
    report: Option<GuardReport>,
    /// While a message or a question is not answered: when the first such message was sent, or the
    /// guard showed life after it.
    waits_since: Instant,
    /// The agent saw at this instant that the guard has not answered in time. The guard has SLACK/2
    /// more: if the agent was suspended, an answer may wait to be read.
    overdue_since: Option<Instant>,
    /// V of the last grant, unless an order to stop the service has followed it.
    granted_until: Option<Instant>,
    /// When the guard is asked for a report if nothing else is sent before.
    ask_at: Instant,
    /// The guard was asked for a report, and has sent none since.
    report_due: bool,
}

impl Present {
    /// Returns the last report if it answers all messages.
    fn answer(&self) -> Option<&GuardReport> {
        self.report.as_ref().filter(|report| report.heard == self.sent_count)
    }

    /// Returns whether the guard owes an answer.
    fn waits(&self) -> bool {
        self.report_due || self.answer().is_none()
    }

    /// Takes note of a message that is sent. `once` is the time to answer it.
    fn sends(&mut self, message: &ToGuard, once: Duration, now: Instant) {
        if !self.waits() {
            self.waits_since = now;
        }
        self.sent_count += u64::from(message.is_counted());
        let soon = now.after(ask_every(once));
        match message {
            ToGuard::Hello(_) => self.ask_at = soon,
            ToGuard::Grant(grant) => {
                self.granted_until = Some(grant.valid_until);
                // As a rule, the next renewal brings the next message.
                self.ask_at = soon.after(once);
            }
            // A start is asserted just after a grant.
            ToGuard::AssertStart => {}
            ToGuard::Stop(_) => {
                self.granted_until = None;
                self.ask_at = soon;
            }
            ToGuard::AskReport => {
                self.report_due = true;
                self.ask_at = soon;
            }
        }
    }
}

impl GuardView {
    pub(super) fn new(config: &Config, times: Option<Timing>, now: Instant) -> GuardView {
        GuardView {
            config: config.guard(),
            only_observes: config.observes,
            present: None,
            start_at: now,
            number: 0,
            pause: PAUSE_MIN,
            silent_count: 0,
            reported_loss: None,
            previous_times: times,
            start_may_begin: !config.observes,
            predecessor_term: None,
        }
    }

    /// Returns the last report of the guard. While a message is not answered, the report may be out
    /// of date.
    fn last_report(&self) -> Option<&GuardReport> {
        self.present.as_ref()?.report.as_ref()
    }

    /// Returns the last report if it answers all messages.
    pub(super) fn report(&self) -> Option<&GuardReport> {
        self.present.as_ref()?.answer()
    }

    /// Returns when this guard was started or connected to, if there is one.
    pub(super) fn since(&self) -> Option<Instant> {
        self.present.as_ref().map(|present| present.since)
    }

    /// Returns the guard's knowledge of the service, if its report holds.
    pub(super) fn service(&self) -> Option<&ServiceState> {
        self.report().map(|report| &report.service)
    }

    /// Returns the grant under which the service may run: the last one of this instance, or else
    /// the one under which the previous instance left the service running.
    pub(super) fn grant(&self) -> Option<Grant> {
        match self.service()? {
            ServiceState::Up(grant, _) => Some(grant.clone()),
            ServiceState::Unknown | ServiceState::Down | ServiceState::Stopping { .. } => None,
        }
    }

    /// Returns whether the first start of the term runs, by the last report. `asserted`: start was
    /// asserted, so it may run while a message is not answered.
    pub(super) fn first_start_runs(&self, asserted: bool) -> bool {
        self.last_report().is_some_and(|report| match report.service {
            ServiceState::Up(_, StartState::FirstRuns) => true,
            ServiceState::Up(_, StartState::Ended) => false,
            ServiceState::Up(_, StartState::NotRun)
            | ServiceState::Unknown
            | ServiceState::Down
            | ServiceState::Stopping { .. } => asserted && self.report().is_none(),
        })
    }

    /// Returns whether the service is known to be down.
    pub(super) fn is_down(&self) -> bool {
        self.only_observes || self.service() == Some(&ServiceState::Down)
    }

    /// Returns whether the guard has answered all messages, or is not needed.
    pub(super) fn has_answered(&self) -> bool {
        self.only_observes || self.report().is_some()
    }

    /// Returns whether this guard has run start under its grant, or may do so yet.
    pub(super) fn knows_of_start(&self) -> bool {
        let service = self.last_report().map(|report| &report.service);
        self.start_may_begin || !matches!(service, Some(ServiceState::Up(_, StartState::NotRun)))
    }

    /// Returns whether a guard has reported since it was started or connected to.
    pub(super) fn has_reported(&self) -> bool {
        self.last_report().is_some()
    }

    /// Returns whether the guard has reported, and answers in time, or is not needed.
    pub(super) fn is_up(&self) -> bool {
        let is_overdue = |present: &Present| present.overdue_since.is_some();
        self.only_observes
            || self.has_reported() && !self.present.as_deref().is_some_and(is_overdue)
    }

    /// Returns whether the guard was told that the service may run until this V.
    pub(super) fn is_granted(&self, valid_until: Instant) -> bool {
        let granted = self.present.as_ref().and_then(|present| present.granted_until);
        granted == Some(valid_until)
    }

    /// Returns the number of the link to the guard, unless the guard is known to be gone.
    pub(super) fn link(&self) -> Option<u64> {
        self.present.as_ref().map(|_| self.number)
    }

    /// Returns whether another instance may take this one's place after an event. It renews nothing
    /// before the guard has answered it, and gives the guard the whole time for that. So a guard
    /// that may hang is left to this instance, which renews meanwhile: unless the service is down,
    /// the event has to be a report, which shows that the guard lives. If it hangs from then on,
    /// what is left of V is enough for the next guard to begin to stop the service.
    pub(super) fn lets_next_instance(&self, event: &Event, now: Instant) -> bool {
        let has_reported_now =
            matches!(event, Event::Guard(number, GuardEvent::Report(_)) if *number == self.number);
        let granted_until = self.present.as_ref().and_then(|present| present.granted_until);
        let is_covered = |until| until >= now.after(self.config.timing.upgrade_time());
        match self.service() {
            _ if self.present.is_none() => true,
            Some(ServiceState::Down) => true,
            Some(ServiceState::Up(..)) => has_reported_now && granted_until.is_some_and(is_covered),
            // Nothing more is lost.
            Some(ServiceState::Stopping { overdue }) => has_reported_now && *overdue,
            Some(ServiceState::Unknown) | None => false,
        }
    }

    /// Returns why the service must not run here, if the guard reported a reason.
    pub(super) fn unfit(&self) -> Option<&str> {
        self.report()?.unfit.as_deref()
    }

    /// Returns whether a start has succeeded and nothing was stopped since, as the guard has
    /// reported it last.
    pub(super) fn has_started(&self) -> bool {
        let service = self.last_report().map(|report| &report.service);
        let ended = matches!(service, Some(ServiceState::Up(_, StartState::Ended)));
        ended && self.start_failure().is_none()
    }

    /// Returns how the last start failed, if so, as the guard has reported it last.
    pub(super) fn start_failure(&self) -> Option<&str> {
        self.last_report()?.start_failure.as_deref()
    }

    /// Takes in an event of the guard; `own` is this instance.
    pub(super) fn receive(
        &mut self,
        number: u64,
        event: &GuardEvent,
        own: Incarnation,
        effects: &mut Vec<Effect>,
        now: Instant,
    ) {
        if number != self.number {
            return;
        }
        let report = match event {
            GuardEvent::Report(report) => report,
            GuardEvent::Lost(why) => return self.lost(why, effects, now),
        };
        let Some(present) = &mut self.present else {
            return;
        };
        (present.waits_since, present.overdue_since, present.report_due) = (now, None, false);
        let before = present.report.replace(report.clone());
        if present.answer().is_some() {
            self.start_may_begin = report.start_waits;
        }
        self.silent_count = 0;
        match &report.service {
            ServiceState::Up(grant, _) if grant.holder != own => {
                self.predecessor_term = grant.context.term;
            }
            ServiceState::Unknown | ServiceState::Stopping { .. } => {}
            ServiceState::Up(..) | ServiceState::Down => self.previous_times = None,
        }
        self.reported_loss = None;
        if let Some(why) = &report.unfit
            && before.is_none_or(|before| before.unfit.as_ref() != Some(why))
        {
            effects.push(Effect::Report(Report::Unfit(why.clone())));
        }
    }

    fn lost(&mut self, why: &str, effects: &mut Vec<Effect>, now: Instant) {
        if self.reported_loss.as_deref() != Some(why) {
            self.reported_loss = Some(why.to_owned());
            let report = if self.has_reported() { Report::GuardLost } else { Report::NoGuard };
            effects.push(Effect::Report(report(why.to_owned())));
        }
        self.forget(now);
    }

    /// Forgets the guard. The next one is started at once if this one has lived for a while.
    fn forget(&mut self, now: Instant) {
        let guard = self.present.take();
        // The host may need the present R to start the next guard.
        self.previous_times = None;
        if guard.is_some_and(|present| now.since(present.since) > PAUSE_MAX) {
            self.pause = PAUSE_MIN;
            self.start_at = now;
        } else {
            let pause = self.pause;
            let most = PAUSE_MAX.min(self.config.timing.renewal() / 4);
            self.pause = (pause * 2).min(most.max(PAUSE_MIN));
            self.start_at = now.after(pause);
        }
    }

    /// Sends the guard a message. Without a guard nothing is sent: the next guard gets the messages
    /// that it needs at its start.
    pub(super) fn tell(&mut self, message: ToGuard, effects: &mut Vec<Effect>, now: Instant) {
        let once = self.usual_answer_time();
        if let Some(present) = &mut self.present {
            present.sends(&message, once, now);
            self.start_may_begin |= message == ToGuard::AssertStart;
            effects.push(Effect::TellGuard(message));
        }
    }

    /// Starts a guard with this message if there is none, and kills a guard that does not answer.
    /// Only a missing answer shows that a guard hangs: unless the service is down, a guard that is
    /// sent nothing else is asked for a report again and again. Returns whether a guard was started
    /// or killed.
    pub(super) fn advance(
        &mut self,
        message: Option<ToGuard>,
        effects: &mut Vec<Effect>,
        now: Instant,
    ) -> bool {
        if self.deadline().is_none_or(|deadline| now < deadline.at) {
            return false;
        }
        if self.present.as_ref().is_some_and(|present| !present.waits()) {
            self.tell(ToGuard::AskReport, effects, now);
            return false;
        }
        let Some(present) = &mut self.present else {
            self.start(message, effects, now);
            return true;
        };
        if present.overdue_since.is_none() {
            present.overdue_since = Some(now);
            return false;
        }
        effects.push(Effect::Report(Report::GuardKilled(Ms(self.answer_time()))));
        effects.push(Effect::KillGuard);
        self.silent_count += u32::from(!self.has_reported());
        self.forget(now);
        true
    }

    fn start(&mut self, message: Option<ToGuard>, effects: &mut Vec<Effect>, now: Instant) {
        let mut messages = vec![ToGuard::Hello(self.config)];
        messages.extend(message);
        let mut present = Present {
            since: now,
            sent_count: 0,
            report: None,
            waits_since: now,
            overdue_since: None,
            granted_until: None,
            ask_at: now,
            report_due: false,
        };
        let once = self.usual_answer_time();
        messages.iter().for_each(|message| present.sends(message, once, now));
        // No renewal may follow the grant.
        present.ask_at = now.after(ask_every(once));
        self.number += 1;
        self.present = Some(Box::new(present));
        effects.push(Effect::ConnectGuard(self.number, messages));
    }

    /// Returns the time in which a guard that has reported has to answer.
    fn usual_answer_time(&self) -> Duration {
        guard_answer_time(self.config.timing.renewal(), self.previous_times)
    }

    /// Returns the time in which the guard has to answer before it is killed.
    pub(super) fn answer_time(&self) -> Duration {
        self.usual_answer_time() * (1 << self.silent_count.min(DOUBLED_MAX))
    }

    pub(super) fn set_timers(&self, timers: &mut Timers) {
        self.deadline().iter().for_each(|deadline| timers.set(deadline.timer, deadline.at));
    }

    /// Returns when [`GuardView::advance`] has something to do.
    fn deadline(&self) -> Option<Deadline> {
        if self.only_observes {
            return None;
        }
        let Some(present) = &self.present else {
            return Some(Timer::GuardStart.at(self.start_at));
        };
        if !present.waits() {
            return (!self.is_down()).then(|| Timer::AskGuard.at(present.ask_at));
        }
        let over = present.waits_since.after(self.answer_time());
        Some(Timer::GuardAnswer.at(present.overdue_since.map_or(over, |at| at.after(SLACK / 2))))
    }
}

#[cfg(test)]
mod tests;
