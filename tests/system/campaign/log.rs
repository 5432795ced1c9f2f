//! Log of the agents of one host: kept in a file with the time; lines of certain events are
//! counted.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::service::CHATTER_LINE;
use crate::support::clock::{ms, now};
use crate::support::log::PipeReader;

/// How often a reader that has nothing to read looks again.
const LOOK: Duration = Duration::from_millis(20);

/// Counted lines: the name of the count, and a part of the line.
pub(crate) const COUNTED: [(&str, &str); 11] = [
    ("adoptions", "taking -> active: adopted as revision"),
    ("locks that ran out, the agent there", "the lock has run out: the guard stops the service"),
    (
        "locks that ran out, the agent gone",
        "the lock has run out and the agent is gone: the guard stops",
    ),
    ("guards that did not answer", "the guard did not answer within"),
    ("last resorts that were run", "running the last resort"),
    ("guards that were too late", "the service is down, too late"),
    ("service may still run", "MAY STILL RUN"),
    ("woken late", "woke "),
    ("log lines dropped and counted", "log lines were dropped"),
    ("services that stop had left", "stop has left processes of the service behind"),
    ("guards that were gone", "the guard is gone"),
];

/// The log of one host.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Mutex<File>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    /// The least time that was left when a service was down.
    left: Mutex<Option<Duration>>,
    /// Whether what the agents say is read.
    reader: PipeReader,
}

impl Log {
    /// Opens the log in the file `path`.
    pub(crate) fn open(path: &Path) -> Result<Log, String> {
        let folder = path.parent().unwrap_or(path);
        let file = fs::create_dir_all(folder)
            .and_then(|()| OpenOptions::new().append(true).create(true).open(path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Log(Arc::new(Inner {
            file: Mutex::new(file),
            counts: Mutex::default(),
            left: Mutex::default(),
            reader: PipeReader::new(),
        })))
    }

    /// Takes in what comes out of a pipe, unless told not to read.
    pub(crate) fn read_pipe(&self, pipe: impl Read + Send + 'static) {
        let log = self.clone();
        self.0.reader.read(pipe, move |line| log.add_line(line));
    }

    /// Takes in what is written into a file, until there is another file of its name.
    pub(crate) fn follow(&self, path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (log, path) = (self.clone(), path.to_owned());
        thread::spawn(move || {
            let (mut reader, mut line) = (BufReader::new(file), Vec::new());
            loop {
                match reader.read_until(b'\n', &mut line) {
                    Ok(got) if got > 0 && line.ends_with(b"\n") => {
                        log.add_line(&line);
                        line.clear();
                    }
                    Ok(_) if path.exists() => thread::sleep(LOOK),
                    Ok(_) | Err(_) => return,
                }
            }
        });
        Ok(())
    }

    /// Reads on, or does not.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.0.reader.set_reading(reading);
    }

    /// Writes a line of the campaign's own.
    pub(crate) fn note(&self, text: &str) {
        let line = format!("{:.1} -- {text}\n", ms(now()));
        let mut file = self.0.file.lock().expect("nobody panics with it");
        let _ = file.write_all(line.as_bytes());
    }

    /// Returns how often what is counted was said.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.0.counts.lock().expect("nobody panics with it").clone()
    }

    /// Returns the least time that agents and guards said was left when the service was
    /// down.
    pub(crate) fn least_left(&self) -> Option<Duration> {
        *self.0.left.lock().expect("nobody panics with it")
    }

    fn add_line(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if text.contains(CHATTER_LINE) {
            return;
        }
        let mut counts = self.0.counts.lock().expect("nobody panics with it");
        for (name, part) in COUNTED {
            if text.contains(part) {
                *counts.entry(name).or_default() += 1;
            }
        }
        drop(counts);
        if let Some(left) = time_left(&text) {
            let mut least = self.0.left.lock().expect("nobody panics with it");
            *least = Some(least.map_or(left, |least| least.min(left)));
        }
        let line = format!("{:.1} {}\n", ms(now()), text.trim_end());
        let mut file = self.0.file.lock().expect("nobody panics with it");
        let _ = file.write_all(line.as_bytes());
    }
}

/// Reads how long before its time a service was down, from a line that says it.
fn time_left(text: &str) -> Option<Duration> {
    let (before, _) = text.split_once(" before it had to be")?;
    let mut words = before.rsplit(' ');
    let (unit, number) = (words.next()?, words.next()?.parse().ok()?);
    match unit {
        "ms" => Some(Duration::from_secs_f64(number / 1000.0)),
        "s" => Duration::try_from_secs_f64(number).ok(),
        _ => None,
    }
}
