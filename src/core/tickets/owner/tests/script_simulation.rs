//! Scripts that grab, grab again, are killed and release, beside owners as of `putex lock`, on a
//! bucket that delays, loses and repeats, under a virtual clock.
//!
//! What must hold: no two that conflict have the lock at the same time; a script that is told
//! the same term again had the lock all the time; and in the end everybody gets it.

mod held;
mod hints;
mod hosts;
mod late;
mod rough;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::simulated_bucket::{Bucket, losses, no_result};
use super::*;
use crate::core::random::Random;
use crate::core::tickets::grab::timing;
use crate::core::tickets::{Mode, Name, Released, Releaser, Whose};

/// Microseconds of true time.
type Time = u64;

/// A quarter of the shortest lifetime.
const QUARTER: Time = 4_000_000;
const LIFE: Time = 4 * QUARTER;
const DRIFT_PPM: u64 = 10_000;
/// Nothing goes wrong any more from here on.
const CALM: Time = 80 * QUARTER;
/// By then everybody has had the lock.
const END: Time = 1_500 * QUARTER;

enum Event {
    Wake(usize, u64),
    Arrive(usize, u64, Step, String),
    Reply(usize, u64, Input),
    /// The answer is lost together with the connection.
    Cut(usize, u64, Input),
    /// A process hears of a change.
    Hint(usize, u64, Input),
    Wipe,
    /// The server is killed, and starts again.
    Kill,
    /// Another server leads.
    Lead,
}

enum Process {
    Grab(Box<TicketOwner>),
    Release(Box<Releaser>),
    Lock(Box<TicketOwner>),
}

/// A time in which somebody had the lock.
#[derive(Clone, Debug)]
struct Held {
    client: usize,
    requester: usize,
    bucket: u64,
    term: u64,
    from: Time,
    to: Time,
    ticket: Ticket,
}

struct Client {
    /// Another client may be the same requester.
    requester: usize,
    is_lock: bool,
    shares_name: bool,
    timing: LockTiming,
    ticket: Ticket,
    host: hosts::Host,
    process: Option<Process>,
    /// The number of the process, what it has subscribed to, and the hints that it has not read.
    process_number: u64,
    watched: BTreeSet<String>,
    heard: VecDeque<Input>,
    is_resting: bool,
    /// Until when the process is stopped during a request.
    stopped_until: Time,
    /// The number of the request, or of the rest, that is under way.
    request: u64,
    /// The lock that the client holds, by its number in the history.
    holds: Option<usize>,
    command_until: Time,
    is_done: bool,
    /// The last bucket and term that the requester was told when this process began.
    floor: (u64, u64),
}

pub(super) struct Simulation {
    random: Random,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    bucket: Bucket,
    clients: Vec<Client>,
    numbers: u64,
    history: Vec<Held>,
    /// How many kills have restored a ticket.
    pub(super) restored: usize,
    is_wiped: bool,
    rough: rough::Rough,
}

impl Client {
    fn element(&self) -> String {
        match &self.process {
            Some(Process::Lock(owner) | Process::Grab(owner)) => owner.key_element(),
            Some(Process::Release(_)) | None => String::new(),
        }
    }
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Simulation {
        let mut random = Random(seed);
        let is_rough = !seed.is_multiple_of(4);
        let count = if is_rough { 3 } else { 2 } + random.below(4) as usize;
        let is_wiped = random.one_in(3);
        let clients = (0..count).map(|id| {
            // The second process, or the second and the third, may ask by the name of the first.
            let sharers = 2 + (seed / 5 % 2) as usize;
            let shares_name = id < sharers && (is_rough || seed.is_multiple_of(5));
            let is_lock = !shares_name && random.one_in(3);
            let requester = if shares_name { 0 } else { id };
            let names = ["a", "a/b", "a/c", "b"];
            let name = if shares_name { "a" } else { names[random.below(4) as usize] };
            let life = if is_wiped { LIFE } else { LIFE * (1 + random.below(2)) };
            let timing = timing(Duration::from_micros(life), DRIFT_PPM as u32).expect("times");
            let is_other = shares_name && id > 0 && random.one_in(6);
            let is_shared = !shares_name && random.one_in(3) || is_other;
            let has_slots = is_lock && random.one_in(5);
            let ticket = Ticket {
                name: Name::parse(name).expect("a name"),
                mode: match (has_slots, is_shared) {
                    (true, _) => Mode::Slots(2),
                    (false, true) => Mode::Shared,
                    (false, false) => Mode::Exclusive,
                },
                slot: None,
                lifetime: timing.lifetime(),
                token: format!("c{requester}"),
                incarnation: Incarnation(requester as u128),
                attempt: 0,
                is_granted: false,
                counts_if_stored_by: None,
                runs_out: None,
            };
            Client {
                requester,
                is_lock,
                shares_name,
                timing,
                ticket,
                host: hosts::Host::new(id, &mut random),
                process: None,
                process_number: 0,
                watched: BTreeSet::new(),
                heard: VecDeque::new(),
                is_resting: false,
                stopped_until: 0,
                request: 0,
                holds: None,
                command_until: 0,
                is_done: false,
                floor: (0, 0),
            }
        });
        let mut clients: Vec<_> = clients.collect();
        if is_rough {
            hosts::share(&mut clients, &mut random);
        }
        let mut bucket = Bucket::new(1);
        let rough = rough::Rough::new(is_rough, &mut random);
        bucket.margin = rough.margin;
        let (queue, history) = (BTreeMap::new(), Vec::new());
        Simulation {
            random,
            now: 0,
            queue,
            bucket,
            clients,
            numbers: 0,
            history,
            restored: 0,
            is_wiped,
            rough,
        }
    }

    /// `PUTEX_TRACE=1` shows the events.
    fn show(&self, what: std::fmt::Arguments<'_>) {
        if std::env::var_os("PUTEX_TRACE").is_some() {
            println!("{} {what}", self.now);
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn at(&mut self, time: Time, event: Event) {
        let number = self.number();
        self.queue.insert((time.max(self.now), number), event);
    }

    /// Has a client act at that time, whatever it waits for now.
    fn act_at(&mut self, client: usize, time: Time) {
        let number = self.number();
        self.clients[client].request = number;
        self.at(time, Event::Wake(client, number));
    }

    /// Starts the next process of a client, or ends the lock that it holds.
    fn begin(&mut self, id: usize) {
        let (now, number) = (self.clients[id].local(self.now), self.number());
        let (is_calm, holds) = (self.is_calm(), self.clients[id].holds.is_some());
        // A client that shares its name would give the lock of the other one away.
        let is_alone = !self.clients[id].shares_name;
        let may_release = is_alone || self.rough.is_rough && !is_calm;
        let releases = holds && may_release && (is_calm || self.random.one_in(3));
        let wait = match self.random.below(4) {
            0 => self.random.below(3 * LIFE),
            _ => 0,
        };
        // From two hosts in turn, single attempts remove nobody.
        let is_noted = !self.clients[id].host.clock().is_empty();
        let wait = if is_calm && !(is_alone && is_noted) { 6 * LIFE } else { wait };
        let withdraws = !is_calm && self.withdraws(is_alone);
        self.change_request(id, releases);
        let life = if self.is_wiped { LIFE } else { LIFE * self.lives() };
        let client = &mut self.clients[id];
        let nonce = u128::from(number) << 64;
        client.process_number = number;
        client.floor = self.rough.last_term_of(client);
        client.watched.clear();
        client.heard.clear();
        if !client.is_lock {
            // The next one may ask for another time.
            client.timing = timing(Duration::from_micros(life), DRIFT_PPM as u32).expect("times");
            client.ticket.lifetime = client.timing.lifetime();
        }
        client.process = Some(if client.is_lock {
            let ticket = client.ticket.clone();
            let asker = Asker::Command(None);
            let owner = TicketOwner::new(client.timing, ticket, nonce, asker, None, now);
            Process::Lock(Box::new(owner.with_notes(&client.host.clock())))
        } else if releases {
            let whose = Whose::Own(client.ticket.incarnation);
            Process::Release(Box::new(Releaser::new(client.ticket.name.clone(), whose, now)))
        } else {
            let ticket = Ticket { attempt: number << 20, ..client.ticket.clone() };
            let wait = Some(Duration::from_micros(wait));
            let asker = Asker::Script { withdraws };
            let owner = TicketOwner::new(client.timing, ticket, nonce, asker, wait, now);
            Process::Grab(Box::new(owner.with_notes(&client.host.clock())))
        });
        if matches!(client.process, Some(Process::Release(_))) && is_alone {
            self.let_go(id);
        }
    }

    fn act(&mut self, id: usize) {
        if self.clients[id].is_done {
            return;
        }
        let often = if self.rough.is_rough { 15 } else { 60 };
        if !self.is_calm() && self.random.one_in(often) {
            // The process is killed; now and then the host with it.
            if self.random.one_in(3) {
                self.reboot(id);
            } else if !self.clients[id].is_lock {
                self.clients[id].process = None;
            }
            let later = self.now + self.random.below(LIFE);
            return self.act_at(id, later);
        }
        if !self.is_calm() && self.random.one_in(often) {
            let later = self.now + self.random.below(2 * LIFE);
            return self.act_at(id, later);
        }
        if self.clients[id].process.is_none() {
            self.begin(id);
        }
        let now = self.clients[id].local(self.now);
        let is_over = self.now >= self.clients[id].command_until;
        let holds = self.clients[id].holds.is_some();
        let step = match self.clients[id].process.as_mut() {
            Some(Process::Grab(owner)) => owner.next(now),
            Some(Process::Release(releaser)) => releaser.next(now),
            Some(Process::Lock(owner)) => {
                if holds && is_over {
                    owner.handle(Input::Done, now);
                }
                owner.next(now)
            }
            None => return,
        };
        if holds && is_over && self.clients[id].is_lock {
            self.let_go(id);
        }
        self.show(format_args!("{id} {step:?}"));
        self.listen(id);
        if let (Step::Rest(_), Some(hint)) = (&step, self.clients[id].heard.pop_front()) {
            self.handle(id, hint, now);
            self.listen(id);
            return self.act(id);
        }
        self.request(id, step, now);
    }

    fn request(&mut self, id: usize, step: Step, now: Instant) {
        self.clients[id].is_resting = matches!(step, Step::Rest(_));
        let by = match &step {
            Step::Exit => return self.ended(id),
            Step::Watch(keys) => {
                self.clients[id].watched.extend(keys.iter().cloned());
                self.handle(id, Input::Subscribed, now);
                return self.act(id);
            }
            Step::Rest(until) => {
                // Hints are lost here; a process with a command looks soon whether that is over.
                let until = self.clients[id].true_time(*until);
                let soon = if self.clients[id].is_lock { self.now + QUARTER / 4 } else { until };
                let number = self.number();
                self.clients[id].request = number;
                let event = Event::Reply(id, number, Input::Rested);
                return self.at(until.min(soon), event);
            }
            Step::Open(by) | Step::ReadOwn(by) | Step::List(_, by) => *by,
            Step::WriteMark(_, by) | Step::Write(_, _, _, by) | Step::End(_, _, by) => *by,
            Step::Remove(_, by) => *by,
            Step::WriteNotes(_, _, by) => *by,
        };
        if self.is_late(id, &step) {
            return self.come_late(id, step);
        }
        self.stop_during_request(id);
        let number = self.number();
        self.clients[id].request = number;
        let given_up = self.clients[id].true_time(by);
        let input = no_result(&step);
        self.at(given_up, Event::Reply(id, number, input));
        let mut there = self.random.below(QUARTER / 20);
        if !self.is_calm() && self.random.one_in(8) {
            there = self.random.below(LIFE + LIFE / 2);
        }
        // Longer than the marker of an end stays: by then a killed server may have restored the
        // ticket that the write replaces.
        if !self.is_calm() && self.random.one_in(20) {
            there = self.random.below(8 * LIFE);
        }
        if self.is_calm() || !self.random.one_in(12) {
            let is_of_clock = matches!(step, Step::Open(_) | Step::WriteNotes(..));
            let client = &self.clients[id];
            let element = if is_of_clock { client.host.clock() } else { client.element() };
            self.note_removal(id, number, &step);
            self.at(self.now + there, Event::Arrive(id, number, step, element));
        }
    }

    fn handle(&mut self, id: usize, input: Input, now: Instant) {
        match self.clients[id].process.as_mut() {
            Some(Process::Lock(owner) | Process::Grab(owner)) => owner.handle(input, now),
            Some(Process::Release(releaser)) => releaser.handle(input, now),
            None => {}
        }
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.unless_stopped(event) else { return };
        match event {
            Event::Hint(id, process, hint) => self.take_hint(id, process, hint),
            Event::Wake(id, number) if self.clients[id].request == number => self.act(id),
            Event::Wake(..) => {}
            Event::Arrive(id, number, step, element) => {
                let (answer, lost) = {
                    self.bucket.now = self.now;
                    let is_cut = !self.is_calm() && self.random.one_in(24);
                    let lost = is_cut.then(|| no_result(&step));
                    let (answer, changed) = self.serve((id, number), step, &element);
                    self.send_hints(changed);
                    (answer, lost)
                };
                let mut back = self.random.below(QUARTER / 20);
                if !self.is_calm() && self.random.one_in(8) {
                    back = self.random.below(QUARTER);
                }
                if let Some(lost) = lost {
                    self.at(self.now + back, Event::Cut(id, number, lost));
                } else if self.is_calm() || !self.random.one_in(12) {
                    self.at(self.now + back, Event::Reply(id, number, answer));
                }
            }
            Event::Cut(id, number, input) if self.clients[id].request == number => {
                let now = self.clients[id].local(self.now);
                self.handle(id, input, now);
                self.handle(id, Input::Gone("cut".to_owned()), now);
                self.listen(id);
                self.act(id);
            }
            Event::Reply(id, number, input) if self.clients[id].request == number => {
                let now = self.clients[id].local(self.now);
                self.handle(id, input, now);
                self.listen(id);
                self.act(id);
            }
            Event::Reply(..) | Event::Cut(..) => {}
            Event::Kill => {
                let restores = self.bucket.would_restore(self.now);
                self.bucket.restore_superseded(self.now);
                self.change_clock();
                self.show(format_args!("kill, restores something: {restores}"));
                self.restored += usize::from(restores);
                for id in 0..self.clients.len() {
                    let now = self.clients[id].local(self.now);
                    if self.random.one_in(2) && self.now >= self.clients[id].stopped_until {
                        self.handle(id, Input::Gone("killed".to_owned()), now);
                        self.listen(id);
                        self.act_at(id, self.now);
                    }
                }
            }
            Event::Lead => self.change_clock(),
            Event::Wipe => {
                self.show(format_args!("wipe"));
                self.bucket = Bucket::new(self.bucket.id + 1);
                self.bucket.margin = self.rough.margin;
                for id in 0..self.clients.len() {
                    self.clients[id].stopped_until = 0;
                    let now = self.clients[id].local(self.now);
                    self.handle(id, Input::Gone("wiped".to_owned()), now);
                    self.listen(id);
                    self.act_at(id, self.now);
                }
            }
        }
    }

    /// Runs to the end; returns how often the lock was had.
    pub(super) fn run(&mut self) -> usize {
        for id in 0..self.clients.len() {
            let at = self.random.below(10 * QUARTER);
            self.act_at(id, at);
        }
        let (wiped_at, killed_at) = losses(&mut self.random, self.is_wiped, CALM);
        wiped_at.into_iter().for_each(|at| self.at(at, Event::Wipe));
        killed_at.into_iter().for_each(|at| self.at(at, Event::Kill));
        self.more_kills();
        while let Some(((time, _), event)) = self.queue.pop_first() {
            self.now = time;
            let open = self.clients.iter().filter(|client| !client.is_done).count();
            assert!(time < END, "{open} have not had the lock");
            self.happen(event);
        }
        for (at, one) in self.history.iter().enumerate() {
            for other in &self.history[at + 1..] {
                let conflicts = one.requester != other.requester
                    && one.ticket.conflicts(&other.ticket)
                    && one.from < other.to
                    && other.from < one.to;
                assert!(!conflicts, "at the same time: {one:?} and {other:?}");
            }
        }
        self.history.len()
    }
}
