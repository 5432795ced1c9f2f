//! Commands of several hosts on one lease, in a bucket that answers late or not at all, under a
//! virtual clock. The commands are those that are shipped.
//!
//! Clocks begin anywhere and are wrong by up to the drift. Processes pause between any two steps,
//! so a write may arrive long after it was decided, and so may one whose answer was given up. In a
//! bucket of three copies a server that is behind may answer a read. The bucket may be lost and
//! made anew. Some hosts keep no notes. What must hold:
//!
//! 1. No lease is claimed or expired that is guaranteed to another then, or of which somebody has
//!    been told that it is held then.
//! 2. A holder has a lease for as long as was asked for, from the beginning of the command.
//! 3. Nobody is told that a lease is not held which was guaranteed during the whole command.

use std::collections::BTreeMap;

use super::super::*;
use super::counts::Counts;
use crate::core::event::{BucketInfo, StoreErrorKind, Written};
use crate::core::observed::Observed;
use crate::core::random::Random;
use crate::core::record::BucketId;
use crate::core::tickets::Mark;
use crate::core::tickets::times::LIFETIME_DEFAULT;

/// Microseconds of true time.
type Time = u64;

const DRIFT_PPM: u32 = 10_000;

/// Leases last for up to this time, which is less than the lifetime that is waited for in a new
/// bucket.
const LONGEST: Time = 14_000_000;

/// A read of a key that was never written.
const NOTHING: StoredLease = StoredLease { revision: Revision(0), attempt: 0, lease: None };

/// How many commands a history has.
const COMMANDS: u32 = 60;

/// A request under way.
#[derive(Clone, Debug)]
struct Request {
    client: usize,
    number: u64,
    /// The bucket that was opened.
    epoch: u64,
    turn: LeaseTurn,
}

#[derive(Clone, Debug)]
enum Event {
    /// The client begins a command, or a step of it.
    Turn(usize),
    /// A request reaches the bucket.
    Arrives(Request),
    /// The answer to a request of this number reaches the client.
    Answered(usize, u64, LeaseInput),
    /// The client has waited for long enough.
    GivenUp(usize, u64),
}

struct Client {
    ppm: i64,
    offset: Time,
    command: Option<(LeaseCommand, Time)>,
    /// The bucket that the command has opened.
    opened: u64,
    /// The time that the last claim or extension has asked for.
    requested: Duration,
    extends: bool,
    /// The number of the request that the client waits for.
    waits_for: u64,
    keeps_notes: bool,
    /// The notes of the client, and the bucket that they are about.
    notes: (u64, Observed),
}

/// Until when somebody relies on a lease that is not given to another.
#[derive(Clone, Debug)]
struct Reliance {
    /// The bucket.
    epoch: u64,
    holder: String,
    from: Time,
    until: Time,
}

pub(super) struct Simulation {
    random: Random,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    numbers: u64,
    clients: Vec<Client>,
    replicas: u32,
    /// The bucket's number, its last revision, and whether it has a mark.
    epoch: u64,
    last: u64,
    mark: Option<(u64, Mark)>,
    /// The entries under the key of the lease, of this bucket and of lost ones: a write that is
    /// under way to a lost bucket is stored under the key of that bucket.
    histories: BTreeMap<u64, Vec<StoredLease>>,
    /// When the lease was claimed or expired, for whom it was claimed, and in which bucket.
    changes: Vec<(Time, Option<String>, u64)>,
    /// Claims that were stored in a bucket under the key of a lost one.
    orphans: Vec<(Time, Option<String>, u64)>,
    reliances: Vec<Reliance>,
    begun: u32,
    counts: Counts,
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
        let counted = instant.since_boot().as_micros().saturating_sub(u128::from(self.offset));
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
            command: None,
            opened: 0,
            requested: Duration::ZERO,
            extends: false,
            waits_for: 0,
            keeps_notes: !random.one_in(3),
            notes: (0, Observed::default()),
        });
        let clients = clients.collect();
        let replicas = if random.one_in(2) { 1 } else { 3 };
        let mut simulation = Simulation {
            random,
            now: 1,
            events: BTreeMap::new(),
            numbers: 0,
            clients,
            replicas,
            epoch: 0,
            last: 0,
            mark: None,
            histories: BTreeMap::new(),
            changes: Vec::new(),
            orphans: Vec::new(),
            reliances: Vec::new(),
            begun: 0,
            counts: Counts::default(),
        };
        simulation.make_bucket();
        // As a rule the bucket is old enough to have a mark.
        if !simulation.random.one_in(4) {
            simulation.write_mark(LIFETIME_DEFAULT);
        }
        for id in 0..simulation.clients.len() {
            simulation.at(1, Event::Turn(id));
        }
        simulation
    }

    fn make_bucket(&mut self) {
        self.epoch += 1;
        (self.last, self.mark) = (1, None);
        self.histories.clear();
    }

    fn write_mark(&mut self, lifetime: Duration) {
        self.last += 1;
        let (revision, epoch) = (Revision(self.last), self.epoch.to_string());
        self.mark = Some((self.last, Mark { revision, epoch, lifetime }));
    }

    fn at(&mut self, time: Time, event: Event) {
        self.numbers += 1;
        self.events.insert((time.max(self.now), self.numbers), event);
    }

    /// How long a message is under way, as a rule; half of them no time at all.
    fn brief(&mut self) -> Time {
        let most = if self.random.one_in(2) { 1 } else { LONGEST / 40 };
        self.random.below(most)
    }

    /// How long a process pauses.
    fn pause(&mut self) -> Time {
        if self.random.one_in(16) { self.random.below(2 * LONGEST) } else { 0 }
    }

    fn begin(&mut self, id: usize) -> LeaseCommand {
        self.begun += 1;
        let requested = Duration::from_micros(LONGEST / 3 + self.random.below(LONGEST * 2 / 3));
        let holder = format!("c{id}");
        let other = format!("c{}", self.random.below(self.clients.len() as u64));
        let task = match self.random.below(6) {
            0 | 1 => LeaseTask::Claim { holder, at_least: requested },
            2 => LeaseTask::Extend { holder, at_least: requested },
            3 | 4 => {
                let wait = [0, LONGEST * 2][self.random.below(2) as usize];
                LeaseTask::Expire { wait: Duration::from_micros(wait) }
            }
            _ => LeaseTask::Check {
                holder: [None, Some(other)][self.random.below(2) as usize].clone(),
            },
        };
        let attempt = self.random.next();
        let client = &mut self.clients[id];
        client.requested = requested;
        client.extends = matches!(task, LeaseTask::Extend { .. });
        LeaseCommand::new(task, DRIFT_PPM, attempt, client.local(self.now))
    }

    /// A client begins a command, or does the next step of it.
    fn turn(&mut self, id: usize) {
        let (mut command, began) = match self.clients[id].command.take() {
            Some(running) => running,
            None if self.begun >= COMMANDS => return,
            None => (self.begin(id), self.now),
        };
        let turn = command.next(self.clients[id].local(self.now));
        match &turn.step {
            LeaseStep::Exit(end) => {
                let end = end.clone();
                self.clients[id].notes = match self.clients[id].keeps_notes {
                    true => (self.clients[id].opened, command.notes().clone()),
                    false => (0, Observed::default()),
                };
                self.judge(id, end, began);
                let rest = self.random.below(LONGEST);
                return self.at(self.now + rest, Event::Turn(id));
            }
            LeaseStep::Rest(until) => {
                let until = self.clients[id].true_time(*until) + 1;
                self.clients[id].command = Some((command, began));
                self.numbers += 1;
                let number = self.numbers;
                self.clients[id].waits_for = number;
                return self.at(until, Event::Answered(id, number, LeaseInput::Rested));
            }
            LeaseStep::Open | LeaseStep::Read => {}
            LeaseStep::WriteMark(_) | LeaseStep::Write(_) | LeaseStep::Confirm(_) => {}
        }
        self.clients[id].command = Some((command, began));
        self.numbers += 1;
        let number = self.numbers;
        self.clients[id].waits_for = number;
        let by = self.clients[id].true_time(turn.by) + 1;
        self.at(by, Event::GivenUp(id, number));
        // The process may pause between the decision and the request.
        let under_way = self.pause() + self.brief();
        if !self.random.one_in(12) {
            let request = Request { client: id, number, epoch: self.clients[id].opened, turn };
            self.at(self.now + under_way, Event::Arrives(request));
        }
    }

    /// Returns the last entry under the key of a bucket's lease.
    fn current(&self, epoch: u64) -> StoredLease {
        let history = self.histories.get(&epoch).and_then(|history| history.last());
        history.cloned().unwrap_or(NOTHING)
    }

    /// Returns the entry that a read shows, perhaps by a server that is behind; or that the bucket
    /// was made anew.
    fn read_state(&mut self, epoch: u64) -> Result<StoredLease, String> {
        if epoch != self.epoch {
            return Err("the bucket was lost and made anew".to_owned());
        }
        let is_behind = self.replicas > 1 && self.random.one_in(6);
        let back = if is_behind { self.random.below(4) as usize } else { 0 };
        let history = self.histories.get(&epoch).map_or(&[][..], |history| history);
        let at = history.len().checked_sub(back + 1);
        Ok(at.map_or(NOTHING, |at| history[at].clone()))
    }

    fn arrives(&mut self, Request { client, number, epoch, turn }: Request) {
        let LeaseTurn { step, at, attempt, .. } = turn;
        let current = self.current(epoch).revision;
        let input = match step {
            LeaseStep::Open => {
                let id = BucketId { epoch: self.epoch.to_string(), created: String::new() };
                let (last, replicas, remarks) = (Revision(self.last), self.replicas, Vec::new());
                let (may_be_lost, retires) = (true, Ok(()));
                let info =
                    BucketInfo { id, last, age: None, may_be_lost, replicas, remarks, retires };
                let (epoch, notes) = self.clients[client].notes.clone();
                let notes = if epoch == self.epoch { notes } else { Observed::default() };
                LeaseInput::Opened(Ok(Box::new((info, self.read_mark(), notes))))
            }
            LeaseStep::Read => LeaseInput::Read(self.read_state(epoch)),
            LeaseStep::WriteMark(mark) => {
                let is_next = mark.revision == self.read_mark().revision;
                LeaseInput::Written(match is_next && mark.epoch == self.epoch.to_string() {
                    true => {
                        self.write_mark(mark.lifetime);
                        Written::Stored(Revision(self.last))
                    }
                    false => Written::Moved(None),
                })
            }
            LeaseStep::Confirm(_) if epoch != self.epoch => {
                LeaseInput::Written(Written::Unknown("the bucket was made anew".to_owned()))
            }
            LeaseStep::Confirm(_) if at == current => {
                self.last += 1;
                LeaseInput::Written(Written::Stored(Revision(self.last)))
            }
            LeaseStep::Write(lease) if at == current => {
                self.last += 1;
                self.store(epoch, attempt, lease);
                LeaseInput::Written(Written::Stored(Revision(self.last)))
            }
            LeaseStep::Confirm(_) | LeaseStep::Write(_) => {
                LeaseInput::Written(Written::Moved(Some(current)))
            }
            LeaseStep::Rest(_) | LeaseStep::Exit(_) => unreachable!("no request"),
        };
        let under_way = self.pause() + self.brief();
        if !self.random.one_in(12) {
            // The answer tells which bucket was opened.
            self.at(self.now + under_way, Event::Answered(client, number, input));
        }
    }

    fn read_mark(&self) -> Mark {
        let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
        self.mark.clone().map_or(none, |(_, mark)| mark)
    }

    /// A write of the lease is stored.
    fn store(&mut self, epoch: u64, attempt: u64, lease: Option<LeaseEntry>) {
        let is_change = lease.as_ref().is_none_or(|lease| lease.term.is_none());
        let holder = lease.as_ref().map(|lease| lease.holder.clone());
        match is_change && epoch == self.epoch {
            true => self.changes.push((self.now, holder, epoch)),
            // Nobody looks at the key of a lost bucket, but its writer may be told.
            false if is_change => self.orphans.push((self.now, holder, epoch)),
            false => {}
        }
        let stored = StoredLease { revision: Revision(self.last), attempt, lease: lease.map(Ok) };
        self.histories.entry(epoch).or_default().push(stored);
        self.check_reliances();
    }

    /// Somebody relies on a lease.
    fn rely(&mut self, holder: &str, until: Time) {
        let claims = self.changes.iter().chain(&self.orphans);
        let claims = claims.filter(|(_, whose, _)| whose.as_deref() == Some(holder));
        let claim = claims.max_by_key(|(at, ..)| *at);
        let (from, epoch) = claim.map(|(at, _, epoch)| (*at, *epoch)).expect("it was claimed");
        let holder = holder.to_owned();
        self.reliances.push(Reliance { epoch, holder, from, until });
        self.check_reliances();
    }

    /// No lease is claimed by another or expired while somebody relies on it.
    fn check_reliances(&self) {
        for Reliance { holder, from, until, .. } in &self.reliances {
            for (at, whose, _) in &self.changes {
                let is_others = whose.as_ref() != Some(holder);
                assert!(
                    !is_others || at <= from || at >= until,
                    "{holder} relies on the lease from {from} until {until}, changed at {at} for \
                     {whose:?}"
                );
            }
        }
    }

    /// Nobody is told that a lease is not held which was guaranteed all the time. `of_lost`: nor if
    /// its bucket was lost meanwhile.
    fn check_denied(&self, holder: Option<&str>, began: Time, of_lost: bool) {
        for it in self.reliances.iter().filter(|it| of_lost || it.epoch == self.epoch) {
            let is_asked = holder.is_none_or(|holder| holder == it.holder);
            assert!(
                !(is_asked && it.from < began && it.until > self.now),
                "from {began} to {} the lease is said not to be held by {holder:?}: {it:?}",
                self.now
            );
        }
    }

    fn judge(&mut self, id: usize, end: LeaseEnd, began: Time) {
        let own = format!("c{id}");
        let client = &self.clients[id];
        match end {
            LeaseEnd::Had { valid_until, .. } => {
                let asked_until = client.local(began).after(client.requested);
                assert!(valid_until >= asked_until, "{own} has it for a shorter time");
                let until = client.true_time(valid_until);
                self.counts.count(if client.extends { "extended" } else { "claimed" });
                self.rely(&own, until);
            }
            LeaseEnd::Checked(LeaseState::Held, Some(view)) => {
                let until = client.true_time(view.held_until.expect("it is known"));
                self.counts.count("held");
                self.rely(&view.holder, until);
            }
            LeaseEnd::Checked(LeaseState::RunOut, None) => {
                self.counts.count("not held");
                self.check_denied(None, began, true);
            }
            LeaseEnd::Checked(LeaseState::RunOut, Some(_)) => self.counts.count("not held"),
            LeaseEnd::Checked(_, _) => self.counts.count("unsure"),
            LeaseEnd::NotHad(_) => {
                self.counts.count("not had");
                self.check_denied(Some(&own), began, false);
            }
            LeaseEnd::Absent => {
                self.counts.count("absent");
                self.check_denied(None, began, false);
            }
            LeaseEnd::Over(_) => self.counts.count("over"),
            LeaseEnd::Taken(_) => self.counts.count("taken"),
            LeaseEnd::Young(_) => self.counts.count("young"),
            LeaseEnd::Expired(_) => self.counts.count("expired"),
            LeaseEnd::TooEarly(_) => self.counts.count("too early"),
            LeaseEnd::Refused(..) => self.counts.count("refused"),
        }
    }

    fn take_in(&mut self, id: usize, number: u64, input: LeaseInput) {
        if self.clients[id].waits_for != number {
            return;
        }
        self.clients[id].waits_for = 0;
        if let LeaseInput::Opened(Ok(opened)) = &input {
            self.clients[id].opened = opened.0.id.epoch.parse().expect("a number");
        }
        let local = self.clients[id].local(self.now);
        if let Some((command, _)) = &mut self.clients[id].command {
            command.handle(input, local);
        }
        let pause = self.pause();
        self.at(self.now + pause, Event::Turn(id));
    }

    /// Tells a client that its request had no answer.
    fn give_up(&mut self, id: usize, number: u64) {
        let Some((command, _)) = &self.clients[id].command else { return };
        let why = || "no answer".to_owned();
        let mut command = command.clone();
        let input = match command.next(self.clients[id].local(self.now)).step {
            LeaseStep::Open => LeaseInput::Opened(Err(StoreErrorKind::Unreachable.error(why()))),
            LeaseStep::Read => LeaseInput::Read(Err(why())),
            LeaseStep::WriteMark(..) | LeaseStep::Write(..) | LeaseStep::Confirm(..) => {
                LeaseInput::Written(Written::Unknown(why()))
            }
            LeaseStep::Rest(_) | LeaseStep::Exit(_) => return,
        };
        self.take_in(id, number, input);
    }

    /// Runs to the end; returns how often each thing has happened.
    pub(super) fn run(&mut self) -> Counts {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if self.random.one_in(2_000) {
                self.make_bucket();
            }
            match event {
                Event::Turn(id) => self.turn(id),
                Event::Arrives(request) => self.arrives(request),
                Event::Answered(id, number, input) => self.take_in(id, number, input),
                Event::GivenUp(id, number) => {
                    if self.clients[id].waits_for == number {
                        self.give_up(id, number);
                    }
                }
            }
        }
        std::mem::take(&mut self.counts)
    }
}
