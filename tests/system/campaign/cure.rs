//! How each fault is done, and undone.

use std::time::Duration;

use rustix::process::Signal;

use super::clock::step_clock;
use super::faults::{Blow, Fault, Harm, Kind, Target, Trouble};
use super::nodes::{HOSTS, Node, SERVERS};
use super::rng::Rng;
use super::service::Flaw;
use super::testbed::Testbed;
use super::wires::Line;
use crate::support::process;

/// An agent is so old before its guard is meddled with.
const SET_UP: Duration = Duration::from_secs(1);

/// How long a fault lasts that is over at once.
const KILLED: Duration = Duration::from_millis(100);

/// The act that ends a fault.
#[derive(Debug)]
pub(crate) enum Cure {
    StartServer(usize),
    ResumeServer(usize),
    FreeServerDisk(usize),
    StartAgent(usize),
    Resume(Vec<u32>),
    ResumeHost(usize),
    FreeHostDisk(usize),
    ReadLog(usize),
    Repair(usize, Flaw),
    Rewire,
    StepClock(i64),
    Nothing,
}

impl Testbed {
    /// Does a fault to `target`, the `at`th that happened. Returns what ends it and after
    /// how long; `None` when it cannot be done now.
    pub(crate) fn inflict(
        &mut self,
        fault: &Fault,
        target: Target,
        at: usize,
    ) -> Result<Option<(Cure, Duration)>, String> {
        let number = target.number();
        let cure = match fault.kind {
            Kind::Server(harm) => self.harm_server(harm, number),
            Kind::Process(blow) => return Ok(self.strike(blow, fault.length, number)),
            Kind::HostCrashed => {
                self.hosts[number].crash()?;
                Cure::StartAgent(number)
            }
            Kind::HostPaused => return Ok(Some(self.pause_host(number, fault.length))),
            Kind::Network(trouble) => self.trouble(trouble, fault, target.node(), at),
            Kind::Command(flaw) => {
                self.hosts[number].service.set(flaw, true);
                Cure::Repair(number, flaw)
            }
            Kind::LogUnread => {
                self.hosts[number].set_reading(false);
                Cure::ReadLog(number)
            }
            Kind::HostDiskFull => {
                self.hosts[number].fill_disk(true);
                Cure::FreeHostDisk(number)
            }
            Kind::ClockStep => {
                let mut rng = fault.rng.clone();
                let step = i64::try_from(1 + rng.below(self.step_max)).unwrap_or(1);
                let step = if rng.chance(0.5) { step } else { -step };
                step_clock(step)?;
                Cure::StepClock(-step)
            }
        };
        Ok(Some((cure, fault.length)))
    }

    fn harm_server(&mut self, harm: Harm, number: usize) -> Cure {
        let server = &mut self.servers[number];
        match harm {
            Harm::Killed => {
                server.kill();
                Cure::StartServer(number)
            }
            Harm::Paused => {
                server.signal(Signal::STOP);
                Cure::ResumeServer(number)
            }
            Harm::DiskFull => {
                server.fill_disk(true);
                Cure::FreeServerDisk(number)
            }
        }
    }

    /// Kills or pauses agent or guard, or upgrades the agent, when both are there.
    fn strike(&mut self, blow: Blow, length: Duration, number: usize) -> Option<(Cure, Duration)> {
        let host = &mut self.hosts[number];
        let (agent, guards) = (host.agent()?, host.guards());
        if host.up_for() < SET_UP || guards.is_empty() && !host.is_old() {
            return None;
        }
        let (whom, signal) = match blow {
            Blow::AgentKilled => (vec![agent], Signal::KILL),
            Blow::AgentPaused => (vec![agent], Signal::STOP),
            Blow::GuardKilled => (guards, Signal::KILL),
            Blow::GuardPaused => (guards, Signal::STOP),
            Blow::BothKilled => ([vec![agent], guards].concat(), Signal::KILL),
            // An agent of putex 0.2.0 would end.
            Blow::AgentUpgraded if host.is_old() => return None,
            Blow::AgentUpgraded => (vec![agent], Signal::HUP),
        };
        if whom.is_empty() {
            return None;
        }
        whom.iter().for_each(|pid| process::signal(*pid, signal));
        if signal != Signal::STOP {
            // The supervisor starts a killed agent again, and the agent a killed guard.
            return Some((Cure::Nothing, KILLED));
        }
        Some((Cure::Resume(whom), length))
    }

    /// Pauses all of a host. A host whose service runs, or might be about to, sees no time
    /// pass and is not promised to be down in time: it gets a short pause.
    fn pause_host(&mut self, number: usize, length: Duration) -> (Cure, Duration) {
        let active = self.observer.only_active();
        let other = active.is_some_and(|active| active != number);
        let calm = self.observer.unchanged_for() > self.timing.r;
        let budget = (self.timing.r * self.timing.c).mul_f64(0.9) - Duration::from_millis(20);
        let length = if other && calm { length } else { length.min(budget / 4) };
        self.hosts[number].signal_all(Signal::STOP);
        (Cure::ResumeHost(number), length)
    }

    /// Does something to the cables of `node`.
    fn trouble(&mut self, trouble: Trouble, fault: &Fault, node: Node, at: usize) -> Cure {
        let mut rng = fault.rng.clone();
        let line = line(trouble, &mut rng, self.timing.r);
        let ways = ways(trouble, &mut rng, node);
        let lines = ways.into_iter().map(|(from, to)| (from, to, line));
        self.effects.insert(at, lines.collect());
        self.rewire();
        Cure::Rewire
    }

    /// Ends a fault, the `at`th that happened.
    pub(crate) fn cure(&mut self, cure: Cure, at: usize) -> Result<(), String> {
        match cure {
            Cure::StartServer(number) => self.servers[number].start()?,
            Cure::ResumeServer(number) => self.servers[number].signal(Signal::CONT),
            Cure::FreeServerDisk(number) => {
                // A server whose disk was full does without JetStream until it restarts.
                self.servers[number].kill();
                self.servers[number].fill_disk(false);
                self.servers[number].start()?;
            }
            Cure::StartAgent(number) => self.hosts[number].start_after(Duration::ZERO),
            Cure::Resume(pids) => {
                pids.iter().for_each(|pid| process::signal(*pid, Signal::CONT));
            }
            Cure::ResumeHost(number) => self.hosts[number].signal_all(Signal::CONT),
            Cure::FreeHostDisk(number) => self.hosts[number].fill_disk(false),
            Cure::ReadLog(number) => self.hosts[number].set_reading(true),
            Cure::Repair(number, flaw) => self.hosts[number].service.set(flaw, false),
            Cure::Rewire => {
                self.effects.remove(&at);
                self.rewire();
            }
            Cure::StepClock(seconds) => step_clock(seconds)?,
            Cure::Nothing => {}
        }
        Ok(())
    }
}

fn line(trouble: Trouble, rng: &mut Rng, r: Duration) -> Line {
    let cut = Line { cut: true, ..Line::default() };
    let part = |rng: &mut Rng| rng.between(Duration::from_millis(1), r.mul_f64(0.4));
    match trouble {
        Trouble::Cut | Trouble::OneWay | Trouble::Split => cut,
        Trouble::Delay => Line { delay: part(rng), jitter: part(rng), ..Line::default() },
        Trouble::Loss => Line { loss: 0.02 + 0.4 * rng.share(), ..Line::default() },
        Trouble::Twice => Line { twice: 0.05 + 0.5 * rng.share(), ..Line::default() },
        Trouble::Overtake => Line {
            delay: rng.between(Duration::from_millis(2), Duration::from_millis(60)),
            overtake: 0.2 + 0.6 * rng.share(),
            ..Line::default()
        },
    }
}

/// Returns the directions that a fault at `node` has.
fn ways(trouble: Trouble, rng: &mut Rng, node: Node) -> Vec<(Node, Node)> {
    let pairs = || Node::all().flat_map(|from| Node::all().map(move |to| (from, to)));
    let touched = |from: Node, to: Node| from != to && (from == node || to == node);
    if trouble == Trouble::Split {
        let sides: Vec<bool> = (0..SERVERS + HOSTS).map(|_| rng.chance(0.5)).collect();
        let apart = |from: Node, to: Node| sides[from.number()] != sides[to.number()];
        return pairs().filter(|(from, to)| apart(*from, *to)).collect();
    }
    let both: Vec<_> = pairs().filter(|(from, to)| touched(*from, *to)).collect();
    if trouble != Trouble::OneWay {
        return both;
    }
    // Deaf, dumb, or one of both to a single other node.
    let (dumb, single) = (rng.chance(0.5), rng.chance(0.4));
    let mut ways: Vec<_> = both.into_iter().filter(|(from, _)| (*from == node) == dumb).collect();
    if single {
        let one = rng.pick(&ways);
        ways = vec![one];
    }
    ways
}
