//! The scenario of a seed: the agents, their R, F and C, the kinds of faults and how often they
//! happen. Swarm testing: Alex Groce and others, ISSTA 2012; a run that has everything at once
//! finds less than many runs that have a few kinds.

use std::time::Duration;

use putex::core::priority::Priority;
use putex::core::protocol::DeviceUse;
use putex::core::record::{Incarnation, KeyValue, Lease, Record, RecordState, Revision};
use putex::core::timing::Timing;
use putex::core::watchdog_timeout;

use super::clock::{MS, True, nanos};
use super::faults::{Kind, Kinds};
use super::random::Random;
use super::store;

/// Kinds that every run has, and parts that are left out of a run to see whether it still fails.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Kinds that every run has, whatever its seed draws.
    pub with: Kinds,
    /// Kinds that are left out.
    pub without: Kinds,
    /// No fault begins from here on.
    pub until: Option<True>,
    /// Clocks run at rates outside of the bound: this must be found.
    pub beyond_drift: bool,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    pub off_ppm: i64,
    pub first_reading: u64,
}

/// An agent and its service.
#[derive(Clone, Debug)]
pub struct Site {
    pub host: usize,
    pub token: String,
    pub timing: Timing,
    pub check: bool,
    pub start_grace: Duration,
    pub check_failures: u32,
    pub priority: Priority,
    pub failback: Option<Duration>,
    pub resort: bool,
    /// Processes that start leaves behind can be killed by the kernel.
    pub has_cgroup: bool,
    /// Timeout of its watchdog device at first.
    pub device: Option<Duration>,
    pub device_use: DeviceUse,
    /// The agent is one of putex 0.2.0.
    pub plain: bool,
    pub begins: True,
}

/// A fault of a process, a host or the store at an instant.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub when: When,
    /// Whom it meets, unless it is aimed.
    pub site: usize,
    pub aim: Aim,
    pub lasts: u64,
}

/// Whom a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    Anybody,
    /// The one that runs the service.
    Active,
    /// The one that made the step that the fault follows.
    Stepper,
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    At(True),
    /// So long after the n-th such step of any agent.
    After(Step, u64, u64),
}

/// A step of an agent or a guard that a fault may follow at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The agent has taken a lock that may have been held.
    Confirming,
    /// The agent has found that the service must go.
    Stopping,
    Write,
    Stored,
    Applied,
    /// The guard was told of a lock, or of its renewal.
    Granted,
    /// The guard was told to stop the service.
    Ordered,
    /// The guard has reported.
    Reported,
    /// A command was spawned and waits.
    Spawned,
    /// Start begins.
    Start,
    /// Stop begins.
    Stop,
    /// Stop has succeeded.
    Stopped,
    /// A command is killed.
    Killed,
    /// An agent begins.
    Booted,
    /// A guard begins.
    Guarded,
}

impl Step {
    /// Returns how often it happens in a run, or more.
    const fn often(self) -> u64 {
        match self {
            Step::Confirming | Step::Stopping | Step::Killed | Step::Booted | Step::Guarded => 8,
            Step::Write
            | Step::Stored
            | Step::Applied
            | Step::Granted
            | Step::Ordered
            | Step::Reported
            | Step::Spawned
            | Step::Start
            | Step::Stop
            | Step::Stopped => 40,
        }
    }
}

pub const STEPS: [Step; 15] = [
    Step::Confirming,
    Step::Stopping,
    Step::Write,
    Step::Stored,
    Step::Applied,
    Step::Granted,
    Step::Ordered,
    Step::Reported,
    Step::Spawned,
    Step::Start,
    Step::Stop,
    Step::Stopped,
    Step::Killed,
    Step::Booted,
    Step::Guarded,
];

/// The record under the key when the run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    Nothing,
    Released,
    Held,
    Plain,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub kinds: Kinds,
    pub hosts: Vec<Host>,
    pub sites: Vec<Site>,
    pub faults: Vec<Fault>,
    /// How often each kind that is no event happens, in a thousand.
    pub rates: [u64; Kind::ALL.len()],
    pub store: store::Kind,
    pub first: First,
    /// Longest time by which a thread wakes late.
    pub late: u64,
    /// Typical one-way time of a message.
    pub hop: u64,
    /// How soon a supervisor starts an agent again.
    pub restart: u64,
    /// How long an agent tries to open the store, and waits before it tries again.
    pub open_within: u64,
    pub reopen: u64,
    /// From here on nothing goes wrong any more.
    pub quiet_at: True,
    /// No fault begins from here on.
    pub until: True,
    pub drift_ppm: u32,
    /// How many agents may be active at once.
    pub seats: u32,
    /// How much older than the run the bucket is.
    pub older: u64,
}

impl Scenario {
    /// Returns how many services are up when nothing goes wrong.
    pub fn expected(&self) -> usize {
        let candidates = self.sites.iter().filter(|site| site.priority.is_candidate());
        candidates.count().min(self.seats as usize)
    }

    pub fn draw(seed: u64, limits: &Limits) -> Scenario {
        let mut rng = Random::stream(seed, 1);
        let kinds = draw_kinds(seed).and(limits.with).without(limits.without);
        let seated = kinds.has(Kind::Seated);
        let kinds = if seated { kinds.without(Kinds::of(&OF_ONE_KEY)) } else { kinds };
        let drift_ppm = rng.pick(&[0, 100, 10_000, 10_000, 50_000, 200_000]);
        let shared = draw_timing(&mut rng, drift_ppm);
        let store = match rng.below(6) {
            0 if !kinds.has(Kind::Plain) => store::Kind::Dir,
            _ => store::Kind::Nats,
        };
        let count = rng.pick(&[2, 2, 3, 3, 3, 4]);
        let hosts = draw_hosts(&mut rng, count, kinds, drift_ppm, limits.beyond_drift);
        let mut sites = Vec::new();
        for index in 0..count {
            sites.push(draw_site(&mut rng, index, kinds, shared));
        }
        arrange(&mut sites, kinds, store);
        let longest = sites.iter().map(|site| failover(site.timing)).max();
        let longest = longest.unwrap_or_default();
        let quiet_at = longest * rng.between(1, 5) + rng.below(longest);
        let first = match rng.below(10) {
            0 => First::Nothing,
            1 => First::Held,
            2 if store == store::Kind::Nats => First::Plain,
            _ => First::Released,
        };
        let until = limits.until.map_or(quiet_at, |until| until.min(quiet_at));
        let mut rates = [0; Kind::ALL.len()];
        for rate in &mut rates {
            *rate = rng.pick(&[20, 60, 150, 400]);
        }
        Scenario {
            seed,
            kinds,
            faults: draw_faults(seed, kinds, count, quiet_at, shared),
            hosts,
            sites,
            rates,
            store,
            first,
            late: if kinds.has(Kind::Late) { 4 * MS } else { MS / 20 },
            hop: rng.pick(&[MS / 20, MS / 4, MS, 5 * MS]),
            restart: rng.pick(&[10 * MS, 50 * MS, 300 * MS, longest / 2, longest * 2]),
            open_within: rng.pick(&[200 * MS, 1000 * MS, 2000 * MS]),
            reopen: rng.pick(&[10 * MS, 100 * MS, 1000 * MS]),
            quiet_at,
            until,
            drift_ppm,
            seats: if seated { SEATS as u32 } else { 1 },
            older: rng.pick(&[0, 3600 * 1000 * MS]),
        }
    }
}

/// Seats of a group that has several.
pub const SEATS: usize = 2;

/// Kinds that are judged for one key alone.
const OF_ONE_KEY: [Kind; 8] = [
    Kind::Rollback,
    Kind::Wipe,
    Kind::Delete,
    Kind::Purge,
    Kind::Blank,
    Kind::Typed,
    Kind::Plain,
    Kind::Twins,
];

/// T + C·R.
pub fn failover(timing: Timing) -> u64 {
    nanos(timing.lock_time() + timing.confirmation())
}

fn draw_kinds(seed: u64) -> Kinds {
    let mut rng = Random::stream(seed, 2);
    let calm = rng.chance(100);
    let mut kinds = Kinds::default();
    for kind in Kind::ALL {
        let has = rng.chance(kind.share());
        let always = kind == Kind::Drift || kind == Kind::StopEdge;
        if has && (always || !calm) {
            kinds = kinds.with(kind);
        }
    }
    kinds
}

fn draw_timing(rng: &mut Random, drift_ppm: u32) -> Timing {
    loop {
        let r = rng.pick(&[50, 100, 200, 500, 500, 1000, 1000, 3000]);
        let f = rng.pick(&[2, 2, 3, 3, 3, 4, 6]);
        let c = rng.pick(&[1, 1, 2, 3]);
        if let Ok(timing) = Timing::new(Duration::from_millis(r), f, c, drift_ppm) {
            return timing;
        }
    }
}

fn draw_hosts(
    rng: &mut Random,
    count: usize,
    kinds: Kinds,
    drift_ppm: u32,
    beyond: bool,
) -> Vec<Host> {
    let bound = i64::from(drift_ppm);
    let mut hosts = Vec::new();
    for _ in 0..count {
        let drawn = match rng.below(4) {
            0 => bound,
            1 => -bound,
            2 => rng.between(0, 2 * u64::from(drift_ppm)) as i64 - bound,
            _ => 0,
        };
        let off_ppm = if beyond {
            if hosts.is_empty() { -400_000 } else { 400_000 }
        } else if kinds.has(Kind::Drift) {
            drawn
        } else {
            0
        };
        let first_reading = rng.below(1000) * 1000 * MS + MS;
        hosts.push(Host { off_ppm, first_reading });
    }
    hosts
}

fn draw_site(rng: &mut Random, index: usize, kinds: Kinds, shared: Timing) -> Site {
    let own = draw_timing(rng, shared.drift_ppm());
    let timing = if kinds.has(Kind::Mixed) && !kinds.has(Kind::Plain) { own } else { shared };
    let device = watchdog_timeout::wanted_timeout(timing).ok();
    let device = device.filter(|_| rng.chance(300));
    let r = timing.renewal();
    Site {
        host: index,
        token: format!("t{index}"),
        timing,
        check: rng.chance(600),
        start_grace: rng.pick(&[Duration::ZERO, Duration::ZERO, r, 5 * r]),
        check_failures: rng.pick(&[1, 1, 2, 3]),
        priority: draw_priority(rng, index),
        failback: rng.chance(400).then(|| r * rng.below(8) as u32),
        resort: rng.chance(300),
        has_cgroup: rng.chance(300),
        device,
        device_use: match rng.below(3) {
            0 if device.is_some() => DeviceUse::Required,
            _ if device.is_some() || rng.chance(200) => DeviceUse::Optional,
            _ => DeviceUse::None,
        },
        plain: false,
        begins: rng.below(2 * nanos(r)),
    }
}

/// Most agents go first. The first agent is never one that takes no lock: there must be one.
fn draw_priority(rng: &mut Random, index: usize) -> Priority {
    match rng.below(8) {
        0 => Priority::Behind(1),
        1 => Priority::Behind(rng.below(15) as u8),
        2 if index > 0 => Priority::Never,
        _ => Priority::FIRST,
    }
}

/// Puts agents of one host, of one token and of 0.2.0 where they are asked for.
fn arrange(sites: &mut [Site], kinds: Kinds, store: store::Kind) {
    if store == store::Kind::Dir {
        for site in sites.iter_mut() {
            site.host = 0;
            site.device = None;
            site.device_use = DeviceUse::None;
        }
    } else if kinds.has(Kind::Twins) {
        // Two of one host would be one identity.
        sites[1].token = sites[0].token.clone();
    }
    if kinds.has(Kind::Plain) && store == store::Kind::Nats {
        let last = sites.len() - 1;
        sites[last].plain = true;
    }
}

fn draw_faults(
    seed: u64,
    kinds: Kinds,
    count: usize,
    quiet_at: True,
    timing: Timing,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_event()) {
        let mut rng = Random::stream(seed, 100 + kind as u64);
        if !kinds.has(kind) {
            continue;
        }
        for _ in 0..rng.between(1, 4) {
            let step = rng.pick(&STEPS);
            let nth = rng.between(1, step.often());
            let wait = rng.below(12) * rng.below(12) * MS / 4;
            let at_once = rng.chance(500);
            let step = When::After(step, nth, if at_once { 0 } else { wait });
            let at = When::At(rng.below(quiet_at));
            faults.push(Fault {
                kind,
                when: if rng.chance(400) { step } else { at },
                site: rng.below(count as u64) as usize,
                aim: rng.pick(&[Aim::Anybody, Aim::Active, Aim::Stepper]),
                lasts: draw_length(&mut rng, timing),
            });
        }
    }
    faults
}

fn draw_length(rng: &mut Random, timing: Timing) -> u64 {
    let (r, t) = (nanos(timing.renewal()), nanos(timing.lock_time()));
    let budget = nanos(timing.stop_budget());
    match rng.below(5) {
        0 => rng.below(r),
        1 => t.saturating_sub(r) + rng.below(2 * r),
        2 => t + rng.below(budget + r),
        3 => rng.below(2 * (t + budget)),
        _ => 2 * t + rng.below(2 * t),
    }
}

/// Returns what stands under the key at first.
pub fn first_record(sc: &Scenario) -> Option<KeyValue> {
    let site = &sc.sites[0];
    let lease = |state| Lease {
        incarnation: Incarnation(u128::MAX),
        nonce: 1,
        host: "before".to_owned(),
        boot: "before".to_owned(),
        renewal: site.timing.renewal(),
        failures: site.timing.failures(),
        confirmations: site.timing.confirmations(),
        grace: site.timing.confirmation(),
        term: Some(Revision(1)),
        state,
        priority: Priority::FIRST,
        released_to: None,
    };
    let (token, lease) = match sc.first {
        First::Nothing => return None,
        First::Released => ("", Some(lease(RecordState::Released))),
        First::Held => ("before", Some(lease(RecordState::Active))),
        First::Plain => ("before", None),
    };
    let token = token.to_owned();
    Some(KeyValue::Record(Record { token, lease }))
}
