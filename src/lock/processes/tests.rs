//! What is known of processes, and what counts as alive because it is not.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, WaitOptions};

use super::*;
use crate::sys;

/// Before every process.
const START: Instant = Instant::from_boot(Duration::ZERO);

/// The holder of the lock of these tests.
static HOLDER: LazyLock<HolderId> = LazyLock::new(|| HolderId::random().expect("random numbers"));

/// Processes of its command in a group of their own, killed when this is dropped.
struct Group(Child);

impl Group {
    /// Starts a shell; returns when it, or what it has started, has said that it is ready.
    fn start(script: &str) -> Group {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.envs([HOLDER.variable()]).env("MAIN_ENDS", main_ends());
        let mut shell = shell.spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Group(shell)
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn kill(&self) {
        let _ = rustix::process::kill_process_group(self.group(), Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let _ = self.0.wait();
    }
}

/// Returns the text of a program that is ready when its main thread has ended, and runs on.
fn main_ends() -> String {
    format!(
        "import ctypes, threading, time
def rest():
    while open('/proc/self/stat').read().split(') ')[1][0] != 'Z': time.sleep(0.01)
    print('ready', flush=True)
    time.sleep(1000)
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall({}, 0)",
        libc::SYS_exit
    )
}

/// Waits until this is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = sys::now().after(sys::PATIENCE);
    while !is_so() {
        assert!(sys::now() < until, "in vain for {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Returns a /proc that cannot be listed.
fn broken() -> Processes {
    let folder = File::open("/dev/null").expect("it is there").into();
    Processes { proc: OnceCell::from(Some(Proc { folder, spare: Cell::new(None) })) }
}

#[test]
fn a_process_that_is_about_to_disappear_is_not_counted() {
    let parent = |state: &str, threads: u8| {
        let fields = "8 0 -1 4194560 153 0 0 0 1 2 3 4 20 0";
        let stat = format!("1 (a) Z 9 (b) {state} {fields} {threads} 0 100 0 0\n");
        let running = Running::of_stat(Pid::INIT, &stat).expect("a line");
        running.map(|it| (Pid::as_raw(it.parent), it.has_lost_main))
    };
    assert_eq!(parent("S 7 8", 1), Some((7, false)));
    assert_eq!(parent("R 0 0", 3), Some((0, false)));
    assert_eq!(parent("Z 7 8", 1), None);
    // Its main thread has ended, and another one runs.
    assert_eq!(parent("Z 7 8", 2), Some((7, true)));
    // The kernel has already taken its parent and group from it.
    assert_eq!(parent("X 0 -1", 0), None);
    assert_eq!(parent("R 0 -1", 0), None);
    // What cannot be understood is not taken for the end.
    for stat in ["", "1 (sh", "1 (sh) Z 7 8 8 0", "1 (sh) S x 8"] {
        assert!(Running::of_stat(Pid::INIT, stat).is_err(), "{stat}");
    }
}

#[test]
fn a_process_whose_main_thread_has_ended_runs() {
    let processes = Processes::open().expect("descriptors");
    let group = Group::start(r#"exec python3 -c "$MAIN_ENDS""#);
    assert!(!processes.is_empty(group.group()));
    let found = processes.of_command(&HOLDER, START);
    assert!(found.processes.contains(&group.group()), "its environment is not found");
    group.kill();
    // It is not waited for: its parent is slow.
    wait_until("its end", || processes.is_empty(group.group()));
}

/// A name of 15 bytes may end within a letter.
#[test]
fn a_process_whose_name_is_no_text_runs() {
    let processes = Processes::open().expect("descriptors");
    let group = Group::start("printf '\\377' >/proc/$$/comm; echo ready; read -r line");
    assert!(!processes.is_empty(group.group()));
    assert!(processes.of_command(&HOLDER, START).processes.contains(&group.group()));
}

#[test]
fn what_is_of_a_command_is_found_with_what_descends_from_it() {
    let processes = Processes::open().expect("descriptors");
    let own = rustix::process::getpid();
    let group = Group::start("env -i sh -c 'sleep 1000 & echo ready; wait' & wait");
    let bare = below_shell(&processes, &group);
    let found = processes.of_command(&HOLDER, START);
    assert!(found.processes.contains(&group.group()) && !found.is_none());
    assert!(bare.iter().all(|it| found.processes.contains(it)), "{found:?} {bare:?}");
    // What is not, as this process, is not found.
    assert!(!found.processes.contains(&own) && !found.processes.contains(&Pid::INIT));
    let other = HolderId::random().expect("random numbers");
    assert!(processes.of_command(&other, START).is_none());
    // Nor is what was there before the command.
    let later = sys::now().after(TICK_MAX * 2);
    assert!(processes.of_command(&HOLDER, later).is_none());
}

/// The lock inside of a command had to run out: its renewer was killed with the command.
#[test]
fn the_renewer_of_a_lock_is_known_by_its_name_and_session() {
    let is_renewer = |name: &str, session: u32| {
        let stat = format!("1 ({name}) S 0 1 {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0\n");
        Running::of_stat(Pid::INIT, &stat).expect("a line").is_some_and(|it| it.is_renewer)
    };
    assert!(is_renewer("putex-renewer", 1));
    for (name, session) in [("putex-renewer", 2), ("putex", 1), ("a (putex-renewer", 1)] {
        assert!(!is_renewer(name, session), "{name} {session}");
    }
}

/// Returns what descends from a shell with two generations below.
fn below_shell(processes: &Processes, group: &Group) -> Vec<Pid> {
    let below = processes.below(group.group(), &Older::NONE).processes;
    assert_eq!(below.len(), 2, "{below:?}");
    // Older children are not, whether the kernel has named them or not.
    let older = processes.older_children_of(group.group());
    assert!(processes.below(group.group(), &older).is_none());
    let older = Older { until: sys::now().after(TICK_MAX), children: Vec::new() };
    assert!(processes.below(group.group(), &older).is_none());
    below
}

#[test]
fn what_cannot_be_listed_counts_as_alive() {
    let group = Group::start("echo ready; read -r line");
    let broken = broken();
    assert!(!broken.is_empty(group.group()));
    assert!(!broken.below(group.group(), &Older::NONE).is_none());
    assert!(!broken.of_command(&HOLDER, START).is_none());
    // Its stat cannot be read, nor anybody's.
    let folder = rustix::fs::open("/proc", OFlags::PATH, Mode::empty()).expect("it is there");
    let proc = Proc { folder, spare: Cell::new(None) };
    assert_eq!(proc.has_member(group.group()), Err(Errno::BADF));
}

/// The numbers of another PID namespace are those of strangers.
#[test]
fn without_proc_only_a_group_that_is_not_there_is_empty_and_nothing_else_is_known() {
    let processes = Processes { proc: OnceCell::from(None) };
    let mut group = Group::start("sleep 1000 & echo ready; wait");
    assert!(!processes.is_empty(group.group()));
    let below = processes.below(group.group(), &Older::NONE);
    assert!(below.is_none(), "{below:?}");
    assert!(processes.of_command(&HOLDER, START).is_none());
    group.kill();
    group.0.wait().expect("it ends");
    wait_until("the end of the other one", || processes.is_empty(group.group()));
}

/// Runs this in a process that has not one descriptor left; returns whether it was so.
fn without_descriptors(check: impl Fn(&Processes) -> bool) -> bool {
    let Some(process) = raw::fork().expect("a process") else {
        let processes = Processes::open().expect("descriptors");
        let limit = Rlimit { current: Some(200), ..rustix::process::getrlimit(Resource::Nofile) };
        rustix::process::setrlimit(Resource::Nofile, limit).expect("a limit");
        let mut all = Vec::new();
        while let Ok(descriptor) = rustix::io::dup(rustix::stdio::stdin()) {
            all.push(descriptor);
        }
        let is_so = File::open("/proc").is_err() && check(&processes) && check(&processes);
        std::process::exit(i32::from(!is_so));
    };
    let ended = rustix::process::waitpid(Some(process), WaitOptions::empty()).expect("a child");
    ended.expect("it has ended").1.exit_status() == Some(0)
}

#[test]
fn processes_are_known_also_when_no_descriptor_is_left() {
    let group = Group::start("sleep 1000 & echo ready; wait");
    let shell = group.group();
    assert!(without_descriptors(|processes| !processes.is_empty(shell)));
    assert!(without_descriptors(|processes| {
        let below = processes.below(shell, &Older::NONE);
        below.is_whole && below.processes.len() == 1
    }));
    assert!(without_descriptors(|processes| {
        processes.of_command(&HOLDER, START).processes.contains(&shell)
    }));
    group.kill();
    wait_until("the end of the group", || {
        without_descriptors(|processes| processes.is_empty(shell))
    });
}
