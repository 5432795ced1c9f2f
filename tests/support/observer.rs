//! The independent observer: which services ran, and when.
//!
//! A running service holds the read end of a named pipe. Whether a process does is
//! answered by the kernel when the pipe is opened for writing without blocking: no pid
//! file can be stale in that, and nothing is disturbed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::setpriority_process;

use super::clock::{At, now};

const INTERVAL: Duration = Duration::from_millis(2);

/// The niceness of who goes first.
const FIRST: i32 = -20;

/// Samples the services of all hosts until it is dropped.
#[derive(Debug)]
pub(crate) struct Observer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ended: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// From when on which services ran, as a set of bits; the last holds until `last`.
    changes: Vec<(At, u32)>,
    /// When the set before each change was seen for the last time.
    before_changes: Vec<At>,
    last: At,
    longest_gap: Duration,
}

impl Observer {
    /// Starts to watch the services that hold `pipes`, by their position.
    pub(crate) fn start(pipes: Vec<PathBuf>) -> Observer {
        assert!(pipes.len() <= 32, "a set of hosts has 32 bits");
        let shared = Arc::new(Shared {
            ended: AtomicBool::new(false),
            seen: Mutex::new(Seen {
                changes: vec![(now(), 0)],
                before_changes: vec![now()],
                last: now(),
                longest_gap: Duration::ZERO,
            }),
        });
        let watching = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            // Of this thread alone, where it is permitted: a busy machine shall not
            // blind the observer.
            let _ = setpriority_process(None, FIRST);
            while !watching.ended.load(Ordering::Relaxed) {
                watching.sample(&pipes);
                thread::sleep(INTERVAL);
            }
        });
        Observer { shared, thread: Some(thread) }
    }

    /// Returns the host whose service runs alone.
    pub(crate) fn only_active(&self) -> Option<usize> {
        self.with(|seen| only(seen.now()))
    }

    /// Returns the hosts whose services run.
    pub(crate) fn active(&self) -> Vec<usize> {
        let set = self.with(Seen::now);
        (0..32).filter(|host| set & (1 << host) != 0).collect()
    }

    /// Returns for how long nothing has changed.
    pub(crate) fn unchanged_for(&self) -> Duration {
        self.with(|seen| seen.last.saturating_sub(seen.changed_at()))
    }

    /// Returns how often the set of running services has changed since `since`.
    pub(crate) fn changes_since(&self, since: At) -> usize {
        self.with(|seen| seen.changes.iter().filter(|(at, _)| *at >= since).count())
    }

    /// Returns every host whose service came up since `since`, with the instant.
    pub(crate) fn ups_since(&self, since: At) -> Vec<(At, usize)> {
        self.with(|seen| {
            let mut ups = Vec::new();
            for two in seen.changes.windows(2) {
                let (at, new) = (two[1].0, two[1].1 & !two[0].1);
                let up = (0..32).filter(|host| new & (1 << host) != 0);
                ups.extend(up.filter(|_| at >= since).map(|host| (at, host)));
            }
            ups
        })
    }

    /// Returns from when on which services ran, as sets of bits, and until when the last
    /// of them was seen.
    pub(crate) fn history(&self) -> (Vec<(At, u32)>, At) {
        self.with(|seen| (seen.changes.clone(), seen.last))
    }

    /// Returns when the service of `host` was first seen dead at or after `since`.
    pub(crate) fn down_since(&self, host: usize, since: At) -> Option<At> {
        self.with(|seen| {
            let dead = |set: u32| set & (1 << host) == 0;
            let before = seen.changes.iter().rev().find(|(at, _)| *at <= since);
            if before.is_some_and(|(_, set)| dead(*set)) {
                return Some(since);
            }
            let mut later = seen.changes.iter().filter(|(at, _)| *at > since);
            later.find(|(_, set)| dead(*set)).map(|(at, _)| *at)
        })
    }

    /// Returns until when a service was seen running of which [`Observer::down_since`] has said
    /// `down_at`: it has died between the two. The instant itself when nothing changed then.
    pub(crate) fn seen_running_until(&self, down_at: At) -> At {
        self.with(|seen| {
            let change = seen.changes.iter().position(|(at, _)| *at == down_at);
            change.map_or(down_at, |change| seen.before_changes[change])
        })
    }

    /// Returns from when until when more than one service ran.
    pub(crate) fn overlaps(&self) -> Vec<(At, At)> {
        self.with(|seen| {
            let ends = seen.changes.iter().skip(1).map(|(at, _)| *at);
            let ends = ends.chain([seen.last]);
            let spans = seen.changes.iter().zip(ends);
            let double = spans.filter(|((_, set), _)| set.count_ones() > 1);
            double.map(|((from, _), to)| (*from, to)).collect()
        })
    }

    /// Returns how long more than one service ran.
    pub(crate) fn overlap(&self) -> Duration {
        let spans = self.overlaps().into_iter();
        spans.map(|(from, to)| to.saturating_sub(from)).sum()
    }

    /// Returns how often the service came up on another host than the previous one.
    pub(crate) fn flaps(&self) -> usize {
        self.with(|seen| {
            let mut one = seen.changes.iter().filter_map(|(_, set)| only(*set));
            let Some(mut before) = one.next() else {
                return 0;
            };
            one.filter(|host| std::mem::replace(&mut before, *host) != *host).count()
        })
    }

    /// Returns the longest time in which nothing was sampled: what is shorter may
    /// have gone unseen.
    pub(crate) fn longest_gap(&self) -> Duration {
        self.with(|seen| seen.longest_gap)
    }

    fn with<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.shared.seen.lock().expect("nobody panics with it"))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn now(&self) -> u32 {
        self.changes.last().map_or(0, |(_, set)| *set)
    }

    fn changed_at(&self) -> At {
        self.changes.last().map_or(self.last, |(at, _)| *at)
    }
}

impl Shared {
    fn sample(&self, pipes: &[PathBuf]) {
        let at = now();
        let mut set = probe(pipes);
        if set.count_ones() > 1 {
            // The first may have gone between its own probe and the last one's.
            set &= probe(pipes);
        }
        let mut seen = self.seen.lock().expect("nobody panics with it");
        seen.longest_gap = seen.longest_gap.max(at.saturating_sub(seen.last));
        let before = std::mem::replace(&mut seen.last, at);
        if set != seen.now() {
            seen.changes.push((at, set));
            seen.before_changes.push(before);
        }
    }
}

fn probe(pipes: &[PathBuf]) -> u32 {
    let bits = pipes.iter().enumerate();
    bits.map(|(bit, pipe)| u32::from(is_held(pipe)) << bit).sum()
}

/// Returns whether a process holds the read end of `pipe`.
pub(crate) fn is_held(pipe: &Path) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(pipe, flags, Mode::empty()).is_ok()
}

fn only(set: u32) -> Option<usize> {
    (set.count_ones() == 1).then(|| set.trailing_zeros() as usize)
}
