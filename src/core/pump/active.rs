//! The lock is this agent's: check, renew, assert start, every R.

use super::facts::Facts;
use super::pending::{Pending, Verdict};
use super::stopping::{Leave, Stopping};
use super::{Draft, Hold, Next, State, pend, sooner};
use crate::core::event::{Command, Event, Level, Outcome, Role};
use crate::core::record::{Revision, Standing};
use crate::core::timing::{Instant, Ms};

#[derive(Clone, Debug)]
pub(super) struct Active {
    hold: Hold,
    stroke_at: Instant,
    phase: Phase,
    /// A start command has succeeded in this term.
    up: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The stroke begins.
    Due,
    /// The check runs; whether it was already said to run over R.
    Checking { warned: bool },
    /// The renewal is under way.
    Renewing(Box<Pending>),
    /// The lock is renewed; start is to be asserted.
    Renewed,
    /// Until the next stroke.
    Resting,
}

impl Active {
    /// A free lock was just taken, after a check: that was this stroke's renewal.
    pub(super) fn taken(hold: Hold, now: Instant) -> Active {
        Active {
            hold,
            stroke_at: now,
            phase: Phase::Renewed,
            up: false,
        }
    }

    /// The wait for the holder before is over: the stroke that starts the service
    /// begins with a check and a renewal.
    pub(super) fn confirmed(hold: Hold, now: Instant) -> Active {
        Active {
            hold,
            stroke_at: now,
            phase: Phase::Due,
            up: false,
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(signal) => {
                return Stopping::to_end(facts, Some(self.hold), signal, now);
            }
            Event::Ended(Command::Start, outcome) => self.started(facts, outcome),
            Event::Ended(Command::Check, outcome) => {
                if let Phase::Checking { .. } = self.phase {
                    if let Some(why) = failed_check(outcome) {
                        return Stopping::enter(facts, self.hold, Leave::Released, why, now);
                    }
                    self.phase = Phase::Renewing(Box::new(self.renewal(facts, now)));
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
            | Event::Ended(Command::Stop, _) => {}
        }
        if let Some(why) = self.heed_renewal(facts, event, now) {
            return Stopping::enter(facts, self.hold, Leave::Lost, why, now);
        }
        if let Some(why) = self.hold.contradicted(facts, event) {
            return Stopping::enter(facts, self.hold, Leave::Lost, why, now);
        }
        if now >= self.hold.valid_until {
            let why = self.expired(facts);
            return Stopping::enter(facts, self.hold, Leave::Lost, why, now);
        }
        self.advance(facts, now);
        Next::Stay(State::Active(self))
    }

    /// Takes in what became of the renewal; says why, when the lock is lost.
    fn heed_renewal(&mut self, facts: &mut Facts, event: &Event, now: Instant) -> Option<String> {
        let Phase::Renewing(pending) = &mut self.phase else {
            return None;
        };
        match pending.heed(facts, event, now) {
            Verdict::Open => None,
            Verdict::Held { revision, sent } => {
                self.hold.revision = revision;
                self.hold.valid_until = sent.after(facts.config.timing.validity());
                self.phase = Phase::Renewed;
                facts.own_write();
                None
            }
            Verdict::Lost(why) => {
                facts.seen = None;
                Some(why)
            }
            Verdict::RolledBack(why) => {
                facts.roll_back(&why);
                Some("the store has rolled back".to_owned())
            }
        }
    }

    fn started(&mut self, facts: &mut Facts, outcome: &Outcome) {
        match outcome {
            Outcome::Succeeded => {
                if !self.up {
                    facts.say(
                        Level::Info,
                        format!("the service runs here, term {}", self.hold.term),
                    );
                }
                self.up = true;
            }
            Outcome::Failed(why) => {
                self.up = false;
                facts.say(
                    Level::Warn,
                    format!("start failed: {why}; asserted again in the next stroke"),
                );
            }
            Outcome::Overran => {
                self.up = false;
                facts.say(
                    Level::Error,
                    "start was killed: the lock ran out".to_owned(),
                );
            }
        }
    }

    fn expired(&self, facts: &Facts) -> String {
        let validity = Ms(facts.config.timing.validity());
        match &self.phase {
            Phase::Checking { .. } => {
                format!(
                    "the health check did not end before the lock ran out, {validity} after its renewal"
                )
            }
            Phase::Due | Phase::Renewing(_) | Phase::Renewed | Phase::Resting => {
                format!("no renewal was acknowledged within {validity}")
            }
        }
    }

    fn advance(&mut self, facts: &mut Facts, now: Instant) {
        let r = facts.config.timing.renewal();
        if let Phase::Renewed = self.phase {
            self.phase = Phase::Resting;
            if facts.running(Command::Start) {
                let deadline = self.hold.valid_until;
                facts.extend(Command::Start, deadline);
            } else {
                self.run(facts, Command::Start);
            }
        }
        if let Phase::Resting = self.phase
            && now >= self.stroke_at.after(r)
        {
            // At once when it ran over, but then the lost time is lost.
            self.stroke_at = self.stroke_at.after(r).max(now.before(r / 2));
            self.phase = Phase::Due;
        }
        if let Phase::Due = self.phase {
            if facts.config.check && !facts.running(Command::Check) {
                self.run(facts, Command::Check);
                self.phase = Phase::Checking { warned: false };
            } else if !facts.config.check {
                self.phase = Phase::Renewing(Box::new(self.renewal(facts, now)));
            }
        }
        if let Phase::Checking { warned } = &mut self.phase
            && !*warned
            && now >= self.stroke_at.after(r)
        {
            *warned = true;
            facts.say(
                Level::Warn,
                format!("the health check takes longer than R = {}", Ms(r)),
            );
        }
        if let Phase::Renewing(pending) = &mut self.phase {
            pending.advance(facts, now);
        }
        if let Phase::Resting | Phase::Checking { .. } = self.phase {
            self.hold.follow_hint(facts, now);
        }
    }

    fn run(&self, facts: &mut Facts, command: Command) {
        let Hold {
            term,
            valid_until,
            previous,
            ..
        } = &self.hold;
        facts.run(
            command,
            Role::Active,
            *valid_until,
            Some(*term),
            previous.clone(),
        );
    }

    fn renewal(&self, facts: &mut Facts, now: Instant) -> Pending {
        let draft = Draft {
            expected: self.hold.revision,
            standing: Standing::Active,
            term: Some(self.hold.term),
            grace: facts.config.timing.confirmation(),
        };
        pend(facts, draft, now, self.hold.valid_until)
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        let over_at = self.stroke_at.after(facts.config.timing.renewal());
        let next = match &self.phase {
            Phase::Resting | Phase::Checking { warned: false } => Some(over_at),
            Phase::Renewing(pending) => pending.deadline(facts),
            Phase::Due | Phase::Checking { warned: true } | Phase::Renewed => None,
        };
        sooner(Some(self.hold.valid_until), next)
    }
}

fn failed_check(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Succeeded => None,
        Outcome::Failed(why) => Some(format!("health check failed: {why}")),
        Outcome::Overran => {
            Some("health check did not end before the lock ran out and was killed".to_owned())
        }
    }
}

impl Hold {
    /// Says why, when an event shows that the lock is not this agent's any more:
    /// a rollback, or a newer record of somebody else.
    pub(super) fn contradicted(&self, facts: &mut Facts, event: &Event) -> Option<String> {
        if let Some(loss) = &facts.rolled_back {
            return Some(format!("the store has rolled back: {loss}"));
        }
        let sight = match event {
            Event::Opened(opened) => &opened.sight,
            Event::Read(Ok(sight)) => sight,
            Event::Tick
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(Err(_))
            | Event::Written(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Ended(..)
            | Event::Shutdown(_) => return None,
        };
        if sight.revision < self.revision || facts.is_mine(sight) {
            return None;
        }
        let holder = facts.seen.as_ref().map_or("", |seen| &seen.claim.holder);
        Some(format!(
            "revision {} is another's: {holder}",
            sight.revision
        ))
    }

    /// A hint wakes, a read decides: asks for one when a hint names a revision
    /// that this agent did not write.
    pub(super) fn follow_hint(&self, facts: &mut Facts, now: Instant) {
        if facts.hinted == Revision(u64::MAX) || facts.hinted <= self.revision {
            return;
        }
        if facts.open && facts.io.is_none() {
            facts.read(now);
        }
    }
}
