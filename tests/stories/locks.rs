//! `putex lock`, `grab`, `release` and `lease`: who has a lock, in which order, and what a killed
//! holder leaves.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::hosts::{Store, turn};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{lives, signal, state_of, wait_exit};
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};

/// T 3 s, which the first lock in a new bucket is waited for.
const TIMES: [&str; 6] = ["-r", "1s", "-f", "3", "-k", "500ms"];

/// How long locks and leases without a process are held; the first of them in a new bucket is
/// waited for as long.
const FOR: &str = "5s";

/// A command that writes a line when it begins and one when it ends, and ends when the file
/// `end-ID` is there. Its first line names its process.
const WORKER: &str = r#"
echo "begin $0 $$" >>"$D/record"
until [ -e "$D/end-$0" ]; do sleep 0.01; done
echo "end $0" >>"$D/record""#;

/// A store, and a host on which commands run under its locks.
struct Site {
    host: Sandbox,
    store: Store,
}

impl Site {
    fn new(store: Store) -> Site {
        Site { host: Sandbox::new("locks"), store }
    }

    /// Prepares a putex command with the options for store and host behind its first word.
    fn putex(&self, words: &[&str]) -> Command {
        let mut command = self.host.putex();
        command.arg(words[0]).args(self.store.option()).args(&words[1..]);
        command.env("D", self.host.text());
        command
    }

    fn run(&self, words: &[&str]) -> Run {
        self.host.run(&mut self.putex(words))
    }

    /// Begins a worker under the lock `x`; what putex says goes to the file `said-ID`.
    fn begin(&self, id: &str) -> Child {
        let said = File::create(self.host.join(format!("said-{id}"))).expect("a file");
        let words = [&["lock", "-v"], &TIMES[..], &["x", "sh", "-c", WORKER, id]].concat();
        self.putex(&words).stderr(said).stdout(Stdio::null()).spawn().expect("it can be run")
    }

    fn wait_for_place(&self, id: &str, ahead: usize) {
        let said = self.host.join(format!("said-{id}"));
        let text = format!("waiting, {ahead} ahead");
        until_true("a place", || fs::read_to_string(&said).is_ok_and(|said| said.contains(&text)));
    }

    fn end(&self, id: &str) {
        self.host.file(&format!("end-{id}"), "", 0o600);
    }

    /// Returns the lines that workers have written, without the numbers of processes.
    fn record(&self) -> Vec<String> {
        let text = fs::read_to_string(self.host.join("record")).unwrap_or_default();
        text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }

    /// Waits for the first line of a worker; returns the number of its process.
    fn wait_begun(&self, id: &str) -> u32 {
        let begin = format!("begin {id} ");
        let mut process = None;
        until_true(&begin, || {
            let text = fs::read_to_string(self.host.join("record")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok());
            process = line;
            process.is_some()
        });
        process.expect("it has begun")
    }
}

/// Returns the term that a command has printed.
#[track_caller]
fn term(run: &Run) -> u64 {
    assert_eq!(run.status, Some(0), "{run:?}");
    run.shown.split(['=', ' ']).nth(1).expect("a term").parse().expect("a number")
}

fn status(mut child: Child) -> Option<i32> {
    let status = wait_exit(&mut child, now() + PATIENCE).expect("it ends");
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

#[test]
fn locks_of_a_directory_are_held_by_one_after_the_other() {
    let _turn = turn();
    tell_all(&Site::new(Store::directory()));
}

/// The first lock in a new bucket is waited for, once for all stories.
#[test]
fn locks_of_a_server_are_held_by_one_after_the_other() {
    let _turn = turn();
    if let Some(store) = Store::server() {
        tell_all(&Site::new(store));
    }
}

fn tell_all(site: &Site) {
    requests_are_served_in_their_order(site);
    a_lock_has_the_status_of_its_command(site);
    a_lock_without_a_process_is_held_until_its_release(site);
}

/// Requests are served in their order, and a front that is killed takes its command along before
/// the next one begins.
fn requests_are_served_in_their_order(site: &Site) {
    let one = site.begin("one");
    let worker = site.wait_begun("one");
    let two = site.begin("two");
    site.wait_for_place("two", 1);
    let three = site.begin("three");
    site.wait_for_place("three", 2);
    signal(one.id(), Signal::KILL);
    assert_eq!(status(one), Some(128 + 9));
    site.wait_begun("two");
    assert!(!lives(worker), "the command of a killed front runs beside the next one");
    site.end("two");
    site.wait_begun("three");
    site.end("three");
    assert_eq!((status(two), status(three)), (Some(0), Some(0)));
    assert_eq!(site.record(), ["begin one", "begin two", "end two", "begin three", "end three"]);
    until_true("the end of all processes", || site.host.processes().is_empty());
}

/// The status of the command is that of putex lock; a lock that is not had has one of its own.
fn a_lock_has_the_status_of_its_command(site: &Site) {
    let lock = |words: &[&str]| site.run(&[&["lock"], &TIMES[..], words].concat()).status;
    assert_eq!(lock(&["x", "sh", "-c", "exit 3"]), Some(3));
    assert_eq!(lock(&["x", "sh", "-c", "kill -9 $$"]), Some(128 + 9));
    assert_eq!(lock(&["x", "./no-such-program"]), Some(127));
    let one = site.begin("four");
    site.wait_begun("four");
    assert_eq!(lock(&["-n", "x", "true"]), Some(75));
    assert_eq!(lock(&["-n", "-E", "9", "x", "true"]), Some(9));
    assert_eq!(lock(&["-n", "x/part", "true"]), Some(75));
    assert_eq!(lock(&["-n", "y", "true"]), Some(0));
    site.end("four");
    assert_eq!(status(one), Some(0));
}

/// A script has its lock until it releases the lock; terms grow from holder to holder.
fn a_lock_without_a_process_is_held_until_its_release(site: &Site) {
    let grab = |words: &[&str]| site.run(&[&["grab", "--for", FOR], words, &["x"]].concat());
    let one = term(&grab(&["--as", "one", "-w", "1m"]));
    let refused = grab(&["--as", "two", "-n"]);
    assert_eq!(refused.status, Some(75), "{refused:?}");
    assert_eq!(term(&grab(&["--as", "one"])), one, "a lock that is grabbed again is kept");
    assert_eq!(site.run(&["release", "--as", "one", "x"]).status, Some(0));
    let two = term(&grab(&["--as", "two"]));
    assert!(two > one, "{two} {one}");
}

/// Returns the folder of the bucket of a site with a directory, which is made.
fn folder(site: &Site) -> PathBuf {
    let folder = PathBuf::from(&site.store.option()[1]).join("putex");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).expect("a folder");
    folder
}

/// The first process in a directory that another one kept locked had taken its signals, for the
/// report, and heard none of them.
#[test]
fn the_first_request_in_a_directory_waits_for_another_process_until_its_limit_or_a_signal() {
    let _turn = turn();
    let site = Site::new(Store::directory());
    let kept = File::open(folder(&site)).expect("a folder");
    kept.lock().expect("the lock");
    let report = site.host.join("report");
    let words = ["lock", "--report", report.to_str().expect("text"), "x", "true"];
    let first = site.putex(&words).stderr(Stdio::null()).spawn().expect("it can be run");
    let opened = || fs::read_dir(format!("/proc/{}/fd", first.id())).into_iter().flatten();
    let links = || opened().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    until_true("its signals", || links().any(|link| link.ends_with("anon_inode:[signalfd]")));
    signal(first.id(), Signal::TERM);
    assert_eq!(status(first), Some(128 + 15));
    let said = fs::read_to_string(&report).expect("a report");
    assert!(said.contains("\"outcome\":\"interrupted\""), "{said}");
    let run = site.run(&["lock", "-n", "x", "true"]);
    assert_eq!(run.status, Some(69), "{run:?}");
    drop(kept);
    assert_eq!(site.run(&["lock", "-n", "x", "true"]).status, Some(0));
}

/// The signal was read together with the end of the command and passed on to it, and the lock was
/// held for its whole time.
#[test]
fn a_signal_that_is_read_with_the_end_of_the_command_ends_the_hold_of_the_lock() {
    let _turn = turn();
    let site = Site::new(Store::directory());
    let words = ["lock", "--hold", "1h", "x", "sh", "-c", WORKER, "one"];
    let front = site.putex(&words).stderr(Stdio::null()).spawn().expect("it can be run");
    let worker = site.wait_begun("one");
    signal(front.id(), Signal::STOP);
    until_true("a stopped front", || state_of(front.id()) == Some('T'));
    site.end("one");
    until_true("the end of the command", || state_of(worker) == Some('Z'));
    signal(front.id(), Signal::TERM);
    signal(front.id(), Signal::CONT);
    assert_eq!(status(front), Some(0));
    assert_eq!(site.run(&["lock", "-n", "x", "true"]).status, Some(0));
}

/// A host without descriptors is not a store that is out of reach.
#[test]
fn a_process_without_descriptors_for_a_directory_says_that_the_system_lacks_them() {
    let _turn = turn();
    let site = Site::new(Store::directory());
    let putex = programs::putex();
    for words in [
        &["lock", "x", "true"][..],
        &["grab", "--as", "a", "x"],
        &["lease", "claim", "--for", FOR, "x"],
    ] {
        let mut lacked = 0;
        for limit in 4..16 {
            let script = format!("ulimit -n {limit}; exec {} \"$@\"", putex.display());
            let mut shell = site.host.command("sh");
            shell.args(["-c", &script, "sh", words[0]]).args(site.store.option()).args(&words[1..]);
            let run = site.host.run(&mut shell);
            // 127 is the status of the loader.
            assert!(matches!(run.status, Some(0 | 71 | 127)), "{words:?} {limit}: {run:?}");
            lacked += u32::from(run.status == Some(71));
            if run.status == Some(0) {
                break;
            }
        }
        assert!(lacked > 0, "{words:?}");
    }
}

/// A lease is held for its time, whatever becomes of its holder; a write under a lease that has
/// been lost is refused.
#[test]
fn a_write_under_a_lease_is_refused_when_the_lease_has_been_lost() {
    let _turn = turn();
    let site = Site::new(Store::directory());
    let claim = |who: &str| site.run(&["lease", "claim", "--for", FOR, "--as", who, "x"]);
    let put = |who: &str| site.run(&["put", "--lease", "x", "--as", who, "leader", who]).status;
    let one = term(&claim("one"));
    assert_eq!(put("one"), Some(0));
    assert_eq!(put("two"), Some(100));
    let expired = site.run(&["lease", "expire", "-w", "1m", "x"]);
    assert_eq!(expired.status, Some(0), "{expired:?}");
    assert_eq!(put("one"), Some(100));
    assert!(term(&claim("two")) > one);
    assert_eq!((put("one"), put("two")), (Some(100), Some(0)));
}

/// A user's own umask took the right to read the files of the store, and everybody was refused.
#[test]
fn the_files_of_a_directory_are_of_its_user_whatever_the_umask_is() {
    let host = Sandbox::new("umask");
    for umask in ["0777", "0400", "0222"] {
        let mut command = host.command("sh");
        let script = "umask $0; \"$P\" lock --dir $D/$0 x true && \"$P\" grab --dir $D/$0 y >&2 &&
                      exec \"$P\" lock --dir $D/$0 z sh -c 'ls -ld $0 $0/putex $0/putex/*' $D/$0";
        command.args(["-c", script, umask]).env("P", programs::putex()).env("D", host.text());
        let run = host.run(&mut command);
        assert_eq!(run.status, Some(0), "{umask}: {}", run.said);
        let modes: Vec<_> = run.shown.lines().filter_map(|line| line.get(..10)).collect();
        assert_eq!(modes.len(), 6, "two folders, the epoch, the sequence, two tickets");
        let (folders, files) = modes.split_at(2);
        assert!(folders.iter().all(|mode| *mode == "drwx------"), "{umask}: {modes:?}");
        assert!(files.iter().all(|mode| *mode == "-rw-------"), "{umask}: {modes:?}");
    }
}
