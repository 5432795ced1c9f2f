//! The end of a write of an operator when the outcome of a copy is not known.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::*;
use crate::core::{BucketId, REACH_MAX, Written};
use crate::exit::Exit;
use crate::store::{
    BucketInfo, Expected, Hint, Listing, OpenedBucket, Opening, Selection, StoreResult,
};

const KEY: &str = "putex.pause.web";
const MAY: &str = "it may be written";

/// The fate of a write.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The write is stored if its condition holds, and the answer comes.
    Answered,
    /// The same, but the answer is lost.
    AnswerLost,
    /// The write never arrives.
    WriteLost,
    /// The write of this number is stored before it.
    CutIn(u64),
    /// The write is stored, and replaced by a tombstone of another; the answer is lost.
    EndedByAnother,
    /// The write is stored, and the answer is lost. The next read shows no entry.
    ReadOld,
    /// The write never arrives, and the user may not read any more.
    LoginLost,
    /// The server refuses it, for a reason of this kind.
    Denied(StoreErrorKind),
}

/// So long is a write tried where its outcome stays unknown.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bucket with one key.
struct Lossy {
    entry: Option<Entry>,
    fates: VecDeque<Fate>,
    /// The fate of all later writes.
    then: Fate,
    /// The numbers of the writes that were sent.
    sent: Vec<u64>,
    /// After a write without an answer the bucket is opened again first.
    is_open: bool,
    /// The entries that a leader of before shows to the next read; `None` for those that stand.
    old: Option<Vec<Entry>>,
    may_read: bool,
}

impl Lossy {
    fn of(fates: &[Fate]) -> Lossy {
        let fates = fates.iter().copied().collect();
        let (then, may_read) = (Fate::Answered, true);
        Lossy { entry: None, fates, then, sent: vec![], is_open: true, old: None, may_read }
    }

    fn at(&self) -> Revision {
        self.entry.as_ref().map_or(Revision(0), |entry| entry.revision)
    }

    fn store(&mut self, content: &Content) -> Revision {
        let revision = Revision(self.at().0 + 1);
        self.entry =
            Some(Entry { key: KEY.to_owned(), revision, content: content.clone(), age: None });
        revision
    }

    /// Writes the next number each time when something else stands there.
    fn run(&mut self) -> Result<Result<Revision, String>, Refusal> {
        self.run_within(REACH_MAX)
    }

    fn run_within(&mut self, within: Duration) -> Result<Result<Revision, String>, Refusal> {
        let mut number = 0;
        write(self, KEY, MAY, within, |found, is_replaced| {
            if is_replaced {
                return Err("it may have stood".to_owned());
            }
            let standing = found.and_then(|entry| entry.content.attempt());
            if standing == Some(99) {
                return Err("99 stands there".to_owned());
            }
            number += 1;
            Ok(content_of(number))
        })
    }
}

/// Returns an entry of another at this revision.
fn standing(revision: u64) -> Option<Entry> {
    Some(Entry {
        key: KEY.to_owned(),
        revision: Revision(revision),
        content: content_of(3),
        age: None,
    })
}

fn content_of(number: u64) -> Content {
    Content::new([("Putex-Nonce", number.to_string())], b"")
}

impl Bucket for Lossy {
    fn open(&mut self, _how: Opening<'_>, _by: Instant) -> StoreResult<Option<OpenedBucket>> {
        self.is_open = true;
        let id = BucketId { epoch: "e".to_owned(), created: String::new() };
        let (last, remarks, retires) = (self.at(), Vec::new(), Ok(()));
        let bucket =
            BucketInfo { id, last, age: None, may_be_lost: true, replicas: 1, remarks, retires };
        Ok(Some((bucket, Vec::new())))
    }

    fn get(&mut self, _key: &str, _deadline: Instant) -> StoreResult<Option<Entry>> {
        unreachable!("it is listed with its age")
    }

    fn list(&mut self, _selection: Selection<'_>, _deadline: Instant) -> StoreResult<Listing> {
        if !self.is_open {
            return Err(StoreErrorKind::Unreachable.error("the store is not open".to_owned()));
        }
        if !self.may_read {
            return Err(StoreErrorKind::Credentials.error("no permission".to_owned()));
        }
        let entries = self.old.take().unwrap_or_else(|| Vec::from_iter(self.entry.clone()));
        Ok(Listing { entries, at: None, last: self.at() })
    }

    fn write(
        &mut self,
        _key: &str,
        expected: Expected<'_>,
        content: &Content,
        _lasts: Option<Duration>,
        _deadline: Instant,
    ) -> Written {
        self.sent.extend(content.attempt());
        let fate = self.fates.pop_front().unwrap_or(self.then);
        if let Fate::CutIn(number) = fate {
            self.store(&content_of(number));
        }
        let written = match fate {
            Fate::Denied(kind) => return Written::Denied(kind.error("it is refused")),
            Fate::WriteLost | Fate::LoginLost => None,
            Fate::Answered
            | Fate::AnswerLost
            | Fate::CutIn(_)
            | Fate::EndedByAnother
            | Fate::ReadOld => Some(match expected.revision() == self.at() {
                true => Written::Stored(self.store(content)),
                false => Written::Moved(Some(self.at())),
            }),
        };
        if let Fate::EndedByAnother = fate {
            self.store(&Content::tombstone());
        }
        if let Fate::ReadOld = fate {
            self.old = Some(Vec::new());
        }
        self.may_read = !matches!(fate, Fate::LoginLost);
        match (fate, written) {
            (Fate::Answered | Fate::CutIn(_), Some(written)) => written,
            (_, _) => {
                self.is_open = false;
                Written::Unknown("no answer".to_owned())
            }
        }
    }

    fn subscribe(&mut self, _keys: &[&str]) -> StoreResult<()> {
        unreachable!("nothing is followed")
    }

    fn wait(&mut self, _wake: BorrowedFd<'_>, _deadline: Option<Instant>) -> Hint {
        unreachable!("nothing is waited for")
    }
}

/// The request stood there, and the command said that another was under way.
#[test]
fn a_write_that_was_stored_without_an_answer_is_known_again() {
    let mut bucket = Lossy::of(&[Fate::AnswerLost]);
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(1)));
    assert_eq!(bucket.sent, [1]);
}

/// `putex resume` took its own end of a pause for that of others.
#[test]
fn an_end_without_an_answer_is_known_again() {
    let mut bucket = Lossy { entry: standing(5), ..Lossy::of(&[Fate::AnswerLost]) };
    let ended = write(&mut bucket, KEY, MAY, REACH_MAX, |found, _| {
        let stands = found.is_some_and(|entry| !entry.content.is_tombstone());
        stands.then(Content::tombstone).ok_or(())
    });
    assert_eq!(ended.expect("it is known"), Ok(Revision(6)));
}

/// A pause under way, which expects the end that stands there, would come after `putex resume`.
#[test]
fn an_end_of_others_that_stood_before_is_not_the_own_one() {
    let entry = Entry { content: Content::tombstone(), ..standing(5).expect("an entry") };
    let mut bucket = Lossy { entry: Some(entry), ..Lossy::of(&[Fate::WriteLost]) };
    let ended = write(&mut bucket, KEY, MAY, REACH_MAX, |_, _| Ok::<_, ()>(Content::tombstone()));
    assert_eq!(ended.expect("it is known"), Ok(Revision(6)));
}

/// The request stood there, and the command said that others had replaced it.
#[test]
fn what_a_leader_of_before_answers_is_no_answer() {
    let mut bucket = Lossy { entry: standing(5), ..Lossy::of(&[Fate::ReadOld]) };
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(6)));
    assert_eq!(bucket.sent, [1]);
}

#[test]
fn a_write_that_was_not_stored_is_repeated_unchanged() {
    let mut bucket =
        Lossy::of(&[Fate::WriteLost, Fate::Denied(StoreErrorKind::Credentials), Fate::AnswerLost]);
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(1)));
    assert_eq!(bucket.sent, [1, 1, 1], "a refusal says nothing of an earlier copy");
}

/// The read before has closed it: the end of a pause was not written.
#[test]
fn a_bucket_that_is_closed_is_opened_again_first() {
    let mut bucket = Lossy { is_open: false, ..Lossy::of(&[]) };
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(1)));
}

#[test]
fn what_others_have_written_first_is_judged_anew() {
    let mut bucket = Lossy::of(&[Fate::CutIn(7)]);
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(2)));
    assert_eq!(bucket.sent, [1, 2]);
    let mut bucket = Lossy::of(&[Fate::CutIn(99)]);
    let refused = Err("99 stands there".to_owned());
    assert_eq!(bucket.run().expect("it is known"), refused);
}

/// A pause was ended by `putex resume`, which exited with 0, and was written again.
#[test]
fn a_write_that_may_have_stood_is_not_written_again_after_one_of_others() {
    for (fates, sent) in
        [(&[Fate::EndedByAnother][..], &[1][..]), (&[Fate::WriteLost, Fate::CutIn(7)], &[1, 1])]
    {
        let mut bucket = Lossy::of(fates);
        let refused = Err("it may have stood".to_owned());
        assert_eq!(bucket.run().expect("it is known"), refused, "{fates:?}");
        assert_eq!(bucket.sent, sent, "{fates:?}");
    }
}

/// A server that was restarted had no second to come back.
#[test]
fn a_write_is_repeated_for_a_time_and_not_for_a_number_of_attempts() {
    let mut bucket = Lossy::of(&[Fate::WriteLost; 8]);
    assert_eq!(bucket.run().expect("it is known"), Ok(Revision(1)));
    assert_eq!(bucket.sent, [1; 9]);
}

#[test]
fn a_write_whose_outcome_stays_unknown_is_said_to_be_possible() {
    let always = |then| Lossy { then, ..Lossy::of(&[]) };
    let Refusal { text, .. } =
        always(Fate::WriteLost).run_within(PATIENCE).expect_err("it is not known");
    assert_eq!(text, "it may be written: no answer");
    let Refusal { text, exit } = Lossy::of(&[Fate::LoginLost]).run().expect_err("it is not known");
    assert_eq!((&*text, exit), ("it may be written: no permission", Exit::Credentials));
    let others = always(Fate::CutIn(50)).run_within(PATIENCE);
    let Refusal { text, .. } = others.expect_err("others were faster");
    assert_eq!(text, "others have written it at the same time");
}

/// A pause in a bucket that was full ended with the status of a user who lacks a right.
#[test]
fn a_write_that_the_store_refuses_ends_with_the_status_of_its_reason() {
    for (kind, status) in [
        (StoreErrorKind::Credentials, Exit::Credentials),
        (StoreErrorKind::Unreachable, Exit::Unreachable),
    ] {
        let refusal = Lossy::of(&[Fate::Denied(kind)]).run().expect_err("it is refused");
        assert_eq!((&*refusal.text, refusal.exit), ("it is refused", status));
    }
}
