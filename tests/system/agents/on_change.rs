//! `--on-change`: a command is told each change of state, and nothing waits for that command.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::agent::Agent;
use crate::support::clock::{observe_for, until_true};
use crate::support::sandbox::Sandbox;
use rustix::process::Signal;

/// Longer than T and the stop budget of an agent here.
const SOME_TIME: Duration = Duration::from_secs(4);

/// Returns an agent with R 500 ms and T 2 s, and with this command.
fn agent_of(sandbox: &Sandbox, on_change: &str) -> Command {
    let mut command = sandbox.agent("echo up >$D/up", "rm -f $D/up");
    command.args(["-r", "500ms", "-f", "4", "-c", "1", "--on-change", on_change]);
    command
}

fn start(sandbox: &Sandbox, on_change: &str) -> Agent {
    let agent = Agent::start(&mut agent_of(sandbox, on_change));
    until_true("a service", || sandbox.join("up").exists());
    agent
}

/// Ends an agent; returns what it has logged.
fn end(mut agent: Agent) -> String {
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    said
}

#[test]
fn each_change_is_told_in_order_with_its_reason_and_the_term() {
    let sandbox = Sandbox::new("told");
    let script = "echo \"$0 $1: $PUTEX_OLD>$PUTEX_NEW term=$PUTEX_TERM $PUTEX_KEY/$PUTEX_TOKEN \
                  role=$PUTEX_ROLE ms=$PUTEX_DEADLINE_MS: $PUTEX_WHY\" >>$D/told; echo seen $1";
    // Values of these variables that the agent inherits are not passed on.
    let mut command = agent_of(&sandbox, script);
    let agent = Agent::start(command.env("PUTEX_OLD", "x").env("PUTEX_ROLE", "x"));
    until_true("a service", || sandbox.join("up").exists());
    agent.wait_for_any(&["on-change: seen active"]);
    let said = end(agent);
    let told = fs::read_to_string(sandbox.join("told")).expect("it was told");
    let common = "web/one role= ms=30000:";
    let lines: Vec<_> = told.lines().collect();
    let expected = [
        format!("on-change standby: looking>standby term= {common} the bucket is open"),
        format!("on-change taking: standby>taking term= {common} free ("),
        format!("on-change confirming: taking>confirming term=1 {common} taken as revision 1, "),
        format!("on-change active: confirming>active term=1 {common} waited "),
        format!("on-change stopping: active>stopping term=1 {common} SIGTERM: ending"),
        "on-change ended: stopping>ended term=1 web/one role= ms=1000: SIGTERM: ending".to_owned(),
    ];
    assert_eq!(lines.len(), expected.len(), "{told}");
    for (line, expected) in lines.iter().zip(&expected) {
        let last = line.replace("ms=30000", "ms=1000");
        assert!(line.starts_with(expected) || last.starts_with(expected), "{line}\n{expected}");
    }
    assert!(said.contains("on-change: seen ended"), "{said}");
    assert!(!said.contains("on-change stopping"), "{said}");
}

/// The command delays neither a renewal nor the stop, and the end of the agent only for a time that
/// is known.
#[test]
fn a_command_that_hangs_holds_up_neither_the_lock_nor_the_stop() {
    let sandbox = Sandbox::new("hangs");
    let agent = start(&sandbox, "trap '' TERM; echo $1 >>$D/told; sleep 1000; true");
    observe_for(SOME_TIME);
    assert!(!agent.log.text().contains("stopping"), "{}", agent.log.text());
    assert_eq!(fs::read_to_string(sandbox.join("told")).expect("told"), "standby\n");
    let said = end(agent);
    let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("no {text:?}: {said}"));
    assert!(place("the lock is released") < place("on-change stopping -> ended"), "{said}");
    // The first was killed so that the last could be told, which was killed too.
    assert_eq!(fs::read_to_string(sandbox.join("told")).expect("told"), "standby\nended\n");
    for change in ["looking -> standby", "stopping -> ended"] {
        let line = format!("on-change {change}: it did not end in time and was killed");
        assert!(said.contains(&line), "{line}: {said}");
    }
    assert_eq!(sandbox.processes_of("sleep"), Vec::<u32>::new());
}

#[test]
fn a_command_that_fails_dies_or_cannot_be_run_is_logged_and_changes_nothing() {
    let sandbox = Sandbox::new("fails");
    let script = "case $1 in standby) exit 3;; taking) kill -9 $$;; confirming) /no/thing;; esac";
    let agent = start(&sandbox, script);
    agent.wait_for_any(&["confirming: exit status 127"]);
    let said = end(agent);
    for line in [
        "warning: on-change looking -> standby: exit status 3",
        "warning: on-change standby -> taking: killed by signal 9",
        "warning: on-change taking -> confirming: exit status 127 (command not found)",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(said.matches(" on-change ").count(), 3, "{said}");
}
