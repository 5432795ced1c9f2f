//! Which commands of an agent run in its control group.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::Room;
use crate::support::agent;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::sandbox::Sandbox;

/// A part of each command that notes its control group, in a file that is named after the command.
const WHERE: &str = "grep ^0:: /proc/self/cgroup >>$D/$0";

/// An agent in the room, on a directory of its own.
struct Agent<'a> {
    sandbox: &'a Sandbox,
    command: Command,
    process: agent::Agent,
}

impl Agent<'_> {
    /// Starts one. In the commands, `$D` is its directory. It is ill while a file of
    /// that name is there.
    fn start<'a>(room: &'a Room, start: &str, stop: &str) -> Agent<'a> {
        let sandbox = &room.sandbox;
        let mut command = sandbox.agent(start, stop);
        command
            .args(["-r", "400ms", "-c", "1", "-f", "4"])
            .args(["--healthcheck", "test ! -e $D/ill"]);
        let process = agent::Agent::start(&mut command);
        Agent { sandbox, command, process }
    }

    /// Starts one whose stop does not stop its service, which is up then.
    fn start_unstoppable(room: &Room) -> Agent<'_> {
        let start = "test -e $D/pid || { setsid sleep 1000 >/dev/null 2>&1 & echo $! >$D/pid; }";
        let start = format!("{start}; {WHERE}");
        let agent = Agent::start(room, &start, "test ! -e $D/pid");
        assert_eq!(agent.after("start", 0, 1), [true]);
        // The process is a shell, and then setsid, until it becomes `sleep`.
        until_true("the service", || agent.is_up());
        agent
    }

    fn is_up(&self) -> bool {
        let pid = fs::read_to_string(self.sandbox.join("pid")).expect("its number");
        let words = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim()));
        words.is_ok_and(|words| words.starts_with("sleep\0"))
    }

    /// Kills it, and starts it again at once.
    fn begin_another_life(&mut self) {
        self.signal(Signal::KILL);
        self.process.wait_exit(now() + PATIENCE).expect("it is killed");
        self.process = agent::Agent::start(&mut self.command);
    }

    /// Returns of each run of a command whether it was in the control group.
    fn inside(&self, command: &str) -> Vec<bool> {
        let said = fs::read_to_string(self.sandbox.join(command)).unwrap_or_default();
        said.lines().map(|line| line.contains("/putex-")).collect()
    }

    /// Waits for `count` runs of a command after those that there were; returns of
    /// each whether it was in the control group.
    fn after(&self, command: &str, were: usize, count: usize) -> Vec<bool> {
        until_true(command, || self.inside(command).len() >= were + count);
        self.inside(command)[were..were + count].to_vec()
    }

    fn touch(&self, name: &str) {
        self.sandbox.file(name, "", 0o600);
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    fn guard(&self) -> Pid {
        self.sandbox.guard("web")
    }
}

#[test]
fn a_start_that_leaves_nothing_inside_enters_once_in_a_term() {
    let Some(room) =
        Room::enter("asserted::a_start_that_leaves_nothing_inside_enters_once_in_a_term")
    else {
        return;
    };
    let fails_first = format!("{WHERE}; test $(wc -l <$D/start) -gt 1");
    let agent = Agent::start(&room, &fails_first, WHERE);
    let starts = agent.after("start", 0, 5);
    assert_eq!(starts, [true, true, false, false, false], "the first failed, not the second");
    // A stop begins anew.
    let stops = agent.inside("stop").len();
    agent.touch("ill");
    agent.after("stop", stops, 1);
    let starts = agent.inside("start").len();
    fs::remove_file(agent.sandbox.join("ill")).expect("it is there");
    assert_eq!(agent.after("start", starts, 3), [true, false, false]);
    let stops = agent.inside("stop");
    assert!(!stops.contains(&true), "{stops:?}");
    agent.signal(Signal::TERM);
    assert_eq!(agent.after("stop", stops.len(), 1), [false]);
}

#[test]
fn a_service_that_died_is_started_inside_again() {
    let Some(room) = Room::enter("asserted::a_service_that_died_is_started_inside_again") else {
        return;
    };
    // A process that is dead and not reaped has no command line.
    let start = "grep -q sleep /proc/$(cat $D/pid)/cmdline 2>/dev/null || {
                     setsid sleep 1000 >/dev/null 2>&1 & echo $! >$D/new; mv $D/new $D/pid; }";
    let stop = "kill -9 $(cat $D/pid) 2>/dev/null";
    let agent = Agent::start(&room, &format!("{start}; {WHERE}"), &format!("{stop}; {WHERE}"));
    assert_eq!(agent.after("start", 0, 3), [true, false, false]);
    let pid = || fs::read_to_string(room.sandbox.join("pid")).expect("its number");
    let (first, starts) = (pid(), agent.inside("start").len());
    let number = first.trim().parse().expect("a number");
    let number = Pid::from_raw(number).expect("a number");
    kill_process(number, Signal::KILL).expect("it runs");
    until_true("another service", || pid() != first);
    let group = fs::read_to_string(format!("/proc/{}/cgroup", pid().trim()));
    let group = group.expect("it runs");
    assert!(group.contains("/putex-"), "{group}");
    // Another start may have come before the end of the service.
    let starts = agent.after("start", starts, 4);
    let entered = starts.iter().filter(|inside| **inside).count();
    assert_eq!(entered, 1, "{starts:?}");
    // The guard's stop is outside too.
    let stops = agent.inside("stop").len();
    agent.signal(Signal::KILL);
    assert_eq!(agent.after("stop", stops, 1), [false]);
}

/// Then only stop finds the service: an operator who relies on the control group has to know.
#[test]
fn a_start_that_cannot_enter_its_control_group_says_so() {
    let Some(room) = Room::enter("asserted::a_start_that_cannot_enter_its_control_group_says_so")
    else {
        return;
    };
    room.sandbox.file("ill", "", 0o600);
    let agent = Agent::start(&room, WHERE, WHERE);
    agent.after("stop", 0, 1);
    let groups = fs::read_dir(&room.group).expect("the control group of the agent");
    let is_own = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"putex-");
    let own = groups.flatten().find(|entry| is_own(&entry.file_name()));
    let own = own.expect("it is there").path();
    until_true("an empty one", || fs::remove_dir(&own).is_ok());
    fs::remove_file(room.sandbox.join("ill")).expect("it is there");
    assert_eq!(agent.after("start", 0, 1), [false]);
    agent.process.wait_for_any(&["start runs outside of its control group"]);
}

/// A service that was adopted is found by the process that has to end it, also by a guard that was
/// started after the instance that started the service.
#[test]
fn a_service_of_a_life_before_is_killed_at_the_end_of_the_budget() {
    let Some(room) =
        Room::enter("asserted::a_service_of_a_life_before_is_killed_at_the_end_of_the_budget")
    else {
        return;
    };
    let mut agent = Agent::start_unstoppable(&room);
    agent.begin_another_life();
    agent.after("start", agent.inside("start").len(), 1);
    // The guard that knew the instance before.
    kill_process(agent.guard(), Signal::KILL).expect("it runs");
    agent.after("start", agent.inside("start").len(), 2);
    assert!(agent.is_up(), "it was adopted");
    agent.signal(Signal::KILL);
    until_true("the end of the service", || !agent.is_up());
}
