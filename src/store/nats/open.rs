//! Opening: connect, find the bucket or create it, check it, read its epoch and keys.

use std::time::Duration;

use super::micro::MicroService;
use super::{API, NO_LEADER, NatsSettings, NatsStore, OpenBucket, answer};
use crate::core::{BucketId, Instant, Revision, Written, sanitize_field};
use crate::nats::ServerInfo;
use crate::nats::bucket::{self, SafeBucket};
use crate::nats::jetstream::{self, StreamInfo, code};
use crate::store::{
    Bucket as _, BucketInfo, Content, Entry, Expected, OpenedBucket, Opening, StoreError,
    StoreErrorKind as Kind, StoreResult, name,
};
use crate::sys;

/// Longest time for all requests after the connection: two round trips as a rule, and seven that
/// create the bucket.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Pause before a bucket that is being created, or that changed during a listing, is read
/// again.
const CREATION_POLL: Duration = Duration::from_millis(50);

/// For whom which version is needed, in a refusal.
const PUTEX_NEEDS: &str = "putex needs";
const LOCKS_NEED: &str = "locks and leases need";

impl NatsStore {
    /// Connects, finds the bucket or creates it, checks it, and reads its epoch and keys; `None` if
    /// there is none and it is only read. The caller closes the store then, and after an error.
    pub(super) fn open_now(
        &mut self,
        how: Opening<'_>,
        deadline: Instant,
    ) -> StoreResult<Option<OpenedBucket>> {
        let keys = how.read.iter().copied().chain([name::EPOCH_KEY]);
        let subjects: Vec<String> = keys.map(|key| self.subject_of(key)).collect();
        if !self.client.is_connected() {
            self.subscribed.clear();
            self.micro.iter_mut().for_each(MicroService::forget_connection);
        }
        self.client.connect(deadline)?;
        let deadline = deadline.min(sys::now().after(OPEN_MAX));
        self.subscribe(how.subscribed)?;
        let (mut found, mut created) = (self.find(deadline)?, false);
        if found.is_none() && how.makes_bucket {
            created = self.create(deadline)?;
            found = self.find(deadline)?;
            if found.is_none() {
                let text = format!("bucket: {} was made and is gone", self.stream);
                return Err(Kind::Unreachable.error(text));
            }
        }
        let Some(info) = found else { return Ok(None) };
        let accepted = self.accept_bucket(&info)?;
        let bucket = &self.settings.bucket;
        let mut remarks = Vec::from_iter(self.client.server().map(describe_server));
        if created {
            remarks.push(format!("bucket {bucket}: did not exist and was created"));
        }
        remarks.extend(accepted.remarks);
        let mut entries = self.read_all(&subjects, None, deadline)?;
        let epoch = entries.pop().flatten();
        let known = epoch.and_then(|entry| Some((epoch_of(&entry)?, entry.revision)));
        let (epoch, written) = match (known, how.makes_bucket) {
            (Some(known), _) => known,
            (None, true) => self.epoch(deadline)?,
            (None, false) => (String::new(), Revision(0)),
        };
        let bucket = BucketInfo {
            id: BucketId { epoch, created: info.created },
            last: Revision(info.last_seq).max(written),
            age: None,
            may_be_lost: true,
            replicas: accepted.replicas,
            remarks,
            retires: accepted.has_ttl.then_some(()).ok_or_else(|| self.keeps_tickets()),
        };
        Ok(Some((bucket, entries)))
    }

    /// Accepts a bucket that is safe for a lock.
    pub(super) fn accept_bucket(&mut self, info: &StreamInfo) -> StoreResult<SafeBucket> {
        let NatsSettings { bucket, replicas: wanted, allow_memory, .. } = &self.settings;
        let mut found = bucket::check(bucket, &info.config, *allow_memory)
            .map_err(|text| Kind::Unsafe.error(text))?;
        if info.time.is_none() {
            return Err(self.too_old(bucket::AGENTS_SINCE, PUTEX_NEEDS));
        }
        if self.settings.for_locks && found.level < bucket::LOCKS_LEVEL {
            return Err(self.too_old(bucket::LOCKS_SINCE, LOCKS_NEED));
        }
        let have = found.replicas;
        found.remarks.extend(bucket::too_few_replicas(bucket, have, *wanted));
        found.remarks.extend(self.hazards(have, info.cluster.as_ref()));
        self.bucket = Ok(OpenBucket {
            created: info.created.clone(),
            replicated: have > 1,
            has_ttl: found.has_ttl,
        });
        Ok(found)
    }

    /// Returns why tickets that have ended would stay in the bucket for ever.
    fn keeps_tickets(&self) -> String {
        let bucket = &self.settings.bucket;
        format!(
            "bucket {bucket}: it has no allow_msg_ttl, so tickets that have ended would stay for \
             ever; for locks use another bucket (--bucket), which putex makes on nats-server 2.11 \
             or later, or there: nats stream edit KV_{bucket} --allow-msg-ttl"
        )
    }

    /// Returns the hazards of this number of copies in this cluster, and with the domain of the
    /// connected server.
    pub(super) fn hazards(&self, replicas: u32, cluster: Option<&String>) -> Vec<String> {
        let NatsSettings { bucket, api, .. } = &self.settings;
        let Some(ServerInfo { address, name, domain, .. }) = self.client.server() else {
            return Vec::new();
        };
        // A leaf node that is in no cluster names one, by the name that its configuration gives it.
        let is_leaf = cluster == Some(name);
        let alone = cluster.filter(|_| replicas == 1 && !is_leaf).map(|cluster| {
            format!(
                "bucket {bucket}: one copy on cluster {cluster}: while its server is down, nobody \
                 has the lock; see --replicas"
            )
        });
        let others = match domain {
            Some(domain) => Some(format!(
                "is in JetStream domain {domain}: agents at servers of another domain have another \
                 bucket, and all run; see --js-domain"
            )),
            None => is_leaf.then(|| {
                "is a leaf node without a JetStream domain: agents at its hub have another bucket, \
                 and all run; give it a domain, and see --js-domain"
                    .to_owned()
            }),
        };
        let others = others.filter(|_| api == API);
        let others = others.map(|text| format!("bucket {bucket}: server {address} {text}"));
        alone.into_iter().chain(others).collect()
    }

    /// Returns the bucket once its creation is complete, `None` when there is none.
    pub(super) fn find(&mut self, deadline: Instant) -> StoreResult<Option<StreamInfo>> {
        loop {
            match self.info(deadline)? {
                // Another client is creating it: the time of creation is set last.
                Some(info) if !info.is_made() => self.pause(deadline)?,
                // The bucket may be one that a server that is cut off remembers.
                Some(info) if !info.has_leader => {
                    let text = format!("bucket: {} {NO_LEADER}", self.stream);
                    return Err(Kind::Unreachable.error(text));
                }
                found => return Ok(found),
            }
        }
    }

    pub(super) fn pause(&self, deadline: Instant) -> StoreResult<()> {
        sys::pause(CREATION_POLL.min(deadline.since(sys::now())));
        if sys::now() < deadline {
            return Ok(());
        }
        let text = format!("bucket: {} is not ready by the deadline", self.stream);
        Err(Kind::Unreachable.error(text))
    }

    /// Checks that a bucket which is made at the connected server would be accepted.
    pub(super) fn check_version(&self) -> StoreResult<()> {
        let (since, who) = match self.settings.for_locks {
            true => (bucket::LOCKS_SINCE, LOCKS_NEED),
            false => (bucket::AGENTS_SINCE, PUTEX_NEEDS),
        };
        match self.client.server() {
            Some(server) if server.jetstream && !bucket::is_since(&server.version, since) => {
                Err(self.too_old(since, who))
            }
            _ => Ok(()),
        }
    }

    /// Returns the refusal of a server that is older than this version.
    fn too_old(&self, [major, minor, _]: [u64; 3], who: &str) -> StoreError {
        let bucket = &self.settings.bucket;
        let connected = self.client.server().map(describe_server).unwrap_or_default();
        Kind::Unsafe.error(format!(
            "bucket {bucket}: its server is older than nats-server {major}.{minor}, which {who}; \
             upgrade it ({connected})"
        ))
    }

    /// Creates the bucket; returns whether this call did, and no other client before it.
    fn create(&mut self, deadline: Instant) -> StoreResult<bool> {
        let NatsSettings { bucket, replicas, .. } = &self.settings;
        self.check_version()?;
        let body = bucket::create(bucket, *replicas);
        let answer = self.api_request("STREAM.CREATE", &body, deadline)?;
        let Err(failure) = jetstream::stream_info(&answer) else { return Ok(true) };
        if failure.err_code == code::NAME_IN_USE {
            return Ok(false);
        }
        Err(self.api_error("creating the bucket", &failure))
    }

    /// Reads the epoch of the bucket, and writes one when there is none.
    fn epoch(&mut self, deadline: Instant) -> StoreResult<(String, Revision)> {
        let subject = self.subject_of(name::EPOCH_KEY);
        loop {
            let entry = self.read(&subject, deadline)?;
            let current = entry.as_ref().map_or(Revision(0), |entry| entry.revision);
            if let Some(id) = entry.as_ref().and_then(epoch_of) {
                return Ok((id, current));
            }
            let id = sys::random()
                .map_err(|error| Kind::Unreachable.error(format!("random numbers: {error}")))?;
            let id = format!("{id:032x}");
            let (expected, content) = (Expected::Key(current), Content::new([], id.as_bytes()));
            let by = self.answer_by(deadline);
            match self.write(name::EPOCH_KEY, expected, &content, None, by) {
                Written::Stored(revision) => return Ok((id, revision)),
                Written::Denied(error) => return Err(error),
                Written::Moved(_) => self.pause(deadline)?,
                // A stream that is being created has no subscription yet.
                Written::Unknown(why) => {
                    self.pause(deadline).map_err(|StoreError { kind, .. }| kind.error(why))?;
                }
            }
        }
    }
}

/// Returns the epoch that an entry holds; `None` if it was deleted or is blank. It becomes a
/// variable of the environment of commands, and the value of a header, which has no outer blanks.
fn epoch_of(entry: &Entry) -> Option<String> {
    let id = sanitize_field(String::from_utf8_lossy(&entry.content.payload).trim());
    (!entry.content.is_tombstone() && !id.is_empty()).then_some(id)
}

pub(super) fn describe_server(server: &ServerInfo) -> String {
    let ServerInfo { address, version, name, .. } = server;
    answer::printable(&format!("server {address}: nats-server {version}, named {name}"))
}
