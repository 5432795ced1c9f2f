//! The log of an agent whose commands write too much, or write control characters, and whose
//! log is not read or cannot be written: one agent on a directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{has_signal, proc_sum};
use crate::support::sandbox::Sandbox;
use rustix::process::Signal;

/// Signals of a flood.
const SIGNALS: u32 = 3000;

/// The commands of an agent. In them, `$D` is the folder of the sandbox.
struct Scripts {
    check: &'static str,
    start: &'static str,
    stop: &'static str,
}

/// Starts an agent whose stderr is a file of this sandbox.
fn start(sandbox: &Sandbox, scripts: &Scripts) -> Agent {
    let log = OpenOptions::new().append(true).create(true).open(sandbox.join("log"));
    start_with_stderr(sandbox, scripts, log.expect("a file"))
}

fn start_with_stderr(sandbox: &Sandbox, scripts: &Scripts, stderr: impl Into<Stdio>) -> Agent {
    let mut command = putex(sandbox, "agent", scripts);
    Agent::start_with_stderr(&mut command, stderr).expect("the agent can be run")
}

/// Prepares a command of putex with these options of an agent.
fn putex(sandbox: &Sandbox, subcommand: &str, scripts: &Scripts) -> Command {
    let mut command = sandbox.putex();
    command
        .args([subcommand, "--key", "web", "--token", "one"])
        .args(["-r", "500ms", "-f", "4", "-c", "6"])
        .arg("--dir")
        .arg(sandbox.join("lock"))
        .args(["--healthcheck", scripts.check])
        .args(["--start", scripts.start, "--stop", scripts.stop])
        .env("D", sandbox.text());
    command
}

fn log_of(sandbox: &Sandbox) -> Vec<u8> {
    fs::read(sandbox.join("log")).expect("it is there")
}

/// Waits until the guard has written its last line too.
fn wait_for_end(sandbox: &Sandbox, mut agent: Agent) {
    let (status, _) = agent.wait_end();
    assert_eq!(status, Some(0), "{}", String::from_utf8_lossy(&log_of(sandbox)));
    until_true("the end of the guard", || sandbox.processes().is_empty());
}

/// Checks that each change of state follows the previous one; returns how many there are.
fn check_changes(log: &str) -> usize {
    let changes: Vec<_> = log.lines().filter_map(change).collect();
    for two in changes.windows(2) {
        assert_eq!(two[0].1, two[1].0, "a change is missing:\n{log}");
    }
    changes.len()
}

/// Returns the states in `time putex: web: standby -> taking: why`.
fn change(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" -> ")?;
    Some((before.rsplit(' ').next()?, after.split(':').next()?))
}

/// The log is a file that takes all lines, so that none may be missing.
#[test]
fn commands_that_write_without_end_cost_no_line_of_putex() {
    let sandbox = Sandbox::new("flood");
    let scripts = Scripts {
        check: "timeout 0.1 yes healthcheck; true",
        start: "test -e $D/up || timeout 2 yes start; echo >$D/up",
        stop: "timeout 1 yes stop; rm -f $D/up",
    };
    let agent = start(&sandbox, &scripts);
    until_true("the service", || sandbox.join("up").exists());
    agent.signal(Signal::TERM);
    wait_for_end(&sandbox, agent);
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    assert!(check_changes(&log) >= 4, "{log}");
    assert!(log.contains("the lock is released"), "{log}");
    for command in ["healthcheck", "start", "stop"] {
        assert!(log.contains(&format!("Z putex: web: {command}: {command}\n")), "{command}");
    }
}

#[test]
fn a_stop_that_writes_without_end_costs_no_line_of_the_guard() {
    let sandbox = Sandbox::new("guard");
    let scripts = Scripts {
        check: "true",
        start: "echo >$D/up",
        stop: "test ! -e $D/up || timeout 2 yes; rm -f $D/up",
    };
    let agent = start(&sandbox, &scripts);
    until_true("the service", || sandbox.join("up").exists());
    agent.kill();
    until_true("the end of the guard", || sandbox.processes().is_empty());
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    assert!(log.contains("Z putex: web: stop: y\n"), "stop has written nothing");
    assert!(log.contains("the agent is gone: the guard stops the service"), "it is missing");
    assert!(log.contains("the service is down"), "it is missing");
}

/// Each line woke the guard, which comes first on its processor: the agent had the rest of it.
#[test]
fn a_start_that_writes_line_by_line_does_not_wake_the_guard_for_each() {
    let sandbox = Sandbox::new("lines");
    // On one processor the guard has read a line before the next one is written.
    let one = "one=$(taskset -cp $$ | sed 's/.* //; s/[-,].*//'); \
               taskset -cp $one $PPID && taskset -cp $one $$";
    let count = "i=0; while [ $i -lt 100000 ]; do echo $i; i=$((i + 1)); done";
    let start_script = format!("test -e $D/up || {{ {one} && {count} && echo >$D/up; }}").leak();
    let scripts = Scripts { check: "true", start: start_script, stop: "rm -f $D/up" };
    let began = now();
    let _agent = start(&sandbox, &scripts);
    until_true("the service", || sandbox.join("up").exists());
    let guard = sandbox.guard("web").as_raw_pid().cast_unsigned();
    let waits = proc_sum(guard, "status", &["voluntary_ctxt_switches:"]).expect("it lives");
    // A guard that rests for 2 ms after each line that it has read waits twice in that time: for
    // the end of the rest, and for the next line.
    let most = u64::try_from((now() - began).as_millis()).expect("it fits") + 500;
    assert!(waits <= most, "{waits} waits, at most {most} expected");
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    assert!(log.contains("Z putex: web: start: 1\n"), "start has written nothing");
}

#[test]
fn rust_log_decides_before_the_options_do() {
    let sandbox = Sandbox::new("rust-log");
    let scripts = Scripts { check: "echo fit", start: "echo up; echo >$D/up", stop: "rm -f $D/up" };
    let log = OpenOptions::new().append(true).create(true).open(sandbox.join("log"));
    let mut command = putex(&sandbox, "agent", &scripts);
    command.arg("-q").env("RUST_LOG", "start=info,putex=info");
    let agent = Agent::start_with_stderr(&mut command, log.expect("a file"));
    let agent = agent.expect("the agent can be run");
    until_true("the service", || sandbox.join("up").exists());
    agent.signal(Signal::TERM);
    wait_for_end(&sandbox, agent);
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    for said in ["putex: web: start: up\n", "the lock is released"] {
        assert!(log.contains(said), "{said}:\n{log}");
    }
    assert!(!log.contains("healthcheck: fit"), "{log}");
}

#[test]
fn control_characters_of_commands_do_not_reach_the_log() {
    let sandbox = Sandbox::new("escape");
    // The third escape is CSI in one character. A carriage return before the end of a line
    // is not shown at all.
    let print = r"printf 'a\033[2Jb\007c\302\2331md\rforged\000\342\200\256e\tf\r\n'; ";
    let script = |command: &str| -> &'static str { format!("{print}{command}").leak() };
    let scripts = Scripts {
        check: script("true"),
        start: script("echo >$D/up"),
        stop: script("rm -f $D/up"),
    };
    let agent = start(&sandbox, &scripts);
    until_true("the service", || sandbox.join("up").exists());
    agent.signal(Signal::TERM);
    wait_for_end(&sandbox, agent);
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    for command in ["healthcheck", "start", "stop"] {
        let wanted = format!("{command}: a?[2Jb?c?1md?forged??e f\n");
        assert!(log.contains(&wanted), "{log:?}");
    }
    let wrong = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!log.contains(wrong), "{log:?}");
}

/// Waits until a process has read a signal that it was sent. It does not sleep: thousands of lines
/// are to come within the time of the test.
fn wait_until_read(pid: u32, signal: Signal) {
    let deadline = now() + PATIENCE;
    while has_signal(pid, "ShdPnd:", signal) {
        assert!(now() < deadline, "the signal was not read");
        thread::yield_now();
    }
}

#[test]
fn lines_that_nobody_read_are_counted() {
    let sandbox = Sandbox::new("unread");
    let scripts = Scripts { check: "seq 3000", start: "echo >$D/up", stop: "rm -f $D/up" };
    let (mut reader, writer) = io::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("it can be set");
    let mut agent = start_with_stderr(&sandbox, &scripts, writer);
    until_true("the service", || sandbox.join("up").exists());
    let reading = thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).expect("it is text");
        log
    });
    agent.signal(Signal::TERM);
    let (status, _) = agent.wait_end();
    let log = reading.join().expect("it reads");
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("putex: web: healthcheck: 1\n"), "{log}");
    assert!(log.contains("log lines were dropped\n"), "{log}");
    assert!(log.contains("the lock is released"), "{log}");
}

/// By a program that takes the agent for another one.
#[test]
fn a_flood_of_signals_without_a_meaning_ends_nothing_and_is_not_logged() {
    let sandbox = Sandbox::new("signals");
    let scripts = Scripts { check: "true", start: "echo >$D/up", stop: "rm -f $D/up" };
    let agent = start(&sandbox, &scripts);
    until_true("the service", || sandbox.join("up").exists());
    for _ in 0..SIGNALS {
        agent.signal(Signal::USR1);
        // Signals that come together are one.
        wait_until_read(agent.id(), Signal::USR1);
    }
    assert!(sandbox.join("up").exists());
    agent.signal(Signal::TERM);
    wait_for_end(&sandbox, agent);
    let log = String::from_utf8(log_of(&sandbox)).expect("it is text");
    assert!(!log.contains("SIGUSR1"), "{log}");
    assert!(log.contains("the lock is released"), "{log}");
}

#[test]
fn lines_that_could_not_be_written_are_counted_when_there_is_room() {
    let sandbox = Sandbox::new("limit");
    let path = sandbox.join("log");
    let mut command = sandbox.command("/bin/sh");
    let script = "ulimit -f 1; exec \"$0\" agent --key web --token one -r 300ms --dir $D/lock \
                  --start 'echo >>$D/up; echo again' --stop true";
    command.args(["-c", script]).arg(crate::support::programs::putex()).env("D", sandbox.text());
    let log = OpenOptions::new().append(true).create(true).open(&path);
    let agent = Agent::start_with_stderr(&mut command, log.expect("a file"));
    let _agent = agent.expect("the agent can be run");
    until_true("the service", || sandbox.join("up").exists());
    let length = || fs::metadata(&path).expect("it is there").len();
    // A shell counts in blocks of 512 or 1024 bytes. Each start writes a line.
    until_true("a full file", || [512, 1024].contains(&length()));
    let starts = || fs::metadata(sandbox.join("up")).expect("start wrote it").len();
    let before = starts();
    until_true("two more starts", || starts() >= before + 2);
    File::options().write(true).truncate(true).open(&path).expect("it is there");
    until_true("the count", || {
        let log = fs::read_to_string(&path).expect("it is text");
        log.contains("log lines were dropped\n")
    });
}

/// Until the server was there, no line told which agent waited for it.
#[test]
fn an_agent_whose_server_is_out_of_reach_says_which_agent_it_is() {
    let sandbox = Sandbox::new("no-server");
    let mut command = sandbox.putex();
    command.args(["agent", "--nats", "127.0.0.1:1", "--bucket", "b", "--key", "web"]);
    command.args(["--token", "one", "--start", "true", "--stop", "true"]);
    let agent = Agent::start(&mut command);
    agent.wait_for_any(&[", agent one, process "]);
    agent.wait_for_any(&["127.0.0.1:1: "]);
}
