//! SIGHUP and SIGUSR2, as far as signals go: one agent on a directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::process::{self, signals};
use crate::support::sandbox::Sandbox;
use rustix::process::Signal;

/// Returns whether a process ignores a signal.
fn ignores(process: u32, signal: Signal) -> bool {
    process::has_signal(process, "SigIgn:", signal)
}

/// Handlers of many signals at once need more stack than a thread of the guard has. Signals that
/// agent and guard block must not be blocked in the service.
#[test]
fn the_guard_blocks_all_signals_and_no_command_does() {
    let sandbox = Sandbox::new("blocked");
    let mut command = sandbox.agent("sleep 100 & true", "true");
    let agent = Agent::start(command.args(["-r", "500ms", "--healthcheck", "exec sleep 100"]));
    until_true("the health check", || !sandbox.processes_of("sleep").is_empty());
    let guard = sandbox.guard("web").as_raw_pid().unsigned_abs();
    until_true("commands that block nothing", || {
        let mut others = sandbox.processes();
        others.retain(|process| ![agent.id(), guard].contains(process));
        !others.is_empty() && others.iter().all(|process| signals(*process, "SigBlk:") == Some(0))
    });
    assert_ne!(signals(agent.id(), "SigBlk:"), Some(0));
    let never_blocked = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
    let threads = |process: u32| {
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
        threads.map(|thread| thread.expect("an entry").file_name().to_string_lossy().into_owned())
    };
    let of_agent = threads(agent.id()).filter(|thread| *thread != agent.id().to_string());
    for thread in of_agent.chain(threads(guard)) {
        let blocked = signals(thread.parse().expect("a number"), "SigBlk:");
        assert_eq!(blocked.map(|blocked| blocked | never_blocked), Some(u64::MAX), "{thread}");
    }
}

/// The new instance would end, and its guard would stop the service at V.
#[test]
fn an_agent_with_a_fault_in_its_settings_goes_on_as_before() {
    let sandbox = Sandbox::new("fault");
    let file = sandbox.join("web.conf");
    let right = "priority = 1\n";
    fs::write(&file, right).expect("there is room");
    let mut command = sandbox.agent("true", "true");
    let mut agent = Agent::start(command.args(["-r", "500ms", "-f", "4", "--config"]).arg(&file));
    agent.wait_for_any(&["the service runs here"]);
    fs::write(&file, format!("{right}stopp = true\n")).expect("there is room");
    agent.signal(Signal::HUP);
    agent.wait_for_any(&["putex check: exit status 78: "]);
    agent.wait_for_any(&["web.conf:2: stopp: no such key"]);
    agent.wait_for_any(&["; this instance goes on"]);
    fs::write(&file, format!("{right}bucket = another\n")).expect("there is room");
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["another agent by its settings: the place of the lock, --bucket, --key"]);
    fs::write(&file, format!("{right}last-resort = /no/such/file\n")).expect("there is room");
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["last-resort: there is no program /no/such/file"]);
    agent.wait_for_any(&["that this user can run; this instance goes on"]);
    fs::write(&file, "priority = 2\n").expect("there is room");
    let dir = sandbox.join("run/putex/.agents");
    let set_mode = |mode| fs::set_permissions(&dir, Permissions::from_mode(mode)).expect("its own");
    set_mode(0o770);
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["chmod go-w it; this instance goes on"]);
    set_mode(0o700);
    agent.signal(Signal::HUP);
    agent.wait_for_any(&["adopted as revision"]);
    agent.wait_for_any(&["priority 2, failback never"]);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!((status, said.matches("upgrade: executing").count()), (Some(0), 1), "{said}");
}

/// Other agents wait for as long as the record says.
#[test]
fn a_change_of_r_stops_the_service_in_time_and_starts_it_again() {
    let sandbox = Sandbox::new("other-r");
    let file = sandbox.join("web.conf");
    fs::write(&file, "renewal = 500ms\n").expect("there is room");
    let mut command = sandbox.agent("echo up >>$D/up", "echo down >>$D/up");
    let mut agent = Agent::start(command.args(["-f", "4", "-c", "1", "--config"]).arg(&file));
    agent.wait_for_any(&["the service runs here"]);
    fs::write(&file, "renewal = 600ms\n").expect("there is room");
    agent.signal(Signal::HUP);
    agent.wait_for_any(&["the agent has another R, F, C or drift than before"]);
    let runs = || agent.log.text().matches("the service runs here").count();
    until_true("a second start", || runs() == 2);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(" before it had to be") && !said.contains("MAY STILL RUN"), "{said}");
}

/// A log that nobody reads any more would end it by SIGPIPE otherwise.
#[test]
fn an_agent_whose_program_is_gone_goes_on_as_before() {
    let sandbox = Sandbox::new("gone");
    let program = sandbox.join("putex");
    fs::copy(crate::support::programs::putex(), &program).expect("there is room");
    let mut command = sandbox.command(&program);
    command
        .args(["agent", "--key", "web", "--start", "true", "--stop", "true"])
        .args(["-r", "500ms", "-f", "4", "--dir"])
        .arg(sandbox.join("lock"));
    let agent = Agent::start(&mut command);
    agent.wait_for_any(&["the service runs here"]);
    let before = [Signal::PIPE, Signal::USR2, Signal::HUP].map(|it| ignores(agent.id(), it));
    assert_eq!(before, [true, false, false]);
    fs::remove_file(&program).expect("it is there");
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["cannot be executed"]);
    let ignored = || [Signal::PIPE, Signal::USR2, Signal::HUP].map(|it| ignores(agent.id(), it));
    until_true("the same signals", || ignored() == before);
}

/// As under nohup, or as a background job of a shell script: the agent is to outlive its
/// terminal.
#[test]
fn a_hangup_or_an_interrupt_that_is_ignored_stays_ignored() {
    let sandbox = Sandbox::new("nohup");
    let mut command = sandbox.command("sh");
    command
        .args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"])
        .arg(crate::support::programs::putex())
        .args(["agent", "--key", "web", "--start", "true", "--stop", "true"])
        .args(["-r", "500ms", "-f", "4", "--dir"])
        .arg(sandbox.join("lock"));
    let mut agent = Agent::start(&mut command);
    agent.wait_for_any(&["the service runs here"]);
    let ignored = || [Signal::HUP, Signal::INT].map(|signal| ignores(agent.id(), signal));
    assert_eq!(ignored(), [true, true]);
    agent.signal(Signal::HUP);
    agent.signal(Signal::INT);
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["adopted"]);
    assert_eq!(ignored(), [true, true]);
    agent.signal(Signal::HUP);
    agent.signal(Signal::INT);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("SIGHUP") && !said.contains("SIGINT"), "{said}");
}
