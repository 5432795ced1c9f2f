//! What the requests of operators have in common: they are written into the bucket, and what the
//! agents of a key have made of them is read from it.

use log::Level;

use crate::core::{Instant, REACH_MAX, Revision, StoreErrorKind, Written};
use crate::exit::{LockExit, Refusal};
use crate::log::Destination;
use crate::status::{self, ANSWER_MAX, KeyStatus, Reader};
use crate::store::{Bucket, StoreResult, open_existing};
use crate::sys;

/// How often a write is repeated after an answer that leaves open whether it was stored.
const WRITES_MAX: u32 = 5;

/// What is printed, and the exit status.
pub type Ended = (String, u8);

/// A request to the agents of a key.
pub(crate) struct Operation<'a> {
    /// The key of the agents.
    pub(crate) key: &'a String,
    /// The lowest level that is logged.
    pub(crate) level: u64,
    /// The bucket.
    pub(crate) bucket: Box<dyn Bucket>,
    /// Reads what the agents do.
    pub(crate) reader: Reader<'a>,
    /// Where the user is told.
    pub(crate) destination: Destination,
}

impl Operation<'_> {
    /// Tells the user.
    pub(crate) fn tell(&self, level: Level, text: &str) {
        self.destination.tell_waiting(level, self.level, &format!("{}: {text}", self.key));
    }

    /// Tells why nothing has come of it, and returns that end.
    pub(crate) fn refuse(&self, reasons: &[String]) -> Ended {
        reasons.iter().for_each(|why| self.tell(Level::Warn, why));
        let not_asked = self.reader.why_not_asked();
        not_asked.iter().for_each(|why| self.tell(Level::Warn, &status::not_asked(why)));
        (String::new(), LockExit::NotHad as u8)
    }

    /// Reads who holds the lock, and what the agents say of themselves; `None` if nothing is known
    /// of such agents.
    ///
    /// # Errors
    ///
    /// Why the bucket was not read.
    pub(crate) fn read(
        &mut self,
        is_enough: impl Fn(Option<&KeyStatus>) -> bool,
    ) -> Result<Option<KeyStatus>, Refusal> {
        self.reader.read_agents(self.key, &mut *self.bucket, is_enough)
    }
}

/// Writes again until it is known what has become of that. `attempt` reads what stands there,
/// and returns why it writes nothing, or what has become of its write. Returns the revision, or
/// why nothing was written.
///
/// # Errors
///
/// Why that is not known: `may` is the case.
pub(crate) fn write<Why>(
    bucket: &mut dyn Bucket,
    may: &str,
    mut attempt: impl FnMut(&mut dyn Bucket, Instant) -> StoreResult<Result<Written, Why>>,
) -> Result<Result<Revision, Why>, Refusal> {
    let mut last = String::new();
    for _ in 0..WRITES_MAX {
        match attempt(bucket, sys::now().after(ANSWER_MAX))? {
            Err(why) => return Ok(Err(why)),
            Ok(Written::Stored(at)) => return Ok(Ok(at)),
            Ok(Written::Moved(_)) => {}
            Ok(Written::Denied(why)) => return Err(StoreErrorKind::Credentials.error(why).into()),
            Ok(Written::Unknown(why)) => {
                last = why;
                let _ = open_existing(bucket, sys::now().after(REACH_MAX));
            }
        }
    }
    Err(StoreErrorKind::Unreachable.error(format!("{may}: {last}")).into())
}
