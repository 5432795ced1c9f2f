//! A front after its command: `--hold`.

use super::*;

/// Longer than the patience of a test.
const HOLD: Duration = Duration::from_secs(1000);

#[test]
fn a_lock_that_is_held_on_is_not_released_with_its_command() {
    for (script, status) in [("exit 0", 0), ("exit 7", 7)] {
        let mut run = Run::begin_holding(&["sh", "-c", script], HOLD);
        run.grant(LONG);
        run.started();
        assert_eq!(run.next(), ToRenewer::Ended);
        run.wait_for_stderr("putex: web/x: the command has ended, the lock is held for ");
        assert!(run.is_silent(), "the renewer releases it");
        run.tell(&ToFront::Ended(End::Released));
        assert_eq!(run.status(), status);
        assert!(run.stderr().contains("putex: web/x: released, held for "));
    }
}

/// The front said that the lock was released, and others waited until its ticket had run out.
#[test]
fn a_lock_whose_ticket_may_stand_is_not_said_to_be_released() {
    let refused = || ToFront::Ended(End::Refused(StoreErrorKind::Credentials.error("no right")));
    for hold in [Duration::ZERO, HOLD] {
        let mut run = Run::begin_holding(&["sh", "-c", "exit 7"], hold);
        run.grant(LONG);
        run.started();
        assert_eq!(run.next(), if hold == HOLD { ToRenewer::Ended } else { ToRenewer::Done });
        run.tell(&refused());
        // The renewer goes on, and the front does not wait for it.
        assert_eq!(run.status(), 7);
        let said = run.stderr();
        assert!(said.contains("putex: warning: web/x: not released: no right\n"), "{said}");
        assert!(!said.contains(": released"), "{said}");
    }
    let mut run = Run::begin(&["true"]);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), ToRenewer::Done);
    run.renewer = None;
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    assert!(said.contains("web/x: not released: the process that renews the lock has"), "{said}");
}

/// A server was dead at the release. The front, which waits for R, ended just before the renewer
/// said so: nothing was said, and the ticket stood.
#[test]
fn a_front_that_has_waited_in_vain_says_that_the_ticket_may_stand() {
    let mut run = Run::begin(&["true"]);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), ToRenewer::Done);
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    let line = "web/x: not released: the own ticket may stand until it runs out: the store has not";
    assert!(said.contains(line), "{said}");
}

/// A manager that sends SIGHUP behind SIGTERM ended the wait for the release, and the front said
/// that the lock was not released. The lock was free a moment later.
#[test]
fn a_front_that_does_not_wait_for_the_release_says_that_it_is_under_way() {
    let mut run = Run::begin_holding(&["true"], HOLD);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), ToRenewer::Ended);
    run.signal(Signal::TERM);
    assert_eq!(run.next(), ToRenewer::Done);
    run.signal(Signal::HUP);
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    assert!(said.contains("putex: web/x: the release is under way, held for "), "{said}");
}

#[test]
fn a_signal_ends_the_stay_and_the_status_is_that_of_the_command() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut run = Run::begin_holding(&["sh", "-c", "exit 5"], HOLD);
        run.grant(LONG);
        run.started();
        assert_eq!(run.next(), ToRenewer::Ended);
        run.signal(signal);
        assert_eq!(run.expect_done(), 5, "{signal:?}");
    }
}

/// The command had ended, and the front had not heard of that yet: the lock was held on.
#[test]
fn a_signal_that_is_read_with_the_end_of_the_command_ends_the_stay() {
    let goes_on = file("goes-on");
    let script = format!("until test -e {}; do sleep 0.01; done; exit 5", goes_on.display());
    let mut run = Run::begin_holding(&["sh", "-c", &script], HOLD);
    run.grant(LONG);
    run.started();
    run.signal(Signal::STOP);
    rig::wait_until_so("the stop", || rig::state_of(run.process) == "T");
    fs::write(&goes_on, "").expect("a file");
    run.nothing_left();
    run.signal(Signal::TERM);
    run.signal(Signal::CONT);
    assert_eq!(run.next(), ToRenewer::Ended);
    assert_eq!(run.expect_done(), 5);
    fs::remove_file(goes_on).expect("it is there");
}

#[test]
fn a_loss_after_the_command_is_said_and_changes_no_status() {
    let lost = ToFront::Lost("removed by beta".to_owned());
    let mut run = Run::begin_holding(&["true"], HOLD);
    run.grant(LONG);
    run.started();
    assert_eq!(run.next(), ToRenewer::Ended);
    run.tell(&lost);
    // The front does not wait for V.
    assert_eq!(run.status(), 0);
    let said = run.stderr();
    assert!(said.contains("the lock was lost after the command had ended: removed by beta"));
}

#[test]
fn a_stay_ends_when_nobody_renews_the_lock() {
    for kill in [true, false] {
        let mut run = Run::begin_holding(&["true"], HOLD);
        run.grant(SHORT);
        run.started();
        assert_eq!(run.next(), ToRenewer::Ended);
        if kill {
            run.renewer = None;
        }
        assert_eq!(run.status(), 0);
        assert!(run.stderr().contains("the lock was lost after the command had ended: "));
    }
}

/// Others may have the program.
#[test]
fn the_lock_of_a_command_that_could_not_be_executed_is_not_held_on() {
    let mut run = Run::begin_holding(&["/nonexistent/program"], HOLD);
    run.grant(LONG);
    assert_eq!(run.expect_done(), 127);
}
