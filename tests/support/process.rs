//! Processes that tests start: their signals, and how none of them outlives the tests.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::clock::{At, wait_until};
use super::folder;

/// Environment variable that every process of a test inherits.
pub(crate) const MARK: &str = "PUTEX_TEST";

/// Returns the value of [`MARK`] for `part` of these tests.
pub(crate) fn mark(part: &str) -> String {
    format!("{}/{part}/", std::process::id())
}

/// Sends `signal` to `pid`. A process that is gone is not an error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns the exit status of `child`, or `None` when it still runs at `deadline`.
pub(crate) fn wait_exit(child: &mut Child, deadline: At) -> Option<ExitStatus> {
    wait_until(deadline, || child.try_wait().ok().flatten())
}

/// Ends every process whose mark begins with `mark`, until five scans in a row find none: one that
/// executes another program at that moment has no environment.
///
/// Each is killed by its number, right after its environment was read.
pub(crate) fn kill_marked(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    let mut empty = 0;
    for _ in 0..200 {
        let found = marked(&wanted);
        empty = if found.is_empty() { empty + 1 } else { 0 };
        if empty == 5 {
            return;
        }
        for pid in found {
            signal(pid, Signal::KILL);
        }
    }
}

/// Returns the processes whose mark begins with `mark`.
pub(crate) fn find_marked(mark: &str) -> Vec<u32> {
    marked(&format!("{MARK}={mark}"))
}

/// Returns whether a process has this number and has not died.
pub(crate) fn lives(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Returns whether `pid` is the guard of an agent of `key`. A child of the guard that has not
/// executed its program yet has the command line of the guard.
pub(crate) fn is_guard(pid: u32, key: &str) -> bool {
    let has_line = |pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.len() > 2 && words[1] == b"guard" && words[2] == key.as_bytes()
    };
    has_line(pid) && parent_of(pid).is_some_and(|parent| !has_line(parent))
}

/// Returns the children of a process, also those that have ended and were not reaped.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let lists: String = lists.collect();
    lists.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Returns the state of a process, as the kernel tells it: T is stopped.
pub(crate) fn state_of(pid: u32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.split_once("State:\t")?.1.chars().next()
}

/// Returns whether a thread is traced.
pub(crate) fn is_traced(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Returns whether the kernel names a signal in this line about a process that runs.
pub(crate) fn has_signal(pid: u32, line: &str, signal: Signal) -> bool {
    signals(pid, line).expect("it runs") >> (signal.as_raw() - 1) & 1 == 1
}

/// Returns the signals that the kernel names in this line about a process that runs.
pub(crate) fn signals(pid: u32, line: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = text.lines().find_map(|text| text.strip_prefix(line));
    u64::from_str_radix(mask?.trim(), 16).ok()
}

/// Returns the parent of a process, `None` when it was reaped.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.parse().ok()
}

/// Returns the renewer of the front of a `putex lock`: the child of that name.
pub(crate) fn find_renewer(front: u32) -> Option<u32> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let is_renewer = |pid: &u32| parent_of(*pid) == Some(front) && name(pid) == "putex-renewer\n";
    numbers().find(is_renewer)
}

/// Attaches a debugger to a process, which reaps it only when its own stdin has ended; `None`,
/// after saying so, where there is none.
pub(crate) fn attach_debugger(pid: u32) -> Option<Child> {
    let script = "import ctypes, sys\n\
                  libc = ctypes.CDLL(None)\n\
                  assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0\n\
                  print('traces', flush=True)\n\
                  sys.stdin.read()";
    let mut debugger = Command::new("python3");
    debugger.args(["-c", script, &pid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut debugger) = debugger.spawn() else {
        println!("skipped: no python3");
        return None;
    };
    let says = debugger.stdout.as_mut().expect("a pipe");
    says.read_exact(&mut [0; 6]).expect("it traces");
    Some(debugger)
}

fn marked(wanted: &str) -> Vec<u32> {
    let own = std::process::id();
    numbers().filter(|pid| *pid != own && is_marked(*pid, wanted)).collect()
}

/// Returns the numbers of all processes that can be seen.
fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process that has died but was not waited for has an empty environment.
fn is_marked(pid: u32, wanted: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(wanted.as_bytes()))
    })
}

/// Returns the time that a process alone has used in user and kernel mode, in steps of 10 ms.
pub(crate) fn processor_time(pid: u32) -> Result<Duration, String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let (user, system) = field(11).zip(field(12)).ok_or("/proc has another format")?;
    Ok(Duration::from_millis((user + system) * 10))
}

/// Returns the sum of the numbers in the lines of a file of /proc that begin with one of `names`.
/// Numbers of memory are in KiB.
pub(crate) fn proc_sum(pid: u32, file: &str, names: &[&str]) -> Result<u64, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|e| e.to_string())?;
    let wanted = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    let number = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    Ok(wanted.filter_map(number).sum())
}

/// Has processes end and folders removed when these tests are interrupted.
pub(crate) fn end_all_on_signal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
        let Ok(mut signals) = signal_hook::iterator::Signals::new(signals) else {
            return;
        };
        std::thread::spawn(move || {
            if let Some(number) = signals.forever().next() {
                kill_marked(&format!("{}/", std::process::id()));
                folder::remove_all();
                std::process::exit(128 + number);
            }
        });
    });
}
