//! The processes of this PID namespace, as /proc tells of them. What cannot be read counts as a
//! process that runs: nobody gets the lock of a command because a descriptor was missing.

use std::cell::{Cell, OnceCell};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::{Errno, Result};
use rustix::process::{Pid, Signal};

use super::held::HolderId;
use crate::core::Instant;
use crate::sys::{self, raw};

/// How much of a directory is read at once.
const LIST_BYTES: usize = 8192;

/// The name of a renewer among processes. One of a lock inside of the command is not to be killed
/// with that: it ends by itself, when it has released its lock.
pub(super) const RENEWER: &CStr = c"putex-renewer";

/// No tick of the times in /proc is longer.
const TICK_MAX: Duration = Duration::from_millis(10);

/// Processes that run.
#[derive(Debug, Default)]
pub(super) struct Alive {
    processes: Vec<Pid>,
    /// There are no others.
    is_whole: bool,
}

impl Alive {
    /// Returns whether it is known that none runs.
    pub(super) fn is_none(&self) -> bool {
        self.is_whole && self.processes.is_empty()
    }

    /// Sends a signal to each.
    pub(super) fn send(&self, signal: Signal) {
        for process in &self.processes {
            // One that has ended needs none.
            let _ = rustix::process::kill_process(*process, signal);
        }
    }
}

/// A process that runs.
struct Running {
    process: Pid,
    parent: Option<Pid>,
    /// It has not been started before this instant.
    started: Instant,
    /// Its main thread has ended, and others run.
    has_lost_main: bool,
    is_renewer: bool,
}

impl Running {
    /// Reads a line of `/proc/PID/stat`; `None` if the process has ended.
    ///
    /// # Errors
    ///
    /// When it is no such line.
    fn of_stat(process: Pid, stat: &str) -> Result<Option<Running>> {
        // The name before, in brackets, may have any character.
        let (name, fields) = stat.rsplit_once(") ").ok_or(Errno::INVAL)?;
        let fields: Vec<_> = fields.split(' ').collect();
        let number = |at: usize| fields.get(at)?.trim_end().parse::<i32>().ok();
        let number = |at| number(at).ok_or(Errno::INVAL);
        let (parent, group) = (number(1)?, number(2)?);
        // The kernel has already taken its group from it: it is about to disappear.
        if group < 0 {
            return Ok(None);
        }
        let has_lost_main = matches!(fields.first(), Some(&("Z" | "X")));
        // The state is that of the main thread.
        if has_lost_main && number(17)? <= 1 {
            return Ok(None);
        }
        let ticks: u64 = fields.get(19).and_then(|it| it.parse().ok()).ok_or(Errno::INVAL)?;
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let started = Instant::from_boot(Duration::from_secs_f64(seconds));
        let leads_session = number(3)? == process.as_raw_pid();
        let name = name.split_once('(').map_or("", |(_, name)| name);
        let is_renewer = leads_session && name.as_bytes() == RENEWER.to_bytes();
        let parent = Pid::from_raw(parent);
        Ok(Some(Running { process, parent, started, has_lost_main, is_renewer }))
    }
}

/// Children that a process had at an instant: a shell may have executed this program after it had
/// started others.
pub(super) struct Older {
    until: Instant,
    /// Those that the kernel has named. Not each kernel does.
    children: Vec<Pid>,
}

impl Older {
    /// Counts no child as older.
    pub(super) const NONE: Older =
        Older { until: Instant::from_boot(Duration::ZERO), children: Vec::new() };

    /// Returns whether a child is one of these. The time of its start is known to a tick.
    fn has(&self, child: &Running) -> bool {
        let is_known = self.children.contains(&child.process) && child.started <= self.until;
        is_known || self.until.since(child.started) >= TICK_MAX
    }
}

/// The directory /proc, open from the start.
struct Proc {
    folder: OwnedFd,
    /// Given back to the system for a moment when it has no descriptor left for a file.
    spare: Cell<Option<OwnedFd>>,
}

/// Returns whether the system lacks something for now.
fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Returns the numbers that are names in an open directory.
fn numbers_in(folder: &OwnedFd) -> Result<Vec<Pid>> {
    rustix::fs::seek(folder, SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(LIST_BYTES);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        let number = |name: &CStr| Pid::from_raw(name.to_str().ok()?.parse().ok()?);
        numbers.extend(number(entry?.file_name()));
    }
    Ok(numbers)
}

impl Proc {
    /// Returns /proc; `None` where it is not there, or shows another PID namespace: its numbers
    /// are those of strangers here.
    fn open() -> Result<Option<Proc>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/proc", flags, Mode::empty()).and_then(|folder| {
            let spare = rustix::fs::openat(&folder, ".", flags, Mode::empty())?;
            let proc = Proc { folder, spare: Cell::new(Some(spare)) };
            Ok(proc.is_own()?.then_some(proc))
        });
        match opened {
            Err(error) if is_shortage(error) => Err(error),
            opened => Ok(opened.unwrap_or_default()),
        }
    }

    /// Returns whether it shows this process by its own number, and the namespace is not one
    /// around that of this process, where it may have the same number by chance.
    fn is_own(&self) -> Result<bool> {
        let own = rustix::process::getpid().to_string();
        let link = rustix::fs::readlinkat(&self.folder, "self", Vec::new())?;
        let status = self.read("self/status")?;
        let status = String::from_utf8_lossy(&status);
        // One number for each namespace from that of /proc to that of this process.
        let all = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        Ok(link.to_bytes() == own.as_bytes() && all.is_none_or(|all| all.trim() == own))
    }

    /// Opens a file or directory.
    fn open_below(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.folder, path, flags, Mode::empty());
        match open() {
            Err(error) if is_shortage(error) && self.spare.take().is_some() => open(),
            opened => opened,
        }
    }

    /// Does something with an open file or directory.
    fn with<T>(
        &self,
        path: &str,
        flags: OFlags,
        act: impl FnOnce(OwnedFd) -> Result<T>,
    ) -> Result<T> {
        let done = self.open_below(path, flags).and_then(act);
        let spare = self.spare.take();
        let again = || rustix::fs::openat(&self.folder, ".", OFlags::CLOEXEC, Mode::empty()).ok();
        self.spare.set(spare.or_else(again));
        done
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.with(path, OFlags::empty(), |file| {
            let mut text = Vec::new();
            let read = File::from(file).read_to_end(&mut text);
            read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            Ok(text)
        })
    }

    /// Returns a process, if it runs.
    fn running(&self, process: Pid) -> Result<Option<Running>> {
        match self.read(&format!("{process}/stat")) {
            Ok(stat) => Running::of_stat(process, &String::from_utf8_lossy(&stat)),
            Err(Errno::NOENT | Errno::SRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a process runs that is in this group.
    fn has_member(&self, group: Pid) -> Result<bool> {
        for process in numbers_in(&self.folder)? {
            match raw::group_of(process) {
                Ok(of) if of != Some(group) => {}
                Ok(_) if self.running(process)?.is_none() => {}
                Err(Errno::SRCH) => {}
                Ok(_) | Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns all processes that run and are not hidden, and whether they are all.
    fn all_running(&self) -> (Vec<Running>, bool) {
        let numbers = numbers_in(&self.folder);
        let mut is_whole = numbers.is_ok();
        let mut all = Vec::new();
        for process in numbers.unwrap_or_default() {
            match self.running(process) {
                // One of another user may be hidden.
                Ok(None) | Err(Errno::ACCESS | Errno::PERM) => {}
                Ok(Some(running)) => all.push(running),
                Err(_) => is_whole = false,
            }
        }
        (all, is_whole)
    }

    /// Returns whether the environment that a process has begun its program with is of the
    /// command of a holder.
    fn is_of_command(&self, running: &Running, holder: &HolderId) -> Result<bool> {
        let process = running.process;
        let thread = match running.has_lost_main {
            false => Some(process),
            true => self
                .with(&format!("{process}/task"), OFlags::DIRECTORY, |folder| numbers_in(&folder))?
                .into_iter()
                .find(|thread| *thread != process),
        };
        let Some(thread) = thread else { return Ok(false) };
        Ok(holder.is_in(&self.read(&format!("{process}/task/{thread}/environ"))?))
    }
}

/// The processes that this process can see.
#[derive(Default)]
pub(super) struct Processes {
    /// Empty before it is needed for the first time.
    proc: OnceCell<Option<Proc>>,
}

impl Processes {
    /// Opens /proc at once: it is needed when the system may have no descriptor left.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or memory left.
    pub(super) fn open() -> Result<Processes> {
        let processes = Processes::default();
        processes.proc()?;
        Ok(processes)
    }

    fn proc(&self) -> Result<Option<&Proc>> {
        let proc = match self.proc.get() {
            Some(proc) => proc,
            None => {
                let proc = Proc::open()?;
                self.proc.get_or_init(|| proc)
            }
        };
        Ok(proc.as_ref())
    }

    /// Returns whether nobody is in a process group any more but zombies, whose parent is slow.
    pub(super) fn is_empty(&self, group: Pid) -> bool {
        match rustix::process::test_kill_process_group(group) {
            Err(Errno::SRCH) => true,
            Ok(()) => {
                let Ok(Some(proc)) = self.proc() else { return false };
                // Where processes of others are hidden, one of them may be in the group.
                let shows_all = rustix::fs::statat(&proc.folder, "1", AtFlags::empty()).is_ok();
                shows_all && proc.has_member(group) == Ok(false)
            }
            Err(_) => false,
        }
    }

    /// Returns what runs and descends from a process, but for renewers, and for its older
    /// children. Without /proc nothing is known of it.
    pub(super) fn below(&self, root: Pid, older: &Older) -> Alive {
        let is_child = |it: &Running| it.parent == Some(root) && !older.has(it);
        self.select(|_, running| Ok(is_child(running)), |it| it != root)
    }

    /// Returns the children that a process has now.
    pub(super) fn older_children_of(&self, parent: Pid) -> Older {
        let path = format!("{parent}/task/{parent}/children");
        let read = self.proc().ok().flatten().and_then(|proc| proc.read(&path).ok());
        let text = String::from_utf8(read.unwrap_or_default()).unwrap_or_default();
        let numbers = text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?));
        Older { until: sys::now(), children: numbers.collect() }
    }

    /// Returns what runs and is of the command of a holder, which was started after this instant,
    /// and what descends from that, but for renewers. Without /proc nothing is known of it.
    pub(super) fn of_command(&self, holder: &HolderId, since: Instant) -> Alive {
        // The environments of others may be large, and there may be thousands of them.
        let is_older = |it: &Running| since.since(it.started) >= TICK_MAX;
        self.select(
            |proc, running| Ok(!is_older(running) && proc.is_of_command(running, holder)?),
            |_| true,
        )
    }

    /// Returns the processes that are chosen, and all that descend from them.
    fn select(
        &self,
        is_chosen: impl Fn(&Proc, &Running) -> Result<bool>,
        is_counted: impl Fn(Pid) -> bool,
    ) -> Alive {
        let proc = match self.proc() {
            Ok(Some(proc)) => proc,
            Ok(None) => return Alive { is_whole: true, ..Alive::default() },
            Err(_) => return Alive::default(),
        };
        let (mut rest, mut is_whole) = proc.all_running();
        // A number may be given to a new process while the list is read: a process would then
        // seem to descend from itself.
        rest.retain(|it| !it.is_renewer && is_counted(it.process));
        let mut processes = Vec::new();
        rest.retain(|running| match is_chosen(proc, running) {
            Ok(is_chosen) => {
                processes.extend(is_chosen.then_some(running.process));
                !is_chosen
            }
            // It has ended, or is one of another user.
            Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => true,
            Err(_) => {
                is_whole = false;
                true
            }
        });
        let mut next = 0;
        while let Some(parent) = processes.get(next).copied() {
            let children = rest.iter().filter(|it| it.parent == Some(parent));
            processes.extend(children.map(|it| it.process));
            next += 1;
        }
        Alive { processes, is_whole }
    }
}

#[cfg(test)]
mod tests;
