//! A small model that is looked through as a whole: the shipped pump and the shipped
//! guard on two or three hosts, a store and an operator's commands, in discrete time.
//!
//! Time has no end: what is counted from now and from the key's revision comes back to
//! where it was, so a search that ends has seen every history with so many faults,
//! however long. Whatever may happen at an instant happens in every order, but for a
//! waiting agent's own affairs, which come to the same before and after all others.
//! That two states of a pump are the same is checked by trying, for some of them.
//!
//! Faults, each of them counted: a request that takes its time (its answer may be lost,
//! or come at any instant up to its deadline; a write may be stored before, or after it
//! was given up on, or never), a store out of reach (the request before performed or
//! not), a start or stop that takes its time (stop may fail or hang), an agent killed
//! (and begun again at any time, with or without knowing of its life before), stopped
//! with SIGSTOP, or told to end, a guard killed.
//!
//! What must hold: no service starts beside another; a service is down by V + C·R of
//! the last stored write of its host; terms grow from holder to holder; a lock is given
//! back when the service is down; every next deadline lies ahead; and one state in a
//! few, followed without faults, comes to an active service in time.
//!
//! What is simpler than life: all clocks run alike (no drift), nobody wakes late unless
//! stopped, guards answer at once and the next one is there at once, a killed command
//! does nothing more, the last resort works at once, there is no health check, no hint,
//! no twin, no rollback, no 0.2.0, and the key has a record from the beginning. An agent
//! is stopped or cut off for T + C·R + 2·R at most.
//!
//! | module | its one job |
//! |---|---|
//! | [`canon`] | when two states of a mind are the same |
//! | [`cue`] | what passes between the world and the minds |
//! | [`mind`] | the shipped code as automata that are found as they are walked |
//! | [`world`] | hosts, key, what is on its way |
//! | [`act`] | what can happen, and when it must |
//! | [`turn`] | what comes of it, and what must never be |
//! | [`calm`] | what becomes of a world once faults have ceased |
//! | [`quick`] | a hash that costs little |
//! | [`search`] | every world there is, breadth first |

mod act;
mod calm;
mod canon;
mod cue;
mod mind;
mod quick;
mod search;
mod turn;
mod world;

use std::fmt;
use std::time::Duration;

use putex::core::timing::Timing;

use self::mind::{Guards, Pumps};
pub(crate) use self::search::{KeyValue, Search};
use self::world::Post;

/// R of the model: four steps of its time, of which one is the slack.
const R: Duration = Duration::from_millis(80);

/// What a search is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) agents: usize,
    pub(crate) failures: u32,
    pub(crate) confirmations: u32,
    /// Faults in one history.
    pub(crate) faults: u8,
    /// What is not due on time happens at a deadline, or at a multiple of this part
    /// of R.
    pub(crate) steps: u32,
    /// Lives of an agent in one history.
    pub(crate) lives: u8,
    /// The search ends after so many states.
    pub(crate) states_max: usize,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "agents={} f={} c={} faults={} steps={} lives={}",
            self.agents, self.failures, self.confirmations, self.faults, self.steps, self.lives
        )
    }
}

/// The minds, and what is the same in all worlds.
pub(crate) struct Model {
    pub(crate) pumps: Pumps,
    pub(crate) guards: Guards,
    pub(crate) agents: usize,
    pub(crate) lives: u8,
    /// T + C·R.
    pub(crate) held: i32,
    /// The step of time.
    pub(crate) grid: i32,
    /// How long an agent is stopped or cut off at most: long enough for every
    /// deadline to pass.
    pub(crate) longest: i32,
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
            pumps: Pumps::of(timing),
            guards: Guards::of(timing),
            agents: scope.agents,
            lives: scope.lives,
            held,
            grid: micros(R / scope.steps),
            longest: held + 2 * r,
            // A stop that hangs has its budget, until V + C·R; a key that was
            // written meanwhile is read within R, watched for T, confirmed for C·R.
            calm_within: held + 2 * r,
        }
    }

    pub(crate) fn new_post(&mut self) -> Post {
        Post {
            mind: self.guards.begin(),
            jobs: [None; 2],
        }
    }
}
