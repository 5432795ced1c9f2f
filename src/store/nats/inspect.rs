//! Inspection for `putex check --connect` and `putex doctor`. Nothing is created or written.

use super::open::describe_server;
use super::{API, NatsSettings, NatsStore, answer};
use crate::core::Instant;
use crate::nats::ServerInfo;
use crate::store::{Bucket as _, StoreErrorKind as Kind, StoreResult};

/// An invalid request to create a stream: a server that permits the request answers with an
/// error and creates nothing.
const INVALID_REQUEST: &str = "?";

/// The result of an inspection.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The server and the state of the bucket, a line each.
    pub remarks: Vec<String>,
    /// The warnings that an agent would log, a line each.
    pub warnings: Vec<String>,
    /// When the bucket was created, which distinguishes two buckets of one name; `None` when
    /// there is none yet.
    pub created: Option<String>,
    /// The number of copies of the bucket; `None` when there is none yet.
    pub replicas: Option<u32>,
    /// The servers whose copy lacks entries or is out of reach.
    pub late: Vec<String>,
    /// Whether the bucket is forgotten when its servers stop.
    pub is_in_memory: bool,
}

impl NatsStore {
    /// Connects, and checks that an agent could use the bucket and read the keys, or create the
    /// bucket.
    ///
    /// # Errors
    ///
    /// The reason why an agent could not.
    pub fn inspect(&mut self, keys: &[&str], deadline: Instant) -> StoreResult<Inspection> {
        self.client.connect(deadline)?;
        let mut found = Inspection::default();
        found.remarks.extend(self.client.server().map(describe_server));
        self.subscribe(keys)?;
        self.subscribe_micro();
        let NatsSettings { bucket, replicas, api, .. } = self.settings.clone();
        if let Some(info) = self.find(deadline)? {
            let accepted = self.accept_bucket(&info)?;
            found.warnings = accepted.remarks;
            found.replicas = Some(accepted.replicas);
            found.is_in_memory = info.config["storage"] == "memory";
            found.remarks.push(format!("bucket {bucket}: exists and is fit for a lock"));
            let subjects: Vec<_> = keys.iter().map(|key| self.subject_of(key)).collect();
            self.read_all(&subjects, None, deadline)?;
            found.created = Some(info.created);
            found.late = info.late;
        } else {
            self.check_version()?;
            let server = self.client.server();
            let cluster = server.and_then(|server| server.cluster.as_ref());
            // A server with JetStream and without a cluster makes only one copy: it would refuse
            // an agent's request for more.
            if let Some(ServerInfo { address, jetstream: true, cluster: None, .. }) = server
                && replicas > 1
                && api == API
            {
                return Err(Kind::Unsafe.error(format!(
                    "bucket {bucket}: num_replicas {replicas}: server {address} is in no cluster, \
                     and makes one copy only"
                )));
            }
            found.warnings = self.hazards(replicas, cluster);
            // Any answer means that the request is permitted.
            self.api_request("STREAM.CREATE", INVALID_REQUEST, deadline)?;
            found.remarks.push(format!(
                "bucket {bucket}: does not exist; an agent would make it, with replicas: {replicas}"
            ));
        }
        // The subscriptions were sent before the answered requests, so a refusal has arrived.
        found.warnings.extend(self.client.warned.iter().map(|text| answer::printable(text)));
        Ok(found)
    }
}
