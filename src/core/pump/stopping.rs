//! The service must go, and after it the lock: stop first, release after.
//!
//! A stop that has not succeeded when the service must be dead is killed, and the
//! last resort is run. Stop goes on being run until it succeeds, and beside it, in
//! turn, a last resort that failed.

use super::facts::{Facts, Service};
use super::left::Left;
use super::pending::attempt;
use super::standby::Standby;
use super::{Hold, NewWrite, Next, State, earliest, end, prepare_write};
use crate::core::command::{BESIDE_START, Command, LockContext, MAY_STILL_RUN, Outcome, Role};
use crate::core::event::{Effect, Ending, Event, Level, Written};
use crate::core::guard::{Fence, Inherited};
use crate::core::record::RecordState;
use crate::core::time::{Instant, Ms};
use crate::core::timing::SLACK;

/// What becomes of the lock when the service is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It is given back.
    Released,
    /// It was lost: there is nothing to give back.
    Lost,
}

/// Said once when stop did not succeed for an agent that ends and has no lock.
const NOT_KNOWN_DOWN: &str = "ending although stop did not succeed: see that the service is down \
    here; this agent does not hold the lock";

#[derive(Clone, Debug)]
pub(super) struct Stopping {
    left: Left,
    /// What is still to be done with it.
    leave: Leave,
    /// When the stop budget begins.
    from: Instant,
    /// When the service must be down: another may start it from then on.
    dead_by: Instant,
    /// V + C·R, although an earlier end holds since another wrote.
    bound: Instant,
    /// How the agent ends after it, when it was told to.
    ending: Option<Ending>,
    phase: Phase,
    late: bool,
    /// The agent was held up: what it waited for may not have had its time.
    held_up: bool,
    /// No stop has begun yet when the service had to be down and no start was left.
    owed: bool,
    /// A start that is still there at this instant cannot be killed.
    start_by: Instant,
    /// The last resort has succeeded.
    resorted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A start was killed; stop follows when it has ended, at this instant at the latest.
    Killing { until: Instant },
    /// Stop failed and is run again at this instant.
    Due(Instant),
    /// The stop command runs, as the guard was last told at the first instant; it is
    /// killed at the second.
    Running { told_at: Instant, until: Instant },
    /// The last resort runs; it is killed at this instant.
    Resorting { until: Instant },
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
        let dead_by = from.after(facts.config.timing.stop_budget());
        let stopping = Stopping::new(facts, Left::Hold(hold), leave, (from, dead_by), now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops the service that a previous life of this agent left running.
    pub(super) fn inherited(
        facts: &mut Facts,
        inherited: Inherited,
        why: String,
        now: Instant,
    ) -> Next {
        let left = Left::Inherited(inherited);
        let span = left.span(facts.config.timing, now);
        let stopping = Stopping::new(facts, left, Leave::Lost, span, now);
        Next::Go(State::Stopping(stopping), why)
    }

    /// Stops the service, gives a lock back that is held, and ends.
    pub(super) fn to_end(
        facts: &mut Facts,
        left: Left,
        ending: Ending,
        why: &str,
        now: Instant,
    ) -> Next {
        let leave = match &left {
            Left::Hold(_) => Leave::Released,
            Left::Nothing | Left::Inherited(_) => Leave::Lost,
        };
        let span = left.span(facts.config.timing, now);
        let mut stopping = Stopping::new(facts, left, leave, span, now);
        stopping.ending = Some(ending);
        Next::Go(State::Stopping(stopping), format!("{why}: ending"))
    }

    /// The stop budget is from when it begins to when the service must be dead.
    fn new(
        facts: &mut Facts,
        left: Left,
        leave: Leave,
        (from, dead_by): (Instant, Instant),
        now: Instant,
    ) -> Stopping {
        facts.kill(Command::Check);
        facts.kill(Command::Start);
        let phase = if facts.running(Command::Stop) {
            let (told_at, until) = (now, dead_by);
            Phase::Running { told_at, until }
        } else {
            let until = now.after(SLACK.min(dead_by.since(now) / 2));
            Phase::Killing { until }
        };
        let bound = left.bound(facts.config.timing, dead_by);
        Stopping {
            owed: !matches!(left, Left::Nothing),
            resorted: left.is_resorted(),
            left,
            leave,
            from,
            dead_by,
            bound,
            ending: None,
            phase,
            late: false,
            held_up: false,
            start_by: now.after(facts.config.timing.renewal()),
        }
    }

    /// Returns what the guard is to know: `None` when the service is down, or when
    /// it was not started under a lock.
    pub(super) fn fence(&self, facts: &Facts) -> Option<Fence> {
        let left = !matches!(self.left, Left::Nothing);
        let patience = facts.config.timing.guard_patience();
        let heard_of_by = |at: Instant| at.max(self.from).after(patience);
        // The agent's own turn comes first: it has until the end of a stop that runs.
        let own_turn = self.dead_by.after(SLACK / 2);
        let (act_at, stop_until) = match self.phase {
            Phase::Killing { until: at } | Phase::Due(at) => (heard_of_by(at), None),
            Phase::Running { told_at, .. } if !self.late => (heard_of_by(told_at), Some(own_turn)),
            Phase::Running { told_at, until } => {
                let over = self.give_up(until, facts);
                (heard_of_by(told_at), Some(heard_of_by(over)))
            }
            Phase::Resorting { until } => (heard_of_by(self.give_up(until, facts)), None),
            Phase::Down { .. } | Phase::Releasing { .. } => (own_turn, None),
        };
        (left && !self.is_down()).then_some(Fence {
            valid_until: self.from,
            act_at: if self.late {
                act_at
            } else {
                act_at.min(own_turn)
            },
            stop_until,
            dead_by: self.dead_by,
            resorted: self.resorted,
        })
    }

    /// Returns what commands are told of the lock that the service ran under.
    pub(super) fn under(&self, facts: &Facts) -> LockContext {
        self.left.under(facts)
    }

    pub(super) fn turn(mut self, facts: &mut Facts, event: &Event, now: Instant) -> Next {
        self.notice_delay(facts, now);
        match event {
            Event::Shutdown(_) => self.ending = Some(Ending::Clean),
            Event::Ended(Command::Stop, outcome) => self.stopped(facts, outcome, now),
            Event::Ended(Command::LastResort, outcome) => self.resorted(facts, outcome, now),
            Event::Written(written) => self.written(facts, written),
            Event::Closed(_) => self.not_released(facts),
            Event::Tick
            | Event::Opened(_)
            | Event::Rejected(_)
            | Event::Read(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Guard(_)
            | Event::Ended(Command::Check, _) => {}
            // A stop beside it does not count.
            Event::Ended(Command::Start, _) => match &mut self.phase {
                Phase::Due(at) => *at = now,
                Phase::Running { .. } if facts.began_beside_start(Command::Stop) => {
                    facts.kill(Command::Stop);
                }
                Phase::Killing { .. }
                | Phase::Running { .. }
                | Phase::Resorting { .. }
                | Phase::Down { .. }
                | Phase::Releasing { .. } => {}
            },
        }
        if facts.rolled_back.is_some() {
            self.leave = Leave::Lost;
        }
        self.advance(facts, now)
    }

    fn stopped(&mut self, facts: &mut Facts, outcome: &Outcome, now: Instant) {
        if facts.service == Service::Down {
            facts.say(Level::Info, "the service is down".to_owned());
            let until = now.after(attempt(facts));
            self.phase = Phase::Down { until };
            return;
        }
        // What it had not undone has been done by now.
        let undone = facts.began_beside_start(Command::Stop) && !facts.running(Command::Start);
        let why = outcome.why_not_down(undone);
        let text = match self.left {
            Left::Nothing => format!("stop failed: {why}; it is run again"),
            Left::Hold(_) | Left::Inherited(_) => {
                format!("stop failed: {why}; the lock is not released")
            }
        };
        facts.say(Level::Error, text);
        if let Phase::Running { until, .. } = self.phase {
            self.held_up |= *outcome == Outcome::Overran && now > until.after(SLACK);
        }
        if !matches!(self.phase, Phase::Resorting { .. }) {
            // Or it had no time.
            self.owed |= undone || self.held_up;
            let last = self.ending.is_some() && now >= self.dead_by && !self.may_resort(facts);
            let at_once = undone || self.held_up || last && !facts.running(Command::Start);
            let later = facts.config.timing.stop_again(now, self.bound);
            self.phase = Phase::Due(if at_once { now } else { later });
        }
    }

    /// Whatever the last resort says, only stop can tell that the service is down.
    fn resorted(&mut self, facts: &mut Facts, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::Succeeded if facts.began_beside_start(Command::LastResort) => {
                let text = format!("the last resort does not count: {BESIDE_START}");
                facts.say(Level::Error, text);
            }
            Outcome::Succeeded => {
                facts.say(Level::Warn, "the last resort succeeded".to_owned());
                self.resorted = true;
            }
            Outcome::Failed(_) | Outcome::Overran => {
                let text = format!("the last resort failed: {}", outcome.why());
                facts.say(Level::Error, text);
            }
        }
        if !matches!(self.phase, Phase::Resorting { .. }) {
            return;
        }
        if facts.running(Command::Stop) {
            let (told_at, until) = (now, now);
            self.phase = Phase::Running { told_at, until };
        } else {
            self.run_stop(facts, now);
        }
    }

    /// An answer to a renewal that was still under way says which revision to
    /// release; an answer to the release ends it. One attempt only.
    fn written(&mut self, facts: &mut Facts, written: &Written) {
        let releasing = matches!(self.phase, Phase::Releasing { .. });
        match written {
            Written::Stored(revision) if releasing => {
                facts.say(
                    Level::Info,
                    format!("the lock is released, revision {revision}"),
                );
                self.leave = Leave::Lost;
            }
            Written::Stored(revision) => {
                if let Left::Hold(hold) = &mut self.left {
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
        self.cry(facts, now);
        match self.phase {
            Phase::Killing { until } if !facts.running(Command::Start) || now >= until => {
                self.run_stop(facts, now);
            }
            Phase::Due(at) if now >= at && !self.must_end(facts, now) => {
                if self.late && self.may_resort(facts) {
                    self.run_last_resort(facts, now);
                } else {
                    self.run_stop(facts, now);
                }
            }
            Phase::Releasing { until } if now >= until => self.not_released(facts),
            Phase::Killing { .. }
            | Phase::Due(_)
            | Phase::Running { .. }
            | Phase::Resorting { .. }
            | Phase::Down { .. }
            | Phase::Releasing { .. } => {}
        }
        if self.must_end(facts, now) {
            return end(facts, Ending::NotStopped);
        }
        self.show_life(facts, now);
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

    fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down { .. } | Phase::Releasing { .. })
    }

    /// What should have had its time by now had none if this agent was held up. Who is
    /// awake in time has waited for it once more.
    fn notice_delay(&mut self, facts: &Facts, now: Instant) {
        if let Some(awake_by) = self.deadline(facts)
            && !self.is_down()
            && now >= awake_by
        {
            self.held_up = now > awake_by.after(SLACK);
        }
    }

    /// Whether an agent that was told to end has to do so with the service up: stop
    /// failed past its time, or cannot even be killed.
    fn must_end(&self, facts: &Facts, now: Instant) -> bool {
        let hopeless = facts.running(Command::Start) && now >= self.start_by;
        let (patience, owed) = match self.phase {
            Phase::Due(_) => (self.dead_by, self.held_up || self.owed && !hopeless),
            Phase::Running { until, .. } => (self.give_up(until, facts), self.held_up),
            Phase::Killing { .. }
            | Phase::Resorting { .. }
            | Phase::Down { .. }
            | Phase::Releasing { .. } => return false,
        };
        self.ending.is_some() && now >= patience && !owed
    }

    /// A command that cannot even be killed is waited for, once it is too late for
    /// everything else: the guard, which takes over from an agent that is silent, is
    /// told every R.
    fn show_life(&mut self, facts: &Facts, now: Instant) {
        let over = |until| self.late && now >= self.give_up(until, facts);
        if let Phase::Running { until, .. } = self.phase
            && over(until)
        {
            let (told_at, until) = (now, now);
            self.phase = Phase::Running { told_at, until };
        } else if let Phase::Resorting { until } = self.phase
            && over(until)
        {
            self.phase = Phase::Resorting { until: now };
        }
    }

    /// When a command that should have been killed has had time enough for that.
    fn give_up(&self, until: Instant, facts: &Facts) -> Instant {
        until.max(self.dead_by).after(facts.config.timing.renewal())
    }

    /// Says once that the promise may be broken, and runs the last resort: not where
    /// the service was never started under a lock.
    fn cry(&mut self, facts: &mut Facts, now: Instant) {
        if !self.late && !self.is_down() && now >= self.dead_by {
            self.late = true;
            if let Phase::Running { told_at, .. } = &mut self.phase {
                *told_at = now;
            }
            if let Left::Nothing = self.left {
                facts.say(Level::Error, NOT_KNOWN_DOWN.to_owned());
            } else {
                facts.say(Level::Error, MAY_STILL_RUN.to_owned());
                facts.want(Effect::KillService);
            }
            if self.may_resort(facts) {
                facts.kill(Command::Stop);
                self.run_last_resort(facts, now);
            }
        }
    }

    /// Whether there is a last resort that has not succeeded yet.
    fn may_resort(&self, facts: &Facts) -> bool {
        facts.config.last_resort && !self.resorted && !matches!(self.left, Left::Nothing)
    }

    fn run_last_resort(&mut self, facts: &mut Facts, now: Instant) {
        facts.say(Level::Error, "running the last resort".to_owned());
        let until = now.after(facts.config.timing.stop_budget());
        let under = self.under(facts);
        facts.run(Command::LastResort, Role::Standby, until, under);
        self.phase = Phase::Resorting { until };
    }

    fn run_stop(&mut self, facts: &mut Facts, now: Instant) {
        self.held_up = false;
        self.owed &= now < self.dead_by.max(self.bound) || facts.running(Command::Start);
        let timing = facts.config.timing;
        let until = timing.stop_until(now, self.dead_by, self.bound);
        let under = self.under(facts);
        facts.run(Command::Stop, Role::Standby, until, under);
        let told_at = now;
        self.phase = Phase::Running { told_at, until };
    }

    fn release(&mut self, facts: &mut Facts, now: Instant) {
        let Left::Hold(hold) = &self.left else {
            return;
        };
        let draft = NewWrite {
            expected: hold.revision,
            standing: RecordState::Released,
            term: Some(hold.term),
            grace: facts.config.timing.confirmation(),
        };
        let until = now.after(attempt(facts));
        prepare_write(facts, draft, now, until).advance(facts, now);
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
            Phase::Killing { until: at } | Phase::Due(at) => earliest(Some(at), dead_by),
            Phase::Running { .. } if !self.late => dead_by,
            // Its end is announced; the watchdog ends it.
            Phase::Running { until, .. } | Phase::Resorting { until } => {
                Some(self.give_up(until, facts))
            }
            Phase::Down { until } | Phase::Releasing { until } => Some(until),
        }
    }
}
