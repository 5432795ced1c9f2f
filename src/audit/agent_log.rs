//! The log of one agent and its guard: the terms in it.
//!
//! The service may run from the line that says that the agent is active until the first that says
//! that the service is down, or was cut off by the last resort. Where lines are missing, a term is
//! longer rather than shorter: it begins with the line before the gap, and ends with the line
//! behind it.

use std::time::Duration;

use super::event::{Cause, LogEvent, Times};
use super::judge::{End, Take, Term};
use crate::core::sanitize_field;

/// So many names of other agents are kept at the most.
const NAMES_MAX: usize = 256;

/// What is known of an agent while its log is read.
pub(super) struct AgentLog {
    /// The number of the log, and the host in the lines of this agent; blank if they have none.
    pub(super) log: usize,
    pub(super) host: String,
    /// The token; that of the last instance.
    pub(super) agent: Option<String>,
    /// The tokens of several agents are in it.
    pub(super) is_mixed: bool,
    /// When its first line was written, and its last.
    pub(super) first_at: Option<Duration>,
    pub(super) last_at: Duration,
    /// How far its clock has gone back at the most.
    pub(super) went_back: Duration,
    /// The fewest digits of the seconds of its times.
    pub(super) digits: usize,
    /// How often a line did not follow from the one before.
    pub(super) gaps: u64,
    /// How many terms ended where lines are missing.
    pub(super) cut_terms: u64,
    /// The agents that had the lock, by the lines of this one.
    pub(super) others: Vec<String>,
    /// The terms that have ended.
    pub(super) terms: Vec<Term>,
    source: usize,
    state: Option<String>,
    seat: u32,
    times: Option<Times>,
    take: Option<Take>,
    /// The term of the previous instance that is adopted, or the number of the take.
    number: Option<u64>,
    /// When the last pause ends that is known.
    paused_until: Duration,
    open: Option<Term>,
    /// The service was reported to be down since the last term began.
    is_down: bool,
    /// The last term can still get its release.
    awaits_release: bool,
}

impl AgentLog {
    /// Returns the agent of this number.
    pub(super) fn new(source: usize, log: usize, host: &str) -> AgentLog {
        AgentLog {
            log,
            host: host.to_owned(),
            agent: None,
            is_mixed: false,
            first_at: None,
            last_at: Duration::ZERO,
            went_back: Duration::ZERO,
            digits: usize::MAX,
            gaps: 0,
            cut_terms: 0,
            others: Vec::new(),
            terms: Vec::new(),
            source,
            state: None,
            seat: 0,
            times: None,
            take: None,
            number: None,
            paused_until: Duration::ZERO,
            open: None,
            is_down: false,
            awaits_release: false,
        }
    }

    /// Takes in a line of the agent, `event` if it says something.
    pub(super) fn add(&mut self, at: Duration, digits: usize, line: u64, event: Option<LogEvent>) {
        self.first_at.get_or_insert(at);
        self.digits = self.digits.min(digits);
        if let Some(event) = event {
            self.handle(event, at, line);
        }
        self.went_back = self.went_back.max(self.last_at.saturating_sub(at));
        self.last_at = at;
    }

    /// Ends the log; returns its terms, and itself without them.
    pub(super) fn finish(&mut self) -> Vec<Term> {
        self.terms.extend(self.open.take());
        let agent = self.agent.clone().unwrap_or_default();
        let mut terms = std::mem::take(&mut self.terms);
        for term in terms.iter_mut().filter(|term| term.agent.is_empty()) {
            term.agent.clone_from(&agent);
        }
        terms
    }

    fn handle(&mut self, event: LogEvent, at: Duration, line: u64) {
        match event {
            LogEvent::Settings { token, times } => self.begin_instance(&token, times, at),
            LogEvent::Moved { from, to, cause, why } => {
                self.check_state(&from, at, line);
                self.moved(&from, &to, cause, &why, at, line);
                self.state = Some(to);
            }
            LogEvent::Seat(seat) => self.seat = seat,
            LogEvent::Released(revision) => {
                self.close(at);
                if let Some(term) = self.terms.last_mut().filter(|_| self.awaits_release) {
                    term.released = Some(revision);
                }
                self.awaits_release = false;
            }
            LogEvent::HeldBy(token) => self.note_other(&token),
            LogEvent::Started(number) => self.started(number, at, line),
            LogEvent::Down => {
                if self.open.is_none() && self.state.is_none() && self.agent.is_none() {
                    self.open_before(at, line);
                }
                // One that was written late may be of the term before.
                if self.open.as_ref().is_some_and(|term| term.from <= at) {
                    self.close(at);
                }
            }
            LogEvent::Paused(lasts) => {
                self.paused_until = self.paused_until.max(at.saturating_add(lasts));
            }
            LogEvent::CutOff => {
                if let Some(term) = self.open.as_mut().filter(|term| term.from <= at) {
                    let why = std::mem::take(&mut term.why);
                    let why = if why.is_empty() { why } else { why + "; " };
                    term.why = why + "cut off by the last resort";
                    self.close(at);
                }
            }
            LogEvent::MayStillRun => {
                if self.open.is_none() {
                    self.open_before(at, line);
                }
                if let Some(term) = &mut self.open {
                    term.end = End::MayStillRun;
                }
            }
            LogEvent::LockOver(why) => {
                if let Some(term) = self.open.as_mut().filter(|term| term.from <= at) {
                    why_of(term, &why);
                }
            }
            LogEvent::GuardBeforeDead => {
                if self.open.is_none() && self.state.is_none() && self.agent.is_none() {
                    self.open_before(at, line);
                }
                if let Some(term) = &mut self.open {
                    term.ran_until = term.ran_until.max(at);
                }
            }
            LogEvent::Dropped => self.gaps += 1,
        }
    }

    fn note_other(&mut self, token: &str) {
        let token = sanitize_field(token);
        if self.others.len() < NAMES_MAX && !self.others.contains(&token) {
            self.others.push(token);
        }
    }

    /// The guard writes this line, and may be faster than the agent with the one before.
    fn started(&mut self, number: u64, at: Duration, line: u64) {
        let is_early = self.state.as_deref().is_some_and(|state| state != "active");
        if self.open.is_none() && !is_early {
            self.gaps += 1;
            self.open_before(at, line);
        }
        if let Some(term) = &mut self.open {
            term.number.get_or_insert(number);
        }
    }

    fn begin_instance(&mut self, token: &str, times: Times, at: Duration) {
        let token = sanitize_field(token);
        self.is_mixed |= self.agent.as_ref().is_some_and(|known| *known != token);
        self.end_instance(at);
        (self.agent, self.times) = (Some(token), Some(times));
        (self.state, self.seat, self.take, self.number) = (None, 0, None, None);
    }

    /// Another instance writes the log from now on. The one before had renewed the lock before now,
    /// if it was there at all. In a pause its lock may have been valid until the end of that.
    fn end_instance(&mut self, at: Duration) {
        let last = at.max(self.last_at).max(self.paused_until);
        if let Some(term) = self.open.as_mut().filter(|term| term.end == End::Unknown) {
            let until = term.times.map(|times| last.saturating_add(times.sum()));
            term.until = term.until.or(until);
        }
    }

    /// Checks that the state which the agent leaves is the one that it had.
    fn check_state(&mut self, from: &str, at: Duration, line: u64) {
        let known = self.state.take();
        let follows = known.as_ref().is_none_or(|known| known == from);
        // Each instance begins with it, and names itself when the store is open.
        if from == "looking" {
            return self.end_instance(at);
        }
        if !follows {
            self.gaps += 1;
        }
        let runs = matches!(from, "active" | "stopping");
        let is_down = follows && self.is_down;
        if runs && self.open.is_none() && !is_down {
            self.open_before(at, line);
        } else if !runs && !follows {
            self.close_unseen(at);
        }
    }

    fn moved(&mut self, from: &str, to: &str, cause: Cause, why: &str, at: Duration, line: u64) {
        let adopted = cause == Cause::Adopted;
        match cause {
            Cause::Take { holder, released, stood } => {
                holder.iter().for_each(|token| self.note_other(token));
                let confirmed_for = Duration::ZERO;
                self.take = Some(Take { at, released, stood, confirmed_for });
            }
            Cause::Adopt(term) => self.number = Some(term),
            Cause::Taken(number, confirmed_for) => {
                self.number = Some(number);
                self.take = self.take.map(|take| Take { confirmed_for, ..take });
            }
            // The record that was seen is not in the log.
            Cause::Other if to == "taking" => self.take = None,
            Cause::Adopted | Cause::Other => {}
        }
        match to {
            "active" if adopted => self.go_on(at, line),
            "active" => {
                self.close_unseen(at);
                let term = self.term(at, line);
                // Its line may have its time from a reader that was late.
                let in_time = |take: Take| at.saturating_sub(take.confirmed_for).min(take.at);
                let take = self.take.take().map(|take| Take { at: in_time(take), ..take });
                self.open = Some(Term { take, ..term });
            }
            "stopping" => {
                let last = self.terms.last_mut().filter(|_| self.is_down);
                if let Some(term) = self.open.as_mut().or(last) {
                    why_of(term, why);
                }
            }
            "standby" if from == "stopping" => {
                self.close(at);
                self.awaits_release = false;
            }
            _ => {}
        }
    }

    /// The service of the previous instance goes on.
    fn go_on(&mut self, at: Duration, line: u64) {
        let number = self.number.take();
        match self.open.take() {
            Some(term) if term.number.is_none() || term.number == number => {
                let until = None;
                self.open = Some(Term { number, until, end: End::Unknown, ..term });
            }
            other => {
                self.open = other;
                self.close_unseen(at);
                self.number = number;
                self.open_before(at, line);
            }
        }
    }

    /// Returns the term that begins now.
    fn term(&mut self, at: Duration, line: u64) -> Term {
        (self.is_down, self.awaits_release) = (false, false);
        Term {
            seat: self.seat,
            number: self.number.take(),
            agent: self.agent.clone().unwrap_or_default(),
            source: self.source,
            line,
            from: at,
            from_is_known: true,
            until: None,
            end: End::Unknown,
            ran_until: Duration::ZERO,
            why: String::new(),
            released: None,
            take: None,
            times: self.times,
        }
    }

    /// Begins a term whose beginning is not in the log: it was before the line before this one, or
    /// before the log.
    fn open_before(&mut self, at: Duration, line: u64) {
        let term = self.term(at, line);
        let from = match self.last_at {
            Duration::ZERO => at,
            last_at => last_at.min(at),
        };
        self.open = Some(Term { from, from_is_known: false, ..term });
    }

    /// The service is down.
    fn close(&mut self, at: Duration) {
        if let Some(term) = self.open.take() {
            let until = Some(at.max(term.from));
            self.terms.push(Term { until, end: End::Reported, ..term });
            (self.is_down, self.awaits_release) = (true, true);
        }
    }

    /// The service must have been down before now, and no line says since when.
    fn close_unseen(&mut self, at: Duration) {
        if let Some(mut term) = self.open.take() {
            // A clock that goes back makes no term shorter.
            let at = at.max(self.last_at);
            self.cut_terms += u64::from(term.until.is_none());
            term.end_unreported(term.until.map_or(at, |until| until.min(at)));
            self.terms.push(term);
        }
    }
}

fn why_of(term: &mut Term, why: &str) {
    if term.why.is_empty() {
        term.why = sanitize_field(why);
    }
}

#[cfg(test)]
mod tests;
