//! `--once`: an ID that has succeeded under a lock is not run again.
//!
//! The holder reads the IDs that have succeeded after its grant, and adds its own before it
//! releases. A read alone proves nothing: a leader that was replaced and does not know it yet
//! may not have the ID that the previous holder has added. So the holder writes back what it has
//! read, in the place of that revision. If that is stored, the read was current, and no earlier
//! holder can change the record any more.

use std::time::Duration;

use crate::core::event::Written;
use crate::core::record::Revision;
use crate::core::text::sanitize;
use crate::core::time::Instant;

/// The longest ID, in bytes.
const ID_BYTES_MAX: usize = 100;

/// So many IDs of a lock are kept, the last ones.
const IDS_MAX: usize = 32;

/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Checks an ID: it is one line of a record.
///
/// # Errors
///
/// The rule that it breaks.
pub fn check_id(id: &str) -> Result<(), &'static str> {
    if id.len() > ID_BYTES_MAX {
        return Err("is longer than 100 bytes");
    }
    match sanitize(id) == id && id.trim() == id {
        true => Ok(()),
        false => Err("is not one line of text; write letters and digits, such as 2026-11-23"),
    }
}

/// The IDs that have succeeded under one lock, and the revision of their record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The revision of the record, 0 without one.
    pub revision: Revision,
    /// The oldest first.
    ids: Vec<String>,
}

impl Ids {
    /// Reads a record: a line for each ID. What is no ID counts as none.
    pub fn parse(revision: Revision, payload: &[u8]) -> Ids {
        let text = String::from_utf8_lossy(payload);
        let ids = text.lines().filter(|id| !id.is_empty() && check_id(id).is_ok());
        Ids { revision, ids: ids.map(str::to_owned).collect() }
    }

    /// Returns the record.
    pub fn payload(&self) -> Vec<u8> {
        self.ids.join("\n").into_bytes()
    }

    /// Returns whether this ID has succeeded.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// Returns the IDs with one more, and without the oldest if there are too many.
    fn with(&self, id: &str) -> Ids {
        let all: Vec<_> = self.ids.iter().cloned().chain([id.to_owned()]).collect();
        let surplus = all.len().saturating_sub(IDS_MAX);
        Ids { revision: self.revision, ids: all[surplus..].to_vec() }
    }
}

/// A request for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceStep {
    /// Read it: [`Once::read`].
    Read,
    /// Write these IDs in the place of their revision: [`Once::written`].
    Write(Ids),
}

/// What is known of the ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceState {
    /// It is not known yet whether it has succeeded: the record is read and written back.
    Unknown,
    /// It has succeeded before.
    Succeeded,
    /// It has not; it may be run.
    New,
    /// Its success is to be recorded.
    Recording,
    /// Its success is recorded.
    Recorded,
    /// The record could not be read or written in time, and why.
    Failed(String),
}

/// One ID under a lock that is held.
#[derive(Clone, Debug)]
pub struct Once {
    id: String,
    state: OnceState,
    /// What was read last; `None` if that is to be read again.
    known: Option<Ids>,
    /// When the next request is made.
    next_at: Instant,
    /// When the requests are given up.
    until: Instant,
}

impl Once {
    /// Returns an ID whose record is to be read until this instant.
    pub fn new(id: String, now: Instant, until: Instant) -> Once {
        Once { id, state: OnceState::Unknown, known: None, next_at: now, until }
    }

    /// Returns what is known.
    pub fn state(&self) -> &OnceState {
        &self.state
    }

    /// The ID has succeeded: that is recorded until this instant.
    pub fn record(&mut self, now: Instant, until: Instant) {
        if self.state == OnceState::New {
            (self.state, self.next_at, self.until) = (OnceState::Recording, now, until);
        }
    }

    /// Returns when the next request is due; `None` if there is none.
    pub fn next_at(&self) -> Option<Instant> {
        let is_open = matches!(self.state, OnceState::Unknown | OnceState::Recording);
        is_open.then_some(self.next_at)
    }

    /// Returns the request that is due now.
    pub fn next(&self, now: Instant) -> Option<OnceStep> {
        self.next_at().filter(|at| *at <= now)?;
        Some(match (&self.known, &self.state) {
            (None, _) => OnceStep::Read,
            (Some(known), OnceState::Unknown) => OnceStep::Write(known.clone()),
            (Some(known), _) => OnceStep::Write(known.with(&self.id)),
        })
    }

    /// Takes in what was read.
    pub fn read(&mut self, read: Result<Ids, String>, now: Instant) {
        match read {
            Err(why) => self.failed(why, now),
            Ok(ids) if !ids.contains(&self.id) => self.known = Some(ids),
            Ok(_) if self.state == OnceState::Unknown => self.state = OnceState::Succeeded,
            // An earlier copy of the write was stored.
            Ok(_) => self.state = OnceState::Recorded,
        }
    }

    /// Takes in the outcome of a write. If it is not known, the record is read again.
    pub fn written(&mut self, written: Written, now: Instant) {
        match (written, self.known.take()) {
            (Written::Stored(_), _) if self.state == OnceState::Recording => {
                self.state = OnceState::Recorded;
            }
            (Written::Stored(revision), known) => {
                self.known = known.map(|known| Ids { revision, ..known });
                self.state = OnceState::New;
            }
            (Written::Moved(_), _) => self.failed("its record was changed".to_owned(), now),
            (Written::Denied(why) | Written::Unknown(why), _) => self.failed(why, now),
        }
    }

    /// A request has failed: it is made again after a pause, if there is time.
    fn failed(&mut self, why: String, now: Instant) {
        self.next_at = now.after(PAUSE);
        if self.next_at >= self.until {
            self.state = OnceState::Failed(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    fn ids(revision: u64, text: &str) -> Ids {
        Ids::parse(Revision(revision), text.as_bytes())
    }

    /// Returns an ID that is new, with its success to be recorded from 1 s to 2 s.
    fn new_one(known: Ids) -> Once {
        let mut once = Once::new("b".to_owned(), at(0), at(500));
        assert_eq!(once.next(at(0)), Some(OnceStep::Read));
        once.read(Ok(known.clone()), at(1));
        assert_eq!(once.next(at(1)), Some(OnceStep::Write(known)));
        once.written(Written::Stored(Revision(7)), at(2));
        assert_eq!((once.state(), once.next(at(2))), (&OnceState::New, None));
        once.record(at(1000), at(2000));
        once
    }

    #[test]
    fn an_id_that_has_succeeded_is_known() {
        let mut once = Once::new("b".to_owned(), at(0), at(500));
        once.read(Ok(ids(7, "a\nb\nc")), at(1));
        assert_eq!(once.state(), &OnceState::Succeeded);
        once.record(at(1), at(500));
        assert_eq!(once.next(at(1)), None, "it is recorded already");
    }

    /// A leader that was replaced read the record: the ID of the holder before is not in it.
    #[test]
    fn an_id_counts_as_new_only_if_the_record_was_written_back() {
        let mut once = Once::new("b".to_owned(), at(0), at(500));
        once.read(Ok(ids(5, "a")), at(1));
        assert_eq!(
            (once.state(), once.next(at(1))),
            (&OnceState::Unknown, Some(OnceStep::Write(ids(5, "a"))))
        );
        once.written(Written::Moved(Some(Revision(7))), at(2));
        assert_eq!(once.next(at(102)), Some(OnceStep::Read));
        once.read(Ok(ids(7, "a\nb")), at(103));
        assert_eq!(once.state(), &OnceState::Succeeded);
    }

    #[test]
    fn a_success_is_added_to_the_revision_that_was_written_back() {
        let mut once = new_one(ids(5, "a"));
        assert_eq!(once.next(at(1000)), Some(OnceStep::Write(ids(7, "a\nb"))));
        once.written(Written::Stored(Revision(9)), at(1001));
        assert_eq!((once.state(), once.next(at(1001))), (&OnceState::Recorded, None));
    }

    #[test]
    fn what_another_has_written_is_kept() {
        let mut once = new_one(ids(0, ""));
        once.written(Written::Moved(None), at(1001));
        assert_eq!((once.next(at(1001)), once.next(at(1101))), (None, Some(OnceStep::Read)));
        once.read(Ok(ids(8, "late")), at(1102));
        assert_eq!(once.next(at(1102)), Some(OnceStep::Write(ids(8, "late\nb"))));
    }

    #[test]
    fn a_write_without_an_answer_is_looked_for_before_it_is_repeated() {
        let mut once = new_one(ids(5, "a"));
        once.written(Written::Unknown("late".to_owned()), at(1001));
        assert_eq!((once.next(at(1001)), once.next_at()), (None, Some(at(1101))));
        assert_eq!(once.next(at(1101)), Some(OnceStep::Read));
        once.read(Ok(ids(9, "a\nb")), at(1102));
        assert_eq!(once.state(), &OnceState::Recorded);
    }

    #[test]
    fn requests_without_an_answer_are_given_up_in_time() {
        let mut once = new_one(ids(5, "a"));
        once.written(Written::Unknown("late".to_owned()), at(1000));
        let mut now = at(1000);
        while let Some(next) = once.next_at() {
            now = next;
            once.read(Err("gone".to_owned()), now);
        }
        assert_eq!(once.state(), &OnceState::Failed("gone".to_owned()));
        assert!(now >= at(1800) && now < at(2000), "{now:?}");
    }

    #[test]
    fn the_last_ids_are_kept() {
        let mut all = ids(1, "");
        for id in 0..40 {
            all = all.with(&format!("id {id}"));
        }
        assert_eq!(all, Ids::parse(Revision(1), &all.payload()));
        assert_eq!(all.ids.len(), IDS_MAX);
        assert!(all.contains("id 39") && all.contains("id 8") && !all.contains("id 7"));
    }

    #[test]
    fn an_id_is_one_line_and_short() {
        for id in ["2026-11-23 03", "a", &"x".repeat(100)] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        for id in ["a\nb", " a", "a\u{7}", &"x".repeat(101)] {
            assert!(check_id(id).is_err(), "{id}");
        }
        assert_eq!(ids(3, "a\n\n\u{7}\nb").payload(), b"a\nb");
    }
}
