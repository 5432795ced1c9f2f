//! `putex put --lease`: one write to a key, which the server refuses unless a lease stands at the
//! revision that was read.

use std::io::{self, Read as _};

use log::Level;

use crate::core::lease::command::REQUEST_MAX;
use crate::core::tickets::Name;
use crate::core::{StoreErrorKind, Written, sanitize_field};
use crate::exit::{Ended, Exit, Refusal};
use crate::log::Destination;
use crate::store::leases::Leases;
use crate::store::{Bucket, Content, Expected, StoreError};
use crate::sys;

/// The header of the records of agents, and of no other entry.
const FORMAT: &str = "Putex-Format";

/// The largest value, in bytes: each store takes it.
const VALUE_MAX: usize = 32 * 1024;

/// A write under a lease, as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The lease.
    pub lease: Name,
    /// The holder that has to have the lease.
    pub holder: String,
    /// The key.
    pub key: String,
    /// The value; `None`: the bytes of stdin.
    pub value: Option<String>,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
}

impl Put {
    fn value(&self) -> Result<Vec<u8>, Refusal> {
        let mut value = Vec::new();
        match &self.value {
            Some(text) => value.extend(text.as_bytes()),
            None => {
                let until = VALUE_MAX as u64 + 1;
                let read = io::stdin().take(until).read_to_end(&mut value);
                read.map_err(Refusal::system("cannot read the value: "))?;
                if value.is_empty() {
                    let text = "VALUE is missing, and stdin is empty; write '' for an empty value";
                    return Err(Refusal::new(Exit::Usage, text));
                }
            }
        }
        if value.len() > VALUE_MAX {
            let text = format!("VALUE: it has more than the maximum of {VALUE_MAX} bytes");
            return Err(Refusal::new(Exit::Usage, text));
        }
        Ok(value)
    }
}

/// Writes it.
///
/// # Errors
///
/// Why it was not written.
pub fn run(put: &Put, bucket: Box<dyn Bucket>, destination: Destination) -> Result<Ended, Refusal> {
    let Put { lease: name, holder, key, .. } = put;
    let tell = |level, why: &str| {
        destination.tell_waiting(level, put.level, &format!("{name}: {why}"));
    };
    let mut value = None;
    let mut leases = Leases::new(bucket);
    let mut until = sys::now().after(REQUEST_MAX * 2);
    leases.open(until)?;
    let mut stored = leases.read(name, until)?;
    let mut term = None;
    loop {
        let why = match &stored.lease {
            Some(Err(why)) => return Err(StoreErrorKind::Unsafe.error(why.clone()).into()),
            Some(Ok(lease)) if lease.holder != *holder => {
                Some(format!("{} has it", sanitize_field(&lease.holder)))
            }
            // The value is of the claim that stood at first.
            Some(Ok(lease)) => {
                let claimed_at = lease.term_at(stored.revision);
                let is_another = *term.get_or_insert(claimed_at) != claimed_at;
                is_another.then(|| "it was claimed anew meanwhile".to_owned())
            }
            None => Some("nobody has it".to_owned()),
        };
        if let Some(why) = why {
            let holder = sanitize_field(holder);
            tell(Level::Warn, &format!("nothing written, {holder} does not have it: {why}"));
            return Ok((String::new(), Exit::Lost as u8));
        }
        let lease_key = leases.key(name);
        let expected = Expected::OtherKey(&lease_key, stored.revision);
        // Only a process that may write the value reads it.
        if value.is_none() {
            value = Some(put.value()?);
            // The writer of the value may have taken long.
            until = sys::now().after(REQUEST_MAX * 2);
        }
        let entry = leases.bucket().get(key, until)?;
        if entry.is_some_and(|entry| entry.content.header(FORMAT).is_some()) {
            let text = format!("{key}: it is the lock of a putex agent; write another key");
            return Err(StoreErrorKind::Unsafe.error(text).into());
        }
        let content = Content::new([], value.as_deref().unwrap_or_default());
        let unreachable = |text| Err(StoreErrorKind::Unreachable.error(text).into());
        match leases.bucket().write(key, expected, &content, None, until) {
            Written::Stored(revision) => return Ok((format!("revision={revision}\n"), 0)),
            // The holder has extended the lease meanwhile, or the lease has gone.
            Written::Moved(_) if sys::now() < until => {
                tell(Level::Info, "it was written meanwhile");
                stored = leases.read(name, until)?;
            }
            Written::Moved(_) => return unreachable(format!("{name}: it does not stay as it is")),
            Written::Denied(StoreError { kind, text }) => {
                return Err(kind.error(format!("{key}: {text}")).into());
            }
            Written::Unknown(why) => {
                return unreachable(format!("{key}: {why}; it may have been written"));
            }
        }
    }
}
