//! Commands as processes: which descriptors they have, and what signals do to them before they
//! begin.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::agent::Agent;
use crate::support::clock::{now, observe_for, until_true};
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;

/// Writes the numbers of the descriptors of a command into `$D/fds-$1`, as ls(1) has them: with one
/// of its own, the lowest that is free.
const LIST: &str = "list() {
    ls /proc/self/fd >$D/listed-$1 && mv $D/listed-$1 $D/fds-$1
}; list";

/// Returns the descriptors of a command that lists them.
fn descriptors(sandbox: &Sandbox, name: &str) -> String {
    let file = sandbox.join(format!("fds-{name}"));
    until_true("its descriptors", || file.exists());
    let listed = fs::read_to_string(file).expect("it is there");
    let mut numbers: Vec<u32> = listed.lines().map(|it| it.parse().expect("a number")).collect();
    numbers.sort_unstable();
    let of_list = (0..).find(|number| !numbers.contains(number)).expect("there is one") - 1;
    numbers.retain(|number| *number != of_list);
    let numbers: Vec<_> = numbers.into_iter().map(|number| number.to_string()).collect();
    numbers.join(" ")
}

/// Returns the descriptors of every process that is started here: three, and those that this
/// process was started with.
fn given(sandbox: &Sandbox) -> String {
    let mut command = sandbox.command("sh");
    command.args(["-c", &format!("{LIST} given")]).env("D", sandbox.text());
    assert_eq!(sandbox.run(&mut command).status, Some(0));
    descriptors(sandbox, "given")
}

/// A service that has a lock, a socket or a pipe of putex hides the end of putex from others.
#[test]
fn the_commands_of_agent_and_guard_have_no_descriptor_of_these() {
    let sandbox = Sandbox::new("descriptors");
    let given = given(&sandbox);
    let list = |name: &str| format!("{LIST} {name}");
    let stop = format!("! test -e $D/hang || exec sleep 1000; {}", list("stop"));
    let start = || {
        let mut command = sandbox.agent(&list("start"), &stop);
        command.args(["-r", "200ms", "-c", "1", "--healthcheck", &list("check")]);
        command.args(["--on-change", &list("change"), "--last-resort", &list("resort")]);
        Agent::start(&mut command)
    };
    let mut agent = start();
    for name in ["check", "start", "change"] {
        assert_eq!(descriptors(&sandbox, name), given, "{name}");
    }
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(descriptors(&sandbox, "stop"), given);
    fs::remove_file(sandbox.join("fds-start")).expect("it is there");
    let agent = start();
    descriptors(&sandbox, "start");
    fs::write(sandbox.join("hang"), "").expect("there is room");
    agent.kill();
    assert_eq!(descriptors(&sandbox, "resort"), given);
}

/// The guard and its stop have a higher priority, where that is permitted. The service does not: a
/// remnant of a start that had it would take the host from all others.
#[test]
fn a_service_has_the_priority_of_its_agent() {
    let sandbox = Sandbox::new("priority");
    let nice = |words: &[&str]| {
        let Run { shown, .. } = sandbox.run(sandbox.command("nice").args(words));
        shown.trim().to_owned()
    };
    let of_agent = nice(&["-n", "3", "nice"]);
    let may_come_first = nice(&["-n", "-40", "nice"]) == "-20";
    let agent = sandbox.agent("nice >$D/new; mv $D/new $D/start", "nice >$D/stop");
    let mut command = sandbox.command("nice");
    command.args(["-n", "3"]).arg(agent.get_program()).args(agent.get_args());
    command.args(["-r", "200ms", "-c", "1"]).env("D", sandbox.text());
    let mut agent = Agent::start(&mut command);
    until_true("the service", || sandbox.join("start").exists());
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    let of = |command: &str| fs::read_to_string(sandbox.join(command)).expect("it has run");
    assert_eq!(of("start").trim(), of_agent);
    assert_eq!(of("stop").trim(), if may_come_first { "-20" } else { &of_agent });
}

/// As with flock(1), the command has what its caller has opened. In a directory the lock is that of
/// an open file, which the command keeps beside that.
#[test]
fn the_command_of_a_lock_has_the_descriptors_of_its_caller_and_the_lock() {
    let Some(server) = programs::nats_server() else { return };
    let server = Server::start(&server, "");
    let sandbox = Sandbox::new("inherited");
    let given = given(&sandbox);
    let given: Vec<_> = given.split(' ').chain(["7"]).collect();
    let dir = sandbox.join("store").display().to_string();
    let stores = [("--dir", dir, 1), ("--nats", server.url("nats", "127.0.0.1"), 0)];
    for (option, store, own) in stores {
        let mut command = sandbox.command("sh");
        command.args(["-c", "exec \"$@\" 7</dev/null", "sh"]).arg(programs::putex());
        command.args([
            "lock",
            option,
            &store,
            "x",
            "sh",
            "-c",
            &format!("{LIST} {}", &option[2..]),
        ]);
        let run = sandbox.run(command.env("D", sandbox.text()));
        assert_eq!(run.status, Some(0), "{}", run.said);
        let found = descriptors(&sandbox, &option[2..]);
        let others = found.split(' ').filter(|number| !given.contains(number));
        assert_eq!(others.count(), own, "{option}: {found}");
    }
}

/// A shell without a first line is a program of PATH, as for flock(1).
#[test]
fn the_command_of_a_lock_may_be_a_script_without_a_first_line() {
    let Some(server) = programs::nats_server() else { return };
    let server = Server::start(&server, "");
    let sandbox = Sandbox::new("bare");
    let script = sandbox.join("bare-script");
    fs::write(&script, "echo $# \"$2\"; exit 3\n").expect("a file");
    let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, runnable).expect("its mode");
    let path = format!("{}:{}", sandbox.text(), std::env::var("PATH").unwrap_or_default());
    let dir = sandbox.join("store").display().to_string();
    for (option, store) in [("--dir", dir), ("--nats", server.url("nats", "127.0.0.1"))] {
        for program in [script.display().to_string(), "bare-script".to_owned()] {
            let mut command = sandbox.putex();
            command.args(["lock", option, &store, "x", &program, "a", "b c"]).env("PATH", &path);
            let run = sandbox.run(&mut command);
            assert_eq!((run.status, &*run.shown), (Some(3), "2 b c\n"), "{}", run.said);
        }
    }
}

/// A child is in the group of its parent before it has its own. A signal to the group then is not
/// for the command, and a handler of the parent must not run in memory that both have.
#[test]
fn signals_to_the_group_of_agent_and_guard_do_not_touch_commands_that_are_started() {
    let sandbox = Sandbox::new("flood");
    let mut command = sandbox.agent("echo up >$D/up; echo >>$D/starts", "rm -f $D/up");
    command.args(["-r", "50ms", "-f", "20", "-c", "20", "--healthcheck", "true"]);
    let mut agent = Agent::start(&mut command);
    until_true("the service", || sandbox.join("up").exists());
    let guard = sandbox.guard("web");
    let send = |group: Pid, signals: &[Signal]| {
        signals.iter().for_each(|signal| kill_process_group(group, *signal).expect("it lives"));
    };
    let starts = || fs::metadata(sandbox.join("starts")).map_or(0, |file| file.len());
    let (before, until) = (starts(), now() + FLOOD);
    while now() < until {
        send(guard, &[Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1]);
        // The others end an agent, or have it read its settings.
        send(agent.pid(), &[Signal::USR1]);
        observe_for(BURST_EVERY);
    }
    assert_eq!(sandbox.guard("web"), guard, "another guard was started");
    until_true("fifty more starts", || starts() > before + 50);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(!sandbox.join("up").exists());
    // A busy host takes longer than 20 ms to end a start that runs when the agent is told to end.
    let expected = "stop failed: start had not ended when it began";
    let wrong = ["signal", "failed", "could not be run"];
    let mut lines = said.lines().filter(|line| !line.contains(expected));
    let line = lines.find(|line| wrong.iter().any(|part| line.contains(part)));
    assert_eq!(line, None);
    assert_eq!(said.matches("the service runs here").count(), 1, "{said}");
}

/// How long, and how often.
const FLOOD: Duration = Duration::from_secs(10);
const BURST_EVERY: Duration = Duration::from_micros(500);
