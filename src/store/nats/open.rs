//! Opening: connect, find the bucket or make it, judge it, read its epoch and
//! the key.

use std::time::Duration;

use super::{Bucket, NatsSettings, NatsStore, Subscriptions, answer};
use crate::core::event::{Opened, Written};
use crate::core::record::{BucketId, KeyValue, Record, Revision};
use crate::core::time::Instant;
use crate::nats::jetstream::{self, Failure, StreamInfo, code};
use crate::nats::{ConnectError, RequestError, ServerInfo, bucket};
use crate::store::{OpenError, name};
use crate::sys::{self, Alarm};

/// How often a lost race for the epoch key is run again. One is enough unless
/// somebody keeps deleting the key.
const EPOCH_ATTEMPTS_MAX: u32 = 3;

/// How often a bucket that is just being made is looked at: making one takes a
/// server a few milliseconds.
const CREATION_POLL: Duration = Duration::from_millis(5);

impl NatsStore {
    /// Opens step by step; the caller takes back what a failed step left.
    pub(super) fn open_now(&mut self, deadline: Instant) -> Result<Opened, OpenError> {
        name::valid_bucket(&self.settings.bucket).map_err(OpenError::Unsafe)?;
        name::valid_key(&self.settings.key).map_err(OpenError::Unsafe)?;
        self.connect(deadline)?;
        let (info, made) = self.find_or_make(deadline)?;
        let lacks = self.accept_bucket(&info)?;
        let (bucket, config) = (&self.settings.bucket, &info.config);
        let mut remarks: Vec<String> = self
            .client
            .server()
            .map(describe_server)
            .into_iter()
            .collect();
        if made {
            remarks.push(format!("bucket {bucket}: did not exist and was created"));
        }
        remarks.extend(lacks);
        let (epoch, written) = self.epoch(deadline)?;
        self.subscribe_key()?;
        // Read after subscribing, so that a change in between is not missed.
        let subject = self.subject.clone();
        let key_state = self.read_leader(&subject, deadline)?;
        Ok(Opened {
            bucket: BucketId {
                epoch,
                created: info.created,
            },
            last: Revision(info.last_seq).max(written).max(key_state.revision),
            age: None,
            replicas: u32::try_from(config.num_replicas).unwrap_or(u32::MAX),
            key_state,
            remarks,
        })
    }

    /// Takes a bucket that is fit for a lock; returns what it lacks.
    pub(super) fn accept_bucket(&mut self, info: &StreamInfo) -> Result<Vec<String>, OpenError> {
        let (bucket, config) = (&self.settings.bucket, &info.config);
        let version = self.version();
        let mut lacks = bucket::check(bucket, config, version, self.settings.allow_memory)
            .map_err(OpenError::Unsafe)?;
        let asked = self.settings.replicas;
        if config.num_replicas < i64::from(asked) {
            let have = config.num_replicas;
            lacks.push(format!(
                "bucket {bucket}: num_replicas {have}: {asked} were asked for, it is taken as it is"
            ));
        }
        self.bucket = Some(Bucket {
            created: info.created.clone(),
            allow_direct: config.allow_direct,
            replicated: config.num_replicas > 1,
        });
        Ok(lacks)
    }

    fn version(&self) -> &str {
        let server = self.client.server();
        server.map_or("", |server| server.version.as_str())
    }

    fn connect(&mut self, deadline: Instant) -> Result<(), OpenError> {
        if !self.client.is_connected() {
            self.subscriptions = None;
        }
        Ok(self.client.connect(deadline)?)
    }

    pub(super) fn subscribe_key(&mut self) -> Result<(), OpenError> {
        if self.subscriptions.is_some() {
            return Ok(());
        }
        let NatsSettings { bucket, key, .. } = &self.settings;
        let lost = |error| OpenError::Unreachable(format!("subscribe: {error}"));
        let hint = self
            .client
            .subscribe(&format!("putex.hint.{bucket}.{key}"))
            .map_err(lost)?;
        let twin = self
            .client
            .subscribe(&format!("putex.twin.{bucket}.{key}"))
            .map_err(lost)?;
        self.subscriptions = Some(Subscriptions { hint, twin });
        Ok(())
    }

    /// Returns what the bucket is, and whether it was made for that.
    pub(super) fn find_or_make(
        &mut self,
        deadline: Instant,
    ) -> Result<(StreamInfo, bool), OpenError> {
        if let Ok(info) = self.find(deadline)? {
            return Ok((info, false));
        }
        let made = self.make(deadline)?;
        match (self.find(deadline)?, made) {
            (Ok(info), made) => Ok((info, made.is_ok())),
            (Err(_), Err(failure)) => Err(self.api_error("creating the bucket", &failure)),
            (Err(failure), Ok(())) => Err(self.api_error("bucket", &failure)),
        }
    }

    /// Returns what the bucket is once it is made, or the answer that there is none.
    fn find(&mut self, deadline: Instant) -> Result<Result<StreamInfo, Failure>, OpenError> {
        loop {
            match self.info(deadline)? {
                // Somebody else is making it: its time of creation comes last.
                Ok(info) if !info.is_made() => self.pause(deadline)?,
                Err(failure) if failure.err_code() != code::STREAM_NOT_FOUND => {
                    return Err(self.api_error("bucket", &failure));
                }
                found => return Ok(found),
            }
        }
    }

    fn pause(&self, deadline: Instant) -> Result<(), OpenError> {
        let until = sys::now().after(CREATION_POLL).min(deadline);
        match Alarm::new().and_then(|alarm| alarm.wait([], Some(until))) {
            Ok([]) if sys::now() < deadline => Ok(()),
            Ok([]) => Err(OpenError::Unreachable(format!(
                "bucket: {} is not ready by the deadline",
                self.stream
            ))),
            Err(error) => Err(OpenError::Unreachable(format!("waiting: {error}"))),
        }
    }

    /// Checks that a bucket with as many replicas as wanted would be fit for a lock.
    pub(super) fn may_be_made(&self) -> Result<(), OpenError> {
        let NatsSettings {
            bucket, replicas, ..
        } = &self.settings;
        bucket::check_replicas(i64::from(*replicas), self.version())
            .map_err(|text| OpenError::Unsafe(format!("bucket {bucket}: {text}")))
    }

    /// Checks that there are servers for as many replicas as wanted. A server that answers
    /// for JetStream itself and has no cluster makes one copy.
    pub(super) fn has_servers_enough(&self) -> Result<(), OpenError> {
        let NatsSettings {
            bucket,
            replicas,
            api,
            ..
        } = &self.settings;
        let server = self.client.server().filter(|server| server.jetstream);
        match server.filter(|server| server.cluster.is_none()) {
            Some(ServerInfo { address, .. }) if *replicas > 1 && api.is_none() => {
                Err(OpenError::Unsafe(format!(
                    "bucket {bucket}: num_replicas {replicas}: server {address} is in no cluster, \
                     and makes one copy only"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Asks the server to make the bucket; returns its refusal where somebody else may have
    /// been faster.
    fn make(&mut self, deadline: Instant) -> Result<Result<(), Failure>, OpenError> {
        let NatsSettings {
            bucket, replicas, ..
        } = &self.settings;
        self.may_be_made()?;
        let body = bucket::create(bucket, *replicas);
        let answer = self.api_request("STREAM.CREATE", body.as_bytes(), deadline)?;
        match jetstream::stream_info(&answer) {
            Ok(_) => Ok(Ok(())),
            Err(failure) => match failure.err_code() {
                // The second is what nats-server 2.9 says while it makes that very stream.
                code::NAME_IN_USE | code::SUBJECTS_OVERLAP => Ok(Err(failure)),
                _ => Err(self.api_error("creating the bucket", &failure)),
            },
        }
    }

    /// Reads the bucket's epoch, and writes one where there is none.
    fn epoch(&mut self, deadline: Instant) -> Result<(String, Revision), OpenError> {
        let subject = format!("$KV.{}.{}", self.settings.bucket, name::EPOCH_KEY);
        let mut lost = 0;
        while lost < EPOCH_ATTEMPTS_MAX {
            let key_state = self.read_leader(&subject, deadline)?;
            if let KeyValue::Record(Record { token, .. }) = key_state.found
                && !token.trim().is_empty()
            {
                return Ok((token, key_state.revision));
            }
            let id = sys::random()
                .map_err(|error| OpenError::Unreachable(format!("random numbers: {error}")))?;
            let id = format!("{id:032x}");
            let sent =
                self.compare_and_set(&subject, key_state.revision, &[], id.as_bytes(), deadline);
            match &sent {
                // A stream that is just being made does not listen yet.
                Err(RequestError::NoResponders) => {
                    self.pause(deadline)?;
                    continue;
                }
                Err(error @ RequestError::Forbidden(_)) => {
                    return Err(self.request_error(&subject, error));
                }
                Ok(_) | Err(_) => {}
            }
            match self.write_outcome(&subject, sent) {
                Written::Stored(revision) => return Ok((id, revision)),
                Written::Moved(_) => lost += 1,
                Written::Denied(text) | Written::Unknown(text) => {
                    return Err(OpenError::Unreachable(format!(
                        "epoch of the bucket: {text}"
                    )));
                }
            }
        }
        Err(OpenError::Unreachable(format!(
            "{subject}: written and removed by others all the time"
        )))
    }
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> OpenError {
        match error {
            ConnectError::Unreachable(text) => OpenError::Unreachable(text),
            ConnectError::Credentials(text) => OpenError::Credentials(text),
            ConnectError::Unsafe(text) => OpenError::Unsafe(text),
        }
    }
}

pub(super) fn describe_server(server: &ServerInfo) -> String {
    let ServerInfo {
        address,
        version,
        name,
        ..
    } = server;
    answer::printable(&format!(
        "server {address}: nats-server {version}, named {name}"
    ))
}
