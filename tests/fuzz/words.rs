//! Packets between agent and guard, and what the guard makes of them.

use std::time::Duration;

use crate::core::command::Command;
use crate::core::guard::{Act, Fence, Guard, News, Watch};
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::guard::word::{Answer, PACKET_MAX, SetUp, Word};

/// Packets, each with its length before it in two bytes: one that is understood
/// means the same when it is sent again, and nothing when it is cut short; a guard
/// takes it whatever numbers are in it, and while a service may run, a guard that is
/// left alone never waits for ever.
pub fn words(data: &[u8]) -> bool {
    let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
    let mut guard = Guard::new(timing, true, false);
    let mut now = Instant::from_boot(Duration::from_secs(1));
    let mut rest = data;
    let mut known = false;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (packet, after) = after.split_at(length);
        rest = after;
        known |= answer(packet);
        let Some(word) = understood(packet) else {
            continue;
        };
        known = true;
        now = now.after(Duration::from_millis(length as u64));
        let news = match word {
            Word::SetUp(set_up) => {
                guard.set_up(set_up.timing, set_up.last_resort.is_some(), false);
                News::AgentBack
            }
            Word::Watch(watch) => News::Told(watch),
            Word::LockContext(_) => News::Tick,
            Word::Group(_, _) => News::AgentGone,
            Word::KillService => News::NoDevice(None),
            Word::StopBegins => News::AgentsStopBegan,
            Word::GivenUp => News::GivenUp,
        };
        if turn(&mut guard, news, now) {
            break;
        }
    }
    known
}

/// Returns whether the guard has left.
fn turn(guard: &mut Guard, news: News, now: Instant) -> bool {
    let gone = news == News::AgentGone;
    let acts = guard.turn(news, now);
    assert!(acts.len() <= 16, "{acts:?}");
    let left = acts.contains(&Act::Leave);
    for act in &acts {
        match act {
            Act::Run(command, _) => {
                assert!(matches!(command, Command::Stop | Command::LastResort));
            }
            Act::Say(_, text) | Act::SayUnfit(text) => super::assert_one_line(text),
            Act::Try
            | Act::Arm
            | Act::Kick
            | Act::Disarm
            | Act::SayArmed
            | Act::KillAgent
            | Act::KillLeft
            | Act::KillService
            | Act::Kill(_)
            | Act::Leave => {}
        }
    }
    guard.done(acts);
    let alone = gone && matches!(guard.watch(), Watch::MayRun(_));
    assert!(
        left || !alone || guard.deadline().is_some(),
        "it waits for ever"
    );
    left
}

/// Reads a packet as a word of an agent.
fn understood(packet: &[u8]) -> Option<Word> {
    let word = Word::decode(packet)?;
    let plain = word.encode();
    assert!(plain.len() <= packet.len(), "it grew");
    assert_eq!(Word::decode(&plain).as_ref(), Some(&word));
    for length in 0..plain.len() {
        assert_eq!(Word::decode(&plain[..length]), None, "{word:?} at {length}");
    }
    match &word {
        Word::SetUp(set_up) => checked(set_up),
        // Group 1, signalled as a group, is every process there is.
        Word::Group(_, group) => assert!(*group == 0 || *group > 1, "group {group}"),
        Word::Watch(Watch::MayRun(fence)) => fenced(*fence),
        Word::Watch(Watch::Down)
        | Word::LockContext(_)
        | Word::StopBegins
        | Word::KillService
        | Word::GivenUp => {}
    }
    Some(word)
}

fn checked(set_up: &SetUp) {
    let t = set_up.timing;
    let again = Timing::new(t.renewal(), t.failures(), t.confirmations(), t.drift_ppm());
    assert_eq!(again.ok(), Some(t));
    let texts = [&set_up.name, &set_up.key, &set_up.token, &set_up.stop];
    assert!(texts.iter().map(|text| text.len()).sum::<usize>() <= PACKET_MAX);
}

fn fenced(fence: Fence) {
    let never = Instant::from_boot(Duration::from_nanos(u64::MAX));
    assert!(fence.stop_until.is_none_or(|at| at < never));
}

/// Reads a packet as an answer of a guard; returns whether it is one.
fn answer(packet: &[u8]) -> bool {
    let Some(answer) = Answer::decode(packet) else {
        return false;
    };
    let plain = answer.encode();
    assert!(plain.len() <= packet.len(), "it grew");
    assert_eq!(Answer::decode(&plain).as_ref(), Some(&answer));
    for length in 0..plain.len() {
        // A guard of before an upgrade says nothing of a start.
        let older = matches!(answer, Answer::Ready(.., Some(_))) && length + 8 == plain.len();
        let cut = Answer::decode(&plain[..length]);
        assert!(cut.is_none() || older, "{answer:?} at {length}");
    }
    true
}
