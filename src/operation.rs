//! The common part of the requests of operators: they are written into the bucket, and their effect
//! on the agents of a key is read from it.

use std::time::Duration;

use log::Level;

use crate::core::write::{Outcome, PendingWrite};
use crate::core::{Instant, Revision, StoreErrorKind};
use crate::exit::{Ended, Exit, Refusal};
use crate::log::Destination;
use crate::status::{self, ANSWER_MAX, KeyStatus, Reader, Source};
use crate::store::lifetime::read_with_age;
use crate::store::{Bucket, Content, Entry, Expected, StoreError, StoreResult, open_existing};
use crate::sys;

/// Why nothing is done with a key.
pub(crate) const UNKNOWN_KEY: &str = "no agent has ever held this key, and none answers: are key \
                                      and bucket right? putex status shows the keys of a bucket";

/// Why nothing is waited for any longer.
pub(crate) const BY_SIGNAL: &str = "ended by a signal";

/// Why nothing is written.
pub(crate) const BY_SIGNAL_BEFORE: &str = "ended by a signal; nothing is requested";

/// The number of each attempt to write: the content tells a write of this command from those of
/// others, and two commands that end the same request write the same.
const ATTEMPT: u64 = 0;

/// How often the status of the agents is read again.
const READ_EVERY: Duration = Duration::from_millis(100);

/// The status of the agents of a key, as it was read.
pub(crate) struct Heard {
    /// The result of [`Operation::read`].
    pub(crate) status: Result<Option<KeyStatus>, Refusal>,
    /// When the read began.
    pub(crate) read_at: Instant,
    /// The time of the agents is over.
    pub(crate) is_last: bool,
}

/// A request to the agents of a key.
pub struct Operation<'a> {
    pub(crate) key: &'a String,
    /// The lowest level that is logged.
    pub(crate) level: u64,
    pub(crate) bucket: Box<dyn Bucket>,
    /// Reads what the agents do.
    pub(crate) reader: Reader<'a>,
    /// Where the user is told.
    pub(crate) destination: Destination,
}

impl<'a> Operation<'a> {
    /// Returns a request to the agents of this key in the bucket at `source`. `level` is the lowest
    /// that is logged.
    pub fn new(
        key: &'a String,
        level: u64,
        source: &'a Source,
        bucket: Box<dyn Bucket>,
        destination: Destination,
    ) -> Operation<'a> {
        Operation { key, level, bucket, reader: Reader::new(source), destination }
    }

    pub(crate) fn tell(&self, level: Level, text: &str) {
        self.destination.tell_waiting(level, self.level, &format!("{}: {text}", self.key));
    }

    /// Tells why nothing was done, and returns that end.
    ///
    /// # Errors
    ///
    /// This user may not ask agents: the reasons are not known then.
    pub(crate) fn refuse(&self, reasons: &[String]) -> Result<Ended, Refusal> {
        self.not_asked_refusal("").map_or_else(|| Ok(self.lacks(reasons)), Err)
    }

    /// Returns the refusal where this user may not ask agents; `None` where it may. `done` is what
    /// was done, and begins the text.
    pub(crate) fn not_asked_refusal(&self, done: &str) -> Option<Refusal> {
        let why = status::not_asked(self.reader.not_asked.as_ref()?);
        Some(Refusal::new(Exit::Credentials, format!("{}: {done}{why}", self.key)))
    }

    /// Tells what is lacking after something was done, and returns that end.
    pub(crate) fn lacks(&self, reasons: &[String]) -> Ended {
        reasons.iter().for_each(|why| self.tell(Level::Warn, why));
        let not_asked = self.reader.not_asked.iter();
        not_asked.for_each(|why| self.tell(Level::Warn, &status::not_asked(why)));
        (String::new(), Exit::NotHad as u8)
    }

    /// Reads who holds the lock, and what the agents say of themselves; `None` if nothing is known
    /// of such agents.
    ///
    /// # Errors
    ///
    /// Why the bucket was not read.
    pub(crate) fn read(
        &mut self,
        is_enough: impl Fn(&KeyStatus) -> bool,
    ) -> Result<Option<KeyStatus>, Refusal> {
        self.reader.read_agents(self.key, &mut *self.bucket, is_enough)
    }

    /// Reads it again and again, until `judge` returns what is to be known. The agents have `wait`,
    /// and R at least: a busy host may need that.
    ///
    /// # Errors
    ///
    /// Those of `judge`.
    pub(crate) fn read_until<Known>(
        &mut self,
        wait: Duration,
        is_enough: impl Fn(&KeyStatus) -> bool,
        mut judge: impl FnMut(&Self, Heard) -> Result<Option<Known>, Refusal>,
    ) -> Result<Known, Refusal> {
        let began = sys::now();
        loop {
            let read_at = sys::now();
            let status = self.read(&is_enough);
            let is_last = sys::now().since(began) >= wait.max(self.reader.longest_wait());
            if let Some(known) = judge(self, Heard { status, read_at, is_last })? {
                return Ok(known);
            }
            sys::pause(READ_EVERY);
        }
    }
}

/// Writes under a key until the outcome of the write is known, `within` this time at most; returns
/// at which revision it stands. `judge` gets the entry that stands there, with its age, and returns
/// its replacement, or why nothing is written. It also gets whether its last write may have stood,
/// and others have written since: they may have ended what that began, and been told so.
///
/// # Errors
///
/// The reason why nothing can be written, or why the outcome is not known; the text of the latter
/// begins with `may`.
pub(crate) fn write<Why>(
    bucket: &mut dyn Bucket,
    key: &str,
    may: &str,
    within: Duration,
    mut judge: impl FnMut(Option<&Entry>, bool) -> Result<Content, Why>,
) -> Result<Result<Revision, Why>, Refusal> {
    let until = sys::now().after(within);
    let mut under_way: Option<(PendingWrite, Content)> = None;
    let (mut last_read, mut is_replaced) = (Revision(0), false);
    let mut last = failure("");
    while sys::now() < until {
        let by = sys::now().after(ANSWER_MAX);
        let entry = match read_after(last_read, bucket, key, by) {
            Ok(found) => found,
            // The last read may have closed the store.
            Err(error) if error.kind == StoreErrorKind::Unreachable => {
                last = error;
                open_again(bucket, until);
                continue;
            }
            Err(error) => {
                last = error;
                break;
            }
        };
        let at = entry.as_ref().map_or(Revision(0), |entry| entry.revision);
        last_read = at;
        let attempt = |own: &Content| {
            let stands = entry.as_ref().is_some_and(|it| it.content == *own);
            stands.then_some(ATTEMPT)
        };
        match under_way.as_ref().map(|(write, content)| write.read(at, attempt(content))) {
            Some(Outcome::Held { revision, .. }) => return Ok(Ok(revision)),
            Some(Outcome::Replaced) => (is_replaced, under_way) = (true, None),
            Some(_) | None => {}
        }
        let (write, content) = match &mut under_way {
            Some(under_way) => under_way,
            none => match judge(entry.as_ref(), is_replaced) {
                Ok(content) => none.insert((PendingWrite::send(at, ATTEMPT, sys::now()), content)),
                Err(why) => return Ok(Err(why)),
            },
        };
        write.send_again(sys::now());
        let written = bucket.write(key, Expected::Key(at), content, None, by);
        match write.answered(written) {
            Outcome::Held { revision, .. } => return Ok(Ok(revision)),
            Outcome::Lost => {
                last = failure("others have written it at the same time");
                under_way = None;
            }
            Outcome::Read | Outcome::Replaced => {}
            Outcome::Refused(error) => return Err(error.into()),
            Outcome::Repeat(why) => {
                last = failure(&why);
                open_again(bucket, until);
            }
        }
    }
    if under_way.is_some() {
        last.text = format!("{may}: {}", last.text);
    }
    Err(last.into())
}

/// Reads an entry with its age, when it stands at this revision at least: a server that was
/// the leader before answers with what it has.
fn read_after(
    least: Revision,
    bucket: &mut dyn Bucket,
    key: &str,
    by: Instant,
) -> StoreResult<Option<Entry>> {
    let found = read_with_age(bucket, key, by)?;
    let at = found.as_ref().map_or(Revision(0), |entry| entry.revision);
    if at < least { Err(failure("what is read is old")) } else { Ok(found) }
}

fn failure(text: &str) -> StoreError {
    StoreErrorKind::Unreachable.error(text.to_owned())
}

/// Opens the bucket again after a pause: a server that is out of reach refuses at once.
fn open_again(bucket: &mut dyn Bucket, by: Instant) {
    sys::pause(READ_EVERY);
    // The next read says why it is not open.
    let _ = open_existing(bucket, by);
}

#[cfg(test)]
mod tests;
