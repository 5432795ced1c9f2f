//! The faults there are, and the plan of one round of them.

use std::fmt;
use std::time::Duration;

use super::nodes::{HOSTS, Node, SERVERS};
use super::rng::Rng;
use super::service::Flaw;
use crate::rig::timing::Timing;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Server(Harm),
    Process(Blow),
    HostCrashed,
    HostPaused,
    Network(Trouble),
    Command(Flaw),
    LogUnread,
    HostDiskFull,
    ClockStep,
}

/// Harm to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harm {
    Killed,
    Paused,
    DiskFull,
}

/// A blow to an agent or its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blow {
    AgentKilled,
    AgentPaused,
    GuardKilled,
    GuardPaused,
    BothKilled,
    /// The agent executes its program anew.
    AgentUpgraded,
}

/// Trouble with the cables of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    Cut,
    OneWay,
    Split,
    Delay,
    Loss,
    Twice,
    Overtake,
}

/// All that are inside the promise, with how often each is drawn.
const WEIGHTS: [(Kind, usize); 25] = [
    (Kind::Server(Harm::Killed), 4),
    (Kind::Server(Harm::Paused), 4),
    (Kind::Server(Harm::DiskFull), 1),
    (Kind::Process(Blow::AgentKilled), 8),
    (Kind::Process(Blow::AgentPaused), 5),
    (Kind::Process(Blow::GuardKilled), 3),
    (Kind::Process(Blow::GuardPaused), 2),
    (Kind::Process(Blow::AgentUpgraded), 4),
    (Kind::HostCrashed, 3),
    (Kind::HostPaused, 3),
    (Kind::Network(Trouble::Cut), 5),
    (Kind::Network(Trouble::OneWay), 5),
    (Kind::Network(Trouble::Split), 3),
    (Kind::Network(Trouble::Delay), 3),
    (Kind::Network(Trouble::Loss), 3),
    (Kind::Network(Trouble::Twice), 2),
    (Kind::Network(Trouble::Overtake), 2),
    (Kind::Command(Flaw::CheckFails), 3),
    (Kind::Command(Flaw::CheckHangs), 3),
    (Kind::Command(Flaw::StartFails), 2),
    (Kind::Command(Flaw::StartHangs), 2),
    (Kind::Command(Flaw::StopFails), 3),
    (Kind::Command(Flaw::StopHangs), 3),
    (Kind::LogUnread, 2),
    (Kind::HostDiskFull, 2),
];

/// For how long faults begin in a round, beside T + C·R.
const WINDOW: Duration = Duration::from_secs(6);

/// Most faults of one round, and one more for each of so long a time of it.
const FAULTS_MAX: usize = 4;
const ONE_MORE: Duration = Duration::from_secs(2);

/// Whom a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(usize),
    Host(usize),
    /// The host whose service runs when the fault begins; that one when none does.
    Active(usize),
}

/// A fault of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    /// When it begins, from the beginning of the round.
    pub(crate) from: Duration,
    pub(crate) length: Duration,
    /// Source of the other random choices of the fault.
    pub(crate) rng: Rng,
}

/// Faults that may be drawn beside the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Agent and guard killed at once, against which no guard can help.
    pub(crate) unguarded: bool,
    /// Steps of this machine's wall clock of at most so many seconds; 0 for none.
    pub(crate) step_max: usize,
}

impl Target {
    /// Returns the node.
    pub(crate) fn node(self) -> Node {
        match self {
            Target::Server(number) => Node::server(number),
            Target::Host(number) | Target::Active(number) => Node::host(number),
        }
    }

    /// Returns its number among its like.
    pub(crate) fn number(self) -> usize {
        match self {
            Target::Server(number) | Target::Host(number) | Target::Active(number) => number,
        }
    }
}

/// Returns the faults of one round.
pub(crate) fn plan(rng: &mut Rng, timing: Timing, extras: Extras) -> Vec<Fault> {
    // Single faults are some: what they find is easy to understand.
    let window = timing.takeover() + WINDOW;
    let most = FAULTS_MAX + usize::try_from(window.as_millis() / ONE_MORE.as_millis()).unwrap_or(0);
    let count = if rng.chance(0.2) { 1 } else { 2 + rng.below(most - 1) };
    let mut faults = Vec::new();
    for _ in 0..count {
        let kind = draw(rng, extras);
        let fault = Fault {
            kind,
            target: aim(rng, kind),
            from: rng.between(Duration::ZERO, window),
            length: length(rng, timing, kind),
            rng: Rng::new(rng.next(), 0),
        };
        faults.extend(occasion(rng, timing, &fault));
        faults.push(fault);
    }
    faults
}

/// Returns what makes a fault matter that shows nothing alone, on the same host: something
/// to stop for where stop fails, and a life to write down where the disk is full.
fn occasion(rng: &mut Rng, timing: Timing, fault: &Fault) -> Option<Fault> {
    let causes: &[Kind] = match fault.kind {
        Kind::Command(Flaw::StopFails | Flaw::StopHangs) => &[
            Kind::Network(Trouble::Cut),
            Kind::Network(Trouble::OneWay),
            Kind::Process(Blow::AgentPaused),
            Kind::Process(Blow::AgentKilled),
            Kind::Command(Flaw::CheckFails),
            Kind::Command(Flaw::CheckHangs),
        ],
        Kind::HostDiskFull => &[Kind::Process(Blow::AgentKilled), Kind::Process(Blow::GuardKilled)],
        Kind::Server(_)
        | Kind::Process(_)
        | Kind::HostCrashed
        | Kind::HostPaused
        | Kind::Network(_)
        | Kind::Command(_)
        | Kind::LogUnread
        | Kind::ClockStep => return None,
    };
    // Begun at once, it meets the host that was active when the other began.
    Some(Fault {
        kind: rng.pick(causes),
        target: fault.target,
        from: fault.from,
        length: timing.takeover() + rng.between(Duration::ZERO, timing.lock_time()),
        rng: Rng::new(rng.next(), 0),
    })
}

fn draw(rng: &mut Rng, extras: Extras) -> Kind {
    if extras.unguarded && rng.chance(0.15) {
        return Kind::Process(Blow::BothKilled);
    }
    if extras.step_max > 0 && rng.chance(0.1) {
        return Kind::ClockStep;
    }
    let tickets = |(kind, weight): &(Kind, usize)| std::iter::repeat_n(*kind, *weight);
    let tickets: Vec<Kind> = WEIGHTS.iter().flat_map(tickets).collect();
    rng.pick(&tickets)
}

fn aim(rng: &mut Rng, kind: Kind) -> Target {
    let server = match kind {
        Kind::Server(_) => true,
        Kind::Network(_) => rng.chance(0.4),
        Kind::Process(_)
        | Kind::HostCrashed
        | Kind::HostPaused
        | Kind::Command(_)
        | Kind::LogUnread
        | Kind::HostDiskFull
        | Kind::ClockStep => false,
    };
    if server {
        return Target::Server(rng.below(SERVERS));
    }
    let host = rng.below(HOSTS);
    if rng.chance(0.6) { Target::Active(host) } else { Target::Host(host) }
}

/// Returns a length: short against R, about as long as a lock is valid, or long. A fault that lasts
/// until a pipe or a disk is full is never short.
fn length(rng: &mut Rng, timing: Timing, kind: Kind) -> Duration {
    let takeover = timing.takeover();
    if matches!(kind, Kind::LogUnread | Kind::HostDiskFull) {
        return rng.between(takeover, takeover * 2 + WINDOW);
    }
    match rng.below(5) {
        0 => rng.between(Duration::from_millis(20), timing.r),
        1 => rng.between(timing.r, timing.lock_time()),
        2 | 3 => rng.between(timing.lock_time(), takeover.mul_f64(1.3)),
        _ => rng.between(takeover, takeover + Duration::from_secs(6)),
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Server(Harm::Killed) => "server killed",
            Kind::Server(Harm::Paused) => "server paused",
            Kind::Server(Harm::DiskFull) => "server's disk full",
            Kind::Process(Blow::AgentKilled) => "agent killed",
            Kind::Process(Blow::AgentPaused) => "agent paused",
            Kind::Process(Blow::GuardKilled) => "guard killed",
            Kind::Process(Blow::GuardPaused) => "guard paused",
            Kind::Process(Blow::BothKilled) => "agent and guard killed",
            Kind::Process(Blow::AgentUpgraded) => "agent upgraded",
            Kind::HostCrashed => "host crashed",
            Kind::HostPaused => "host paused",
            Kind::Network(Trouble::Cut) => "cut",
            Kind::Network(Trouble::OneWay) => "cut one way",
            Kind::Network(Trouble::Split) => "network split",
            Kind::Network(Trouble::Delay) => "delay and jitter",
            Kind::Network(Trouble::Loss) => "loss",
            Kind::Network(Trouble::Twice) => "duplication",
            Kind::Network(Trouble::Overtake) => "reordering",
            Kind::Command(flaw) => flaw.name(),
            Kind::LogUnread => "log not read",
            Kind::HostDiskFull => "host's disk full",
            Kind::ClockStep => "wall clock stepped",
        })
    }
}
