//! Which agents a command waits for, over a bucket whose agents answer late.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::model::KeyState;
use super::*;
use crate::core::{
    AgentStatus, BucketId, Incarnation, Lease, Priority, Record, RecordState, Revision, Written,
};
use crate::store::lock_key::to_content;
use crate::store::{
    AgentAnswer, AgentQuestion, BucketInfo, Content, Expected, Hint, Listing, OpenedBucket,
    Opening, StoreResult,
};
use crate::sys::Alarm;

const KEY: &str = "web";

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// An agent of the key, by its token, and the first request that it answers, as all after that.
type Late = (&'static str, usize);

/// A bucket with one record, and agents that answer.
struct Scripted {
    record: Record,
    agents: Vec<Late>,
    /// The number of the last question, and how often that was asked.
    number: String,
    requests: usize,
    answers: VecDeque<Hint>,
    /// The deadline of the last wait that was in vain.
    waited_until: Option<Instant>,
}

impl Scripted {
    /// A lock that h1 holds, with this R; agents of putex 0.2.0 have none.
    fn held(renewal: Option<Duration>, agents: &[Late]) -> Scripted {
        let lease = renewal.map(|renewal| Lease {
            incarnation: Incarnation(1),
            nonce: 1,
            host: "h1".to_owned(),
            boot: String::new(),
            renewal,
            failures: 3,
            confirmations: 1,
            grace: renewal,
            term: Some(Revision(4)),
            state: RecordState::Active,
            priority: Priority::FIRST,
            released_to: None,
        });
        let record = Record { token: "h1".to_owned(), lease };
        let (number, agents, answers) = (String::new(), agents.to_vec(), VecDeque::new());
        Scripted { record, agents, number, requests: 0, answers, waited_until: None }
    }

    /// Reads, and returns the tokens of the agents that were heard.
    fn read(&mut self, reader: &mut Reader<'_>, needed: &[&str]) -> Vec<String> {
        let is_enough =
            |status: &KeyStatus| needed.iter().all(|token| status.agent(token).is_some());
        let status = reader.read_agents(&KEY.to_owned(), self, is_enough).expect("a bucket");
        let agents = status.map_or_else(Vec::new, |status| status.agents);
        agents.into_iter().map(|agent| agent.token).collect()
    }
}

impl Bucket for Scripted {
    fn open(&mut self, _how: Opening<'_>, _by: Instant) -> StoreResult<Option<OpenedBucket>> {
        let remarks = Vec::new();
        let id = BucketId { epoch: "e".to_owned(), created: String::new() };
        let bucket = BucketInfo {
            id,
            last: Revision(9),
            age: None,
            may_be_lost: true,
            replicas: 1,
            remarks,
            retires: Ok(()),
        };
        Ok(Some((bucket, Vec::new())))
    }

    fn get(&mut self, _key: &str, _deadline: Instant) -> StoreResult<Option<Entry>> {
        Ok(None)
    }

    fn list(&mut self, _selection: Selection<'_>, _deadline: Instant) -> StoreResult<Listing> {
        let content = to_content(&self.record);
        let (revision, age) = (Revision(9), Some(Duration::ZERO));
        let entry = Entry { key: KEY.to_owned(), revision, content, age };
        Ok(Listing { entries: vec![entry], at: None, last: revision })
    }

    fn write(
        &mut self,
        _key: &str,
        _expected: Expected<'_>,
        _content: &Content,
        _lasts: Option<Duration>,
        _deadline: Instant,
    ) -> Written {
        unreachable!("nothing is written")
    }

    fn subscribe(&mut self, _keys: &[&str]) -> StoreResult<()> {
        unreachable!("nothing is followed")
    }

    fn ask_agents(&mut self, question: &AgentQuestion) {
        self.requests = if question.number == self.number { self.requests + 1 } else { 1 };
        self.number.clone_from(&question.number);
        assert_eq!(question.keys, [KEY.to_owned()].into());
        for (token, _) in self.agents.iter().filter(|(_, first)| self.requests >= *first) {
            let answer =
                AgentAnswer { key: KEY.to_owned(), status: AgentStatus::of_candidate(token) };
            self.answers.push_back(Hint::Answered(Box::new(answer)));
        }
    }

    fn wait(&mut self, _wake: BorrowedFd<'_>, deadline: Option<Instant>) -> Hint {
        self.answers.pop_front().unwrap_or_else(|| {
            Alarm::new().and_then(|alarm| alarm.wait([], deadline)).expect("it waits");
            self.waited_until = deadline;
            Hint::Elapsed
        })
    }
}

fn source() -> Source {
    Source { bucket: "putex".to_owned(), location: None, base: "/".into() }
}

/// The holder was called silent after two requests.
#[test]
fn a_holder_that_answers_late_is_waited_for() {
    let (source, mut bucket) = (source(), Scripted::held(Some(LONG), &[("h1", 5)]));
    let mut reader = Reader::new(&source);
    assert_eq!(bucket.read(&mut reader, &[]), ["h1"]);
    assert_eq!(reader.longest_wait(), LONG);
}

#[test]
fn an_agent_that_has_answered_before_is_waited_for() {
    let (source, mut bucket) = (source(), Scripted::held(Some(LONG), &[("h1", 1), ("h2", 1)]));
    let mut reader = Reader::new(&source);
    assert_eq!(bucket.read(&mut reader, &[]), ["h1", "h2"]);
    bucket.agents[1].1 = 5;
    assert_eq!(bucket.read(&mut reader, &[]), ["h1", "h2"]);
}

#[test]
fn an_agent_that_nobody_knows_is_waited_for_where_it_would_be_missed() {
    let (source, mut bucket) = (source(), Scripted::held(Some(LONG), &[("h1", 1), ("h2", 5)]));
    let mut reader = Reader::new(&source);
    assert_eq!(bucket.read(&mut reader, &["h2"]), ["h1", "h2"]);
}

#[test]
fn a_holder_is_silent_when_it_has_not_answered_for_r() {
    let renewal = Duration::from_millis(400);
    let (source, mut bucket) = (source(), Scripted::held(Some(renewal), &[("h2", 1)]));
    let mut reader = Reader::new(&source);
    let began = sys::now();
    assert_eq!(bucket.read(&mut reader, &[]), ["h2"]);
    assert!(sys::now().since(began) >= renewal);
    // The holder has never answered, and holds the lock still.
    assert_eq!(bucket.read(&mut reader, &[]), ["h2"]);
    assert!(sys::now().since(began) >= 2 * renewal);
}

/// An agent that was restarted answers as another.
#[test]
fn an_agent_that_has_gone_is_waited_for_once() {
    let renewal = Duration::from_millis(400);
    let (source, mut bucket) = (source(), Scripted::held(Some(renewal), &[("h1", 1), ("h2", 1)]));
    let mut reader = Reader::new(&source);
    assert_eq!(bucket.read(&mut reader, &[]), ["h1", "h2"]);
    bucket.agents.pop();
    let began = sys::now();
    assert_eq!(bucket.read(&mut reader, &[]), ["h1"]);
    assert!(sys::now().since(began) >= renewal);
    bucket.record = Scripted::held(Some(LONG), &[]).record;
    assert_eq!(bucket.read(&mut reader, &[]), ["h1"]);
    let waited_until = bucket.waited_until.expect("it waits for others");
    assert!(waited_until < began.after(LONG), "nobody is missed");
}

/// The answers until then would be taken for all.
#[test]
fn a_bucket_that_is_lost_meanwhile_is_an_error() {
    let (source, mut bucket) = (source(), Scripted::held(Some(LONG), &[]));
    bucket.answers.push_back(Hint::Gone("the server has gone".to_owned()));
    let read = Reader::new(&source).read_agents(&KEY.to_owned(), &mut bucket, |_| true);
    assert_eq!(read.expect_err("it is lost").exit, Exit::Unreachable);
}

/// A monitor that pages when nobody has the name was silent while requests waited for it.
#[test]
fn a_name_with_requests_alone_is_neither_held_nor_free() {
    let waiting = KeyStatus::of_agents(&[("h1", HolderState::Waiting)], Vec::new());
    let waiters = waiting.holders;
    let all = [KeyStatus { state: KeyState::Held, holders: Vec::new(), waiters, ..waiting }];
    for question in [Question::Held, Question::Free, Question::Holder("h1".to_owned())] {
        assert!(!question.answer(all.first(), &all), "{question:?}");
    }
}

/// Its name was printed again as soon as another command waited.
#[test]
fn a_lock_that_has_run_out_is_held_by_nobody() {
    let of = KeyStatus::of_agents(&[("h1", HolderState::Overdue)], Vec::new());
    for (kind, is_held) in [(Kind::Agent, true), (Kind::Lock, false), (Kind::Lease, false)] {
        let all = [KeyStatus { kind, state: KeyState::Held, ..of.clone() }];
        for question in [Question::Held, Question::Holder("h1".to_owned())] {
            assert_eq!(question.answer(all.first(), &all), is_held, "{kind:?} {question:?}");
        }
        assert!(!Question::Free.answer(all.first(), &all));
    }
}

/// A lock above the key of agents was held, and the key was free.
#[test]
fn a_key_of_agents_is_free_while_no_lock_of_its_name_is_held() {
    let free = KeyStatus { state: KeyState::Free, ..KeyStatus::of_agents(&[], Vec::new()) };
    let lock = KeyStatus { kind: Kind::Lock, state: KeyState::Held, ..free.clone() };
    assert!(Question::Free.answer(Some(&free), std::slice::from_ref(&free)));
    assert!(!Question::Free.answer(Some(&free), &[free.clone(), lock]));
}

/// `putex status -e free jobs` said yes while jobs/mail was held, and `putex status jobs` did not
/// show what blocks it.
#[test]
fn a_name_is_free_while_no_lock_above_or_below_it_is_held() {
    let held = KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new());
    let held = KeyStatus { key: "jobs/mail".to_owned(), kind: Kind::Lock, ..held };
    for (name, is_free) in [
        ("jobs", false),
        ("jobs/mail", false),
        ("jobs/mail/x", false),
        ("jobs/print", true),
        ("job", true),
    ] {
        let all: Vec<_> = [&held].into_iter().filter(|it| is_about(it, name)).cloned().collect();
        let of_name = all.iter().find(|it| it.key == name);
        assert_eq!(Question::Free.answer(of_name, &all), is_free, "{name}");
        assert_eq!(Question::Held.answer(of_name, &all), name == "jobs/mail", "{name}");
    }
}
