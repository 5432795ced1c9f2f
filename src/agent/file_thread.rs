//! The file thread: writes the status of the agent into the private directory, where other
//! processes read it. The disk of that directory may hang: then the file is late, and nothing else
//! is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::core::{AgentStatus, Instant};
use crate::guard::{Identity, status_file};
use crate::log::panic_if_asked;
use crate::sys::start_thread;

/// The status of this agent that is to be written, and when it was so.
type Status = Option<(Instant, Box<AgentStatus>)>;

#[derive(Default)]
struct Shared {
    pending: Mutex<Status>,
    /// Something is to be written.
    changed: Condvar,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Status> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pump's end of the thread.
pub(super) struct FileHandle {
    dir: PathBuf,
    identity: Identity,
    shared: Arc<Shared>,
    /// The thread is there. It begins with the first file: most agents write none.
    runs: bool,
}

impl FileHandle {
    /// Makes the handle for the private directory of an agent.
    pub(super) fn new(dir: PathBuf, identity: Identity) -> FileHandle {
        FileHandle { dir, identity, shared: Arc::default(), runs: false }
    }

    /// Has the status written, as it is now. Best effort: it is requested again.
    pub(super) fn write_status(&mut self, now: Instant, status: AgentStatus) {
        *self.shared.pending() = Some((now, Box::new(status)));
        let _ = self.start();
    }

    /// Has the thread look at what is to be written.
    fn start(&mut self) -> io::Result<()> {
        if !self.runs {
            let (dir, identity) = (self.dir.clone(), self.identity.clone());
            let shared = Arc::clone(&self.shared);
            let work = move || serve(&dir, &identity, &shared);
            start_thread("putex-files", work)?;
            self.runs = true;
        }
        self.shared.changed.notify_one();
        Ok(())
    }
}

/// Writes what is to be written, for as long as the agent lives.
fn serve(dir: &Path, identity: &Identity, shared: &Shared) {
    loop {
        let waited = shared.changed.wait_while(shared.pending(), |pending| pending.is_none());
        let status = waited.unwrap_or_else(PoisonError::into_inner).take();
        panic_if_asked("putex-files");
        if let Some((at, status)) = status {
            let _ = status_file::write(dir, identity, at, *status);
        }
    }
}
