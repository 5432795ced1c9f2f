//! A start that is killed in its middle, and the stop after that: it ends what start has left.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::Duration;

use crate::service::Service;
use crate::support::clock::observe_for;
use crate::support::observer::is_held;
use crate::support::process::children_of;
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
    let service = Service::new();
    let folder = service.sandbox.subfolder("manual");
    let page = include_str!("../../../man/putex.8");
    let scripts = page.split(".Bd -literal -offset indent\n").skip(1);
    let mut scripts = scripts.filter_map(|text| Some(text.split_once(".Ed")?.0));
    let script = scripts.find(|text| text.contains("exec setsid webd"));
    let script = script.expect("the page has the script").replace("\\-", "-");
    let script = script.replace("/run", &folder.display().to_string());
    let script = script.replace("/var/log/webd", "/dev/null");
    let webd = format!("exec sleep 86400 <>{}\n", service.pipe().display());
    for (name, text) in [("web", script), ("webd", format!("#!/bin/sh\n{webd}"))] {
        fs::write(folder.join(name), text).expect("the folder can be written");
        let mode = Permissions::from_mode(0o700);
        fs::set_permissions(folder.join(name), mode).expect("it is there");
    }
    let run = |role| format!("PATH={}:$PATH; web {role}", folder.display());
    stop_ends_what_a_killed_start_left(&service, &run("start"), &run("stop"));
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
