//! The status of the agent in its private directory, where other processes read it. If the disk of
//! that directory hangs, only the file is late.

use std::path::PathBuf;

use super::task::Task;
use crate::core::{AgentStatus, Instant};
use crate::guard::{Identity, status_file};

/// The file with the status.
pub(super) struct StatusFile {
    dir: PathBuf,
    identity: Identity,
    /// The last write.
    writing: Option<Task<()>>,
}

impl StatusFile {
    /// Returns the file in the private directory of an agent.
    pub(super) fn new(dir: PathBuf, identity: Identity) -> StatusFile {
        StatusFile { dir, identity, writing: None }
    }

    /// Has the present status written, unless a write is under way: its reader requests it again.
    pub(super) fn write(&mut self, now: Instant, status: AgentStatus) {
        if self.writing.as_ref().is_none_or(|writing| writing.outcome().is_some()) {
            let (dir, identity) = (self.dir.clone(), self.identity.clone());
            let work = move || drop(status_file::write(&dir, &identity, now, status));
            self.writing = Task::start("putex-status", work).ok();
        }
    }
}
