//! `putex audit`: whether the service ever ran at two agents at once, as far as logs and bucket
//! tell.
//!
//! | file | content |
//! |---|---|
//! | `lines` | the lines of files |
//! | `event` | what a line says |
//! | `agent_log` | the terms in the log of one agent |
//! | `logs` | all logs |
//! | `records` | the terms in the revisions of a key |
//! | `judge` | terms that overlap |
//! | `text` | the report |
//! | `verdict` | its last line, and the exit status |
//!
//! Logs have the times of the clocks of their hosts, the bucket those of its server. The two are
//! judged apart, each with one question: does one term begin before another has ended?

mod agent_log;
mod event;
mod judge;
mod lines;
mod logs;
mod records;
mod text;
mod verdict;

use std::time::{Duration, SystemTime};

use self::judge::{Judgement, end_by_rules, judge};
use self::logs::Logs;
use self::records::Records;
use self::verdict::{Findings, Verdict};
use crate::core::{SEATS_MAX, Seat};
use crate::exit::{Exit, Refusal};
use crate::store::lock_key::to_key_state;
use crate::store::{Bucket, History};
use crate::sys;

/// How long the revisions of all keys may take to be read.
const READ_MAX: Duration = Duration::from_secs(30);

/// Clocks that are further apart than this leave open which of two terms was first.
const APART_MAX: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: String,
    /// The logs, each with the files that are its parts.
    pub logs: Vec<Vec<String>>,
    /// The name of the bucket.
    pub bucket: String,
}

/// Judges the logs, and the bucket if there is one; prints a report and returns the exit status.
///
/// # Errors
///
/// Why a log was not read, or the bucket if there are no logs.
pub fn run(
    request: &Request,
    bucket: Option<Box<dyn Bucket>>,
    print: impl Fn(&str) -> Result<Exit, Refusal>,
    warn: impl Fn(&Refusal) -> Exit,
) -> Result<u8, Refusal> {
    let mut verdict = Verdict::default();
    if !request.logs.is_empty() {
        let mut logs = Logs::new(&request.key);
        request.logs.iter().try_for_each(|parts| logs.read(parts))?;
        logs.finish();
        end_by_rules(&mut logs.terms);
        let judgement = judge(&logs.terms);
        let doubts = doubts_of_logs(&logs, &judgement);
        verdict.logs = Some(Findings::of(&judgement, doubts.len()));
        print(&text::of_logs(request, &logs, &judgement, &doubts))?;
    }
    if let Some(mut bucket) = bucket {
        match read(request, &mut *bucket) {
            Ok((records, doubts)) => {
                let judgement = judge(&records.terms);
                verdict.bucket = Some(Findings::of(&judgement, doubts.len()));
                print(&text::of_records(request, &records, &judgement, &doubts))?;
            }
            Err(refusal) if request.logs.is_empty() => return Err(refusal),
            Err(refusal) => verdict.failed = Some(warn(&refusal) as u8),
        }
    }
    print(&format!("{}\n", verdict.text()))?;
    Ok(verdict.status())
}

/// Returns what the logs do not tell.
fn doubts_of_logs(logs: &Logs, judgement: &Judgement) -> Vec<String> {
    let mut doubts = Vec::new();
    if logs.terms.is_empty() {
        doubts.push("no line tells that an agent was active".to_owned());
    }
    for name in logs.without_lines() {
        doubts.push(format!("{name} has no line about the key in a form that is known"));
    }
    let cut_terms: u64 = logs.agents.iter().map(|log| log.cut_terms).sum();
    if cut_terms > 0 {
        doubts.push(match cut_terms {
            1 => "lines are missing where a term has ended".to_owned(),
            _ => format!("lines are missing where {cut_terms} terms have ended"),
        });
    }
    for name in logs.missing() {
        doubts.push(format!("the log of {name} is missing, which had the lock"));
    }
    if logs.untimed_events > 0 {
        let count = logs.untimed_events;
        doubts.push(format!("{count} lines that matter have no time that can be used"));
    }
    let mixed = logs.agents.iter().filter(|log| log.is_mixed);
    doubts.extend(mixed.filter_map(|log| {
        let agent = log.agent.as_ref()?;
        let note = match logs.parts[log.log] {
            0 | 1 => "",
            _ => "; if its parts are logs of two hosts, write --log before each",
        };
        Some(format!(
            "the log of {agent} is also that of another agent: their lines are mixed{note}"
        ))
    }));
    if let Some(term) = judgement.double.map(|at| &logs.terms[at]) {
        doubts.push(format!("{} is in two logs: one is given twice", text::name_of(term)));
    }
    let apart = text::clocks_apart(logs, judgement);
    let least = judgement.closest.map_or(APART_MAX, |closest| closest.time.min(APART_MAX));
    if apart.is_some_and(|apart| apart >= least) {
        let text = "the clocks are too far apart, or the agents have not had one bucket";
        doubts.push(text.to_owned());
    }
    doubts
}

/// Reads the revisions of the keys of all seats; returns what they do not tell, too.
fn read(request: &Request, bucket: &mut dyn Bucket) -> Result<(Records, Vec<String>), Refusal> {
    let by = sys::now().after(READ_MAX);
    let (mut records, mut doubts) = (Records::default(), Vec::new());
    if bucket.open_existing(by)?.is_some() {
        for seat in Seat::all(SEATS_MAX) {
            let History { revisions, is_whole } = bucket.history(&seat.key(&request.key), by)?;
            if !is_whole {
                let key = seat.key(&request.key);
                doubts.push(format!("key {key} has more revisions than were read"));
            }
            let since_epoch = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH);
            let revision = |(entry, at)| (to_key_state(Some(entry)), since_epoch(at));
            let revisions = revisions.into_iter().map(revision);
            let revisions: Vec<_> =
                revisions.map(|(state, at)| (state, at.unwrap_or_default())).collect();
            records.add(seat.0, &revisions);
        }
    }
    if records.plain > 0 {
        let count = records.plain;
        doubts.push(format!("{count} revisions are not of this version of putex"));
    }
    let seats = records.terms.iter().map(|term| term.seat);
    let is_alone = |seat: u32| records.terms.iter().filter(|it| it.seat == seat).count() < 2;
    if seats.clone().all(is_alone) {
        doubts.push(match records.terms.len() {
            0 => "the bucket has no term of the key".to_owned(),
            _ if request.logs.is_empty() => {
                "the bucket has the last term only; write --log for those before".to_owned()
            }
            _ => "the bucket has the last term only".to_owned(),
        });
    }
    Ok((records, doubts))
}
