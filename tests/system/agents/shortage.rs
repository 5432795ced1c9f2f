//! Shortages of agent and guard, and signals to them, which must not leave a service without
//! either: an agent on a directory, and a service that is a file.

use std::fs::{self, OpenOptions};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::small_host::{Host, START, STOP, wait_for_end};
use crate::support::agent::Agent;
use crate::support::clock::{now, until, until_true, wait_until};
use crate::support::process::{children_of, is_traced};
use crate::support::programs;
use putex::sys::{self, Alarm, PollFlags};
use rustix::event::PollFd;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// Signals that the guard cannot see, or that say that it is broken.
const NOT_HANDLED: [i32; 6] =
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

#[test]
fn no_signal_ends_a_guard() {
    let host = Host::new("signals");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    // The last of those with a name says so too. The others are for programs, and some for the C
    // library.
    let numbers = (1..libc::SIGSYS).chain(libc::SIGSYS + 1..=libc::SIGRTMAX());
    let numbers = numbers.filter(|number| !NOT_HANDLED.contains(number));
    let numbers: Vec<_> = numbers.map(|number| number.to_string()).collect();
    // Signals that a stopped process gets are handled all at once.
    let script = "kill -STOP $0; for n; do kill -$n $0 || exit 1; done; kill -CONT $0";
    let mut kill = Command::new("/bin/sh");
    let kill = kill.args(["-c", script, &guard.to_string()]).args(numbers);
    assert!(kill.status().expect("it runs").success());
    agent.kill();
    wait_for_end(guard);
    assert!(!host.is_up(), "the guard was ended");
}

/// A guard under a limit on descriptors that was lowered took two thirds of a processor.
#[test]
fn a_wait_that_the_kernel_refuses_takes_a_moment() {
    let limit = getrlimit(Resource::Nofile).current.filter(|limit| *limit <= 1 << 20);
    let Some(limit) = limit else { return println!("skipped: no limit on descriptors") };
    let alarm = Alarm::new().expect("a descriptor");
    let mut fds: Vec<_> = (0..=limit).map(|_| PollFd::new(&alarm, PollFlags::IN)).collect();
    let began = sys::now();
    sys::poll(&mut fds).expect_err("they are more than the limit");
    assert!(sys::now().since(began) >= Duration::from_millis(1));
}

/// Agent and guard both count the messages of the agent: a refused message is sent again, not left
/// out.
#[test]
fn a_guard_is_kept_when_the_kernel_has_no_memory_for_a_message() {
    refuse_message("memory", |agent, _| agent.to_string());
}

/// A guard that does not answer is killed.
#[test]
fn a_guard_is_kept_when_the_kernel_has_no_memory_for_its_report() {
    refuse_message("report", |_, guard| guard.to_string());
}

/// Starts a strace with these options, which writes to `calls`; `None` where there is none.
fn strace(host: &Host, options: &[&str]) -> Option<Child> {
    let mut strace = host.sandbox.marked(programs::tool("strace")?);
    strace.args(["-qq", "-o"]).arg(host.sandbox.join("calls")).args(options);
    Some(strace.stderr(Stdio::null()).spawn().expect("it runs"))
}

/// Has strace follow processes with these options, until `count` says of its output that more than
/// eight calls were seen; returns whether it could follow.
fn follow(host: &Host, options: &[&str], count: impl Fn(&str) -> usize) -> bool {
    let Some(mut strace) = strace(host, options) else {
        return false;
    };
    let calls = host.sandbox.join("calls");
    let seen = || count(&fs::read_to_string(&calls).unwrap_or_default());
    // strace ends with the process that it follows, or at once where it may not follow a process.
    until_true("calls", || seen() > 8 || matches!(strace.try_wait(), Ok(Some(_))));
    let (_, _) = (strace.kill(), strace.wait());
    if seen() == 0 {
        println!("skipped: strace may not follow a process");
    }
    seen() > 0
}

/// Has the kernel refuse a message of a thread four times, by agent and guard: the guard is kept.
fn refuse_message(name: &str, sender: impl Fn(u32, Pid) -> String) {
    let host = Host::new(name);
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    let sender = sender(agent.id(), guard);
    let options = ["-e", "inject=sendmsg:error=ENOBUFS:when=1..4", "-p", &sender];
    let sent = |calls: &str| calls.lines().filter(|call| call.starts_with("sendmsg(")).count();
    if follow(&host, &options, sent) {
        assert_eq!(host.guard(), guard, "{}", agent.log.text());
        assert!(!agent.log.text().contains("the guard"), "{}", agent.log.text());
    }
}

/// A disk that hangs keeps the kernel from reading the program of the next guard. The agent goes on
/// meanwhile, and gives that guard up.
#[test]
fn an_agent_acts_while_the_start_of_a_guard_hangs() {
    let host = Host::new("hangs");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    let delay = "inject=execve:delay_enter=20s:when=1";
    let followed = agent.id().to_string();
    let options = ["-f", "-P", "/proc/self/exe", "-e", delay, "-p", &followed];
    let Some(mut strace) = strace(&host, &options) else { return };
    let is_followed = || is_traced(agent.id());
    until_true("strace", || is_followed() || matches!(strace.try_wait(), Ok(Some(_))));
    if !is_followed() {
        return println!("skipped: strace may not follow a process");
    }
    kill_process(guard, Signal::KILL).expect("it runs");
    let starting = || spawned_by(agent.id(), "putex-connect");
    let hanging = until("the start of another guard", starting);
    agent.wait_for_any(&["the guard did not answer"]);
    assert_eq!(starting(), Some(hanging), "{}", agent.log.text());
    let _ = (strace.kill(), strace.wait());
    let lines = || agent.log.text().matches("the service runs here").count();
    until_true("the service", || lines() > 1);
    assert!(host.is_up(), "{}", agent.log.text());
    until_true("one guard", || host.sandbox.guards(&host.key).len() == 1);
}

/// As when fsfreeze(8) holds the file system for a backup. The guard notes each run of stop in its
/// private directory.
#[test]
fn a_disk_that_takes_no_note_keeps_no_stop_from_being_run_again() {
    let host = Host::new("no-note");
    let stop = "test ! -e $D/up || test -e $D/failed || { echo >$D/failed; exit 1; }; rm -f $D/up";
    let mut agent = Agent::start(&mut host.putex("agent", stop));
    host.wait_until_up();
    let guard = host.guard().as_raw_pid().unsigned_abs();
    let followed = guard.to_string();
    let options = ["-f", "-e", "inject=pwrite64:delay_enter=1000s", "-p", &followed];
    let Some(mut strace) = strace(&host, &options) else { return };
    until_true("strace", || is_traced(guard) || matches!(strace.try_wait(), Ok(Some(_))));
    if !is_traced(guard) {
        return println!("skipped: strace may not follow a process");
    }
    agent.signal(Signal::TERM);
    host.wait_until_down();
    assert!(host.has("failed"));
    let _ = (strace.kill(), strace.wait());
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
}

/// Returns a process that a thread of this name has spawned, and that executes no program yet.
fn spawned_by(parent: u32, thread: &str) -> Option<u32> {
    let name = format!("{thread}\n");
    let has_name = |child: &u32| {
        fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm == name)
    };
    children_of(parent).into_iter().find(has_name)
}

/// A process that writes beyond the limit of a file is sent a signal that ends it.
#[test]
fn a_log_file_that_may_not_grow_ends_nobody() {
    let host = Host::new("limit");
    let log = host.sandbox.join("log");
    let mut agent = host.sandbox.command("/bin/sh");
    agent.args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]);
    let start = format!("{START}; echo again");
    let words = host.words_at(&host.sandbox.join("lock"), "agent", &start, STOP);
    agent.arg(programs::putex()).args(words).env("D", host.sandbox.text());
    let file = OpenOptions::new().append(true).create(true).open(&log);
    let agent = Agent::start_with_stderr(&mut agent, file.expect("a file"));
    let agent = agent.expect("there is a shell");
    host.wait_until_up();
    let guard = host.guard();
    // A shell counts in blocks of 512 or 1024 bytes. Each start writes a line.
    until_true("a full log", || {
        let length = fs::metadata(&log).expect("it is there").len();
        [512, 1024].contains(&length)
    });
    let env = host.sandbox.join("env");
    let started = fs::metadata(&env).and_then(|file| file.modified());
    let started = started.expect("start wrote it");
    until_true("another start", || {
        let file = fs::metadata(&env).expect("it is there");
        file.modified().expect("a time") > started
    });
    agent.kill();
    // The guard logs that the agent is gone.
    wait_for_end(guard);
    assert!(!host.is_up(), "the log has ended the guard");
}

/// Such an agent cannot renew, and its guard stops the service. The agent goes on when it has
/// descriptors again.
#[test]
fn an_agent_without_descriptors_loses_its_lock_and_its_guard_stops_the_service() {
    let host = Host::new("descriptors");
    let mut agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    let limit_to = |count| {
        let few = Rlimit { current: Some(count), maximum: Some(1024) };
        prlimit(Some(agent.pid()), Resource::Nofile, few).expect("it is this user's");
    };
    limit_to(8);
    host.wait_until_down();
    limit_to(1024);
    host.wait_until_up();
    assert_eq!(host.guard(), guard, "another guard was started");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("Too many open files"), "{said}");
    assert!(!host.is_up());
}

/// Regression: such an agent read no signal, and no answer of its guard, which it killed and could
/// not replace.
#[test]
fn an_agent_that_cannot_wait_looks_all_the_same() {
    let host = Host::new("wait");
    let mut agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    let few = Rlimit { current: Some(2), maximum: Some(1024) };
    prlimit(Some(agent.pid()), Resource::Nofile, few).expect("it is this user's");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(!host.is_up() && !said.contains("did not answer"), "{said}");
    wait_for_end(guard);
}

/// poll(2) takes no more descriptors than the process may have.
#[test]
fn a_guard_that_cannot_wait_does_not_fill_the_log() {
    let host = Host::new("poll");
    let agent = host.agent();
    host.wait_until_up();
    let limit_to = |count| {
        let few = Rlimit { current: Some(count), maximum: Some(1024) };
        prlimit(Some(host.guard()), Resource::Nofile, few).expect("it is this user's");
    };
    let lines = || agent.log.text().lines().count();
    let (guard, before) = (host.guard(), lines());
    limit_to(2);
    wait_until::<()>(now() + Duration::from_secs(1), || None);
    limit_to(1024);
    assert!(lines() < before + 20, "{}", agent.log.text());
    assert!(host.is_up() && host.guard() == guard, "{}", agent.log.text());
}

/// The guard needs more descriptors to begin than the agent has.
#[test]
fn an_agent_without_a_guard_does_not_say_that_the_guard_goes_on() {
    let host = Host::new("no-guard");
    let mut agent = host.sandbox.command("/bin/sh");
    agent.args(["-c", "ulimit -n 26; exec \"$@\"", "sh"]);
    agent.arg(programs::putex()).args(host.words("agent", STOP));
    agent.env("D", host.sandbox.text());
    let mut agent = Agent::start(&mut agent);
    agent.wait_for_any(&["there is no guard: "]);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(70), "{said}");
    assert!(said.contains("; there is no guard that could go on running stop"), "{said}");
}
