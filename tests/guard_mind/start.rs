//! A start that was killed and has not ended: it may still do its work.

use putex::core::command::{Command, Outcome};
use putex::core::guard::{Act, Guard, News};
use putex::core::timing::SLACK;

use super::{Duration, failed, hear, leaves_when_stop_fails, ms, timing, turn, watching};

/// A guard whose agent died while start ran: that was killed and waited for, but not without
/// end, and the stop that is returned runs beside it.
fn stopping_beside_a_start() -> (Guard, Act) {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    let until = ms(1485).after(SLACK);
    assert_eq!(hear(&mut guard, News::Tick, ms(1485)), [Act::KillLeft]);
    assert_eq!(guard.deadline(), Some(until));
    let acts = hear(&mut guard, News::Tick, until);
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(acts, std::slice::from_ref(&stop), "not without end");
    (guard, stop)
}

#[test]
fn a_start_that_is_dying_is_waited_for_and_a_stop_beside_it_does_not_count() {
    let (mut guard, stop) = stopping_beside_a_start();
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    assert_eq!(turn(&mut guard, ended.clone(), ms(1500)), []);
    assert_eq!(turn(&mut guard, News::StartGone, ms(1510)), [stop]);
    assert_eq!(turn(&mut guard, ended, ms(1520)), [Act::Leave]);
}

#[test]
fn a_stop_that_did_not_count_is_run_again_at_once_when_start_has_gone_meanwhile() {
    let (mut guard, _) = watching(1485, false);
    let woken = ms(3_600_000);
    let acts = hear(&mut guard, News::Tick, woken);
    assert!(acts.contains(&Act::KillLeft), "{acts:?}");
    let acts = turn(&mut guard, News::StartGone, woken);
    assert_eq!(acts, [Act::Kill(Command::Stop)], "it has ended already");
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    let again = Act::Run(Command::Stop, woken.after(timing().stop_budget()));
    assert_eq!(turn(&mut guard, ended.clone(), woken), [again]);
    assert_eq!(turn(&mut guard, ended, woken), [Act::Leave]);
}

/// A stop that takes its whole time would leave none for one that counts.
#[test]
fn a_stop_beside_a_dying_start_is_killed_when_that_has_ended() {
    let (mut guard, stop) = stopping_beside_a_start();
    let acts = turn(&mut guard, News::StartGone, ms(1520));
    assert_eq!(acts, [Act::Kill(Command::Stop)]);
    let killed = News::Ended(Command::Stop, Outcome::Overran);
    assert_eq!(turn(&mut guard, killed, ms(1521)), [stop]);
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    assert_eq!(turn(&mut guard, ended, ms(1900)), [Act::Leave]);
}

/// What it says is that the service may run: the next life would not know of that start.
#[test]
fn a_guard_that_is_waited_for_does_not_leave_beside_a_dying_start() {
    let (mut guard, fence) = watching(1485, true);
    let acts = hear(&mut guard, News::Tick, fence.act_at);
    assert!(acts.contains(&Act::KillLeft), "{acts:?}");
    turn(&mut guard, News::AgentGone, fence.act_at);
    hear(&mut guard, News::AgentBack, fence.act_at);
    turn(&mut guard, News::Tick, fence.dead_by);
    let resorted = News::Ended(Command::LastResort, Outcome::Succeeded);
    let acts = turn(&mut guard, resorted.clone(), fence.dead_by);
    assert!(!acts.contains(&Act::Leave), "{acts:?}");
    let killed = News::Ended(Command::Stop, Outcome::Overran);
    turn(&mut guard, killed, fence.dead_by);
    let acts = turn(&mut guard, News::StartGone, fence.dead_by);
    let runs = |act: &Act| matches!(act, Act::Run(Command::LastResort, _));
    assert!(acts.iter().any(runs), "one that counts: {acts:?}");
    let acts = turn(&mut guard, resorted, fence.dead_by);
    let stop = Act::Run(Command::Stop, fence.dead_by.after(timing().stop_budget()));
    assert_eq!(acts, [stop]);
    leaves_when_stop_fails(&mut guard, fence.dead_by);
}

/// That start has done its work meanwhile: whoever leaves then leaves a service that is up.
#[test]
fn a_guard_that_is_waited_for_stops_what_a_dying_start_made_before_it_leaves() {
    let (mut guard, stop) = stopping_beside_a_start();
    let Act::Run(Command::Stop, late) = stop else {
        panic!("not stop: {stop:?}");
    };
    turn(&mut guard, News::Tick, late);
    hear(&mut guard, News::AgentBack, late);
    let killed = News::Ended(Command::Stop, Outcome::Overran);
    assert_eq!(turn(&mut guard, killed, late), []);
    let acts = turn(&mut guard, News::StartGone, late);
    let runs = |act: &Act| matches!(act, Act::Run(Command::Stop, _));
    assert!(acts.iter().any(runs), "one that counts: {acts:?}");
    leaves_when_stop_fails(&mut guard, late);
}

#[test]
fn stop_follows_the_end_of_a_start_that_was_killed() {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    let acts = hear(&mut guard, News::Tick, ms(1485));
    assert_eq!(acts.first(), Some(&Act::KillLeft));
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(turn(&mut guard, News::StartGone, ms(1486)), [stop]);
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    assert_eq!(turn(&mut guard, ended, ms(1490)), [Act::Leave]);
}

#[test]
fn a_last_resort_beside_a_dying_start_is_run_again() {
    let (mut guard, _) = watching(1485, true);
    let woken = ms(3_600_000);
    let acts = hear(&mut guard, News::Tick, woken);
    assert!(acts.contains(&Act::KillLeft), "{acts:?}");
    let resorted = News::Ended(Command::LastResort, Outcome::Succeeded);
    let later = |late: u64| woken.after(Duration::from_millis(late));
    let resorts = |acts: Vec<Act>| {
        let mut acts = acts.iter();
        acts.any(|act| matches!(act, Act::Run(Command::LastResort, _)))
    };
    assert!(!resorts(turn(&mut guard, resorted.clone(), later(10))));
    turn(&mut guard, News::StartGone, later(11));
    let killed = News::Ended(Command::Stop, Outcome::Overran);
    assert!(resorts(turn(&mut guard, killed, later(20))));
    assert!(!resorts(turn(&mut guard, resorted, later(530))));
    let failed = News::Ended(Command::Stop, failed());
    turn(&mut guard, failed, later(540));
    assert!(!resorts(turn(&mut guard, News::Tick, later(1040))));
}
