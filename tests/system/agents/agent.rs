//! The agent, end to end: short scenarios with real servers and real processes,
//! one after another. The long ones are in `acceptance.rs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rig::report::Report;
use crate::rig::scenarios::guard_commands::Cause;
use crate::rig::scenarios::{check, failover, guard, guard_commands, guard_strain};
use crate::rig::scenarios::{handover, link, mixed, store};
use crate::rig::service::Service;
use crate::rig::setting::Setting;
use crate::support::clock::observe_for;
use crate::support::observer::is_held;
use crate::support::process::children_of;
use crate::support::programs::{debug_putex, putex_020};
use crate::support::proxy;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Renewal interval of the short scenarios: short enough for all of them to fit
/// into a few minutes, long enough for a busy machine.
const R: Duration = Duration::from_millis(250);

/// So often a start is stopped in its middle.
const STARTS: u32 = 40;

/// How long what it has begun may go on without it, before all are killed.
const HALFWAY: Duration = Duration::from_millis(10);

static TURN: Mutex<()> = Mutex::new(());

/// Scenarios measure time, so they take turns. One that failed ends only its own.
fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn play(scenario: impl FnOnce(&Setting) -> Report) {
    play_at(R, scenario);
}

/// Plays a scenario with this R.
fn play_at(renewal: Duration, scenario: impl FnOnce(&Setting) -> Report) {
    let _turn = my_turn();
    if let Some(setting) = Setting::new(renewal) {
        scenario(&setting).expect_clean();
    }
}

/// What the rig must not do itself: a start that was killed between making the service and
/// noting its number left one that stop did not know, and another host's ran beside it.
#[test]
fn the_rigs_stop_ends_what_a_killed_start_left() {
    let service = Service::new();
    let (start, stop) = (service.start_command(), service.stop_command());
    stop_ends_what_a_killed_start_left(&service, &start, &stop);
}

/// The script for hosts without a service manager, as the page has it.
#[test]
fn the_manuals_stop_ends_what_a_killed_start_left() {
    let service = Service::new();
    let folder = service.sandbox.subfolder("manual");
    let page = include_str!("../../../man/putex.8");
    let scripts = page.split(".Bd -literal -offset indent\n").skip(1);
    let mut scripts = scripts.filter_map(|text| Some(text.split_once(".Ed")?.0));
    let script = scripts.find(|text| text.contains("exec setsid webd"));
    let script = script.expect("the page has the script").replace("\\-", "-");
    let script = script.replace("/run", &folder.display().to_string());
    let script = script.replace("/var/log/webd", "/dev/null");
    let webd = format!("exec sleep 86400 <>{}\n", service.pipe().display());
    for (name, text) in [("web", script), ("webd", format!("#!/bin/sh\n{webd}"))] {
        fs::write(folder.join(name), text).expect("the folder can be written");
        let mode = Permissions::from_mode(0o700);
        fs::set_permissions(folder.join(name), mode).expect("it is there");
    }
    let run = |role| format!("PATH={}:$PATH; web {role}", folder.display());
    stop_ends_what_a_killed_start_left(&service, &run("start"), &run("stop"));
}

/// Stops a start as soon as it has a child, as a busy machine may, lets the child go on, and
/// kills the process group of start.
fn stop_ends_what_a_killed_start_left(service: &Service, start: &str, stop: &str) {
    let _turn = my_turn();
    for number in 0..STARTS {
        let mut start = shell(service, start);
        let pid = Pid::from_child(&start);
        let own = start.id();
        let begun = || !children_of(own).is_empty();
        // One that has ended was too quick.
        while !begun() && start.try_wait().expect("it can be waited for").is_none() {}
        let _ = kill_process(pid, Signal::STOP);
        observe_for(HALFWAY);
        let _ = kill_process_group(pid, Signal::KILL);
        start.wait().expect("it was not waited for");
        let stopped = shell(service, stop).wait();
        assert!(stopped.is_ok_and(|status| status.success()));
        assert!(!is_held(&service.pipe()), "start {number} left a service");
    }
}

/// Begins a shell command in a process group of its own.
fn shell(service: &Service, command: &str) -> Child {
    let mut shell = service.sandbox.marked("/bin/sh");
    shell.args(["-c", command]).spawn().expect("a shell can be run")
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

/// The server may be gone for 0.4 s, just before a renewal, and the holder may pause for R before
/// it is back: that has to be less than T.
#[test]
fn a_short_server_restart_moves_nothing() {
    play_at(2 * R, link::a_short_server_restart_moves_nothing);
}

#[test]
fn a_long_server_outage_stops_the_service() {
    play(link::a_long_server_outage_stops_the_service);
}

#[test]
fn a_reset_link_moves_the_service() {
    play(|setting| link::a_broken_link_moves_the_service(setting, proxy::Mode::Cut));
}

#[test]
fn a_silent_link_moves_the_service() {
    play(|setting| link::a_broken_link_moves_the_service(setting, proxy::Mode::Freeze));
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
    play_at(2 * R, |setting| {
        guard_commands::a_hanging_stop_meets_the_last_resort(setting, Cause::Told)
    });
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
    let (Some(setting), Some(agent)) = (Setting::new(R), debug_putex()) else {
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
