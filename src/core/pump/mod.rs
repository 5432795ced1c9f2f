//! The pump, the agent's state machine: it takes a state and an event and returns a state and
//! effects.
//!
//! The pump calls nothing. The thread that runs it performs the effects in their order
//! and returns the outcomes as events, so the same code runs under a virtual clock.
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
//! # Parts
//!
//! Each state has a file of its own, or shares it with the next one. A turn returns the same state
//! or another one, with the reason and its level. The parts that outlive a state are these:
//!
//! | part | content |
//! |---|---|
//! | `context` | who this agent is, and the parts below; each event passes through it first |
//! | `store_view` | the bucket, and the state of the key of each seat |
//! | `holders` | the times that previous holders have published, which bind the next holder |
//! | `takeover` | the waits before a lock may be taken |
//! | `guard_view` | the messages to the guard, and its last report |
//! | `pause` | the pause that the agents of this key observe |
//! | `hold` | a lock that is held: its renewals, and how it is lost |
//! | `write` | a write until its outcome is known; nothing else writes the lock |
//!
//! # The flowchart of putex 0.2.0
//!
//! | node | here |
//! |---|---|
//! | GetLock, Empty | `looking`, and every read of `standby` |
//! | WaitKill | `standby`: stop is asserted, but once in T instead of once in R |
//! | HCWait, WaitFR | `standby`: the check; each renewal seen restarts the wait |
//! | HCWrite | `standby`: the takeover check, which begins early to end in time |
//! | Write | `taking` |
//! | WriteWaitCR | `taking`: `Confirming`; skipped where the lock was free |
//! | HCSunnyLoop, SunnyLoopWrite, SunnyStartProcess | `active` |
//! | SunnyLoopAbort, SunnyKill | `stopping`, in the other order: first stop, then blank |
//! | WaitR, End | the stroke: the next one begins R after the last one began |
//!
//! To release the lock before stop, as putex 0.2.0 did, would let another host start the
//! service while it still runs here.
//! Nothing starts the service on standby, so stop need not be asserted more often.
//!
//! # Rules
//!
//! 1. The service is started only under a write of this agent that was
//!    acknowledged, and, where the lock was not free, C·R after that. A read of the pause that
//!    follows that write comes first.
//! 2. `sent` is the instant of the turn that asked for the write: never later
//!    than the write itself, so the computed validity is never too long.
//! 3. Stop first, release after: a release is written only when the guard has reported
//!    that the service is down, in a report that answers all messages.
//! 4. A lock that is not yet confirmed is never released, but left to expire: the previous holder
//!    may still be stopping.
//! 5. After a turn the next deadline lies in the future, or there is none.
//! 6. Each state tells by `set_timers` which timers are set while it stays, and the earliest is the
//!    next deadline. A second turn at the same instant would change nothing.

mod active;
mod context;
mod deadline;
mod failback;
mod guard_view;
mod hold;
mod holders;
mod looking;
mod pause;
mod reads;
mod standby;
mod status;
mod stopping;
mod store_view;
mod takeover;
mod taking;
mod write;

use std::time::Duration;

use log::Level;

use self::active::Active;
use self::context::Context;
use self::deadline::Timers;
pub use self::deadline::{Deadline, Timer};
use self::looking::Looking;
use self::standby::Standby;
pub use self::status::Since;
use self::stopping::{ServiceLock, Stopping};
use self::taking::{Confirming, Taking};
use crate::core::agent_status::AgentState;
use crate::core::event::{Effect, Ending, Event};
use crate::core::priority::Priority;
use crate::core::protocol::{DeviceUse, GuardConfig, ToGuard};
use crate::core::record::{Incarnation, KeyState, KeyValue, Lease, Record};
use crate::core::report::{Reason, Report};
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// The identity of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentId {
    /// The agent's token.
    pub token: String,
    /// The random number of this instance.
    pub incarnation: Incarnation,
    /// Name of the agent's host.
    pub host: String,
    /// The boot of the host.
    pub boot: String,
}

/// How this agent was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// R, F, C and drift.
    pub timing: Timing,
    /// Whether there is a health check; without one every check passes.
    pub check: bool,
    /// Within this time after the first start of a term, a failed health check is only a
    /// warning.
    pub start_grace: Duration,
    /// Number of consecutive failed health checks that move the service.
    pub check_failures: u32,
    /// The priority of this agent, which tells how many agents go first when the lock may be taken.
    pub priority: Priority,
    /// How long this agent must have been fit before it requests the lock from one of a lower
    /// priority; `None` for never.
    pub failback: Option<Duration>,
    /// How many seats there are.
    pub seats: u32,
    /// This agent only observes: it takes no lock, and has no guard.
    pub observes: bool,
    /// How many agents the key should have, if that is said.
    pub agents: Option<u32>,
    /// Whether there is a last resort.
    pub last_resort: bool,
    /// Whether a watchdog device is used.
    pub device: DeviceUse,
}

impl AgentId {
    /// Returns whether this instance wrote the record under a key.
    fn wrote(&self, key_state: &KeyState) -> bool {
        let is_own = |lease: &Lease| lease.incarnation == self.incarnation;
        key_state.value.lease().is_some_and(is_own)
    }

    /// Returns the lease of a record that another instance of this agent has written, or another
    /// agent with its token.
    fn namesake<'a>(&self, key_state: &'a KeyState) -> Option<&'a Lease> {
        let KeyValue::Record(Record { token, lease: Some(lease) }) = &key_state.value else {
            return None;
        };
        let is_other = lease.incarnation != self.incarnation && *token == self.token;
        is_other.then_some(lease)
    }
}

impl Config {
    /// Returns the part that the guard needs.
    pub fn guard(&self) -> GuardConfig {
        GuardConfig { timing: self.timing, last_resort: self.last_resort, device: self.device }
    }
}

#[derive(Clone, Debug)]
enum State {
    /// The key has not been read yet.
    Looking(Looking),
    /// Another agent holds the lock, or no agent holds it.
    Standby(Standby),
    /// The acquiring write is under way.
    Taking(Taking),
    /// The lock was taken from another agent; wait until that agent's service must be down.
    Confirming(Confirming),
    /// This agent holds the lock, and the service runs.
    Active(Active),
    /// The service is being stopped; then the lock is released.
    Stopping(Stopping),
    /// The agent exits.
    Ended,
}

impl State {
    fn name(&self) -> AgentState {
        match self {
            State::Looking(_) => AgentState::Looking,
            State::Standby(_) => AgentState::Standby,
            State::Taking(_) => AgentState::Taking,
            State::Confirming(_) => AgentState::Confirming,
            State::Active(_) => AgentState::Active,
            State::Stopping(_) => AgentState::Stopping,
            State::Ended => AgentState::Ended,
        }
    }

    fn set_timers(&self, timers: &mut Timers, context: &Context) {
        match self {
            State::Looking(looking) => looking.set_timers(timers, context),
            State::Standby(standby) => standby.set_timers(timers, context),
            State::Taking(taking) => taking.set_timers(timers, context),
            State::Confirming(confirming) => confirming.set_timers(timers, context),
            State::Active(active) => active.set_timers(timers, context),
            State::Stopping(stopping) => stopping.set_timers(timers, context),
            State::Ended => return,
        }
        context.guard.set_timers(timers);
        context.pauses.set_timers(timers);
    }

    fn turn(self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Event::Shutdown(signal) = event {
            return self.told_to_end(context, event, signal, now);
        }
        match self {
            State::Looking(looking) => looking.turn(context, now),
            State::Standby(standby) => standby.turn(context, event, now),
            State::Taking(taking) => taking.turn(context, event, now),
            State::Confirming(confirming) => confirming.turn(context, event, now),
            State::Active(active) => active.turn(context, event, now),
            State::Stopping(stopping) => stopping.turn(context, event, now),
            State::Ended => Next::Stay(State::Ended),
        }
    }

    /// Begins the end of the agent, after a signal.
    fn told_to_end(
        self,
        context: &mut Context,
        event: &Event,
        signal: &'static str,
        now: Instant,
    ) -> Next {
        let lock = match self {
            State::Looking(_) => ServiceLock::inherited(context.guard.grant()),
            State::Standby(_) => ServiceLock::None,
            // The write may be stored. Such a lock is left to expire: no agent starts early.
            State::Taking(taking) => {
                taking.report_begin(context);
                ServiceLock::inherited(taking.adoption)
            }
            State::Confirming(_) => {
                context.report(Report::LeftToExpire);
                ServiceLock::None
            }
            State::Active(active) => ServiceLock::held(context, &active.hold, None),
            State::Stopping(stopping) => return stopping.turn(context, event, now),
            State::Ended => return Next::Stay(State::Ended),
        };
        Stopping::to_end(context, lock, Ending::Clean, Reason::Told(signal), now)
    }

    /// Returns the message that a new guard gets first.
    fn message_for_new_guard(&self, context: &Context) -> Option<ToGuard> {
        match self {
            State::Active(active) => Some(ToGuard::Grant(active.hold.grant(context))),
            State::Stopping(stopping) => Some(ToGuard::Stop(stopping.order.clone())),
            State::Taking(taking) => taking.adoption.clone().map(ToGuard::Grant),
            State::Looking(_) | State::Standby(_) | State::Confirming(_) | State::Ended => None,
        }
    }
}

/// The result of a state's `turn`.
enum Next {
    /// The state stays until the next event.
    Stay(State),
    /// Another state, which handles an [`Event::Tick`] at once, the reason, and its level.
    Go(State, Reason, Level),
}

/// Limit on state changes in one [`bounce`]; correct code stays below it.
const BOUNCES_MAX: u32 = 8;

/// The pump of an agent: its state, and the context of all states.
#[derive(Clone, Debug)]
pub struct Pump {
    state: State,
    context: Context,
}

impl Pump {
    /// Returns the pump of an agent that starts now. Its first event is an [`Event::Tick`],
    /// at once. `times`: those under which the guard of the previous instance may let the service
    /// run, if they are known. The guard has to answer in the shorter time until it has the times
    /// of this agent.
    pub fn new(config: Config, id: AgentId, times: Option<Timing>, now: Instant) -> Pump {
        let context = Context::new(config, id, times, now);
        let state = State::Looking(Looking { since: now });
        Pump { state, context }
    }

    /// Returns the present state.
    pub fn state(&self) -> AgentState {
        self.state.name()
    }

    /// Returns whether the agent may be upgraded after this event, which the pump has handled: its
    /// guard does not hang, as far as that is known, or is replaced in time.
    pub fn lets_next_instance(&self, event: &Event, now: Instant) -> bool {
        self.context.guard.lets_next_instance(event, now)
    }

    /// Returns whether this agent is ready: the service is known to be down here, or runs
    /// under the lock.
    pub fn is_ready(&self) -> bool {
        match self.state {
            State::Ended => false,
            // The service runs under the lock of the previous instance.
            State::Looking(_) => self.context.guard.grant().is_some(),
            State::Active(_) => true,
            State::Standby(_) | State::Taking(_) | State::Confirming(_) | State::Stopping(_) => {
                self.context.guard.is_down()
            }
        }
    }

    /// Returns the instant of the next [`Event::Tick`] and its reason.
    pub fn deadline(&self) -> Option<Deadline> {
        let mut timers = Timers::default();
        self.state.set_timers(&mut timers, &self.context);
        timers.earliest()
    }
}

/// Handles one event; returns the new pump and its effects.
///
/// # Panics
///
/// When states hand an event to each other without end, which is a bug in putex.
#[must_use]
pub fn bounce(pump: Pump, event: &Event, now: Instant) -> (Pump, Vec<Effect>) {
    let Pump { mut state, mut context } = pump;
    context.receive(event, now);
    let mut event = event;
    for _ in 0..BOUNCES_MAX {
        let from = state.name();
        match state.turn(&mut context, event, now) {
            Next::Stay(same) => {
                let ended = matches!(same, State::Ended);
                let message = same.message_for_new_guard(&context);
                state = same;
                if ended || !context.guard.advance(message, &mut context.effects, now) {
                    let effects = std::mem::take(&mut context.effects);
                    return (Pump { state, context }, effects);
                }
                // A deadline that depends on the guard may have passed.
                event = &Event::Tick;
            }
            Next::Go(new, why, level) => {
                context.report(Report::Moved { from, to: new.name(), why, level });
                state = new;
                event = &Event::Tick;
            }
        }
    }
    panic!("the pump bounced {BOUNCES_MAX} times, now {}, on {event:?}", state.name());
}

fn end(context: &mut Context, ending: Ending) -> Next {
    context.want(Effect::Exit(ending));
    Next::Stay(State::Ended)
}
