//! The agent, end to end: short scenarios with real servers and real processes,
//! one after another. The long ones are in `acceptance.rs`.

mod rig;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rig::proxy::Mode;
use rig::report::Report;
use rig::scenarios::{check, failover, handover, link, mixed, store};
use rig::setting::{Setting, agent_under_test, putex_020};

/// Renewal interval of the short scenarios: short enough for all of them to fit
/// into a minute and a half, long enough for a busy machine.
const R: Duration = Duration::from_millis(250);

static TURN: Mutex<()> = Mutex::new(());

/// Scenarios measure time, so they take turns. One that failed ends only its own.
fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn play(scenario: impl FnOnce(&Setting) -> Report) {
    let _turn = my_turn();
    if let Some(setting) = Setting::new(R) {
        scenario(&setting).expect_clean();
    }
}

#[test]
fn one_agent_is_active_and_stays_so() {
    play(|setting| failover::nothing_moves_when_nothing_happens(setting, R * 10));
}

#[test]
fn another_takes_over_from_a_killed_host() {
    play(|setting| failover::another_takes_over_from_a_killed_host(setting, 2));
}

#[test]
fn a_failing_check_moves_the_service() {
    play(check::a_failing_check_moves_the_service);
}

#[test]
fn a_slow_check_moves_nothing() {
    play(check::a_slow_check_moves_nothing);
}

#[test]
fn a_hanging_check_moves_the_service() {
    play(check::a_hanging_check_moves_the_service);
}

#[test]
fn a_short_server_restart_moves_nothing() {
    play(link::a_short_server_restart_moves_nothing);
}

#[test]
fn a_long_server_outage_stops_the_service() {
    play(link::a_long_server_outage_stops_the_service);
}

#[test]
fn a_reset_link_moves_the_service() {
    play(|setting| link::a_broken_link_moves_the_service(setting, Mode::Cut));
}

#[test]
fn a_silent_link_moves_the_service() {
    play(|setting| link::a_broken_link_moves_the_service(setting, Mode::Freeze));
}

#[test]
fn a_slow_link_moves_nothing() {
    play(link::a_slow_link_moves_nothing);
}

#[test]
fn a_lost_acknowledgement_moves_nothing() {
    play(link::a_lost_acknowledgement_moves_nothing);
}

#[test]
fn a_terminated_agent_hands_over() {
    play(|setting| handover::a_terminated_agent_hands_over(setting, 1));
}

#[test]
fn one_token_twice_is_never_active_twice() {
    play(handover::one_token_twice_is_never_active_twice);
}

#[test]
fn a_deleted_key_stops_the_service() {
    play(store::a_deleted_key_stops_the_service);
}

#[test]
fn a_deleted_bucket_stops_the_service() {
    play(store::a_deleted_bucket_stops_the_service);
}

#[test]
fn a_restored_store_stops_the_service() {
    play(store::a_restored_store_stops_the_service);
}

#[test]
fn a_lost_memory_bucket_stops_the_service() {
    play(store::a_lost_memory_bucket_stops_the_service);
}

#[test]
fn putex_020_and_this_one_take_over_from_each_other() {
    let Some(old) = putex_020() else { return };
    play(|setting| mixed::old_and_new_take_over_from_each_other(setting, &old, 1));
}

#[test]
fn mistakes_are_answered_by_one_line_and_their_status() {
    let _turn = my_turn();
    let setting = Setting::new(R);
    let wrong = rig::bad_input::try_all(&agent_under_test(), setting.as_ref());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
