//! The front, run in a process of its own by tests that play the renewer.

mod on_terminal;
mod rig;
mod staying;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::core::StoreErrorKind;
use rig::{LONG, Run, SHORT, TERM_AFTER, file};
use rustix::process::Signal;

/// A file that lets a command go on that waits for it.
struct Go(PathBuf);

impl Go {
    fn new() -> Go {
        Go(file("go"))
    }

    /// The script of a command that waits for the file.
    fn wait(&self) -> String {
        format!("while ! test -e {}; do sleep 0.02; done", self.0.display())
    }

    fn give(&self) {
        fs::write(&self.0, "").expect("there is room");
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        // A test that fails leaves nobody behind that waits for it.
        match std::thread::panicking() {
            true => self.give(),
            false => drop(fs::remove_file(&self.0)),
        }
    }
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    for (script, status) in [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137)] {
        let mut run = Run::begin(&["sh", "-c", script]);
        run.grant(LONG);
        run.started();
        assert_eq!(run.expect_done(), status, "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_told_from_one_that_is_not_there() {
    for (program, status) in [("/dev/null", 126), ("/nonexistent/program", 127)] {
        let mut run = Run::begin(&[program]);
        run.grant(LONG);
        assert_eq!(run.expect_done(), status, "{program}");
        let said = run.stderr();
        let names_it = |line: &&str| line.starts_with(&format!("putex: {program}: "));
        assert_eq!(said.lines().filter(names_it).count(), 1, "{said}");
    }
}

#[test]
fn a_command_whose_lock_is_not_renewed_is_killed_although_it_ignores_sigterm() {
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let mut run = Run::begin(&["sh", "-c", script]);
    let valid_until = run.grant(SHORT);
    let leader = run.started();
    run.wait_for_end_of(leader);
    assert!(sys::now() >= valid_until.before(TERM_AFTER), "not at the time to kill");
    // The renewer was killed with it.
    assert_eq!(run.status(), Exit::Lost as u8);
    let said = run.stderr();
    assert!(said.contains("the lock is lost: not renewed in time"), "{said}");
}

#[test]
fn a_command_goes_on_while_its_lock_is_renewed() {
    let go = Go::new();
    let mut run = Run::begin(&["sh", "-c", &go.wait()]);
    let valid_until = run.grant(SHORT);
    run.started();
    run.renew(LONG);
    // An older one changes nothing.
    run.renew(Duration::from_millis(10));
    rig::wait_until(valid_until);
    go.give();
    assert_eq!(run.expect_done(), 0);
}

/// The packets of as many renewals had no room: it took a V of the past for the last one.
#[test]
fn a_front_that_was_stopped_for_many_renewals_knows_the_last_one() {
    let go = Go::new();
    let mut run = Run::begin(&["sh", "-c", &go.wait()]);
    let valid_until = run.grant(SHORT);
    run.started();
    run.signal(Signal::STOP);
    for _ in 0..5000 {
        run.renew(SHORT);
    }
    rig::wait_until(valid_until);
    run.renew(LONG);
    run.signal(Signal::CONT);
    go.give();
    assert_eq!(run.expect_done(), 0, "{}", run.stderr());
}

#[test]
fn a_command_whose_lock_is_lost_is_told_to_end_before_v() {
    let mut run = Run::begin(&["sleep", "1000"]);
    run.grant(LONG);
    let leader = run.started();
    run.tell(&ToFront::Lost("removed by beta".to_owned()));
    run.wait_for_end_of(leader);
    assert_eq!(run.status_after_loss(), Exit::Lost as u8);
    let said = run.stderr();
    assert!(said.ends_with("\nputex: web/x: the lock is lost: removed by beta\n"), "{said}");
}

/// The kernel kills the command, and the front the processes that the command has started.
#[test]
fn without_the_renewer_nothing_is_left_of_the_command() {
    let outside = file("outside");
    let script = format!(
        "trap '' TERM
        setsid sh -c 'setsid sh -c \"echo \\$\\$ >{0}.new; mv {0}.new {0}; sleep 1000\" &' &
        sleep 1000",
        outside.display()
    );
    let mut run = Run::begin(&["sh", "-c", &script]);
    run.grant(LONG);
    run.started();
    rig::wait_until_so("its begin", || outside.exists());
    run.renewer = None;
    assert_eq!(run.status(), Exit::Lost as u8);
    assert!(run.stderr().contains(&format!("the lock is lost: {RENEWER_ENDED}")));
    assert_has_ended(&outside);
}

/// Nobody ended it: it ran beside the next holder until the front went on.
#[test]
fn the_kernel_kills_the_command_of_a_stopped_front_with_the_renewer() {
    let mut run = Run::begin(&["sleep", "1000"]);
    run.grant(LONG);
    let leader = run.started();
    run.signal(Signal::STOP);
    rig::wait_until_so("the stop", || rig::state_of(run.process) == "T");
    run.renewer = None;
    run.wait_for_end_of(leader);
    run.signal(Signal::CONT);
    assert_eq!(run.status(), Exit::Lost as u8);
}

/// Asserts that the process has ended whose number is in this file.
fn assert_has_ended(number: &PathBuf) {
    let process = fs::read_to_string(number).expect("a number");
    fs::remove_file(number).expect("it is there");
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn a_renewer_that_ends_before_the_lock_is_had_is_a_failure() {
    let mut run = Run::begin(&["true"]);
    run.renewer = None;
    assert_eq!(run.status(), Exit::System as u8);
}

#[test]
fn a_signal_ends_the_wait_and_then_the_process() {
    let mut run = Run::begin(&["true"]);
    run.tell(&ToFront::Waiting { ahead: 2, why: "behind alpha".to_owned() });
    run.wait_for_stderr("putex: web/x: waiting, 2 ahead: behind alpha\n");
    run.signal(Signal::TERM);
    assert_eq!(run.next(), ToRenewer::Done);
    // The lock may have been granted meanwhile.
    run.grant(LONG);
    run.tell(&ToFront::Ended(End::Released));
    assert_eq!(run.ending().terminating_signal(), Some(libc::SIGTERM));
}

#[test]
fn a_renewer_that_hangs_does_not_hold_up_a_signal_for_long() {
    let mut run = Run::begin(&["true"]);
    run.tell(&ToFront::Waiting { ahead: 0, why: "x".to_owned() });
    run.wait_for_stderr("putex: web/x: waiting: x\n");
    let begun = sys::now();
    run.signal(Signal::HUP);
    assert_eq!(run.next(), ToRenewer::Done);
    assert_eq!(run.ending().terminating_signal(), Some(libc::SIGHUP));
    assert!(sys::now().since(begun) >= rig::R);
}

#[test]
fn a_lock_that_is_not_had_has_a_status_of_its_own() {
    let mut run = Run::begin(&["true"]);
    run.tell(&ToFront::Ended(End::NotHad("behind alpha".to_owned())));
    assert_eq!(run.status(), 75);
    assert_eq!(run.stderr(), "putex: web/x: not acquired: behind alpha\n");
    let mut run = Run::begin(&["true"]);
    run.tell(&ToFront::Ended(End::Refused(StoreErrorKind::Credentials.error("no"))));
    assert_eq!(run.status(), 77);
    assert_eq!(run.stderr(), "putex: no\n");
}

#[test]
fn the_lock_is_released_when_the_whole_group_has_ended() {
    let go = Go::new();
    // The second is a child of a process that has left the group.
    let parent = file("parent");
    // The second is a child of a process that has left the group.
    let leaves = format!(
        "python3 -c 'import os, time
if os.fork() == 0:
    while not os.path.exists(\"{0}\"): time.sleep(0.02)
else:
    os.setsid(); open(\"{1}\", \"w\"); os.wait()' &
        until test -e {1}; do sleep 0.02; done; exit 4",
        go.0.display(),
        parent.display()
    );
    for script in [format!("({}) & exit 4", go.wait()), leaves] {
        let _ = fs::remove_file(&go.0);
        let mut run = Run::begin(&["sh", "-c", &script]);
        run.grant(LONG);
        let leader = run.started();
        run.wait_for_end_of(leader);
        run.wait_for_stderr("the lock is kept");
        assert!(run.is_silent(), "{script}");
        go.give();
        assert_eq!(run.expect_done(), 4, "{script}");
    }
    fs::remove_file(parent).expect("it is there");
}

#[test]
fn the_loss_of_the_lock_ends_what_the_command_has_left_behind() {
    let mut run = Run::begin(&["sh", "-c", "trap '' TERM; sleep 1000 & exit 0"]);
    run.grant(SHORT);
    run.started();
    assert_eq!(run.status(), Exit::Lost as u8);
}

/// timeout(1) makes a group of its own, and its command is in that group.
#[test]
fn the_loss_of_the_lock_ends_what_has_left_the_group_of_the_command() {
    let number = file("number");
    let script = format!(
        "setsid sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000' & wait",
        number.display()
    );
    let mut run = Run::begin(&["sh", "-c", &script]);
    run.grant(LONG);
    run.started();
    rig::wait_until_so("its begin", || number.exists());
    run.tell(&ToFront::Lost("removed by beta".to_owned()));
    assert_eq!(run.status_after_loss(), Exit::Lost as u8);
    assert_has_ended(&number);
}

#[test]
fn a_command_that_has_no_time_left_does_not_begin() {
    let begun = file("begun");
    let mut run = Run::begin(&["touch", &begun.to_string_lossy()]);
    // The command is told to end before V.
    run.grant(TERM_AFTER);
    assert_eq!(run.status_after_loss(), Exit::Lost as u8);
    assert!(!begun.exists());
}

#[test]
fn the_command_is_told_of_its_lock_and_inherits_the_rest() {
    let out = file("environment");
    let script =
        format!("env >{0}; ls -l /proc/self/fd >>{0}; cat /proc/self/status >>{0}", out.display());
    let mut run = Run::begin(&["sh", "-c", &script]);
    run.grant(LONG);
    run.started();
    assert_eq!(run.expect_done(), 0);
    let text = fs::read_to_string(&out).expect("it was written");
    fs::remove_file(out).expect("it is there");
    for line in [
        "PUTEX_KEY=web/x",
        "PUTEX_TOKEN=alpha",
        "PUTEX_TERM=42",
        "PUTEX_EPOCH=8c3e",
        "PUTEX_MODE=exclusive",
        "PUTEX_HELD=web/x:42",
    ] {
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("PATH=")), "{text}");
    assert!(!text.contains("socket:"), "{text}");
    let set = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.expect(name).trim().trim_start_matches('0').to_owned()
    };
    assert_eq!(set("SigBlk:"), "");
    let ignored = u64::from_str_radix(&format!("0{}", set("SigIgn:")), 16).expect("a set");
    assert_eq!(ignored & (1 << (libc::SIGPIPE - 1)), 0);
}

#[test]
fn signals_are_passed_on_to_the_command() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::USR1, "USR1"), (Signal::INT, "INT")] {
        let script = format!("trap 'exit 9' {name}; echo ready >&2; while :; do sleep 0.02; done");
        let mut run = Run::begin(&["sh", "-c", &script]);
        run.grant(LONG);
        run.started();
        run.wait_for_stderr("ready\n");
        run.signal(signal);
        assert_eq!(run.expect_done(), 9, "{name}");
    }
}

#[test]
fn the_command_dies_with_the_front() {
    let mut run = Run::begin(&["sh", "-c", "echo ready >&2; exec sleep 1000"]);
    run.grant(LONG);
    let leader = run.started();
    run.wait_for_stderr("ready\n");
    run.signal(Signal::KILL);
    run.wait_for_end_of(leader);
}

#[test]
fn a_command_that_was_stopped_where_no_shell_is_stops_nobody_else() {
    let mut run = Run::begin(&["sh", "-c", "kill -STOP $$; exit 6"]);
    run.grant(LONG);
    let group = run.started();
    rig::wait_until_so("the stop", || rig::state_of(group) == "T");
    // The front has taken the signal that tells of it.
    rig::wait_until_so("the front", || {
        rig::state_of(run.process) != "R" && !rig::is_pending(run.process, libc::SIGCHLD)
    });
    rustix::process::kill_process_group(group, Signal::CONT).expect("it is there");
    assert_eq!(run.expect_done(), 6);
}
