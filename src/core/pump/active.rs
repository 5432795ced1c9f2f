//! The lock is this agent's: check, renew, assert start, every R.
//!
//! A check may take as long as the lock is valid from when the check began. One
//! that runs over R would leave no time to renew after it, so the lock is renewed
//! once beside it.

use super::facts::Facts;
use super::left::Left;
use super::pending::{Pending, Verdict};
use super::stopping::{Leave, Stopping};
use super::{Hold, NewWrite, Next, State, earliest, prepare_write};
use crate::core::command::{Command, Outcome, Role};
use crate::core::event::{Ending, Event, Level};
use crate::core::record::{RecordState, Revision};
use crate::core::time::{Instant, Ms};

#[derive(Clone, Debug)]
pub(super) struct Active {
    hold: Hold,
    stroke_at: Instant,
    phase: Phase,
    /// The renewal that is under way.
    renewal: Option<Box<Pending>>,
    /// This stroke's start waits for the guard to be prepared.
    owed: bool,
    /// Start was run in this term.
    asserted: bool,
    /// How the last start of this term ended.
    start: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The stroke begins.
    Due,
    /// The check runs: whether it was said to run over R, and whether the lock was
    /// renewed beside it.
    Checking {
        began: Instant,
        warned: bool,
        beside: bool,
    },
    /// The check has passed; the renewal is under way.
    Renewing,
    /// The lock is renewed; start is to be asserted.
    Renewed,
    /// Until the next stroke.
    Resting,
}

impl Active {
    /// A free lock was just taken, after a check: that was this stroke's renewal.
    pub(super) fn taken(hold: Hold, now: Instant) -> Active {
        Active {
            phase: Phase::Renewed,
            ..Active::confirmed(hold, now)
        }
    }

    /// The service runs already: a previous life of this agent started it.
    pub(super) fn adopted(hold: Hold, now: Instant) -> Active {
        Active {
            asserted: true,
            ..Active::confirmed(hold, now)
        }
    }

    /// The wait for the holder before is over: the stroke that starts the service
    /// begins with a check and a renewal.
    pub(super) fn confirmed(hold: Hold, now: Instant) -> Active {
        Active {
            hold,
            stroke_at: now,
            phase: Phase::Due,
            renewal: None,
            owed: false,
            asserted: false,
            start: None,
        }
    }

    /// Returns the lock.
    pub(super) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(signal) => {
                let left = Left::Hold(self.hold);
                return Stopping::to_end(facts, left, Ending::Clean, signal, now);
            }
            Event::Ended(Command::Start, outcome) => self.started(facts, outcome),
            Event::Ended(Command::Check, outcome) => {
                if let Phase::Checking { began, .. } = self.phase {
                    if let Some(why) = failed_check(outcome, Ms(now.since(began))) {
                        return Stopping::enter(facts, self.hold, Leave::Released, why, now);
                    }
                    self.phase = Phase::Renewing;
                }
            }
            Event::Tick
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Written(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Guard(_)
            | Event::Ended(Command::Stop | Command::LastResort, _) => {}
        }
        let lost = self.heed_renewal(facts, event, now);
        if let Some(why) = lost.or_else(|| self.hold.contradicted(facts, event)) {
            return Stopping::enter(facts, self.hold, Leave::Lost, why, now);
        }
        if now >= self.hold.valid_until {
            let validity = Ms(facts.config.timing.validity());
            let why = format!("no renewal was acknowledged within {validity}");
            return Stopping::enter(facts, self.hold, Leave::Lost, why, now);
        }
        if let Some(why) = facts.unguarded(now) {
            return Stopping::enter(facts, self.hold, Leave::Released, why, now);
        }
        if let Some(at) = self.check_by(facts)
            && now >= at
        {
            let why = format!("{HUNG} {}", Ms(facts.config.timing.validity()));
            return Stopping::enter(facts, self.hold, Leave::Released, why, now);
        }
        self.advance(facts, now);
        Next::Stay(State::Active(self))
    }

    /// Takes in what became of the renewal; says why, when the lock is lost.
    fn heed_renewal(&mut self, facts: &mut Facts, event: &Event, now: Instant) -> Option<String> {
        match self.renewal.as_mut()?.heed(facts, event, now) {
            Verdict::Open => None,
            Verdict::Held { revision, sent } => {
                self.renewal = None;
                self.hold.renewed(facts, revision, sent);
                if facts.running(Command::Start) {
                    facts.extend(Command::Start, self.hold.valid_until);
                }
                match self.phase {
                    Phase::Renewing => self.phase = Phase::Renewed,
                    Phase::Checking { .. } => {
                        if let Some(at) = self.check_by(facts) {
                            facts.extend(Command::Check, at);
                        }
                    }
                    Phase::Due | Phase::Renewed | Phase::Resting => {}
                }
                None
            }
            Verdict::Lost(why) => Some(why),
            Verdict::RolledBack => Some("the store has rolled back".to_owned()),
        }
    }

    /// Says how start ended, once for a row of equal ends.
    fn started(&mut self, facts: &mut Facts, outcome: &Outcome) {
        if self.start.replace(outcome.clone()).as_ref() == Some(outcome) {
            return;
        }
        match outcome {
            Outcome::Succeeded => {
                let term = self.hold.term;
                facts.say(Level::Info, format!("the service runs here, term {term}"));
            }
            Outcome::Failed(why) => {
                let text = format!("start failed: {why}; asserted again in every stroke");
                facts.say(Level::Warn, text);
            }
            Outcome::Overran => {
                facts.say(
                    Level::Error,
                    "start was killed: the lock ran out".to_owned(),
                );
            }
        }
    }

    fn advance(&mut self, facts: &mut Facts, now: Instant) {
        let r = facts.config.timing.renewal();
        if self.phase == Phase::Renewed {
            self.phase = Phase::Resting;
            self.owed = true;
        }
        if self.owed && facts.guard.armed() {
            self.owed = false;
            self.assert_start(facts);
        }
        if self.phase == Phase::Resting && now >= self.stroke_at.after(r) {
            // At once when it ran over, but then the lost time is lost.
            self.stroke_at = self.stroke_at.after(r).max(now.before(r / 2));
            self.phase = Phase::Due;
        }
        if self.phase == Phase::Due && !facts.running(Command::Check) {
            self.phase = Phase::Renewing;
            if facts.config.check {
                self.phase = Phase::Checking {
                    began: now,
                    warned: false,
                    beside: false,
                };
                let deadline = self.check_by(facts).unwrap_or(now);
                self.run(facts, Command::Check, deadline);
            }
        }
        if let Phase::Checking {
            began,
            warned,
            beside,
        } = self.phase
        {
            let warn = !warned && now >= began.after(r);
            if warn {
                let text = format!("the health check takes longer than R = {}", Ms(r));
                facts.say(Level::Warn, text);
            }
            let renew = !beside && now >= self.beside_at(began, facts);
            if renew {
                self.renew(facts, now);
            }
            self.phase = Phase::Checking {
                began,
                warned: warned || warn,
                beside: beside || renew,
            };
        }
        if self.phase == Phase::Renewing && self.renewal.is_none() {
            self.renew(facts, now);
        }
        match &mut self.renewal {
            Some(renewal) => renewal.advance(facts, now),
            None => self.hold.follow_hint(facts, now),
        }
    }

    fn assert_start(&mut self, facts: &mut Facts) {
        if !facts.running(Command::Start) {
            self.run(facts, Command::Start, self.hold.valid_until);
        }
    }

    /// A check is told `active` once the service was started: before, it can only
    /// judge what a standby's check does.
    fn run(&mut self, facts: &mut Facts, command: Command, deadline: Instant) {
        self.asserted |= command == Command::Start;
        let role = if self.asserted {
            Role::Active
        } else {
            Role::Standby
        };
        let under = facts.under(Some(&self.hold));
        facts.run(command, role, deadline, under);
    }

    fn renew(&mut self, facts: &mut Facts, now: Instant) {
        let draft = NewWrite {
            expected: self.hold.revision,
            standing: RecordState::Active,
            term: Some(self.hold.term),
            grace: facts.config.timing.confirmation(),
        };
        self.renewal = Some(Box::new(prepare_write(
            facts,
            draft,
            now,
            self.hold.valid_until,
        )));
    }

    /// Returns when the running check is killed: when the lock runs out, and not
    /// later than it would have without the renewal beside the check.
    fn check_by(&self, facts: &Facts) -> Option<Instant> {
        let Phase::Checking { began, .. } = self.phase else {
            return None;
        };
        Some(
            began
                .after(facts.config.timing.validity())
                .min(self.hold.valid_until),
        )
    }

    /// Returns when the lock is renewed beside a check that has not ended: after R,
    /// or while there is still time for it.
    fn beside_at(&self, began: Instant, facts: &Facts) -> Instant {
        let r = facts.config.timing.renewal();
        began.after(r).min(self.hold.valid_until.before(r / 2))
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        let r = facts.config.timing.renewal();
        let step = match self.phase {
            Phase::Resting => Some(self.stroke_at.after(r)),
            Phase::Checking {
                began,
                warned,
                beside,
            } => {
                let beside_at = (!beside).then(|| self.beside_at(began, facts));
                let warn_at = (!warned).then(|| began.after(r));
                earliest(self.check_by(facts), earliest(beside_at, warn_at))
            }
            Phase::Due | Phase::Renewing | Phase::Renewed => None,
        };
        let renewal = self
            .renewal
            .as_ref()
            .and_then(|renewal| renewal.deadline(facts));
        let renewal = earliest(renewal, facts.unguarded_until());
        earliest(Some(self.hold.valid_until), earliest(step, renewal))
    }
}

const HUNG: &str = "the health check did not end within";

fn failed_check(outcome: &Outcome, after: Ms) -> Option<String> {
    match outcome {
        Outcome::Succeeded => None,
        Outcome::Failed(why) => Some(format!("health check failed: {why}")),
        Outcome::Overran => Some(format!("{HUNG} {after} and was killed")),
    }
}

impl Hold {
    /// A renewal was acknowledged as this revision; `sent` is when it was sent.
    pub(super) fn renewed(&mut self, facts: &Facts, revision: Revision, sent: Instant) {
        self.revision = revision;
        self.valid_until = sent.after(facts.config.timing.validity());
    }

    /// Says why, when an event shows that the lock is not this agent's any more:
    /// a rollback, or a newer record of somebody else.
    pub(super) fn contradicted(&self, facts: &Facts, event: &Event) -> Option<String> {
        if let Some(loss) = &facts.rolled_back {
            return Some(format!("the store has rolled back: {loss}"));
        }
        let key_state = match event {
            Event::Opened(opened) => &opened.key_state,
            Event::Read(Ok(key_state)) => key_state,
            Event::Tick
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(Err(_))
            | Event::Written(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Guard(_)
            | Event::Ended(..)
            | Event::Shutdown(_) => return None,
        };
        if key_state.revision < self.revision || facts.is_mine(key_state) {
            return None;
        }
        let holder = facts.seen.as_ref().map_or("", |seen| &seen.claim.holder);
        Some(format!(
            "revision {} is another's: {holder}",
            key_state.revision
        ))
    }

    /// A hint wakes, a read decides: asks for one when a hint names a revision
    /// that this agent did not write.
    pub(super) fn follow_hint(&self, facts: &mut Facts, now: Instant) {
        if facts.hinted > self.revision && facts.open && facts.io.is_none() {
            facts.read(now);
        }
    }
}
