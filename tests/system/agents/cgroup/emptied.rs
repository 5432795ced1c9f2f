//! The service is down when no process of it is left in the control group, whatever stop says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::Room;
use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, observe_for, until_true};
use crate::support::process::lives;
use crate::support::sandbox::{Run, Sandbox};

/// Leaves a service that is in no process group of start's, and notes it at once.
const START: &str = "test -e $D/pid || {
                         setsid sleep 1000 >/dev/null 2>&1 & echo $! >$D/new; mv $D/new $D/pid; }";

/// The guard's line about a stop that lies.
const LEFT: &str = "stop has left processes of the service behind: they are killed";

/// T and C·R of [`R`]: another host may start the service so long after the last renewal, says
/// the page. A test that looks on sees the end of a process later than that.
const TAKEOVER: Duration = Duration::from_millis(2000);

const R: [&str; 6] = ["-r", "400ms", "-c", "1", "-f", "4"];

fn prepare(sandbox: &Sandbox, start: &str, stop: &str) -> Command {
    let mut command = sandbox.agent(start, stop);
    command.args(R);
    command
}

/// Waits for the service; returns its number.
fn service(sandbox: &Sandbox) -> u32 {
    let pid = sandbox.join("pid");
    until_true("the service", || pid.exists());
    let text = fs::read_to_string(pid).expect("its number");
    let pid = text.trim().parse().expect("a number");
    // The process is a shell until it becomes `sleep`.
    until_true("the service's program", || sandbox.processes_of("sleep").contains(&pid));
    pid
}

/// Kills the agent and its guard, which cannot act before.
fn kill_both(sandbox: &Sandbox, agent: Agent) {
    let guard = sandbox.guard("web");
    kill_process(guard, Signal::STOP).expect("it runs");
    agent.kill();
    kill_process(guard, Signal::KILL).expect("it is stopped");
    until_true("the end of the guard", || sandbox.guards("web").is_empty());
}

#[test]
fn what_a_stop_that_lies_has_left_is_killed_before_the_release() {
    let name = "emptied::what_a_stop_that_lies_has_left_is_killed_before_the_release";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let sandbox = &room.sandbox;
    let mut agent = Agent::start(&mut prepare(sandbox, START, "true"));
    let pid = service(sandbox);
    agent.wait_for_any(&["the service runs here"]);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert!(!lives(pid), "{said}");
    assert_eq!(status, Some(0), "{said}");
    let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("no {text:?}: {said}"));
    let (left, down) = (place(LEFT), place("the service is down"));
    assert!(left < down, "{said}");
    // The release comes after it by a rule of the pump; lines of agent and guard have no order.
    place("the lock is released");
}

/// Starts a service, kills its agent and its guard; returns its process.
fn service_without_agent_and_guard(sandbox: &Sandbox) -> u32 {
    let agent = Agent::start(&mut prepare(sandbox, START, "true"));
    let pid = service(sandbox);
    kill_both(sandbox, agent);
    pid
}

/// Prepares `putex finish` for the agent of this sandbox, with a stop that does nothing.
fn finish(sandbox: &Sandbox) -> Command {
    let mut finish = sandbox.putex();
    finish.args(["finish", "--key", "web", "--token", "one"]);
    finish.args(["--start", "true", "--stop", "true"]).args(R);
    finish.arg("--dir").arg(sandbox.join("lock"));
    finish
}

/// The guard of the previous instance did not live to do it.
#[test]
fn a_standby_kills_what_the_instance_before_has_left() {
    let name = "emptied::a_standby_kills_what_the_instance_before_has_left";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let sandbox = &room.sandbox;
    let pid = service_without_agent_and_guard(sandbox);
    let mut other = sandbox.agent_of("two", "true", "true");
    let other = Agent::start(other.args(R));
    other.wait_for_any(&["the service runs here"]);
    assert!(lives(pid), "nobody is there to stop it");
    let agent = Agent::start(&mut prepare(sandbox, "touch $D/again", "true"));
    until_true("the end of the service", || !lives(pid));
    agent.wait_for_any(&[LEFT]);
    assert!(!sandbox.join("again").exists(), "another holds the lock");
}

#[test]
fn finish_kills_what_agent_and_guard_have_left() {
    let name = "emptied::finish_kills_what_agent_and_guard_have_left";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let sandbox = &room.sandbox;
    let pid = service_without_agent_and_guard(sandbox);
    let mut finish = finish(sandbox);
    let Run { status, said, .. } = sandbox.run(&mut finish);
    assert_eq!(status, Some(0), "{said}");
    assert!(!lives(pid), "{said}");
    assert!(said.contains(LEFT), "{said}");
}

/// The control group was taken for one that is gone, and the service for one that is down.
#[test]
fn a_control_group_that_cannot_be_opened_is_not_taken_for_one_that_is_gone() {
    let name = "emptied::a_control_group_that_cannot_be_opened_is_not_taken_for_one_that_is_gone";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let sandbox = &room.sandbox;
    let pid = service_without_agent_and_guard(sandbox);
    let mut finish = finish(sandbox);
    let mut read_only = Command::new("unshare");
    let script = r#"while read -r _ dir kind _; do
                        test $kind != cgroup2 || mount -o remount,bind,ro "$dir" || exit
                    done </proc/mounts; exec "$0" "$@""#;
    read_only.args(["-m", "sh", "-c", script]);
    let mut refused = within(sandbox, read_only, &finish);
    let Run { status, said, .. } = sandbox.run(&mut refused);
    assert!(lives(pid), "nobody could kill it");
    assert_eq!(status, Some(70), "{said}");
    assert!(said.contains("the service may live in it"), "{said}");
    // The note stands for whoever can open it.
    let Run { status, said, .. } = sandbox.run(&mut finish);
    assert_eq!(status, Some(0), "{said}");
    assert!(!lives(pid), "{said}");
}

/// Holds /bin/sh of a sandbox so that the kernel cannot read it: a process that executes it waits.
struct HeldShell(Child);

impl HeldShell {
    /// A lease is granted when no process has the file open; a process that opens it waits until
    /// the holder lets go, for 45 s at the most.
    const HOLD: &str = "$| = 1; $SIG{IO} = 'IGNORE'; open(F, '+<', $ARGV[0]) or die; \
                        select(undef, undef, undef, 0.001) until fcntl(F, 1024, 1); \
                        print \"held\\n\"; sleep 1000";

    fn hold(sandbox: &Sandbox) -> Option<HeldShell> {
        let mut perl = sandbox.marked("perl");
        perl.args(["-e", Self::HOLD]).arg(sandbox.join("sh"));
        let mut perl = perl.stdout(Stdio::piped()).spawn().ok()?;
        let out = perl.stdout.take().expect("a pipe");
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        read.is_ok_and(|count| count > 0).then_some(HeldShell(perl))
    }
}

impl Drop for HeldShell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A disk that hangs: neither stop nor the last resort can be run.
#[test]
fn a_shell_that_cannot_be_read_does_not_keep_the_service_alive() {
    let name = "emptied::a_shell_that_cannot_be_read_does_not_keep_the_service_alive";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let sandbox = &room.sandbox;
    let shell = sandbox.join("sh");
    fs::copy("/bin/sh", &shell).expect("there is room");
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).expect("it is this user's");
    let agent = prepare(sandbox, START, "kill -9 $(cat $D/pid); rm -f $D/pid");
    let mut bound = Command::new("sh");
    let script = r#"mount --bind "$0" /bin/sh && exec "$@""#;
    bound.args(["-c", script]).arg(&shell);
    let mut bound = within(sandbox, bound, &agent);
    bound.args(["--last-resort", "touch $D/resorted"]);
    let mut agent = Agent::start(&mut bound);
    let pid = service(sandbox);
    agent.wait_for_any(&["the service runs here"]);
    let Some(held) = HeldShell::hold(sandbox) else {
        println!("skipped: no perl");
        return;
    };
    // A start is asserted meanwhile, and hangs too.
    observe_for(Duration::from_millis(500));
    assert!(lives(pid));
    let guard = sandbox.guard("web");
    let told_at = now();
    agent.signal(Signal::TERM);
    until_true("the end of the service", || !lives(pid));
    let took = now().saturating_sub(told_at);
    assert!(took < TAKEOVER * 2, "{took:?}");
    let status = agent.wait_exit(now() + PATIENCE);
    assert_eq!(status.and_then(|status| status.code()), Some(70));
    agent.wait_for_any(&["THE SERVICE MAY STILL RUN"]);
    assert!(!agent.log.text().contains("the lock is released"));
    assert!(sandbox.join("pid").exists() && !sandbox.join("resorted").exists());
    drop(held);
    until_true("the end of the guard", || sandbox.guards("web").is_empty());
    assert!(!sandbox.join("pid").exists(), "stop was not run");
    assert!(!lives(guard.as_raw_nonzero().get().cast_unsigned()));
}

/// Prepares a command of the sandbox that another one runs.
fn within(sandbox: &Sandbox, outer: Command, inner: &Command) -> Command {
    let mut command = sandbox.command(outer.get_program());
    command.args(outer.get_args()).arg(inner.get_program());
    command.args(inner.get_args());
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}
