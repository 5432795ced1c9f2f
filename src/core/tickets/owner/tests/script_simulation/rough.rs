//! Faults that three of four seeds play: requesters that ask for other names and modes, clients
//! that share a name and withdraw or release, refused writes, and more kills.

use super::*;
use crate::core::event::Written;

pub(super) struct Rough {
    pub(super) is_rough: bool,
    /// Whether clients that share a name often ask in other modes, and when their ticket runs out,
    /// and are killed once they have marked another one as granted.
    is_dense: bool,
    /// Whether requesters ask for other names and modes.
    pub(super) changes: bool,
    /// Whether the server refuses writes.
    denies: bool,
    /// How long markers stay besides twice the lifetime.
    pub(super) margin: Time,
    /// The last bucket and term that each requester was told for a name.
    announced: BTreeMap<(usize, Name), (u64, u64)>,
    /// The requests of processes that release, and the buckets and terms that were released.
    releases: BTreeSet<u64>,
    released: BTreeSet<(u64, u64)>,
}

impl Rough {
    pub(super) fn new(is_rough: bool, random: &mut Random) -> Rough {
        let is_dense = is_rough && random.one_in(3);
        Rough {
            is_rough,
            is_dense,
            changes: is_dense || is_rough && random.one_in(2),
            denies: is_rough && random.one_in(2),
            margin: if is_rough && random.one_in(2) { 10_000_000 } else { 0 },
            announced: BTreeMap::new(),
            releases: BTreeSet::new(),
            released: BTreeSet::new(),
        }
    }

    /// Returns the last bucket and term that the requester of a client was told.
    pub(super) fn last_term_of(&self, client: &Client) -> (u64, u64) {
        let key = (client.requester, client.ticket.name.clone());
        self.announced.get(&key).copied().unwrap_or_default()
    }
}

impl Simulation {
    /// Draws the time of a ticket, in lifetimes.
    pub(super) fn lives(&mut self) -> u64 {
        1 << self.random.below(if self.rough.is_rough { 3 } else { 2 })
    }

    /// Draws whether a process keeps no place.
    pub(super) fn withdraws(&mut self, is_alone: bool) -> bool {
        match self.rough.is_rough {
            true => self.random.one_in(3),
            false => is_alone && self.random.one_in(8),
        }
    }

    /// Draws the name and the mode that the next process of a client asks for.
    pub(super) fn change_request(&mut self, id: usize, releases: bool) {
        let client = &mut self.clients[id];
        if !self.rough.changes || client.is_lock {
            return;
        }
        if let Some(held) = client.holds.filter(|_| releases) {
            client.ticket.name = self.history[held].ticket.name.clone();
        } else if self.now < CALM {
            if self.random.one_in(if self.rough.is_dense { 2 } else { 4 }) {
                let modes = [Mode::Shared, Mode::Exclusive];
                client.ticket.mode = modes[self.random.below(2) as usize];
            }
            if self.random.one_in(6) {
                let names = if client.shares_name { 2 } else { 4 };
                let name = ["a", "a/b", "a/c", "b"][self.random.below(names) as usize];
                client.ticket.name = Name::parse(name).expect("a name");
            }
        }
    }

    /// Serves a request, or refuses the write.
    pub(super) fn serve(
        &mut self,
        (id, number): (usize, u64),
        step: Step,
        element: &str,
    ) -> (Input, Option<(String, Input)>) {
        if self.rough.denies && !self.is_calm() && self.random.one_in(25) {
            let denied = Written::Denied(StoreErrorKind::Unreachable.error("denied"));
            let is_write = matches!(step, Step::Write(..) | Step::End(..) | Step::Remove(..));
            if is_write || matches!(step, Step::WriteNotes(..)) {
                return (Input::Written(denied), None);
            }
        }
        let removed = if let Step::Remove(it, _) = &step { Some(it.number.0) } else { None };
        let (answer, changed) = self.bucket.answer(step, element, false);
        if let (Input::Written(Written::Stored(_)), Some(term)) = (&answer, removed)
            && self.rough.releases.contains(&number)
        {
            self.show(format_args!("{id} has released {term}"));
            let of = (self.clients[id].requester, self.bucket.id, term);
            self.rough.released.insert((self.bucket.id, term));
            let its = |held: &&mut Held| (held.requester, held.bucket, held.term) == of;
            self.history.iter_mut().filter(its).for_each(|held| held.to = held.to.min(self.now));
        }
        (answer, changed)
    }

    /// Draws whether a client that shares its name asks again when its requester's last ticket runs
    /// out, and returns when.
    pub(super) fn near_expiry(&mut self, id: usize) -> Option<Time> {
        let client = &self.clients[id];
        if !self.rough.is_rough
            || !client.shares_name
            || self.is_calm()
            || !self.random.one_in(2) && !self.rough.is_dense
        {
            return None;
        }
        let is_its = |held: &&Held| held.requester == self.clients[id].requester;
        let until = self.history.iter().filter(is_its).map(|held| held.to).max()?;
        if self.rough.is_dense && self.random.one_in(3) {
            return Some(self.now + self.random.below(5 * LIFE));
        }
        let at = until.saturating_sub(QUARTER / 8) + self.random.below(QUARTER / 2);
        Some(at).filter(|at| *at > self.now)
    }

    /// Has the clients that share a name and have no process now ask again late.
    fn be_quiet(&mut self) {
        for id in 0..self.clients.len() {
            let client = &self.clients[id];
            if self.rough.is_dense && client.shares_name && client.process.is_none() {
                let later = self.now + self.random.below(5 * LIFE);
                self.act_at(id, later);
            }
        }
    }

    /// Notes that a process which releases has sent a removal. Draws whether a process is killed
    /// that has sent another one, or has marked its ticket as granted.
    pub(super) fn note_removal(&mut self, id: usize, number: u64, step: &Step) {
        match self.clients[id].process {
            Some(Process::Release(_)) => {
                self.rough.releases.insert(number);
            }
            Some(Process::Grab(_)) if is_grave(step) && self.rough.is_rough => {
                let often = if self.rough.is_dense { 2 } else { 4 };
                if !self.is_calm() && self.random.one_in(often) {
                    self.clients[id].process = None;
                    let later = self.now + self.random.below(LIFE);
                    self.act_at(id, later);
                    self.be_quiet();
                }
            }
            Some(Process::Grab(_) | Process::Lock(_)) | None => {}
        }
    }

    /// Returns whether no process has released the ticket of this bucket and term, which a client
    /// is told. A process is told no term below the last one before it began.
    pub(super) fn is_unreleased(&mut self, id: usize, term: (u64, u64)) -> bool {
        let client = &self.clients[id];
        let is_later = client.is_lock || client.floor.0 != term.0 || client.floor.1 <= term.1;
        assert!(is_later, "{id}: the term goes back from {:?} to {term:?}", client.floor);
        let is_unreleased = !self.rough.released.contains(&term);
        if is_unreleased {
            let key = (client.requester, client.ticket.name.clone());
            let last = self.rough.announced.entry(key).or_default();
            *last = (*last).max(term);
        }
        is_unreleased
    }

    pub(super) fn more_kills(&mut self) {
        for _ in 0..if self.rough.is_rough { self.random.below(8) } else { 0 } {
            let at = self.random.below(CALM);
            self.at(at, Event::Kill);
        }
        for _ in 0..if self.rough.is_rough { self.random.below(16) } else { 0 } {
            let at = self.random.below(CALM);
            self.at(at, Event::Lead);
        }
    }
}

/// Returns whether a step removes a ticket, or marks the own one as granted.
fn is_grave(step: &Step) -> bool {
    let is_granting = matches!(step, Step::Write(_, _, ticket, _) if ticket.is_granted);
    is_granting || matches!(step, Step::Remove(..))
}
