//! A front after its command: `--hold`, and the record of `--once`.

use super::*;

/// Longer than the patience of a test.
const HOLD: Duration = Duration::from_secs(1000);

const SUCCEEDED: ToRenewer = ToRenewer::Ended { succeeded: true };

const FAILED: ToRenewer = ToRenewer::Ended { succeeded: false };

#[test]
fn a_lock_that_is_held_on_is_not_released_with_its_command() {
    for (script, message, status) in [("exit 0", SUCCEEDED, 0), ("exit 7", FAILED, 7)] {
        let mut run = Run::begin_once(&["sh", "-c", script], HOLD);
        run.grant(LONG);
        run.started();
        assert_eq!(run.next(), message);
        run.wait_for_stderr("putex: db,web/x: the command has ended, the lock is held for ");
        run.tell(&ToFront::Recorded(Ok(())));
        assert!(run.is_silent(), "the renewer releases it");
        run.tell(&ToFront::Ended(End::Released));
        assert_eq!(run.status(), status);
        assert!(run.stderr().contains("putex: db,web/x: released, held for "));
    }
}

#[test]
fn a_signal_ends_the_stay_and_the_status_is_that_of_the_command() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut run = Run::begin_once(&["sh", "-c", "exit 5"], HOLD);
        run.grant(LONG);
        run.started();
        assert_eq!(run.next(), FAILED);
        run.signal(signal);
        assert_eq!(run.expect_done(), 5, "{signal:?}");
    }
}

#[test]
fn a_loss_after_the_command_is_said_and_changes_no_status() {
    let lost = ToFront::Lost("removed by beta".to_owned());
    let mut run = Run::begin_once(&["true"], HOLD);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), SUCCEEDED);
    run.tell(&lost);
    // It does not wait for V.
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    assert!(said.contains("the lock was lost after the command had ended: removed by beta"));
    assert!(said.contains("the success is not recorded"), "{said}");
}

#[test]
fn a_stay_ends_when_nobody_renews_the_lock() {
    for kill in [true, false] {
        let mut run = Run::begin_once(&["true"], HOLD);
        run.grant(SHORT);
        run.started();
        assert_eq!(run.next(), SUCCEEDED);
        if kill {
            run.renewer = None;
        }
        assert_eq!(run.status(), 0);
        assert!(run.stderr().contains("the lock was lost after the command had ended: "));
    }
}

#[test]
fn a_success_that_could_not_be_recorded_is_said() {
    let mut run = Run::begin_once(&["true"], Duration::ZERO);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), SUCCEEDED);
    run.tell(&ToFront::Recorded(Err("the disk is full".to_owned())));
    run.tell(&ToFront::Ended(End::Released));
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    assert!(said.contains("the success is not recorded: the disk is full"), "{said}");
}

#[test]
fn an_id_that_has_succeeded_is_skipped() {
    let begun = file("skipped");
    let mut run = Run::begin_once(&["touch", &begun.to_string_lossy()], HOLD);
    run.tell(&ToFront::HasSucceeded);
    run.grant(LONG);
    assert_eq!(run.expect_done(), 0);
    assert!(run.stderr().contains("skipped: monday has succeeded before"));
    assert!(!begun.exists());
}

/// Others may have the program.
#[test]
fn the_lock_of_a_command_that_could_not_be_executed_is_not_held_on() {
    let mut run = Run::begin_once(&["/nonexistent/program"], HOLD);
    run.grant(LONG);
    run.started();
    assert_eq!(run.expect_done(), 127);
}
