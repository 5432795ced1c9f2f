//! When two states are the same: all that the future depends on is equal, in times relative to now
//! and revisions relative to the last one.
//!
//! Owners only compare instants with instants, and revisions with revisions and 0. Once nothing
//! goes wrong any more, each later listing reaches all writes until now. Then a revision only tells
//! whether it stands, and numbers only have an order. Clients that ask for the same at the same
//! time may change places. The small searches check that no two states are merged from which
//! different states follow.
//!
//! Every field is named here, so that the compiler asks about a new one.

mod owner;

use std::rc::Rc;

use super::state::{Client, Command, Late, Request, State, Waits, local};
use super::*;
use crate::core::record::Revision;
use crate::core::tickets::owner::tests::simulated_bucket::Entry;
use crate::core::tickets::{Mark, StoredTicket, TicketsListed, TicketsOpened};

/// Returns a hash of the state, of 128 bits.
pub(super) fn fold(state: &State, scope: &Scope) -> u128 {
    // A result that waits may be older than what others have written since.
    let waits = |client: &Rc<Client>| {
        let Waits::Result(request) = &client.waits else { return false };
        let Some((_, at)) = &request.result else { return false };
        let is_ready = request.served_at == state.now && *at == state.now;
        scope.is_split || !is_ready || client.paused_until > state.now
    };
    let goes_wrong = state.faults + state.kills > 0;
    let is_calm = !goes_wrong && !state.clients.iter().any(waits);
    let (hash, newest) = fold_as(state, scope, is_calm);
    // Revisions of a bucket that is lost may come again.
    if is_calm && newest > state.bucket.last { fold_as(state, scope, false).0 } else { hash }
}

/// Returns the bits, and the last revision that was met.
fn fold_as(state: &State, scope: &Scope, is_calm: bool) -> (u128, u64) {
    let now = Instant::from_boot(Duration::ZERO);
    let (places, numbers) = (vec![0; state.clients.len()], Vec::new());
    let mut form = Form { hash: FACTOR, newest: 0, state, now, is_calm, places, numbers };
    form.number_tickets();
    form.arrange(scope);
    form.state(scope);
    (form.hash, form.newest)
}

/// An odd factor without a pattern: 2^128 divided by the golden ratio.
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

struct Form<'a> {
    hash: u128,
    newest: u64,
    state: &'a State,
    /// The time of the clock of the client that is taken in.
    now: Instant,
    /// Whether every listing to come reaches all writes until now.
    is_calm: bool,
    /// The place of each client.
    places: Vec<usize>,
    /// The numbers of all tickets, in their order.
    numbers: Vec<u64>,
}

impl Form<'_> {
    fn add(&mut self, number: i64) {
        let mixed = (self.hash ^ u128::from(number as u64)).wrapping_mul(FACTOR);
        self.hash = mixed ^ mixed >> 71;
    }

    fn number_tickets(&mut self) {
        let standing = self.state.bucket.entries.values().filter(|entry| entry.ticket.is_some());
        self.numbers.extend(standing.map(|entry| entry.number));
        let owns = self.state.clients.iter().filter_map(|client| client.owner.own.as_ref());
        self.numbers.extend(owns.map(|own| own.number.0));
        self.numbers.sort_unstable();
        self.numbers.dedup();
    }

    /// Orders the clients that ask for the same by their states.
    fn arrange(&mut self, scope: &Scope) {
        let count = scope.askers.len();
        let mut order: Vec<(usize, u128, usize)> = (0..count)
            .map(|at| {
                let asker = &scope.askers[at];
                let first = scope.askers.iter().position(|other| other == asker).unwrap_or(at);
                // Soft clients differ in the dead ticket, of several, that each removes first.
                let first = if asker.soft.is_some() { at } else { first };
                (first, 0, at)
            })
            .collect();
        if order.iter().any(|(first, _, at)| first != at) {
            for (_, hash, at) in &mut order {
                self.hash = FACTOR;
                self.places.fill(1);
                self.places[*at] = 0;
                self.client(&self.state.clients[*at], &scope.askers[*at]);
                self.entries();
                self.state.late.iter().for_each(|late| self.late(late));
                *hash = self.hash;
            }
            order.sort_unstable();
        }
        for (place, (_, _, at)) in order.into_iter().enumerate() {
            self.places[at] = place;
        }
        self.hash = FACTOR ^ u128::from(self.is_calm);
    }

    fn option<T>(&mut self, value: Option<T>, add: impl FnOnce(&mut Self, T)) {
        self.add(i64::from(value.is_some()));
        if let Some(value) = value {
            add(self, value);
        }
    }

    fn time(&mut self, at: Time) {
        self.add(at as i64 - self.state.now as i64);
    }

    fn instant(&mut self, at: Instant) {
        self.add(at.since_boot().as_nanos() as i64 - self.now.since_boot().as_nanos() as i64);
    }

    /// A revision of no key that is known.
    fn revision(&mut self, Revision(revision): Revision) {
        self.newest = self.newest.max(revision);
        let since = self.state.bucket.last as i64 - revision as i64;
        self.add(if revision == 0 { i64::MIN } else { since });
    }

    /// A revision of a key; returns whether it may stand.
    fn revision_of(&mut self, key: &str, at: Revision) -> bool {
        if at.0 == 0 || !self.is_calm {
            self.revision(at);
            return true;
        }
        self.newest = self.newest.max(at.0);
        let stands = self.state.bucket.entries.get(key).is_some_and(|it| it.revision == at.0);
        self.add(i64::from(stands));
        stands
    }

    /// The number of a ticket.
    fn number(&mut self, Revision(number): Revision) {
        if !self.is_calm {
            return self.revision(Revision(number));
        }
        self.newest = self.newest.max(number);
        let place = self.numbers.binary_search(&number);
        self.add(place.map_or(-1, |place| place as i64));
    }

    fn bucket_id(&mut self, id: u64) {
        self.add(self.state.bucket.id as i64 - id as i64);
    }

    fn epoch(&mut self, epoch: &str) {
        self.option(epoch.parse().ok(), Self::bucket_id);
    }

    /// A key: its client, and how often the client's ticket was begun anew since.
    fn key(&mut self, key: &str) {
        let (client, times) = owner_of(key);
        let owner = &self.state.clients[client].owner;
        self.add(self.places[client] as i64);
        self.add(i64::from(owner.nonce.1) - times);
    }

    fn ticket(&mut self, ticket: &Ticket) {
        // The others are the same in all tickets of an owner.
        let Ticket { slot, incarnation, attempt, is_granted, .. } = ticket;
        let client = incarnation.0 as usize;
        self.add(self.places[client] as i64);
        self.add(slot.map_or(-1, i64::from));
        self.add(i64::from(*is_granted));
        self.add(i64::from(self.state.clients[client].owner.ticket.attempt == *attempt));
    }

    fn stored(&mut self, stored: &StoredTicket) {
        let StoredTicket { key, revision, number, ticket, .. } = stored;
        self.key(key);
        self.revision_of(key, *revision);
        self.number(*number);
        self.option(ticket.as_ref().ok(), Self::ticket);
    }

    /// Takes in the tickets that stand in the bucket, and the keys that cannot be written any more.
    fn entries(&mut self) {
        let state = self.state;
        let may_matter = |(key, entry): &(&String, &Entry)| {
            let client = &state.clients[owner_of(key).0];
            let is_own = !client.is_gone() && client.owner.key_element() == **key;
            let may_be_back = state.kills > 0 && entry.superseded.is_some();
            let is_marked = !self.is_calm || !state.late.is_empty() || is_own;
            entry.ticket.is_some() || is_marked || may_be_back
        };
        let mut entries: Vec<_> = state.bucket.entries.iter().filter(may_matter).collect();
        entries.sort_by_key(|(key, entry)| {
            let (client, times) = owner_of(key);
            let number = entry.ticket.as_ref().map(|_| entry.number);
            (self.places[client], number, times)
        });
        self.add(entries.len() as i64);
        for (key, entry) in entries {
            self.key(key);
            self.revision_of(key, Revision(entry.revision));
            self.entry(entry);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        // The age of a ticket matters to no owner.
        let Entry { revision: _, number, ticket, superseded, removed_at, is_restored, .. } = entry;
        self.option(ticket.as_ref(), |form, ticket| {
            form.number(Revision(*number));
            form.ticket(ticket);
        });
        self.add(i64::from(*is_restored));
        if self.state.kills > 0 {
            self.option(superseded.as_ref(), |form, superseded| {
                form.revision(Revision(superseded.revision));
                form.entry(superseded);
            });
        }
        // Only whether the marker is removed matters.
        self.option(*removed_at, |form, at| form.time(at.max(form.state.now)));
    }

    fn mark(&mut self, Mark { revision, epoch, lifetime }: &Mark) {
        self.revision(*revision);
        self.epoch(epoch);
        self.add(lifetime.as_micros() as i64);
    }

    fn listing(&mut self, TicketsListed { standing, last, .. }: &TicketsListed) {
        self.revision(*last);
        self.add(standing.len() as i64);
        let mut standing: Vec<_> = standing.iter().collect();
        standing.sort_by_key(|stored| stored.number);
        standing.into_iter().for_each(|stored| self.stored(stored));
    }

    fn state(&mut self, scope: &Scope) {
        let state = self.state;
        let State { now, faults, kills, clients, bucket, past, late } = state;
        // The clocks that drift show other differences at other times, by their rounding.
        let is_exact = clients.iter().all(|client| client.ppm == 0);
        self.add(if is_exact { 0 } else { *now as i64 });
        self.add(i64::from(*faults));
        self.add(i64::from(*kills));
        for place in 0..clients.len() {
            let at = self.places.iter().position(|it| *it == place).expect("each has one");
            self.add(-1);
            self.client(&clients[at], &scope.askers[at]);
        }
        self.now = local(*now, 0);
        self.add(i64::from(bucket.last == 0));
        self.add(i64::from(bucket.id == 1));
        self.entries();
        self.mark(&bucket.mark);
        self.add(past.len() as i64);
        past.iter().for_each(|listing| self.listing(listing));
        self.add(late.len() as i64);
        late.iter().for_each(|late| self.late(late));
    }

    fn late(&mut self, Late { client, at, request }: &Late) {
        let waits = &self.state.clients[*client].waits;
        let is_awaited = matches!(waits, Waits::Result(waits) if waits.number == request.number);
        self.add(self.places[*client] as i64);
        self.time(*at);
        self.add(i64::from(is_awaited));
        self.now = self.state.clients[*client].local(self.state.now);
        self.request(request);
    }

    fn client(&mut self, client: &Client, asker: &Asker) {
        // The clock, and a number that tells requests from each other, are in other places.
        let Client {
            owner, ppm: _, waits, paused_until, command, is_done, opened, watched, ..
        } = client;
        let Client { events, arrived, stored_sent, requests: _, outcome: _, .. } = client;
        self.now = client.local(self.state.now);
        self.option(command.as_ref(), |form, Command { ends_at, killed_at, ticket }| {
            form.option(*ends_at, Self::time);
            form.time(*killed_at);
            form.ticket(ticket);
        });
        match waits {
            Waits::Ended => return self.add(0),
            Waits::Crashed => return self.add(1),
            Waits::Begin(at) => {
                self.add(2);
                return self.time(*at);
            }
            Waits::Arrival(request) => {
                self.add(3);
                self.request(request);
            }
            Waits::Result(request) => {
                self.add(4);
                self.request(request);
            }
            Waits::Rest(until) => {
                self.add(5);
                self.time(*until);
            }
        }
        self.time((*paused_until).max(self.state.now));
        self.add(i64::from(*is_done));
        self.bucket_id(*opened);
        self.keys(watched);
        self.add(events.len() as i64);
        events.iter().for_each(|event| self.input(event, ""));
        self.add(arrived.len() as i64);
        arrived.iter().for_each(|input| self.input(input, ""));
        self.option(*stored_sent, Self::instant);
        self.owner(owner, asker);
    }

    fn keys(&mut self, keys: &BTreeSet<String>) {
        let has_ended = |key: &&String| {
            self.state.bucket.entries.get(*key).is_some_and(|entry| entry.ticket.is_none())
        };
        let mut keys: Vec<&String> = keys.iter().filter(|key| !has_ended(key)).collect();
        keys.sort_by_key(|key| (self.places[owner_of(key).0], key.len(), *key));
        self.add(keys.len() as i64);
        keys.into_iter().for_each(|key| self.key(key));
    }

    fn request(&mut self, request: &Request) {
        let Request { step, element, sent, by, opened, number: _, served_at: _, result } = request;
        self.key(element);
        self.instant(*sent);
        self.time(*by);
        self.bucket_id(*opened);
        self.step(step, element);
        self.option(result.as_ref(), |form, (input, at)| {
            form.time((*at).max(form.state.now));
            form.input(input, element);
        });
    }

    fn step(&mut self, step: &Step, key: &str) {
        // When it is given up is in the request.
        match step {
            Step::Open(_) => self.add(0),
            Step::WriteMark(mark, _) => {
                self.add(2);
                self.mark(mark);
            }
            Step::Write(at, number, ticket, _) => {
                self.add(if matches!(step, Step::Write(..)) { 3 } else { 4 });
                self.revision_of(key, *at);
                self.option(*number, Self::number);
                self.ticket(ticket);
                // The earlier keys are those of the owner, which waits for this.
            }
            Step::End(at, ..) => {
                self.add(5);
                self.revision_of(key, *at);
            }
            Step::ReadOwn(_) => self.add(6),
            Step::List(..) => self.add(7),
            Step::Remove(stored, _) => {
                self.add(8);
                self.stored(stored);
            }
            Step::Watch(_) | Step::Rest(_) | Step::Exit => self.add(9),
            Step::WriteNotes(..) => unreachable!("nobody here has a clock"),
        }
    }

    /// Takes in an input to a client whose ticket has this key.
    fn input(&mut self, input: &Input, key: &str) {
        match input {
            Input::Opened(opened) => {
                self.add(0);
                self.option(opened.as_ref().ok(), |form, opened| {
                    let TicketsOpened { info, mark, notes: _ } = &**opened;
                    form.epoch(&info.id.epoch);
                    form.revision(info.last);
                    form.mark(mark);
                });
            }
            Input::Written(written) => {
                self.add(2);
                self.written(written);
            }
            Input::Own(own) => {
                self.add(4);
                self.option(own.as_ref().ok(), |form, (revision, ticket)| {
                    form.revision_of(key, *revision);
                    form.option(ticket.as_ref(), Self::ticket);
                });
            }
            Input::Listed(listed) => {
                self.add(5);
                self.option(listed.as_ref().ok(), Self::listing);
            }
            Input::Renewed(revision) | Input::Ended(revision) => {
                self.add(if matches!(input, Input::Renewed(_)) { 6 } else { 12 });
                self.option(*revision, Self::hinted);
            }
            Input::Subscribed => self.add(7),
            Input::Rested => self.add(8),
            Input::Gone(_) => self.add(9),
            Input::Unused => self.add(10),
            Input::Done => self.add(11),
        }
    }

    fn written(&mut self, written: &Written) {
        match written {
            Written::Stored(revision) => {
                self.add(0);
                self.revision(*revision);
            }
            Written::Moved(revision) => {
                self.add(1);
                // No owner uses the revision: it reads the ticket that stands.
                self.option(revision.filter(|_| !self.is_calm), Self::revision);
            }
            Written::Denied(_) => self.add(2),
            Written::Unknown(_) => self.add(3),
        }
    }
}

/// Returns whose key this is, and how often that had been begun anew.
fn owner_of(key: &str) -> (usize, i64) {
    let number = |text| i64::from_str_radix(text, 16).expect("a number");
    (number(&key[31..32]) as usize, number(&key[32..]))
}
