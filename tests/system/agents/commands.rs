//! The environment of the operator's commands, and commands that hang or write too much:
//! one agent on a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, until, until_true};
use crate::support::process::{attach_debugger, has_signal};
use crate::support::sandbox::{Sandbox, is_tight, with_own_mounts};
use putex::command::{Commands, Process};
use putex::core::{self, LockContext, Role, Run};
use putex::sys;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, test_kill_process};

/// Starts an agent of a directory, whose log is not read before its end. In the commands,
/// `$D` is the folder of its sandbox.
fn start(sandbox: &Sandbox, r: &str, start: &str, stop: &str) -> Agent {
    let mut command = sandbox.agent(start, stop);
    command.args(["-r", r, "-c", "1"]).env("NATS_PASSWORD", "hunter2").env("NATS_TOKEN", "hunter2");
    Agent::start_unread(&mut command)
}

/// Waits for a file that a command writes; returns its content.
fn file(sandbox: &Sandbox, name: &str) -> String {
    let whole = |text: &String| text.ends_with('\n');
    let path = sandbox.join(name);
    until(name, || fs::read_to_string(&path).ok().filter(whole))
}

#[test]
fn commands_get_their_variables_and_no_secret() {
    let script = "env >$D/new; echo \"$0 $1\" >>$D/new; echo hello; mv $D/new $D/told";
    let sandbox = Sandbox::new("told");
    let mut agent = start(&sandbox, "500ms", script, "true");
    let told = file(&sandbox, "told");
    for line in ["PUTEX_KEY=web", "PUTEX_TOKEN=one", "PUTEX_ROLE=active", "PUTEX_TERM=1"] {
        assert!(told.lines().any(|have| have == line), "{line} is not in:\n{told}");
    }
    assert!(told.contains("\nPUTEX_EPOCH="), "{told}");
    assert!(told.ends_with("start active\n"), "{told}");
    assert!(!told.contains("hunter2"), "a secret was handed to a command:\n{told}");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("putex: web: start: hello\n"), "{said}");
    assert!(said.contains("the lock is released, revision"), "{said}");
}

/// Nobody else would end one that hangs.
#[test]
fn a_health_check_ends_with_an_agent_that_is_killed() {
    let sandbox = Sandbox::new("orphan");
    let mut command = sandbox.agent("true", "true");
    let agent = Agent::start(command.args(["-r", "1s", "--healthcheck", "exec sleep 1000"]));
    until_true("a check", || !sandbox.processes_of("sleep").is_empty());
    agent.kill();
    until_true("its end", || sandbox.processes_of("sleep").is_empty());
}

/// A stop that finds another variable than its agent may leave the service running.
#[test]
fn the_commands_of_a_guard_have_the_environment_of_its_present_agent() {
    let sandbox = Sandbox::new("environment");
    let start = |value: &str| {
        let stop = "echo $NUMBER${ONLY_first-none}$NATS_TOKEN >$D/stopped; rm -f $D/up";
        let mut command = sandbox.agent("echo $NUMBER >$D/up", stop);
        command.args(["-r", "250ms", "-f", "8", "-c", "1"]);
        command.env("NUMBER", value).env(format!("ONLY_{value}"), "").env("NATS_TOKEN", "hunter2");
        Agent::start(&mut command)
    };
    let agent = start("first");
    assert_eq!(file(&sandbox, "up"), "first\n");
    agent.kill();
    let mut agent = start("second");
    agent.wait_for_any(&["adopted"]);
    until_true("a start of the second agent", || file(&sandbox, "up") == "second\n");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(file(&sandbox, "stopped"), "secondnone\n");
}

/// Its guard was started without one.
#[test]
fn a_last_resort_that_was_added_while_the_service_runs_is_run() {
    let sandbox = Sandbox::new("resort-added");
    let start = |options: &[&str]| {
        let mut command = sandbox.agent("echo up >$D/up", "test ! -e $D/hang || exec sleep 1000");
        Agent::start(command.args(["-r", "250ms", "-f", "8", "-c", "1"]).args(options))
    };
    let agent = start(&[]);
    file(&sandbox, "up");
    fs::write(sandbox.join("hang"), "").expect("it can be written");
    agent.kill();
    let agent = start(&["--last-resort", "echo run >$D/resort; rm -f $D/up"]);
    agent.wait_for_any(&["adopted"]);
    agent.signal(Signal::STOP);
    file(&sandbox, "resort");
    until_true("no service", || !sandbox.join("up").exists());
    sandbox.kill_all();
}

/// Waits until `go` is in `$D`, then makes a file system at `$0` of which nobody answers any
/// request, for the process that this one becomes. Runs the rest meanwhile.
const DISK_THAT_BEGINS_TO_HANG: &str = "exec 9<>/dev/fuse || exit 99
    (until test -e \"$D/go\"; do sleep 0.02; done
     nsenter --target $$ --mount mount -i -t fuse \
         -o fd=9,rootmode=40000,user_id=0,group_id=0 none \"$0\" && echo >\"$D/hangs\"
     exec sleep 1000) 2>/dev/null & exec 9>&-; exec \"$@\"";

/// Its main thread renews the lock: it reads no file.
#[test]
fn a_hangup_while_the_disk_of_the_settings_hangs_costs_no_lock() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        println!("skipped: no /dev/fuse, or not root");
        return;
    }
    let sandbox = Sandbox::new("reload-hangs");
    let disk = sandbox.subfolder("disk");
    let conf = disk.join("conf");
    fs::write(&conf, "priority = 7\n").expect("it can be written");
    let only_own = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&conf, only_own).expect("they can be set");
    let mut command = sandbox.agent("echo up >$D/up; echo up >>$D/starts", "rm -f $D/up");
    command.args(["-r", "250ms", "-f", "8", "-c", "1", "--config"]).arg(&conf);
    let mut agent =
        Agent::start(&mut with_own_mounts(DISK_THAT_BEGINS_TO_HANG, &[&disk], &command));
    file(&sandbox, "up");
    fs::write(sandbox.join("go"), "").expect("it can be written");
    file(&sandbox, "hangs");
    agent.signal(Signal::HUP);
    until_true("the signal is read", || !has_signal(agent.id(), "ShdPnd:", Signal::HUP));
    // Start is run at every renewal.
    let starts = || file(&sandbox, "starts").lines().count();
    let before = starts();
    until_true("ten more renewals", || starts() > before + 10);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert!(status == Some(0) && !sandbox.join("up").exists(), "{said}");
    assert_eq!(said.matches("the service runs here").count(), 1, "{said}");
    assert!(!said.contains("has run out"), "{said}");
}

/// As the guard ends a start that could not be noted, in the thread of all starts.
#[test]
fn a_process_that_is_traced_is_ended_without_waiting_for_its_debugger() {
    let (_reader, output) = std::io::pipe().expect("a pipe");
    let [start, stop, key, token] = ["true", "true", "web", "one"].map(str::to_owned);
    let commands = Commands {
        check: None,
        start,
        stop,
        last_resort: None,
        on_change: None,
        key,
        token,
        environment: None,
    };
    let (command, role, deadline) = (core::Command::Start, Role::Active, sys::now());
    let run = Run { command, role, deadline, starting: false, context: LockContext::default() };
    let process = Process::spawn(commands.prepare(&run, None, deadline), &output);
    let process = process.expect("it can be run");
    let debugger = attach_debugger(process.group.as_raw_nonzero().get().unsigned_abs());
    let ending = std::thread::spawn(|| process.end());
    until_true("the end", || ending.is_finished());
    if let Some(mut debugger) = debugger {
        drop(debugger.stdin.take());
        debugger.wait().expect("it ends");
    }
}

/// The guard has another score, and starts both. As under the unit of systemd, where the agent
/// is spared when memory runs out.
#[test]
fn stop_has_the_oom_score_of_the_agent_and_the_service_is_not_spared() {
    let mut scores = vec![("100", "100")];
    let spare = "echo -900 2>/dev/null >/proc/self/oom_score_adj";
    if Command::new("sh").args(["-c", spare]).status().is_ok_and(|status| status.success()) {
        scores.push(("-900", "0"));
    }
    for (agents, starts) in scores {
        let sandbox = Sandbox::new("oom");
        let script = "echo \"$0\" >/proc/self/oom_score_adj && exec \"$@\"";
        let mut command = sandbox.command("sh");
        command.args(["-c", script, agents]).arg(crate::support::programs::putex());
        command.args(["agent", "--key", "web", "-r", "100ms"]);
        command.args(["--start", "cat /proc/self/oom_score_adj >$D/new; mv $D/new $D/start"]);
        command.args(["--stop", "cat /proc/self/oom_score_adj >$D/stop"]);
        command.arg("--dir").arg(sandbox.join("lock")).env("D", sandbox.text());
        let mut agent = Agent::start(&mut command);
        assert_eq!(file(&sandbox, "start").trim(), starts);
        agent.signal(Signal::TERM);
        let (status, said) = agent.wait_end();
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(file(&sandbox, "stop").trim(), agents);
    }
}

/// A process that leaves its process group is not killed on such a host.
#[test]
fn a_host_without_control_groups_is_told_of() {
    if !rustix::process::geteuid().is_root() || !is_tight() {
        println!("skipped: only root may hide the control groups");
        return;
    }
    let sandbox = Sandbox::new("ungrouped");
    let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let mut command = sandbox.command("sh");
    command.args(["-c", hide, "sh"]).arg(crate::support::programs::putex());
    command.args(["agent", "--key", "web", "-r", "100ms", "--start", "true", "--stop", "true"]);
    let agent = Agent::start(command.arg("--dir").arg(sandbox.join("lock")));
    agent.wait_for_any(&["web: no control group: "]);
}

#[test]
fn a_hanging_stop_is_killed_with_what_it_started_and_nothing_is_released() {
    let stop = "test -e $D/up || exit 0; sleep 600 & echo $! >$D/pid; wait";
    let sandbox = Sandbox::new("hang");
    let mut agent = start(&sandbox, "500ms", "echo up >$D/up", stop);
    file(&sandbox, "up");
    agent.signal(Signal::TERM);
    agent.log.set_reading(true);
    let status = agent.wait_exit(now() + PATIENCE);
    assert_eq!(status.and_then(|status| status.code()), Some(70));
    agent.wait_for_any(&["THE SERVICE MAY STILL RUN"]);
    assert!(!agent.log.text().contains("the lock is released"));
    // Its guard goes on with stop, and kills each run of it.
    assert!(!sandbox.guards("web").is_empty());
    let pid = file(&sandbox, "pid").trim().parse().expect("a process number");
    let pid = Pid::from_raw(pid).expect("a process number");
    until_true("the end of what stop started", || test_kill_process(pid).is_err());
}

/// The agent renews the lock, and the health check does not count.
#[test]
fn a_first_start_that_hangs_is_told_and_shown() {
    let sandbox = Sandbox::new("hung");
    let agent = start(&sandbox, "500ms", "exec sleep 600", "true");
    agent.log.set_reading(true);
    agent.wait_for_any(&["warning: start has run for "]);
    // An agent on a directory writes what it says into a file, in its own time.
    until_true("its line", || {
        let mut status = sandbox.putex();
        status.arg("status").arg("--dir").arg(sandbox.join("lock")).arg("web");
        sandbox.run(&mut status).shown.contains("  start still runs; ")
    });
}

#[test]
fn a_command_that_writes_without_end_stops_nothing() {
    let script = "echo x >>$D/starts; seq 20000";
    let sandbox = Sandbox::new("shout");
    let mut agent = start(&sandbox, "200ms", script, "true");
    let starts = sandbox.join("starts");
    // Each start writes far more than the queue of the log holds. Strokes go on.
    until_true("ten starts", || {
        let starts = fs::read_to_string(&starts);
        starts.is_ok_and(|starts| starts.lines().count() >= 10)
    });
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "the lock was held and the service stopped");
    assert!(!said.contains("no renewal was acknowledged"), "the log held the renewals up");
}

#[test]
fn a_refused_agent_ends_although_its_log_is_not_read() {
    let (unread, full) = std::io::pipe().expect("a pipe can be made");
    let flags = rustix::fs::fcntl_getfl(&full).expect("it is open");
    rustix::fs::fcntl_setfl(&full, flags | OFlags::NONBLOCK).expect("it is open");
    while rustix::io::write(&full, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, flags).expect("it is open");
    let sandbox = Sandbox::new("refused");
    let mut refused = sandbox.putex();
    refused.args(["agent", "--no-such-flag"]);
    let refused = Agent::start_with_stderr(&mut refused, full);
    let (status, _) = refused.expect("it can be run").wait_end();
    assert_eq!(status, Some(64));
    drop(unread);
}

#[test]
fn a_failed_write_to_standard_output_is_no_success() {
    for verb in ["timing", "help", "--version"] {
        let full = fs::File::options().write(true).open("/dev/full");
        let sandbox = Sandbox::new("full");
        let mut putex = sandbox.putex();
        let putex = putex.arg(verb).stdout(full.expect("every host has it"));
        let status = putex.status().expect("it can be run");
        assert_eq!(status.code(), Some(71), "{verb}");
    }
}
