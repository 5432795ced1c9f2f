//! The changes in a folder, as inotify(7) reports them.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::folder::{EPOCH, Folder};
use super::text::{self, Kind};
use crate::store::{Hint, StoreResult};

/// Buffer for events, in bytes: 15 of the longest names. Further events wait.
const EVENT_BYTES: usize = 4096;

/// The changes of some keys of a folder, from its making on.
pub(crate) struct Watch {
    /// The queue of events; `None` when the kernel has none left.
    queue: Option<OwnedFd>,
    subscribed: BTreeSet<String>,
    /// Files of events that were read from the kernel and not returned yet.
    changed: BTreeSet<(Kind, String)>,
}

impl Watch {
    /// Begins to watch a folder; returns why that cannot be done, if so.
    pub(crate) fn new(folder: &Folder) -> (Watch, Option<Errno>) {
        let make = || {
            let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let files = WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CREATE;
            let itself = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
            inotify::add_watch(&queue, &folder.path, files | itself)?;
            Ok(queue)
        };
        let made: rustix::io::Result<OwnedFd> = make();
        let why = made.as_ref().err().copied();
        let (subscribed, changed) = (BTreeSet::new(), BTreeSet::new());
        (Watch { queue: made.ok(), subscribed, changed }, why)
    }

    /// Becomes readable when something has changed; `None` if nothing tells of changes.
    pub(crate) fn queue(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Tells of changes of these keys too, from now on.
    pub(crate) fn subscribe(&mut self, keys: &[&str]) {
        self.subscribed.extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// Reads the changes; returns whether a key that is subscribed to has changed, or the whole
    /// bucket.
    pub(crate) fn has_changed(&mut self, folder: &Folder) -> bool {
        self.read_events(folder);
        let has_changed = !std::mem::take(&mut self.changed).is_empty();
        has_changed || folder.is_lost()
    }

    /// Returns the next hint of the events that were read from the kernel.
    pub(super) fn next_hint(&mut self, folder: &Folder) -> Option<Hint> {
        if let Some(why) = folder.lost.get() {
            return Some(Hint::Gone(why.clone()));
        }
        let (kind, key) = self.changed.pop_first()?;
        if kind == Kind::Question {
            return Some(Hint::StatusRequested { reads_requests: false });
        }
        // A record that was removed has no new revision.
        let entry = folder.entry(&key).ok().flatten();
        let is_end = entry.as_ref().is_none_or(|entry| entry.content.is_tombstone());
        Some(Hint::Changed { key, revision: entry.map(|entry| entry.revision), is_end })
    }

    /// Reads events from the kernel, as many as one read returns. If they tell that the folder is
    /// gone, that is noted in it.
    pub(super) fn read_events(&mut self, folder: &Folder) {
        if let Err(error) = self.try_read_events(folder) {
            folder.lose(error.to_string());
        }
    }

    fn try_read_events(&mut self, folder: &Folder) -> StoreResult<()> {
        let Watch { queue: Some(queue), subscribed, changed } = self else { return Ok(()) };
        // The events after which the kernel sends no more events, or those of another folder.
        let moved = ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF;
        let ended = moved | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        let mut verify = false;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(queue, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(folder.failed("watch", "", error)),
            };
            if event.events().intersects(ended) {
                return Err(folder.gone("was moved, removed or unmounted"));
            }
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(subscribed.iter().map(|key| (Kind::Record, key.clone())));
                verify = true;
            }
            let name = event.file_name().map_or(&b""[..], CStr::to_bytes);
            verify |= name == EPOCH.as_bytes();
            let file = str::from_utf8(name).ok().and_then(text::key_of);
            changed.extend(file.filter(|(_, key)| subscribed.contains(key)));
            if events.is_buffer_empty() {
                break;
            }
        }
        if verify { folder.verify() } else { Ok(()) }
    }
}
