//! The service must go, and after it the lock: stop first, release after.

use super::facts::{Facts, Service};
use super::pending::attempt;
use super::standby::Standby;
use super::{Draft, Hold, Next, State, end, pend, sooner};
use crate::core::event::{Command, Ending, Event, Level, Outcome, Role, Written};
use crate::core::record::Standing;
use crate::core::timing::{Instant, Ms, SLACK};

/// What becomes of the lock when the service is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It is given back.
    Released,
    /// It was lost: there is nothing to give back.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Stopping {
    /// The lock to give back, while it is this agent's.
    hold: Option<Hold>,
    /// When the service must be down: another may start it from then on.
    dead_by: Instant,
    /// The signal that told the agent to end.
    signal: Option<&'static str>,
    phase: Phase,
    late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A start was killed; stop follows when it has ended, at this instant at the latest.
    Killing { until: Instant },
    /// Stop failed and is run again at this instant.
    Due(Instant),
    /// The stop command runs.
    Running,
    /// The service is down; the release waits for the store until this instant.
    Down { until: Instant },
    /// The release is with the store.
    Releasing,
}

impl Stopping {
    /// Stops the service of a lock that was lost or cannot be kept.
    pub(super) fn enter(
        facts: &mut Facts,
        hold: Hold,
        leave: Leave,
        why: String,
        now: Instant,
    ) -> Next {
        // Whoever wrote over this agent's record may count from before now.
        let from = match leave {
            Leave::Released => hold.valid_until,
            Leave::Lost => hold.valid_until.min(now),
        };
        let dead_by = from.after(facts.config.timing.stop_budget());
        let hold = match leave {
            Leave::Released => Some(hold),
            Leave::Lost => None,
        };
        Next::Go(
            State::Stopping(Stopping::new(facts, hold, dead_by, None, now)),
            why,
        )
    }

    /// Stops the service, gives a lock back that is held, and ends.
    pub(super) fn to_end(
        facts: &mut Facts,
        hold: Option<Hold>,
        signal: &'static str,
        now: Instant,
    ) -> Next {
        let from = hold.as_ref().map_or(now, |hold| hold.valid_until);
        let dead_by = from.after(facts.config.timing.stop_budget());
        let stopping = Stopping::new(facts, hold, dead_by, Some(signal), now);
        Next::Go(State::Stopping(stopping), format!("{signal}: ending"))
    }

    fn new(
        facts: &mut Facts,
        hold: Option<Hold>,
        dead_by: Instant,
        signal: Option<&'static str>,
        now: Instant,
    ) -> Stopping {
        facts.kill(Command::Check);
        facts.kill(Command::Start);
        let phase = if facts.running(Command::Stop) {
            Phase::Running
        } else {
            Phase::Killing {
                until: now.after(SLACK),
            }
        };
        Stopping {
            hold,
            dead_by,
            signal,
            phase,
            late: false,
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(signal) => self.signal = Some(signal),
            Event::Ended(Command::Stop, outcome) => self.stopped(facts, outcome, now),
            Event::Written(written) => self.written(facts, written),
            Event::Tick
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Ended(Command::Check | Command::Start, _) => {}
        }
        if facts.rolled_back.is_some() {
            self.hold = None;
        }
        self.advance(facts, now)
    }

    fn stopped(&mut self, facts: &mut Facts, outcome: &Outcome, now: Instant) {
        let why = match outcome {
            Outcome::Succeeded => {
                facts.say(Level::Info, "the service is down".to_owned());
                self.phase = Phase::Down {
                    until: now.after(attempt(facts)),
                };
                return;
            }
            Outcome::Failed(why) => why.as_str(),
            Outcome::Overran => "it did not end in time and was killed",
        };
        facts.service = Service::MayRun;
        facts.say(
            Level::Error,
            format!("stop failed: {why}; the lock is not released"),
        );
        let r = facts.config.timing.renewal();
        self.phase = Phase::Due(now.after(if now < self.dead_by { r / 4 } else { r }));
    }

    /// An answer to a renewal that was still under way says which revision to
    /// release; an answer to the release ends it. One attempt only.
    fn written(&mut self, facts: &mut Facts, written: &Written) {
        match (written, self.phase, &mut self.hold) {
            (Written::Stored(revision), _, Some(hold)) if self.phase != Phase::Releasing => {
                hold.revision = *revision;
            }
            (Written::Stored(revision), Phase::Releasing, _) => {
                facts.high_water = facts.high_water.max(*revision);
                facts.say(
                    Level::Info,
                    format!("the lock is released, revision {revision}"),
                );
                self.hold = None;
            }
            (Written::Moved(_), Phase::Releasing, _) => {
                facts.say(Level::Info, "the lock is another's already".to_owned());
                self.hold = None;
            }
            (Written::Denied(_) | Written::Unknown(_), Phase::Releasing, _) => {
                facts.say(
                    Level::Warn,
                    "the lock could not be released: it is left to expire".to_owned(),
                );
                self.hold = None;
            }
            (_, Phase::Killing { .. } | Phase::Due(_) | Phase::Running | Phase::Down { .. }, _) => {
            }
        }
    }

    fn advance(mut self, facts: &mut Facts, now: Instant) -> Next {
        match self.phase {
            Phase::Killing { until } if !facts.running(Command::Start) || now >= until => {
                self.run_stop(facts, now);
            }
            Phase::Due(_) if self.overdue(now) && self.signal.is_some() => {
                self.cry(facts, now);
                return end(facts, Ending::NotStopped);
            }
            Phase::Due(at) if now >= at => self.run_stop(facts, now),
            Phase::Killing { .. }
            | Phase::Due(_)
            | Phase::Running
            | Phase::Down { .. }
            | Phase::Releasing => {}
        }
        self.cry(facts, now);
        if let Phase::Down { until } = self.phase {
            if self.hold.is_some() && facts.open && facts.io.is_none() {
                self.release(facts, now);
            } else if self.hold.is_none() || now >= until || !facts.open {
                return self.leave(facts, now);
            }
        }
        if self.phase == Phase::Releasing && self.hold.is_none() {
            return self.leave(facts, now);
        }
        Next::Stay(State::Stopping(self))
    }

    fn overdue(&self, now: Instant) -> bool {
        let down = matches!(self.phase, Phase::Down { .. } | Phase::Releasing);
        now >= self.dead_by && !down
    }

    /// Says once that the promise may be broken.
    fn cry(&mut self, facts: &mut Facts, now: Instant) {
        if !self.late && self.overdue(now) {
            self.late = true;
            let text = "THE SERVICE MAY STILL RUN although its lock has run out: another host may \
                        start it now; stop it by hand";
            facts.say(Level::Error, text.to_owned());
        }
    }

    fn run_stop(&mut self, facts: &mut Facts, now: Instant) {
        let again = now.after(facts.config.timing.stop_budget());
        let deadline = if now < self.dead_by {
            self.dead_by
        } else {
            again
        };
        facts.run(Command::Stop, Role::Standby, deadline, self.hold.as_ref());
        self.phase = Phase::Running;
    }

    fn release(&mut self, facts: &mut Facts, now: Instant) {
        let Some(hold) = &self.hold else { return };
        let draft = Draft {
            expected: hold.revision,
            standing: Standing::Released,
            term: Some(hold.term),
            grace: facts.config.timing.confirmation(),
        };
        pend(facts, draft, now, now.after(attempt(facts))).advance(facts, now);
        self.phase = Phase::Releasing;
    }

    fn leave(self, facts: &mut Facts, now: Instant) -> Next {
        if self.signal.is_some() {
            return end(facts, Ending::Clean);
        }
        let taken = Ms(self.dead_by.since(now));
        let why = if self.late {
            "down, too late".to_owned()
        } else {
            format!("down, {taken} before it had to be")
        };
        Next::Go(State::Standby(Standby::new(now)), why)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let dead_by = (!self.late).then_some(self.dead_by);
        match self.phase {
            Phase::Killing { until: at } | Phase::Due(at) => sooner(Some(at), dead_by),
            Phase::Running => dead_by,
            Phase::Down { until } => Some(until),
            Phase::Releasing => None,
        }
    }
}
