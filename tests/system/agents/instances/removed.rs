//! The private directory, removed while agent and guard run: by hand, or by a program that
//! removes old files. The next instance does not find the guard then; nothing else changes.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::site::Site;
use crate::small_host::{Host, STOP, file_in, wait_for_end};
use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::process::lives;
use crate::support::programs;

/// Hides the control groups of the host, where that is permitted.
const HIDE_CGROUPS: &str = "mount -t tmpfs none /sys/fs/cgroup 2>/dev/null; exec \"$@\"";

/// A guard that has no name for its lock says so.
const REMOVED: &str = "somebody has removed the private directory";

/// The next guard of this agent knows all that the previous one has noted.
#[test]
fn an_agent_without_its_private_directory_goes_on_and_replaces_its_guard() {
    let site = Site::new("removed");
    let agent = site.agent();
    let before = site.wait_until_up();
    remove_directory(&site.sandbox);
    site.wait_for_starts(3);
    assert_eq!(site.running(), before);
    kill_process(before.guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&[REMOVED]);
    site.wait_for_starts(3);
    let after = site.running();
    assert_ne!(after.guard, before.guard);
    after.assert_untouched_since(&before);
}

/// Nor does the next guard need a directory: the agent has given it the lock.
#[test]
fn a_guard_that_can_make_no_private_directory_replaces_the_one_before() {
    let site = Site::new("no-directory");
    let agent = site.agent();
    let before = site.wait_until_up();
    let dir = file_in(&site.sandbox, "lock").with_file_name("");
    fs::remove_dir_all(&dir).expect("it is there");
    fs::write(dir.to_str().expect("text").trim_end_matches('/'), "").expect("there is room");
    kill_process(before.guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&["the next instance of the agent will not find this guard"]);
    site.wait_for_starts(3);
    let after = site.running();
    assert_ne!(after.guard, before.guard);
    after.assert_untouched_since(&before);
}

/// Not even where something else has the directory meanwhile.
#[test]
fn a_guard_does_not_listen_in_a_directory_that_is_not_its_own() {
    let site = Site::new("another");
    let agent = site.agent();
    let before = site.wait_until_up();
    let (lock, socket) = (file_in(&site.sandbox, "lock"), file_in(&site.sandbox, "socket"));
    fs::remove_file(&lock).expect("it is there");
    fs::remove_file(&socket).expect("it is there");
    fs::write(&lock, "").expect("there is room");
    kill_process(before.guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&[REMOVED]);
    site.wait_for_starts(1);
    assert!(!socket.exists());
}

/// Neither would find the notes of that guard, so the next instance begins with another.
#[test]
fn a_service_whose_guard_is_not_found_is_stopped_before_another_runs() {
    for name in ["", "lock", "socket"] {
        let site = Site::new(&format!("lost-{name}"));
        let agent = site.agent();
        let before = site.wait_until_up();
        if name.is_empty() {
            remove_directory(&site.sandbox);
        } else {
            fs::remove_file(file_in(&site.sandbox, name)).expect("it is there");
        }
        agent.kill();
        let agent = site.agent();
        site.wait_for_another(before.service);
        assert!(!lives(before.service));
        assert!(!agent.log.text().contains("adopted"), "{}", agent.log.text());
    }
}

/// The lock of the guard names its process, which is killed like one that does not answer: the
/// service ran on after its lock had run out.
#[test]
fn a_guard_that_hangs_without_its_socket_is_killed_and_the_service_is_stopped() {
    let site = Site::new("hangs");
    let agent = site.agent();
    let before = site.wait_until_up();
    fs::remove_file(file_in(&site.sandbox, "socket")).expect("it is there");
    kill_process(before.guard, Signal::STOP).expect("it runs");
    agent.kill();
    let _next = site.agent();
    wait_for_end(before.guard);
    site.wait_for_another(before.service);
    assert!(!lives(before.service));
}

/// Each instance began anew to wait for the answer of the guard, and renewed nothing meanwhile:
/// another host started the service.
#[test]
fn a_guard_that_hangs_is_killed_before_its_agent_is_upgraded() {
    let site = Site::new("upgrades");
    let agent = site.agent();
    let before = site.wait_until_up();
    kill_process(before.guard, Signal::STOP).expect("it runs");
    agent.signal(Signal::USR2);
    until_true("the upgrade", || agent.log.text().contains("upgrade: executing"));
    assert!(!lives(before.guard.as_raw_nonzero().get().cast_unsigned()));
}

/// The guard that is not found ends later. Both have used one control group.
#[test]
fn the_next_service_runs_in_its_control_group_when_the_guard_before_has_ended() {
    let site = Site::new("shared");
    let agent = site.agent();
    let before = site.wait_until_up();
    remove_directory(&site.sandbox);
    agent.signal(Signal::USR2);
    wait_for_end(before.guard);
    site.wait_for_another(before.service);
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", site.running().service));
    let inside = cgroups.expect("it runs").contains("/putex-");
    assert!(inside || agent.log.text().contains("no control group"), "{}", agent.log.text());
}

/// The other agent's guard knows nothing of it.
#[test]
fn a_start_is_killed_with_its_guard_while_another_agent_has_the_directory() {
    let host = Host::new("followed");
    let (agent, guard, start) = start_that_runs(&host);
    let socket = host.file_of_guard("socket");
    // Neither acts before the other agent has the directory.
    agent.signal(Signal::STOP);
    kill_process(guard, Signal::STOP).expect("it runs");
    remove_directory(&host.sandbox);
    let _another = agent_without_cgroups(&host);
    until_true("another guard", || socket.exists());
    kill_process(guard, Signal::KILL).expect("it is stopped");
    agent.signal(Signal::CONT);
    until_true("the end of start", || !lives(start));
}

/// `putex finish` finds neither the agent nor its guard. The agent has the service started again.
#[test]
fn finish_stops_the_service_of_an_agent_without_its_private_directory() {
    let host = Host::new("unseen");
    let agent = host.agent();
    host.wait_until_up();
    agent.signal(Signal::STOP);
    remove_directory(&host.sandbox);
    let (status, said) = host.finish(STOP);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("finish: stop succeeded"), "{said}");
    assert!(!host.is_up());
    agent.signal(Signal::CONT);
    host.wait_until_up();
}

fn remove_directory(sandbox: &std::path::Path) {
    fs::remove_dir_all(sandbox.join("run/putex")).expect("it is there");
}

/// Starts an agent whose first start does not end; returns it, its guard and that start.
fn start_that_runs(host: &Host) -> (Agent, Pid, u32) {
    host.sandbox.file("hold", "", 0o600);
    let agent = agent_without_cgroups(host);
    host.wait_until_up();
    let starts = || host.sandbox.processes_of("sleep");
    until_true("start", || starts().len() == 1);
    (agent, host.guard(), starts()[0])
}

/// Starts the agent where nothing but a note says what a guard was running.
fn agent_without_cgroups(host: &Host) -> Agent {
    let mut command = host.sandbox.command("sh");
    command.args(["-c", HIDE_CGROUPS, "sh"]).arg(programs::putex());
    Agent::start(command.args(host.words("agent", STOP)).env("D", host.sandbox.text()))
}
