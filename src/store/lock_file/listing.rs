//! The tickets that stand, for people: nothing is added or removed.

use std::path::Path;
use std::time::Duration;

use super::{LockFile, NAME};
use crate::core::Instant;
use crate::core::tickets::StoredTicket;
use crate::store::{StoreErrorKind, StoreResult};
use crate::sys::{self, Alarm};

/// How long a listing pauses before it tries the door again.
const DOOR_POLL: Duration = Duration::from_millis(5);

impl LockFile {
    /// Returns whether there is such a file for this bucket.
    ///
    /// # Errors
    ///
    /// When this user may not see it.
    pub fn exists(base: &Path, bucket: &str) -> StoreResult<bool> {
        let path = base.join(bucket).join(NAME);
        let text = |error| format!("cannot open {}: {error}", path.display());
        path.try_exists().map_err(|error| StoreErrorKind::Unreachable.error(text(error)))
    }

    /// Returns the tickets that stand.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or others hold its door until the deadline.
    pub fn list(&self, deadline: Instant) -> StoreResult<Vec<StoredTicket>> {
        let alarm = Alarm::new().map_err(|error| self.failed("wait for", &error))?;
        while !self.try_to_enter()? {
            let now = sys::now();
            if now >= deadline {
                let text =
                    format!("{} is in use by a process that does not go on", self.path.display());
                return Err(StoreErrorKind::Unreachable.error(text));
            }
            let until = now.after(DOOR_POLL).min(deadline);
            alarm.wait([], Some(until)).map_err(|error| self.failed("wait for", &error))?;
        }
        let loaded = self.load();
        self.leave()?;
        Ok(self.standing(&loaded?))
    }
}
