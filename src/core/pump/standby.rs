//! The lock is another's, or nobody's yet: assert stop, check, watch the key.
//!
//! The key is read every R, but a stroke, with its two commands, takes T as in the
//! flowchart: what they tell is needed when the lock may be had, and that is T
//! after something was seen at the earliest. While stop fails it is run every R.

use std::time::Duration;

use super::claim::Claim;
use super::facts::{Facts, Seen, Service};
use super::left::Left;
use super::pending::pause;
use super::stopping::Stopping;
use super::taking::Taking;
use super::{Next, State, earliest, end, shut_down};
use crate::core::command::{Command, Outcome, Role};
use crate::core::event::{Ending, Event, Level};
use crate::core::record::Revision;
use crate::core::time::{Instant, Ms};

/// How much longer than the last one a confirming check is expected to take, as
/// a divisor: a quarter.
const CHECK_SPREAD: u32 = 4;

/// How much later than R the key is read while hints come, as a divisor of R.
const HINT_SPREAD: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Standby {
    /// When the next stroke, which asserts stop, may begin.
    stroke_at: Instant,
    /// When the key is read again if no hint comes before.
    read_at: Instant,
    /// The last read followed a hint.
    hint_led: bool,
    /// No confirming check before this: the last one failed.
    retry_at: Instant,
    phase: Phase,
    /// How long the last check took, and whether it passed.
    check_took: Duration,
    healthy: Option<bool>,
    /// How the last stop failed, which was reported.
    stop_failed: Option<Outcome>,
    /// The revision whose holder was reported.
    reported: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until the next stroke, or until the lock may be had.
    Resting,
    /// The stroke's stop command runs.
    Stopping,
    /// The stroke's check runs.
    Checking { began: Instant },
    /// The check that decides on a takeover runs.
    Deciding { began: Instant },
    /// It has passed, and counts for R; the lock may be had once its time has come.
    Ready { since: Instant },
}

impl Standby {
    pub(super) fn new(now: Instant) -> Standby {
        Standby {
            stroke_at: now,
            read_at: now,
            hint_led: false,
            retry_at: now,
            phase: Phase::Resting,
            check_took: Duration::ZERO,
            healthy: None,
            stop_failed: None,
            reported: None,
        }
    }

    /// As [`Standby::new`], when the key was read just now.
    pub(super) fn informed(facts: &Facts, now: Instant) -> Standby {
        let read_at = now.after(facts.config.timing.renewal());
        Standby {
            read_at,
            ..Standby::new(now)
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        match event {
            Event::Ended(Command::Stop, outcome) => self.stopped(facts, outcome, now),
            Event::Ended(Command::Check, outcome) => self.checked(facts, outcome, now),
            Event::Rejected(rejection) if facts.bucket.is_none() => {
                let ending = Ending::Rejected(rejection.clone());
                if facts.service == Service::Down {
                    return end(facts, ending);
                }
                let why = "the store is refused";
                return Stopping::to_end(facts, Left::Nothing, ending, why, now);
            }
            Event::Shutdown(signal) => return shut_down(facts, signal, now),
            Event::Opened(_) | Event::Read(Ok(_)) => self.put_off_read(facts, now),
            Event::Read(Err(_)) => self.read_at = now.after(pause(facts)),
            // Of a take that was given up on: a read tells what became of it.
            Event::Written(_) => self.read_at = now,
            Event::Tick
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Guard(_)
            | Event::Ended(Command::Start | Command::LastResort, _) => {}
        }
        self.report_holder(facts);
        self.advance(facts, now)
    }

    fn stopped(&mut self, facts: &mut Facts, outcome: &Outcome, now: Instant) {
        let failed = (*outcome != Outcome::Succeeded).then(|| outcome.clone());
        if failed != self.stop_failed
            && let Some(failed) = &failed
        {
            let why = failed.why();
            let text = format!("stop failed: {why}; not a candidate until it succeeds");
            facts.say(Level::Error, text);
        }
        self.stop_failed = failed;
        if self.phase == Phase::Stopping {
            self.phase = Phase::Resting;
            if *outcome == Outcome::Succeeded && self.check(facts, now) {
                self.phase = Phase::Checking { began: now };
            }
        }
    }

    /// Runs a check, if there is one. No command runs.
    fn check(&self, facts: &mut Facts, now: Instant) -> bool {
        if facts.config.check {
            let deadline = now.after(facts.config.timing.lock_time());
            let under = facts.under(None);
            facts.run(Command::Check, Role::Standby, deadline, under);
        }
        facts.config.check
    }

    fn checked(&mut self, facts: &mut Facts, outcome: &Outcome, now: Instant) {
        let (Phase::Checking { began } | Phase::Deciding { began }) = self.phase else {
            // One of a state before, which was killed there.
            return;
        };
        let passed = *outcome == Outcome::Succeeded;
        if self.healthy != Some(passed) {
            match outcome {
                Outcome::Succeeded => {
                    facts.say(Level::Info, "health check passed: a candidate".to_owned())
                }
                Outcome::Failed(why) => {
                    facts.say(
                        Level::Warn,
                        format!("health check failed: {why}; not a candidate"),
                    );
                }
                Outcome::Overran => {
                    facts.say(
                        Level::Warn,
                        "health check did not end within T and was killed".to_owned(),
                    );
                }
            }
            self.healthy = Some(passed);
        }
        self.check_took = now.since(began);
        self.phase = match self.phase {
            Phase::Deciding { .. } if passed => Phase::Ready { since: now },
            Phase::Deciding { .. } => {
                self.retry_at = began.after(facts.config.timing.renewal()).max(now);
                Phase::Resting
            }
            Phase::Resting | Phase::Stopping | Phase::Checking { .. } | Phase::Ready { .. } => {
                Phase::Resting
            }
        };
    }

    fn report_holder(&mut self, facts: &mut Facts) {
        let Some(seen) = &facts.seen else { return };
        let holder = &seen.claim.holder;
        if self.reported.as_ref() != Some(holder) {
            let text = format!(
                "the lock is held by {holder}, revision {}",
                seen.key_state.revision
            );
            self.reported = Some(holder.clone());
            let again = facts.refused.is_some();
            facts.say(if again { Level::Debug } else { Level::Info }, text);
        }
    }

    fn advance(mut self, facts: &mut Facts, now: Instant) -> Next {
        let known = facts
            .seen
            .as_ref()
            .map_or(Revision(0), |seen| seen.key_state.revision);
        let wanted = now >= self.read_at || facts.hinted > known;
        if facts.open && facts.io.is_none() && wanted {
            self.hint_led = now < self.read_at;
            facts.read(now);
        }
        if let Phase::Ready { since } = self.phase {
            let stale = now >= since.after(facts.config.timing.renewal());
            match self.prospect(facts) {
                Some(prospect) if !stale => {
                    if now >= prospect.take_at() && facts.io.is_none() {
                        let seen = prospect.clone();
                        return Taking::go(facts, &seen, now);
                    }
                }
                Some(_) | None => self.phase = Phase::Resting,
            }
        }
        if self.phase == Phase::Resting && idle(facts) {
            self.begin(facts, now);
            if let Phase::Ready { .. } = self.phase {
                return self.advance(facts, now);
            }
        }
        Next::Stay(State::Standby(self))
    }

    /// From rest: the deciding check when its time has come, else the next stroke.
    fn begin(&mut self, facts: &mut Facts, now: Instant) {
        if let Some(prospect) = self.prospect(facts)
            && now >= self.decide_at(prospect)
            && facts.io.is_none()
        {
            self.phase = if self.check(facts, now) {
                Phase::Deciding { began: now }
            } else {
                Phase::Ready { since: now }
            };
            return;
        }
        if now >= self.stroke_at {
            let timing = facts.config.timing;
            let down = facts.service == Service::Down;
            self.stroke_at = now.after(if down {
                timing.lock_time()
            } else {
                timing.renewal()
            });
            self.phase = Phase::Stopping;
            let deadline = now.after(timing.stop_budget());
            let under = facts.under(None);
            facts.run(Command::Stop, Role::Standby, deadline, under);
        }
    }

    /// The key is read every R. A hint is followed at once, and the read after it
    /// comes a little later than R: while hints come, every renewal would be read
    /// twice otherwise.
    fn put_off_read(&mut self, facts: &Facts, now: Instant) {
        let r = facts.config.timing.renewal();
        self.read_at = now.after(if self.hint_led {
            r + r / HINT_SPREAD
        } else {
            r
        });
    }

    /// Returns what stands under the key, if this agent may have it in time.
    fn prospect<'a>(&self, facts: &'a Facts) -> Option<&'a Seen> {
        // Stop is run first of all: what an earlier life left running may not be known. An
        // agent whose stop has failed is no candidate, not even for a lock that is free;
        // nor is one that has no guard.
        let able = facts.open && facts.service == Service::Down && facts.guard.able();
        facts.seen.as_ref().filter(|_| able)
    }

    /// The deciding check begins early, so that it ends when the lock may be had.
    fn decide_at(&self, prospect: &Seen) -> Instant {
        let lead = self.check_took + self.check_took / CHECK_SPREAD;
        prospect
            .take_at()
            .before(lead.min(prospect.claim.wait))
            .max(self.retry_at)
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        let free = facts.open && facts.io.is_none();
        let read_at = free.then_some(self.read_at);
        let prospect = self.prospect(facts).filter(|_| free);
        let act_at = match self.phase {
            Phase::Resting if idle(facts) => {
                let decide_at = prospect.map(|prospect| self.decide_at(prospect));
                earliest(decide_at, Some(self.stroke_at))
            }
            Phase::Ready { since } => {
                let stale_at = since.after(facts.config.timing.renewal());
                earliest(prospect.map(Seen::take_at), Some(stale_at))
            }
            Phase::Resting | Phase::Stopping | Phase::Checking { .. } | Phase::Deciding { .. } => {
                None
            }
        };
        earliest(read_at, act_at)
    }
}

/// No command runs: one at a time, and none beside one that was killed but has
/// not ended yet.
fn idle(facts: &Facts) -> bool {
    !Command::ALL.iter().any(|command| facts.running(*command))
}

/// Words for a lock that stood still for as long as it had to.
pub(super) fn stood_still(claim: &Claim) -> String {
    if claim.wait.is_zero() {
        return format!("from {}", claim.holder);
    }
    format!("from {}, not renewed for {}", claim.holder, Ms(claim.wait))
}
