//! Owners of tickets on a bucket that delays, loses and repeats, under a virtual clock.
//!
//! Each client is the shipped [`TicketOwner`]; the bucket, the network, the clocks and the
//! commands are played. What must hold: no two commands that conflict run at the same time, a
//! ticket is granted only when no earlier one that conflicts stands, and every client ends.

mod front;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::*;
use crate::core::random::Random;
use crate::core::record::Incarnation;
use crate::core::tickets::owner::tests::simulated_bucket::{Bucket, losses, no_result};
use crate::core::tickets::{Mode, Name, Soft};

/// Microseconds of true time.
pub(super) type Time = u64;

const R: Time = 5_000_000;
const LIFE: Time = 3 * R;
pub(super) const DRIFT_PPM: u64 = 10_000;
/// After so long everybody has to have ended.
const END: Time = 4_000 * R;
/// Nothing goes wrong any more from here on.
const CALM: Time = 60 * R;

enum Event {
    /// The client looks again.
    Wake(usize, u32),
    /// A request reaches a bucket, perhaps another than that which the client has opened.
    Arrive(usize, u64, Step, String, u64),
    /// An answer, or the end of the time for one, reaches the client.
    Reply(usize, u64, Option<Input>),
    /// The answer is lost together with the connection.
    Cut(usize, u64),
    /// The command ends by itself, or is killed.
    CommandOver(usize, u32),
    Hint(usize, Input),
    /// The client notices that its bucket is lost.
    Gone(usize),
    Wipe,
    /// The server is killed, and starts again.
    Kill,
}

pub(super) struct Client {
    pub(super) owner: TicketOwner,
    timing: LockTiming,
    /// The clock runs so many millionths faster, and began at another value.
    ppm: i64,
    offset: Time,
    /// The request under way.
    request: Option<(u64, Step)>,
    wakes: u32,
    paused_until: Time,
    command: Option<Command>,
    /// The command has ended: the front does not run it again.
    done: bool,
    /// The bucket that it has opened.
    opened: u64,
    watched: Vec<String>,
    heard: Vec<Input>,
    ended: bool,
    outcome: Option<End>,
}

struct Command {
    ends_at: Time,
    killed_at: Time,
    round: u32,
    ticket: Ticket,
}

pub(super) struct Simulation {
    random: Random,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    bucket: Bucket,
    pub(super) clients: Vec<Client>,
    requests: u64,
    pub(super) grants: usize,
    /// How many kills have restored a ticket.
    pub(super) restored: usize,
    is_wiped: bool,
}

/// Returns the times of a client whose R is so many times the shortest.
fn timing(times: u64) -> LockTiming {
    let micros = Duration::from_micros;
    LockTiming::new(micros(times * R), 3, DRIFT_PPM as u32, micros(R / 4)).expect("safe")
}

/// Returns the time of a clock.
fn local(at: Time, ppm: i64, offset: Time) -> Instant {
    let at = i128::from(at + offset);
    let micros = at + at * i128::from(ppm) / 1_000_000;
    Instant::from_boot(Duration::from_micros(micros as u64))
}

impl Client {
    pub(super) fn local(&self, at: Time) -> Instant {
        local(at, self.ppm, self.offset)
    }

    /// The true time at which this client's clock shows that instant, not before.
    fn true_time(&self, at: Instant) -> Time {
        let local = at.since_boot().as_micros() as i128;
        let at = local * 1_000_000 / i128::from(1_000_000 + self.ppm) + 1;
        (at as u64).saturating_sub(self.offset)
    }
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Simulation {
        let mut random = Random(seed);
        let count = 2 + random.below(4);
        let is_wiped = random.one_in(3);
        let names = ["a", "a/b", "a/c", "b"];
        let (is_crowded, slots) = (random.one_in(4), 1 + random.below(3) as u32);
        let clients = (0..count).map(|number| {
            let count = if is_crowded { 1 } else { 4 };
            let name = names[random.below(count) as usize];
            // Only where all have one lifetime the wait after a loss of the bucket is long enough.
            let timing = timing(1 + random.below(if is_wiped { 1 } else { 2 }));
            let ticket = Ticket {
                name: Name::parse(name).expect("one"),
                mode: match random.below(6) {
                    0 | 1 => Mode::Shared,
                    2 => Mode::Slots(slots),
                    _ if is_crowded => Mode::Slots(slots),
                    _ => Mode::Exclusive,
                },
                slot: None,
                lifetime: timing.lifetime(),
                token: format!("c{number}"),
                incarnation: Incarnation(u128::from(number)),
                attempt: 0,
                is_granted: false,
                counts_if_stored_by: None,
                runs_out: None,
            };
            let ppm = random.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64;
            let offset = random.below(1_000 * R);
            let wait = random.one_in(4).then(|| Duration::from_micros(random.below(20 * R)));
            let nonce = u128::from(number) << 64;
            let soft = (random.one_in(5) && ticket.mode == Mode::Exclusive).then(|| Soft {
                quiet_for: Duration::from_micros(random.below(3 * R)),
                hard_after: random.one_in(2).then(|| Duration::from_micros(random.below(20 * R))),
            });
            let (asker, now) = (Asker::Command(soft), local(0, ppm, offset));
            let owner = TicketOwner::new(timing, ticket, nonce, asker, wait, now);
            Client {
                owner: owner.with_notes(&format!("{ppm}.{offset}")),
                timing,
                ppm,
                offset,
                request: None,
                wakes: 0,
                paused_until: 0,
                command: None,
                done: false,
                opened: 0,
                watched: Vec::new(),
                heard: Vec::new(),
                ended: false,
                outcome: None,
            }
        });
        let clients = clients.collect();
        let bucket = Bucket::new(1);
        Simulation {
            random,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            bucket,
            clients,
            requests: 0,
            grants: 0,
            restored: 0,
            is_wiped,
        }
    }

    fn at(&mut self, time: Time, event: Event) {
        let id = self.next_id();
        self.events.insert(id, event);
        self.queue.push(Reverse((time.max(self.now), id)));
    }

    fn next_id(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// `PUTEX_TRACE=1` shows the events.
    fn show(&self, what: std::fmt::Arguments<'_>) {
        if std::env::var_os("PUTEX_TRACE").is_some() {
            println!("{} {what}", self.now);
        }
    }

    fn is_calm(&self) -> bool {
        self.now >= CALM
    }

    fn wake(&mut self, client: usize, time: Time) {
        self.clients[client].wakes += 1;
        let wakes = self.clients[client].wakes;
        self.at(time, Event::Wake(client, wakes));
    }

    /// Lets the client act until it waits for an answer or for time.
    fn act(&mut self, client: usize) {
        let paused_until = self.clients[client].paused_until;
        if self.clients[client].ended || self.clients[client].request.is_some() {
            return;
        }
        if self.now < paused_until {
            return self.wake(client, paused_until);
        }
        if !self.is_calm() && self.random.one_in(60) {
            let pause = self.random.below(3 * LIFE);
            self.clients[client].paused_until = self.now + pause;
            return self.wake(client, self.now + pause);
        }
        let now = self.clients[client].local(self.now);
        let heard = std::mem::take(&mut self.clients[client].heard);
        for input in heard {
            self.clients[client].owner.handle(input, now);
        }
        let step = self.clients[client].owner.next(now);
        let owner = &self.clients[client].owner;
        let is_of_clock = matches!(step, Step::Open(_) | Step::WriteNotes(..));
        let element = if is_of_clock { owner.seen.clock().to_owned() } else { owner.key_element() };
        self.show(format_args!("{client} {step:?}"));
        self.listen(client);
        let by = match &step {
            Step::Exit => return self.ended(client),
            Step::Rest(until) => {
                let request = self.next_id();
                self.clients[client].request = Some((request, step.clone()));
                let at = self.clients[client].true_time(*until);
                return self.at(at, Event::Reply(client, request, Some(Input::Rested)));
            }
            Step::Watch(keys) => {
                self.clients[client].watched.extend(keys.clone());
                self.clients[client].owner.handle(Input::Subscribed, now);
                return self.act(client);
            }
            Step::Open(by) | Step::ReadOwn(by) | Step::List(_, by) => *by,
            Step::WriteMark(_, by) | Step::End(_, _, by) => *by,
            Step::Write(_, _, _, by) => *by,
            Step::Remove(_, by) | Step::WriteNotes(_, _, by) => *by,
        };
        let request = self.next_id();
        self.clients[client].request = Some((request, step.clone()));
        let given_up = self.clients[client].true_time(by);
        self.at(given_up, Event::Reply(client, request, None));
        if !self.is_calm() && self.random.one_in(40) {
            self.clients[client].paused_until = self.now + self.random.below(3 * LIFE);
        }
        let mut there = self.random.below(R / 20);
        if !self.is_calm() && self.random.one_in(8) {
            there = self.random.below(LIFE + LIFE / 2);
        }
        // Longer than the marker of an end stays: by then a killed server may have restored the
        // ticket that the write replaces.
        if !self.is_calm() && self.random.one_in(20) {
            there = self.random.below(8 * LIFE);
        }
        if self.is_calm() || !self.random.one_in(12) {
            let opened = self.clients[client].opened;
            self.at(self.now + there, Event::Arrive(client, request, step, element, opened));
        }
    }

    /// The process has ended. One that did not get the lock in time may be followed by another of
    /// its host.
    fn ended(&mut self, client: usize) {
        let begin = self.clients[client].local(self.now);
        let was_impatient = matches!(self.clients[client].outcome, Some(End::NotHad(_)));
        if self.is_calm() || !was_impatient || self.random.one_in(8) {
            self.clients[client].ended = true;
            return;
        }
        let (wait, later) = (self.random.below(2 * R), self.random.below(2 * LIFE));
        let TicketOwner { timing, mut ticket, nonce, asker, seen, .. } =
            self.clients[client].owner.clone();
        ticket.slot = None;
        let wait = Some(Duration::from_micros(wait));
        let owner = TicketOwner::new(
            timing,
            ticket,
            nonce.0 + 1,
            asker,
            wait,
            begin.after(Duration::from_micros(later)),
        );
        self.clients[client].owner = owner.with_notes(seen.clock());
        self.clients[client].watched.clear();
        self.clients[client].outcome = None;
        self.clients[client].paused_until = self.now + later;
        self.wake(client, self.now + later);
    }

    /// A request reaches the bucket; returns the answer.
    fn serve(&mut self, step: Step, element: &str) -> Input {
        if self.random.one_in(4) {
            self.bucket.keep_listing();
        }
        self.bucket.now = self.now;
        let is_old = self.random.one_in(6);
        let (answer, changed) = self.bucket.answer(step, element, is_old);
        let Some((key, hint)) = changed else { return answer };
        let watches = |at: &usize| self.clients[*at].watched.contains(&key);
        let watchers: Vec<usize> = (0..self.clients.len()).filter(watches).collect();
        watchers.into_iter().for_each(|watcher| self.hint(watcher, hint.clone()));
        answer
    }

    /// Tells a client of a change; some hints are lost, some come late or twice.
    fn hint(&mut self, client: usize, hint: Input) {
        if self.random.one_in(5) {
            return;
        }
        for _ in 0..if self.random.one_in(10) { 2 } else { 1 } {
            let late = if self.random.one_in(10) { LIFE } else { R / 10 };
            let delay = self.random.below(late);
            self.at(self.now + delay, Event::Hint(client, hint.clone()));
        }
    }

    /// A listing says of which bucket it is.
    fn refuse_listing(&mut self, client: usize, answer: &mut Input) {
        if let Input::Listed(listed) = answer {
            *listed = Err("another bucket".to_owned());
            let at = self.now + self.random.below(R / 10);
            self.at(at, Event::Gone(client));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(client, wakes) => {
                if self.clients[client].wakes == wakes {
                    self.act(client);
                }
            }
            Event::Arrive(client, request, step, element, opened) => {
                let mut answer = self.serve(step, &element);
                if opened != self.bucket.id {
                    self.refuse_listing(client, &mut answer);
                }
                let mut back = self.random.below(R / 20);
                if !self.is_calm() && self.random.one_in(8) {
                    back = self.random.below(R);
                }
                if !self.is_calm() && self.random.one_in(24) {
                    self.at(self.now + back, Event::Cut(client, request));
                } else if self.is_calm() || !self.random.one_in(12) {
                    self.at(self.now + back, Event::Reply(client, request, Some(answer)));
                }
            }
            Event::Reply(client, request, answer) => self.answered(client, request, answer),
            Event::Cut(client, request) => {
                if self.clients[client].request.as_ref().is_some_and(|it| it.0 == request) {
                    self.clients[client].heard.push(Input::Gone("cut".to_owned()));
                    self.answered(client, request, None);
                }
            }
            Event::CommandOver(client, round) => {
                let command = &self.clients[client].command;
                if command.as_ref().is_some_and(|command| command.round == round) {
                    self.clients[client].command = None;
                    self.clients[client].done = true;
                    self.tell(client, Input::Done);
                }
            }
            Event::Hint(client, hint) => self.tell(client, hint),
            Event::Gone(client) => self.tell(client, Input::Gone("another bucket".to_owned())),
            Event::Wipe => {
                self.show(format_args!("wipe"));
                self.bucket = Bucket::new(self.bucket.id + 1);
                self.lose_connections("wiped");
            }
            Event::Kill => {
                let restores = self.bucket.would_restore(self.now);
                self.bucket.restore_superseded(self.now);
                self.show(format_args!("kill, restores something: {restores}"));
                self.restored += usize::from(restores);
                self.lose_connections("killed");
            }
        }
    }

    /// Some clients notice at once. A connection need not end with a bucket that is removed and
    /// made anew, or with one of several servers.
    fn lose_connections(&mut self, why: &str) {
        for client in 0..self.clients.len() {
            if self.random.one_in(2) {
                self.tell(client, Input::Gone(why.to_owned()));
            }
        }
    }

    /// Tells a client something besides an answer. One that rests looks at once.
    fn tell(&mut self, client: usize, input: Input) {
        self.clients[client].heard.push(input);
        if matches!(self.clients[client].request, Some((_, Step::Rest(_)))) {
            self.clients[client].request = None;
            self.wake(client, self.now);
        }
    }

    fn answered(&mut self, client: usize, request: u64, answer: Option<Input>) {
        let Some((_, step)) = self.clients[client].request.take_if(|it| it.0 == request) else {
            return;
        };
        let paused_until = self.clients[client].paused_until;
        if self.now < paused_until {
            self.clients[client].request = Some((request, step));
            return self.at(paused_until, Event::Reply(client, request, answer));
        }
        let now = self.clients[client].local(self.now);
        let input = answer.unwrap_or_else(|| no_result(&step));
        if let Input::Opened(Ok(opened)) = &input {
            self.clients[client].opened = opened.info.id.epoch.parse().expect("a number");
        }
        self.clients[client].owner.handle(input, now);
        self.listen(client);
        self.act(client);
    }

    pub(super) fn run(&mut self) {
        for client in 0..self.clients.len() {
            let at = self.random.below(10 * R);
            self.wake(client, at);
        }
        let (wiped_at, killed_at) = losses(&mut self.random, self.is_wiped, CALM);
        wiped_at.into_iter().for_each(|at| self.at(at, Event::Wipe));
        killed_at.into_iter().for_each(|at| self.at(at, Event::Kill));
        while let Some(Reverse((time, id))) = self.queue.pop() {
            assert!(time < END, "somebody does not end");
            self.now = time;
            let event = self.events.remove(&id).expect("it was put there");
            self.handle(event);
        }
        assert!(self.clients.iter().all(|client| client.ended), "somebody waits for nothing");
        assert!(self.clients.iter().all(|client| client.outcome.is_some()), "no outcome");
    }
}
