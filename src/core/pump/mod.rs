//! The trampoline: a state and an event in, a state and effects out.
//!
//! It calls nothing. The thread that runs it performs the effects in their order
//! and feeds the outcomes back as events, so the same code runs under a virtual
//! clock.
//!
//! ```text
//!            opened, or 1R over          revision T old, check passed
//!  Looking ---------------------> Standby ----------------------> Taking
//!                                  ^  ^  ^                        |    |
//!                stopped, released |  |  | lost             clean |    | contested
//!                                  |  |  +------ Confirming <-----|----+
//!                                  |  |               | C·R over  |
//!                                  |  +-- refused     v           |
//!                               Stopping <--------- Active <------+
//! ```
//!
//! # Obligations
//!
//! 1. The service is started only under a write of this agent that was
//!    acknowledged, and, where the lock was not free, C·R after that.
//! 2. `sent` is the instant of the turn that asked for the write: never later
//!    than the write itself, so a validity errs on the short side.
//! 3. Stop first, release after: a release is written only when a stop command
//!    has succeeded since the last start.
//! 4. A lock that is not yet confirmed is never released, but left to expire: its
//!    holder before may still be stopping.
//! 5. After a turn the next deadline lies in the future, or there is none.

mod active;
mod claim;
mod facts;
mod guarded;
mod holders;
mod left;
mod pending;
mod standby;
mod stopping;
mod taking;

use std::time::Duration;

use self::active::Active;
use self::facts::{Facts, Service};
use self::left::Left;
use self::pending::Pending;
use self::standby::Standby;
use self::stopping::Stopping;
use self::taking::{Confirming, Taking};
use crate::core::command::{Command, LockContext};
use crate::core::event::{Effect, Ending, Event, Level};
use crate::core::guard::{Fence, Inherited, Watch};
use crate::core::record::{Incarnation, Lease, Record, RecordState, Revision};
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// Who this agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentId {
    /// What it writes into the lock.
    pub token: String,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Name of its host.
    pub host: String,
    /// The host's boot.
    pub boot: String,
    /// Lives before this one, in this boot of this host, that are proven dead.
    pub dead: Vec<Incarnation>,
}

impl AgentId {
    /// Returns whether a record was written by a life of this agent before, which
    /// is proven dead. What has no boot proves nothing.
    fn is_predecessor(&self, lease: &Lease) -> bool {
        self.dead.contains(&lease.incarnation)
            && lease.host == self.host
            && lease.boot == self.boot
            && !self.boot.is_empty()
    }
}

/// How this agent was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// R, F, C and drift.
    pub timing: Timing,
    /// Whether there is a health check; without one every check passes.
    pub check: bool,
    /// Whether there is a last resort.
    pub last_resort: bool,
}

/// A lock that this agent holds: what it needs to renew and to give back.
#[derive(Clone, Debug)]
struct Hold {
    /// Revision that its last acknowledged write made.
    revision: Revision,
    /// Revision of the acquiring write.
    term: Revision,
    /// V: from here on the lock may be another's.
    valid_until: Instant,
    /// Token of the holder before.
    previous: Option<String>,
}

#[derive(Clone, Debug)]
enum State {
    /// The key has not been read yet.
    Looking {
        until: Instant,
        inherited: Option<Inherited>,
    },
    /// The lock is another's, or nobody's yet.
    Standby(Standby),
    /// The acquiring write is under way.
    Taking(Taking),
    /// The lock was another's: wait until that one must be dead.
    Confirming(Confirming),
    /// The lock is this agent's, and the service runs.
    Active(Active),
    /// The service must go, and after it the lock.
    Stopping(Stopping),
    /// Nothing happens any more.
    Ended,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Looking { .. } => "looking",
            State::Standby(_) => "standby",
            State::Taking(_) => "taking",
            State::Confirming(_) => "confirming",
            State::Active(_) => "active",
            State::Stopping(_) => "stopping",
            State::Ended => "ended",
        }
    }

    /// Whether this is tried once more after it was refused.
    fn is_again(&self) -> bool {
        matches!(self, State::Taking(taking) if taking.is_again())
    }
}

/// What a state makes of an event.
enum Next {
    /// Nothing more to do until the next event.
    Stay(State),
    /// Another state, which is given a [`Event::Tick`] at once, and why.
    Go(State, String),
}

/// Longest chain of states within one turn; the longest legal one is shorter.
const BOUNCES_MAX: u32 = 8;

/// An agent's whole mind.
#[derive(Clone, Debug)]
pub struct Pump {
    state: State,
    facts: Facts,
}

impl Pump {
    /// Returns the pump of an agent that starts now and knows nothing, but for the
    /// service that a previous life of it left running, if its guard still watches
    /// that.
    #[must_use]
    pub fn new(config: Config, me: AgentId, inherited: Option<Inherited>, now: Instant) -> Pump {
        let until = match &inherited {
            Some(inherited) => inherited.fence.valid_until,
            None => now.after(config.timing.renewal()),
        };
        let mut facts = Facts::new(config, me, now);
        if let Some(inherited) = &inherited {
            facts.inherit(inherited.start_dies);
        }
        Pump {
            state: State::Looking { until, inherited },
            facts,
        }
    }

    /// Returns what the guard is to know: until when the service may run; `None` when
    /// what it knows is all there is. Of a service that a life before may have left
    /// running it hears nothing, so that what watches over that still does.
    fn watch(&self) -> Option<(Watch, LockContext)> {
        let of_life_before = |left: &Inherited| (left.fence, left.under.clone());
        let may_run = match &self.state {
            State::Looking { inherited, .. } => inherited.as_ref().map(of_life_before),
            State::Taking(taking) => taking.inherited().map(of_life_before),
            State::Active(active) => {
                let hold = active.hold();
                let fence = Fence::of_lock(hold.valid_until, self.facts.config.timing);
                Some((fence, self.facts.under(Some(hold))))
            }
            State::Stopping(stopping) => {
                let fence = stopping.fence(&self.facts);
                fence.map(|fence| (fence, stopping.under(&self.facts)))
            }
            State::Standby(_) | State::Confirming(_) | State::Ended => None,
        };
        match may_run {
            Some((fence, under)) => Some((Watch::MayRun(fence), under)),
            None if self.facts.service == Service::Down => {
                Some((Watch::Down, LockContext::default()))
            }
            None => None,
        }
    }

    /// Returns the name of the present state.
    #[must_use]
    pub fn state(&self) -> &'static str {
        self.state.name()
    }

    /// Returns whether this agent does its duty: the service is known to be down here,
    /// or runs under the lock.
    #[must_use]
    pub fn stands_by(&self) -> bool {
        match self.state {
            State::Looking { .. } | State::Ended => false,
            State::Active(_) => true,
            State::Standby(_) | State::Taking(_) | State::Confirming(_) | State::Stopping(_) => {
                self.facts.service == Service::Down
            }
        }
    }

    /// Returns when the pump wants a [`Event::Tick`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Looking { until, .. } => Some(*until),
            State::Standby(standby) => standby.deadline(&self.facts),
            State::Taking(taking) => taking.deadline(&self.facts),
            State::Confirming(confirming) => confirming.deadline(&self.facts),
            State::Active(active) => active.deadline(&self.facts),
            State::Stopping(stopping) => stopping.deadline(&self.facts),
            State::Ended => None,
        }
    }
}

/// Takes in one event and returns what comes of it.
///
/// # Panics
///
/// When states hand an event round and round, which is a bug in putex.
#[must_use]
pub fn bounce(pump: Pump, event: &Event, now: Instant) -> (Pump, Vec<Effect>) {
    let Pump {
        mut state,
        mut facts,
    } = pump;
    facts.note(event, now);
    let mut event = event;
    for _ in 0..BOUNCES_MAX {
        let (old, again) = (state.name(), state.is_again());
        let next = match state {
            State::Looking { until, inherited } => {
                looking(until, inherited, &mut facts, event, now)
            }
            State::Standby(standby) => standby.turn(&mut facts, event, now),
            State::Taking(taking) => taking.turn(&mut facts, event, now),
            State::Confirming(confirming) => confirming.turn(&mut facts, event, now),
            State::Active(active) => active.turn(&mut facts, event, now),
            State::Stopping(stopping) => stopping.turn(&mut facts, event, now),
            State::Ended => Next::Stay(State::Ended),
        };
        match next {
            Next::Stay(same) => {
                let mut pump = Pump { state: same, facts };
                if let Some((watch, under)) = pump.watch() {
                    pump.facts.tell_guard(watch, under, now);
                }
                let effects = pump.facts.take_effects();
                return (pump, effects);
            }
            Next::Go(new, why) => {
                let level = if let State::Stopping(_) = new {
                    Level::Warn
                } else if facts.refused.is_some() && (again || new.is_again()) {
                    Level::Debug
                } else {
                    Level::Info
                };
                facts.say(level, format!("{old} -> {}: {why}", new.name()));
                state = new;
                event = &Event::Tick;
            }
        }
    }
    panic!(
        "the pump bounced {BOUNCES_MAX} times, now {}, on {event:?}",
        state.name()
    );
}

/// Before the first read: a store that cannot be read within 1R counts as foreign.
/// A service that a previous life left running has until its lock runs out.
fn looking(
    until: Instant,
    inherited: Option<Inherited>,
    facts: &mut Facts,
    event: &Event,
    now: Instant,
) -> Next {
    match (event, inherited) {
        (Event::Opened(_), Some(inherited)) if now < until => Taking::adopt(facts, inherited, now),
        (Event::Opened(_), None) => {
            let standby = Standby::informed(facts, now);
            Next::Go(State::Standby(standby), "the bucket is open".to_owned())
        }
        (Event::Rejected(rejection), inherited) => {
            let ending = Ending::Rejected(rejection.clone());
            match inherited {
                Some(inherited) => {
                    let left = Left::Inherited(inherited);
                    Stopping::to_end(facts, left, ending, "the store is refused", now)
                }
                // A previous life may have left a service that nobody guards.
                None if !facts.is_down() => {
                    let why = "the store is refused";
                    Stopping::to_end(facts, Left::Nothing, ending, why, now)
                }
                None => end(facts, ending),
            }
        }
        (Event::Shutdown(signal), Some(inherited)) => Stopping::to_end(
            facts,
            Left::Inherited(inherited),
            Ending::Clean,
            signal,
            now,
        ),
        (Event::Shutdown(signal), None) => shut_down(facts, signal, now),
        (
            Event::Tick
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Read(_)
            | Event::Written(_)
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Guard(_)
            | Event::Ended(..),
            inherited,
        ) => {
            if now < until {
                return Next::Stay(State::Looking { until, inherited });
            }
            match inherited {
                Some(inherited) => {
                    let why = "the lock of the previous life has run out".to_owned();
                    Stopping::inherited(facts, inherited, why, now)
                }
                None => Next::Go(
                    State::Standby(Standby::new(now)),
                    "the lock could not be read within R".to_owned(),
                ),
            }
        }
    }
}

/// Ends an agent that has no lock to give back, with the service down.
fn shut_down(facts: &mut Facts, signal: &'static str, now: Instant) -> Next {
    if facts.service != Service::Down {
        return Stopping::to_end(facts, Left::Nothing, Ending::Clean, signal, now);
    }
    facts.kill(Command::Check);
    facts.kill(Command::Stop);
    facts.say(Level::Info, format!("{signal}: ending"));
    end(facts, Ending::Clean)
}

fn end(facts: &mut Facts, ending: Ending) -> Next {
    facts.want(Effect::Exit(ending));
    Next::Stay(State::Ended)
}

/// Prepares the write of a record of this agent.
fn prepare_write(facts: &mut Facts, draft: NewWrite, now: Instant, give_up: Instant) -> Pending {
    let (timing, nonce) = (facts.config.timing, facts.next_nonce());
    let lease = Lease {
        incarnation: facts.me.incarnation,
        nonce,
        host: facts.me.host.clone(),
        boot: facts.me.boot.clone(),
        renewal: timing.renewal(),
        failures: timing.failures(),
        confirmations: timing.confirmations(),
        grace: draft.grace.max(timing.confirmation()),
        term: draft.term,
        standing: draft.standing,
    };
    let token = match draft.standing {
        RecordState::Taking | RecordState::Active => facts.me.token.clone(),
        RecordState::Released => String::new(),
    };
    let record = Record {
        token,
        lease: Some(lease),
    };
    Pending::new(draft.expected, record, nonce, now, give_up)
}

/// What differs from write to write.
struct NewWrite {
    expected: Revision,
    standing: RecordState,
    term: Option<Revision>,
    /// Grace that the holder before was promised, while it may still need it.
    grace: Duration,
}

/// Returns the earlier of two deadlines, of which each may be never.
fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (Some(only), None) | (None, Some(only)) => Some(only),
        (None, None) => None,
    }
}
