//! The file thread: writes the files of the private directory that other processes read. The disk
//! of that directory may hang: then these files are late, and nothing else is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::core::{AgentStatus, Kept};
use crate::guard::{Identity, kept_file, status_file};
use crate::log::panic_if_asked;

/// What is to be written, the newest of each kind.
#[derive(Default)]
struct Pending {
    /// What the next instance has to know of a pause, with its number.
    kept: Option<(u64, Option<Kept>)>,
    /// The status of this agent, and the number of the request for it.
    status: Option<(String, Box<AgentStatus>)>,
    /// The number of the last note of a pause that was written.
    noted: u64,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    /// Something is to be written.
    changed: Condvar,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pump's end of the thread.
pub(super) struct FileHandle {
    dir: PathBuf,
    identity: Identity,
    /// The number of the last note of a pause that was ordered.
    ordered: u64,
    shared: Arc<Shared>,
    /// The thread is there. It begins with the first file: most agents write none.
    runs: bool,
}

impl FileHandle {
    /// Makes the handle for the private directory of an agent.
    pub(super) fn new(dir: PathBuf, identity: Identity) -> FileHandle {
        FileHandle { dir, identity, ordered: 0, shared: Arc::default(), runs: false }
    }

    /// Has that noted what the next instance has to know of a pause, see
    /// [`crate::core::Effect::NoteKept`].
    pub(super) fn note_kept(&mut self, kept: Option<Kept>) {
        self.ordered += 1;
        self.shared.pending().kept = Some((self.ordered, kept));
        if let Err(error) = self.start() {
            warn_not_noted(&error);
        }
    }

    /// Returns whether the last note of a pause was written.
    pub(super) fn is_kept_noted(&self) -> bool {
        self.shared.pending().noted == self.ordered
    }

    /// Has the status written for the request of this number. Best effort: it is requested again.
    pub(super) fn write_status(&mut self, number: &str, status: AgentStatus) {
        self.shared.pending().status = Some((number.to_owned(), Box::new(status)));
        let _ = self.start();
    }

    /// Has the thread look at what is to be written.
    fn start(&mut self) -> io::Result<()> {
        if !self.runs {
            let (dir, identity) = (self.dir.clone(), self.identity.clone());
            let shared = Arc::clone(&self.shared);
            let work = move || serve(&dir, &identity, &shared);
            thread::Builder::new().name("putex-files".to_owned()).spawn(work)?;
            self.runs = true;
        }
        self.shared.changed.notify_one();
        Ok(())
    }
}

/// Writes what is to be written, for as long as the agent lives.
fn serve(dir: &Path, identity: &Identity, shared: &Shared) {
    loop {
        let is_idle = |it: &mut Pending| it.kept.is_none() && it.status.is_none();
        let waited = shared.changed.wait_while(shared.pending(), is_idle);
        let mut pending = waited.unwrap_or_else(PoisonError::into_inner);
        let (kept, status) = (pending.kept.clone(), pending.status.take());
        drop(pending);
        panic_if_asked("putex-files");
        if let Some((number, kept)) = kept {
            let noted = kept_file::write(dir, kept.as_ref());
            let mut pending = shared.pending();
            // A later one may have been ordered meanwhile.
            pending.kept.take_if(|(latest, _)| *latest == number);
            match noted {
                Ok(()) => pending.noted = number,
                Err(error) => warn_not_noted(&error),
            }
        }
        if let Some((number, status)) = status {
            let _ = status_file::write(dir, identity, &number, *status);
        }
    }
}

fn warn_not_noted(error: &io::Error) {
    log::warn!(
        "the pause is not acknowledged: it cannot be noted for the next instance of this agent: \
         {error}"
    );
}
