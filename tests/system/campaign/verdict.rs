//! The findings of a campaign, from the observations.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::course::{Course, Order, rejoin_max, takeover_max};
use super::lockers;
use super::testbed::{Happened, Testbed};
use crate::support::clock::{At, ms};

/// So many spans of overlap are described.
const SPANS_MAX: usize = 5;

/// A time in which the same services ran.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: At,
    to: At,
    set: u32,
}

/// A time with nobody active, and the bound that the pages promise on a host that is not busy.
#[derive(Clone, Copy, Debug)]
struct Gap {
    at: At,
    length: Duration,
    most: Duration,
}

/// Prints the report of a campaign and returns whether all holds.
pub(crate) fn judge(order: &Order, course: &Course, testbed: &Testbed, folder: &Path) -> bool {
    let (changes, last) = testbed.observer.history();
    let spans = spans(&changes, last);
    let mut wrong = course.violations.clone();
    let mut text = head(order, course, testbed, &spans);
    count_faults(&mut text, course, testbed);
    count_agents(&mut text, testbed);
    let overlap = judge_overlap(&mut text, order, testbed, &spans);
    if !overlap.is_zero() {
        wrong.push(format!("overlap {:.1} ms", ms(overlap)));
    }
    lockers::judge(&mut text, &mut wrong, folder);
    measure_gaps(&mut text, order, course, testbed, &spans);
    for why in &wrong {
        let _ = writeln!(text, "  VIOLATED: {why}");
    }
    let _ = writeln!(text, "{}", if wrong.is_empty() { "all holds" } else { "VIOLATED" });
    print!("{text}");
    let _ = fs::write(folder.join("report"), &text);
    let _ = fs::write(folder.join("faults"), list(&testbed.happened));
    let _ = fs::write(folder.join("services"), list_spans(&spans));
    wrong.is_empty()
}

fn spans(changes: &[(At, u32)], last: At) -> Vec<Span> {
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([last]);
    let span = |((from, set), to): (&(At, u32), At)| Span { from: *from, to, set: *set };
    changes.iter().zip(ends).map(span).collect()
}

fn head(order: &Order, course: &Course, testbed: &Testbed, spans: &[Span]) -> String {
    let timing = order.timing;
    let observed = spans.last().map_or(Duration::ZERO, |last| last.to - spans[0].from);
    let which = if order.agent.old { "putex 0.2.0" } else { "putex" };
    let counts = testbed.wires.counts();
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    format!(
        "campaign: {which}, seed {}, R {:?} F {} C {}\n  \
         duration: {:.1} s in {} rounds; longest gap of the observer {:.1} ms\n  \
         frames: {} passed, {} dropped, {} doubled, {} delayed\n",
        order.seed,
        timing.r,
        timing.f,
        timing.c,
        observed.as_secs_f64(),
        course.rounds,
        ms(testbed.observer.longest_gap()),
        load(&counts.passed),
        load(&counts.dropped),
        load(&counts.doubled),
        load(&counts.delayed),
    )
}

fn count_faults(text: &mut String, course: &Course, testbed: &Testbed) {
    let mut kinds: BTreeMap<_, (usize, Duration)> = BTreeMap::new();
    for fault in &testbed.happened {
        let (count, time) = kinds.entry(fault.kind).or_default();
        *count += 1;
        *time += fault.to.map_or(Duration::ZERO, |to| to - fault.from);
    }
    let all = testbed.happened.len();
    let _ = writeln!(text, "  faults: {all}, and {} that could not be then", course.left_out);
    for (kind, (count, time)) in kinds {
        let _ = writeln!(text, "    {count:4}  {kind}, {:.1} s in all", time.as_secs_f64());
    }
    let _ = writeln!(
        text,
        "  servers that ended by themselves {}, cluster helped up {} times, longest recovery of \
         the cluster {:.1} s",
        testbed.servers_lost,
        course.helped,
        course.longest_recovery.as_secs_f64()
    );
}

fn count_agents(text: &mut String, testbed: &Testbed) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for host in &testbed.hosts {
        for (name, count) in host.log().counts() {
            *counts.entry(name).or_default() += count;
        }
    }
    let starts: usize = testbed.hosts.iter().map(|host| host.starts).sum();
    let _ = writeln!(text, "  agents started {starts} times; they and their guards said:");
    for (name, _) in super::log::COUNTED {
        let count = counts.get(name).copied().unwrap_or(0);
        let _ = writeln!(text, "    {count:4}  {name}");
    }
    let left = testbed.hosts.iter().filter_map(|host| host.log().least_left());
    if let Some(left) = left.min() {
        let _ = writeln!(text, "    least time left when a service was down: {:.1} ms", ms(left));
    }
    let _ = writeln!(text, "  failovers to another host: {}", testbed.observer.flaps());
}

/// Judges from what was observed, and compares with what the services did themselves.
fn judge_overlap(text: &mut String, order: &Order, testbed: &Testbed, spans: &[Span]) -> Duration {
    let double: Vec<&Span> = spans.iter().filter(|span| span.set.count_ones() > 1).collect();
    let seen: Duration = double.iter().map(|span| span.to - span.from).sum();
    let own = own_overlap(testbed);
    let lives: usize = testbed.hosts.iter().map(|host| host.service.lives().len()).sum();
    let _ = writeln!(
        text,
        "  overlap: {:.1} ms in {} spans as observed; {:.1} ms by what {lives} services wrote",
        ms(seen),
        double.len(),
        ms(own)
    );
    if let Some(least) = least_after_last_resort(testbed) {
        let _ = writeln!(
            text,
            "  least time from a service's end by its last resort to the next start: {least:.1} ms"
        );
    }
    let around = order.timing.takeover() * 2;
    for span in double.iter().take(SPANS_MAX) {
        let (from, to) = (ms(span.from), ms(span.to));
        let hosts = hosts(span.set);
        let _ = writeln!(text, "    {from:.1} to {to:.1} ms ({:.1} ms): {hosts}", to - from);
        let near = |fault: &&Happened| {
            fault.from <= span.to && fault.to.is_none_or(|to| to + around >= span.from)
        };
        for fault in testbed.happened.iter().filter(near) {
            let _ = writeln!(text, "      {}", line(fault));
        }
        for (number, host) in testbed.hosts.iter().enumerate() {
            for note in host.service.journal() {
                let at = note.split(' ').next().and_then(|at| at.parse::<f64>().ok());
                if at.is_some_and(|at| at >= from - ms(around) && at <= to + 100.0) {
                    let _ = writeln!(text, "      host-{number}: {note}");
                }
            }
        }
    }
    seen.max(own)
}

/// Returns in milliseconds how soon after a last resort a service was started elsewhere.
fn least_after_last_resort(testbed: &Testbed) -> Option<f64> {
    let lines = testbed.hosts.iter().flat_map(|host| host.service.journal());
    let mut all: Vec<(f64, bool)> = lines
        .filter_map(|line| {
            let (at, what) = line.split_once(' ')?;
            let started = what.starts_with("started");
            let noted = started || what == "ended by last resort";
            Some((at.parse().ok()?, started)).filter(|_| noted)
        })
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let pairs = all.windows(2).filter(|two| !two[0].1 && two[1].1);
    pairs.map(|two| two[1].0 - two[0].0).min_by(f64::total_cmp)
}

/// Returns for how long services of two hosts lived at once, by their own words.
fn own_overlap(testbed: &Testbed) -> Duration {
    let lives: Vec<_> = testbed.hosts.iter().map(|host| host.service.lives()).collect();
    let mut sum = Duration::ZERO;
    for (number, ours) in lives.iter().enumerate() {
        for theirs in lives[number + 1..].iter().flatten() {
            for life in ours {
                let both = life.last.min(theirs.last);
                sum += both.saturating_sub(life.first.max(theirs.first));
            }
        }
    }
    sum
}

/// Measures every time with nobody active in which all was well. How long it was is a figure: a
/// busy host makes it longer. A service that nobody starts at all is a violation of the course.
fn measure_gaps(
    text: &mut String,
    order: &Order,
    course: &Course,
    testbed: &Testbed,
    spans: &[Span],
) {
    let (timing, start) = (order.timing, longest_start(testbed));
    let late = testbed.observer.longest_gap();
    let takeover = takeover_max(timing) + start + late;
    let rejoin = rejoin_max(timing) + start + late;
    let (mut later, mut first) = (Vec::new(), Vec::new());
    for window in &course.windows {
        let young = if window.first { timing.takeover() } else { Duration::ZERO };
        for span in spans.iter().filter(|span| span.set == 0) {
            let (at, to) = (span.from.max(window.from), span.to.min(window.to));
            let began_before = span.from <= window.from;
            if at < to {
                let most = if began_before { rejoin + young } else { takeover };
                let gaps = if began_before { &mut first } else { &mut later };
                gaps.push(Gap { at, length: to - at, most });
            }
        }
    }
    let probe = |(at, up): &(At, At)| Gap { at: *at, length: *up - *at, most: takeover };
    let probes: Vec<Gap> = course.probes.iter().map(probe).collect();
    let _ = writeln!(
        text,
        "  nobody active, and all was well for {} times; the bounds: P = R + T*1.01 + C*R + R + \
         start ({:.0} ms) + observer late ({:.0} ms) = {:.0} ms; B = P + 2.5*R + 5 s = {:.0} ms",
        course.windows.len(),
        ms(start),
        ms(late),
        ms(takeover),
        ms(rejoin)
    );
    put_gaps(text, "after a host crashed (P)", &probes);
    put_gaps(text, "from the cluster's recovery on (B)", &first);
    put_gaps(text, "later (P)", &later);
    let all = spans.iter().filter(|span| span.set == 0);
    let longest = all.map(|span| span.to - span.from).max().unwrap_or_default();
    let _ = writeln!(text, "    during faults too: longest {:.0} ms", ms(longest));
}

fn put_gaps(text: &mut String, name: &str, gaps: &[Gap]) {
    let Some(longest) = gaps.iter().max_by_key(|gap| gap.length) else {
        let _ = writeln!(text, "    {name}: never");
        return;
    };
    let _ = writeln!(
        text,
        "    {name}: {} times, longest {:.0} ms of {:.0} ms",
        gaps.len(),
        ms(longest.length),
        ms(longest.most)
    );
    for gap in gaps.iter().filter(|gap| gap.length > gap.most) {
        let _ = writeln!(
            text,
            "      longer than the bound: {:.0} ms from {:.1} ms on, at most {:.0} ms",
            ms(gap.length),
            ms(gap.at),
            ms(gap.most)
        );
    }
}

/// Returns the longest start, from its first step to a service that is seen.
fn longest_start(testbed: &Testbed) -> Duration {
    let journals = testbed.hosts.iter().flat_map(|host| host.service.journal());
    let took = journals.filter_map(|line| {
        let took = line.split("started in ").nth(1)?;
        took.split(' ').next()?.parse::<f64>().ok()
    });
    Duration::from_secs_f64(took.fold(0.0, f64::max) / 1000.0)
}

fn hosts(set: u32) -> String {
    let hosts = (0..32).filter(|host| set & (1 << host) != 0);
    let names: Vec<String> = hosts.map(|host| format!("host-{host}")).collect();
    names.join(" and ")
}

fn line(fault: &Happened) -> String {
    let to = fault.to.map_or("the end".to_owned(), |to| format!("{:.1}", ms(to)));
    let from = ms(fault.from);
    format!("{from:.1} to {to} ms: {} ({})", fault.kind, fault.target)
}

fn list(happened: &[Happened]) -> String {
    let lines: Vec<String> = happened.iter().map(line).collect();
    lines.join("\n") + "\n"
}

fn list_spans(spans: &[Span]) -> String {
    let line = |span: &Span| {
        let (from, to) = (ms(span.from), ms(span.to));
        format!("{from:.1} to {to:.1} ms: {}\n", hosts(span.set))
    };
    spans.iter().map(line).collect()
}
