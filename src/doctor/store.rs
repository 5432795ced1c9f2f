//! Findings about the servers and the bucket. Pure.
//!
//! The bounds are shares of R, because each R has to hold a renewal, a read, and what the holder
//! reads besides: an agent gives a read R/2, and a switchover needs about four round trips in R.

use super::finding::{Figures, Finding, Level};
use super::sample::{Samples, describe};
use crate::core::{ELECTION_T_MIN, Ms, Timing};
use crate::nats::bucket::{AGENTS_SINCE, LOCKS_SINCE, is_since};
use crate::store::nats::cluster::{ClusterServer, SyncMode};
use crate::store::nats::inspect::Inspection;
use crate::store::{StoreError, StoreErrorKind};

/// Above this share of R, requests that are to follow each other do not fit into R.
const WARNING_SHARE: u32 = 4;

/// Above this share of R, the agent does not wait for the answer to a read.
const CRITICAL_SHARE: u32 = 2;

/// Where the page says how it is found out when servers write to their disks.
const SEE_PAGE: &str = "FSYNC in the page of putex help doctor says how to find out";

/// Returns what a server of this version lacks, and the version that has it.
fn defect(version: &str, replicas: u32) -> Option<(Level, String)> {
    let is_from = |since: [u64; 3]| is_since(version, since);
    if !is_from(AGENTS_SINCE) {
        return Some((Level::Critical, "older than 2.10, which putex needs".to_owned()));
    }
    let why = if is_from([2, 10, 20]) && !is_from([2, 10, 23]) {
        "a crash of the process can lose the bucket; repaired in 2.10.23"
    } else if !is_from(LOCKS_SINCE) {
        "older than 2.11: no locks and no leases, and copies can differ after a snapshot"
    } else if replicas > 1 && (!is_from([2, 11, 12]) || is_from([2, 12, 0]) && !is_from([2, 12, 4]))
    {
        "two servers can lead the bucket at once; repaired in 2.11.12, 2.12.4"
    } else {
        return None;
    };
    Some((Level::Warning, why.to_owned()))
}

/// Judges the versions of the servers that were met.
pub(super) fn servers(met: &[ClusterServer], replicas: u32) -> Finding {
    let mut versions: Vec<(&str, Vec<&str>)> = Vec::new();
    for ClusterServer { name, version, .. } in met {
        match versions.iter_mut().find(|(known, _)| known == version) {
            Some((_, names)) => names.push(name),
            None => versions.push((version, vec![name])),
        }
    }
    let named = versions.iter().map(|(version, names)| format!("{version} ({})", names.join(" ")));
    let text = format!("nats-server {}", named.collect::<Vec<_>>().join(", "));
    let defects = versions.iter().filter_map(|(version, _)| defect(version, replicas));
    let advice = "install nats-server 2.12.4 or later on each of them";
    match defects.max_by_key(|(level, _)| *level) {
        None => Finding::ok("server", text),
        Some((level, why)) => Finding::new("server", level, format!("{text}: {why}"), advice),
    }
}

/// Judges whether all servers of the setting answer.
pub(super) fn reachable(servers: usize, unreachable: &[String]) -> Finding {
    if unreachable.is_empty() {
        return Finding::ok("reachable", format!("{servers} of {servers} servers answer"));
    }
    let (count, texts) = (unreachable.len(), unreachable.join("; "));
    let text = format!("{count} of {servers} do not answer: {texts}");
    let advice = "start them, or look whether this host reaches them";
    Finding::new("reachable", Level::Warning, text, advice)
}

/// Judges the settings of the bucket. `name` is its name.
pub(super) fn bucket(name: &str, found: &Inspection) -> Finding {
    let start = format!("bucket {name}: ");
    let remarks = found.warnings.iter().map(|text| text.strip_prefix(&*start).unwrap_or(text));
    let remarks: Vec<_> = remarks.collect();
    let advice = "an operator may change that; see The bucket in putex help store";
    if found.created.is_none() {
        no_bucket(name)
    } else if remarks.is_empty() {
        Finding::ok("bucket", format!("{name} is as putex makes it"))
    } else {
        Finding::new("bucket", Level::Warning, remarks.join("; "), advice)
    }
}

/// Returns the finding about a bucket that does not exist. A misspelt name looks the same.
pub(super) fn no_bucket(name: &str) -> Finding {
    let advice = "run putex init or an agent, which make it; or write the --bucket of the agents";
    Finding::new("bucket", Level::Warning, format!("{name} does not exist"), advice)
}

/// Returns the finding about a bucket that no agent uses, and why.
pub(super) fn unsafe_bucket(why: &str) -> Finding {
    let advice = "see putex help store";
    Finding::new("bucket", Level::Critical, format!("agents refuse it: {why}"), advice)
}

/// Returns the finding about a bucket that no server answers for, and why. `is_enabled`: whether
/// JetStream is enabled at one of those that were reached.
pub(super) fn silent_bucket(why: &str, is_enabled: bool) -> Finding {
    let advice = match is_enabled {
        true => "start the servers that have its copies: most of them must be there",
        false => "enable JetStream there: jetstream {} in its configuration, or nats-server -js",
    };
    let text = format!("no answer, and without one no lock is renewed: {why}");
    Finding::new("bucket", Level::Critical, text, advice)
}

/// Judges the copies of the bucket. `name` is its name.
pub(super) fn replicas(name: &str, replicas: u32, Inspection { late, .. }: &Inspection) -> Finding {
    let bad = |text: String, advice: &str| Finding::new("replicas", Level::Warning, text, advice);
    let edit = format!("on three servers or more: nats stream edit KV_{name} --replicas 3");
    if !late.is_empty() {
        let text = format!("{} of {replicas} copies behind: {}", late.len(), late.join(" "));
        bad(text, "start those servers, or repair the links between servers")
    } else if replicas < 3 {
        let text = "while a server that has one of them is down, nobody has the lock";
        bad(format!("copies: {replicas}; {text}"), &edit)
    } else {
        Finding::ok("replicas", format!("{replicas} copies, all current"))
    }
}

/// Judges T beside the time of an election.
pub(super) fn election(replicas: u32, timing: Timing) -> Finding {
    let lock_time = timing.lock_time();
    if replicas < 2 {
        Finding::ok("election", "one copy: no election")
    } else if lock_time < ELECTION_T_MIN {
        let (t, least) = (Ms(lock_time), Ms(ELECTION_T_MIN));
        let text = format!("T = F*R = {t}: an election of 4 to 8 s can cost the lock");
        let advice = format!("take R and F so that F*R is at least {least}");
        Finding::new("election", Level::Warning, text, advice)
    } else {
        Finding::ok("election", format!("T = F*R = {}: an election fits", Ms(lock_time)))
    }
}

/// Judges when the servers write to their disks. `replicas`: so many have a copy.
pub(super) fn fsync(met: &[ClusterServer], replicas: u32, is_in_memory: bool) -> Finding {
    if is_in_memory {
        let text = "the bucket is in memory: what is stored is lost with its servers";
        let advice = "make another bucket, with file storage";
        return Finding::new("fsync", Level::Warning, text, advice);
    }
    let tells = met.iter().filter_map(|server| Some((&server.name, server.sync?)));
    let tells: Vec<_> = tells.collect();
    let late = tells.iter().filter_map(|(name, sync)| match sync {
        SyncMode::Always => None,
        SyncMode::Every(every) => Some(format!("{name} every {}", Ms(*every))),
    });
    let late: Vec<_> = late.collect();
    if !late.is_empty() {
        let late = late.join(", ");
        let text = format!("a power cut loses what was acknowledged: written to disk late: {late}");
        let advice = "set sync_interval: always in the jetstream block of each server";
        Finding::new("fsync", Level::Warning, text, advice)
    } else if tells.is_empty() {
        let text = "the servers do not tell this user when they write to disk";
        Finding::unknown("fsync", text, SEE_PAGE)
    } else if tells.len() < replicas as usize {
        let text = format!("{} of {replicas} servers tell: before each answer", tells.len());
        Finding::unknown("fsync", text, SEE_PAGE)
    } else {
        Finding::ok("fsync", "written to disk before each answer")
    }
}

/// Judges how long requests take beside R.
pub(super) fn round_trips(name: &'static str, samples: &Samples, timing: Timing) -> Finding {
    let (renewal, p99) = (timing.renewal(), samples.percentile(99));
    let lost = samples.unanswered;
    let figures = Some(Box::new(Figures {
        p50_seconds: samples.percentile(50).as_secs_f64(),
        p99_seconds: p99.as_secs_f64(),
        max_seconds: samples.percentile(100).as_secs_f64(),
        unanswered: lost,
    }));
    let level = if p99 >= renewal / CRITICAL_SHARE || lost * 10 >= samples.count() {
        Level::Critical
    } else if p99 >= renewal / WARNING_SHARE || lost > 0 {
        Level::Warning
    } else {
        Level::Ok
    };
    let text = format!("{}; R {}", describe(samples), Ms(renewal));
    // Of those without an answer it is known that R was too short.
    let longest = if lost > 0 { p99.max(renewal) } else { p99 };
    let least = (longest * WARNING_SHARE).as_millis() + 1;
    let advice = match samples.times.is_empty() {
        true => {
            let servers = "see whether the servers run, and whether their disks have room";
            format!("{servers}; if so, take -r {least}ms or more")
        }
        false => format!("take -r {least}ms or more, or make disk and links faster"),
    };
    Finding { figures, ..Finding::new(name, level, text, advice) }
}

/// Returns the finding about requests that the store has refused.
pub(super) fn refused(name: &'static str, error: &StoreError) -> Finding {
    let text = format!("none was done: {error}");
    if error.kind == StoreErrorKind::Credentials {
        return Finding::unknown(name, text, "give this user the right, or take another user");
    }
    let advice = "see whether the store is there and has room: it refuses agents and locks too";
    Finding::new(name, Level::Critical, text, advice)
}
