//! The file thread: writes the status of the agent into the private directory, where other
//! processes read it. If the disk of that directory hangs, only the file is late.

use std::io;
use std::path::PathBuf;

use super::inbox::{NewestSender, newest_inbox};
use crate::core::{AgentStatus, Instant};
use crate::guard::{Identity, status_file};
use crate::log::panic_if_asked;
use crate::sys::start_thread;

type Status = (Instant, Box<AgentStatus>);

/// The pump's end of the thread.
pub(super) struct FileHandle {
    dir: PathBuf,
    identity: Identity,
    /// The queue of the thread, which the first status starts: most agents write none.
    statuses: Option<NewestSender<Status>>,
}

impl FileHandle {
    /// Makes the handle for the private directory of an agent.
    pub(super) fn new(dir: PathBuf, identity: Identity) -> FileHandle {
        FileHandle { dir, identity, statuses: None }
    }

    /// Has the present status written. Best effort: its reader requests it again.
    pub(super) fn write_status(&mut self, now: Instant, status: AgentStatus) {
        if self.statuses.is_none() {
            self.statuses = self.start().ok();
        }
        if let Some(statuses) = &self.statuses {
            statuses.send((now, Box::new(status)));
        }
    }

    /// Starts the thread, which writes for as long as the agent lives.
    fn start(&self) -> io::Result<NewestSender<Status>> {
        let (sender, statuses) = newest_inbox(1)?;
        let (dir, identity) = (self.dir.clone(), self.identity.clone());
        let work = move || {
            loop {
                let (at, status): Status = statuses.next();
                panic_if_asked("putex-files");
                let _ = status_file::write(&dir, &identity, at, *status);
            }
        };
        start_thread("putex-files", work)?;
        Ok(sender)
    }
}
