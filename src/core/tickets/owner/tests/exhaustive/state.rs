//! A state of the model: the clients, the bucket, and the messages between them.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use super::*;
use crate::core::record::{Incarnation, Revision};
use crate::core::tickets::owner::tests::simulated_bucket::{Bucket, no_result};
use crate::core::tickets::{Mark, TicketsListed};

/// How many earlier listings are kept, for those that are old.
const LISTINGS: usize = 2;

/// The event that a client waits for.
#[derive(Clone, Debug)]
pub(super) enum Waits {
    /// The client begins at this time.
    Begin(Time),
    /// Its request is about to arrive.
    Arrival(Request),
    /// Its request was served, lost, or is late.
    Result(Request),
    Rest(Time),
    /// The client has ended.
    Ended,
    /// The client has crashed: it does nothing any more, and its ticket stands.
    Crashed,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) step: Step,
    /// The last element of the key of its ticket.
    pub(super) element: String,
    /// When the owner returned the step, by the client's clock.
    pub(super) sent: Instant,
    /// When the request is given up.
    pub(super) by: Time,
    /// The bucket that the client had opened.
    pub(super) opened: u64,
    /// The number of the request: each request of the client has another.
    pub(super) number: u64,
    /// When the request was served.
    pub(super) served_at: Time,
    /// The result that comes back, and when.
    pub(super) result: Option<(Input, Time)>,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    /// When it ends by itself; chosen after it has begun.
    pub(super) ends_at: Option<Time>,
    pub(super) killed_at: Time,
    pub(super) ticket: Ticket,
}

#[derive(Clone)]
pub(super) struct Client {
    pub(super) owner: TicketOwner,
    pub(super) ppm: i64,
    pub(super) waits: Waits,
    pub(super) paused_until: Time,
    pub(super) command: Option<Command>,
    /// The command has ended: the front does not run it again.
    pub(super) is_done: bool,
    /// The bucket that it has opened.
    pub(super) opened: u64,
    pub(super) watched: BTreeSet<String>,
    /// The events on their way to the client, besides results.
    pub(super) events: VecDeque<Input>,
    /// The events that have come, and are handled when the client acts next.
    pub(super) arrived: Vec<Input>,
    /// When the stored copy of the ticket's last write was sent.
    pub(super) stored_sent: Option<Instant>,
    pub(super) requests: u64,
    pub(super) outcome: Option<End>,
}

/// A request that comes late.
#[derive(Clone)]
pub(super) struct Late {
    pub(super) client: usize,
    pub(super) at: Time,
    pub(super) request: Request,
}

/// How often each event happens on all paths to all states.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) grants: u64,
    pub(super) losses: u64,
    pub(super) removals: u64,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) now: Time,
    /// How much may still go wrong.
    pub(super) faults: u8,
    /// How often the server may still be killed.
    pub(super) kills: u8,
    pub(super) clients: Vec<Rc<Client>>,
    pub(super) bucket: Rc<Bucket>,
    /// The listings before the last writes, the latest first.
    pub(super) past: Vec<Rc<TicketsListed>>,
    pub(super) late: Vec<Late>,
}

/// Returns the time of a clock.
pub(super) fn local(at: Time, ppm: i64) -> Instant {
    let at = at as i64;
    Instant::from_boot(Duration::from_micros((at + at * ppm / 1_000_000) as u64))
}

impl Client {
    fn new(number: usize, asker: &Asker, timing: LockTiming) -> Client {
        let ticket = Ticket {
            name: Name::parse(asker.name).expect("one"),
            mode: asker.mode,
            slot: None,
            lifetime: timing.lifetime(),
            token: format!("c{number}"),
            incarnation: Incarnation(number as u128),
            attempt: 0,
            is_granted: false,
            counts_if_stored_by: None,
            runs_out: None,
        };
        let wait = asker.wait.map(Duration::from_micros);
        let begin = BEGIN + asker.begins;
        let now = local(begin, asker.ppm);
        let (nonce, of) = (number as u128, crate::core::tickets::Asker::Command(asker.soft));
        Client {
            owner: TicketOwner::new(timing, ticket, nonce, of, wait, now),
            ppm: asker.ppm,
            waits: Waits::Begin(begin),
            paused_until: 0,
            command: None,
            is_done: false,
            opened: 0,
            watched: BTreeSet::new(),
            events: VecDeque::new(),
            arrived: Vec::new(),
            stored_sent: None,
            requests: 0,
            outcome: None,
        }
    }

    pub(super) fn local(&self, at: Time) -> Instant {
        local(at, self.ppm)
    }

    /// Returns the last time at which the clock shows no more than that instant.
    fn last_time(&self, at: Instant) -> Time {
        let micros = at.since_boot().as_micros() as i64;
        let mut time = (micros * 1_000_000 / (1_000_000 + self.ppm)) as Time + 2;
        while self.local(time) > at {
            time -= 1;
        }
        time
    }

    /// Returns the first time at which the clock shows that instant.
    fn first_time(&self, at: Instant) -> Time {
        let mut time = self.last_time(at);
        while self.local(time) < at {
            time += 1;
        }
        while self.local(time - 1) >= at {
            time -= 1;
        }
        time
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.waits, Waits::Ended | Waits::Crashed)
    }
}

impl State {
    pub(super) fn new(scope: &Scope) -> State {
        let timing = timing();
        let clients = scope.askers.iter().enumerate();
        let clients = clients.map(|(number, asker)| Rc::new(Client::new(number, asker, timing)));
        let mut bucket = Bucket::new(1);
        if !scope.is_new {
            let (revision, epoch) = (Revision(0), bucket.id.to_string());
            let mark = Mark { revision, epoch, lifetime: timing.lifetime() };
            let now = Instant::from_boot(Duration::ZERO);
            bucket.answer(Step::WriteMark(mark, now), "", false);
        }
        State {
            now: BEGIN,
            faults: scope.faults,
            kills: scope.kills,
            clients: clients.collect(),
            bucket: Rc::new(bucket),
            past: Vec::new(),
            late: Vec::new(),
        }
    }

    pub(super) fn client(&mut self, client: usize) -> &mut Client {
        Rc::make_mut(&mut self.clients[client])
    }

    /// Returns why a history must not end in this state, if so.
    pub(super) fn check_end(&self) -> Result<(), String> {
        for (number, client) in self.clients.iter().enumerate() {
            match client.waits {
                Waits::Crashed => {}
                Waits::Ended if client.outcome.is_some() => {}
                Waits::Ended => return Err(format!("{number} has ended without an outcome")),
                Waits::Begin(_) | Waits::Arrival(_) | Waits::Result(_) | Waits::Rest(_) => {
                    return Err(format!("{number} waits for nothing"));
                }
            }
        }
        Ok(())
    }

    /// Serves a request. A listing is so many writes old.
    pub(super) fn serve(
        &mut self,
        client: usize,
        request: &Request,
        writes_old: usize,
        counts: &mut Counts,
    ) -> Input {
        let before = (self.faults > 0).then(|| (self.bucket.last, self.bucket.listing()));
        let bucket = Rc::make_mut(&mut self.bucket);
        bucket.now = self.now;
        if writes_old > 0 {
            bucket.listed = (*self.past[writes_old - 1]).clone();
        }
        let is_old = writes_old > 0;
        let (mut input, changed) = bucket.answer(request.step.clone(), &request.element, is_old);
        bucket.listed =
            TicketsListed { standing: Vec::new(), ended: Vec::new(), last: Revision(0), at: None };
        if let Some((last, listing)) = before
            && last != self.bucket.last
        {
            self.past.insert(0, Rc::new(listing));
            self.past.truncate(LISTINGS);
        }
        if let Some((key, hint)) = changed {
            if let Step::Write(..) = request.step {
                self.client(client).stored_sent = Some(request.sent);
            }
            counts.removals += u64::from(matches!(request.step, Step::Remove(..)));
            for watcher in 0..self.clients.len() {
                let it = &self.clients[watcher];
                if it.watched.contains(&key) && !it.is_gone() {
                    self.client(watcher).events.push_back(hint.clone());
                }
            }
        }
        if request.opened != self.bucket.id
            && let Input::Listed(listed) = &mut input
        {
            // A listing says of which bucket it is.
            *listed = Err("another bucket".to_owned());
            if !self.clients[client].is_gone() {
                self.client(client).events.push_back(Input::Gone("another bucket".to_owned()));
            }
        }
        input
    }

    /// Lets the client act until it waits for a result or for time.
    pub(super) fn act(&mut self, client: usize, counts: &mut Counts) -> Result<(), String> {
        let now = self.clients[client].local(self.now);
        loop {
            for input in std::mem::take(&mut self.client(client).arrived) {
                self.client(client).owner.handle(input, now);
            }
            let step = self.client(client).owner.next(now);
            self.listen(client, counts)?;
            let it = self.client(client);
            if !it.arrived.is_empty() {
                continue;
            }
            let by = match &step {
                Step::Exit => {
                    it.waits = Waits::Ended;
                    it.events.clear();
                    return Ok(());
                }
                Step::Rest(until) => {
                    it.waits = Waits::Rest(it.first_time(*until));
                    return Ok(());
                }
                Step::Watch(keys) => {
                    it.watched.extend(keys.iter().cloned());
                    it.owner.handle(Input::Subscribed, now);
                    continue;
                }
                Step::Write(_, _, _, by) => *by,
                Step::Open(by) | Step::ReadOwn(by) | Step::List(_, by) => *by,
                Step::WriteMark(_, by) | Step::End(_, _, by) | Step::Remove(_, by) => *by,
                Step::WriteNotes(_, _, by) => *by,
            };
            it.requests += 1;
            let (element, by) = (it.owner.key_element(), it.first_time(by));
            let (opened, number) = (it.opened, it.requests);
            let request = Request {
                step,
                element,
                sent: now,
                by,
                opened,
                number,
                served_at: 0,
                result: None,
            };
            it.waits = Waits::Arrival(request);
            return Ok(());
        }
    }

    /// Takes the messages of the owner to its front.
    pub(super) fn listen(&mut self, client: usize, counts: &mut Counts) -> Result<(), String> {
        for message in self.client(client).owner.take_messages() {
            match message {
                ToFront::Granted { valid_until, term, epoch, slot } => {
                    if slot != self.clients[client].owner.ticket.slot {
                        return Err(format!("{client} was granted slot {slot:?}"));
                    }
                    self.granted(client, valid_until, term, &epoch, counts)?;
                }
                ToFront::Lost(_) => {
                    counts.losses += 1;
                    let ends_at = self.now + KILL_AFTER;
                    let it = self.client(client);
                    match &mut it.command {
                        // The command ends within the time after SIGTERM.
                        Some(command) => {
                            command.ends_at =
                                Some(command.ends_at.map_or(ends_at, |at| at.min(ends_at)));
                        }
                        None => it.arrived.push(Input::Done),
                    }
                }
                ToFront::Ended(end) => self.client(client).outcome = Some(end),
                ToFront::Waiting { .. } => {}
            }
        }
        Ok(())
    }

    fn granted(
        &mut self,
        client: usize,
        valid_until: Instant,
        term: u64,
        epoch: &str,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let now = self.now;
        let it = self.client(client);
        let share = Duration::from_micros(LIFE * (1_000_000 - DRIFT_PPM) / 1_000_000);
        if it.stored_sent.is_none_or(|sent| valid_until > sent.after(share)) {
            return Err(format!("V of {client} is later than its write allows"));
        }
        let killed_at = it.last_time(valid_until);
        if let Some(command) = &mut it.command {
            command.killed_at = killed_at;
            return Ok(());
        }
        let terminate_at = timing().kill_times(valid_until).terminate_at;
        if it.is_done || it.local(now) >= terminate_at {
            return Ok(());
        }
        counts.grants += 1;
        let ticket = it.owner.ticket.clone();
        self.check_grant(client, &ticket, term, epoch)?;
        self.client(client).command = Some(Command { ends_at: None, killed_at, ticket });
        Ok(())
    }

    /// Nothing that conflicts runs, or stands before it.
    fn check_grant(&self, it: usize, own: &Ticket, term: u64, epoch: &str) -> Result<(), String> {
        // Numbers of a bucket that is lost meanwhile tell nothing of the new one.
        let is_of_this = epoch == self.bucket.id.to_string();
        let (mut earlier, mut beside) = (0, 0);
        for (key, entry) in self.bucket.entries.iter().filter(|_| is_of_this) {
            let is_earlier = entry.number < term && !entry.is_restored;
            let Some(other) = entry.ticket.as_ref().filter(|_| is_earlier) else {
                continue;
            };
            if other.conflicts(own) {
                return Err(format!("{it} was granted {term} before {key} {}", entry.number));
            }
            earlier += u32::from(other.shares_slots(own));
        }
        for command in self.clients.iter().filter_map(|other| other.command.as_ref()) {
            let other = &command.ticket;
            if other.conflicts(own) {
                return Err(format!("the commands of {it} and {} run at once", other.token));
            }
            if other.shares_slots(own) {
                beside += 1;
                if other.slot == own.slot {
                    return Err(format!("{it} and {} have one slot", other.token));
                }
            }
        }
        match own.mode {
            Mode::Slots(count)
                if earlier >= count
                    || beside >= count
                    || own.slot.is_none_or(|slot| slot >= count) =>
            {
                Err(format!("{it} has slot {:?} of {count} beside {beside}", own.slot))
            }
            Mode::Slots(_) | Mode::Shared | Mode::Exclusive => Ok(()),
        }
    }

    /// Gives the client the result of its request, or says that there is none.
    pub(super) fn give_result(
        &mut self,
        client: usize,
        is_given_up: bool,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let now = self.clients[client].local(self.now);
        let it = self.client(client);
        let Waits::Result(request) = std::mem::replace(&mut it.waits, Waits::Ended) else {
            return Err("no request".to_owned());
        };
        let result = request.result.filter(|_| !is_given_up).map(|(input, _)| input);
        let input = result.unwrap_or_else(|| no_result(&request.step));
        if let Input::Opened(Ok(opened)) = &input {
            it.opened = opened.info.id.epoch.parse().expect("a number");
        }
        it.owner.handle(input, now);
        self.listen(client, counts)?;
        self.act(client, counts)
    }
}
