//! Looking without touching: what `putex check --connect` asks the servers. Nothing is
//! made, nothing is written.

use super::open::describe_server;
use super::{NatsSettings, NatsStore};
use crate::core::time::Instant;
use crate::nats::RequestError;
use crate::nats::jetstream::code;
use crate::store::{OpenError, holder_in_words, name};

/// What no request to make a stream looks like. A server that permits one says so, and
/// makes nothing of it.
const NO_REQUEST: &[u8] = b"?";

/// What was seen.
#[derive(Debug, Default)]
pub struct Inspection {
    /// How things stand, a line each.
    pub remarks: Vec<String>,
    /// What an agent would warn of, a line each.
    pub warnings: Vec<String>,
    /// When the bucket was made, by which two of one name are told apart; `None` where there
    /// is none yet.
    pub created: Option<String>,
}

impl NatsStore {
    /// Connects, and looks whether the bucket and the key can be used as an agent uses
    /// them, or could be made.
    ///
    /// # Errors
    ///
    /// Why an agent could not.
    pub fn inspect(&mut self, deadline: Instant) -> Result<Inspection, OpenError> {
        name::valid_bucket(&self.settings.bucket).map_err(OpenError::Unsafe)?;
        name::valid_key(&self.settings.key).map_err(OpenError::Unsafe)?;
        self.client.connect_once(deadline)?;
        let mut inspect = Inspection::default();
        inspect
            .remarks
            .extend(self.client.server().map(describe_server));
        self.subscribe_key()?;
        match self.info(deadline)? {
            Ok(info) => {
                let bucket = &self.settings.bucket;
                let fit = format!("bucket {bucket}: exists and is fit for a lock");
                inspect.warnings.extend(self.accept_bucket(&info)?);
                inspect.remarks.push(fit);
                let holder = self.read_all(deadline)?;
                inspect.remarks.push(holder);
            }
            Err(failure) if failure.err_code() == code::STREAM_NOT_FOUND => {
                self.may_be_made()?;
                // An agent asks for them, and hears it then.
                self.has_servers_enough()?;
                self.is_permitted_to_make(deadline)?;
                let NatsSettings {
                    bucket, replicas, ..
                } = &self.settings;
                inspect.remarks.push(format!(
                    "bucket {bucket}: does not exist; an agent would make it, with replicas: \
                     {replicas}"
                ));
            }
            Err(failure) => return Err(self.api_error("bucket", &failure)),
        }
        // Both were sent before what has been answered meanwhile.
        let server_errors = self.client.server_errors();
        inspect
            .warnings
            .extend(server_errors.into_iter().map(|text| {
                let text = super::answer::printable(&text);
                format!("the server says: {text}")
            }));
        inspect.warnings.append(&mut self.denied);
        inspect.created = self.bucket.as_ref().map(|bucket| bucket.created.clone());
        Ok(inspect)
    }

    /// Reads all that an agent reads, in every way that it may; returns who holds the
    /// lock.
    fn read_all(&mut self, deadline: Instant) -> Result<String, OpenError> {
        let subject = self.subject.clone();
        let key_state = self.read_leader(&subject, deadline)?;
        self.read_now(deadline).map_err(OpenError::Unreachable)?;
        let epoch = format!("$KV.{}.{}", self.settings.bucket, name::EPOCH_KEY);
        self.read_leader(&epoch, deadline)?;
        Ok(holder_in_words(&self.settings.key, &key_state))
    }

    fn is_permitted_to_make(&mut self, deadline: Instant) -> Result<(), OpenError> {
        let subject = format!("{}.STREAM.CREATE.{}", self.api, self.stream);
        let asked = self.client.request(&subject, &[], NO_REQUEST, deadline);
        match asked {
            // That it was no request is not the question.
            Ok(_) => Ok(()),
            Err(error @ RequestError::Forbidden(_)) => Err(self.request_error(&subject, &error)),
            Err(error) => Err(OpenError::Unreachable(format!("{subject}: {error}"))),
        }
    }
}
