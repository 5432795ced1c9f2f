//! Whether a service that runs is held by right, by the record of the lock as it was written.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::support::clock::{At, now};

/// How often the record is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// How much later than it was written a record may seem to have been: the file system's
/// clock is a coarse one.
const COARSE: Duration = Duration::from_millis(20);

/// A record that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    at: At,
    /// The token; `None` when the lock was released.
    token: Option<String>,
}

/// Looks at the record until it is dropped.
#[derive(Debug)]
pub(crate) struct RecordWatch {
    ended: Arc<AtomicBool>,
    written: Arc<Mutex<Vec<Written>>>,
    thread: Option<JoinHandle<()>>,
}

impl RecordWatch {
    /// Starts to sample.
    pub(crate) fn start(file: PathBuf) -> RecordWatch {
        let (ended, written) = (Arc::<AtomicBool>::default(), Arc::default());
        let (until, into) = (Arc::clone(&ended), Arc::clone(&written));
        let thread = thread::spawn(move || {
            let mut last = None;
            while !until.load(Ordering::Relaxed) {
                sample(&file, &mut last, &into);
                thread::sleep(INTERVAL);
            }
        });
        RecordWatch { ended, written, thread: Some(thread) }
    }

    /// Returns from when until when a service of `token` that was `up` then ran without a
    /// lock. It may run for `held` after the record was written last.
    pub(crate) fn excess(&self, token: &str, up: &[(At, At)], held: Duration) -> Vec<(At, At)> {
        let written = self.written.lock().expect("nobody panics with it");
        let rights = rights(&written, token, held);
        up.iter().flat_map(|up| without(*up, &rights)).collect()
    }
}

impl Drop for RecordWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Notes the record if the file is another than before.
fn sample(file: &Path, last: &mut Option<(u64, i64, i64)>, into: &Mutex<Vec<Written>>) {
    let Ok(metadata) = fs::metadata(file) else {
        return;
    };
    let this = Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()));
    if *last == this {
        return;
    }
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    *last = this;
    let written =
        Written { at: at_of(metadata.mtime(), metadata.mtime_nsec()), token: token_of(&text) };
    into.lock().expect("nobody panics with it").push(written);
}

/// Returns the token of a record, unless it is released.
fn token_of(text: &str) -> Option<String> {
    let (head, rest) = text.split_once("\n\n")?;
    if head.contains("Putex-State: released") {
        return None;
    }
    rest.lines().next().map(str::to_owned)
}

/// Returns the time since boot at which the wall clock showed a time.
fn at_of(seconds: i64, nanos: i64) -> At {
    let wall = clock_gettime(ClockId::Realtime);
    let part = |value: i64| i128::from(value);
    let then = part(seconds) * 1_000_000_000 + part(nanos);
    let age = part(wall.tv_sec) * 1_000_000_000 + part(wall.tv_nsec) - then;
    let age = Duration::from_nanos(u64::try_from(age).unwrap_or(0));
    now().saturating_sub(age)
}

/// Returns from when until when a service of `token` may run.
fn rights(written: &[Written], token: &str, held: Duration) -> Vec<(At, At)> {
    let mut rights: Vec<(At, At)> = Vec::new();
    for record in written {
        match &record.token {
            Some(of) if of == token => {
                rights.push((record.at.saturating_sub(COARSE), record.at + held));
            }
            // Another agent may have the lock: this one's own has not run out yet.
            Some(_) => {}
            None => {
                for (_, until) in &mut rights {
                    *until = (*until).min(record.at + COARSE);
                }
            }
        }
    }
    rights
}

/// Returns the parts of a time that no right covers; `rights` is in the order of its begins.
fn without((mut from, to): (At, At), rights: &[(At, At)]) -> Vec<(At, At)> {
    let mut bare = Vec::new();
    for (begin, end) in rights {
        if from < *begin {
            bare.push((from, to.min(*begin)));
        }
        from = from.max(*end);
        if from >= to {
            break;
        }
    }
    if from < to {
        bare.push((from, to));
    }
    bare.retain(|(from, to)| from < to);
    bare
}
