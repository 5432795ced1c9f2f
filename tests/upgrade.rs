//! SIGUSR2, as far as signals go: one agent on a directory.

mod support;

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use support::agent::Agent;
use support::clock::{observe_for, until_true};
use support::sandbox::Sandbox;

/// How often the signal is sent.
const SIGNALS: u32 = 40;

/// Returns whether a process ignores a signal.
fn ignores(process: u32, signal: Signal) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("a mask").trim(), 16).expect("a number");
    ignored >> (signal.as_raw() - 1) & 1 == 1
}

/// A log that nobody reads any more would end it by SIGPIPE otherwise.
#[test]
fn an_agent_whose_program_is_gone_goes_on_as_before() {
    let sandbox = Sandbox::new("gone");
    let program = sandbox.join("putex");
    fs::copy(support::programs::putex(), &program).expect("there is room");
    let mut command = sandbox.command(&program);
    command
        .args(["agent", "--key", "web", "--start", "true", "--stop", "true"])
        .args(["-r", "100ms", "--dir"])
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

/// The program that is executed has no handler yet when the next signal comes.
#[test]
fn many_upgrades_in_a_row_do_not_end_the_agent() {
    let sandbox = Sandbox::new("row");
    let mut command = sandbox.agent("true", "true");
    let mut agent = Agent::start(command.args(["-r", "100ms"]));
    agent.wait_for_any(&["the service runs here"]);
    for _ in 0..SIGNALS {
        agent.signal(Signal::USR2);
        agent.signal(Signal::HUP);
        observe_for(Duration::from_millis(10));
        assert!(agent.runs(), "{}", agent.log.text());
    }
    agent.wait_for_any(&["adopted"]);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
}
