//! Counters of all agents together.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use putex::core::Instant;
use putex::sys;

/// The shortest time in which events are counted.
const STEP: Duration = Duration::from_millis(100);

/// How many steps are counted: two hours.
const STEPS: usize = 72_000;

/// How many steps are a second.
const STEPS_OF_SECOND: usize = 10;

/// So many reasons are told apart.
const REASONS_MAX: usize = 100;

/// Each time is counted in a class that is at most a 16th wider than the time.
const CLASSES_OF_OCTAVE: usize = 16;

/// Times up to 2^36 us have a class.
const CLASSES: usize = 34 * CLASSES_OF_OCTAVE;

/// Times, as many as there are, without a list of them.
pub(crate) struct Times {
    classes: Vec<AtomicU64>,
    max: AtomicU64,
}

impl Times {
    fn new() -> Times {
        Times { classes: counts(CLASSES), max: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.classes[class_of(micros)].fetch_add(1, Relaxed);
        self.max.fetch_max(micros, Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.classes.iter().for_each(|class| class.store(0, Relaxed));
        self.max.store(0, Relaxed);
    }

    /// Returns the time that this share of all do not exceed.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self.classes.iter().map(|class| class.load(Relaxed)).collect();
        let rank = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut sum = 0;
        let class = counts.iter().position(|count| {
            sum += count;
            sum >= rank
        });
        Duration::from_micros(end_of(class.unwrap_or(0))).min(self.max())
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_micros(self.max.load(Relaxed))
    }
}

fn class_of(micros: u64) -> usize {
    let octaves = micros.max(1).ilog2().saturating_sub(CLASSES_OF_OCTAVE.ilog2());
    let within = (micros >> octaves) as usize;
    (octaves as usize * CLASSES_OF_OCTAVE + within).min(CLASSES - 1)
}

/// Returns the shortest time that is beyond a class.
fn end_of(class: usize) -> u64 {
    let octaves = (class / CLASSES_OF_OCTAVE).saturating_sub(1);
    ((class - octaves * CLASSES_OF_OCTAVE + 1) as u64) << octaves
}

fn counts(number: usize) -> Vec<AtomicU64> {
    (0..number).map(|_| AtomicU64::new(0)).collect()
}

/// How often something happened in each step.
pub(crate) struct Rate {
    began: Instant,
    steps: Vec<AtomicU32>,
}

impl Rate {
    fn new() -> Rate {
        Rate { began: sys::now(), steps: (0..STEPS).map(|_| AtomicU32::new(0)).collect() }
    }

    fn add(&self) {
        self.steps[self.step(sys::now())].fetch_add(1, Relaxed);
    }

    fn step(&self, at: Instant) -> usize {
        let step = at.since(self.began).as_millis() / STEP.as_millis();
        usize::try_from(step).unwrap_or(STEPS).min(STEPS - 1)
    }

    fn since(&self, since: Instant) -> Vec<u32> {
        let steps = &self.steps[self.step(since)..=self.step(sys::now())];
        steps.iter().map(|step| step.load(Relaxed)).collect()
    }

    /// Returns how often it happened since then.
    pub(crate) fn total(&self, since: Instant) -> u32 {
        self.since(since).iter().sum()
    }

    /// Returns how often it happened within one second, and within one step, at the most.
    pub(crate) fn peaks(&self, since: Instant) -> (u32, u32) {
        let steps = self.since(since);
        let seconds = steps.windows(STEPS_OF_SECOND.min(steps.len()));
        let of_second = seconds.map(|second| second.iter().sum()).max();
        (of_second.unwrap_or(0), steps.iter().copied().max().unwrap_or(0))
    }
}

/// All that is counted.
pub(crate) struct Counters {
    /// How many agents have an open store now, and how many are active now.
    pub(crate) open: AtomicUsize,
    pub(crate) active: AtomicUsize,
    /// When a store was opened last, in milliseconds since boot.
    last_open: AtomicU64,
    /// From the first copy of a renewal that was sent, until it was known to be stored.
    pub(crate) renewal_times: Times,
    /// How much later than its deadline an agent has run.
    pub(crate) delays: Times,
    pub(crate) renewals: Rate,
    pub(crate) reads: Rate,
    pub(crate) takes: Rate,
    pub(crate) losses: Rate,
    pub(crate) opens: Rate,
    pub(crate) failed_opens: Rate,
    pub(crate) unanswered: Rate,
    reasons: Mutex<BTreeMap<String, u64>>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            open: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            last_open: AtomicU64::new(0),
            renewal_times: Times::new(),
            delays: Times::new(),
            renewals: Rate::new(),
            reads: Rate::new(),
            takes: Rate::new(),
            losses: Rate::new(),
            opens: Rate::new(),
            failed_opens: Rate::new(),
            unanswered: Rate::new(),
            reasons: Mutex::new(BTreeMap::new()),
        }
    }

    /// Notes that the store of an agent was opened.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
        self.opens.add();
        let at = u64::try_from(sys::now().since_boot().as_millis()).unwrap_or(u64::MAX);
        self.last_open.fetch_max(at, Relaxed);
    }

    /// Returns when the store of an agent was opened last.
    pub(crate) fn last_open(&self) -> Duration {
        Duration::from_millis(self.last_open.load(Relaxed))
    }

    /// Notes that an open store was lost.
    pub(crate) fn closed(&self, why: &str) {
        self.open.fetch_sub(1, Relaxed);
        self.note("store lost", why);
    }

    /// Notes that a store was not opened.
    pub(crate) fn not_opened(&self, why: &str) {
        self.failed_opens.add();
        self.note("not opened", why);
    }

    /// Notes that a renewal was stored, so long after it was sent first.
    pub(crate) fn renewed(&self, took: Duration) {
        self.renewals.add();
        self.renewal_times.add(took);
    }

    /// Notes that a read was answered.
    pub(crate) fn read(&self) {
        self.reads.add();
    }

    /// Notes that a request had no answer.
    pub(crate) fn not_answered(&self, why: &str) {
        self.unanswered.add();
        self.note("no answer", why);
    }

    /// Notes that an agent is active now.
    pub(crate) fn taken(&self) {
        self.active.fetch_add(1, Relaxed);
        self.takes.add();
    }

    /// Notes that an agent is not active any more, though nobody told it so.
    pub(crate) fn lost(&self, why: &str) {
        self.active.fetch_sub(1, Relaxed);
        self.losses.add();
        self.note("lock lost", why);
    }

    /// Notes something that seldom happens.
    pub(crate) fn note(&self, what: &str, why: &str) {
        let mut reasons = self.reasons.lock().expect("no agent panics here");
        let reason = format!("{what}: {}", without_numbers(why));
        if reasons.len() < REASONS_MAX || reasons.contains_key(&reason) {
            *reasons.entry(reason).or_default() += 1;
        }
    }

    pub(crate) fn reasons(&self) -> BTreeMap<String, u64> {
        self.reasons.lock().expect("no agent panics here").clone()
    }
}

/// Returns a text with one `#` for the digits of each number, so that those that differ in numbers
/// only are counted together.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(letter),
        }
    }
    out
}
