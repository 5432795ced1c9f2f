//! What processes write to a pipe, line by line, with the time of arrival.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use super::clock::{At, now, wait_until};

/// Whether what comes out of pipes is read; it piles up in them otherwise. Clones share
/// the state.
#[derive(Clone, Debug)]
pub(crate) struct Tap(Arc<AtomicBool>);

impl Tap {
    /// Returns one that is open.
    pub(crate) fn new() -> Tap {
        Tap(Arc::new(AtomicBool::new(true)))
    }

    /// Has pipes read, or not.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.0.store(reading, Ordering::Relaxed);
    }

    /// Hands each line of `pipe` to `take`, with its end, until nobody can write any more.
    pub(crate) fn read(
        &self,
        pipe: impl Read + Send + 'static,
        take: impl Fn(&[u8]) + Send + 'static,
    ) -> JoinHandle<()> {
        let tap = self.clone();
        thread::spawn(move || {
            let (mut reader, mut line) = (BufReader::new(pipe), Vec::new());
            loop {
                let open = || tap.0.load(Ordering::Relaxed).then_some(());
                wait_until(At::MAX, open);
                line.clear();
                if !reader.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                    return;
                }
                take(&line);
            }
        })
    }
}

/// The lines of one or more processes. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    tap: Tap,
    lines: Arc<Mutex<Vec<(At, String)>>>,
}

impl Log {
    /// Returns an empty log.
    pub(crate) fn new() -> Log {
        Log {
            tap: Tap::new(),
            lines: Arc::default(),
        }
    }

    /// Adds what comes out of `pipe`, until nobody can write any more.
    pub(crate) fn read(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = Arc::clone(&self.lines);
        self.tap.read(pipe, move |line| {
            let line = String::from_utf8_lossy(line).into_owned();
            let mut lines = lines.lock().expect("nobody panics with it");
            lines.push((now(), line));
        })
    }

    /// Has pipes read, or lets lines pile up in them.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.tap.set_reading(reading);
    }

    /// Returns every line without its end, with when it came.
    pub(crate) fn lines(&self) -> Vec<(At, String)> {
        let line = |(at, line): &(At, String)| (*at, line.trim_end().to_owned());
        self.lock().iter().map(line).collect()
    }

    /// Returns the lines that came since `since`.
    pub(crate) fn since(&self, since: At) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|(at, _)| *at >= since);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Returns all of it, as it was written.
    pub(crate) fn text(&self) -> String {
        self.lock().iter().map(|(_, line)| &**line).collect()
    }

    /// Waits until a line has any of `parts` in it; false when `deadline` passes first.
    pub(crate) fn wait_for_any(&self, parts: &[&str], deadline: At) -> bool {
        let has = |line: &str| parts.iter().any(|part| line.contains(part));
        let said = || self.lock().iter().any(|(_, line)| has(line)).then_some(());
        wait_until(deadline, said).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(At, String)>> {
        self.lines.lock().expect("nobody panics with it")
    }
}
