//! An agent of putex 0.2.0 that behaves: it waits F·R for a revision to stand still,
//! takes it, renews, and starts its service C·R later. It writes plain records, and
//! blanks the lock before it stops the service. Its clock runs true, for it knows of
//! no drift; its stop takes less than half of C·R.

use putex::core::record::{KeyValue, Record};
use putex::core::seat::Seat;

use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::world::{Happening, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Watching,
    Confirming(True),
    Active,
    /// The service goes down then.
    Stopping(True),
}

#[derive(Clone, Debug)]
pub struct Plain {
    state: State,
    seen: Option<u64>,
    since: True,
    revision: u64,
    sent: True,
}

impl Plain {
    pub fn new() -> Plain {
        Plain { state: State::Watching, seen: None, since: 0, revision: 0, sent: 0 }
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Watching => "standby",
            State::Confirming(_) => "confirming",
            State::Active => "active",
            State::Stopping(_) => "stopping",
        }
    }
}

impl World<'_> {
    pub fn plain_turn(&mut self, site: usize) {
        let setup = &self.sc.sites[site];
        let (r, t) = (nanos(setup.timing.renewal()), nanos(setup.timing.lock_time()));
        let grace = nanos(setup.timing.confirmation());
        let mut next = r;
        match self.sites[site].plain.state {
            State::Watching => self.plain_watches(site, t, grace),
            State::Confirming(until) if self.now >= until => {
                self.sites[site].plain.state = State::Active;
                next = MS;
            }
            State::Confirming(_) => {
                if !self.plain_renews(site, t) {
                    self.sites[site].plain.state = State::Watching;
                }
            }
            State::Active if self.sites[site].unfit > 0 => {
                self.plain_writes(site, "");
                next = self.plain_stops(site, grace);
            }
            State::Active => {
                if self.plain_renews(site, t) {
                    self.service_up(site);
                } else {
                    next = self.plain_stops(site, grace);
                }
            }
            State::Stopping(_) => {
                self.service_down(site);
                self.sites[site].plain.state = State::Watching;
                self.sites[site].plain.seen = None;
            }
        }
        let name = self.sites[site].plain.name();
        self.show(site, name);
        // The agent never sleeps past its lock.
        if let State::Active = self.sites[site].plain.state {
            let end = self.sites[site].plain.sent + t;
            next = next.min(end.saturating_sub(self.now).max(MS));
        }
        self.after(next, Happening::Plain(site));
    }

    fn plain_stops(&mut self, site: usize, grace: u64) -> u64 {
        let wait = self.chance.below(grace / 2);
        self.sites[site].plain.state = State::Stopping(self.now + wait);
        wait
    }

    fn plain_reaches(&self, site: usize) -> bool {
        let site = &self.sites[site];
        site.cut_out == 0 && site.cut_in == 0 && self.server_down == 0 && !self.store.gone
    }

    fn plain_watches(&mut self, site: usize, t: u64, grace: u64) {
        if !self.plain_reaches(site) {
            return;
        }
        let key_state = self.store.current(Seat::FIRST);
        let plain = &mut self.sites[site].plain;
        if plain.seen != Some(key_state.revision.0) {
            plain.seen = Some(key_state.revision.0);
            plain.since = self.now;
        }
        let blank = match &key_state.value {
            KeyValue::Absent | KeyValue::Marker => true,
            KeyValue::Record(record) => record.token.is_empty(),
        };
        plain.revision = key_state.revision.0;
        let old = self.now >= plain.since + t;
        if (blank || old) && self.sites[site].unfit == 0 {
            let token = self.sc.sites[site].token.clone();
            if self.plain_writes(site, &token) {
                self.count(Sometimes::PlainSeen);
                self.sites[site].term_at = self.now;
                self.sites[site].plain.state = State::Confirming(self.now + grace);
            }
        }
    }

    /// Renews, or goes on without while the lock is valid.
    fn plain_renews(&mut self, site: usize, t: u64) -> bool {
        if !self.plain_reaches(site) {
            return self.now < self.sites[site].plain.sent + t;
        }
        let token = self.sc.sites[site].token.clone();
        self.plain_writes(site, &token)
    }

    fn plain_writes(&mut self, site: usize, token: &str) -> bool {
        if !self.plain_reaches(site) {
            return false;
        }
        let record = Record { token: token.to_owned(), lease: None };
        let expected = self.sites[site].plain.revision;
        let Ok(revision) = self.store.write(Seat::FIRST, expected, record, self.now) else {
            return false;
        };
        let plain = &mut self.sites[site].plain;
        plain.revision = revision;
        plain.sent = self.now;
        self.hint_all(Seat::FIRST, revision);
        true
    }
}
