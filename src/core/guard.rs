//! When the guard, a second process that outlives the agent, acts, and what it does then.
//!
//! ```text
//!  the agent lives       V        V + quarter                     dead by
//!  ----------------------+------------+------------------------------+---->
//!                        |            | silent: kill the agent, stop | last resort
//!                        | gone: kill what it left, stop             | last resort
//! ```
//!
//! # Obligations
//!
//! 1. Whatever way the agent is lost, the same few lines act.
//! 2. An agent that is silent for too long is killed before anything else is
//!    done: what was frozen must not thaw and start the service again.
//! 3. The watchdog device is never opened or kicked so late that it bites after the
//!    service must be dead, unless that is known to be down. So what a guard before
//!    left running bites, if nobody ends the service meanwhile.
//! 4. While it waits it needs no memory.
//! 5. A deadline is looked at after all words that were said before it.

mod device;
mod fence;
mod news;

use std::time::Duration;

pub use self::fence::{Fence, Inherited, Watch};
pub use self::news::{Act, News};

use self::device::{Device, last_kick};
use crate::core::command::{BESIDE_START, Command, MAY_STILL_RUN, Outcome};
use crate::core::event::Level;
use crate::core::time::{Instant, Ms};
use crate::core::timing::{SLACK, Timing};
use crate::core::watchdog_timeout::wanted_timeout;

/// The stop command of the agent, of which the guard is told and sees the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentsStop {
    /// None runs for all that is known.
    None,
    /// One runs.
    Runs,
    /// It ended then, and the agent has said nothing since.
    Ended(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The agent keeps its word, or has until V.
    Watching,
    /// What the agent left was killed; stop follows when start has ended, at this instant
    /// at the latest.
    Killing(Instant),
    /// Stop is run at this instant, again as a rule.
    Due(Instant),
    /// The stop command has until then.
    Stopping(Instant),
    /// The last resort has until then.
    Resorting(Instant),
    /// Nothing happens any more.
    Left,
}

/// The guard's whole mind.
#[derive(Clone, Debug)]
pub struct Guard {
    timing: Timing,
    /// There is a last resort.
    last_resort: bool,
    /// There is a watchdog device to be used.
    device_wanted: bool,
    device: Option<Device>,
    /// It was tried, or has run.
    device_known: bool,
    watch: Watch,
    /// The latest end of the service that was told since it was down: V + C·R, although
    /// an earlier one holds since another wrote.
    bound: Option<Instant>,
    agents_stop: AgentsStop,
    /// The agent has said something that the device has not been kicked for yet.
    kick_owed: bool,
    /// The agent was told that the guard is prepared.
    armed: bool,
    agent: bool,
    /// Another life of the agent waits for this guard's end.
    awaited: bool,
    phase: Phase,
    cried: bool,
    /// The last resort has succeeded.
    resorted: bool,
    /// Stop was run since the last resort was.
    stop_tried: bool,
    /// Stop was run and has not ended.
    stop_runs: bool,
    /// A start of the agent that was killed has not ended, for all that is known.
    start_dies: bool,
    /// It had not when the guard's own command began: it could do its work after that.
    beside_start: bool,
    /// The guard was held up, and killed a stop that may not have had its time.
    held_up: bool,
    /// No stop has begun yet when the service had to be down and no start was left.
    owed: bool,
    acts: Vec<Act>,
}

impl Guard {
    /// Returns a guard that was told nothing yet, of an agent that lives.
    #[must_use]
    pub fn new(timing: Timing, last_resort: bool, device_wanted: bool) -> Guard {
        Guard {
            timing,
            last_resort,
            device_wanted,
            device: None,
            device_known: false,
            watch: Watch::Down,
            bound: None,
            agents_stop: AgentsStop::None,
            kick_owed: false,
            armed: false,
            agent: true,
            awaited: false,
            phase: Phase::Watching,
            cried: false,
            resorted: false,
            stop_tried: false,
            stop_runs: false,
            start_dies: false,
            beside_start: false,
            held_up: false,
            owed: true,
            acts: Vec::with_capacity(8),
        }
    }

    /// Another life of the agent may have been set up in another way. What was
    /// told before stands.
    pub fn set_up(&mut self, timing: Timing, last_resort: bool, device_wanted: bool) {
        self.timing = timing;
        self.last_resort = last_resort;
        self.device_wanted = device_wanted;
        self.device_known = self.device.is_some();
        self.armed = false;
    }

    /// Returns what the agent told last.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Returns whether the guard has begun to end the service.
    #[must_use]
    pub fn acting(&self) -> bool {
        self.phase != Phase::Watching
    }

    /// Takes in what happened and returns what to do about it; deadlines are for
    /// [`News::Tick`] alone, which follows whatever else there was. The list is handed
    /// back with [`Guard::done`], so that waiting needs no memory.
    pub fn turn(&mut self, news: News, now: Instant) -> Vec<Act> {
        match news {
            News::Tick => self.advance(now),
            News::Told(watch) => self.told(watch, now),
            News::AgentGone => self.agent_gone(now),
            News::AgentBack => {
                self.agent = true;
                self.awaited = self.acting();
                if !self.acting() {
                    self.kill_left();
                }
            }
            News::AgentsStopBegan => self.agents_stop = AgentsStop::Runs,
            News::AgentsStopEnded => self.agents_stop = AgentsStop::Ended(now),
            News::GivenUp => self.leave(),
            News::Device(timeout) => {
                let kicked_at = now;
                self.device = Some(Device { timeout, kicked_at });
                self.device_known = true;
                if let Watch::MayRun(_) = self.watch {
                    self.say_armed();
                }
            }
            News::NoDevice(None) => {
                self.device_wanted = false;
                if let Watch::MayRun(_) = self.watch {
                    self.say_armed();
                }
            }
            News::NoDevice(Some(why)) => self.act(Act::SayUnfit(why)),
            News::NoStart => {
                self.beside_start = false;
                self.start_gone(now);
            }
            News::StartGone => self.start_gone(now),
            News::Ended(Command::Stop, outcome) => self.stopped(&outcome, now),
            News::Ended(Command::LastResort, outcome) => self.resorted(&outcome, now),
            News::Ended(Command::Check | Command::Start, _) => {}
        }
        std::mem::take(&mut self.acts)
    }

    /// Takes the list of [`Guard::turn`] back.
    pub fn done(&mut self, mut acts: Vec<Act>) {
        acts.clear();
        self.acts = acts;
    }

    /// Returns when the guard wants a [`News::Tick`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let act_at = match self.phase {
            Phase::Watching => self.act_at(),
            Phase::Killing(at) | Phase::Due(at) | Phase::Stopping(at) | Phase::Resorting(at) => {
                let dead_by = self.dead_by().filter(|_| !self.cried);
                Some(dead_by.map_or(at, |dead_by| at.min(dead_by)))
            }
            Phase::Left => None,
        };
        match (act_at, self.kick_at()) {
            (Some(act), Some(kick)) => Some(act.min(kick)),
            (one, other) => one.or(other),
        }
    }

    fn told(&mut self, watch: Watch, now: Instant) {
        if self.acting() {
            return;
        }
        self.watch = watch;
        self.bound = self.bound.max(self.dead_by());
        if let AgentsStop::Ended(_) = self.agents_stop {
            self.agents_stop = AgentsStop::None;
        }
        self.kick_owed = watch != Watch::Down;
        match watch {
            Watch::Down => {
                self.bound = None;
                self.armed = false;
                if self.device.is_some() {
                    self.act(Act::Disarm);
                } else if self.device_wanted && !self.device_known {
                    self.device_known = true;
                    self.act(Act::Try);
                }
            }
            Watch::MayRun(_) if self.armed => {}
            Watch::MayRun(fence) if self.device_wanted && self.device.is_none() => {
                // One that a guard before left running bites, unless it is opened.
                let timeout = wanted_timeout(self.timing).unwrap_or_default();
                if now <= last_kick(fence, timeout) {
                    self.act(Act::Arm);
                }
            }
            Watch::MayRun(_) => self.say_armed(),
        }
    }

    /// The device was closed and does not run any more.
    pub fn disarmed(&mut self) {
        self.device = None;
    }

    fn say_armed(&mut self) {
        self.armed = true;
        self.act(Act::SayArmed);
    }

    fn agent_gone(&mut self, now: Instant) {
        self.agent = false;
        self.awaited = false;
        if self.acting() {
            return;
        }
        match self.watch {
            Watch::Down => self.leave(),
            Watch::MayRun(fence) => {
                if now < fence.valid_until {
                    let left = Ms(fence.valid_until.since(now));
                    let text = format!(
                        "the agent is gone; unless it is back within {left}, \
                         the guard stops the service"
                    );
                    self.say(Level::Warn, text);
                }
            }
        }
    }

    fn start_gone(&mut self, now: Instant) {
        self.start_dies = false;
        match self.phase {
            Phase::Killing(_) | Phase::Due(_) => self.phase = Phase::Due(now),
            // It does not count.
            Phase::Stopping(_) if self.beside_start => self.act(Act::Kill(Command::Stop)),
            Phase::Watching | Phase::Stopping(_) | Phase::Resorting(_) | Phase::Left => {}
        }
    }

    fn stopped(&mut self, outcome: &Outcome, now: Instant) {
        self.stop_runs = false;
        let succeeded = *outcome == Outcome::Succeeded;
        if succeeded && !self.beside_start {
            let text = if self.cried {
                "the guard: the service is down, too late".to_owned()
            } else {
                let left = self.dead_by().map_or(Duration::ZERO, |at| at.since(now));
                format!(
                    "the guard: the service is down, {} before it had to be",
                    Ms(left)
                )
            };
            self.say(Level::Warn, text);
            self.watch = Watch::Down;
            return self.leave();
        }
        if let Phase::Stopping(_) = self.phase {
            // What it had not undone has been done by now.
            let undone = self.beside_start && !self.start_dies;
            let why = outcome.why_not_down(undone);
            self.say(Level::Error, format!("the guard: stop failed: {why}"));
            let at_once = undone || self.held_up;
            self.owed |= at_once;
            let later = self.timing.stop_again(now, self.bound.unwrap_or(now));
            self.phase = Phase::Due(if at_once { now } else { later });
        }
    }

    fn resorted(&mut self, outcome: &Outcome, now: Instant) {
        self.resorted |= *outcome == Outcome::Succeeded && !self.beside_start;
        let (level, how) = match outcome {
            Outcome::Succeeded if self.beside_start => {
                (Level::Error, format!("does not count: {BESIDE_START}"))
            }
            Outcome::Succeeded => (Level::Warn, "succeeded".to_owned()),
            Outcome::Failed(_) | Outcome::Overran => {
                (Level::Error, format!("failed: {}", outcome.why()))
            }
        };
        self.say(level, format!("the guard: the last resort {how}"));
        self.phase = Phase::Due(now);
    }

    fn advance(&mut self, now: Instant) {
        if self.phase == Phase::Left {
            return;
        }
        if self.phase == Phase::Watching && self.act_at().is_some_and(|at| now >= at) {
            self.begin(now);
        }
        if let Phase::Killing(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Due(now);
        }
        if let Phase::Stopping(until) = self.phase
            && now >= until
        {
            self.act(Act::Kill(Command::Stop));
            self.held_up = now > until.after(SLACK.max(self.timing.guard_patience()));
            // Asked for again should it not end.
            self.phase = Phase::Stopping(now.after(self.timing.renewal()));
        }
        if let Phase::Resorting(until) = self.phase
            && now >= until
        {
            self.act(Act::Kill(Command::LastResort));
            self.phase = Phase::Resorting(now.after(self.timing.renewal()));
        }
        let over = self.dead_by().is_some_and(|at| now >= at);
        if self.acting() && over && !self.cried {
            self.cry(now);
        }
        if let Phase::Due(at) = self.phase
            && now >= at
        {
            if self.cried && self.awaited && !self.start_dies && !self.owed {
                // The next life asserts stop itself, one command at a time.
                return self.leave();
            }
            if self.stop_runs {
                // It was killed and has not ended.
                self.act(Act::Kill(Command::Stop));
                self.phase = Phase::Due(now.after(self.timing.renewal() / 4));
                return;
            }
            if self.cried && self.stop_tried && self.may_resort() {
                return self.resort(now);
            }
            (self.stop_tried, self.stop_runs) = (true, true);
            let dead_by = self.dead_by().unwrap_or(now);
            let bound = self.bound.unwrap_or(now);
            let until = self.timing.stop_until(now, dead_by, bound);
            self.owed &= now < dead_by.max(bound) || self.start_dies;
            self.run(Command::Stop, until);
            self.phase = Phase::Stopping(until);
        }
        let owed = std::mem::take(&mut self.kick_owed);
        if self.kick_at().is_some_and(|at| owed || now >= at) {
            self.kick(now);
        }
    }

    /// The service must go: whatever became of the agent, it is over.
    fn begin(&mut self, now: Instant) {
        let why = if self.agent {
            self.act(Act::KillAgent);
            "the agent is silent"
        } else {
            "the agent is gone"
        };
        self.kill_left();
        self.say(
            Level::Error,
            format!("the guard: {why}: stopping the service"),
        );
        let rest = self.dead_by().map_or(Duration::ZERO, |at| at.since(now));
        self.phase = Phase::Killing(now.after(SLACK.min(rest / 2)));
    }

    /// What an agent left running does not count any more.
    fn kill_left(&mut self) {
        self.act(Act::KillLeft);
        self.start_dies = true;
        self.agents_stop = AgentsStop::None;
    }

    /// The service must be dead, and is not for all that is known.
    fn cry(&mut self, now: Instant) {
        self.cried = true;
        self.act(Act::Kill(Command::Stop));
        self.act(Act::KillService);
        self.say(Level::Error, MAY_STILL_RUN.to_owned());
        if self.may_resort() {
            self.resort(now);
        }
    }

    /// Whether there is a last resort that has not succeeded yet.
    fn may_resort(&self) -> bool {
        let before = matches!(self.watch, Watch::MayRun(fence) if fence.resorted);
        self.last_resort && !self.resorted && !before
    }

    fn run(&mut self, command: Command, until: Instant) {
        self.beside_start = self.start_dies;
        self.held_up = false;
        self.act(Act::Run(command, until));
    }

    /// Runs the last resort; stop follows it.
    fn resort(&mut self, now: Instant) {
        let until = now.after(self.timing.stop_budget());
        let text = "the guard: running the last resort".to_owned();
        self.say(Level::Error, text);
        self.run(Command::LastResort, until);
        self.phase = Phase::Resorting(until);
        self.stop_tried = false;
    }

    fn act_at(&self) -> Option<Instant> {
        match self.watch {
            Watch::Down => None,
            Watch::MayRun(fence) if self.agent => match (self.agents_stop, fence.stop_until) {
                (AgentsStop::Runs, Some(until)) => Some(until),
                // It should say at once how it ended.
                (AgentsStop::Ended(at), Some(until)) => {
                    let from = at.max(fence.valid_until);
                    Some(from.after(self.timing.guard_patience()).min(until))
                }
                (_, _) => Some(fence.act_at),
            },
            Watch::MayRun(fence) => Some(fence.valid_until),
        }
    }

    fn dead_by(&self) -> Option<Instant> {
        match self.watch {
            Watch::Down => None,
            Watch::MayRun(fence) => Some(fence.dead_by),
        }
    }

    fn leave(&mut self) {
        if self.watch == Watch::Down && self.device.is_some() {
            self.act(Act::Disarm);
        }
        self.act(Act::Leave);
        self.phase = Phase::Left;
    }

    fn say(&mut self, level: Level, text: String) {
        self.act(Act::Say(level, text));
    }

    fn act(&mut self, act: Act) {
        self.acts.push(act);
    }
}
