//! Everything of one campaign: the network, the servers, the hosts, the observer; and the
//! faults that are going on there.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::cure::Cure;
use super::faults::{Fault, Harm, Kind, Target};
use super::host::{Agent, Host};
use super::lockers::Lockers;
use super::namespaces;
use super::nodes::{self, HOSTS, Node, SERVERS};
use super::rng::Rng;
use super::server::Server;
use super::service::Flaw;
use super::wires::{Line, Wires};
use crate::rig::timing::Timing;
use crate::support::clock::{At, now};
use crate::support::observer::Observer;

/// For so long after a fault of agent or guard there is no other on that host: until the
/// supervisor, the agent and its guard are back together.
const RECOVERY: Duration = Duration::from_secs(2);

/// The parts of a random stream that belong to the network and to each host.
const NETWORK_PART: u64 = 1 << 32;
const HOST_PART: u64 = 2 << 32;

/// Shift of a seed of lock clients, for each host.
const LOCKERS_PART: u32 = 40;

/// A slot of faults. Two faults in one slot at a time would be a fault that nobody promised to
/// survive, or one would end the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// Agent and guard of a host.
    Processes(usize),
    /// A flaw of a host's commands.
    Command(usize, Flaw),
    Disk(usize),
    Log(usize),
    Server(usize),
    /// At most one server's disk: with two gone, nothing stored is left to be believed.
    ServerDisk,
    Clock,
}

/// A fault that happened.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    pub(crate) kind: Kind,
    pub(crate) target: String,
    pub(crate) from: At,
    /// `None` while it goes on.
    pub(crate) to: Option<At>,
}

/// A fault that goes on.
#[derive(Debug)]
struct Doing {
    at: usize,
    until: At,
    cure: Cure,
    slots: Vec<Slot>,
}

/// The state of a campaign.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) timing: Timing,
    pub(crate) servers: Vec<Server>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) observer: Observer,
    pub(crate) wires: Wires,
    pub(crate) happened: Vec<Happened>,
    /// Servers that ended by themselves.
    pub(crate) servers_lost: usize,
    /// Longest step of the wall clock in seconds.
    pub(crate) step_max: usize,
    doing: Vec<Doing>,
    free_at: BTreeMap<Slot, At>,
    /// The effect of each fault of the network, by its place in `happened`.
    pub(crate) effects: BTreeMap<usize, Vec<(Node, Node, Line)>>,
}

impl Testbed {
    /// Makes the network, and servers and hosts that do not run.
    pub(crate) fn prepare(
        seed: u64,
        timing: Timing,
        agent: &Agent,
        server: &Path,
        folder: &Path,
    ) -> Result<Testbed, String> {
        namespaces::prepare()?;
        let wires = Wires::make(SERVERS + HOSTS + 1, Rng::new(seed, NETWORK_PART))?;
        nodes::connect(&wires)?;
        let prepare = |number| Server::prepare(Node::server(number), server, folder);
        let servers = (0..SERVERS).map(prepare).collect::<Result<Vec<_>, _>>()?;
        let prepare = |number| {
            let rng = Rng::new(seed, HOST_PART + number as u64);
            Host::prepare(number, agent.clone(), timing, folder, rng)
        };
        let hosts = (0..HOSTS).map(prepare).collect::<Result<Vec<_>, _>>()?;
        let pipes = hosts.iter().map(|host| host.service.pipe()).collect();
        Ok(Testbed {
            timing,
            servers,
            hosts,
            observer: Observer::start(pipes),
            wires,
            happened: Vec::new(),
            servers_lost: 0,
            step_max: 0,
            doing: Vec::new(),
            free_at: BTreeMap::new(),
            effects: BTreeMap::new(),
        })
    }

    /// Has so many clients of each host run commands under locks.
    pub(crate) fn add_lockers(&mut self, count: usize, seed: u64, folder: &Path) {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let seed = seed + ((number as u64) << LOCKERS_PART);
            host.lockers = (count > 0).then(|| Lockers::new(number, folder, count, seed));
        }
    }

    /// Waits for the end of these clients.
    pub(crate) fn end_lockers(&mut self) -> Result<(), String> {
        self.hosts.iter_mut().filter_map(|host| host.lockers.as_mut()).try_for_each(Lockers::end)
    }

    /// Does what has to be done again and again: ends faults, starts what ended.
    pub(crate) fn tend(&mut self) -> Result<(), String> {
        let mut at = 0;
        while at < self.doing.len() {
            if self.doing[at].until <= now() {
                let doing = self.doing.remove(at);
                self.mend(doing)?;
            } else {
                at += 1;
            }
        }
        for server in &mut self.servers {
            if server.tend()? {
                self.servers_lost += 1;
            }
        }
        self.hosts.iter_mut().try_for_each(Host::tend)
    }

    /// Returns whether no fault goes on.
    pub(crate) fn is_calm(&self) -> bool {
        self.doing.is_empty()
    }

    /// Begins a fault, unless it cannot be now; returns whether it did.
    pub(crate) fn begin(&mut self, fault: &Fault) -> Result<bool, String> {
        let target = self.resolve(fault.target);
        let slots = slots(fault.kind, target);
        let busy = |slot: &Slot| {
            self.doing.iter().any(|doing| doing.slots.contains(slot))
                || self.free_at.get(slot).is_some_and(|at| now() < *at)
        };
        if slots.iter().any(busy) {
            return Ok(false);
        }
        let (from, at) = (now(), self.happened.len());
        let Some((cure, length)) = self.inflict(fault, target, at)? else {
            return Ok(false);
        };
        let target = match fault.kind {
            Kind::ClockStep => "all".to_owned(),
            Kind::Server(_)
            | Kind::Process(_)
            | Kind::HostCrashed
            | Kind::HostPaused
            | Kind::Network(_)
            | Kind::Command(_)
            | Kind::LogUnread
            | Kind::HostDiskFull => target.node().name(),
        };
        let target = match self.effects.get(&at) {
            Some(lines) => format!("{target}: {}", describe(lines)),
            None => target,
        };
        self.happened.push(Happened { kind: fault.kind, target, from, to: None });
        self.doing.push(Doing { at, until: from + length, cure, slots });
        Ok(true)
    }

    fn resolve(&self, target: Target) -> Target {
        match target {
            Target::Active(otherwise) => {
                let active = self.observer.active().first().copied();
                Target::Host(active.unwrap_or(otherwise))
            }
            Target::Server(_) | Target::Host(_) => target,
        }
    }

    fn mend(&mut self, doing: Doing) -> Result<(), String> {
        self.cure(doing.cure, doing.at)?;
        self.happened[doing.at].to = Some(now());
        for slot in doing.slots {
            let rest = match slot {
                Slot::Processes(_) => RECOVERY.max(self.timing.r * 2),
                Slot::Server(_) | Slot::ServerDisk => Duration::from_secs(1),
                Slot::Command(..) | Slot::Disk(_) | Slot::Log(_) | Slot::Clock => Duration::ZERO,
            };
            self.free_at.insert(slot, now() + rest);
        }
        Ok(())
    }

    /// Makes the network what all present faults make of it together.
    pub(crate) fn rewire(&self) {
        let nodes = self.wires.nodes();
        let mut lines = vec![vec![Line::default(); nodes]; nodes];
        for (from, to, line) in self.effects.values().flatten() {
            let both = &mut lines[from.number()][to.number()];
            *both = both.and(*line);
        }
        self.wires.set(lines);
    }

    /// Returns whether every supervisor has its agent running.
    pub(crate) fn agents_are_up(&self) -> bool {
        self.hosts.iter().all(Host::is_up)
    }
}

/// Returns what a fault keeps for itself.
fn slots(kind: Kind, target: Target) -> Vec<Slot> {
    let number = target.number();
    match kind {
        Kind::Server(Harm::Killed | Harm::Paused) => vec![Slot::Server(number)],
        Kind::Server(Harm::DiskFull) => vec![Slot::Server(number), Slot::ServerDisk],
        Kind::Process(_) | Kind::HostCrashed => vec![Slot::Processes(number)],
        // The last resort has no time left for a pause of the host.
        Kind::HostPaused => vec![
            Slot::Processes(number),
            Slot::Command(number, Flaw::StopFails),
            Slot::Command(number, Flaw::StopHangs),
        ],
        Kind::Command(flaw) => vec![Slot::Command(number, flaw)],
        Kind::HostDiskFull => vec![Slot::Disk(number)],
        Kind::LogUnread => vec![Slot::Log(number)],
        Kind::ClockStep => vec![Slot::Clock],
        Kind::Network(_) => Vec::new(),
    }
}

fn describe(lines: &[(Node, Node, Line)]) -> String {
    let ways = lines.iter().map(|(from, to, _)| (from.number(), to.number()));
    let ways: Vec<String> = ways.map(|(from, to)| format!("{from}>{to}")).collect();
    let Some((_, _, line)) = lines.first() else {
        return String::new();
    };
    let mut what = vec![ways.join(" ")];
    if !line.delay.is_zero() {
        what.push(format!("{:?} to {:?} late", line.delay, line.delay + line.jitter));
    }
    for (share, name) in [(line.loss, "lost"), (line.twice, "twice"), (line.overtake, "early")] {
        if share > 0.0 {
            what.push(format!("{:.0} % {name}", share * 100.0));
        }
    }
    what.join(", ")
}
