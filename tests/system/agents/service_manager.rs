//! An agent as a service manager sees it, and `putex finish` after the end of an agent. The agent
//! is on a directory, and its service is a file.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::small_host::{Host, STOP, kill_both, wait_for_end};
use crate::support::agent::Agent;
use crate::support::clock::{observe_for, until, until_true};
use crate::support::process::{parent_of, signal, state_of};
use crate::support::programs;
use crate::support::sandbox::Run;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Signal, kill_process};

/// Prepares another host's agent, of the same key and token but another store, and its
/// service, the file `other`.
fn of_another_store(host: &Host, verb: &str) -> Command {
    host.putex_at(&host.sandbox.join("lock2"), verb, "echo >$D/other", "rm -f $D/other")
}

/// The end of a socket at which a service manager listens.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn listen(name: &str) -> Manager {
        let name = format!("putex-manager-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("nobody else has it");
        socket.set_nonblocking(true).expect("it can be set");
        Manager { socket, name }
    }

    /// Waits for a word that begins so.
    fn wait_for(&self, beginning: &str) -> String {
        until(beginning, || {
            let mut buffer = [0; 1024];
            let count = self.socket.recv(&mut buffer).ok()?;
            let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let mut lines = said.lines();
            let found = lines.find(|line| line.starts_with(beginning));
            found.map(str::to_owned)
        })
    }

    fn is_silent_for(&self, time: Duration) -> bool {
        // Messages that were sent before do not count.
        while self.socket.recv(&mut [0; 1024]).is_ok() {}
        observe_for(time);
        self.socket.recv(&mut [0; 1024]).is_err()
    }
}

#[test]
fn a_manager_is_told_that_the_agent_stands_by_lives_and_ends() {
    let (host, manager) = (Host::new("notify"), Manager::listen("notify"));
    let mut command = host.putex("agent", STOP);
    command.env("NOTIFY_SOCKET", format!("@{}", manager.name)).env("WATCHDOG_USEC", "300000");
    let agent = Agent::start(&mut command);
    manager.wait_for("READY=1");
    assert!(!host.is_up(), "standing by is not holding the lock");
    manager.wait_for("STATUS=active: taken: free (");
    assert!(host.is_up());
    let given = fs::read_to_string(host.sandbox.join("env")).expect("start wrote it");
    for own in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "JOURNAL_STREAM"] {
        assert!(!given.contains(own), "{own} was given to start");
    }
    let guards = format!("/proc/{}/environ", host.guard());
    let guards = fs::read(guards).expect("it is this user's");
    assert!(!String::from_utf8_lossy(&guards).contains("NOTIFY_SOCKET"));
    manager.wait_for("WATCHDOG=1");
    agent.signal(Signal::HUP);
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    agent.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    host.wait_until_down();
}

#[test]
fn an_agent_that_hangs_is_silent() {
    let (host, manager) = (Host::new("silent"), Manager::listen("silent"));
    let mut command = host.putex("agent", STOP);
    command.env("NOTIFY_SOCKET", format!("@{}", manager.name)).env("WATCHDOG_USEC", "150000");
    let agent = Agent::start(&mut command);
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    agent.signal(Signal::STOP);
    until_true("its stop", || state_of(agent.id()) == Some('T'));
    assert!(manager.is_silent_for(Duration::from_millis(300)));
}

#[test]
fn a_stop_that_fails_keeps_an_agent_from_being_ready() {
    let (host, manager) = (Host::new("unready"), Manager::listen("unready"));
    let mut command = host.putex("agent", "test -e $D/let");
    command.env("NOTIFY_SOCKET", format!("@{}", manager.name));
    let _agent = Agent::start(&mut command);
    manager.wait_for("STATUS=standby: no candidate: stop has not succeeded yet");
    host.sandbox.file("let", "", 0o600);
    manager.wait_for("READY=1");
}

#[test]
fn a_line_is_written_to_the_descriptor_and_it_is_closed() {
    let host = Host::new("fd");
    // A shell gives the pipe that number; cat ends when nobody has it any more.
    let mut shell = host.sandbox.command("/bin/sh");
    shell.args(["-c", r#"{ "$@" --notify-fd 7 7>&1 >/dev/null & } | cat"#]);
    shell.arg("sh").arg(programs::putex());
    shell.args(host.words("agent", STOP)).env("D", host.sandbox.text());
    let output = shell.stderr(Stdio::null()).output().expect("the shell runs");
    assert_eq!(output.stdout, b"\n");
    let guard = host.guard();
    let parent = parent_of(guard.as_raw_nonzero().get().unsigned_abs()).expect("it runs");
    signal(parent, Signal::TERM);
    let folder = format!("/proc/{guard}");
    until_true("the end of the guard", || fs::metadata(&folder).is_err());
}

/// The guard does not go on with its stop: also where start was under way, which the guard has
/// killed.
#[test]
fn a_guard_that_has_stopped_the_service_ends() {
    for held in [false, true] {
        let host = Host::new(if held { "held" } else { "stopped" });
        if held {
            host.sandbox.file("hold", "", 0o600);
        }
        let agent = host.agent();
        host.wait_until_up();
        let guard = host.guard();
        agent.kill();
        wait_for_end(guard);
        assert!(!host.is_up(), "held: {held}");
        let note = fs::read_to_string(host.file_of_guard("lock")).expect("it is text");
        assert!(note.contains(r#""service":"Down""#), "{note}");
    }
}

#[test]
fn finish_leaves_the_service_to_an_agent_or_a_guard_that_lives() {
    let host = Host::new("left");
    let agent = host.agent();
    host.wait_until_up();
    let (status, said) = host.finish(STOP);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the agent lives"), "{said}");
    agent.kill();
    let (status, said) = host.finish("echo no >$D/stopped");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the guard sees to the service"), "{said}");
    assert!(!host.has("stopped"));
    host.wait_until_down();
}

/// The guard took the connection of `finish` for that of the next agent: it dropped the agent,
/// which then killed it, since it did not answer.
#[test]
fn finish_beside_an_agent_that_starts_takes_the_guard_from_nobody() {
    let host = Host::new("beside");
    let mut agent = host.agent();
    host.wait_until_up();
    let (guard, log_of_guard) = (host.guard(), agent.log.clone());
    const ROUNDS: usize = 10;
    for round in 0..ROUNDS {
        agent.kill();
        (agent, _) = thread::scope(|scope| {
            let finish = scope.spawn(|| host.finish(STOP));
            observe_for(Duration::from_millis(5 * round as u64));
            (host.agent(), finish.join().expect("it ends"))
        });
        agent.wait_for_any(&["adopted"]);
    }
    assert!(host.is_up());
    assert_eq!(host.guard(), guard);
    let lost = log_of_guard.text().matches("the agent is gone").count();
    assert!(lost <= ROUNDS, "the guard lost {lost} agents: {}", log_of_guard.text());
}

/// A stopped guard listens, and does nothing else.
#[test]
fn finish_kills_a_guard_that_hangs_and_stops_the_service() {
    let host = Host::new("hangs");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    kill_process(guard, Signal::STOP).expect("it runs");
    agent.kill();
    let (status, said) = host.finish(STOP);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the guard did not answer within 500 ms: it is killed"), "{said}");
    assert!(said.contains("finish: stop succeeded"), "{said}");
    assert!(!host.is_up());
    wait_for_end(guard);
}

/// The end of a guard looks like its answer.
#[test]
fn finish_stops_the_service_of_a_guard_that_dies_while_it_is_asked() {
    let host = Host::new("dies");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    kill_process(guard, Signal::STOP).expect("it runs");
    agent.kill();
    let (status, said) = thread::scope(|scope| {
        let finish = scope.spawn(|| host.finish(STOP));
        // `putex finish` waits 500 ms for an answer.
        observe_for(Duration::from_millis(200));
        kill_process(guard, Signal::KILL).expect("it is stopped");
        finish.join().expect("it ends")
    });
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("finish: stop succeeded"), "{said}");
    assert!(!host.is_up());
}

/// As long as both would, it waits for a guard that listens and for the end of another `finish`.
#[test]
fn finish_does_not_trust_a_lock_that_nobody_answers_for() {
    let host = Host::new("held");
    let agent = host.agent();
    host.wait_until_up();
    kill_both(host.guard(), agent);
    let slow = format!("echo >$D/slow; sleep 0.5; test -e $D/up && {STOP}");
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| host.finish(&slow));
        until_true("stop", || host.has("slow"));
        let second = host.finish("test ! -e $D/up");
        (first.join().expect("it ends"), second)
    });
    for (status, said) in [first, second] {
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("finish: stop succeeded"), "{said}");
    }
    let lock = fs::File::options().write(true).open(host.file_of_guard("lock"));
    let lock = lock.expect("it is there");
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let (status, said) = host.finish("echo >$D/ran");
    assert_eq!(status, Some(71), "{said}");
    let why = "cannot finish: the lock of the guard is held, and no guard listens";
    assert!(said.contains(why), "{said}");
    assert!(!host.has("ran"));
}

#[test]
fn finish_stops_what_agent_and_guard_left() {
    let host = Host::new("both");
    let agent = host.agent();
    host.wait_until_up();
    kill_both(host.guard(), agent);
    assert!(host.is_up(), "nobody stopped it");
    let (status, said) = host.finish("echo oh no; exit 3");
    assert_eq!(status, Some(70), "{said}");
    assert!(said.contains("stop failed: exit status 3; it is run again"), "{said}");
    assert!(said.contains(": stop: oh no\n"), "{said}");
    let (status, said) = host.finish("exec sleep 100");
    assert_eq!(status, Some(70), "{said}");
    assert!(said.contains("stop failed: it did not end within"), "{said}");
    let (status, said) = host.finish(STOP);
    assert_eq!(status, Some(0), "{said}");
    assert!(!host.is_up());
}

/// The two agents have a key and a token in common, as prod and staging do.
#[test]
fn an_agent_of_another_store_is_no_life_of_this_one() {
    let host = Host::new("stores");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    agent.kill();
    let mut other = of_another_store(&host, "agent");
    let other = Agent::start(&mut other);
    wait_for_end(guard);
    assert!(!host.is_up(), "its guard was taken away");
    let other_is_up = || host.has("other");
    until_true("the other service", other_is_up);
    let guard = host.guard();
    let again = host.agent();
    host.wait_until_up();
    kill_both(guard, other);
    let finish = host.sandbox.run(&mut of_another_store(&host, "finish"));
    let Run { status, said, .. } = finish;
    assert!(status == Some(0) && said.contains("stop succeeded"), "{said}");
    assert!(!other_is_up());
    drop(again);
}

#[test]
fn the_end_of_commands_is_heard_of_where_whoever_started_it_ignores_children() {
    let host = Host::new("children");
    let mut deaf = host.sandbox.command("env");
    deaf.arg("--ignore-signal=CHLD").arg(programs::putex());
    deaf.args(host.words("finish", STOP)).env("D", host.sandbox.text());
    let Run { status, said, .. } = host.sandbox.run(&mut deaf);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn a_log_file_that_others_write_too_keeps_every_line() {
    let host = Host::new("shared");
    let mut shell = host.sandbox.command("sh");
    shell
        .args(["-c", "( echo first; \"$@\"; echo last ) >$D/log 2>&1", "sh"])
        .arg(programs::putex())
        .args(host.words("finish", "echo said; true"))
        .env("D", host.sandbox.text());
    assert_eq!(host.sandbox.run(&mut shell).status, Some(0));
    let log = fs::read_to_string(host.sandbox.join("log")).expect("it is text");
    let lines: Vec<_> = log.lines().collect();
    let [first, said, succeeded, last] = lines[..] else {
        panic!("{log}");
    };
    assert_eq!((first, last), ("first", "last"), "{log}");
    // A file adds no time, so putex does.
    let ends = |line: &str, text: &str| {
        let (time, line) = line.split_once(' ').expect("a time");
        assert!(time.len() >= 20 && time.ends_with('Z'), "{log}");
        assert_eq!(line, format!("putex: {}: {text}", host.key), "{log}");
    };
    ends(said, "stop: said");
    ends(succeeded, "finish: stop succeeded");
}
