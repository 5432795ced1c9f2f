//! An agent of a host over time: its instances, its guards, and other processes that could be taken
//! for them. Agents on a directory, and a service that is a process.

mod hostile;
mod other_version;
mod removed;
mod site;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::small_host::{Host, START, STOP, wait_for_end};
use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, observe_for, until_true};
use crate::support::process::{self, lives, parent_of, signal};
use crate::support::programs;
use crate::support::sandbox::Run;
use rustix::process::{Signal, kill_process};
use site::Site;

/// So often both signals are sent.
const ENDS: usize = 5;

/// A time namespace has clocks of its own: a deadline of that agent is a day late here.
#[test]
fn a_guard_takes_no_grant_of_an_agent_with_another_clock() {
    let other = ["unshare", "--time", "--boottime", "100000", "--fork"];
    if !Command::new(other[0]).args(&other[1..]).arg("true").status().is_ok_and(|it| it.success()) {
        return println!("skipped: no time namespace can be made here");
    }
    let site = Site::new("clock");
    let first = site.agent();
    site.wait_until_up();
    first.signal(Signal::KILL);
    let second = site.agent_within(&other);
    until_true("a refusal", || first.log.text().contains("its clock is not that of this guard"));
    // The guard that it starts itself has its clock.
    second.wait_for_any(&["the service runs here"]);
}

/// A directory that was made a moment ago may have lost its keys: it is old by the clock of a time
/// namespace, and of another boot by the name that a container is given.
#[test]
fn a_new_directory_is_not_old_for_an_agent_with_another_clock_or_another_name_of_the_boot() {
    let mount = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let site = Site::new("clock");
    let id = site.sandbox.file("id", "01234567-89ab-cdef-0123-456789abcdef\n", 0o600);
    let id = id.to_str().expect("text");
    let time = ["unshare", "--time", "--boottime", "100000", "--fork"];
    let boot = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, id];
    for other in [&time[..], &boot] {
        if !Command::new(other[0])
            .args(&other[1..])
            .arg("true")
            .status()
            .is_ok_and(|it| it.success())
        {
            return println!("skipped: no such namespace can be made here");
        }
        let site = Site::new("clock");
        let observer = Agent::start(site.prepare("true", STOP).arg("--observe"));
        observer.wait_for_any(&["the bucket is open"]);
        observer.kill();
        let agent = site.agent_within(other);
        agent.wait_for_any(&["no record yet"]);
        agent.wait_for_any(&["waited 500 ms for a previous holder to stop"]);
    }
}

/// A signal that comes before the next instance can take it waits.
#[test]
fn signals_in_any_number_do_not_end_an_agent_that_executes_its_program_anew() {
    let site = Site::new("signals");
    let mut agent = site.agent();
    let before = site.wait_until_up();
    for number in 0..300 {
        agent.signal(Signal::USR2);
        observe_for(Duration::from_millis(2));
        assert!(agent.runs(), "signal {number} has ended it");
    }
    site.wait_for_starts(2);
    assert_eq!(site.running(), before);
}

#[test]
fn an_agent_that_is_told_to_end_and_to_execute_its_program_ends() {
    for _ in 0..ENDS {
        let site = Site::new("both");
        let mut agent = site.agent();
        site.wait_until_up();
        agent.signal(Signal::USR2);
        agent.signal(Signal::TERM);
        let (status, said) = agent.wait_end();
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("the lock is released"), "{said}");
    }
}

#[test]
fn a_guard_that_an_instance_before_has_started_is_reaped() {
    let site = Site::new("reaped");
    let agent = site.agent();
    let before = site.wait_until_up();
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["adopted as revision"]);
    kill_process(before.guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&["the guard is gone: it has ended: killed by signal 9"]);
    let process = format!("/proc/{}", before.guard);
    until_true("the end of the guard", || fs::metadata(&process).is_err());
    site.wait_for_starts(2);
    let after = site.running();
    after.assert_untouched_since(&before);
}

/// The guard of a standby ends when the agent has executed its program, and may accept the
/// connection of the next instance before that.
#[test]
fn a_standby_that_executes_its_program_anew_reports_no_missing_guard() {
    let site = Site::new("standby");
    let _active = site.agent();
    site.wait_until_up();
    let mut other = site.sandbox.agent_of("two", "true", "true");
    // A standby says nothing to its guard for so long after its first stroke.
    let agent = Agent::start(other.args(["-r", "10s"]));
    agent.wait_for_any(&["the lock is held by one"]);
    observe_for(Duration::from_millis(200));
    let guards = || site.sandbox.guards("web");
    until_true("two guards", || guards().len() == 2);
    let guard = guards().into_iter().find(|guard| parent_of(*guard) == Some(agent.id()));
    let guard = guard.expect("its own");
    signal(guard, Signal::STOP);
    agent.signal(Signal::USR2);
    until_true("the next instance", || {
        agent.log.text().matches("agent two, process ").count() == 2
    });
    observe_for(Duration::from_millis(200));
    signal(guard, Signal::CONT);
    until_true("another guard", || guards().len() == 2 && !guards().contains(&guard));
    let said = agent.log.text();
    assert!(!said.contains("error") && !said.contains("warning"), "{said}");
}

/// A command that a guard was running is not left to the next guard.
#[test]
fn the_start_of_a_killed_guard_is_killed_and_run_again() {
    let host = Host::new("held");
    host.sandbox.file("hold", "", 0o600);
    let _agent = host.agent();
    host.wait_until_up();
    let starts = || host.sandbox.processes_of("sleep");
    until_true("start", || starts().len() == 1);
    let (guard, start) = (host.guard(), starts()[0]);
    kill_process(guard, Signal::KILL).expect("it runs");
    until_true("the end of start", || !lives(start));
    until_true("another start", || starts().len() == 1);
    assert_ne!(host.guard(), guard);
}

/// Its output goes to the guard, and then to the next one.
#[test]
fn a_service_that_writes_to_the_output_of_start_outlives_the_guard() {
    let site = Site::with_service("writes", "sh -c 'while echo said; do sleep 0.05; done'");
    let agent = site.agent();
    let before = site.wait_until_up();
    agent.wait_for_any(&["start: said"]);
    kill_process(before.guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&["the guard is gone: it has ended: killed by signal 9"]);
    site.wait_for_starts(2);
    let said = || agent.log.text().matches("start: said").count();
    let before_that = said();
    until_true("more output", || said() > before_that);
    let after = site.running();
    assert_ne!(after.guard, before.guard);
    after.assert_untouched_since(&before);
}

/// A user who removes the files of a bucket leaves the files of the guards.
#[test]
fn a_bucket_of_any_name_has_a_directory_of_its_own() {
    let host = Host::new("apart");
    let base = host.sandbox.subfolder("run").join("putex");
    let mut command = host.putex_at(&base, "agent", START, STOP);
    command.args(["--bucket", "agents"]);
    let _agent = Agent::start(&mut command);
    host.wait_until_up();
    let entries = fs::read_dir(base.join("agents")).expect("the bucket");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let others: Vec<_> = paths.filter(|path| !path.is_file()).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// The name of the boot tells whether the note of a guard is of this boot.
#[test]
fn a_host_that_does_not_tell_its_boot_is_refused() {
    let host = Host::new("bootless");
    let mut command = host.sandbox.command("sh");
    command.args([
        "-c",
        "mount -t tmpfs none /proc/sys/kernel/random || exit 9; exec \"$@\"",
        "sh",
    ]);
    command.arg(programs::putex()).args(host.words("agent", STOP)).env("D", host.sandbox.text());
    let Run { status, said, .. } = host.sandbox.run(&mut command);
    if status == Some(9) {
        println!("skipped: nothing can be mounted: {said}");
        return;
    }
    let expected = "/proc/sys/kernel/random/boot_id: ";
    assert!(status == Some(71) && said.contains(expected), "{status:?} {said}");
    assert!(!host.is_up());
}

/// A process that a debugger has attached to is not reaped before the debugger has reaped it,
/// however dead it is. The guard stops the service all the same.
#[test]
fn a_start_that_is_traced_does_not_keep_the_guard_from_the_service() {
    let host = Host::new("traced");
    host.sandbox.file("hold", "", 0o600);
    let agent = host.agent();
    host.wait_until_up();
    let starts = || host.sandbox.processes_of("sleep");
    until_true("a start that does not end", || starts().len() == 1);
    let Some(mut debugger) = process::attach_debugger(starts()[0]) else {
        return;
    };
    agent.kill();
    host.wait_until_down();
    let ended = debugger.try_wait().expect("a child");
    assert_eq!(ended, None, "it traces until then");
    drop(debugger.stdin.take());
    debugger.wait().expect("it ends");
}

/// A stop is noted for the next guard, in a file on whatever disk it may be. The stop does not wait
/// for the note.
#[test]
fn a_stop_does_not_wait_for_the_disk_of_the_private_directory() {
    let host = Host::new("disk");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard().as_raw_nonzero().to_string();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=pwrite64", "-e", "inject=pwrite64:delay_enter=60s"]);
    let strace = strace.args(["-p", &guard]).stderr(Stdio::piped()).spawn();
    let Ok(mut strace) = strace else {
        println!("skipped: no strace");
        return;
    };
    let mut says = BufReader::new(strace.stderr.as_mut().expect("a pipe"));
    says.read_line(&mut String::new()).expect("it is attached");
    agent.kill();
    host.wait_until_down();
    strace.kill().expect("it runs");
    strace.wait().expect("it ends");
}

/// A guard is told the key as the word after its command.
#[test]
fn a_key_that_looks_like_an_option_has_a_guard() {
    let mut host = Host::new("hyphen");
    host.key = "-h".to_owned();
    let _agent = host.agent();
    host.wait_until_up();
    assert!(lives(host.guard().as_raw_nonzero().get().unsigned_abs()));
}

/// The second agent runs nothing, and logs the reason after T.
#[test]
fn a_second_agent_of_the_same_identity_runs_nothing_and_ends() {
    let site = Site::new("twice");
    let _agent = site.agent();
    let before = site.wait_until_up();
    let since = now();
    let mut second = site.prepare("echo >$D/second", "echo >$D/second");
    let mut second = Agent::start(&mut second);
    second.wait_for_any(&["for the end of another agent of this token"]);
    let (status, said) = second.wait_end();
    let took = now().saturating_sub(since);
    assert_eq!(status, Some(78), "{said}");
    let why = "another agent with this bucket, key and token one runs on this host";
    assert!(said.contains(why), "{said}");
    assert!(took >= site::LOCK_TIME, "it waited for {took:?} only");
    assert!(!site.sandbox.join("second").exists(), "it ran a command");
    site.wait_for_starts(2);
    assert_eq!(site.running(), before);
}

#[test]
fn a_second_agent_that_is_told_to_end_ends() {
    let site = Site::new("told");
    let _agent = site.agent();
    let before = site.wait_until_up();
    let mut second = site.agent();
    observe_for(Duration::from_millis(100));
    second.signal(Signal::TERM);
    let (status, said) = second.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(site.running(), before);
}

/// As a service manager has it that starts an agent before the previous one has ended.
#[test]
fn a_second_agent_goes_on_where_the_first_has_ended() {
    let site = Site::new("after");
    let agent = site.agent();
    let before = site.wait_until_up();
    let second = site.agent();
    observe_for(Duration::from_millis(100));
    agent.kill();
    second.wait_for_any(&["adopted as revision"]);
    site.wait_for_starts(2);
    assert_eq!(site.running(), before);
}

/// The guard of one that is gone runs on without it, to the end of the grant.
#[test]
fn a_guard_whose_agent_could_not_stop_the_service_goes_on_until_stop_succeeds() {
    let host = Host::new("goes-on");
    let stop = "test ! -e $D/up || { test -e $D/let && rm -f $D/up; }";
    let mut agent = Agent::start(&mut host.putex("agent", stop));
    host.wait_until_up();
    let guard = host.guard();
    agent.signal(Signal::TERM);
    agent.wait_for_any(&[
        "ended with status 70: the service could not be stopped; the guard goes on",
    ]);
    let status = agent.wait_exit(now() + PATIENCE);
    assert_eq!(status.and_then(|status| status.code()), Some(70));
    assert!(host.is_up());
    let (status, said) = host.finish(STOP);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the guard sees to the service"), "{said}");
    assert_eq!(host.guard(), guard);
    host.sandbox.file("let", "", 0o600);
    wait_for_end(guard);
    assert!(!host.is_up());
}
