//! A small model that is looked through as a whole: the shipped pump, the shipped guard and its
//! stop procedure on one to three hosts, a store and an operator's commands, in discrete time.
//!
//! Time has no end: all numbers count from now and from the key's revision, so a state comes back
//! to where it was, and a search that ends has seen every history with so many misfortunes, however
//! long. The events of an instant happen in every order, but for a waiting agent's own, which lead
//! to the same world before and after all others. The search tests, for some states of a pump that
//! count as the same, that they behave alike.
//!
//! Three kinds of misfortunes, each of them counted:
//!
//! * faults: a request takes its time (its answer may be lost, or come at any instant up to its
//!   deadline; a write may be stored before, or after it was given up on, or never); the store
//!   is out of reach (the request before performed or not); messages to the guard take their time;
//!   an agent is killed, or stopped with SIGSTOP; a guard is killed, or stopped;
//! * hangs: a command takes its time to be spawned; a start takes its time to end, and to die
//!   when it is killed; a stop takes its time, fails, or hangs until it is killed;
//! * signals: an agent is told to end, or to execute its program anew.
//!
//! An agent that has gone may begin again at any time, and finds the guard that lives.
//!
//! # Agent and guard
//!
//! Messages wait until the guard receives all of them, at the same instant but after anything else
//! that happens then; so an agent can be stopped, or killed, between what it says and what is
//! heard. As a fault they wait for up to T, and are received one at a time or all at once. A
//! guard that was just started knows its first messages. A guard that is stopped receives the
//! messages, the ends of its commands and the end of its agent when it goes on, in the order of
//! its main loop; its commands run on. Reports arrive as soon as they are made; those to an
//! agent that is stopped arrive when it goes on, before or after its own deadlines. They carry
//! how many messages the guard had received.
//!
//! The commands of a guard that was killed run on until the next guard kills them; that one
//! knows from the note whether the service may be up, and whether a start has not ended.
//!
//! # What must hold
//!
//! No service starts beside another, nor after the V of its lock; a service is down by V + C·R
//! of the last stored write of its host; terms grow from holder to holder; a lock is given back
//! when the service is down; one instance of each command; every next deadline, of pump and of
//! guard, lies ahead; and one state in a few, followed without misfortunes, comes to an active
//! service in time.
//!
//! # Simplifications
//!
//! All clocks run alike (no drift); nobody wakes late unless stopped; a guard is started at
//! once; the last resort works at once; there is no health check, no hint, no watchdog device,
//! no other agent of the same token, no rollback, no 0.2.0, and the key has a record from the
//! beginning. A start that was killed does nothing more, unless it takes its time. Agents and
//! guards are stopped, and agents cut off, for T + C·R + R at most.
//!
//! Of agent and guard one runs and knows when the service must be down: a fault that takes the
//! last one away does not happen while the service is up, nor are messages late for so long that
//! an agent which does not know takes a guard that does for dead. Without a control group a guard
//! is not stopped while its agent has the service stopped: it has to be missed for R, and C·R is
//! no longer than that. With one, a stop that succeeds leaves something behind, which only
//! the control group ends.
//!
//! | module | its one job |
//! |---|---|
//! | [`automaton`] | the shipped code as automata that are found as they are walked |
//! | [`pump`], [`guard`] | the two automata: inputs and outputs in small numbers |
//! | [`canon`] | the canonical form of a state of an automaton |
//! | [`messages`] | messages between the world and the automata |
//! | [`world`] | hosts, key, what is on its way |
//! | [`transition`] | possible transitions, and when they must happen |
//! | [`turn`], [`guarding`] | immediate consequences of a transition, and broken rules |
//! | [`calm`] | the future of a world once misfortunes have ceased |
//! | [`quick`] | hashes that cost little |
//! | [`search`] | every world that can come about, breadth first |

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

/// The size and the rules of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) agents: usize,
    pub(crate) failures: u32,
    pub(crate) confirmations: u32,
    /// Misfortunes of one history.
    pub(crate) budget: Budget,
    /// Steps per R: an event that is not due on time happens at a deadline, or at the end of a
    /// step.
    pub(crate) steps: u32,
    /// Instances of an agent in one history.
    pub(crate) instances: u8,
    /// Whether start has a control group.
    pub(crate) cgroup: bool,
    /// Whether agents begin at any time, instead of all at once.
    pub(crate) late: bool,
    /// The search ends after so many states.
    pub(crate) states_max: usize,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "agents={} f={} c={} faults={} hangs={} signals={} steps={} instances={} \
             cgroup={} late={}",
            self.agents,
            self.failures,
            self.confirmations,
            self.budget.faults,
            self.budget.hangs,
            self.budget.signals,
            self.steps,
            self.instances,
            u8::from(self.cgroup),
            u8::from(self.late)
        )
    }
}

/// The automata, and the values that are the same in all worlds.
pub(crate) struct Model {
    pub(crate) pumps: Pumps,
    pub(crate) guards: Guards,
    pub(crate) agents: usize,
    pub(crate) instances: u8,
    pub(crate) cgroup: bool,
    pub(crate) late: bool,
    /// T + C·R.
    pub(crate) held: i32,
    /// C·R.
    pub(crate) confirmation: i32,
    /// The step of time.
    pub(crate) grid: i32,
    /// How long an agent or a guard is stopped, or an agent cut off, at most: long enough
    /// for every deadline to pass.
    pub(crate) longest: i32,
    /// T.
    pub(crate) lock_time: i32,
    /// Half of R.
    pub(crate) half_r: i32,
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
            lock_time: micros(timing.lock_time()),
            half_r: r / 2,
            confirmation: micros(timing.confirmation()),
            // A key that was written just now is read within R, watched for T, confirmed for
            // C·R. The rest is for pauses.
            calm_within: held + 2 * r,
        }
    }
}
