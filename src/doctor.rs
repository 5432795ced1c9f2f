//! `putex doctor`: measures what decides whether R, F and C are right here, and whether the
//! cluster, the agents and this host are fit.
//!
//! | file | content |
//! |---|---|
//! | `finding` | findings, their levels and figures; the report |
//! | `sample` | round trips: reads and writes of a key of its own |
//! | `store` | findings about the servers and the bucket |
//! | `agents` | findings about the agents of a key |
//! | `host` | findings about this host |
//! | `format` | text and JSON |
//!
//! The bucket is read, and one key of it is written, which no agent uses. Nothing is made.

mod agents;
mod finding;
mod format;
mod host;
mod sample;
mod store;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use self::agents::TimingKey;
pub use self::finding::Report;
use self::finding::{Finding, Level, TimingUsed};
pub use self::format::{NOT_MEASURED, not_measured};
use crate::check::servers::{self, Inspected};
use crate::cli::access::Access;
use crate::cli::{DoctorArgs, Location, connect};
use crate::core::{AgentStatus, REACH_MAX, Timing};
use crate::exit::{Exit, Refusal};
use crate::nats::ServerInfo;
use crate::status::{self, ANSWER_MAX, KeyStatus, Kind, Status, TimingStatus};
use crate::store::dir::DirStore;
use crate::store::nats::cluster::ClusterServer;
use crate::store::nats::inspect::Inspection;
use crate::store::{Bucket, StoreError, StoreErrorKind, open_existing};
use crate::sys;

/// How long the servers of a cluster are waited for, which are asked for their versions.
const SERVERS_WAIT: Duration = Duration::from_millis(300);

/// The advice of a finding that could not be measured.
const LATER: &str = "measure again when the findings above are ok";

/// A bucket that was opened, and what is known of it.
struct Opened {
    store: Box<dyn Bucket>,
    /// Whether it exists, or why that is not known.
    exists: Result<bool, String>,
    met: Vec<ClusterServer>,
    found: Inspection,
    findings: Vec<Finding>,
}

/// The findings about a bucket in NATS, in their order.
const OF_SERVERS: &[&str] =
    &["reachable", "server", "bucket", "replicas", "election", "fsync", "read", "write"];

/// The findings about a bucket in a directory.
const OF_DIRECTORY: &[&str] = &["bucket", "read", "write"];

/// Measures everything.
///
/// # Errors
///
/// Why nothing could be measured.
pub fn run(args: &DoctorArgs) -> Result<Report, Refusal> {
    connect::refuse_faults(&args.bucket.location, |_| true)?;
    let (mut opened, due) = match &args.bucket.location {
        Location::Nats(access) => (open_servers(args, access)?, OF_SERVERS),
        Location::Dir(dir) => (open_directory(args, dir)?, OF_DIRECTORY),
    };
    let read = read_agents(args, &mut opened);
    let keys = read.as_ref().map_or(&[][..], |read| &read.keys);
    let timing = timing_of(args, keys);
    let mut findings = of_bucket(args, opened, timing);
    let is_missing = |name: &&&str| findings.iter().all(|finding| finding.name != **name);
    let missing: Vec<_> = due.iter().filter(is_missing).collect();
    findings.extend(missing.into_iter().map(|name| Finding::unknown(name, "not measured", LATER)));
    let place = |finding: &Finding| due.iter().position(|name| *name == finding.name);
    findings.sort_by_key(place);
    findings.extend(read.map_or_else(|finding| vec![finding], |read| of_agents(args, read)));
    findings.extend(host::judge(timing, args.device.as_ref()));
    let drift_ppm = timing.drift_ppm();
    let timing = TimingUsed { timing: TimingStatus::of(timing), drift_ppm };
    Ok(Report::new(&args.bucket.name, timing, findings, &args.ignored, args.is_strict))
}

/// Connects to all servers, and inspects the bucket.
fn open_servers(args: &DoctorArgs, access: &Access) -> Result<Opened, Refusal> {
    let bucket = &args.bucket.name;
    let renewal = args.timing.renewal();
    let store_at = |at: &_| connect::nats_store(&args.bucket, at, "doctor", renewal);
    let keys: Vec<&str> = args.key.as_deref().into_iter().collect();
    let inspected = servers::inspect(access, &keys, &store_at);
    let count = inspected.len();
    let mut met: Vec<_> = inspected.iter().filter_map(|it| it.info.as_ref()).map(met_of).collect();
    // A server that is connected to and does not answer for the bucket has been reached.
    let is_unreachable = |it: &Inspected| match &it.inspection {
        Err(error) => error.kind == StoreErrorKind::Unreachable && it.info.is_none(),
        Ok(_) => false,
    };
    let (unreachable, rest): (Vec<_>, Vec<_>) = inspected.into_iter().partition(is_unreachable);
    let unreachable = unreachable.into_iter().filter_map(|it| it.inspection.err());
    let unreachable: Vec<_> = unreachable.map(|error| error.text).collect();
    if rest.is_empty() {
        return Err(StoreErrorKind::Unreachable.error(unreachable.join("; ")).into());
    }
    let mut findings = vec![store::reachable(count, &unreachable)];
    let is_enabled = rest.iter().any(|it| it.info.as_ref().is_none_or(|info| info.jetstream));
    let merged = servers::merge(rest, bucket);
    findings.push(match &merged {
        Ok(found) => store::bucket(bucket, found),
        Err(StoreError { kind: StoreErrorKind::Unsafe, text }) => store::unsafe_bucket(text),
        Err(StoreError { kind: StoreErrorKind::Unreachable, text }) => {
            store::silent_bucket(text, is_enabled)
        }
        Err(error) => return Err(error.clone().into()),
    });
    let within = if merged.is_ok() { REACH_MAX } else { SERVERS_WAIT };
    let mut store = store_at(access);
    let opened = open_existing(&mut store, sys::now().after(within));
    let exists = merged.as_ref().map_err(|error| error.text.clone());
    let exists = exists.and_then(|_| opened.map(|it| it.is_some()).map_err(|error| error.text));
    let found = merged.unwrap_or_default();
    let answered = store.cluster_servers(SERVERS_WAIT);
    if answered.len() >= met.len() {
        met = answered;
    }
    findings.push(store::servers(&met, found.replicas.unwrap_or(1)));
    Ok(Opened { store: Box::new(store), exists, met, found, findings })
}

/// Returns what a server says of itself at the beginning of a connection.
fn met_of(info: &ServerInfo) -> ClusterServer {
    let ServerInfo { name, version, .. } = info;
    ClusterServer { name: name.clone(), version: version.clone(), sync: None }
}

/// Opens a bucket in a directory, if it exists.
fn open_directory(args: &DoctorArgs, dir: &Path) -> Result<Opened, Refusal> {
    let mut store = DirStore::new(dir.to_owned(), &args.bucket.name);
    let exists = open_existing(&mut store, sys::now().after(ANSWER_MAX))?.is_some();
    let text = format!("{}: for agents of this host only", dir.display());
    let finding = match exists {
        true => Finding::ok("bucket", text),
        false => store::no_bucket(&args.bucket.name),
    };
    let (store, met, found) = (Box::new(store), Vec::new(), Inspection::default());
    Ok(Opened { store, exists: Ok(exists), met, found, findings: vec![finding] })
}

/// Returns what stands under the keys of agents, or why that could not be read.
fn read_agents(args: &DoctorArgs, opened: &mut Opened) -> Result<Status, Finding> {
    let not_read = |text: &str| format!("not asked: {text}");
    if let Err(why) = &opened.exists {
        return Err(Finding::unknown("agents", not_read(why), LATER));
    }
    let wanted: Vec<String> = args.key.iter().cloned().collect();
    let is_enough = |status: &KeyStatus| {
        status.kind == Kind::Agent && agents::is_fit(status, args.bucket.is_local())
    };
    let source = connect::source(&args.bucket);
    let (mut reader, began) = (status::Reader::new(&source), sys::now());
    loop {
        let status = reader.read(&wanted, Some(&is_enough), &mut *opened.store);
        let mut read = status.map_err(|refusal| {
            let text = not_read(&refusal.text);
            if refusal.exit != Exit::Unsafe {
                return Finding::unknown("agents", text, "measure again");
            }
            // Nobody can have such a lock.
            let advice = "read what putex help messages says of that text";
            Finding::new("agents", Level::Critical, text, advice)
        })?;
        read.keys.retain(|status| status.kind == Kind::Agent);
        if let ([], Some(key)) = (&read.keys[..], &args.key) {
            let unknown = KeyStatus::new(key.clone(), Kind::Agent, Vec::new(), Vec::new());
            read.keys.push(unknown);
        }
        if read.keys.iter().all(|it| is_at_rest(&it.agents) && it.too_many().is_none())
            || sys::now().since(began) >= reader.longest_wait()
        {
            return Ok(read);
        }
    }
}

/// Returns whether no agent is being upgraded: one that is has no guard yet, and is two for a
/// moment.
fn is_at_rest(agents: &[AgentStatus]) -> bool {
    let tokens: BTreeSet<_> = agents.iter().map(|agent| &agent.token).collect();
    tokens.len() == agents.len() && agents.iter().all(|agent| agent.guard_up)
}

/// Returns the findings about the agents.
fn of_agents(args: &DoctorArgs, Status { keys, not_asked, .. }: Status) -> Vec<Finding> {
    let given = args.is_timing_given.then(|| {
        let timing = args.timing;
        (timing.renewal().as_millis() as u64, timing.failures(), timing.confirmations())
    });
    let judge = |status: &KeyStatus| agents::judge(status, args.bucket.is_local(), given);
    let mut findings: Vec<_> = keys.iter().flat_map(judge).collect();
    if keys.is_empty() {
        let advice = "name the KEY of agents that have not had a lock yet";
        findings.push(Finding::unknown("agents", "the bucket has no locks of agents", advice));
    }
    let Some(why) = not_asked else { return findings };
    findings.into_iter().map(|it| agents::without_answers(it, &keys, &why)).collect()
}

/// Returns R, F and C by which all is judged: those of the settings, or of the agents with the
/// smallest R, or the defaults.
fn timing_of(args: &DoctorArgs, keys: &[KeyStatus]) -> Timing {
    if args.is_timing_given {
        return args.timing;
    }
    let all = keys.iter().flat_map(agents::timings);
    let timing = all.filter_map(|(renewal, failures, confirmations): TimingKey| {
        let renewal = Duration::from_millis(renewal);
        Timing::new(renewal, failures, confirmations, args.timing.drift_ppm()).ok()
    });
    timing.min_by_key(|timing| timing.renewal()).unwrap_or(args.timing)
}

/// Measures the bucket, and returns all findings about it.
fn of_bucket(args: &DoctorArgs, opened: Opened, timing: Timing) -> Vec<Finding> {
    let Opened { mut store, exists, met, found, mut findings } = opened;
    if let Some(replicas) = found.replicas {
        findings.push(store::replicas(&args.bucket.name, replicas, &found));
        findings.push(store::election(replicas, timing));
        findings.push(store::fsync(&met, replicas, found.is_in_memory));
    }
    if exists != Ok(true) {
        return findings;
    }
    let (count, renewal) = (args.samples, timing.renewal());
    let reads = ("read", sample::reads(&mut *store, count, renewal));
    for (name, samples) in [reads, ("write", sample::writes(&mut *store, count, renewal))] {
        findings.push(match samples {
            Ok(samples) => store::round_trips(name, &samples, timing),
            Err(error) => store::refused(name, &error),
        });
    }
    findings
}

#[cfg(test)]
mod tests;
