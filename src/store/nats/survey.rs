//! Looking without touching: what `putex check --connect` asks the servers. Nothing is
//! made, nothing is written.

use super::opening::whom;
use super::{NatsStore, Settings};
use crate::core::time::Instant;
use crate::nats::RequestError;
use crate::nats::jetstream::code;
use crate::store::{OpenError, holder_in_words, name};

/// What no request to make a stream looks like. A server that permits one says so, and
/// makes nothing of it.
const NO_REQUEST: &[u8] = b"?";

/// What was seen.
#[derive(Debug, Default)]
pub struct Survey {
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
    pub fn survey(&mut self, deadline: Instant) -> Result<Survey, OpenError> {
        name::valid_bucket(&self.settings.bucket).map_err(OpenError::Unsafe)?;
        name::valid_key(&self.settings.key).map_err(OpenError::Unsafe)?;
        self.client.connect_once(deadline)?;
        let mut survey = Survey::default();
        survey.remarks.extend(self.client.server().map(whom));
        self.listen()?;
        match self.info(deadline)? {
            Ok(info) => {
                let bucket = &self.settings.bucket;
                let fit = format!("bucket {bucket}: exists and is fit for a lock");
                survey.warnings.extend(self.take(&info)?);
                survey.remarks.push(fit);
                let holder = self.read_all(deadline)?;
                survey.remarks.push(holder);
            }
            Err(failure) if failure.err_code() == code::STREAM_NOT_FOUND => {
                self.may_be_made()?;
                // An agent asks for them, and hears it then.
                self.has_servers_enough()?;
                self.is_permitted_to_make(deadline)?;
                let Settings {
                    bucket, replicas, ..
                } = &self.settings;
                survey.remarks.push(format!(
                    "bucket {bucket}: does not exist; an agent would make it, with replicas: \
                     {replicas}"
                ));
            }
            Err(failure) => return Err(self.refused("bucket", &failure)),
        }
        // Both were sent before what has been answered meanwhile.
        let complaints = self.client.complaints();
        survey.warnings.extend(complaints.into_iter().map(|text| {
            let text = super::answer::printable(&text);
            format!("the server says: {text}")
        }));
        survey.warnings.append(&mut self.denied);
        survey.created = self.bucket.as_ref().map(|bucket| bucket.created.clone());
        Ok(survey)
    }

    /// Reads all that an agent reads, in every way that it may; returns who holds the
    /// lock.
    fn read_all(&mut self, deadline: Instant) -> Result<String, OpenError> {
        let subject = self.subject.clone();
        let key_state = self.leader(&subject, deadline)?;
        self.read_now(deadline).map_err(OpenError::Unreachable)?;
        let epoch = format!("$KV.{}.{}", self.settings.bucket, name::EPOCH_KEY);
        self.leader(&epoch, deadline)?;
        Ok(holder_in_words(&self.settings.key, &key_state))
    }

    fn is_permitted_to_make(&mut self, deadline: Instant) -> Result<(), OpenError> {
        let subject = format!("{}.STREAM.CREATE.{}", self.api, self.stream);
        let asked = self.client.request(&subject, &[], NO_REQUEST, deadline);
        match asked {
            // That it was no request is not the question.
            Ok(_) => Ok(()),
            Err(error @ RequestError::Forbidden(_)) => Err(self.unanswered(&subject, &error)),
            Err(error) => Err(OpenError::Unreachable(format!("{subject}: {error}"))),
        }
    }
}
