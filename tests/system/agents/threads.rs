//! How a running process waits, seen from outside: every deadline on a timer that
//! counts suspend, and no wait that ends by a timeout of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use crate::support::clock::{now, observe_for};

/// The number of CLOCK_BOOTTIME.
const CLOCK_BOOTTIME: &str = "7";

/// How the first thread is called here: its name is that of the binary.
pub(crate) const MAIN: &str = "the main thread";

/// How often each thread is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What was seen of a process.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Every timer that it has.
    pub(crate) timers: usize,
    /// Names of the threads that were found waiting for as long as it takes.
    pub(crate) patient: BTreeSet<String>,
    /// What must not be: timers on another clock, waits with a timeout.
    pub(crate) wrong: BTreeSet<String>,
}

/// Returns whether [`observe`] understands this machine's system calls; says so when
/// it does not.
pub(crate) fn can_observe() -> bool {
    let known = cfg!(target_arch = "x86_64");
    if !known {
        println!("skipped: the numbers of system calls are those of x86_64");
    }
    known
}

/// Looks at the process `pid` for `window`.
///
/// # Errors
///
/// When the process has ended, or this one may not look at it.
pub(crate) fn observe(pid: u32, window: Duration) -> io::Result<Waits> {
    let mut waits = Waits::default();
    let end = now() + window;
    while now() < end {
        read_timers(pid, &mut waits)?;
        read_threads(pid, &mut waits)?;
        observe_for(LOOK_EVERY);
    }
    Ok(waits)
}

fn read_timers(pid: u32, waits: &mut Waits) -> io::Result<()> {
    let mut timers = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let path = entry?.path();
        // A descriptor that was closed meanwhile is none of this.
        let text = fs::read_to_string(&path).unwrap_or_default();
        let clock = text.lines().find_map(|line| line.strip_prefix("clockid:"));
        let Some(clock) = clock.map(str::trim) else {
            continue;
        };
        timers += 1;
        if clock != CLOCK_BOOTTIME {
            let wrong = format!("{}: a timer on clock {clock}", path.display());
            waits.wrong.insert(wrong);
        }
    }
    waits.timers = waits.timers.max(timers);
    Ok(())
}

fn read_threads(pid: u32, waits: &mut Waits) -> io::Result<()> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = entry?.path();
        let call = match fs::read_to_string(thread.join("syscall")) {
            Ok(call) => call,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // The thread has ended meanwhile.
            Err(_) => continue,
        };
        let name = match thread.ends_with(pid.to_string()) {
            true => MAIN.to_owned(),
            false => fs::read_to_string(thread.join("comm")).unwrap_or_default(),
        };
        let name = name.trim();
        match wait_of(&call) {
            Some(Wait::Patient) => drop(waits.patient.insert(name.to_owned())),
            Some(Wait::Bounded(by)) => drop(waits.wrong.insert(format!("{name}: {by}"))),
            None => {}
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Wait {
    /// Until something happens.
    Patient,
    /// Until a timeout of this system call.
    Bounded(&'static str),
}

/// Where a system call's timeout stands.
enum Timeout {
    /// In memory at this argument; none when that is zero.
    Pointer(usize),
    /// In milliseconds in this argument; none when that is negative.
    Milliseconds(usize),
    /// It has always one.
    Always,
}

/// Returns how a thread waits, from its line in `/proc/PID/task/TID/syscall`: the
/// call and six arguments. `None` when it runs, or is in a call of another kind.
fn wait_of(line: &str) -> Option<Wait> {
    let mut words = line.split_ascii_whitespace();
    let number: u32 = words.next()?.parse().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let arguments: Vec<u64> = words.take(6).filter_map(hex).collect();
    let (name, timeout) = match number {
        7 => ("poll", Timeout::Milliseconds(2)),
        23 => ("select", Timeout::Pointer(4)),
        35 => ("nanosleep", Timeout::Always),
        128 => ("rt_sigtimedwait", Timeout::Pointer(2)),
        202 if waits_on_futex(*arguments.get(1)?) => ("futex", Timeout::Pointer(3)),
        // A wait with a timeout, after the process was stopped and continued.
        219 => ("restart_syscall", Timeout::Always),
        220 => ("semtimedop", Timeout::Pointer(3)),
        230 => ("clock_nanosleep", Timeout::Always),
        232 => ("epoll_wait", Timeout::Milliseconds(3)),
        270 => ("pselect6", Timeout::Pointer(4)),
        271 => ("ppoll", Timeout::Pointer(2)),
        281 => ("epoll_pwait", Timeout::Milliseconds(3)),
        441 => ("epoll_pwait2", Timeout::Pointer(3)),
        449 => ("futex_waitv", Timeout::Pointer(3)),
        455 => ("futex_wait", Timeout::Pointer(4)),
        _ => return None,
    };
    let bounded = match timeout {
        Timeout::Pointer(at) => *arguments.get(at)? != 0,
        // An int: the upper half of the register means nothing.
        Timeout::Milliseconds(at) => *arguments.get(at)? & 0x8000_0000 == 0,
        Timeout::Always => true,
    };
    Some(match bounded {
        true => Wait::Bounded(name),
        false => Wait::Patient,
    })
}

/// Tells FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI and
/// FUTEX_LOCK_PI2 from what has no timeout.
fn waits_on_futex(operation: u64) -> bool {
    const COMMAND: u64 = 0x7f;
    [0, 6, 9, 11, 13].contains(&(operation & COMMAND))
}

#[test]
fn the_reading_of_system_calls_is_right() {
    let tail = "0x0 0x8 0x0 0x7ffd5d96f9b8 0x7fc2a318e2ad";
    for (line, wait) in [
        ("running", None),
        ("-1 0x7ffd5d96f9b8 0x7fc2a318e2ad", None),
        ("0 0x3 0x7f00 0x1000", None),
        ("271 0x7f00 0x2 0x0", Some(Wait::Patient)),
        ("271 0x7f00 0x2 0x7ffd", Some(Wait::Bounded("ppoll"))),
        ("7 0x7f00 0x2 0xffffffff", Some(Wait::Patient)),
        ("7 0x7f00 0x2 0x64", Some(Wait::Bounded("poll"))),
        ("202 0x7f00 0x189 0xffffffff 0x0", Some(Wait::Patient)),
        ("202 0x7f00 0x80 0x1 0x7ffd", Some(Wait::Bounded("futex"))),
        ("202 0x7f00 0x81 0x1 0x7ffd", None),
        ("230 0x7 0x1 0x7ffd 0x0", Some(Wait::Bounded("clock_nanosleep"))),
    ] {
        assert_eq!(wait_of(&format!("{line} {tail}")), wait, "{line}");
    }
}
