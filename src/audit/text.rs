//! The report for people. Pure.

use std::time::{Duration, SystemTime};

use super::Request;
use super::judge::{Distance, End, Judgement, OVERLAPS_MAX, Overlap, Term, order};
use super::logs::Logs;
use super::records::Records;
use crate::core::Ms;

/// Blanks between two columns.
const GAP: usize = 2;

/// A clock that goes back less is not one: two processes write the lines.
const WENT_BACK_MIN: Duration = Duration::from_secs(1);

/// Digits of a second below which an overlap can be too short to be seen.
const DIGITS_MIN: usize = 3;

/// Returns the report on logs. `doubts` are the reasons why they do not tell everything.
pub(super) fn of_logs(
    request: &Request,
    logs: &Logs,
    judgement: &Judgement,
    doubts: &[String],
) -> String {
    let Request { key, logs: files, .. } = request;
    let (agents, lines) = (logs.agents.len(), logs.lines);
    let span = logs.span().map(|(first, last)| format!(", {} to {}", time(first), time(last)));
    let span = span.unwrap_or_default();
    let mut text =
        format!("{key}: {} logs, {agents} agents, {lines} lines about it{span}\n", files.len());
    let origin = |term: &Term| format!(" ({}:{})", logs.name_of(term), term.line);
    text += &table(&logs.terms);
    text += &overlaps(&logs.terms, judgement, &origin);
    text += &distances(&logs.terms, judgement);
    if let Some(apart) = clocks_apart(logs, judgement) {
        text += &format!(
            "clocks: at least {} apart, or one has gone back, or parts of a log are not in order\n",
            Ms(apart)
        );
    }
    let coarse = |digits: usize| digits < DIGITS_MIN;
    if logs.agents.iter().any(|log| coarse(log.digits)) {
        text += "note: a log has times without milliseconds: a short overlap does not show\n";
    }
    if logs.untimed > 0 {
        text += &format!("note: {} lines have no time that can be used\n", logs.untimed);
    }
    let gaps: u64 = logs.agents.iter().map(|log| log.gaps).sum();
    if gaps > 0 {
        text += &format!(
            "note: lines are missing in {gaps} places; the terms around them count as longer\n"
        );
    }
    text + &listed("not known", doubts)
}

/// Returns the report on the revisions in a bucket.
pub(super) fn of_records(
    request: &Request,
    records: &Records,
    judgement: &Judgement,
    doubts: &[String],
) -> String {
    let Request { key, bucket, .. } = request;
    let mut text = format!(
        "{bucket}/{key}: {} revisions in the bucket, by the clock of its server\n",
        records.revisions
    );
    let origin = |term: &Term| format!(" (revision {})", term.line);
    text += &table(&records.terms);
    text += &overlaps(&records.terms, judgement, &origin);
    // Logs have more than the bucket: what that lacks leaves nothing open.
    let kind = if request.logs.is_empty() { "not known" } else { "note" };
    text + &listed(kind, doubts)
}

/// Returns how far clocks are apart for all that shows; `None` if nothing does.
pub(super) fn clocks_apart(logs: &Logs, judgement: &Judgement) -> Option<Duration> {
    let went_back = logs.agents.iter().map(|log| log.went_back).filter(|it| *it >= WENT_BACK_MIN);
    went_back.chain(judgement.clocks_apart.map(|apart| apart.time)).max()
}

fn time(since_epoch: Duration) -> String {
    // The server or a file may say anything; more than this has no form.
    let latest = Duration::from_secs(253_402_300_799);
    let time = SystemTime::UNIX_EPOCH + since_epoch.min(latest);
    humantime::format_rfc3339_millis(time).to_string()
}

pub(super) fn name_of(term: &Term) -> String {
    match term.number {
        Some(number) => format!("term {number} of {}", term.agent),
        None => format!("a term of {}", term.agent),
    }
}

/// Returns the terms in the order of their beginnings, as a table.
fn table(terms: &[Term]) -> String {
    if terms.is_empty() {
        return String::new();
    }
    let names = ["TERM", "SEAT", "AGENT", "FROM", "UNTIL", "WHY IT ENDED"].map(str::to_owned);
    let rows = order(terms, false).into_iter().map(|at| row(&terms[at]));
    let rows: Vec<[String; 6]> = [names].into_iter().chain(rows).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let blanks = width + GAP - cell.chars().count();
            line += cell;
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn row(term: &Term) -> [String; 6] {
    let from = time(term.from);
    let until = term.until.map_or_else(|| "-".to_owned(), time);
    let known = match term.end {
        End::Reported if term.why.is_empty() => "not known",
        End::Reported => "",
        End::ByRules => "not in its log; by the rules it was down by then",
        End::GuardDead => "its guard was dead: the service may have run until then",
        End::Unknown => "nothing tells that it has ended",
        End::MayStillRun => "reported that it MAY STILL RUN",
    };
    let texts = [&*term.why, known].into_iter().filter(|text| !text.is_empty());
    let why = texts.collect::<Vec<_>>().join("; ");
    [
        term.number.map_or_else(|| "-".to_owned(), |number| number.to_string()),
        term.seat.to_string(),
        term.agent.clone(),
        if term.from_is_known { from } else { format!("before {from}") },
        match term.end {
            End::ByRules => format!("by {until}"),
            End::GuardDead => format!("perhaps {until}"),
            End::Reported | End::Unknown | End::MayStillRun => until,
        },
        why,
    ]
}

fn overlaps(terms: &[Term], found: &Judgement, origin: &dyn Fn(&Term) -> String) -> String {
    let line = |overlap: &Overlap| {
        let (first, second) = (&terms[overlap.first], &terms[overlap.second]);
        let kind = match overlap.is_certain(terms) {
            true => "OVERLAP",
            false => "POSSIBLE OVERLAP",
        };
        let from = time(overlap.from);
        let when = match overlap.until {
            Some(until) => {
                let length = Ms(until.saturating_sub(overlap.from));
                format!("of {length}, {from} to {}", time(until))
            }
            None => format!("since {from}, with no end"),
        };
        let seat = if first.seat == 0 { String::new() } else { format!(", seat {}", first.seat) };
        let [one, other] = [first, second].map(|term| name_of(term) + &origin(term));
        format!("{kind} {when}{seat}: {one} and {other}\n")
    };
    let text: String = found.overlaps.iter().map(line).collect();
    match found.is_cut {
        true => text + &format!("and more than these {OVERLAPS_MAX}\n"),
        false => text,
    }
}

fn distances(terms: &[Term], found: &Judgement) -> String {
    let line = |what: &str, distance: Option<Distance>, why: &str| {
        distance.map_or_else(String::new, |Distance { time, first, second }| {
            let [one, other] = [first, second].map(|at| name_of(&terms[at]));
            format!("{what}: {} between {one} and {other}{why}\n", Ms(time))
        })
    };
    let by_clocks = "; they may have overlapped if the clocks are further apart";
    let by_store = "; the store has ordered them, whatever the clocks say";
    line("closest terms", found.closest, by_clocks)
        + &line("closest release and take", found.closest_release, by_store)
}

/// Returns what is not known: it is a `kind` of line.
fn listed(kind: &str, doubts: &[String]) -> String {
    doubts.iter().map(|doubt| format!("{kind}: {doubt}\n")).collect()
}
