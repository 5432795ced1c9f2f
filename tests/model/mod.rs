//! A small model.
mod automaton;
mod calm;
mod canon;
mod guard;
mod guarding;
mod messages;
mod pump;
mod quick;
mod search;
mod transition;
mod turn;
mod world;

use std::fmt;
use std::time::Duration;

use putex::core::timing::Timing;

use self::guard::Guards;
use self::pump::Pumps;
pub(crate) use self::search::{Search, SearchResult};
pub(crate) use self::world::Budget;

/// R of the model: longer than the core waits for anything that does not follow from R.
const R: Duration = Duration::from_millis(800);

/// What a search is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) agents: usize,
    pub(crate) failures: u32,
    pub(crate) confirmations: u32,
    pub(crate) budget: Budget,
    /// What is not due on time happens at a deadline, or at a multiple of this part
    /// of R.
    pub(crate) steps: u32,
    /// Instances of an agent in one history.
    pub(crate) instances: u8,
    /// Whether start has a control group.
    pub(crate) cgroup: bool,
    pub(crate) late: bool,
    /// The search ends after so many states.
    pub(crate) states_max: usize,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "agents={} f={} c={} faults={} hangs={} signals={} steps={} instances={} cgroup={}",
            self.agents,
            self.failures,
            self.confirmations,
            self.budget.faults,
            self.budget.hangs,
            self.budget.signals,
            self.steps,
            self.instances,
            u8::from(self.cgroup)
        )
    }
}

/// The automata, and what is the same in all worlds.
pub(crate) struct Model {
    pub(crate) pumps: Pumps,
    pub(crate) guards: Guards,
    pub(crate) agents: usize,
    pub(crate) instances: u8,
    pub(crate) cgroup: bool,
    pub(crate) late: bool,
    /// T + C·R.
    pub(crate) held: i32,
    /// The step of time.
    pub(crate) grid: i32,
    /// How long an agent or a guard is stopped, or an agent cut off, at most: long enough
    /// for every deadline to pass.
    pub(crate) longest: i32,
    /// How long words and reports are on their way at most: T.
    pub(crate) lag: i32,
    /// How long a start that takes its time may live on when it was killed.
    pub(crate) start_dies_within: i32,
    /// How long after the last fault the service runs somewhere, at the latest.
    pub(crate) calm_within: i32,
}

impl Model {
    pub(crate) fn new(scope: Scope) -> Model {
        let timing = Timing::new(R, scope.failures, scope.confirmations, 0)
            .expect("a safe combination was chosen");
        let micros = |time: Duration| i32::try_from(time.as_micros()).expect("short");
        let r = micros(R);
        let held = micros(timing.lock_time() + timing.confirmation());
        Model {
            pumps: Pumps::new(timing),
            guards: Guards::new(timing),
            agents: scope.agents,
            instances: scope.instances,
            cgroup: scope.cgroup,
            late: scope.late,
            held,
            grid: micros(R / scope.steps),
            longest: held + r,
            lag: micros(timing.lock_time()),
            start_dies_within: micros(timing.confirmation()),
            calm_within: held + 2 * r,
        }
    }
}
