//! A start that is killed in its middle, and the stop after that: it ends what start has left. And
//! the script of the page where start and stop cannot find out what runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use crate::service::Service;
use crate::support::clock::{observe_for, until_true};
use crate::support::observer::is_held;
use crate::support::process::{children_of, state_of};
use crate::support::programs;
use crate::support::sandbox::with_own_mounts;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// So often a start is stopped in its middle, at an instant that is left to chance.
const STARTS: u32 = 20;

/// How long what it has begun may go on without it, before all are killed.
const HALFWAY: Duration = Duration::from_millis(10);

/// The service of the other tests: a start that was killed between making the service and noting
/// its number left one that stop did not know, and another host's ran beside it.
#[test]
fn the_rigs_stop_ends_what_a_killed_start_left() {
    let service = Service::new();
    let (start, stop) = (service.start_command(), service.stop_command());
    stop_ends_what_a_killed_start_left(&service, &start, &stop);
}

/// The script for hosts without a service manager, as the page has it.
#[test]
fn the_manuals_stop_ends_what_a_killed_start_left() {
    let manual = Manual::new();
    let (start, stop) = (manual.command("start"), manual.command("stop"));
    stop_ends_what_a_killed_start_left(&manual.service, &start, &stop);
}

/// The failures that keep the script from finding out whether the service runs. The script is
/// `$@`, its folder is `$0`.
const DOUBTS: [&str; 14] = [
    "umount -l /proc; exec \"$@\"",
    "umount -l /proc; exec unshare --pid --fork \"$@\"",
    "mount -t tmpfs none /proc; exec \"$@\"",
    "read p _ <$0/run/web.pid; mount -t tmpfs none /proc/$p; exec \"$@\"",
    "read p _ <$0/run/web.pid; mount --bind /dev/null /proc/$p/stat; exec \"$@\"",
    "mv $0/run $0/gone; \"$@\"; s=$?; mv $0/gone $0/run; exit $s",
    // The kernel hides the process, which may be signalled.
    "mount -t proc -o hidepid=2,gid=54321 none /proc
     exec setpriv --bounding-set=-sys_ptrace \"$@\"",
    // Another user reads the file, and may not signal the process.
    "read p _ <$0/run/web.pid; mount --bind /dev/null /proc/$p/stat
     exec setpriv --reuid=65534 --inh-caps=+dac_override --ambient-caps=+dac_override \"$@\"",
    // The line in the file lacks the time, or its end.
    "cd $0/run; read p _ <web.pid; cp web.pid line; echo $p >web.pid
     \"$@\"; s=$?; mv line web.pid; exit $s",
    "cd $0/run; read p _ <web.pid; cp web.pid line; printf '%s 1' $p >web.pid
     \"$@\"; s=$?; mv line web.pid; exit $s",
    // Every program that can be replaced is killed at once.
    "for p in cat cut env expr grep ps pgrep pidof rm sed setsid sleep stat test tr; do
         printf '#!/bin/sh\nkill -9 $$' >$0/killed/$p; chmod 700 $0/killed/$p
     done; PATH=$0/killed:$PATH; exec \"$@\"",
    "PATH=$0; exec \"$@\"",
    // As many descriptors as a shell needs to read a script, and too few for the rest.
    "ulimit -n 12; exec \"$@\"",
    "ulimit -n 13; exec \"$@\"",
];

/// Each failure in the script counted as a service that does not run: start began another one,
/// and stop succeeded beside both.
#[test]
fn the_manuals_start_and_stop_fail_in_doubt() {
    let is_wrong = |doubt: &&str| {
        let manual = Manual::new();
        let runs = || is_held(&manual.service.pipe());
        assert!(manual.run("start"));
        until_true("the service runs", runs);
        // Stop would not know the first service beside a second one.
        manual.run_in(doubt, "start");
        let stopped = manual.run_in(doubt, "stop");
        stopped && runs() || !manual.run("stop") || runs()
    };
    let wrong: Vec<_> = DOUBTS.into_iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "a service goes on: {wrong:#?}");
}

/// The kernel shows a process as a zombie whose first thread alone has ended.
#[test]
fn the_manuals_stop_ends_a_service_whose_first_thread_has_ended() {
    let Some(python) = programs::tool("python3") else { return };
    let manual = Manual::new();
    let pipe = manual.service.pipe();
    let webd = format!(
        "#!{}\nimport ctypes, threading, time\npipe = open({pipe:?}, 'rb+', 0)\n\
         threading.Thread(target=time.sleep, args=(86400,)).start()\n\
         ctypes.CDLL(None).pthread_exit(None)\n",
        python.display()
    );
    manual.write("webd", &webd);
    assert!(manual.run("start"));
    until_true("the first thread has ended", || {
        let line = fs::read_to_string(manual.folder().join("run/web.pid")).unwrap_or_default();
        let pid = line.split(' ').next().and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| state_of(pid) == Some('Z'))
    });
    assert!(manual.run("stop"));
    assert!(!is_held(&pipe), "stop took it for a dead one");
}

/// The script of the page, with a service that only holds the pipe of [`Service`].
#[derive(Debug)]
struct Manual {
    service: Service,
}

impl Manual {
    fn new() -> Manual {
        let manual = Manual { service: Service::new() };
        let folder = manual.service.sandbox.subfolder("manual");
        for name in ["run", "killed"] {
            fs::create_dir(folder.join(name)).expect("the folder can be written");
        }
        let page = include_str!("../../../man/putex.8");
        let scripts = page.split(".Bd -literal -offset indent\n").skip(1);
        let mut scripts = scripts.filter_map(|text| Some(text.split_once(".Ed")?.0));
        let script = scripts.find(|text| text.contains("exec setsid webd"));
        let script = script.expect("the page has the script").replace("\\-", "-");
        let script = script.replace("/run", &folder.join("run").display().to_string());
        manual.write("web", &script.replace("/var/log/webd", "/dev/null"));
        let pipe = manual.service.pipe();
        manual.write("webd", &format!("#!/bin/sh\nexec sleep 86400 <>{}\n", pipe.display()));
        manual
    }

    /// Returns the folder of the script.
    fn folder(&self) -> PathBuf {
        self.service.sandbox.join("manual")
    }

    /// Writes a program into the folder.
    fn write(&self, name: &str, text: &str) {
        let file = self.folder().join(name);
        fs::write(&file, text).expect("the folder can be written");
        fs::set_permissions(file, Permissions::from_mode(0o700)).expect("it is there");
    }

    /// Returns the command that does `role`.
    fn command(&self, role: &str) -> String {
        let folder = self.folder();
        format!("PATH={}:$PATH; {}/web {role}", folder.display(), folder.display())
    }

    /// Returns whether `role` succeeds.
    fn run(&self, role: &str) -> bool {
        let status = shell(&self.service, &self.command(role)).wait();
        status.expect("it was not waited for").success()
    }

    /// Returns whether `role` succeeds in a mount namespace of its own, where `script` runs it.
    fn run_in(&self, script: &str, role: &str) -> bool {
        let folder = self.folder();
        let mut web = self.service.sandbox.marked("/bin/sh");
        web.args(["-c", &self.command(role)]);
        let run = self.service.sandbox.run(&mut with_own_mounts(script, &[&folder], &web));
        run.status == Some(0)
    }
}

/// Stops a start as soon as it has a child, as a busy machine may, lets the child go on, and
/// kills the process group of start.
fn stop_ends_what_a_killed_start_left(service: &Service, start: &str, stop: &str) {
    for number in 0..STARTS {
        let mut start = shell(service, start);
        let pid = Pid::from_child(&start);
        let own = start.id();
        let begun = || !children_of(own).is_empty();
        // A start that has ended was too quick.
        while !begun() && start.try_wait().expect("it can be waited for").is_none() {}
        let _ = kill_process(pid, Signal::STOP);
        observe_for(HALFWAY);
        let _ = kill_process_group(pid, Signal::KILL);
        start.wait().expect("it was not waited for");
        let stopped = shell(service, stop).wait();
        assert!(stopped.is_ok_and(|status| status.success()));
        assert!(!is_held(&service.pipe()), "start {number} left a service");
    }
}

/// Begins a shell command in a process group of its own.
fn shell(service: &Service, command: &str) -> Child {
    let mut shell = service.sandbox.marked("/bin/sh");
    shell.args(["-c", command]).spawn().expect("a shell can be run")
}
