//! The tickets of `putex lock` and `putex grab`, in a [`Bucket`].
//!
//! | key | entry |
//! |---|---|
//! | `lock.<element>...<nonce>` | a ticket; the nonce is the client's own |
//! | `putex.settled` | the mark: tickets of a lost bucket have run out |
//! | `putex.seen.<element>...<clock>` | the notes of the processes of a host that did not wait |
//!
//! An ended ticket is a tombstone that a compare-and-set has written: a renewal in flight then wins
//! or loses, never both. The server removes the tombstone after a time. A server that is killed
//! after that may restore the ticket: see the rules of [`crate::core::tickets::owner`].

pub(crate) mod entry;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use self::entry::{
    RELEASED, key_of, name_of, notes_to_content, standing, to_content, to_notes, tombstone,
};
use super::mark;
use super::name::{MARK_KEY, TICKET_ROOT};
use super::pace::Pace;
use super::{
    Bucket, Entry, Expected, Hint, LASTS_MIN, Listing, Opening, Selection, StoreError, StoreResult,
    open_or_make,
};
use crate::core::tickets::grab::{LIFETIME_MAX, marker_time};
use crate::core::tickets::key::is_key_of_script;
use crate::core::tickets::{
    EarlierKeys, Input, Name, Step, StoredTicket, Ticket, TicketsListed, TicketsOpened,
};
use crate::core::{Instant, Observed, Revision, Written};
use crate::sys::{self, Alarm, PollFlags};

/// How long a note stays: a week, longer than the time between two runs of most jobs.
const NOTED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The first elements of the keys of notes.
const NOTES_ROOT: &str = "putex.seen";

/// The tickets in a bucket. Every call returns at its deadline at the latest.
pub struct Tickets {
    bucket: Box<dyn Bucket>,
    own: Ticket,
    notes_key: String,
    /// The bucket was lost, or could not be opened.
    is_lost: bool,
    pace: Pace,
}

impl Tickets {
    /// Returns the tickets that may conflict with this one. The notes are those of processes that
    /// have this clock.
    pub fn new(bucket: Box<dyn Bucket>, ticket: &Ticket, clock: &str) -> Tickets {
        Tickets {
            bucket,
            own: ticket.clone(),
            notes_key: notes_key(&ticket.name, clock),
            is_lost: false,
            pace: Pace::new(ticket.lifetime / 4),
        }
    }

    /// Opens the bucket, and reads its mark and the notes of this host.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn open(&mut self, deadline: Instant) -> StoreResult<TicketsOpened> {
        let first = [MARK_KEY, &self.notes_key];
        let opened = open_or_make(&mut *self.bucket, Opening::make(&first), deadline);
        self.is_lost = opened.is_err();
        let (info, mut entries) = opened?;
        let notes = entries.pop().flatten().map(to_notes).unwrap_or_default();
        let mark = mark::of_entry(entries.pop().flatten());
        Ok(TicketsOpened { info, mark, notes })
    }

    /// Returns the key of the own ticket with this last element.
    fn key(&self, element: &str) -> String {
        key_of(&self.own.name, element)
    }

    /// Performs a request for the ticket with this last element, on behalf of `who`; returns `None`
    /// if the step is no request to the store.
    pub fn perform(&mut self, step: &Step, element: &str, who: &str) -> Option<Input> {
        let text = |error: StoreError| error.text;
        // A request over a lost connection has no answer.
        if self.is_lost && !matches!(step, Step::Open(_) | Step::Rest(_) | Step::Exit) {
            return Some(Input::Gone("the connection was lost".to_owned()));
        }
        // There are as many removals as tickets that have not moved.
        if !matches!(step, Step::Rest(_) | Step::Exit | Step::Remove(..)) {
            self.pace.wait();
        }
        Some(match step {
            Step::Open(by) => Input::Opened(self.open(*by).map(Box::new)),
            Step::WriteMark(mark, by) => Input::Written(mark::write(&mut *self.bucket, mark, *by)),
            Step::Write(at, number, ticket, by) => {
                let (key, content) = (self.key(element), to_content(ticket, *number));
                Input::Written(self.bucket.write(&key, Expected::Key(*at), &content, None, *by))
            }
            Step::End(at, lifetime, by) => {
                let (key, content) = (self.key(element), tombstone(RELEASED, self.own.attempt));
                let lasts = Some(marker_lasts(&key, *lifetime));
                Input::Written(self.bucket.write(&key, Expected::Key(*at), &content, lasts, *by))
            }
            Step::ReadOwn(by) => Input::Own(self.own(element, *by).map_err(text)),
            Step::List(earlier_keys, by) => {
                Input::Listed(self.list(earlier_keys, *by).map_err(text))
            }
            Step::Watch(keys) => {
                let keys: Vec<_> = keys.iter().map(String::as_str).collect();
                match self.bucket.subscribe(&keys) {
                    Ok(()) => Input::Subscribed,
                    Err(error) => Input::Gone(error.text),
                }
            }
            Step::Remove(other, by) => Input::Written(self.remove(other, who, *by)),
            Step::WriteNotes(at, seen, by) => Input::Written(self.note(*at, seen, *by)),
            Step::Rest(_) | Step::Exit => return None,
        })
    }

    /// Reads the own ticket: its revision, and the ticket unless it has ended.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline.
    pub fn own(
        &mut self,
        element: &str,
        deadline: Instant,
    ) -> StoreResult<(Revision, Option<Ticket>)> {
        let entry = self.bucket.get(&self.key(element), deadline)?;
        let revision = entry.as_ref().map_or(Revision(0), |entry| entry.revision);
        let standing = entry.and_then(standing);
        Ok((revision, standing.and_then(|standing| standing.ticket.ok())))
    }

    /// Ends the ticket of another that has not moved for too long or is ended by force, or one of
    /// the same requester. Its owner may renew it still: the marker stays until a ticket that a
    /// server restores is too old for that.
    pub fn remove(&mut self, other: &StoredTicket, by: &str, deadline: Instant) -> Written {
        let StoredTicket { key, revision, .. } = other;
        let lifetime = other.ticket.as_ref().map_or(LIFETIME_MAX, |ticket| ticket.lifetime);
        let is_own = |ticket: &Ticket| ticket.incarnation == self.own.incarnation;
        let why = match other.ticket.as_ref().is_ok_and(is_own) {
            true => RELEASED.to_owned(),
            false => format!("removed by {by}"),
        };
        let (content, lasts) = (tombstone(&why, self.own.attempt), Some(marker_time(lifetime)));
        self.bucket.write(key, Expected::Key(*revision), &content, lasts, deadline)
    }

    /// Writes the notes of this host, in the place of this revision of them, or in addition to what
    /// another process of this host has noted meanwhile. Those that come often would undo the notes
    /// of a process that has waited for long. A second write that is too late is not repeated: of
    /// many processes that come at one time, each moves the notes of all others.
    pub fn note(&mut self, at: Revision, seen: &Observed, deadline: Instant) -> Written {
        let written = self.write_notes(at, seen, deadline);
        if let Written::Moved(_) = written
            && let Ok(Some(entry)) = self.bucket.get(&self.notes_key, deadline)
        {
            let (at, noted) = to_notes(entry);
            return self.write_notes(at, &seen.with(&noted, sys::now()), deadline);
        }
        written
    }

    fn write_notes(&mut self, at: Revision, seen: &Observed, deadline: Instant) -> Written {
        let (expected, content) = (Expected::Key(at), notes_to_content(seen));
        self.bucket.write(&self.notes_key, expected, &content, Some(NOTED_FOR), deadline)
    }

    /// Lists the tickets of [`Tickets::new`] that may be earlier ones, and the revision that the
    /// listing reaches.
    ///
    /// # Errors
    ///
    /// When the listing was not complete by the deadline.
    pub fn list(
        &mut self,
        earlier_keys: &EarlierKeys,
        deadline: Instant,
    ) -> StoreResult<TicketsListed> {
        // Which keys have to be read for this name.
        let wanted = |key: &str| earlier_keys.may_have(key) && may_conflict(&self.own.name, key);
        // All tickets that may conflict have the first element of the name.
        let prefix = format!("{TICKET_ROOT}.{}", self.own.name.elements()[0]);
        let selection = Selection::Below { prefix: &prefix, wanted: &wanted };
        let Listing { entries, at, last } = self.bucket.list(selection, deadline)?;
        let is_ended = |entry: &&Entry| {
            entry.content.is_tombstone() && entry.content.attempt() == Some(self.own.attempt)
        };
        let ended = entries.iter().filter(is_ended).map(|entry| entry.key.clone()).collect();
        let with_time = |entry: Entry| {
            let stored_at = at.zip(entry.age).map(|(at, age)| at.before(age));
            standing(entry).map(|stored| StoredTicket { stored_at, ..stored })
        };
        let standing = entries.into_iter().filter_map(with_time).collect();
        Ok(TicketsListed { standing, ended, last, at })
    }

    /// Waits for a hint, for `wake` to become readable, or for `until`.
    pub fn rest(&mut self, wake: BorrowedFd<'_>, until: Instant) -> Input {
        if self.is_lost {
            // A wait that fails is a short wait.
            let alarm = Alarm::new();
            let _ = alarm.and_then(|alarm| alarm.wait([(wake, PollFlags::IN)], Some(until)));
            return Input::Rested;
        }
        match self.bucket.wait(wake, Some(until)) {
            Hint::Changed { revision, is_end: true, .. } => Input::Ended(revision),
            Hint::Changed { revision, is_end: false, .. } => Input::Renewed(revision),
            Hint::Woken | Hint::Elapsed => Input::Rested,
            // For agents, and of agents.
            Hint::StatusRequested { .. } | Hint::Answered(_) | Hint::NotAsked(_) => Input::Rested,
            Hint::Gone(why) => {
                self.is_lost = true;
                Input::Gone(why)
            }
        }
    }
}

/// Returns the key of the notes of processes that have this clock. A process without a clock reads
/// none.
fn notes_key(name: &Name, clock: &str) -> String {
    format!("{NOTES_ROOT}.{}.{clock}", name.elements().join(".")).trim_end_matches('.').to_owned()
}

/// Returns how long the marker stays with which an owner ends the ticket of a key. A ticket of
/// `putex grab` may be continued by any process of its requester.
fn marker_lasts(key: &str, lifetime: Duration) -> Duration {
    if is_key_of_script(key) { marker_time(lifetime) } else { LASTS_MIN }
}

/// Returns whether the ticket of a key may conflict with one for this name.
fn may_conflict(name: &Name, key: &str) -> bool {
    name_of(key).map_or(true, |theirs| name.overlaps(&theirs))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::store::dir::DirStore;
    use crate::store::name;

    /// A server that was killed restored a ticket that had ended seconds before: its requester took
    /// it for the own one, beside the next holder.
    #[test]
    fn the_end_of_a_ticket_that_is_looked_for_stays_for_longer_than_the_ticket_would() {
        let second = Duration::from_secs(1);
        assert_eq!(marker_lasts("lock.a.g0f", 20 * second), 50 * second);
        assert_eq!(marker_lasts("lock.g.00f", 20 * second), LASTS_MIN);
    }

    /// Returns a folder of a test of this name.
    fn folder(name: &str) -> PathBuf {
        let base = std::env::temp_dir().join(format!("putex-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&base).expect("a folder");
        base
    }

    /// Opens a bucket in a folder.
    fn open_in(base: &Path, ticket: &Ticket, clock: &str, by: Instant) -> (Tickets, TicketsOpened) {
        let bucket = Box::new(DirStore::new(base.to_owned(), "putex"));
        let mut tickets = Tickets::new(bucket, ticket, clock);
        let opened = tickets.open(by).expect("a bucket");
        (tickets, opened)
    }

    /// `putex release --force` ended the ticket of a living holder; a server that was killed after
    /// its marker had gone restored the ticket, and the holder renewed it beside the next one.
    #[test]
    fn the_marker_stays_of_a_ticket_that_another_has_removed() {
        let (base, by) = (folder("removed"), sys::now().after(Duration::from_secs(60)));
        let ticket = Ticket::sample("a");
        let (mut tickets, _) = open_in(&base, &ticket, "", by);
        let write = Step::Write(Revision(0), None, ticket.clone(), by);
        let written = tickets.perform(&write, "00f", "beta");
        assert!(matches!(written, Some(Input::Written(Written::Stored(_)))), "{written:?}");
        let none = EarlierKeys::default();
        let standing = tickets.list(&none, by).expect("a listing").standing;
        let removed = tickets.remove(&standing[0], "beta", by);
        let Written::Stored(marker) = removed else { panic!("{removed:?}") };
        assert_eq!(tickets.own("00f", by).expect("an answer"), (marker, None));
        // The marker says which attempt has written it, also where the answer to that write was
        // lost.
        let of_attempt = |attempt: u64| {
            let (mut tickets, _) = open_in(&base, &Ticket { attempt, ..ticket.clone() }, "", by);
            tickets.list(&none, by).expect("a listing").ended
        };
        assert_eq!(of_attempt(ticket.attempt), ["lock.a.00f"]);
        assert_eq!(of_attempt(ticket.attempt + 1), Vec::<String>::new());
        std::fs::remove_dir_all(base).expect("it is removed");
    }

    /// A server died just before a command ended, and was back a second later. The renewer wrote
    /// the end of its ticket to the dead connection until the ticket had run out.
    #[test]
    fn a_request_over_a_lost_connection_has_the_bucket_opened_again() {
        let (base, by) = (folder("lost"), sys::now().after(Duration::from_secs(60)));
        let (mut tickets, _) = open_in(&base, &Ticket::sample("a"), "", by);
        tickets.is_lost = true;
        let end = Step::End(Revision(0), Duration::from_secs(10), by);
        assert!(matches!(tickets.perform(&end, "00f", "beta"), Some(Input::Gone(_))));
        let opened = tickets.perform(&Step::Open(by), "00f", "beta");
        assert!(matches!(opened, Some(Input::Opened(Ok(_)))), "{opened:?}");
        let ended = tickets.perform(&end, "00f", "beta");
        assert!(matches!(ended, Some(Input::Written(Written::Stored(_)))), "{ended:?}");
        std::fs::remove_dir_all(base).expect("it is removed");
    }

    /// A process that waited for 4 s noted what it had seen in vain: another one of its host, which
    /// came every second, had noted meanwhile. Both waited for ever for a dead holder.
    #[test]
    fn what_others_have_noted_meanwhile_stays_beside_what_is_noted() {
        let (base, by) = (folder("noted"), sys::now().after(Duration::from_secs(60)));
        let (mut tickets, opened) = open_in(&base, &Ticket::sample("a"), "boot", by);
        let seen = |revision: u64| {
            let mut seen = Observed::nothing("boot", &opened.info.id.epoch);
            seen.see([Revision(revision)].into_iter(), sys::now());
            seen
        };
        for revision in [7, 8] {
            let noted = tickets.note(Revision(0), &seen(revision), by);
            assert!(matches!(noted, Written::Stored(_)), "{noted:?}");
        }
        let (_, noted) = tickets.open(by).expect("a bucket").notes;
        assert!([7, 8].into_iter().all(|it| noted.since(Revision(it)).is_some()), "{noted:?}");
        std::fs::remove_dir_all(base).expect("it is removed");
    }

    #[test]
    fn tickets_of_other_branches_are_not_read() {
        let name = Name::parse("db/users").expect("a name");
        for (key, expected) in [
            ("lock.db.0f", true),
            ("lock.db.users.0f", true),
            ("lock.db.users.x.0f", true),
            ("lock.db.orders.0f", false),
            ("lock.web.0f", false),
            ("lock.0f", true),
        ] {
            assert_eq!(may_conflict(&name, key), expected, "{key}");
        }
    }

    /// Attempts with such a name noted nothing, and never saw that a holder was dead.
    #[test]
    fn the_notes_of_the_longest_name_have_a_valid_key() {
        let name = Name::parse(&"a".repeat(150)).expect("a name");
        assert!(Name::parse(&format!("{name}a")).is_err());
        let boot = "f38e64af-6798-4d4c-96c4-b87614ae7e0f";
        for clock in [boot, ""] {
            name::valid_key(&notes_key(&name, clock)).expect("it is valid");
        }
    }
}
