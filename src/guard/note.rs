//! What a guard notes for the next guard: whether the service may be up, and which
//! commands run. It stands in the file that the guard locks, so who reads it as the holder of
//! the lock knows that the writer is dead.
//!
//! A command waits for its release until it is noted, so no command of a dead guard is
//! unknown to the next one. Each note has its slot in the file and is written at once.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};

use super::instance_dir::GUARD_LOCK;
use super::private_file;
use crate::core::{Command, Instant, Timing};
use crate::sys::{self, kill_with_group, start_ticks};

/// The first line; the boot follows.
const FORMAT: &str = "putex guard 1 ";

/// Bytes of one slot of the file.
const SLOT_BYTES: usize = 64;

/// Slots: the head, the times, the service, then start, stop and the last resort as in
/// [`Command::ALL`], where the service has the slot of the health check. The control groups
/// follow.
const TIMES: usize = 1;
const SERVICE: usize = 2;
const CGROUP: usize = SERVICE + Command::OnChange as usize;

/// What the line of a control group begins with; its directory follows.
const CGROUP_WORD: &str = "cgroup ";

/// What the line of the times begins with; R in microseconds, F, C, and the drift in parts per
/// million follow.
const TIMES_WORD: &str = "times ";

/// Time in which a process was started is noted in ticks since boot, as the kernel tells it.
const TICK_MS: u128 = 10;

/// What stands in the slot of the service. A guard of this boot has started it; it is not known
/// what was before the first guard of this boot; it is down.
const UP: &str = "service up";
const UNKNOWN: &str = "service unknown";
const DOWN: &str = "service down";

/// Longest file that is read.
const BYTES_MAX: usize = 8192;

/// The notes of this guard.
pub(crate) struct Note {
    file: File,
    /// Starts that were noted, or are being noted.
    starts: AtomicU64,
    /// One thread at a time notes whether the service is up.
    service: Mutex<()>,
}

/// The state that the previous guard has noted.
#[derive(Debug, Default)]
pub(crate) struct PreviousGuard {
    /// The service may be up.
    pub(crate) up: bool,
    /// A guard of this boot has started the service, and none has noted since that it was down.
    pub(crate) left_up: bool,
    /// The times under which that guard let the service run.
    pub(crate) times: Option<Timing>,
    /// Its control groups: its own, and those of guards before it that it has not seen empty.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Its commands that have not ended.
    pub(crate) running: Vec<(Command, Pid, OwnedFd)>,
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
        let note = Note { file, starts: AtomicU64::default(), service: Mutex::default() };
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
        note.write(SERVICE, service_line(&previous), 1)?;
        // So that there is room for all later notes. Commands of the previous guard stay noted
        // for the next guard, should this one be killed before it has killed them.
        for slot in (SERVICE + 1..CGROUP).filter(|slot| known < (slot + 1) * SLOT_BYTES) {
            note.write(slot, "", 1)?;
        }
        Ok((note, previous))
    }

    /// Returns how many starts were noted, or are being noted.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Acquire)
    }

    /// Notes that the service is down, if no start was noted since there were so many.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn down(&self, starts: u64) -> io::Result<()> {
        let _service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        if starts == self.starts() { self.write(SERVICE, DOWN, 1) } else { Ok(()) }
    }

    /// Notes the times under which the service may run.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn times(&self, times: Timing) -> io::Result<()> {
        self.write(TIMES, &times_line(times), 1)
    }

    /// Notes a command that was spawned between `since` and now; after a start the service may
    /// be up.
    ///
    /// # Errors
    ///
    /// When the file system fails or is full.
    pub(crate) fn command(&self, command: Command, process: Pid, since: Instant) -> io::Result<()> {
        let tick = |at: Instant| at.since_boot().as_millis() / TICK_MS;
        let (from, until) = (tick(since), tick(sys::now()));
        let line = format!("run {} {from} {until}", process.as_raw_nonzero());
        if command == Command::Start {
            // Before the lock: whoever has it noted that the service was down until now.
            self.starts.fetch_add(1, Ordering::AcqRel);
            let _service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
            let width = SLOT_BYTES - 1;
            return self.write(SERVICE, &format!("{UP:width$}\n{line}"), 2);
        }
        self.write(SERVICE + command as usize, &line, 1)
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
    /// Returns its start, and what becomes readable when that has ended, if that was killed just
    /// now. Its session is to be ended.
    pub(crate) fn kill_commands(&mut self) -> Option<(Pid, OwnedFd)> {
        let mut start = None;
        for (command, process, exit) in self.running.drain(..) {
            if sys::is_ready(&exit) {
                continue;
            }
            kill_with_group(process, &exit);
            if command == Command::Start {
                start = Some((process, exit));
            }
        }
        start
    }
}

/// Returns what stands in a file, if a guard of this boot has written it. Without such a note
/// the service may be up: another version, the host's init system or a person may have
/// started it.
pub(crate) fn parse(text: &[u8], boot: &str) -> PreviousGuard {
    let line = |slot| line_at(text, slot);
    if !is_of_boot(text, boot) {
        return PreviousGuard { up: true, ..PreviousGuard::default() };
    }
    let running = [Command::Start, Command::Stop, Command::LastResort].into_iter();
    let running = running.filter_map(|command| {
        let (process, exit) = find_process(&line(SERVICE + command as usize))?;
        Some((command, process, exit))
    });
    PreviousGuard {
        up: line(SERVICE) != DOWN,
        left_up: line(SERVICE) == UP,
        times: times(text),
        cgroups: cgroups(text.get(CGROUP * SLOT_BYTES..).unwrap_or_default()),
        running: running.collect(),
    }
}

/// Returns what the next guard notes of the service.
fn service_line(previous: &PreviousGuard) -> &'static str {
    match (previous.up, previous.left_up) {
        (true, true) => UP,
        (true, false) => UNKNOWN,
        (false, _) => DOWN,
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

/// Returns the process of a note if it is still the same.
fn find_process(line: &str) -> Option<(Pid, OwnedFd)> {
    let mut fields = line.strip_prefix("run ")?.split(' ');
    let process = Pid::from_raw(fields.next()?.parse().ok().filter(|number| *number > 1)?)?;
    let (from, until): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let exit = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()?;
    // After it was opened: a number that was given again shows another start time.
    (from..=until).contains(&start_ticks(process)?).then_some((process, exit))
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::sys::{Alarm, PollFlags};

    const BOOT: Instant = Instant::from_boot(Duration::ZERO);

    fn file(name: &str) -> File {
        let name = format!("putex-note-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("the temporary directory can be written");
        std::fs::remove_file(path).expect("it is there");
        file
    }

    fn parse_file(file: &File) -> PreviousGuard {
        let mut text = vec![0; 4096];
        let count = file.read_at(&mut text, 0).expect("it is there");
        parse(&text[..count], &sys::boot_id())
    }

    #[test]
    fn the_next_guard_learns_what_the_previous_one_has_noted() {
        let file = file("next");
        let (note, previous) =
            Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        assert!(previous.up && previous.running.is_empty() && previous.cgroups.is_empty());
        // Nobody has started it in this boot, as far as guards know.
        assert!(!previous.left_up && !parse_file(&file).left_up && parse_file(&file).up);
        note.down(0).expect("there is room");
        let begun = Note::begin(file.try_clone().expect("a descriptor"));
        assert!(!begun.expect("a note").1.up && !parse_file(&file).up);
        note.write(SERVICE, UP, 1).expect("there is room");
        let own = rustix::process::getpid();
        note.command(Command::Stop, own, BOOT).expect("there is room");
        let long = format!("/sys/fs/cgroup/{}/putex-1", "x".repeat(300));
        let short = format!("/sys/fs/cgroup/{}/putex-1", "y".repeat(20));
        let dirs = [Path::new(&long), Path::new(&short)];
        note.cgroups(dirs.into_iter()).expect("there is room");
        assert_eq!(parse_file(&file).cgroups, dirs);
        note.cgroups(dirs.into_iter().skip(1)).expect("there is room");
        note.cgroups(iter::empty()).expect("it was noted before");
        let times = Timing::new(Duration::from_secs(3), 3, 2, 10_000).expect("it is safe");
        assert_eq!(parse_file(&file).times, None);
        note.times(times).expect("there is room");
        let again = file.try_clone().expect("a descriptor");
        let (_, previous) = Note::begin(file).expect("a note");
        assert!(previous.up && previous.left_up && parse_file(&again).left_up);
        assert_eq!(previous.cgroups, [Path::new(&short)]);
        assert_eq!([previous.times, parse_file(&again).times], [Some(times); 2]);
        let [(Command::Stop, process, _)] = previous.running.as_slice() else {
            panic!("{:?}", previous.running)
        };
        assert_eq!(*process, own);
    }

    #[test]
    fn the_times_of_a_service_that_is_down_bind_nobody() {
        let file = file("times");
        let (note, _) = Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        let times = Timing::new(Duration::from_secs(3), 3, 2, 10_000).expect("it is safe");
        note.times(times).expect("there is room");
        assert!(parse_file(&file).times.is_some());
        note.down(0).expect("there is room");
        assert_eq!(parse_file(&file).times, None);
        note.write(SERVICE, UP, 1).expect("there is room");
        assert!(parse_file(&file).times.is_some());
    }

    /// The disk may have held the note of the end up until the next start was noted.
    #[test]
    fn a_late_note_that_the_service_was_down_does_not_hide_a_later_start() {
        let file = file("late");
        let (note, _) = Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        let start = || note.command(Command::Start, rustix::process::getpid(), BOOT);
        start().expect("there is room");
        let down = note.starts();
        start().expect("there is room");
        note.down(down).expect("nothing is written");
        assert!(parse_file(&file).left_up);
        note.down(note.starts()).expect("there is room");
        assert!(!parse_file(&file).up);
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_not_the_noted_command() {
        let own = rustix::process::getpid();
        let born = start_ticks(own).expect("it lives");
        let line = |from, until| format!("run {} {from} {until}", own.as_raw_nonzero());
        assert!(find_process(&line(born, born)).is_some());
        assert!(find_process(&line(born - 1, born + 1)).is_some());
        assert!(find_process(&line(born + 1, born + 2)).is_none());
        assert!(find_process(&line(0, born - 1)).is_none());
        assert!(find_process("run 1 0 99999999").is_none());
    }

    #[test]
    fn a_command_that_has_left_its_group_is_killed_with_its_guard() {
        let file = file("left");
        let (note, _) = Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        let since = sys::now();
        // In the group of this process.
        let sleep = std::process::Command::new("sleep").arg("1000").spawn();
        let mut sleep = sleep.expect("it can be run");
        note.command(Command::Start, Pid::from_child(&sleep), since).expect("there is room");
        let (_, mut previous) = Note::begin(file).expect("a note");
        let start = previous.kill_commands();
        let killed = start.is_some_and(|(_, start)| {
            let until = sys::now().after(sys::PATIENCE);
            let exit = [(start.as_fd(), PollFlags::IN)];
            Alarm::new().expect("a descriptor").wait(exit, Some(until)).expect("waits")[0]
        });
        let ended = sleep.try_wait().expect("it was not waited for");
        let _ = sleep.kill();
        let _ = sleep.wait();
        assert!(killed && ended.is_some());
    }

    #[test]
    fn a_guard_that_is_killed_at_once_leaves_the_notes_of_the_previous_one() {
        let file = file("twice");
        let begin = || Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        let (note, _) = begin();
        let own = rustix::process::getpid();
        note.command(Command::Start, own, BOOT).expect("there is room");
        drop(begin());
        assert_eq!(begin().1.running.len(), 1);
    }

    #[test]
    fn commands_of_another_boot_are_forgotten() {
        let file = file("forgotten");
        let begin = || Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        let (note, _) = begin();
        let own = rustix::process::getpid();
        note.command(Command::Start, own, BOOT).expect("there is room");
        note.cgroups(iter::once(Path::new("/sys/fs/cgroup/putex"))).expect("there is room");
        note.write(0, &format!("{FORMAT}another"), SERVICE).expect("there is room");
        drop(begin());
        let (_, previous) = begin();
        assert!(previous.running.is_empty() && previous.cgroups.is_empty());
    }

    #[test]
    fn only_a_note_of_this_boot_tells_that_the_service_is_down() {
        let file = file("boot");
        let (note, _) = Note::begin(file.try_clone().expect("a descriptor")).expect("a note");
        note.down(0).expect("there is room");
        let mut text = vec![0; 4096];
        let count = file.read_at(&mut text, 0).expect("it is there");
        let text = &text[..count];
        assert!(!parse(text, &sys::boot_id()).up);
        let of_another_version = b"putex guard 2 here".as_slice();
        for (text, boot) in [
            (text, "another"),
            (text, ""),
            (b"putex guard 1 ", "here"),
            (of_another_version, "here"),
            (b"", "here"),
            (b"", ""),
        ] {
            let previous = parse(text, boot);
            assert!(previous.up && !previous.left_up, "{}", text.escape_ascii());
        }
    }
}
