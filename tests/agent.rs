//! The agent, end to end: short scenarios with real servers and real processes,
//! one after another. The long ones are in `acceptance.rs`.

mod rig;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rig::proxy::Mode;
use rig::report::Report;
use rig::scenarios::guard_commands::Cause;
use rig::scenarios::{check, failover, guard, guard_commands, guard_strain};
use rig::scenarios::{handover, link, mixed, store};
use rig::setting::{Setting, agent_under_test, debug_agent, putex_020};

/// Renewal interval of the short scenarios: short enough for all of them to fit
/// into a few minutes, long enough for a busy machine.
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
fn a_killed_agent_does_not_leave_its_service() {
    play(guard::a_killed_agent_does_not_leave_its_service);
}

#[test]
fn agents_that_end_leave_nothing() {
    play(guard::agents_that_end_leave_nothing);
}

#[test]
fn a_restarted_agent_goes_on() {
    play(|setting| guard::a_restarted_agent_goes_on(setting, 3));
}

#[test]
fn a_sleeping_agent_does_not_keep_its_service() {
    play(guard::a_sleeping_agent_does_not_keep_its_service);
}

#[test]
fn a_killed_guard_is_replaced() {
    play(guard::a_killed_guard_is_replaced);
}

#[test]
fn a_restarted_agent_meets_a_stopped_guard() {
    play(guard::a_restarted_agent_meets_a_stopped_guard);
}

#[test]
fn a_hanging_stop_meets_the_last_resort() {
    play(|setting| guard_commands::a_hanging_stop_meets_the_last_resort(setting, Cause::LostLink));
}

#[test]
fn a_guard_too_meets_a_hanging_stop() {
    play(|setting| {
        guard_commands::a_hanging_stop_meets_the_last_resort(setting, Cause::LostLinkThenKilled)
    });
}

#[test]
fn an_agent_told_to_end_meets_a_hanging_stop() {
    play(|setting| guard_commands::a_hanging_stop_meets_the_last_resort(setting, Cause::Told));
}

#[test]
fn a_failing_stop_is_repeated() {
    play(|setting| guard_commands::a_failing_stop_is_repeated(setting, true));
}

#[test]
fn a_full_log_holds_nothing_up() {
    play(guard_strain::a_full_log_holds_nothing_up);
}

#[test]
fn a_slow_start_keeps_and_loses_its_lock() {
    play(|setting| guard_commands::a_slow_start_keeps_and_loses_its_lock(setting, R * 8));
}

#[test]
fn a_panicking_thread_ends_the_agent() {
    let _turn = my_turn();
    let (Some(setting), Some(agent)) = (Setting::new(R), debug_agent()) else {
        return;
    };
    let play = |thread| guard_strain::a_panicking_thread_ends_the_agent(&setting, &agent, thread);
    // All of them are played, whatever becomes of the first.
    for report in guard_strain::THREADS.map(play) {
        report.expect_clean();
    }
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
