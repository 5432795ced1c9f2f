//! A case is played: two hosts, a fault, and what became of the service.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;

use crate::Pace;
use crate::case::{Case, Fault, Phase, Role, Site};
use crate::exceptions::{self, EXCEPTIONS, Harm};
use crate::pair::{Pair, TOKENS, Template};
use crate::strace::{Strace, threads_of};
use crate::support::clock::{At, ms, now, observe_for, wait_until};

/// How long a host that is to be active may take beyond what the timing demands.
const PATIENCE: Duration = Duration::from_secs(8);

/// How late a stop may be seen.
const LATE: Duration = Duration::from_millis(150);

/// A gap of the observer from which on a machine is too busy to tell a late stop.
const BUSY: Duration = Duration::from_millis(60);

/// By how many gaps of the observer a stop is late that no busy machine explains.
const LATE_GAPS: u32 = 10;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The fault came, and all holds.
    Holds,
    /// The fault did the harm that an exception allows.
    Listed,
    /// The call was not made so often.
    NotReached,
    /// Rules that do not hold, and the log.
    Violated { wrong: Vec<String>, log: String },
    /// The machine was too busy to judge, or the case could not be prepared; why.
    Unclear(String),
}

/// A verdict, and what else there is to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// How often an agent has ended by itself.
    pub(crate) restarts: usize,
    /// The exception that the case is of, by its place.
    pub(crate) exception: Option<usize>,
}

impl Outcome {
    pub(crate) fn unclear(why: String) -> Outcome {
        Outcome { verdict: Verdict::Unclear(why), restarts: 0, exception: None }
    }
}

/// A fault that was injected, and what does not hold after it.
struct Injected {
    began: At,
    /// The line that strace wrote of the call; `None` when it was not made.
    line: Option<String>,
    /// Why the service does not run where it should.
    stays: Vec<String>,
}

/// Plays a case.
pub(crate) fn play(case: &Case, template: &Template) -> Outcome {
    let mut pair = match Pair::start(template) {
        Ok(pair) => pair,
        Err(why) => return Outcome::unclear(why),
    };
    let injected = match inject(case, &mut pair) {
        Ok(injected) => injected,
        Err(why) => return Outcome::unclear(why),
    };
    let line = injected.line.as_deref().unwrap_or_default();
    let exception = exceptions::find(case, line, pair.has_cgroup());
    Outcome {
        verdict: judge(&pair, &injected, exception),
        restarts: pair.hosts.iter().map(|host| host.restarts).sum(),
        exception,
    }
}

fn judge(pair: &Pair, injected: &Injected, exception: Option<usize>) -> Verdict {
    let (outlives, worst) = outlives(pair);
    let wrong = [&injected.stays[..], &outlives[..]].concat();
    let log = || {
        let line = injected.line.as_deref().unwrap_or("not reached");
        format!("    fault: {line}\n{}", pair.said(injected.began))
    };
    let allowed = exception.map(|at| EXCEPTIONS[at].harm);
    let gap = pair.observer.longest_gap();
    match (wrong.is_empty(), allowed) {
        (true, _) if injected.line.is_some() => Verdict::Holds,
        (true, _) => Verdict::NotReached,
        (false, Some(Harm::Outlives)) => Verdict::Listed,
        (false, Some(Harm::Stays)) if outlives.is_empty() => Verdict::Listed,
        (false, _) if gap > BUSY && worst < gap * LATE_GAPS => Verdict::Unclear(format!(
            "{}; the observer slept {:.0} ms\n{}",
            wrong.join("; "),
            ms(gap),
            log()
        )),
        (false, _) => Verdict::Violated { wrong, log: log() },
    }
}

/// Injects the fault and waits for what follows.
fn inject(case: &Case, pair: &mut Pair) -> Result<Injected, String> {
    let pace = Pace::new();
    let threads = site_threads(&case.site, pair)?;
    let sandbox = &pair.hosts[target(case.site.phase)].service.sandbox;
    let trace = format!("trace={}", case.site.call);
    let options = ["-y", "-e", &trace, "-e", &case.injection()].map(str::to_owned);
    let mut strace = Strace::attach(sandbox, &threads, &options)?;
    let began = now();
    let hang = match case.fault {
        Fault::Fail => Duration::ZERO,
        Fault::Hang => pace.hang(),
    };
    let mut stays = Vec::new();
    let within = pace.takeover() + hang + PATIENCE;
    match case.site.phase {
        Phase::Stroke => {
            let injected = || strace.injected(case);
            if wait_until(began + Pace::R * 3, injected).is_some() {
                observe_for(hang);
                strace.detach();
                survive(pair, within, &mut stays);
            }
        }
        Phase::Replace => {
            pair.kill_guard();
            observe_for(hang + Pace::R * Pace::F);
            if pair.wait_any_active(within).is_none() {
                stays.push(format!("nobody is active within {within:?}"));
            }
        }
        Phase::Stop | Phase::Takeover => {
            pair.hosts[0].end(Signal::TERM);
            if !pair.wait_active(1, within) {
                stays.push(format!("nobody takes over within {within:?}"));
            }
            observe_for((began + hang).saturating_sub(now()));
        }
    }
    observe_for(Pace::R);
    strace.detach();
    Ok(Injected { began, line: strace.injected(case), stays })
}

/// A host that has had a fault goes on, and so does the other when the agent of the holder is
/// killed then.
fn survive(pair: &mut Pair, within: Duration, stays: &mut Vec<String>) {
    // A guard that was lost to the fault has a successor by then.
    observe_for(Pace::R * Pace::F);
    let Some(active) = pair.wait_any_active(within) else {
        return stays.push(format!("nobody is active within {within:?}"));
    };
    pair.hosts[active].end(Signal::KILL);
    let within = Pace::new().takeover() + PATIENCE;
    if !pair.wait_active(1 - active, within) {
        stays.push(format!(
            "nobody takes over within {within:?} from {}, whose agent was killed",
            TOKENS[active]
        ));
    }
}

/// Returns how services have outlived their lock, and for how long at the most.
fn outlives(pair: &Pair) -> (Vec<String>, Duration) {
    let mut wrong = Vec::new();
    let overlap = pair.observer.overlap();
    let mut worst = overlap;
    if !overlap.is_zero() {
        wrong.push(format!("two services ran for {:.0} ms", ms(overlap)));
    }
    let (changes, last) = pair.observer.history();
    let held = Pace::new().held() + LATE;
    for (host, token) in TOKENS.iter().enumerate() {
        let up = times_up(&changes, last, host);
        let excess = pair.records.excess(token, &up, held);
        let sum: Duration = excess.iter().map(|(from, to)| *to - *from).sum();
        worst = worst.max(sum);
        if !sum.is_zero() {
            wrong.push(format!("the service of {token} ran for {:.0} ms without a lock", ms(sum)));
        }
    }
    (wrong, worst)
}

/// Returns from when until when the service of a host ran.
fn times_up(changes: &[(At, u32)], last: At, host: usize) -> Vec<(At, At)> {
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([last]);
    let spans = changes.iter().zip(ends);
    let up = spans.filter(|((_, set), _)| set & (1 << host) != 0);
    up.map(|((from, _), to)| (*from, to)).collect()
}

/// Returns the host that has the fault.
fn target(phase: Phase) -> usize {
    match phase {
        Phase::Stroke | Phase::Stop | Phase::Replace => 0,
        Phase::Takeover => 1,
    }
}

/// Returns the threads of a site by their numbers.
fn site_threads(site: &Site, pair: &Pair) -> Result<Vec<u32>, String> {
    let host = &pair.hosts[target(site.phase)];
    let pid = match site.role {
        Role::Agent => host.agent.id(),
        Role::Guard => host.guard().ok_or("there is no guard")?,
    };
    let mut threads = threads_of(pid);
    threads.retain(|_, name| *name == site.thread);
    if threads.is_empty() {
        return Err(format!("there is no thread {}", site.thread));
    }
    Ok(threads.into_keys().collect())
}

/// Records which calls each thread makes in a phase, and how often.
///
/// # Errors
///
/// Why that is not known.
pub(crate) fn record(phase: Phase, template: &Template) -> Result<BTreeMap<Site, u32>, String> {
    let mut pair = Pair::start(template)?;
    let host = &pair.hosts[target(phase)];
    let mut processes = vec![(Role::Agent, host.agent.id())];
    if phase != Phase::Replace {
        let guard = host.guard().ok_or("there is no guard")?;
        processes.push((Role::Guard, guard));
    }
    let mut names = BTreeMap::new();
    for (role, pid) in processes {
        let threads = threads_of(pid).into_iter();
        names.extend(threads.map(|(thread, name)| (thread, (role, name))));
    }
    let threads: Vec<u32> = names.keys().copied().collect();
    let mut strace = Strace::attach(&host.service.sandbox, &threads, &[])?;
    match phase {
        Phase::Stroke => observe_for(Pace::R * 2),
        Phase::Replace => {
            pair.kill_guard();
            observe_for(Pace::R * 2);
        }
        Phase::Stop | Phase::Takeover => {
            pair.hosts[0].end(Signal::TERM);
            if !pair.wait_active(1, PATIENCE) {
                let said = pair.said(Duration::ZERO);
                return Err(format!("nobody takes over while it is recorded:\n{said}"));
            }
            observe_for(Pace::R / 2);
        }
    }
    strace.detach();
    let calls = strace.calls().into_iter().filter_map(|(made, count)| {
        let (thread, call) = made;
        let (role, thread) = names.get(&thread)?.clone();
        let site = Site { phase, role, thread, call };
        Some((site, count))
    });
    Ok(calls.collect())
}
