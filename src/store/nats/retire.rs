//! Entries that do not stay: the last one of a key, and notes.

use serde_json::json;

use super::{Expected, NatsStore};
use crate::core::{Instant, Revision, Written};
use crate::nats::Outgoing;
use crate::nats::bucket::Retirement;
use crate::store::{Content, name};

/// How long the last entry of a key stays: as short as a server takes it, since a listing reads
/// it. A write that is under way so long and names a revision is refused all the same.
const RETIRED_FOR: &str = "1s";

/// How long a note stays: a week, longer than the time between two runs of most jobs.
const NOTED_FOR: &str = "604800s";

/// What is behind a retired key in the note that nobody uses the key again. Without the notes, a
/// listing would read the entries of all tickets that ended in the last two seconds: one message
/// each, where a name of the listing is enough.
pub(super) const FORGOTTEN: &str = ".ended";

impl NatsStore {
    fn retirement(&self) -> Option<Retirement> {
        self.bucket.as_ref().ok().and_then(|bucket| bucket.retirement)
    }

    /// See [`Bucket::retire`](crate::store::Bucket::retire).
    pub(super) fn retire_now(
        &mut self,
        key: &str,
        expected: Revision,
        content: &Content,
        deadline: Instant,
    ) -> Written {
        let retirement = self.retirement();
        let ttl = (retirement == Some(Retirement::Ttl)).then_some(RETIRED_FOR);
        let (written, _) = self.write(key, Expected::Key(expected), content, ttl, &[], deadline);
        if let (Written::Stored(revision), Some(Retirement::Purge)) = (&written, retirement) {
            self.purge(key, *revision);
        }
        written
    }

    /// See [`Bucket::note`](crate::store::Bucket::note).
    pub(super) fn note_now(
        &mut self,
        key: &str,
        expected: Revision,
        content: &Content,
        deadline: Instant,
    ) -> Written {
        let ttl = (self.retirement() == Some(Retirement::Ttl)).then_some(NOTED_FOR);
        self.write(key, Expected::Key(expected), content, ttl, &[], deadline).0
    }

    /// See [`Bucket::forget`](crate::store::Bucket::forget).
    pub(super) fn forget_now(&mut self, key: &str) {
        if self.retirement() != Some(Retirement::Ttl) || name::valid_key(key).is_err() {
            return;
        }
        let headers = [("Nats-TTL", RETIRED_FOR), ("Nats-Expected-Stream", &*self.stream)];
        let subject = self.target(&format!("{}{FORGOTTEN}", self.raw_subject(key)));
        let note = Outgoing { subject: &subject, headers: &headers, payload: b"", repeats: false };
        let _ = self.client.publish(&note);
    }

    /// Has the entry of a key removed that stands at this revision. Best effort: what is left
    /// does no harm.
    fn purge(&mut self, key: &str, revision: Revision) {
        let body = json!({ "filter": self.raw_subject(key), "seq": revision.0 + 1 }).to_string();
        let subject = format!("{}.STREAM.PURGE.{}", self.settings.api, self.stream);
        let payload = body.as_bytes();
        let request = Outgoing { subject: &subject, headers: &[], payload, repeats: false };
        let _ = self.client.publish(&request);
    }
}
