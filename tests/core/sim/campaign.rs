//! Many seeds on all cores, and the output about them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::True;
use super::counters::{Counters, Sometimes};
use super::faults::{Kind, Kinds};
use super::oracle::Failure;
use super::scenario::Limits;
use super::shrink::{left, run, shrink};

/// The options of a campaign.
pub struct Options {
    seeds: Option<u64>,
    time: Option<Duration>,
    seed: Option<u64>,
    base: Option<u64>,
    jobs: usize,
    /// A seed that fails is printed in one line.
    brief: bool,
    limits: Limits,
}

impl Options {
    /// Whether some of what is counted need not happen.
    fn is_partial(&self) -> bool {
        self.brief || self.limits.beyond_drift || self.limits.with.has(Kind::Seated)
    }
}

/// In so many seeds everything that is counted must have happened.
const ENOUGH: u64 = 20_000;

/// Without arguments: seeds for a fixed time, which suits two cores.
const SHARE: Duration = Duration::from_secs(50);

/// The words of a command line could not be read.
pub struct Usage(pub String);

/// Plays what the words of a command line ask for, and prints what came of it. Returns whether
/// all held that had to.
///
/// # Errors
///
/// When a word is not known or lacks its value.
pub fn play(words: Vec<String>) -> Result<bool, Usage> {
    let options = parse(words).map_err(Usage)?;
    Ok(match options.seed {
        Some(seed) => replay(seed, &options.limits),
        None => campaign(&options),
    })
}

fn parse(arguments: Vec<String>) -> Result<Options, String> {
    let mut options = Options {
        seeds: None,
        time: None,
        seed: None,
        base: None,
        jobs: thread::available_parallelism().map_or(1, usize::from),
        brief: false,
        limits: Limits::default(),
    };
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: what?"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{word} {text}?"));
        match word.as_str() {
            "--seeds" => options.seeds = Some(number(value()?)?),
            "--minutes" => options.time = Some(Duration::from_secs(60 * number(value()?)?)),
            "--seed" => options.seed = Some(number(value()?)?),
            "--base" => options.base = Some(number(value()?)?),
            "--jobs" => options.jobs = number(value()?)?.max(1) as usize,
            "--with" => options.limits.with = kinds(&value()?)?,
            "--without" => options.limits.without = kinds(&value()?)?,
            "--until-us" => options.limits.until = Some(number(value()?)? * 1000),
            "--brief" => options.brief = true,
            "--beyond-drift" => options.limits.beyond_drift = true,
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(options)
}

fn kinds(names: &str) -> Result<Kinds, String> {
    let mut kinds = Kinds::default();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let kind = Kind::named(name).ok_or_else(|| format!("no kind of fault is named {name}"))?;
        kinds = kinds.with(kind);
    }
    Ok(kinds)
}

/// Runs one seed again, with its time line.
fn replay(seed: u64, limits: &Limits) -> bool {
    println!("seed {seed}");
    let ran = run(seed, limits, true);
    println!("kinds of fault: {}", left(seed, limits).names());
    println!("{}", ran.drawn);
    println!("hash {:016x}, {:.3} virtual s", ran.hash, ran.lasted as f64 / 1e9);
    if let Some(failure) = &ran.failure {
        say_failure(failure);
    }
    ran.failure.is_none()
}

fn say_failure(failure: &Failure) {
    let at = failure.at as f64 / 1e6;
    println!("FAILED {}: {} at {at:.3} ms", failure.oracle, failure.text);
}

/// State shared by all jobs.
struct Tally {
    next: AtomicU64,
    stop: AtomicBool,
    sum: Mutex<Sum>,
}

#[derive(Default)]
struct Sum {
    seeds: u64,
    virtual_time: u128,
    counters: Counters,
    failed: Option<u64>,
}

/// Seeds that are run twice, and seeds in which clocks outside of their bound must
/// have been found out.
const TWICE: u64 = 100;
const FOUND_WITHIN: u64 = 2000;

/// Checks the simulator itself: one seed is one run, and it can fail.
fn check_itself(base: u64) -> Result<(), String> {
    for seed in (0..TWICE).map(|number| base.wrapping_add(number)) {
        let hashes = [false, true].map(|trace| run(seed, &Limits::default(), trace).hash);
        if hashes[0] != hashes[1] {
            return Err(format!("seed {seed} gives two different runs"));
        }
    }
    let beyond = Limits { beyond_drift: true, ..Limits::default() };
    let caught = |number: &u64| run(base.wrapping_add(*number), &beyond, false).failure.is_some();
    match (0..FOUND_WITHIN).find(caught) {
        Some(number) => {
            println!("clocks outside of their bound are found out at seed {}", number + 1);
            Ok(())
        }
        None => Err("clocks outside of their bound are not found out".to_owned()),
    }
}

fn campaign(options: &Options) -> bool {
    let base = options.base.unwrap_or_else(fresh);
    println!("base {base}");
    if !options.brief
        && let Err(text) = check_itself(base)
    {
        println!("FAILED: {text}");
        return false;
    }
    let begun = Instant::now();
    let time = match (options.seeds, options.time) {
        (None, None) => Some(SHARE),
        (_, time) => time,
    };
    let tally = Tally {
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        sum: Mutex::new(Sum::default()),
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| work(options, base, begun, time, &tally));
        }
    });
    let sum = tally.sum.into_inner().unwrap();
    report(&sum, begun.elapsed());
    if let Some(seed) = sum.failed.filter(|_| options.brief) {
        let failure = run(seed, &options.limits, false).failure;
        let oracle = failure.map_or("none", |failure| failure.oracle);
        println!("caught by {oracle} at seed {}", seed.wrapping_sub(base) + 1);
        return false;
    }
    if let Some(seed) = sum.failed {
        show_failure(seed, &options.limits);
        return false;
    }
    if sum.seeds >= ENOUGH && !options.is_partial() {
        let never: Vec<_> = Sometimes::ALL
            .into_iter()
            .filter(|what| sum.counters.of(*what) == 0 && !what.may_lack())
            .collect();
        if !never.is_empty() {
            println!("FAILED: never happened: {never:?}");
            return false;
        }
    }
    true
}

fn work(options: &Options, base: u64, begun: Instant, time: Option<Duration>, tally: &Tally) {
    let mut own = Sum::default();
    while !tally.stop.load(SeqCst) {
        let number = tally.next.fetch_add(1, SeqCst);
        let enough = options.seeds.is_some_and(|seeds| number >= seeds);
        if enough || time.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        let seed = base.wrapping_add(number);
        let ran = run(seed, &options.limits, false);
        own.seeds += 1;
        own.virtual_time += u128::from(ran.lasted);
        own.counters.merge(&ran.counters);
        if ran.failure.is_some() {
            own.failed = Some(seed);
            tally.stop.store(true, SeqCst);
        }
    }
    let mut sum = tally.sum.lock().unwrap();
    sum.seeds += own.seeds;
    sum.virtual_time += own.virtual_time;
    sum.counters.merge(&own.counters);
    sum.failed = [sum.failed, own.failed].into_iter().flatten().min();
}

fn report(sum: &Sum, took: Duration) {
    let seconds = took.as_secs_f64();
    let hours = sum.virtual_time as f64 / 1e9 / 3600.0;
    let (seeds, rate) = (sum.seeds, sum.seeds as f64 / seconds);
    println!("{seeds} seeds in {seconds:.1} s, {rate:.0} a second, {hours:.1} virtual hours");
    for (index, what) in Sometimes::ALL.into_iter().enumerate() {
        let name = format!("{what:?}");
        print!("{name:>18} {:<10}", sum.counters.of(what));
        if index % 4 == 3 {
            println!();
        }
    }
    println!();
}

/// Prints a failing seed as small as it can be made.
fn show_failure(seed: u64, limits: &Limits) {
    println!("seed {seed} failed; it is made smaller");
    let least = shrink(seed, limits);
    let ran = run(seed, &least, true);
    println!("kinds of fault that are left: {}", left(seed, &least).names());
    println!("{}", ran.drawn);
    if let Some(failure) = &ran.failure {
        say_failure(failure);
    }
    let mut line = format!("cargo test --release --test simulate -- --seed {seed}");
    for (word, kinds) in [("--with", least.with), ("--without", least.without)] {
        if kinds != Kinds::default() {
            line.push_str(&format!(" {word} {}", kinds.names()));
        }
    }
    if let Some(until) = least.until {
        line.push_str(&format!(" --until-us {}", until_us(until)));
    }
    println!("replay: {line}");
}

fn until_us(until: True) -> u64 {
    until.div_ceil(1000)
}

/// A base that no run before had.
fn fresh() -> u64 {
    let hasher = std::collections::hash_map::RandomState::new();
    std::hash::BuildHasher::hash_one(&hasher, std::process::id()) >> 16
}
