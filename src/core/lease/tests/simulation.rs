//! Clients that claim, extend and expire one lease in a bucket that answers late or not at all,
//! under a virtual clock.
//!
//! Clocks begin anywhere and are wrong by up to the drift. Processes pause between any two
//! steps, so a write may arrive long after it was decided. Some clients have no notes: they see
//! each revision for the first time. What must hold:
//!
//! 1. A lease that somebody has expired was not guaranteed to its holder any more, nor is it made
//!    shorter by an extension.
//! 2. Whoever is told that the lease is held is told so only while nobody has expired it.

use std::collections::BTreeMap;

use super::super::*;
use crate::core::random::Random;

/// Microseconds of true time.
type Time = u64;

const DRIFT_PPM: u32 = 10_000;
const DURATION: Time = 10_000_000;
const STEPS: usize = 60;

/// What the bucket has at one revision.
#[derive(Clone, Copy, Debug)]
struct Entry {
    revision: u64,
    /// The number of its write.
    write: usize,
    /// The holder and its lease, `None` after an expiry.
    lease: Option<(usize, LeaseTime)>,
}

/// A write that a client has decided on.
#[derive(Clone, Copy, Debug)]
struct Write {
    by: usize,
    /// In the place of this revision.
    at: u64,
    lease: Option<(usize, LeaseTime)>,
    /// By the clock of the client.
    sent: Instant,
}

struct Client {
    ppm: i64,
    offset: Time,
    /// What it has seen last, and what it knows of the write of that.
    seen: Option<(Entry, WriteBounds)>,
    /// When its last read of the leader began, and the revision that this has shown.
    read: Option<(Instant, u64)>,
    /// When its writes were sent, by their numbers.
    own: BTreeMap<usize, Instant>,
    has_notes: bool,
}

pub(super) struct Simulation {
    random: Random,
    now: Time,
    clients: Vec<Client>,
    history: Vec<Entry>,
    /// Writes under way, by the time at which they arrive.
    under_way: BTreeMap<(Time, usize), Write>,
    sent: usize,
    /// Until when the lease of each revision is guaranteed to its holder, in true time.
    guaranteed: BTreeMap<u64, Time>,
}

/// Returns how many millionths a clock is too fast: half of the clocks are as wrong as may be.
fn rate(random: &mut Random) -> i64 {
    let most = i64::from(DRIFT_PPM);
    match random.below(4) {
        0 => most,
        1 => -most,
        _ => random.below(2 * u64::from(DRIFT_PPM)) as i64 - most,
    }
}

impl Client {
    fn local(&self, time: Time) -> Instant {
        let counted = i128::from(time) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        let micros = u64::try_from(counted).expect("time goes on") + self.offset;
        Instant::from_boot(Duration::from_micros(micros))
    }

    /// Returns the true time of an instant, rounded down.
    fn true_time(&self, instant: Instant) -> Time {
        let counted = instant.since_boot().as_micros() - u128::from(self.offset);
        let rate = u128::try_from(1_000_000 + self.ppm).expect("clocks go on");
        u64::try_from(counted * 1_000_000 / rate).expect("in this history")
    }
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Simulation {
        let mut random = Random(seed);
        let clients = (0..2 + random.below(3)).map(|_| Client {
            ppm: rate(&mut random),
            offset: random.below(1_000_000_000),
            seen: None,
            read: None,
            own: BTreeMap::new(),
            has_notes: !random.one_in(3),
        });
        let clients = clients.collect();
        let history = vec![Entry { revision: 0, write: 0, lease: None }];
        let (under_way, guaranteed) = (BTreeMap::new(), BTreeMap::new());
        Simulation { random, now: 1, clients, history, under_way, sent: 0, guaranteed }
    }

    /// Lets time pass; writes that arrive meanwhile are stored or refused.
    fn pass(&mut self, time: Time) {
        let until = self.now + time;
        while let Some(first) = self.under_way.first_entry().filter(|it| it.key().0 <= until) {
            let ((at, number), write) = first.remove_entry();
            self.now = self.now.max(at);
            self.arrive(number, write);
        }
        self.now = until;
    }

    /// How long a message is under way, as a rule; half of them no time at all.
    fn brief(&mut self) -> Time {
        let most = if self.random.one_in(2) { 1 } else { DURATION / 20 };
        self.random.below(most)
    }

    /// Waits for the first moment at which this client may expire the lease of another.
    fn wait_for_end(&mut self, id: usize) {
        let client = &self.clients[id];
        let Some((Entry { lease: Some((holder, lease)), .. }, bounds)) = client.seen else {
            return;
        };
        if holder != id {
            // The true time is rounded down.
            let end = client.true_time(lease.run_out_at(bounds)) + 1;
            self.pass(end.saturating_sub(self.now));
        }
    }

    fn arrive(&mut self, number: usize, write: Write) {
        let current = self.history[self.history.len() - 1];
        if current.revision != write.at {
            return;
        }
        let revision = current.revision + 1;
        let before = current.lease.map_or(0, |_| self.guaranteed[&current.revision]);
        match write.lease {
            None => assert!(
                self.now >= before,
                "{} expired {current:?} at {}, which is guaranteed until {before}",
                write.by,
                self.now
            ),
            Some((holder, lease)) => {
                let until = self.clients[holder].true_time(lease.guaranteed_until(write.sent));
                assert!(until >= before, "{holder} has shortened {current:?}");
                self.guaranteed.insert(revision, until);
            }
        }
        self.history.push(Entry { revision, write: number, lease: write.lease });
    }

    /// Reads the bucket; now and then from a server that is behind, whose answer tells nothing of
    /// what it does not show.
    fn read(&mut self, id: usize) {
        let began = self.clients[id].local(self.now);
        let there = self.brief();
        self.pass(there);
        let is_behind = self.random.one_in(8);
        let back = if is_behind { self.random.below(3) as usize } else { 0 };
        let shown = self.history[(self.history.len() - 1).saturating_sub(back)];
        let is_slow = self.random.one_in(10);
        let until = if is_slow { self.random.below(2 * DURATION) } else { self.brief() };
        self.pass(until);
        let ended = self.clients[id].local(self.now);
        let client = &mut self.clients[id];
        let not_there_at = client.read.filter(|(_, revision)| *revision < shown.revision);
        let bounds = WriteBounds::of_read(not_there_at.map(|(at, _)| at), ended);
        client.seen = Some(match client.seen.filter(|_| client.has_notes) {
            Some((entry, known)) if entry.revision == shown.revision => (entry, known.and(bounds)),
            // A later one was seen before.
            Some((entry, known)) if entry.revision > shown.revision => (entry, known),
            Some(_) | None => (shown, bounds),
        });
        if !is_behind && client.has_notes {
            client.read = Some((began, shown.revision));
        }
    }

    /// Whoever knows that the lease is held is right at this moment.
    fn check_told(&self, id: usize) {
        let client = &self.clients[id];
        let Some((entry, bounds)) = client.seen else { return };
        let Some((_, lease)) = entry.lease else { return };
        let next = self.history.iter().find(|it| it.revision == entry.revision + 1);
        if next.is_some_and(|next| next.lease.is_none()) {
            let state = lease.state(bounds, client.local(self.now));
            assert!(state != LeaseState::Held, "{id} is told that {entry:?} is held");
        }
    }

    /// Decides by what the client has seen, and sends that, perhaps after a pause.
    fn act(&mut self, id: usize) {
        let asked = Duration::from_micros(DURATION / 2 + self.random.below(DURATION));
        let client = &self.clients[id];
        let Some((entry, bounds)) = client.seen else { return };
        let now = client.local(self.now);
        let lease = match entry.lease {
            None => Some((id, LeaseTime::guaranteeing(asked, DRIFT_PPM))),
            Some((holder, lease)) if holder == id => {
                let sent = client.own.get(&entry.write).copied().filter(|_| client.has_notes);
                match lease.extended(sent, asked, now) {
                    Some(lease) => Some((id, lease)),
                    None => return,
                }
            }
            Some((_, lease)) if lease.state(bounds, now) == LeaseState::RunOut => None,
            Some(_) => return,
        };
        self.sent += 1;
        self.clients[id].own.insert(self.sent, now);
        let is_late = self.random.one_in(6);
        let late = if is_late { self.random.below(3 * DURATION) } else { self.brief() };
        let arrives = self.now + late;
        if !self.random.one_in(10) {
            let write = Write { by: id, at: entry.revision, lease, sent: now };
            self.under_way.insert((arrives, self.sent), write);
        }
    }

    /// Runs to the end; returns how many writes were stored.
    pub(super) fn run(&mut self) -> usize {
        for _ in 0..STEPS {
            let id = self.random.below(self.clients.len() as u64) as usize;
            let pause = match self.random.below(8) {
                0 => self.random.below(2 * DURATION),
                _ => self.random.below(DURATION / 4),
            };
            self.pass(pause);
            self.read(id);
            (0..self.clients.len()).for_each(|id| self.check_told(id));
            if self.random.one_in(4) {
                self.wait_for_end(id);
            }
            self.act(id);
        }
        self.history.len() - 1
    }
}
