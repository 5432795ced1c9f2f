//! When the watchdog device is opened, kicked and closed.

use std::time::Duration;

use putex::core::guard::{Act, Fence, Guard, News, Watch};
use putex::core::time::Instant;
use putex::core::timing::Timing;
use putex::core::watchdog_timeout::{longest_bite, wanted_timeout};

use super::{ms, timing, turn};

/// A guard with a device that was armed at 0.
fn armed(timeout_s: u64, timing: Timing) -> (Guard, Fence) {
    let mut guard = Guard::new(timing, false, true);
    let fence = Fence::of_lock(ms(0).after(timing.validity()), timing);
    let told = News::Told(Watch::MayRun(fence));
    assert_eq!(turn(&mut guard, told, ms(0)), [Act::Arm]);
    let device = News::Device(Duration::from_secs(timeout_s));
    assert_eq!(turn(&mut guard, device, ms(0)), [Act::SayArmed]);
    (guard, fence)
}

/// Lets time pass to each deadline until `end`; returns when the device was kicked.
fn kicks(guard: &mut Guard, end: Instant) -> Vec<Instant> {
    let mut kicks = vec![ms(0)];
    while let Some(at) = guard.deadline().filter(|at| *at < end) {
        if turn(guard, News::Tick, at).contains(&Act::Kick) {
            kicks.push(at);
        }
    }
    kicks
}

#[test]
fn a_device_that_is_kicked_no_more_bites_before_the_service_must_be_dead() {
    for (r_ms, f, c) in [
        (500, 3, 1),
        (1000, 4, 3),
        (3000, 3, 2),
        (3000, 10, 1),
        (200, 30, 9),
    ] {
        let timing = Timing::new(Duration::from_millis(r_ms), f, c, 10_000).expect("it is safe");
        let timeout = wanted_timeout(timing).expect("it can bite");
        let (mut guard, fence) = armed(timeout.as_secs(), timing);
        let kicks = kicks(&mut guard, fence.act_at);
        let last = *kicks.last().expect("it was armed");
        let bite = last.after(longest_bite(timeout));
        assert!(bite <= fence.dead_by, "R {r_ms}: bites at {bite:?}");
        for two in kicks.windows(2) {
            assert!(two[1].since(two[0]) <= timeout / 3, "R {r_ms}: {two:?}");
        }
        // A renewal comes R later, and finds the device alive.
        assert!(
            last.after(timeout) > ms(r_ms),
            "R {r_ms}: it bit a healthy host"
        );
    }
}

#[test]
fn a_device_of_a_short_timeout_leaves_stop_its_time() {
    let timing = Timing::new(Duration::from_secs(1), 4, 3, 10_000).expect("it is safe");
    let (mut guard, fence) = armed(1, timing);
    let kicks = kicks(&mut guard, fence.dead_by);
    let last = fence.dead_by.before(longest_bite(Duration::from_secs(1)));
    assert_eq!(kicks.last(), Some(&last));
}

#[test]
fn a_device_is_not_kicked_when_that_comes_too_late() {
    let (mut guard, fence) = armed(1, timing());
    let late = fence.dead_by.before(Duration::from_millis(1000));
    assert_eq!(turn(&mut guard, News::Tick, late), []);
}

#[test]
fn a_device_is_disarmed_when_the_service_is_down() {
    let (mut guard, _) = armed(1, timing());
    let acts = turn(&mut guard, News::Told(Watch::Down), ms(300));
    assert_eq!(acts, [Act::Disarm]);
    guard.disarmed();
    assert_eq!(turn(&mut guard, News::AgentGone, ms(500)), [Act::Leave]);
}

#[test]
fn a_device_that_cannot_be_disarmed_is_kicked_while_the_service_is_down() {
    let (mut guard, _) = armed(1, timing());
    turn(&mut guard, News::Told(Watch::Down), ms(400));
    assert!(kicks(&mut guard, ms(60_000)).len() > 100);
}

#[test]
fn an_agent_that_gives_up_leaves_the_device_to_bite() {
    let (mut guard, _) = armed(1, timing());
    assert_eq!(turn(&mut guard, News::GivenUp, ms(400)), [Act::Leave]);
}

#[test]
fn what_is_required_and_cannot_be_had_keeps_the_service_from_starting() {
    let mut guard = Guard::new(timing(), false, true);
    let told = News::Told(Watch::MayRun(Fence::of_lock(ms(1485), timing())));
    assert_eq!(turn(&mut guard, told, ms(0)), [Act::Arm]);
    let why = "there is no such device".to_owned();
    let acts = turn(&mut guard, News::NoDevice(Some(why.clone())), ms(0));
    assert_eq!(acts, [Act::SayUnfit(why)]);
}

#[test]
fn a_device_is_kicked_at_every_word_so_that_a_stop_has_its_whole_budget() {
    let timing = Timing::new(Duration::from_secs(1), 4, 3, 10_000).expect("it is safe");
    let (mut guard, _) = armed(2, timing);
    let at = ms(300);
    let renewed = Fence::of_lock(at.after(timing.validity()), timing);
    let acts = turn(&mut guard, News::Told(Watch::MayRun(renewed)), at);
    assert_eq!(acts, [Act::Kick]);
}

#[test]
fn a_device_is_not_kicked_for_a_word_that_a_later_one_took_back() {
    let (mut guard, fence) = armed(1, timing());
    let lost_at = ms(200);
    let lost = Fence {
        valid_until: lost_at,
        dead_by: lost_at.after(timing().stop_budget()),
        ..fence
    };
    for watch in [fence, lost].map(Watch::MayRun) {
        let acts = guard.turn(News::Told(watch), ms(700));
        assert_eq!(acts, []);
        guard.done(acts);
    }
    assert_eq!(turn(&mut guard, News::Tick, ms(700)), []);
}

/// A guard of a life that follows one that left a device running, and told nothing yet.
fn next_guard() -> (Guard, Fence, Duration) {
    let guard = Guard::new(timing(), false, true);
    let fence = Fence::of_lock(ms(1485), timing());
    let timeout = wanted_timeout(timing()).expect("it can bite");
    (guard, fence, timeout)
}

#[test]
fn a_device_is_tried_once_when_nothing_runs_that_it_could_watch() {
    let (mut guard, ..) = next_guard();
    assert_eq!(guard.deadline(), None);
    let down = || News::Told(Watch::Down);
    assert_eq!(turn(&mut guard, down(), ms(10)), [Act::Try]);
    assert_eq!(turn(&mut guard, down(), ms(20)), []);
    guard.set_up(timing(), false, true);
    assert_eq!(turn(&mut guard, down(), ms(30)), [Act::Try], "set up anew");
}

#[test]
fn a_device_that_runs_on_after_its_guard_is_not_put_off_too_far() {
    let (mut guard, fence, timeout) = next_guard();
    let told = || News::Told(Watch::MayRun(fence));
    let last = fence.dead_by.before(longest_bite(timeout));
    let too_late = last.after(Duration::from_nanos(1));
    assert_eq!(turn(&mut guard, told(), too_late), []);
    let (mut guard, ..) = next_guard();
    assert_eq!(turn(&mut guard, told(), last), [Act::Arm]);
}
