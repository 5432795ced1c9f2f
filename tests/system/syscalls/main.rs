//! Every system call of agent and guard fails once and hangs once, one at a time, and the
//! service is down by `dead_by` all the same, or held by right. Needs strace.
//!
//! ```text
//! cargo test --test syscalls                              # the first call of each name
//! cargo test --test syscalls -- --each                    # every call
//! cargo test --test syscalls -- --sample 40               # so many of them, other ones each time
//! cargo test --test syscalls -- stop/guard/main/ppoll     # cases with this in their name
//! ```
//!
//! | flag | |
//! |---|---|
//! | `--each` | every call of a phase, instead of the first of each name |
//! | `--sample N` | N cases, spread over all; `--offset K` chooses the same again |
//! | `--without-cgroup` | the agents find no hierarchy of control groups; as root |
//! | `--jobs N` | so many cases at once, 6 unless given: they mostly sleep |
//! | `--list` | prints the names of the cases |
//!
//! # A case
//!
//! A case is named `PHASE/PROCESS/THREAD/CALL:N/FAULT`: the Nth call of this name that the
//! thread makes in the phase. Two agents of this host share a directory; their services are
//! processes. Which calls there are is recorded first, in a run of each phase without a fault.
//!
//! | phase | what happens | the fault is in |
//! |---|---|---|
//! | `stroke` | the holder renews; later, the agent of the holder is killed | the holder |
//! | `stop` | the holder is told to end | the holder |
//! | `takeover` | the holder is told to end | the challenger |
//! | `replace` | the guard of the holder is killed | the agent of the holder |
//!
//! | fault | |
//! |---|---|
//! | `fail` | the call is not executed, and returns an error that it has for want of something |
//! | `hang` | the call is executed [`Pace::hang`] late, which is longer than T + C * R |
//!
//! Nothing can kill a process of which a thread hangs so: strace holds it as a dead disk would.
//! A guard that hangs in its main thread therefore keeps its lock although its agent has killed
//! it, and the next guard begins when the hang is over, after `dead_by`. Until then nobody runs
//! stop, and only the agent can end the service, through the control group.
//!
//! # What has to hold
//!
//! 1. Two services never run at once, which the kernel is asked every 2 ms.
//! 2. A service runs at most until `dead_by`, counted from the last record that its agent has
//!    written, and not at all when that record releases the lock.
//! 3. In the end a service runs on one host.
//!
//! An agent that ends by itself is started again, as by a service manager.
//!
//! # What cannot be met
//!
//! The list, with the reasons, is [`exceptions::EXCEPTIONS`]; each run says which of them it has
//! met. What is not injected at all:
//!
//! * A failing close(2), which closes all the same on Linux, but not under strace, and a failing
//!   futex(2): a wake-up is not refused.
//! * Faults in a child before execve(2), and in a guard before it has answered.
//! * Faults of the log's writer process, which has no part in anything else.
//! * More than one fault at a time. In `stroke` the agent is killed when a guard that the fault
//!   has cost was replaced.

#[path = "../rig/mod.rs"]
mod rig;
#[path = "../../support/mod.rs"]
mod support;

mod case;
mod exceptions;
mod order;
mod pair;
mod play;
mod record;
mod strace;
mod tally;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use case::{Case, Phase};
use order::Order;
use pair::Template;
use play::{Outcome, Verdict};
use putex::core::timing::Timing;
use support::clock::now;
use support::programs;
use tally::Tally;

/// How often a case is played that a busy machine left unclear.
const TRIES: usize = 3;

/// R, F, C and drift of the agents, and what follows from them.
///
/// No clock here drifts. A large drift leaves room between `dead_by` and the start of the next
/// service, so that a busy machine alone does not let two services run.
#[derive(Clone, Copy, Debug)]
struct Pace(Timing);

impl Pace {
    const R: Duration = Duration::from_millis(300);
    const F: u32 = 3;
    const C: u32 = 3;
    const DRIFT_PERCENT: u32 = 10;

    fn new() -> Pace {
        let timing = Timing::new(Pace::R, Pace::F, Pace::C, Pace::DRIFT_PERCENT * 10_000);
        Pace(timing.expect("it leaves time to stop"))
    }

    /// Returns the time from a renewal to `dead_by`.
    fn held(self) -> Duration {
        self.0.validity() + self.0.stop_budget()
    }

    /// Returns the time from the last renewal to the start on another host.
    fn takeover(self) -> Duration {
        self.0.takeover_wait(self.0.lock_time()) + self.0.confirmation()
    }

    /// Returns how long a call hangs.
    fn hang(self) -> Duration {
        self.takeover() + Pace::R * 4
    }
}

fn main() -> ExitCode {
    let order = match Order::parse(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(why) => {
            eprintln!("syscalls: {why}");
            return ExitCode::from(64);
        }
    };
    if programs::tool("strace").is_none() {
        return ExitCode::SUCCESS;
    }
    if let Err(why) = strace::try_out() {
        return skip(&format!("strace may not follow a process: {why}"));
    }
    run(&order).unwrap_or_else(|why| {
        eprintln!("syscalls: {why}");
        ExitCode::from(2)
    })
}

/// Says why nothing is tested; a failure where tools are required.
fn skip(why: &str) -> ExitCode {
    println!("skipped: {why}");
    ExitCode::from(u8::from(programs::requires_tools()))
}

/// Plays the cases that are asked for.
fn run(order: &Order) -> Result<ExitCode, String> {
    let began = now();
    let template = Template::make(order.without_cgroup)?;
    let cases = order.choose(recorded(&template, order.each)?);
    if order.list {
        cases.iter().for_each(|case| println!("{case}"));
        return Ok(ExitCode::SUCCESS);
    }
    let tally = Mutex::new(Tally::new(cases.len()));
    let queue = Mutex::new(cases.into_iter());
    let next = || queue.lock().expect("nobody panics with it").next();
    let work = || {
        while let Some(case) = next() {
            let outcome = play_until_clear(&case, &template);
            let mut tally = tally.lock().expect("nobody panics with it");
            tally.count(&case, outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..order.jobs {
            scope.spawn(work);
        }
    });
    let tally = tally.into_inner().expect("nobody panics with it");
    println!("{tally}  {:.0} s", (now() - began).as_secs_f64());
    Ok(ExitCode::from(u8::from(!tally.is_clean())))
}

/// Records all phases at once and returns the cases, in their order.
fn recorded(template: &Template, each: bool) -> Result<Vec<Case>, String> {
    let recordings = thread::scope(|scope| {
        let record = |phase| scope.spawn(move || play::record(phase, template));
        let threads = Phase::ALL.map(record);
        threads.map(|thread| thread.join().expect("it records"))
    });
    let mut cases = Vec::new();
    for calls in recordings {
        for (site, count) in calls? {
            let count = if each { count } else { 1 };
            cases.extend((1..=count).flat_map(|occurrence| Case::all_of(&site, occurrence)));
        }
    }
    Ok(cases)
}

fn play_until_clear(case: &Case, template: &Template) -> Outcome {
    let played = || {
        let outcome = catch_unwind(AssertUnwindSafe(|| play::play(case, template)));
        outcome.unwrap_or_else(|_| Outcome::unclear("the case panicked".to_owned()))
    };
    let mut outcome = played();
    for _ in 1..TRIES {
        if !matches!(outcome.verdict, Verdict::Unclear(_)) {
            break;
        }
        outcome = played();
    }
    outcome
}
