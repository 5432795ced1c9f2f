//! The notes of a guard for the next guard: whether the service may be up, and which commands run.
//! They stand as JSON in the file that the guard locks, so a reader that holds the lock knows that
//! the writer is dead.
//!
//! Start waits for its release until it is noted, so no start of a dead guard is unknown to the
//! next one. Each fact is noted at once, by one write over all notes before.
//!
//! ```text
//!                 start is spawned             it has ended          stop has succeeded
//!  Unknown, Down -----------------> Starting ----------------> Up --------------------> Down
//! ```

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crossbeam_channel::{Sender, bounded};
use rustix::process::{Pid, PidfdFlags};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::core::{Command, Instant, Timing};
use crate::sys::{self, kill_with_group, private_file, start_small_thread, start_ticks};

/// Milliseconds of a tick, in which the kernel gives the start of a process since boot.
const TICK_MS: u128 = 10;

/// Least bytes of the file, which blanks fill up: so the disk has room for all later notes.
const ROOM: usize = 512;

/// Longest file that is read: paths of control groups may be long.
const BYTES_MAX: usize = 64 * ROOM;

/// Notes that may wait. More are lost.
const ORDERS_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    /// No guard of this boot has started the service; its state before the first guard is unknown.
    #[default]
    Unknown,
    Down,
    /// A start was spawned and has not ended. A start that fails has ended only when its session
    /// has, even if the noted process, which leads the session, is gone.
    Starting(NotedProcess),
    /// A guard of this boot has started the service.
    Up,
}

/// A process that was noted so that it is found again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotedProcess {
    #[serde(serialize_with = "write_pid", deserialize_with = "read_pid")]
    number: Pid,
    /// The process was started at one of these ticks since boot.
    ticks: RangeInclusive<u64>,
}

#[derive(Debug)]
pub(crate) enum Fact {
    Down,
    /// The times under which the service may run.
    Times(Timing),
    /// A command was spawned. After a start the service may be up.
    Command(Command, NotedProcess),
    /// Start has ended: it has succeeded, or its session has ended.
    StartEnded,
}

/// The notes of the guards of one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noted {
    boot: String,
    pub(crate) service: Service,
    /// The times under which the service was last let run.
    times: Option<Timing>,
    /// The control groups of the guard: its own, and those of guards before it that it has not
    /// seen empty.
    pub(crate) cgroups: Vec<PathBuf>,
    /// The stop that was run last.
    stop: Option<NotedProcess>,
    /// The last resort that was run last.
    last_resort: Option<NotedProcess>,
}

/// The notes of this guard. One thread writes them, in the order in which it is told.
pub(crate) struct Note {
    file: File,
    noted: Noted,
}

impl Note {
    /// Reads the notes of the previous guard, and begins the notes of this one. The file is locked.
    /// The commands and control groups of the previous guard stay noted for the next guard, should
    /// this one be killed before it has killed them.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full, or it cannot be known whether the note is of this
    /// boot: then the note stands.
    pub(crate) fn begin(file: File) -> io::Result<(Note, Noted)> {
        sys::check_proc()?;
        let boot = sys::boot_id()?;
        let previous = parse(&read(&file)?, &boot);
        let note = Note { file, noted: Noted { boot, ..previous.clone() } };
        note.write()?;
        Ok((note, previous))
    }

    /// Notes a fact.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn enter(&mut self, fact: Fact) -> io::Result<()> {
        let noted = &mut self.noted;
        match fact {
            Fact::Down => noted.service = Service::Down,
            Fact::Times(times) => noted.times = Some(times),
            Fact::Command(Command::Start, process) => noted.service = Service::Starting(process),
            Fact::Command(Command::Stop, process) => noted.stop = Some(process),
            Fact::Command(_, process) => noted.last_resort = Some(process),
            Fact::StartEnded => match noted.service {
                Service::Starting(_) => noted.service = Service::Up,
                // A start that has not begun was not noted.
                Service::Unknown | Service::Down | Service::Up => return Ok(()),
            },
        }
        self.write()
    }

    /// Notes the control groups in which the service may be. Without any, those of the previous
    /// guard stay noted.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn cgroups(&mut self, dirs: Vec<PathBuf>) -> io::Result<()> {
        if dirs.is_empty() {
            return Ok(());
        }
        self.noted.cgroups = dirs;
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let mut text = serde_json::to_vec(&self.noted)?;
        text.resize(text.len().max(ROOM - 1), b' ');
        text.push(b'\n');
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }
}

/// A fact to note, and the receiver of the result.
struct Order {
    fact: Fact,
    written: Option<Sender<io::Result<()>>>,
}

/// The guard's end of the thread that writes all notes, one after another: none is written over a
/// later one.
///
/// The disk that has the private directory may hang. A thread that has a deadline leaves its notes
/// to this one. A note that is late or lost then costs the next guard little: it runs stop although
/// the service is down, or beside a stop or a last resort of this guard, or it ends the session of
/// a start that has ended by itself, and with it a service that is still in that session.
#[derive(Clone)]
pub(super) struct NoteThread {
    orders: Sender<Order>,
}

impl NoteThread {
    /// Starts the thread. The thread keeps the lock.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub(super) fn start(mut note: Note) -> io::Result<NoteThread> {
        let (orders, ordered) = bounded::<Order>(ORDERS_MAX);
        let work = move || {
            for Order { fact, written } in ordered {
                let result = note.enter(fact);
                if let Some(written) = written {
                    let _ = written.send(result);
                }
            }
        };
        start_small_thread("putex-note", work)?;
        Ok(NoteThread { orders })
    }

    /// Has a fact noted; returns whether there is room. A note that cannot be written is lost.
    pub(super) fn order(&self, fact: Fact) -> bool {
        self.orders.try_send(Order { fact, written: None }).is_ok()
    }

    /// Has a fact noted, and waits until it is written, which a disk that hangs prevents.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(super) fn write(&self, fact: Fact) -> io::Result<()> {
        let (written, result) = bounded(1);
        let order = Order { fact, written: Some(written) };
        let _ = self.orders.send(order);
        result.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that notes has ended")))
    }
}

impl Noted {
    /// Returns the times under which the service may run. The times of a service that is down count
    /// no more.
    pub(crate) fn times(&self) -> Option<Timing> {
        self.times.filter(|_| self.service != Service::Down)
    }

    /// Kills the commands that the previous guard was running, with their groups. If a command has
    /// ended since, the processes that it has left in its group stay.
    ///
    /// Returns the session of the guard's start, if that has not ended: there may be others in it
    /// than its leader, which was killed now or is gone.
    pub(crate) fn kill_commands(&self) -> Option<Pid> {
        let start = if let Service::Starting(start) = &self.service { Some(start) } else { None };
        for command in self.stop.iter().chain(&self.last_resort).chain(start) {
            if let Some(exit) = command.find()
                && !sys::is_ready(&exit)
            {
                kill_with_group(command.number, &exit);
            }
        }
        start.map(|start| start.number)
    }
}

impl Service {
    /// Returns whether a guard of this boot has started the service, and none has noted since that
    /// it was down.
    pub(crate) fn was_started(&self) -> bool {
        matches!(self, Service::Starting(_) | Service::Up)
    }
}

impl NotedProcess {
    /// A process that was spawned between `since` and now.
    pub(crate) fn spawned(number: Pid, since: Instant) -> NotedProcess {
        let tick = |at: Instant| (at.since_boot().as_millis() / TICK_MS) as u64;
        NotedProcess { number, ticks: tick(since)..=tick(sys::now()) }
    }

    /// Returns the process if it is there.
    fn find(&self) -> Option<OwnedFd> {
        let exit = rustix::process::pidfd_open(self.number, PidfdFlags::empty()).ok()?;
        // The start time is read after the process was opened: a number that was given again shows
        // another start time.
        self.ticks.contains(&start_ticks(self.number)?).then_some(exit)
    }

    /// Returns whether another process has the number. The kernel reuses no number of a process, a
    /// group or a session that is there.
    fn number_was_given_again(&self) -> bool {
        start_ticks(self.number).is_some_and(|ticks| !self.ticks.contains(&ticks))
    }
}

fn write_pid<S: Serializer>(number: &Pid, out: S) -> Result<S::Ok, S::Error> {
    number.as_raw_pid().serialize(out)
}

fn read_pid<'de, D: Deserializer<'de>>(input: D) -> Result<Pid, D::Error> {
    let number = Some(i32::deserialize(input)?).filter(|number| *number > 1);
    number.and_then(Pid::from_raw).ok_or_else(|| D::Error::custom("it is no command"))
}

/// Returns the notes in a file, if a guard of this boot has written them. Without such a note the
/// service may be up: the host's init system or a person may have started it. A note of another
/// version, or one that is damaged, counts as that of a guard that has started the service.
pub(crate) fn parse(text: &[u8], boot: &str) -> Noted {
    let service = match serde_json::from_slice::<Noted>(text) {
        Ok(noted) if noted.boot == boot => match &noted.service {
            // A start whose number was given again has left no process in its session.
            Service::Starting(start) if start.number_was_given_again() => {
                return Noted { service: Service::Up, ..noted };
            }
            Service::Unknown | Service::Down | Service::Starting(_) | Service::Up => return noted,
        },
        Ok(_) => Service::Unknown,
        Err(_) if text.is_empty() => Service::Unknown,
        Err(_) => Service::Up,
    };
    Noted { service, ..Noted::default() }
}

/// Returns the times that a guard has noted in this file, if it is of this boot.
pub(super) fn times_in(file: &Path) -> Option<Timing> {
    let file = private_file::open(file).ok()?;
    parse(&read(&file).ok()?, &sys::boot_id().ok()?).times()
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0; BYTES_MAX];
    let count = file.read_at(&mut text, 0)?;
    text.truncate(count);
    Ok(text)
}

#[cfg(test)]
mod tests;
