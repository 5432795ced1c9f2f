//! The agent's end of the guard: when one is started, what it is told, and whether its last
//! report still holds.
//!
//! A report holds when the guard has received all words that were said to it: an older one
//! may say `Down` of a service that a grant, which is still on its way, lets run.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Deadline, Timer};
use crate::core::event::{Effect, GuardEvent};
use crate::core::protocol::{GuardReport, ServiceState, StartState, StopOrder, ToGuard};
use crate::core::report::Report;
use crate::core::time::Instant;

/// Shortest time in which a guard has to answer: a loaded host needs it to start a process.
const ANSWER_MIN: Duration = Duration::from_millis(250);

/// Shortest and longest pause before a guard is started after one that did not even live for
/// that long. A pause is R/4 at the most: without a guard nobody stops the service.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the agent knows of its guard.
#[derive(Clone, Debug)]
pub(super) struct GuardClient {
    link: Link,
    /// Number of the last link; an event of another link is ignored.
    number: u64,
    /// How long to wait before the next start.
    pause: Duration,
    /// Why there is no guard, as it was said last.
    said: Option<String>,
}

#[derive(Clone, Debug)]
enum Link {
    /// There is no guard; one is started at this instant.
    Absent(Instant),
    /// A guard was started or connected to.
    Present(Box<Present>),
}

#[derive(Clone, Debug)]
struct Present {
    since: Instant,
    /// Words that were said.
    said: u64,
    /// When the guard last showed life while a word was not answered; `None` when all are.
    unanswered_since: Option<Instant>,
    report: Option<GuardReport>,
    /// The last order to stop the service, and when it was said.
    order: Option<(StopOrder, Instant)>,
}

impl Present {
    /// Notes a word that is being said.
    fn note_word(&mut self, word: &ToGuard, now: Instant) {
        self.said += 1;
        self.unanswered_since.get_or_insert(now);
        if let ToGuard::Stop(order) = word {
            self.order = Some((order.clone(), now));
        }
    }

    /// Returns the order that the guard carries out, and when it was said last.
    fn order_under_way(&self) -> Option<&(StopOrder, Instant)> {
        match self.report.as_ref()?.service {
            ServiceState::Stopping { .. } => self.order.as_ref(),
            ServiceState::Unknown | ServiceState::Down | ServiceState::Up(..) => None,
        }
    }
}

impl GuardClient {
    pub(super) fn new(now: Instant) -> GuardClient {
        GuardClient { link: Link::Absent(now), number: 0, pause: PAUSE_MIN, said: None }
    }

    /// Returns the last report if it answers all words.
    pub(super) fn report(&self) -> Option<&GuardReport> {
        match &self.link {
            Link::Absent(_) => None,
            Link::Present(present) => {
                present.report.as_ref().filter(|report| report.heard == present.said)
            }
        }
    }

    /// Returns what the guard knows of the service, if its report holds.
    pub(super) fn service(&self) -> Option<&ServiceState> {
        self.report().map(|report| &report.service)
    }

    /// Returns whether the first start of the term runs, `asserted` telling that it was asked
    /// for. While a word is not answered, what was reported before it counts.
    pub(super) fn first_start_runs(&self, asserted: bool) -> bool {
        let Link::Present(present) = &self.link else {
            return false;
        };
        let Some(report) = &present.report else {
            return false;
        };
        match report.service {
            ServiceState::Up(_, StartState::FirstRuns) => true,
            ServiceState::Up(_, StartState::Ended) => false,
            ServiceState::Up(_, StartState::NotRun)
            | ServiceState::Unknown
            | ServiceState::Down
            | ServiceState::Stopping { .. } => asserted && report.heard < present.said,
        }
    }

    /// Returns whether the service is known to be down.
    pub(super) fn is_down(&self) -> bool {
        self.service() == Some(&ServiceState::Down)
    }

    /// Returns whether a guard has reported since it was started or connected to.
    pub(super) fn has_reported(&self) -> bool {
        matches!(&self.link, Link::Present(present) if present.report.is_some())
    }

    /// Returns whether there is a guard, for all that is known.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.link, Link::Present(_))
    }

    /// Returns the number of the link to the guard, if there is one.
    pub(super) fn link(&self) -> Option<u64> {
        self.is_present().then_some(self.number)
    }

    /// Returns why the service must not run here, if the guard said so.
    pub(super) fn unfit(&self) -> Option<&str> {
        self.report()?.unfit.as_deref()
    }
}

impl Context {
    /// Takes in what the guard tells, or what became of it.
    pub(super) fn note_guard(&mut self, number: u64, event: &GuardEvent, now: Instant) {
        if number != self.guard.number {
            return;
        }
        match event {
            GuardEvent::Report(report) => self.note_guard_report(report, now),
            GuardEvent::Lost(why) => self.guard_lost(why, now),
        }
    }

    fn note_guard_report(&mut self, report: &GuardReport, now: Instant) {
        let Link::Present(present) = &mut self.guard.link else {
            return;
        };
        present.unanswered_since = (report.heard < present.said).then_some(now);
        let before = present.report.replace(report.clone());
        if let ServiceState::Up(grant, _) = &report.service
            && grant.holder != self.id.incarnation
        {
            self.predecessor = Some(grant.holder);
        }
        self.guard.said = None;
        let unfit_before = before.and_then(|before| before.unfit);
        if let Some(why) = &report.unfit
            && unfit_before.as_ref() != Some(why)
        {
            self.report(Report::Unfit(why.clone()));
        }
    }

    fn guard_lost(&mut self, why: &str, now: Instant) {
        if self.guard.said.as_deref() != Some(why) {
            self.guard.said = Some(why.to_owned());
            let answered = match &self.guard.link {
                Link::Absent(_) => false,
                Link::Present(present) => present.report.is_some(),
            };
            let why = why.to_owned();
            self.report(if answered { Report::GuardLost(why) } else { Report::NoGuard(why) });
        }
        self.pause_guard(now);
    }

    /// Another guard is started at once after one that has lived for a while.
    fn pause_guard(&mut self, now: Instant) {
        let lived = match &self.guard.link {
            Link::Absent(_) => false,
            Link::Present(present) => now.since(present.since) > PAUSE_MAX,
        };
        let start_at = if lived {
            self.guard.pause = PAUSE_MIN;
            now
        } else {
            let pause = self.guard.pause;
            let most = PAUSE_MAX.min(self.config.timing.renewal() / 4);
            self.guard.pause = (pause * 2).min(most.max(PAUSE_MIN));
            now.after(pause)
        };
        self.guard.link = Link::Absent(start_at);
    }

    /// Says a word to the guard. Without a guard nothing is said: the next guard is told at
    /// its start what it has to know.
    pub(super) fn tell_guard(&mut self, word: ToGuard, now: Instant) {
        if let Link::Present(present) = &mut self.guard.link {
            present.note_word(&word, now);
            self.want(Effect::TellGuard(word));
        }
    }

    /// Starts a guard where there is none, and kills one that does not answer. `word` is what
    /// a new guard has to know at once. A guard that stops the service is told so again and
    /// again: there is nothing else to say, and one that is frozen shows by its silence alone.
    /// Returns whether a guard was started or killed.
    pub(super) fn tend_guard(&mut self, word: Option<ToGuard>, now: Instant) -> bool {
        let mut changed = false;
        if let Link::Present(present) = &self.guard.link
            && let Some(since) = present.unanswered_since
            && now >= since.after(self.guard_patience())
        {
            self.report(Report::GuardKilled(self.guard_patience()));
            self.want(Effect::KillGuard);
            self.pause_guard(now);
            changed = true;
        }
        if let Some((order, at)) = self.order_to_repeat()
            && now >= at
        {
            let order = order.clone();
            self.tell_guard(ToGuard::Stop(order), now);
        }
        if let Link::Absent(start_at) = self.guard.link
            && now >= start_at
        {
            let mut words = vec![ToGuard::Hello(self.config.guard())];
            words.extend(word);
            self.guard.number += 1;
            let mut present =
                Present { since: now, said: 0, unanswered_since: None, report: None, order: None };
            for word in &words {
                present.note_word(word, now);
            }
            self.guard.link = Link::Present(Box::new(present));
            self.want(Effect::StartGuard(self.guard.number, words));
            changed = true;
        }
        changed
    }

    /// Returns when [`Context::tend_guard`] has something to do.
    pub(super) fn guard_deadline(&self) -> Option<Deadline> {
        match &self.guard.link {
            Link::Absent(start_at) => Some(Timer::GuardStart.at(*start_at)),
            Link::Present(present) => {
                if let Some(since) = present.unanswered_since {
                    return Some(Timer::GuardAnswer.at(since.after(self.guard_patience())));
                }
                let (_, at) = self.order_to_repeat()?;
                Some(Timer::RepeatStop.at(at))
            }
        }
    }

    /// Returns the order that a guard which has answered carries out, and when it is repeated.
    fn order_to_repeat(&self) -> Option<(&StopOrder, Instant)> {
        match &self.guard.link {
            Link::Present(present) if present.unanswered_since.is_none() => {
                let (order, said_at) = present.order_under_way()?;
                Some((order, said_at.after(self.guard_patience())))
            }
            Link::Absent(_) | Link::Present(_) => None,
        }
    }

    /// Returns how long a guard may take to answer.
    pub(super) fn guard_patience(&self) -> Duration {
        self.config.timing.renewal().max(ANSWER_MIN)
    }
}
