//! When the watchdog device is opened, kicked and closed.

use std::time::Duration;

use putex::core::command::{Command, Outcome};
use putex::core::guard::{Guard, GuardAction, GuardInput};
use putex::core::protocol::{DeviceUse, GuardConfig, Stake, ToGuard};
use putex::core::time::Instant;
use putex::core::timing::Timing;
use putex::core::watchdog_timeout::{latest_reset, wanted_timeout};

use super::bench::{Bench, config, grant, order, run};
use super::{TICK, ms, timing, v};

const SECOND: Duration = Duration::from_secs(1);

fn wants(device: DeviceUse, timing: Timing) -> GuardConfig {
    GuardConfig { device, timing, ..config() }
}

/// R 1 s, F 4, C 3: a device of a second can bite in time.
fn slow() -> Timing {
    Timing::new(SECOND, 4, 3, 10_000).expect("it is safe")
}

/// A guard whose required device was tried.
fn tried(timing: Timing) -> Bench {
    let config = wants(DeviceUse::Required, timing);
    let mut bench = Bench::of(Guard::new(config, true, false, None, ms(0)));
    let hello = GuardInput::Received(ToGuard::Hello(config));
    assert_eq!(bench.handle(hello, ms(0)), [GuardAction::TryDevice]);
    assert_eq!(bench.feed(GuardInput::DeviceClosed, ms(0)), []);
    bench
}

/// A guard whose required device was opened at 0, for a service that was started then, and when
/// that must be down.
fn armed(timeout: Duration, timing: Timing) -> (Bench, Instant) {
    let mut bench = tried(timing);
    let granted = grant(timing, ms(0).after(timing.validity()));
    let dead_by = granted.dead_by;
    let message = GuardInput::Received(ToGuard::Grant(granted));
    assert_eq!(bench.handle(message, ms(0)), [GuardAction::OpenDevice]);
    assert_eq!(bench.feed(GuardInput::DeviceOpened(timeout), ms(0)), []);
    (bench, dead_by)
}

/// Each upgrade of an agent on standby killed its guard, which had not answered: the answer was the
/// last report to the agent before, and waited for the device.
#[test]
fn the_next_agent_is_answered_when_the_device_was_tried_although_nothing_has_changed() {
    let mut bench = tried(timing());
    bench.reports.clear();
    assert_eq!(bench.handle(GuardInput::Disconnected, ms(1)), []);
    let hello = GuardInput::Received(ToGuard::Hello(wants(DeviceUse::Required, timing())));
    assert_eq!(bench.handle(hello, ms(1)), [GuardAction::TryDevice]);
    bench.handle(GuardInput::DeviceClosed, ms(1));
    assert_eq!(bench.reports.len(), 1);
}

/// Lets time pass to each deadline until `end`; returns when the device was kicked.
fn kicks(bench: &mut Bench, end: Instant) -> Vec<Instant> {
    let mut kicks = vec![ms(0)];
    let deeds = bench.pass(end);
    let kicked = |(at, deed)| (deed == GuardAction::KickDevice).then_some(at);
    kicks.extend(deeds.into_iter().filter_map(kicked));
    kicks
}

#[test]
fn a_device_of_a_short_timeout_leaves_stop_its_time() {
    let (mut bench, dead_by) = armed(SECOND, slow());
    let kicks = kicks(&mut bench, dead_by);
    assert_eq!(kicks.last(), Some(&dead_by.before(latest_reset(SECOND))));
}

#[test]
fn a_device_is_not_kicked_for_a_grant_of_a_guard_that_slept() {
    let (mut bench, dead_by) = armed(SECOND, slow());
    // The message of the meantime is still valid, but not for as long as the device takes to bite.
    let renewed = grant(slow(), dead_by);
    let late = renewed.dead_by.before(SECOND);
    assert!(late > dead_by);
    let message = GuardInput::Received(ToGuard::Grant(renewed));
    assert_eq!(bench.handle(message, late), []);
    let deeds = bench.tick(late);
    assert!(!deeds.contains(&GuardAction::KickDevice), "{deeds:?}");
}

#[test]
fn a_device_is_closed_when_the_service_is_down_and_not_before() {
    let (mut bench, _) = armed(SECOND, slow());
    let stop = ToGuard::Stop(order(ms(2000), Stake::Lock));
    let deeds = bench.tell(stop, ms(300));
    assert_eq!(deeds, [run(Command::Stop, ms(2000))]);
    let ended = GuardInput::Ended(Command::Stop, Outcome::Succeeded);
    let deeds = bench.feed(ended, ms(310));
    assert!(!deeds.contains(&GuardAction::CloseDevice), "{deeds:?}");
    let deeds = bench.handle(GuardInput::CgroupEmptied, ms(320));
    assert_eq!(deeds, [GuardAction::CloseDevice]);
    assert_eq!(bench.feed(GuardInput::DeviceClosed, ms(320)), []);
    assert_eq!(bench.leave_agent(ms(500)), [GuardAction::Exit]);
}

#[test]
fn a_device_that_cannot_be_stopped_is_kicked_while_the_service_is_down() {
    let (mut bench, dead_by) = armed(SECOND, slow());
    bench.tell(ToGuard::Stop(order(ms(2000), Stake::Lock)), ms(300));
    // The device does not answer that it was closed.
    assert_eq!(bench.stop_counts(ms(320)), [GuardAction::CloseDevice]);
    assert!(kicks(&mut bench, ms(60_000)).len() > 100);
    assert!(ms(60_000) > dead_by);
    let deeds = bench.leave_agent(ms(60_000));
    let close_and_leave = [GuardAction::CloseDevice, GuardAction::Exit];
    assert!(deeds.ends_with(&close_and_leave), "{deeds:?}");
}

#[test]
fn a_device_is_opened_before_start_and_start_is_not_run_without_one_that_is_required() {
    let mut bench = tried(timing());
    let message = GuardInput::Received(ToGuard::Grant(grant(timing(), v())));
    assert_eq!(bench.handle(message, ms(0)), [GuardAction::OpenDevice]);
    assert_eq!(bench.tell(ToGuard::AssertStart, ms(0)), [], "not answered");
    bench.feed(GuardInput::DeviceOpened(SECOND), ms(1));
    let deeds = bench.tell(ToGuard::AssertStart, ms(2));
    assert_eq!(deeds, [run(Command::Start, v())]);
}

#[test]
fn what_is_required_and_cannot_be_had_is_reported_and_keeps_the_service_from_starting() {
    let why = || "there is no such device".to_owned();
    for (device, required) in [(DeviceUse::Required, true), (DeviceUse::Optional, false)] {
        let mut bench = Bench::new(wants(device, timing()), true);
        assert!(bench.reports.is_empty(), "before the device has answered");
        bench.feed(GuardInput::DeviceFailed(why()), ms(0));
        let unfit = bench.reports.last().and_then(|report| report.unfit.clone());
        assert_eq!(unfit, required.then(why));
        let granted = bench.renew(v(), ms(10));
        assert_eq!(granted, [GuardAction::OpenDevice], "it may have been busy");
        bench.feed(GuardInput::DeviceFailed(why()), ms(10));
        assert_eq!(bench.renew(v(), ms(10)), [], "it was tried for this lock");
        let deeds = bench.tell(ToGuard::AssertStart, ms(10));
        assert_eq!(deeds.is_empty(), required, "{deeds:?}");
    }
}

#[test]
fn a_device_that_fails_when_it_is_opened_is_reported_with_the_grant() {
    let mut bench = tried(timing());
    bench.reports.clear();
    let message = GuardInput::Received(ToGuard::Grant(grant(timing(), v())));
    assert_eq!(bench.handle(message, ms(0)), [GuardAction::OpenDevice]);
    assert!(bench.reports.is_empty(), "before the device has answered");
    bench.feed(GuardInput::DeviceFailed("gone".to_owned()), ms(0));
    let [report] = &bench.reports[..] else {
        panic!("{:?}", bench.reports);
    };
    assert_eq!((report.heard, report.unfit.as_deref()), (2, Some("gone")));
}

#[test]
fn a_device_that_was_not_tried_keeps_start_from_being_run() {
    let mut bench = Bench::new(wants(DeviceUse::Optional, timing()), false);
    let granted = grant(timing(), v());
    let timeout = wanted_timeout(timing()).expect("it can bite");
    let too_late = granted.dead_by.before(latest_reset(timeout)).after(TICK);
    assert!(too_late < v());
    assert_eq!(bench.tell(ToGuard::Grant(granted), too_late), []);
    assert_eq!(bench.tell(ToGuard::AssertStart, too_late), []);
}

#[test]
fn a_device_is_tried_once_when_nothing_runs_that_it_could_watch() {
    let mut bench = tried(timing());
    assert_eq!(bench.guard.deadline(), None);
    let stop = |by| ToGuard::Stop(order(ms(by), Stake::Assurance));
    bench.tell(stop(470), ms(10));
    assert_eq!(bench.stop_counts(ms(20)), [], "it is known to work");
    for (device, by, again) in [
        (DeviceUse::Required, 471, vec![GuardAction::TryDevice]),
        (DeviceUse::Optional, 472, vec![]),
    ] {
        let hello = ToGuard::Hello(wants(device, timing()));
        let deeds = bench.tell(hello, ms(30));
        assert_eq!(deeds, [GuardAction::TryDevice], "set up anew");
        bench.feed(GuardInput::DeviceFailed("gone".to_owned()), ms(30));
        bench.tell(stop(by), ms(40));
        let deeds = bench.stop_counts(ms(50));
        assert_eq!(deeds, again, "{device:?}: it may work now");
    }
}

#[test]
fn a_device_is_not_tried_while_it_could_put_the_bite_off() {
    let config = wants(DeviceUse::Required, timing());
    // The previous guard may have left the device running, over a service that is up.
    let mut bench = Bench::new(config, false);
    assert_eq!(bench.tell(ToGuard::Hello(config), ms(1)), []);
    bench.tell(ToGuard::Stop(order(ms(470), Stake::Lock)), ms(10));
    assert_eq!(bench.tell(ToGuard::Hello(config), ms(15)), []);
    assert_eq!(bench.stop_counts(ms(20)), [GuardAction::TryDevice]);
}

#[test]
fn a_device_that_runs_on_after_its_guard_is_not_put_off_too_far() {
    let granted = || grant(timing(), v());
    let timeout = wanted_timeout(timing()).expect("it can bite");
    let last = granted().dead_by.before(latest_reset(timeout));
    for (now, deeds) in [(last.after(TICK), vec![]), (last, vec![GuardAction::OpenDevice])] {
        let mut bench = Bench::new(wants(DeviceUse::Required, timing()), false);
        let message = GuardInput::Received(ToGuard::Grant(granted()));
        assert_eq!(bench.handle(message, now), deeds);
    }
}

#[test]
fn a_device_that_runs_is_kicked_on_for_an_instance_that_wants_none() {
    let (mut bench, dead_by) = armed(SECOND, slow());
    bench.leave_agent(ms(100));
    let none = wants(DeviceUse::None, slow());
    assert_eq!(bench.tell(ToGuard::Hello(none), ms(110)), []);
    assert!(kicks(&mut bench, dead_by).len() > 3);
}

#[test]
fn a_device_that_could_not_be_stopped_gets_the_timeout_of_another_c() {
    let (mut bench, dead_by) = armed(SECOND * 3, slow());
    let quick = Timing::new(SECOND, 4, 1, 10_000).expect("it is safe");
    assert_ne!(wanted_timeout(quick), wanted_timeout(slow()));
    let deeds = bench.tell(ToGuard::Hello(wants(DeviceUse::Optional, quick)), ms(10));
    assert_eq!(deeds, [run(Command::Stop, dead_by)]);
    // The guard receives no `DeviceClosed`: the device could not be stopped.
    assert_eq!(bench.stop_counts(ms(20)), [GuardAction::CloseDevice]);
    let granted = GuardInput::Received(ToGuard::Grant(grant(quick, ms(2000))));
    assert_eq!(bench.handle(granted, ms(30)), [GuardAction::OpenDevice]);
    assert_eq!(bench.feed(GuardInput::DeviceOpened(SECOND), ms(30)), []);
    assert_eq!(bench.renew(ms(2100), ms(100)), [GuardAction::KickDevice]);
}
