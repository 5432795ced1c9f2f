//! What agent and guard lack, and what is sent to them, must not leave a service without
//! either: an agent on a directory, and a service that is a file.

mod guards;
mod small_host;

use std::fs::{self, OpenOptions};
use std::process::Command;

use guards::guard_of;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use small_host::{Agent, Host, STOP, until, wait_for_end};

/// Signals that the guard cannot see, or that say that it is broken.
const NOT_HEEDED: [i32; 6] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
];

#[test]
fn no_signal_ends_a_guard() {
    let host = Host::new("signals");
    let agent = host.agent();
    host.wait_until_up();
    let guard = guard_of(&host.key);
    // The last of those with a name says so too.
    let named = 1..libc::SIGSYS;
    for number in named.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        if !NOT_HEEDED.contains(&number) {
            let mut kill = Command::new("/bin/kill");
            let kill = kill.args([format!("-{number}"), guard.to_string()]);
            assert!(kill.status().expect("it runs").success(), "{number}");
        }
    }
    agent.kill();
    wait_for_end(guard);
    assert!(!host.is_up(), "the guard was ended");
}

/// Whoever writes beyond the limit of a file is sent a signal that ends it.
#[test]
fn a_log_file_that_may_not_grow_ends_nobody() {
    let host = Host::new("limit");
    let log = host.log();
    let putex = host.putex("agent", STOP);
    let mut agent = Command::new("/bin/sh");
    agent.args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]);
    agent.arg(putex.get_program()).args(putex.get_args());
    let file = OpenOptions::new().append(true).create(true).open(&log);
    agent.stderr(file.expect("a file")).env("D", &host.folder);
    let agent = Agent(agent.spawn().expect("there is a shell"));
    host.wait_until_up();
    let guard = guard_of(&host.key);
    let say = || kill_process(Pid::from_child(&agent.0), Signal::HUP).expect("it lives");
    // A shell counts in blocks of 512 or 1024 bytes. Each of these is logged.
    until("full log", || {
        say();
        let length = fs::metadata(&log).expect("it is there").len();
        [512, 1024].contains(&length).then_some(())
    });
    let started = fs::metadata(host.folder.join("env")).and_then(|file| file.modified());
    let started = started.expect("start wrote it");
    until("another start", || {
        say();
        let file = fs::metadata(host.folder.join("env")).expect("it is there");
        (file.modified().expect("a time") > started).then_some(())
    });
    agent.kill();
    // It says that the agent is gone.
    wait_for_end(guard);
    assert!(!host.is_up(), "the log has ended the guard");
}

/// It cannot run stop, and its guard leaves that to it for as long as it lives.
#[test]
fn an_agent_without_descriptors_leaves_its_service_to_the_guard() {
    let host = Host::new("descriptors");
    let mut agent = host.logged_agent();
    host.wait_until_up();
    let guard = guard_of(&host.key);
    let few = Rlimit {
        current: Some(8),
        maximum: Some(8),
    };
    let pid = Pid::from_child(&agent.0);
    prlimit(Some(pid), Resource::Nofile, few).expect("it is this user's");
    host.wait_until_down();
    wait_for_end(guard);
    let status = agent.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(71));
    let why = "stop could not be run: Too many open files (os error 24): it is left to the guard";
    assert!(host.said(why), "{:?}", fs::read_to_string(host.log()));
}
