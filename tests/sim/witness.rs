//! What the oracles learn from what agents write, run, hear and say.

use putex::core::command::{Command, Outcome, Run};
use putex::core::event::{Event, Written};
use putex::core::record::{Incarnation, KeyState, KeyValue, Record, RecordState, Revision};

use super::agent::Life;
use super::clock::True;
use super::counters::Sometimes;
use super::faults::Kind;
use super::store::Loss;
use super::world::World;

/// What a life writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    nonce: u64,
    first: True,
    last: True,
    releases: bool,
    /// The term that it wrote last.
    term: Option<Revision>,
    /// Its writer knows that it was stored.
    acked: bool,
    /// The last copy was not answered yet.
    open: bool,
    /// What became of a copy is not known. A copy that was denied is none.
    outcome_unknown: bool,
    running: [bool; 4],
    /// The stop that runs was begun after the last start.
    clean: bool,
}

/// The terms under which start was run.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    epoch: String,
    highest: u64,
    site: usize,
    /// Revisions were given twice: nothing can be told from them.
    spoilt: bool,
}

/// Returns what tells one record from another.
pub fn mark(found: &KeyValue) -> u64 {
    match found {
        KeyValue::Absent => 0,
        KeyValue::Marker => 1,
        KeyValue::Record(record) => match &record.lease {
            Some(lease) => mark_of(lease.incarnation, lease.nonce),
            None => 2 + record.token.len() as u64,
        },
    }
}

fn mark_of(incarnation: Incarnation, nonce: u64) -> u64 {
    (incarnation.0 as u64).rotate_left(17) ^ nonce
}

impl World<'_> {
    pub fn on_write(&mut self, id: usize, record: &Record) {
        let now = self.now;
        let site = self.lives[id].site;
        let Some(lease) = &record.lease else { return };
        let releases = lease.standing == RecordState::Released;
        let writing = &mut self.lives[id].writing;
        if writing.nonce != lease.nonce {
            writing.nonce = lease.nonce;
            writing.acked = false;
            writing.outcome_unknown = false;
        }
        if !writing.outcome_unknown {
            writing.first = now;
        }
        writing.last = now;
        writing.open = true;
        let term = std::mem::replace(&mut writing.term, lease.term);
        if term.is_some() && lease.term.is_some() && term != lease.term {
            let text = format!("{site} writes {:?} after {term:?}", lease.term);
            self.fail("term", text);
        }
        let writing = &mut self.lives[id].writing;
        writing.releases = releases;
        if !releases {
            return;
        }
        let starting = self.starting(site);
        let (up, stopped) = (self.sites[site].up, self.sites[site].stopped);
        // Or a start that nobody was left to know of has done its work since.
        let excuse = &self.sites[site].excuse;
        let lied = excuse.lied || excuse.stray;
        let may_run = (up && !lied || starting) && !self.is_double(site);
        if may_run || !stopped {
            let text = format!("{site} releases: up {up}, stopped {stopped}, starting {starting}");
            self.fail("release", text);
        }
        self.count(Sometimes::Release);
    }

    pub fn acknowledged(&mut self, id: usize, revision: u64) {
        let Writing {
            last,
            releases,
            nonce,
            ..
        } = self.lives[id].writing;
        self.lives[id].writing.acked = true;
        let own = mark_of(self.lives[id].me, nonce);
        self.lives[id].marks.push((self.now, revision, own));
        if !releases {
            self.acked(id, last);
        }
    }

    /// A read shows that a write was stored: the first copy counts.
    pub fn resolved(&mut self, id: usize, nonce: u64) {
        let writing = self.lives[id].writing;
        if writing.nonce == nonce && !writing.releases {
            if !writing.acked {
                self.lives[id].writing.acked = true;
                self.count(Sometimes::ResolvedHeld);
            }
            self.acked(id, writing.first);
        }
    }

    fn acked(&mut self, id: usize, sent: True) {
        let site = self.lives[id].site;
        self.check_outlived(site);
        let acked = &mut self.sites[site].acked;
        if acked.is_none_or(|at| at < sent) {
            *acked = Some(sent);
            self.sites[site].lost_at = None;
        }
    }

    /// A write took the place of a record. After a loss a number is given again: then
    /// its writer may never have been shown that record, or before it was written.
    pub fn on_replaced(&mut self, id: usize, replaced: &KeyState, stood_since: True, sent: True) {
        let Life { site, marks, .. } = &self.lives[id];
        let mut before = marks.iter().rev().skip_while(|(at, ..)| *at > sent);
        let shown = before.find(|(_, revision, _)| *revision == replaced.revision.0);
        let stands = (replaced.revision.0, mark(&replaced.found));
        let earliest =
            |(at, number, shown): &(_, _, _)| *at < stood_since && (*number, *shown) == stands;
        let blind =
            shown.is_some_and(|(.., shown)| *shown != stands.1) || marks.iter().any(earliest);
        let lease = match &replaced.found {
            KeyValue::Record(record) => record.lease.as_ref(),
            KeyValue::Absent | KeyValue::Marker => None,
        };
        let writer = lease.map(|lease| lease.incarnation);
        let own = writer == Some(self.lives[id].me);
        self.sites[*site].blind = blind || self.sites[*site].blind && own;
        // Whose lock that was cannot know it either, nor who follows.
        let other = self.lives.iter().rev().find(|life| Some(life.me) == writer);
        if let Some(other) = other.filter(|_| blind) {
            self.sites[other.site].blind = true;
        }
    }

    /// A write was stored, whether its writer learns of it or not.
    pub fn on_stored(&mut self, id: usize, revision: u64, sent: True) {
        let site = self.lives[id].site;
        let record = self.store.current();
        // A copy that was lost had the same number, and was seen: nobody can tell.
        let own = mark(&record.found);
        let shown = |(_, at, shown): &(_, _, _)| (*at, *shown) == (revision, own);
        let seen = |life: &Life| life.marks.iter().any(shown);
        let again = !self.store.losses.is_empty() && self.lives.iter().any(seen);
        self.sites[site].blind |= again;
        self.sites[site].written = revision;
        if let KeyValue::Record(Record {
            lease: Some(lease), ..
        }) = &record.found
            && lease.term.is_none()
        {
            self.two_locks(site);
            self.sites[site].term_at = self.now;
            self.sites[site].term = revision;
            let mixed = self.sc.kinds.has(Kind::Mixed);
            for loss in &mut self.store.losses {
                let term = if mixed { loss.lost_to } else { 0 };
                loss.taken |= !loss.may_be_known_to(id, term) || sent < loss.at;
            }
        }
        self.note(Some(site), || {
            let lease = match &record.found {
                KeyValue::Record(record) => record.lease.as_ref(),
                _ => None,
            };
            let standing = lease.map(|lease| lease.standing);
            format!("stored {revision}: {standing:?}")
        });
    }

    /// Somebody takes the lock: nobody else may still count on it. After a loss a take
    /// may be stored that its writer does not believe; but who follows it believes it.
    fn two_locks(&mut self, newer: usize) {
        let believed = self.store.losses.is_empty();
        for older in (0..self.sites.len()).filter(|older| *older != newer) {
            let life = self.sites[older].life.map(|life| &self.lives[life]);
            let state = life.filter(|life| life.alive).map_or("", |life| life.state);
            let holds = state == "active" || state == "confirming";
            // A guard may do it for an agent that is dead.
            let stops = state == "stopping" || self.sites[older].up;
            let Some(acked) = self.sites[older].acked.filter(|_| holds || stops) else {
                continue;
            };
            let (clock, timing) = (self.host(older).clock, self.sc.sites[older].timing);
            let validity = timing.validity();
            let budget = timing.stop_budget();
            let within = if holds { validity } else { validity + budget };
            let valid = clock.when(clock.at(acked).after(within));
            // One that stops may still be up, which is judged when another is.
            let early = self.now + 10 < valid && !self.spreads_unknown(older, newer);
            if early && holds && believed {
                let early = std::time::Duration::from_nanos(valid - self.now);
                let text = format!("{newer} takes what {older} holds for {early:?} more");
                self.fail("two-locks", text);
            }
        }
    }

    pub fn on_run(&mut self, id: usize, run: &Run) {
        let site = self.lives[id].site;
        let command = run.command as usize;
        if std::mem::replace(&mut self.lives[id].writing.running[command], true) {
            let name = run.command.name();
            self.fail("twice", format!("{site} runs {name} twice"));
        }
        match run.command {
            Command::Start => {
                if !self.lives[id].armed {
                    let text = format!("{site} starts without a guard that is prepared");
                    self.fail("unguarded", text);
                }
                self.sites[site].stopped = false;
                self.lives[id].writing.clean = false;
                if !self.sites[site].up && !self.starting(site) {
                    self.forgive(site);
                }
                self.check_term(site, run);
            }
            Command::Stop => self.lives[id].writing.clean = true,
            Command::Check | Command::LastResort => {}
        }
    }

    fn check_term(&mut self, site: usize, run: &Run) {
        let (Some(term), Some(epoch)) = (run.under.term, run.under.epoch.as_ref()) else {
            return self.fail("term", format!("{site} starts without a term"));
        };
        if self.terms.spoilt {
            return;
        }
        if *epoch != self.store.id().epoch {
            // Made anew behind a connection that stands: it goes on under the old name.
            return self.count(Sometimes::OldEpoch);
        }
        if self.terms.epoch != *epoch {
            self.terms.epoch.clone_from(epoch);
            self.terms.highest = 0;
        }
        let Terms {
            highest, site: of, ..
        } = self.terms;
        let other = self.is_double(site) && self.is_double(of);
        if term.0 < highest && self.unknowable(site, of) {
            return self.count(Sometimes::ExcusedOverlap);
        }
        if term.0 < highest || term.0 == highest && of != site && !other {
            let text = format!("{site} starts under {term}, {of} did under {highest}");
            return self.fail("term", text);
        }
        self.terms.highest = term.0;
        self.terms.site = site;
    }

    pub fn on_event(&mut self, id: usize, event: &Event) {
        let site = self.lives[id].site;
        let writing = &mut self.lives[id].writing;
        if let Event::Written(written) = event {
            writing.open = false;
            writing.outcome_unknown |= matches!(written, Written::Unknown(_));
        } else if let Event::Closed(_) = event {
            writing.outcome_unknown |= std::mem::take(&mut writing.open);
        }
        if let Event::Ended(command, outcome) = event {
            let writing = &mut self.lives[id].writing;
            writing.running[*command as usize] = false;
            let clean = writing.clean;
            if *command == Command::Stop && *outcome == Outcome::Succeeded {
                self.sites[site].stopped |= clean;
            }
        }
    }

    /// What an agent says is what happened to it sometimes.
    pub fn on_say(&mut self, site: usize, text: &str) {
        if text.starts_with("THE SERVICE MAY STILL RUN") {
            self.check_late(site);
            self.sites[site].excuse.late = true;
        }
        let told = [
            ("the store has rolled back", Sometimes::RollbackSeen),
            ("two live agents", Sometimes::TwinsSeen),
            (
                "the lock is held under this agent's own token",
                Sometimes::OwnTokenSeen,
            ),
            ("the guard did not answer", Sometimes::GuardUnanswering),
            ("the lock could not be released", Sometimes::NotReleased),
            ("THE SERVICE MAY STILL RUN", Sometimes::TooLate),
            ("the key was deleted", Sometimes::MarkerSeen),
            ("taking -> active: adopted", Sometimes::Adoption),
            (
                "the lock is held by nobody (blanked, but not by",
                Sometimes::PlainBlankSeen,
            ),
        ];
        for (prefix, what) in told {
            if text.starts_with(prefix) {
                self.count(what);
            }
        }
        let parts = [
            ("no renewal was acknowledged", Sometimes::Expired),
            ("not taken", Sometimes::NotTaken),
            ("another's write, revision", Sometimes::ResolvedLost),
            (
                "taking: from nobody (released on host",
                Sometimes::ReleaseHandover,
            ),
            ("health check failed", Sometimes::UnfitSeen),
            ("the take was not acknowledged", Sometimes::TakeUnanswered),
            (
                "the lock of the previous life has run out",
                Sometimes::AdoptedTooLate,
            ),
        ];
        for (part, what) in parts {
            if text.contains(part) {
                self.count(what);
            }
        }
    }

    /// The store forgets acknowledged writes down to `kept`.
    pub fn on_loss(&mut self, kept: u64, lost_to: u64) {
        // What it knows of another bucket is nothing of this one.
        let bucket = Some(self.store.id());
        let knows = |life: &Life| life.known > kept && life.known_key > 0 && life.bucket == bucket;
        let lives = self.lives.iter().enumerate();
        let informed = lives.filter(|(_, life)| life.alive && knows(life));
        let informed = informed.map(|(id, life)| (id, life.known_key)).collect();
        let lives = self.lives.iter().enumerate();
        let watching = lives.filter(|(_, life)| life.alive && life.known_key == 0);
        let watching = watching.map(|(id, _)| id).collect();
        self.store.losses.push(Loss {
            at: self.now,
            lost_to,
            all: kept == 0,
            watching,
            informed,
            taken: false,
        });
        if kept > 0 {
            self.terms.spoilt = true;
        }
    }
}
