//! Entries that do not stay: the last one of a key, and notes.

use serde_json::json;

use super::NatsStore;
use crate::core::Revision;
use crate::nats::Outgoing;
use crate::nats::bucket::Retirement;
use crate::store::name::TICKET_ROOT;
use crate::store::{Entry, Stays};

/// How long the last entry of a key stays: as short as a server takes it, since a listing reads
/// it. A write that is under way so long and names a revision is refused all the same.
const RETIRED_FOR: &str = "1s";

/// How long a note stays: a week, longer than the time between two runs of most jobs.
const NOTED_FOR: &str = "604800s";

impl NatsStore {
    fn retirement(&self) -> Option<Retirement> {
        self.bucket.as_ref().ok().and_then(|bucket| bucket.retirement)
    }

    /// Returns the time after which the server is to remove an entry.
    pub(super) fn ttl_of(&self, stays: Stays) -> Option<&'static str> {
        let ttl = match stays {
            Stays::Retired => RETIRED_FOR,
            Stays::ForDays => NOTED_FOR,
        };
        self.bucket.as_ref().ok().filter(|bucket| bucket.has_ttl).map(|_| ttl)
    }

    /// Has the tombstone of a ticket removed whose owner has had no removal: its request may have
    /// been lost, and the tombstone would stand for ever.
    pub(super) fn purge_if_left(&mut self, entry: &Entry) {
        let root = entry.key.split('.').next();
        if entry.content.is_tombstone() && root == Some(TICKET_ROOT) {
            self.purge_if_it_stays(&entry.key, entry.revision);
        }
    }

    /// Has the retired entry of a key removed that stands at this revision, if the server does not
    /// do that by itself. Best effort: what is left does no harm.
    pub(super) fn purge_if_it_stays(&mut self, key: &str, revision: Revision) {
        if self.retirement() != Some(Retirement::Purge) {
            return;
        }
        let body = json!({ "filter": self.raw_subject(key), "seq": revision.0 + 1 }).to_string();
        let subject = format!("{}.STREAM.PURGE.{}", self.settings.api, self.stream);
        let payload = body.as_bytes();
        let request = Outgoing { subject: &subject, headers: &[], payload, repeats: false };
        let _ = self.client.publish(&request);
    }
}
