//! Entries that do not stay: the last one of a key, and notes.

use std::time::Duration;

use super::NatsStore;
use crate::store::Stays;

/// How long the last entry of a key stays: as short as a server takes it, since a listing reads
/// it. A write that is under way so long and names a revision is refused all the same.
const RETIRED_FOR: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Returns the time after which the server is to remove an entry.
    pub(super) fn ttl_of(&self, stays: Stays) -> Option<String> {
        let ttl = match stays {
            Stays::Kept => return None,
            Stays::Retired => RETIRED_FOR,
            Stays::For(time) => time,
        };
        let ttl = format!("{}s", ttl.as_millis().div_ceil(1000));
        self.bucket.as_ref().ok().filter(|bucket| bucket.has_ttl).map(|_| ttl)
    }
}
