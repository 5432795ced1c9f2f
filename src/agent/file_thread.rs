//! The file thread: writes the status of the agent into the private directory, where other
//! processes read it. The disk of that directory may hang: then the file is late, and nothing else
//! is.

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
    /// The statuses to write.
    statuses: NewestSender<Status>,
}

impl FileHandle {
    /// Starts the thread, which writes into the private directory of an agent for as long as the
    /// agent lives.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub(super) fn start(dir: PathBuf, identity: Identity) -> io::Result<FileHandle> {
        let (sender, statuses) = newest_inbox(1)?;
        let work = move || {
            loop {
                let (at, status): Status = statuses.next();
                panic_if_asked("putex-files");
                let _ = status_file::write(&dir, &identity, at, *status);
            }
        };
        start_thread("putex-files", work)?;
        Ok(FileHandle { statuses: sender })
    }

    /// Has the present status written. Best effort: it is requested again.
    pub(super) fn write_status(&self, now: Instant, status: AgentStatus) {
        self.statuses.send((now, Box::new(status)));
    }
}
