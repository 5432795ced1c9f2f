//! What the guard decides, under a clock that the test holds: R 500 ms, F 3, C 1, so
//! that V is 1485 ms after a renewal and the stop budget 470.099 ms.

mod device;
mod start;

use std::time::Duration;

use putex::core::command::{Command, Outcome};
use putex::core::event::Level;
use putex::core::guard::{Act, Fence, Guard, News, Watch};
use putex::core::time::Instant;
use putex::core::timing::{SLACK, Timing};

fn timing() -> Timing {
    Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe")
}

fn ms(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(ms))
}

/// Takes in `news` alone and returns what the guard does, without what it only says. A
/// start that it kills has not ended yet.
fn hear(guard: &mut Guard, news: News, now: Instant) -> Vec<Act> {
    let acts = guard.turn(news, now);
    let deeds = acts.iter().filter(|act| !matches!(act, Act::Say(..)));
    let deeds = deeds.cloned().collect();
    guard.done(acts);
    deeds
}

/// As [`hear`], with the tick that follows; there was no start to be killed.
fn turn(guard: &mut Guard, news: News, now: Instant) -> Vec<Act> {
    let mut deeds = hear(guard, news, now);
    deeds.extend(hear(guard, News::Tick, now));
    if deeds.contains(&Act::KillLeft) {
        deeds.extend(hear(guard, News::NoStart, now));
        deeds.extend(hear(guard, News::Tick, now));
    }
    deeds
}

/// A guard of a service whose lock is valid until `valid_until`.
fn watching(valid_until: u64, last_resort: bool) -> (Guard, Fence) {
    let mut guard = Guard::new(timing(), last_resort, false);
    let fence = Fence::of_lock(ms(valid_until), timing());
    let acts = turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(0));
    assert_eq!(acts, [Act::SayArmed]);
    (guard, fence)
}

fn failed() -> Outcome {
    Outcome::Failed("exit status 1".to_owned())
}

/// The stop that runs fails at `now`, and no other follows when the next is due.
fn leaves_when_stop_fails(guard: &mut Guard, now: Instant) {
    let failed = News::Ended(Command::Stop, failed());
    assert_eq!(turn(guard, failed, now), [], "the next is due later");
    let due = guard.deadline().expect("stop is due again");
    assert_eq!(turn(guard, News::Tick, due), [Act::Leave]);
}

#[test]
fn nothing_is_done_while_the_agent_renews() {
    let (mut guard, _) = watching(1485, false);
    for stroke in 1..100 {
        let now = ms(stroke * 500);
        let fence = Fence::of_lock(now.after(timing().validity()), timing());
        assert_eq!(turn(&mut guard, News::Told(Watch::MayRun(fence)), now), []);
        assert!(guard.deadline() > Some(now));
    }
}

#[test]
fn a_silent_agent_is_killed_first_a_quarter_of_the_budget_after_v() {
    let (mut guard, fence) = watching(1485, false);
    let act_at = guard.deadline().expect("there is a deadline");
    assert_eq!(act_at.since(fence.valid_until), timing().stop_budget() / 4);
    let early = act_at.before(Duration::from_nanos(1));
    assert_eq!(turn(&mut guard, News::Tick, early), []);
    let acts = turn(&mut guard, News::Tick, act_at);
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(acts, [Act::KillAgent, Act::KillLeft, stop]);
}

#[test]
fn a_lost_agent_has_until_v_to_be_back() {
    let (mut guard, fence) = watching(1485, false);
    assert_eq!(turn(&mut guard, News::AgentGone, ms(100)), []);
    assert_eq!(guard.deadline(), Some(fence.valid_until));
    let early = fence.valid_until.before(Duration::from_nanos(1));
    assert_eq!(turn(&mut guard, News::Tick, early), []);
    let acts = turn(&mut guard, News::Tick, fence.valid_until);
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(acts, [Act::KillLeft, stop]);
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    assert_eq!(turn(&mut guard, ended, ms(1500)), [Act::Leave]);
}

#[test]
fn an_agent_that_is_back_in_time_goes_on_and_its_old_commands_are_killed() {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    assert_eq!(turn(&mut guard, News::AgentBack, ms(110)), [Act::KillLeft]);
    guard.set_up(timing(), false, false);
    assert_eq!(guard.watch(), Watch::MayRun(fence));
    let renewed = Watch::MayRun(Fence::of_lock(ms(1600), timing()));
    let acts = turn(&mut guard, News::Told(renewed), ms(115));
    assert_eq!(acts, [Act::SayArmed]);
    assert_eq!(turn(&mut guard, News::Tick, fence.valid_until), []);
    assert!(!guard.acting());
}

#[test]
fn an_agent_that_is_back_but_does_not_renew_has_no_longer_than_any_other() {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::AgentBack, ms(110));
    let acts = turn(&mut guard, News::Tick, fence.act_at);
    assert!(acts.contains(&Act::KillAgent), "{acts:?}");
}

#[test]
fn whoever_goes_when_the_service_is_down_takes_the_guard_along() {
    let (mut guard, _) = watching(1485, false);
    assert_eq!(turn(&mut guard, News::Told(Watch::Down), ms(600)), []);
    assert_eq!(guard.deadline(), None);
    assert_eq!(turn(&mut guard, News::AgentGone, ms(700)), [Act::Leave]);
}

#[test]
fn a_host_that_slept_through_everything_stops_the_service_when_it_wakes() {
    let (mut guard, fence) = watching(1485, true);
    let woken = ms(3_600_000);
    let acts = turn(&mut guard, News::Tick, woken);
    let resort = Act::Run(Command::LastResort, woken.after(timing().stop_budget()));
    let kill = Act::Kill(Command::Stop);
    assert!(fence.dead_by < woken);
    assert_eq!(
        acts,
        [
            Act::KillAgent,
            Act::KillLeft,
            kill,
            Act::KillService,
            resort
        ]
    );
}

#[test]
fn a_stop_that_fails_is_tried_again_within_the_budget() {
    let (mut guard, fence) = watching(1485, true);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, ms(1485));
    assert_eq!(
        turn(&mut guard, News::Ended(Command::Stop, failed()), ms(1490)),
        []
    );
    assert_eq!(guard.deadline(), Some(ms(1615)));
    let again = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(turn(&mut guard, News::Tick, ms(1615)), [again]);
    let ended = News::Ended(Command::Stop, Outcome::Succeeded);
    assert_eq!(turn(&mut guard, ended, ms(1620)), [Act::Leave]);
}

#[test]
fn a_stop_that_hangs_is_killed_at_the_end_and_the_last_resort_is_run_once() {
    let (mut guard, fence) = watching(1485, true);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, ms(1485));
    assert_eq!(guard.deadline(), Some(fence.dead_by));
    let acts = turn(&mut guard, News::Tick, fence.dead_by);
    let budget = timing().stop_budget();
    let until = fence.dead_by.after(budget);
    assert!(acts.contains(&Act::Kill(Command::Stop)), "{acts:?}");
    assert!(
        acts.contains(&Act::Run(Command::LastResort, until)),
        "{acts:?}"
    );
    // The killed stop may take a while to be gone: nothing waits for it.
    assert_eq!(
        turn(
            &mut guard,
            News::Ended(Command::Stop, Outcome::Overran),
            ms(1960)
        ),
        []
    );
    let resorted = News::Ended(Command::LastResort, Outcome::Succeeded);
    let acts = turn(&mut guard, resorted, ms(1970));
    let again = Act::Run(Command::Stop, ms(1970).after(budget));
    assert_eq!(acts, [again], "only stop can tell that the service is down");
    let acts = turn(&mut guard, News::Ended(Command::Stop, failed()), ms(1980));
    assert_eq!(acts, []);
    let acts = turn(&mut guard, News::Tick, ms(2480));
    assert_eq!(acts, [Act::Run(Command::Stop, ms(2480).after(budget))]);
}

#[test]
fn what_the_agent_has_resorted_to_is_not_done_twice() {
    let mut guard = Guard::new(timing(), true, false);
    let fence = Fence {
        act_at: ms(3000),
        resorted: true,
        ..Fence::of_lock(ms(1485), timing())
    };
    turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(2000));
    let acts = turn(&mut guard, News::AgentGone, ms(2100));
    let resorts = acts
        .iter()
        .any(|act| matches!(act, Act::Run(Command::LastResort, _)));
    assert!(!resorts && acts.contains(&Act::KillLeft), "{acts:?}");
}

#[test]
fn a_guard_that_was_let_go_does_nothing_any_more() {
    let (mut guard, fence) = watching(1485, true);
    let over = fence.dead_by.after(Duration::from_secs(1));
    assert_eq!(turn(&mut guard, News::GivenUp, over), [Act::Leave]);
}

#[test]
fn a_guard_that_cannot_stop_the_service_makes_room_for_the_next_life() {
    let (mut guard, _) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, ms(1485));
    turn(&mut guard, News::Tick, ms(1956));
    turn(
        &mut guard,
        News::Ended(Command::Stop, Outcome::Overran),
        ms(1957),
    );
    assert_eq!(turn(&mut guard, News::AgentBack, ms(2000)), []);
    let due = guard.deadline().expect("stop is due again");
    let stop = Act::Run(Command::Stop, due.after(timing().stop_budget()));
    assert_eq!(turn(&mut guard, News::Tick, due), [stop], "once more");
    leaves_when_stop_fails(&mut guard, due);
}

#[test]
fn a_stop_that_had_no_time_since_the_guard_was_held_up_is_run_again_at_once() {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, ms(1485));
    let late = fence.dead_by.after(Duration::from_secs(60));
    assert_eq!(hear(&mut guard, News::AgentBack, late), []);
    let acts = turn(&mut guard, News::Tick, late);
    assert_eq!(acts.first(), Some(&Act::Kill(Command::Stop)), "{acts:?}");
    let killed = News::Ended(Command::Stop, Outcome::Overran);
    let again = Act::Run(Command::Stop, late.after(timing().stop_budget()));
    assert_eq!(turn(&mut guard, killed, late), [again], "it does not leave");
    leaves_when_stop_fails(&mut guard, late);
}

#[test]
fn the_agents_own_turn_comes_before_the_guards() {
    // While its stop runs, the agent tells a fence that ends with the budget.
    let fence = Fence {
        stop_until: Some(Fence::of_lock(ms(1485), timing()).dead_by.after(SLACK / 2)),
        ..Fence::of_lock(ms(1485), timing())
    };
    let mut guard = Guard::new(timing(), true, false);
    turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(1485));
    turn(&mut guard, News::AgentsStopBegan, ms(1486));
    assert_eq!(turn(&mut guard, News::Tick, fence.dead_by), []);
    let acts = turn(&mut guard, News::Tick, fence.dead_by.after(SLACK / 2));
    assert_eq!(acts.first(), Some(&Act::KillAgent));
}

#[test]
fn it_is_said_what_was_wrong_and_what_is_done() {
    let (mut guard, fence) = watching(1485, false);
    turn(&mut guard, News::AgentGone, ms(100));
    let acts = guard.turn(News::Tick, fence.valid_until);
    let text = "the guard: the agent is gone: stopping the service".to_owned();
    assert!(acts.contains(&Act::Say(Level::Error, text)), "{acts:?}");
}

#[test]
fn a_guard_that_was_held_up_hears_first_that_the_agent_renewed() {
    let (mut guard, fence) = watching(1485, false);
    let late = fence.dead_by.after(Duration::from_secs(1));
    // The words of the meantime, in their order: the first of them have run out too.
    for stroke in 1..=6 {
        let told = Fence::of_lock(ms(1485 + stroke * 500), timing());
        let acts = guard.turn(News::Told(Watch::MayRun(told)), late);
        assert_eq!(acts, [], "stroke {stroke}");
        guard.done(acts);
    }
    assert_eq!(turn(&mut guard, News::Tick, late), []);
    assert!(!guard.acting());
}

/// A guard whose agent runs stop: its own turn comes when the budget is over.
fn stopping() -> (Guard, Fence) {
    let (mut guard, fence) = watching(1485, true);
    let fence = Fence {
        stop_until: Some(fence.dead_by.after(SLACK / 2)),
        ..fence
    };
    turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(600));
    turn(&mut guard, News::AgentsStopBegan, ms(601));
    (guard, fence)
}

#[test]
fn an_agent_that_froze_while_stop_ran_is_not_waited_for_once_that_has_ended() {
    let (mut guard, fence) = stopping();
    assert_eq!(turn(&mut guard, News::AgentsStopEnded, ms(700)), []);
    let act_at = fence.valid_until.after(timing().guard_patience());
    assert_eq!(guard.deadline(), Some(act_at));
    let acts = turn(&mut guard, News::Tick, act_at);
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert_eq!(acts, [Act::KillAgent, Act::KillLeft, stop]);
}

#[test]
fn a_stop_of_the_life_before_is_not_waited_for_when_the_next_one_freezes() {
    let (mut guard, fence) = stopping();
    turn(&mut guard, News::AgentGone, ms(650));
    assert_eq!(turn(&mut guard, News::AgentBack, ms(700)), [Act::KillLeft]);
    turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(701));
    assert_eq!(guard.deadline(), Some(fence.act_at));
}

#[test]
fn a_stop_that_is_late_since_another_wrote_ends_within_the_promise_still() {
    let (mut guard, fence) = watching(1485, false);
    let lost = Fence::of_lock(ms(100), timing());
    let now = ms(1600);
    let acts = turn(&mut guard, News::Told(Watch::MayRun(lost)), now);
    let stop = Act::Run(Command::Stop, fence.dead_by);
    assert!(now > lost.dead_by && now.after(timing().stop_budget()) > fence.dead_by);
    assert_eq!(acts.last(), Some(&stop));
}

#[test]
fn an_agent_that_says_how_its_stop_ended_is_left_alone() {
    let (_, fence) = stopping();
    let again = Fence {
        act_at: ms(1800),
        stop_until: None,
        ..fence
    };
    for said in [Watch::Down, Watch::MayRun(again)] {
        let (mut guard, _) = stopping();
        turn(&mut guard, News::AgentsStopEnded, ms(700));
        assert_eq!(turn(&mut guard, News::Told(said), ms(701)), []);
        assert_eq!(turn(&mut guard, News::Tick, ms(1799)), []);
    }
}

#[test]
fn a_last_resort_that_the_agent_did_not_see_the_end_of_is_run_again() {
    let (mut guard, _) = watching(1485, true);
    let fence = Fence {
        act_at: ms(3000),
        ..Fence::of_lock(ms(1485), timing())
    };
    turn(&mut guard, News::Told(Watch::MayRun(fence)), ms(2000));
    let acts = turn(&mut guard, News::AgentGone, ms(2100));
    let resort = Act::Run(Command::LastResort, ms(2100).after(timing().stop_budget()));
    assert!(acts.contains(&resort), "{acts:?}");
}

#[test]
fn a_last_resort_that_failed_is_run_again_in_turn_with_stop() {
    let (mut guard, fence) = watching(1485, true);
    let budget = timing().stop_budget();
    let ran = |acts: &[Act]| match acts.last() {
        Some(Act::Run(command, _)) => *command,
        other => panic!("{other:?}"),
    };
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, fence.valid_until);
    let mut now = fence.dead_by;
    assert_eq!(ran(&turn(&mut guard, News::Tick, now)), Command::LastResort);
    turn(
        &mut guard,
        News::Ended(Command::Stop, Outcome::Overran),
        now,
    );
    for resort in [failed(), Outcome::Overran, Outcome::Succeeded] {
        now = now.after(budget);
        let succeeded = resort == Outcome::Succeeded;
        let acts = turn(&mut guard, News::Ended(Command::LastResort, resort), now);
        assert_eq!(ran(&acts), Command::Stop);
        turn(&mut guard, News::Ended(Command::Stop, failed()), now);
        now = guard.deadline().expect("something is due");
        let next = ran(&turn(&mut guard, News::Tick, now));
        let wanted = if succeeded {
            Command::Stop
        } else {
            Command::LastResort
        };
        assert_eq!(next, wanted);
    }
}

#[test]
fn an_agent_that_froze_before_its_stop_ran_is_not_waited_for_as_if_that_did() {
    let (mut guard, fence) = watching(1485, true);
    let told = Fence {
        stop_until: Some(fence.dead_by.after(SLACK / 2)),
        ..fence
    };
    turn(&mut guard, News::Told(Watch::MayRun(told)), ms(1485));
    assert_eq!(guard.deadline(), Some(fence.act_at));
}

#[test]
fn a_stop_of_the_guard_that_does_not_die_is_not_run_twice() {
    let (mut guard, fence) = watching(1485, true);
    turn(&mut guard, News::AgentGone, ms(100));
    turn(&mut guard, News::Tick, fence.valid_until);
    turn(&mut guard, News::Tick, fence.dead_by);
    let resorted = News::Ended(Command::LastResort, Outcome::Succeeded);
    let acts = turn(&mut guard, resorted, ms(1970));
    assert_eq!(acts, [Act::Kill(Command::Stop)]);
    turn(
        &mut guard,
        News::Ended(Command::Stop, Outcome::Overran),
        ms(1980),
    );
    let due = guard.deadline().expect("stop is due");
    let acts = turn(&mut guard, News::Tick, due);
    assert!(matches!(acts[..], [Act::Run(Command::Stop, _)]), "{acts:?}");
}
