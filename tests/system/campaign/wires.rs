//! The network: one cable to each node, and a switch that treats every direction between
//! two of them as it is told.
//!
//! ```text
//!   namespace of a node            the campaign
//!   [ eth0, a TAP device ] ----- reader --- line[from][to] --- due now ---> other cables
//!                                                |                ^
//!                                                +--- late, by time
//! ```
//!
//! The kernel offers the same with veth, a bridge, nft and netem. Not every kernel has
//! netem, and no rule of those is drawn from the campaign's seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::rng::Rng;
use super::tap;
use crate::support::clock::{At, now};

/// Nodes at most: their number is one byte of their addresses.
const NODES_MAX: usize = 16;

/// A frame of 1500 bytes with its head, and some room.
const FRAME_MAX: usize = 2048;

/// Frames that may be late at once; more are lost, as in every queue.
const LATE_MAX: usize = 4096;

/// Treatment of the frames in one direction between two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) cut: bool,
    /// Share of the frames that are lost.
    pub(crate) loss: f64,
    /// Share of the frames that come twice.
    pub(crate) twice: f64,
    pub(crate) delay: Duration,
    /// At most so much is added to the delay, each time another part of it.
    pub(crate) jitter: Duration,
    /// Share of the frames that overtake those that are late.
    pub(crate) overtake: f64,
}

impl Line {
    /// Returns what two faults of one line do together.
    pub(crate) fn and(self, other: Line) -> Line {
        Line {
            cut: self.cut || other.cut,
            loss: 1.0 - (1.0 - self.loss) * (1.0 - other.loss),
            twice: self.twice.max(other.twice),
            delay: self.delay + other.delay,
            jitter: self.jitter + other.jitter,
            overtake: self.overtake.max(other.overtake),
        }
    }
}

/// How many frames passed, and what became of the others.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) doubled: AtomicU64,
    pub(crate) delayed: AtomicU64,
}

/// All cables and the switch between them.
#[derive(Clone, Debug)]
pub(crate) struct Wires(Arc<Switch>);

#[derive(Debug)]
struct Switch {
    cables: Vec<File>,
    rules: Mutex<Rules>,
    late: Mutex<BinaryHeap<Reverse<Late>>>,
    later: Condvar,
    counts: Counts,
}

#[derive(Debug)]
struct Rules {
    lines: Vec<Vec<Line>>,
    rng: Rng,
}

/// A frame that waits for its time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    due: At,
    to: usize,
    frame: Vec<u8>,
}

/// Returns the device of `node` before it is moved to where it belongs.
pub(crate) fn device(node: usize) -> String {
    format!("cable{node}")
}

/// Returns the address of the network card of `node`.
pub(crate) fn card(node: usize) -> String {
    format!("02:00:00:00:00:{node:02x}")
}

impl Wires {
    /// Makes `count` cables, whose devices are in this network namespace.
    pub(crate) fn make(count: usize, rng: Rng) -> Result<Wires, String> {
        assert!(count <= NODES_MAX, "no more than {NODES_MAX} nodes");
        let cable = |node| tap::make(&device(node));
        let cables: Result<Vec<File>, _> = (0..count).map(cable).collect();
        let cables = cables.map_err(|error| format!("/dev/net/tun: {error}"))?;
        Ok(Wires(Arc::new(Switch {
            cables,
            rules: Mutex::new(Rules { lines: vec![vec![Line::default(); count]; count], rng }),
            late: Mutex::default(),
            later: Condvar::new(),
            counts: Counts::default(),
        })))
    }

    /// Begins to pass frames on, until the process ends. Every device is up.
    pub(crate) fn connect(&self) {
        for node in 0..self.0.cables.len() {
            let switch = Arc::clone(&self.0);
            thread::spawn(move || switch.serve(node));
        }
        let switch = Arc::clone(&self.0);
        thread::spawn(move || switch.deliver_late());
    }

    /// Makes `lines` what the direction from one node to another does.
    pub(crate) fn set(&self, lines: Vec<Vec<Line>>) {
        self.0.rules.lock().expect("nobody panics with it").lines = lines;
    }

    /// Returns how many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.0.cables.len()
    }

    /// Returns what happened to frames so far.
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }
}

impl Switch {
    fn serve(&self, from: usize) {
        let mut frame = [0; FRAME_MAX];
        loop {
            let Ok(got) = (&self.cables[from]).read(&mut frame) else {
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let frame = &frame[..got];
            let Some(card) = frame.get(..6) else {
                continue;
            };
            // The lowest bit of the first byte says that a frame is for everybody.
            if card[0] & 1 == 1 {
                let others = (0..self.cables.len()).filter(|to| *to != from);
                others.for_each(|to| self.pass(from, to, frame));
            } else if usize::from(card[5]) < self.cables.len() {
                self.pass(from, card[5].into(), frame);
            }
        }
    }

    fn pass(&self, from: usize, to: usize, frame: &[u8]) {
        let (copies, delays) = {
            let mut rules = self.rules.lock().expect("nobody panics with it");
            let line = rules.lines[from][to];
            let rng = &mut rules.rng;
            if line.cut || rng.chance(line.loss) {
                (0, [Duration::ZERO; 2])
            } else {
                let copies = 1 + usize::from(rng.chance(line.twice));
                (copies, [(); 2].map(|()| delay(line, rng)))
            }
        };
        let counts = &self.counts;
        match copies {
            0 => counts.dropped.fetch_add(1, Ordering::Relaxed),
            1 => counts.passed.fetch_add(1, Ordering::Relaxed),
            _ => counts.doubled.fetch_add(1, Ordering::Relaxed),
        };
        for wait in delays.into_iter().take(copies) {
            if wait.is_zero() {
                self.deliver(to, frame);
            } else {
                counts.delayed.fetch_add(1, Ordering::Relaxed);
                self.keep_back(to, frame, now() + wait);
            }
        }
    }

    fn deliver(&self, to: usize, frame: &[u8]) {
        // A device that is down or has a full queue loses it, as any card does.
        let _ = (&self.cables[to]).write(frame);
    }

    fn keep_back(&self, to: usize, frame: &[u8], due: At) {
        let mut late = self.late.lock().expect("nobody panics with it");
        if late.len() < LATE_MAX {
            late.push(Reverse(Late { due, to, frame: frame.to_vec() }));
            self.later.notify_one();
        }
    }

    fn deliver_late(&self) {
        let mut late = self.late.lock().expect("nobody panics with it");
        loop {
            let wait = match late.peek() {
                None => Duration::from_secs(1),
                Some(Reverse(first)) => first.due.saturating_sub(now()),
            };
            if !wait.is_zero() {
                let waited = self.later.wait_timeout(late, wait);
                late = waited.expect("nobody panics with it").0;
                continue;
            }
            if let Some(Reverse(first)) = late.pop() {
                drop(late);
                self.deliver(first.to, &first.frame);
                late = self.late.lock().expect("nobody panics with it");
            }
        }
    }
}

fn delay(line: Line, rng: &mut Rng) -> Duration {
    if line.delay.is_zero() && line.jitter.is_zero() || rng.chance(line.overtake) {
        return Duration::ZERO;
    }
    line.delay + line.jitter.mul_f64(rng.share())
}
