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
    /// The lock that the service ran under, if any.
    hold: Option<Hold>,
    /// What is still to be done with it.
    leave: Leave,
    /// When the service must be down: another may start it from then on.
    dead_by: Instant,
    /// How the agent ends after it, when it was told to.
    ending: Option<Ending>,
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
    /// The release is with the store, and is waited for until this instant.
    Releasing { until: Instant },
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
        let stopping = Stopping::new(facts, Some(hold), leave, from, now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops the service, gives a lock back that is held, and ends.
    pub(super) fn to_end(
        facts: &mut Facts,
        hold: Option<Hold>,
        ending: Ending,
        why: &str,
        now: Instant,
    ) -> Next {
        let from = hold.as_ref().map_or(now, |hold| hold.valid_until);
        let leave = if hold.is_some() {
            Leave::Released
        } else {
            Leave::Lost
        };
        let mut stopping = Stopping::new(facts, hold, leave, from, now);
        stopping.ending = Some(ending);
        Next::Go(State::Stopping(stopping), format!("{why}: ending"))
    }

    /// `from` is when the stop budget begins.
    fn new(
        facts: &mut Facts,
        hold: Option<Hold>,
        leave: Leave,
        from: Instant,
        now: Instant,
    ) -> Stopping {
        facts.kill(Command::Check);
        facts.kill(Command::Start);
        let dead_by = from.after(facts.config.timing.stop_budget());
        let phase = if facts.running(Command::Stop) {
            Phase::Running
        } else {
            let until = now.after(SLACK.min(dead_by.since(now) / 2));
            Phase::Killing { until }
        };
        Stopping {
            hold,
            leave,
            dead_by,
            ending: None,
            phase,
            late: false,
        }
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        match event {
            Event::Shutdown(_) => self.ending = Some(Ending::Clean),
            Event::Ended(Command::Stop, outcome) => self.stopped(facts, outcome, now),
            Event::Written(written) => self.written(facts, written),
            Event::Closed(_) => self.not_released(facts),
            Event::Tick
            | Event::Opened(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Ended(Command::Check | Command::Start, _) => {}
        }
        if facts.rolled_back.is_some() {
            self.leave = Leave::Lost;
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
        let releasing = matches!(self.phase, Phase::Releasing { .. });
        match written {
            Written::Stored(revision) if releasing => {
                facts.high_water = facts.high_water.max(*revision);
                facts.say(
                    Level::Info,
                    format!("the lock is released, revision {revision}"),
                );
                self.leave = Leave::Lost;
            }
            Written::Stored(revision) => {
                if let Some(hold) = &mut self.hold {
                    hold.revision = *revision;
                }
            }
            Written::Moved(_) if releasing => {
                facts.say(Level::Info, "the lock is another's already".to_owned());
                self.leave = Leave::Lost;
            }
            Written::Moved(_) | Written::Denied(_) | Written::Unknown(_) => {
                self.not_released(facts);
            }
        }
    }

    /// The release, if one is under way, came to nothing.
    fn not_released(&mut self, facts: &mut Facts) {
        if let Phase::Releasing { .. } = self.phase {
            let text = "the lock could not be released: it is left to expire";
            facts.say(Level::Warn, text.to_owned());
            self.leave = Leave::Lost;
        }
    }

    fn advance(mut self, facts: &mut Facts, now: Instant) -> Next {
        match self.phase {
            Phase::Killing { until } if !facts.running(Command::Start) || now >= until => {
                self.run_stop(facts, now);
            }
            Phase::Due(at) if now >= at && !self.must_end(facts, now) => self.run_stop(facts, now),
            Phase::Releasing { until } if now >= until => self.not_released(facts),
            Phase::Killing { .. }
            | Phase::Due(_)
            | Phase::Running
            | Phase::Down { .. }
            | Phase::Releasing { .. } => {}
        }
        self.cry(facts, now);
        if self.must_end(facts, now) {
            return end(facts, Ending::NotStopped);
        }
        if let Phase::Down { until } = self.phase {
            let wanted = self.leave == Leave::Released && facts.open && now < until;
            if wanted && facts.io.is_none() {
                self.release(facts, now);
            } else if !wanted {
                return self.done(facts, now);
            }
        }
        if let Phase::Releasing { .. } = self.phase
            && self.leave == Leave::Lost
        {
            return self.done(facts, now);
        }
        Next::Stay(State::Stopping(self))
    }

    /// Whether an agent that was told to end has to do so with the service up: stop
    /// failed past its time, or cannot even be killed.
    fn must_end(&self, facts: &Facts, now: Instant) -> bool {
        let patience = match self.phase {
            Phase::Due(_) => self.dead_by,
            Phase::Running => self.give_up(facts),
            Phase::Killing { .. } | Phase::Down { .. } | Phase::Releasing { .. } => return false,
        };
        self.ending.is_some() && now >= patience
    }

    fn give_up(&self, facts: &Facts) -> Instant {
        self.dead_by.after(facts.config.timing.renewal())
    }

    /// Says once that the promise may be broken.
    fn cry(&mut self, facts: &mut Facts, now: Instant) {
        let down = matches!(self.phase, Phase::Down { .. } | Phase::Releasing { .. });
        if !self.late && !down && now >= self.dead_by {
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
        let until = now.after(attempt(facts));
        pend(facts, draft, now, until).advance(facts, now);
        self.phase = Phase::Releasing { until };
    }

    fn done(self, facts: &mut Facts, now: Instant) -> Next {
        if let Some(ending) = self.ending {
            return end(facts, ending);
        }
        let why = if self.late {
            "down, too late".to_owned()
        } else {
            format!("down, {} before it had to be", Ms(self.dead_by.since(now)))
        };
        Next::Go(State::Standby(Standby::new(now)), why)
    }

    pub(super) fn deadline(&self, facts: &Facts) -> Option<Instant> {
        let dead_by = (!self.late).then_some(self.dead_by);
        match self.phase {
            Phase::Killing { until: at } | Phase::Due(at) => sooner(Some(at), dead_by),
            Phase::Running if self.late => self.ending.as_ref().map(|_| self.give_up(facts)),
            Phase::Running => dead_by,
            Phase::Down { until } | Phase::Releasing { until } => Some(until),
        }
    }
}
