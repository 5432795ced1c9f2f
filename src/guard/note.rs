//! What a guard notes for the next guard: whether the service may be up, and which
//! commands run. It stands in the file that the guard locks, so who reads it as the holder of
//! the lock knows that the writer is dead.
//!
//! Start waits for its release until it is noted, so no start of a dead guard is unknown to the
//! next one. Each note has its slot in the file and is written at once.
//!
//! ```text
//!                 start is spawned             it has ended          stop has succeeded
//!  Unknown, Down -----------------> Starting ----------------> Up --------------------> Down
//! ```

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};

use super::instance_dir::GUARD_LOCK;
use super::private_file;
use crate::core::{Command, Instant, Timing};
use crate::sys::{self, kill_with_group, start_ticks};

/// The first line; the boot follows.
const FORMAT: &str = "putex guard 2 ";

/// Bytes of one slot of the file.
const SLOT_BYTES: usize = 64;

/// Slots: the head, the times, the service, stop, the last resort. The control groups follow.
const TIMES: usize = 1;
const SERVICE: usize = 2;
const STOP: usize = 3;
const LAST_RESORT: usize = 4;
const CGROUP: usize = 5;

/// What the line of a control group begins with; its directory follows.
const CGROUP_WORD: &str = "cgroup ";

/// What the line of the times begins with; R in microseconds, F, C, and the drift in parts per
/// million follow.
const TIMES_WORD: &str = "times ";

/// What the line of a command begins with; its process follows.
const RUN_WORD: &str = "run ";

/// Time in which a process was started is noted in ticks since boot, as the kernel tells it.
const TICK_MS: u128 = 10;

/// What stands in the slot of the service. After the third its start follows.
const UP: &str = "service up";
const DOWN: &str = "service down";
const STARTING: &str = "service starting ";
const UNKNOWN: &str = "service unknown";

/// Longest file that is read.
const BYTES_MAX: usize = 8192;

/// What is noted of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Service {
    /// No guard of this boot has started it; it is not known what was before the first one.
    #[default]
    Unknown,
    /// It is down.
    Down,
    /// A start was spawned that has not ended. One that does not succeed ends with its session,
    /// though its leader, which is noted, is gone.
    Starting(NotedProcess),
    /// A guard of this boot has started it.
    Up,
}

/// A process that was noted, so that it is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotedProcess {
    number: Pid,
    /// It was started at one of these ticks since boot.
    ticks: RangeInclusive<u64>,
}

/// What is to be noted.
#[derive(Debug)]
pub(crate) enum Fact {
    /// The service is down.
    Down,
    /// The times under which the service may run.
    Times(Timing),
    /// A command was spawned. After a start the service may be up.
    Command(Command, NotedProcess),
    /// Start has ended: it has succeeded, or its session has ended.
    StartEnded,
}

/// The notes of this guard. One thread writes them, in the order in which it is told.
pub(crate) struct Note {
    file: File,
    service: Service,
}

/// The state that the previous guard has noted.
#[derive(Debug, Default)]
pub(crate) struct PreviousGuard {
    pub(crate) service: Service,
    /// The times under which that guard let the service run.
    pub(crate) times: Option<Timing>,
    /// Its control groups: its own, and those of guards before it that it has not seen empty.
    pub(crate) cgroups: Vec<PathBuf>,
    /// The stop and the last resort that it ran last.
    pub(crate) commands: Vec<NotedProcess>,
}

impl Note {
    /// Reads what the previous guard has noted, and begins the notes of this one. The file is
    /// locked.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn begin(file: File) -> io::Result<(Note, PreviousGuard)> {
        let boot = sys::boot_id();
        let mut text = vec![0; BYTES_MAX];
        let count = file.read_at(&mut text, 0)?;
        let text = &text[..count];
        let previous = parse(text, &boot);
        let note = Note { file, service: previous.service.clone() };
        let known = if is_of_boot(text, &boot) {
            count
        } else {
            // What another boot has noted must not be taken for a note of this one.
            note.file.set_len(0)?;
            0
        };
        note.write(0, &format!("{FORMAT}{boot}"), 1)?;
        let times = previous.times.map(times_line).unwrap_or_default();
        note.write(TIMES, &times, 1)?;
        note.write(SERVICE, &note.service.to_string(), 1)?;
        // So that there is room for all later notes. Commands of the previous guard stay noted
        // for the next guard, should this one be killed before it has killed them.
        for slot in (STOP..CGROUP).filter(|slot| known < (slot + 1) * SLOT_BYTES) {
            note.write(slot, "", 1)?;
        }
        Ok((note, previous))
    }

    /// Notes a fact.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn enter(&mut self, fact: Fact) -> io::Result<()> {
        match fact {
            Fact::Down => self.set_service(Service::Down),
            Fact::Command(Command::Start, process) => self.set_service(Service::Starting(process)),
            Fact::StartEnded => match self.service {
                Service::Starting(_) => self.set_service(Service::Up),
                // It was down before a start ended that has not begun.
                Service::Unknown | Service::Down | Service::Up => Ok(()),
            },
            Fact::Times(times) => self.write(TIMES, &times_line(times), 1),
            Fact::Command(command, process) => {
                let slot = if command == Command::Stop { STOP } else { LAST_RESORT };
                self.write(slot, &format!("{RUN_WORD}{process}"), 1)
            }
        }
    }

    fn set_service(&mut self, service: Service) -> io::Result<()> {
        self.service = service;
        self.write(SERVICE, &self.service.to_string(), 1)
    }

    /// Notes the control groups in which the service may be, a line each. Without any, those of
    /// the previous guard stay noted.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn cgroups<'a>(&self, dirs: impl Iterator<Item = &'a Path>) -> io::Result<()> {
        let lines: Vec<_> = dirs.map(|dir| format!("{CGROUP_WORD}{}", dir.display())).collect();
        if lines.is_empty() {
            return Ok(());
        }
        let text = lines.join("\n");
        let slots = text.len() / SLOT_BYTES + 1;
        self.write(CGROUP, &text, slots)?;
        self.file.set_len(((CGROUP + slots) * SLOT_BYTES) as u64)
    }

    fn write(&self, slot: usize, text: &str, slots: usize) -> io::Result<()> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(slots * SLOT_BYTES - 1, b' ');
        bytes.push(b'\n');
        self.file.write_all_at(&bytes, (slot * SLOT_BYTES) as u64)
    }
}

impl PreviousGuard {
    /// Kills the commands that the previous guard was running, with their groups. A process that
    /// has ended since has left in its group what it left on purpose.
    ///
    /// Returns the session of its start, if that has not ended: there may be others than its
    /// leader, which was killed now or is gone.
    pub(crate) fn kill_commands(&self) -> Option<Pid> {
        let start = match &self.service {
            Service::Starting(start) => Some(start),
            Service::Unknown | Service::Down | Service::Up => None,
        };
        for command in self.commands.iter().chain(start) {
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
    fn parse(line: &str) -> Service {
        match line {
            UP => Service::Up,
            DOWN => Service::Down,
            UNKNOWN => Service::Unknown,
            line => match line.strip_prefix(STARTING).and_then(NotedProcess::parse) {
                // Whose number was given again has left nobody in its session.
                Some(start) if !start.number_was_given_again() => Service::Starting(start),
                // What is damaged may have said so.
                Some(_) | None => Service::Up,
            },
        }
    }

    /// Returns whether a guard of this boot has started it, and none has noted since that it was
    /// down.
    pub(crate) fn was_started(&self) -> bool {
        matches!(self, Service::Starting(_) | Service::Up)
    }
}

impl Display for Service {
    fn fmt(&self, line: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Service::Unknown => line.write_str(UNKNOWN),
            Service::Down => line.write_str(DOWN),
            Service::Starting(start) => write!(line, "{STARTING}{start}"),
            Service::Up => line.write_str(UP),
        }
    }
}

impl NotedProcess {
    /// A process that was spawned between `since` and now.
    pub(crate) fn spawned(number: Pid, since: Instant) -> NotedProcess {
        let tick = |at: Instant| (at.since_boot().as_millis() / TICK_MS) as u64;
        NotedProcess { number, ticks: tick(since)..=tick(sys::now()) }
    }

    fn parse(text: &str) -> Option<NotedProcess> {
        let mut fields = text.split(' ');
        let number = fields.next()?.parse().ok().filter(|number| *number > 1)?;
        let mut tick = || fields.next()?.parse().ok();
        Some(NotedProcess { number: Pid::from_raw(number)?, ticks: tick()?..=tick()? })
    }

    /// Returns the process if it is there.
    fn find(&self) -> Option<OwnedFd> {
        let exit = rustix::process::pidfd_open(self.number, PidfdFlags::empty()).ok()?;
        // After it was opened: a number that was given again shows another start time.
        self.ticks.contains(&start_ticks(self.number)?).then_some(exit)
    }

    /// Returns whether another process has its number. The kernel gives none again of which there
    /// is a process, a group or a session.
    fn number_was_given_again(&self) -> bool {
        start_ticks(self.number).is_some_and(|ticks| !self.ticks.contains(&ticks))
    }
}

impl Display for NotedProcess {
    fn fmt(&self, text: &mut Formatter<'_>) -> fmt::Result {
        let NotedProcess { number, ticks } = self;
        write!(text, "{} {} {}", number.as_raw_nonzero(), ticks.start(), ticks.end())
    }
}

/// Returns what stands in a file, if a guard of this boot has written it. Without such a note
/// the service may be up: the host's init system or a person may have started it. A note of another
/// version, or one that is damaged, counts as that of a guard that has started it.
pub(crate) fn parse(text: &[u8], boot: &str) -> PreviousGuard {
    if !is_of_boot(text, boot) {
        let head = line_at(text, 0);
        let is_of_another_boot = text.is_empty() || boot.is_empty() || head.starts_with(FORMAT);
        let service = if is_of_another_boot { Service::Unknown } else { Service::Up };
        return PreviousGuard { service, ..PreviousGuard::default() };
    }
    let commands = [STOP, LAST_RESORT]
        .into_iter()
        .filter_map(|slot| NotedProcess::parse(line_at(text, slot).strip_prefix(RUN_WORD)?));
    PreviousGuard {
        service: Service::parse(&line_at(text, SERVICE)),
        times: times(text),
        cgroups: cgroups(text.get(CGROUP * SLOT_BYTES..).unwrap_or_default()),
        commands: commands.collect(),
    }
}

/// Returns the times that a guard has noted in its file in this directory, if it is of this boot.
pub(crate) fn times_in(dir: &Path) -> Option<Timing> {
    let mut text = vec![0; (SERVICE + 1) * SLOT_BYTES];
    let count = private_file::open(&dir.join(GUARD_LOCK)).ok()?.read_at(&mut text, 0).ok()?;
    let text = &text[..count];
    is_of_boot(text, &sys::boot_id()).then(|| times(text)).flatten()
}

/// Returns the times of a note. Those of a service that is down count no more.
fn times(text: &[u8]) -> Option<Timing> {
    parse_times(&line_at(text, TIMES)).filter(|_| line_at(text, SERVICE) != DOWN)
}

/// Returns the line of times.
fn times_line(times: Timing) -> String {
    let (renewal, drift) = (times.renewal().as_micros(), times.drift_ppm());
    format!("{TIMES_WORD}{renewal} {} {} {drift}", times.failures(), times.confirmations())
}

/// Returns the times of a line, if it is such a line.
fn parse_times(line: &str) -> Option<Timing> {
    let mut numbers = line.strip_prefix(TIMES_WORD)?.split(' ');
    let renewal = Duration::from_micros(numbers.next()?.parse().ok()?);
    let mut number = || numbers.next()?.parse().ok();
    Timing::new(renewal, number()?, number()?, number()?).ok()
}

/// Returns the line in a slot.
fn line_at(text: &[u8], slot: usize) -> String {
    let bytes = text.get(slot * SLOT_BYTES..).unwrap_or_default();
    let line = bytes.split(|byte| *byte == b'\n').next();
    String::from_utf8_lossy(line.unwrap_or_default()).trim_end().to_owned()
}

/// Returns the control groups of a note, of which a line each stands in `text`.
fn cgroups(text: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(text);
    let dirs = text.lines().filter_map(|line| line.strip_prefix(CGROUP_WORD));
    dirs.map(|dir| PathBuf::from(dir.trim_end())).collect()
}

/// Returns whether a guard of this boot has written a note. Processes of another boot, or of
/// a boot without a name, are nobody's.
fn is_of_boot(text: &[u8], boot: &str) -> bool {
    !boot.is_empty() && line_at(text, 0).strip_prefix(FORMAT) == Some(boot)
}

#[cfg(test)]
mod tests;
