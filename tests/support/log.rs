//! The lines that processes write to a pipe, with the time of arrival.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use super::clock::{At, now, wait_until};

/// Reads pipes, or lets their bytes pile up. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct PipeReader(Arc<AtomicBool>);

impl PipeReader {
    /// Returns a reader that reads.
    pub(crate) fn new() -> PipeReader {
        PipeReader(Arc::new(AtomicBool::new(true)))
    }

    /// Reads on, or pauses.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.0.store(reading, Ordering::Relaxed);
    }

    /// Hands each line of `pipe` to `take`, with its newline, until no process can write to
    /// the pipe any more.
    pub(crate) fn read(
        &self,
        pipe: impl Read + Send + 'static,
        take: impl Fn(&[u8]) + Send + 'static,
    ) -> JoinHandle<()> {
        let switch = Arc::clone(&self.0);
        thread::spawn(move || {
            let (mut reader, mut line) = (BufReader::new(pipe), Vec::new());
            loop {
                let open = || switch.load(Ordering::Relaxed).then_some(());
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
    reader: PipeReader,
    lines: Arc<Mutex<Vec<(At, String)>>>,
}

impl Log {
    /// Returns an empty log.
    pub(crate) fn new() -> Log {
        Log { reader: PipeReader::new(), lines: Arc::default() }
    }

    /// Adds the lines of `pipe`, until no process can write to it any more.
    pub(crate) fn read(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = Arc::clone(&self.lines);
        self.reader.read(pipe, move |line| {
            let line = String::from_utf8_lossy(line).into_owned();
            let mut lines = lines.lock().expect("nobody panics with it");
            lines.push((now(), line));
        })
    }

    /// Reads on, or lets lines pile up in the pipes.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.reader.set_reading(reading);
    }

    /// Returns every line without its newline, with its time of arrival.
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

    /// Returns all lines as they were written.
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
