//! Clients that run one `putex lock` after another, with random names and modes, and kill or stop
//! some of its processes.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::iter::Sum;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::record::SHORT_WORKER;
use crate::rng::Rng;
use crate::support::clock::{now, observe_for, wait_until};
use crate::support::process::{find_renewer, parent_of, signal};

/// Names, and names above them.
const NAMES: [&str; 5] = ["a", "a/b", "a/c", "a/b/d", "e"];

/// The share of the locks that are disturbed.
const DISTURBED: f64 = 0.3;

/// Of these, shares of the fronts that are killed; of the others that are stopped for a while; and
/// of the others, of the renewers, or in a directory of the commands, that are killed.
const FRONTS_KILLED: f64 = 0.6;
const FRONTS_STOPPED: f64 = 0.4;
const OTHERS_KILLED: f64 = 0.5;

/// The share of them that are disturbed not before the command runs.
const WHILE_IT_RUNS: f64 = 0.5;

/// In place of a number of seconds: no limit.
const FOR_EVER: &str = "for ever";

/// Clients of one host.
pub(crate) struct Clients<'a> {
    /// Returns a `putex lock` with the options for times and store. In its command, `$D` is the
    /// folder of the record.
    pub(crate) lock: &'a (dyn Fn() -> Command + Sync),
    /// The beginning of the ids of their commands.
    pub(crate) name: String,
    /// The file in which the commands record.
    pub(crate) record: PathBuf,
    /// The locks are in a directory, where a command has no renewer.
    pub(crate) is_local: bool,
    /// T.
    pub(crate) lifetime: Duration,
    /// Returns whether the clients begin anew.
    pub(crate) goes_on: &'a (dyn Fn() -> bool + Sync),
    /// How long a `putex lock` may take once no client begins anew. Before that, faults may keep a
    /// host from every lock.
    pub(crate) wait_limit: Duration,
    pub(crate) seed: u64,
}

/// How many fronts have ended in each way.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// With the status of their command.
    pub(crate) well: usize,
    /// Without the lock in time.
    pub(crate) without: usize,
    pub(crate) killed: usize,
    /// With the loss of the lock, or of the renewer before it was had.
    pub(crate) lost: usize,
    /// With anything else.
    pub(crate) odd: Vec<String>,
}

impl Sum for Ends {
    fn sum<I: Iterator<Item = Ends>>(all: I) -> Ends {
        all.fold(Ends::default(), |sum, ends| Ends {
            well: sum.well + ends.well,
            without: sum.without + ends.without,
            killed: sum.killed + ends.killed,
            lost: sum.lost + ends.lost,
            odd: [sum.odd, ends.odd].concat(),
        })
    }
}

impl Clients<'_> {
    /// Runs so many clients, until the last front has ended.
    pub(crate) fn play(&self, count: u64) -> Ends {
        thread::scope(|scope| {
            let client = |number| scope.spawn(move || self.client(number));
            let clients: Vec<_> = (0..count).map(client).collect();
            clients.into_iter().map(|client| client.join().expect("it does not panic")).sum()
        })
    }

    /// Starts fronts, one after another.
    fn client(&self, number: u64) -> Ends {
        let (mut rng, mut ends) = (Rng::new(self.seed, number), Ends::default());
        for round in 0.. {
            if !(self.goes_on)() {
                break;
            }
            let (name, mode) = (rng.pick(&NAMES), rng.pick(&["-s", "-x", "-j2"]));
            // Several names have no slots, and one name has them or has not.
            let has_slots = self.is_local && !name.contains(',');
            let mode = if mode == "-j2" && !has_slots { "-x" } else { mode };
            let wait = rng.pick(&["0", "0.2", "30", "30", FOR_EVER]);
            let (beats, status) = (rng.below(12).to_string(), rng.below(3).to_string());
            let id = format!("{}{number}-{round}", self.name);
            let limit = if wait == FOR_EVER { &[][..] } else { &["-w", wait] };
            let words = [mode, "-q", "-q", name, "sh", "-c", SHORT_WORKER, &id];
            let words = [limit, &words, &[&beats, &status]].concat();
            let mut record = Tail::of(&self.record);
            let mut front = (self.lock)();
            let mut front = front.args(words).stderr(Stdio::null()).spawn().expect("it can be run");
            let is_killed =
                rng.chance(DISTURBED) && self.disturb(&mut rng, &id, &mut front, &mut record);
            match self.end(&mut front) {
                Some(137) if is_killed => ends.killed += 1,
                Some(code) if code.to_string() == status => ends.well += 1,
                // No answer within T or the limit, says putex-lock(1), and in a directory a front
                // that is stopped may hold the door of the file.
                Some(69) => ends.without += 1,
                Some(75) if wait != FOR_EVER => ends.without += 1,
                Some(71 | 100) => ends.lost += 1,
                odd => ends.odd.push(format!("{id} {name} {mode} -w {wait}: {odd:?}")),
            }
        }
        ends
    }

    /// Kills or stops one of the two processes after a while, or none; returns whether that makes
    /// the status of the front that of a killed process.
    fn disturb(&self, rng: &mut Rng, id: &str, front: &mut Child, record: &mut Tail) -> bool {
        let mut after = rng.between(Duration::ZERO, Duration::from_millis(200));
        let mut command = None;
        if rng.chance(WHILE_IT_RUNS) {
            after /= 4;
            let has_ended = |front: &mut Child| front.try_wait().is_ok_and(|ended| ended.is_some());
            let begun_or_ended = || {
                command = record.find_begun(id);
                (command.is_some() || has_ended(front)).then_some(())
            };
            if self.wait_for(begun_or_ended).is_none() {
                return false;
            }
        }
        if rng.chance(FRONTS_KILLED) {
            observe_for(after);
            signal(front.id(), Signal::KILL);
            return true;
        }
        if rng.chance(FRONTS_STOPPED) {
            observe_for(after);
            stop_for(front.id(), after);
        } else {
            let is_killed = rng.chance(OTHERS_KILLED);
            observe_for(after);
            let other = match self.is_local {
                true => command.or_else(|| record.find_begun(id)),
                false => find_renewer(front.id()),
            };
            match other.filter(|pid| parent_of(*pid) == Some(front.id())) {
                Some(pid) if is_killed => signal(pid, Signal::KILL),
                Some(pid) => stop_for(pid, self.lifetime.mul_f64(1.3)),
                None => {}
            }
            // A command that was killed looks like a front that was.
            return is_killed && self.is_local;
        }
        false
    }

    /// Waits for the end of a front; returns its status, as a shell shows it.
    fn end(&self, front: &mut Child) -> Option<i32> {
        let ended = self.wait_for(|| front.try_wait().ok().flatten());
        let Some(status) = ended else {
            let _ = front.kill();
            let _ = front.wait();
            return None;
        };
        status.code().or_else(|| status.signal().map(|number| 128 + number))
    }

    /// Waits until `look` finds something; `None` if that takes longer than a `putex lock` may.
    fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut limit = now() + self.wait_limit;
        loop {
            if (self.goes_on)() {
                limit = now() + self.wait_limit;
            }
            let found = wait_until(limit.min(now() + Duration::from_secs(1)), &mut look);
            if found.is_some() || now() >= limit {
                return found;
            }
        }
    }
}

fn stop_for(process: u32, time: Duration) {
    signal(process, Signal::STOP);
    observe_for(time);
    signal(process, Signal::CONT);
}

/// The part of a record that is written from some moment on.
struct Tail<'a> {
    record: &'a Path,
    read: u64,
}

impl Tail<'_> {
    fn of(record: &Path) -> Tail<'_> {
        Tail { record, read: fs::metadata(record).map_or(0, |found| found.len()) }
    }

    /// Returns the process of the command of this id, once, when it has begun.
    fn find_begun(&mut self, id: &str) -> Option<u32> {
        let (mut text, mut file) = (String::new(), File::open(self.record).ok()?);
        file.seek(SeekFrom::Start(self.read)).ok()?;
        file.read_to_string(&mut text).ok()?;
        // The last line may be half written.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let begin = format!("begin {id} ");
        let words = text[..whole].lines().find_map(|line| line.strip_prefix(&begin))?;
        words.split(' ').nth(1)?.parse().ok()
    }
}
