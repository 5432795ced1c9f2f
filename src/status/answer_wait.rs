//! How long the answers of agents are waited for. Pure: the time is an argument.
//!
//! ```text
//!  request      known agents have answered        others      R
//!  ---+------------------+---------------------------+--------+--> time
//!     |<----- took ----->|                           |
//!     |<----------- 2 · took, at least 120 ms ------>|
//! ```
//!
//! Known agents have R to answer: an agent that needs longer loses its lock, too. Unknown agents
//! have twice the time of the slowest known answer, or of the read of the store; R if the command
//! would report a missing agent otherwise.
//!
//! Time in which this process did not run though it was due does not count: the agents of a host
//! that stood still had no time either.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::core::{AgentStatus, Instant};

/// R of agents of which no record tells R: the default one.
pub(super) const RENEWAL_UNKNOWN: Duration = Duration::from_secs(3);

/// The shortest time in which agents may answer, also with a shorter R: that of two requests.
const ANSWER_MIN: Duration = Duration::from_millis(120);

/// The time from the first request to the second, whose answer may be lost; it doubles each time,
/// since all agents of an account get each request.
const REQUEST_AGAIN: Duration = Duration::from_millis(60);

/// An agent that is known to be there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) key: String,
    /// The token of an agent that holds a lock, or the incarnation of one that has answered before.
    pub(super) name: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The agents of these keys are to be asked.
    Request(BTreeSet<String>),
    /// Answers are to be waited for, until then at the longest.
    Wait(Instant),
    /// All that were waited for have answered, or their time is over.
    End,
}

/// The wait for the answers of the agents of some keys.
pub(super) struct AnswerWait {
    /// The keys whose agents are asked.
    pub(super) keys: BTreeSet<String>,
    /// Known agents that have not answered.
    silent: BTreeSet<Known>,
    began: Instant,
    /// The longest time until the store or a known agent has answered.
    took: Duration,
    last: Instant,
    request_at: Instant,
    request_again: Duration,
    /// When this process is to look again, at the latest.
    due: Option<Instant>,
}

impl AnswerWait {
    /// Begins to wait for the agents of these keys, whose largest R is `renewal`. `read_took`: how
    /// long a read of their bucket has taken.
    pub(super) fn new(
        keys: BTreeSet<String>,
        known: BTreeSet<Known>,
        renewal: Duration,
        read_took: Duration,
        now: Instant,
    ) -> AnswerWait {
        let last = now.after(longest(renewal));
        let silent = known.into_iter().filter(|known| keys.contains(&known.key)).collect();
        AnswerWait {
            keys,
            silent,
            began: now,
            took: read_took,
            last,
            request_at: now,
            request_again: REQUEST_AGAIN,
            due: None,
        }
    }

    pub(super) fn note(&mut self, key: &str, agent: &AgentStatus, now: Instant) {
        let before = self.silent.len();
        let names = [&agent.token, &agent.incarnation];
        self.silent.retain(|known| known.key != key || !names.contains(&&known.name));
        if self.silent.len() < before {
            self.took = self.took.max(now.since(self.began));
        }
    }

    /// Returns what is to be done now. `lacking` returns the keys of which the command would say
    /// that an agent is missing.
    pub(super) fn next(
        &mut self,
        now: Instant,
        lacking: impl FnOnce() -> BTreeSet<String>,
    ) -> Step {
        let is_first = self.due.is_none();
        let late = now.since(self.due.unwrap_or(now));
        self.began = self.began.after(late);
        self.last = self.last.after(late);
        if now >= self.last {
            return Step::End;
        }
        let others = self.began.after((2 * self.took).max(ANSWER_MIN)).min(self.last);
        let (asked, until) = if !self.silent.is_empty() {
            (self.silent.iter().map(|known| known.key.clone()).collect(), self.last)
        } else if now < others {
            (self.keys.clone(), others)
        } else {
            (lacking(), self.last)
        };
        if asked.is_empty() {
            return Step::End;
        }
        if now < self.request_at {
            let until = until.min(self.request_at);
            self.due = Some(until);
            return Step::Wait(until);
        }
        self.due = Some(now);
        self.request_at = now.after(self.request_again);
        self.request_again *= 2;
        Step::Request(if is_first { self.keys.clone() } else { asked })
    }
}

/// Returns how long agents with this R are waited for at the longest.
pub(super) fn longest(renewal: Duration) -> Duration {
    renewal.max(ANSWER_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(1000) + Duration::from_millis(ms))
    }

    fn keys(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    fn known(key: &str, name: &str) -> Known {
        Known { key: key.to_owned(), name: name.to_owned() }
    }

    /// Two keys, and the holder h1 of the first.
    fn wait(read_took: Duration) -> AnswerWait {
        let known = [known("web", "h1")].into();
        AnswerWait::new(keys(&["db", "web"]), known, R, read_took, at(0))
    }

    /// Asks the agents where that is due; returns whether the wait is over.
    fn is_over(wait: &mut AnswerWait, ms: u64, lacking: &[&str]) -> bool {
        loop {
            match wait.next(at(ms), || keys(lacking)) {
                Step::Request(_) => {}
                Step::Wait(_) => return false,
                Step::End => return true,
            }
        }
    }

    /// Goes on until the end; returns when that was.
    fn end(wait: &mut AnswerWait, from: u64, lacking: &[&str]) -> u64 {
        (from..).find(|ms| is_over(wait, *ms, lacking)).expect("an end")
    }

    /// A known agent on a busy host answered after the time that was given, and a check flapped.
    #[test]
    fn a_known_agent_has_r_to_answer() {
        let mut wait = wait(Duration::ZERO);
        for ms in 0..2700 {
            assert!(!is_over(&mut wait, ms, &[]), "after {ms} ms");
        }
        wait.note("web", &AgentStatus::of_candidate("h1"), at(2700));
        assert_eq!(end(&mut wait, 2700, &[]), 3000, "others have no longer than R");
        assert_eq!(end(&mut self::wait(Duration::ZERO), 0, &[]), 3000, "it is silent");
    }

    #[test]
    fn others_have_twice_as_long_as_the_known_ones_or_the_store_have_needed() {
        for (read_took, answered, ends) in
            [(0, 1, 120), (0, 100, 200), (0, 1000, 2000), (90, 10, 180), (90, 100, 200)]
        {
            let mut wait = wait(Duration::from_millis(read_took));
            wait.note("web", &AgentStatus::of_candidate("h1"), at(answered));
            wait.note("web", &AgentStatus::of_candidate("h2"), at(answered + 50));
            assert_eq!(end(&mut wait, answered, &[]), ends, "{read_took} {answered}");
        }
        let nobody = BTreeSet::new();
        let mut wait = AnswerWait::new(keys(&["web"]), nobody, R, Duration::ZERO, at(0));
        assert_eq!(end(&mut wait, 0, &[]), 120, "nobody is known");
    }

    #[test]
    fn that_somebody_is_missing_is_known_after_r() {
        let mut wait = wait(Duration::ZERO);
        wait.note("web", &AgentStatus::of_candidate("h1"), at(5));
        for ms in 5..2700 {
            assert!(!is_over(&mut wait, ms, &["db"]), "after {ms} ms");
        }
        assert_eq!(wait.next(at(2700), BTreeSet::new), Step::End, "it was heard");
        assert_eq!(end(&mut wait, 2700, &["db"]), 3000);
    }

    /// A virtual machine was paused for a minute: nobody had answered meanwhile.
    #[test]
    fn time_in_which_the_host_stood_still_does_not_count() {
        let mut wait = wait(Duration::ZERO);
        assert_eq!(wait.next(at(0), BTreeSet::new), Step::Request(keys(&["db", "web"])));
        assert_eq!(wait.next(at(0), BTreeSet::new), Step::Wait(at(60)));
        assert_eq!(wait.next(at(60_000), BTreeSet::new), Step::Request(keys(&["web"])));
        assert_eq!(end(&mut wait, 60_000, &[]), 60_000 + 3000 - 60);
    }

    #[test]
    fn an_answer_of_another_is_not_the_one_that_is_waited_for() {
        let waited_for = [known("web", "h1"), known("web", "h2"), known("db", "h2")].into();
        let all = keys(&["db", "web"]);
        let mut wait = AnswerWait::new(all, waited_for, R, Duration::ZERO, at(0));
        for (key, token) in [("db", "h1"), ("web", "h3"), ("web", "h2"), ("web", "h1")] {
            wait.note(key, &AgentStatus::of_candidate(token), at(1));
        }
        assert_eq!(wait.silent, [known("db", "h2")].into());
        assert_eq!(end(&mut wait, 1, &[]), 3000);
    }

    /// Agents that have answered are not made to answer again.
    #[test]
    fn those_of_whom_somebody_is_missing_are_asked_again_less_and_less_often() {
        let mut wait = wait(Duration::ZERO);
        let mut asked = Vec::new();
        for ms in 0..430 {
            if ms == 70 {
                wait.note("web", &AgentStatus::of_candidate("h1"), at(ms));
            }
            while let Step::Request(of) = wait.next(at(ms), || keys(&["db"])) {
                asked.push((ms, of));
            }
        }
        let (all, web, db) = (keys(&["db", "web"]), keys(&["web"]), keys(&["db"]));
        assert_eq!(asked, [(0, all), (60, web), (180, db.clone()), (420, db)]);
        assert_eq!(wait.next(at(430), || keys(&["db"])), Step::Wait(at(900)));
    }

    #[test]
    fn with_a_short_r_there_is_time_for_two_requests() {
        let (known, r) = ([known("web", "h1")].into(), Duration::from_millis(10));
        let mut wait = AnswerWait::new(keys(&["web"]), known, r, Duration::ZERO, at(0));
        assert_eq!(end(&mut wait, 0, &[]), 120);
    }
}
