//! What is known of processes, and what counts as alive because it is not.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, WaitOptions};

use super::*;
use crate::core::tickets::Name;
use crate::sys;

/// The variables of the lock of these tests.
fn variables() -> HeldVariables {
    let name = format!("test{}", std::process::id());
    HeldVariables::new(&[Name::parse(&name).expect("a name")], 7, "8c3e")
}

/// Processes with these variables in a group of their own, killed when this is dropped.
struct Group(Child);

impl Group {
    /// Starts a shell; returns when it, or what it has started, has said that it is ready.
    fn start(script: &str) -> Group {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.env("PUTEX_HELD", format!("test{}:7", std::process::id()));
        shell.env("PUTEX_EPOCH", "8c3e").env("MAIN_ENDS", main_ends());
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
    time.sleep(100)
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall({}, 0)",
        libc::SYS_exit
    )
}

/// Waits until this is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = sys::now().after(Duration::from_secs(20));
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
    let found = processes.of_lock(&variables(), rustix::process::getpid());
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
    let own = rustix::process::getpid();
    assert!(processes.of_lock(&variables(), own).processes.contains(&group.group()));
}

#[test]
fn what_has_the_variables_of_a_lock_is_found_with_what_descends_from_it() {
    let processes = Processes::open().expect("descriptors");
    let own = rustix::process::getpid();
    let group = Group::start("env -i sh -c 'sleep 100 & echo ready; wait' & wait");
    let bare = below_shell(&processes, &group);
    let found = processes.of_lock(&variables(), own);
    assert!(found.processes.contains(&group.group()) && !found.is_none());
    assert!(bare.iter().all(|it| found.processes.contains(it)), "{found:?} {bare:?}");
    // What does not have them, as this process, is not.
    assert!(!found.processes.contains(&own) && !found.processes.contains(&Pid::INIT));
    let other = HeldVariables::new(&[Name::parse("test").expect("a name")], 7, "8c3e");
    assert!(processes.of_lock(&other, own).is_none());
    assert!(!processes.of_lock(&variables(), group.group()).processes.contains(&group.group()));
}

/// Returns what descends from a shell with two generations below.
fn below_shell(processes: &Processes, group: &Group) -> Vec<Pid> {
    let below = processes.below(group.group(), None).processes;
    assert_eq!(below.len(), 2, "{below:?}");
    // But for one, and for what descends from that.
    assert!(processes.below(group.group(), Some(below[0])).is_none());
    below
}

#[test]
fn what_cannot_be_listed_counts_as_alive() {
    let group = Group::start("echo ready; read -r line");
    let broken = broken();
    assert!(!broken.is_empty(group.group()));
    assert!(!broken.below(group.group(), None).is_none());
    assert!(!broken.of_lock(&variables(), group.group()).is_none());
    // Its stat cannot be read, nor anybody's.
    let folder = rustix::fs::open("/proc", OFlags::PATH, Mode::empty()).expect("it is there");
    let proc = Proc { folder, spare: Cell::new(None) };
    assert_eq!(proc.has_member(group.group()), Err(Errno::BADF));
}

/// The numbers of another PID namespace are those of strangers.
#[test]
fn without_proc_only_a_group_that_is_not_there_is_empty_and_nothing_else_is_known() {
    let processes = Processes { proc: OnceCell::from(None) };
    let mut group = Group::start("sleep 100 & echo ready; wait");
    assert!(!processes.is_empty(group.group()));
    let below = processes.below(group.group(), None);
    assert!(below.is_none(), "{below:?}");
    assert!(processes.of_lock(&variables(), rustix::process::getpid()).is_none());
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
    let group = Group::start("sleep 100 & echo ready; wait");
    let (shell, variables) = (group.group(), variables());
    assert!(without_descriptors(|processes| !processes.is_empty(shell)));
    assert!(without_descriptors(|processes| {
        let below = processes.below(shell, None);
        below.is_whole && below.processes.len() == 1
    }));
    assert!(without_descriptors(|processes| {
        processes.of_lock(&variables, Pid::INIT).processes.contains(&shell)
    }));
    group.kill();
    wait_until("the end of the group", || {
        without_descriptors(|processes| processes.is_empty(shell))
    });
}
