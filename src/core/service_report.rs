//! What the guard tells the operator. Only people read the texts: code and tests match on the
//! variants.

use std::fmt;
use std::time::Duration;

use crate::core::command::Outcome;
use crate::core::level::Level::{self, Error, Info, Warn};
use crate::core::protocol::Stake;
use crate::core::record::Revision;
use crate::core::report::Report;
use crate::core::time::Ms;

/// Why a stop or a last resort does not count: start could still do its work after it.
const BESIDE_START: &str = "start had not ended when it began";

/// A line of the guard's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceReport {
    /// The agent has gone; the lock is valid for so long.
    AgentGone(Duration),
    /// The lock has run out.
    LockOver {
        /// The agent has gone.
        agent_gone: bool,
    },
    /// Start has succeeded, in this term.
    Started(Revision),
    /// Start has failed; how it ended.
    StartFailed(Outcome),
    /// A run of stop does not count.
    StopFailed {
        /// How it ended.
        outcome: Outcome,
        /// It was killed because the start has ended that was alive when it began.
        cut_short: bool,
        /// How long it took.
        took: Duration,
        /// What is at stake while stop is run again; `None` when the last resort is run.
        stake: Option<Stake>,
    },
    /// The last resort is run.
    LastResort,
    /// The last resort has ended.
    LastResortEnded {
        /// How it ended.
        outcome: Outcome,
        /// No start was alive when it began.
        counts: bool,
    },
    /// The lock has run out, and the service is not known to be down.
    MayStillRun,
    /// The service is down, so long before it had to be.
    DownInTime(Duration),
    /// The service is down, and had to be before.
    DownLate,
    /// The service is down at last; no lock was at stake.
    Down,
}

impl ServiceReport {
    /// Returns how much it matters.
    pub fn level(&self) -> Level {
        self.line().0
    }

    fn line(&self) -> (Level, String) {
        match self {
            Self::AgentGone(left) => {
                let left = Ms(*left);
                let text = "the agent is gone; unless it is back within";
                (Warn, format!("{text} {left}, the guard stops the service"))
            }
            Self::LockOver { agent_gone } => {
                let gone = if *agent_gone { " and the agent is gone" } else { "" };
                (Error, format!("the lock has run out{gone}: the guard stops the service"))
            }
            Self::Started(term) => (Info, format!("the service runs here, term {term}")),
            Self::StartFailed(outcome) => {
                let why = outcome.why();
                (Warn, format!("start failed: {why}; asserted again in every stroke"))
            }
            Self::StopFailed { outcome, cut_short, took, stake } => {
                let why = match outcome {
                    Outcome::Overran if !cut_short => {
                        format!("it did not end within {} and was killed", Ms(*took))
                    }
                    Outcome::Succeeded | Outcome::Overran => BESIDE_START.to_owned(),
                    Outcome::Failed(why) => why.clone(),
                };
                let next = match stake {
                    Some(Stake::Lock) => "; the lock is not released",
                    Some(Stake::Assurance) => "; it is run until it succeeds",
                    None => "",
                };
                (Error, format!("stop failed: {why}{next}"))
            }
            Self::LastResort => (Error, "running the last resort".to_owned()),
            Self::LastResortEnded { outcome: Outcome::Succeeded, counts: true } => {
                (Warn, "the last resort succeeded".to_owned())
            }
            Self::LastResortEnded { outcome: Outcome::Succeeded, counts: false } => {
                (Error, format!("the last resort does not count: {BESIDE_START}"))
            }
            Self::LastResortEnded { outcome, .. } => {
                (Error, format!("the last resort failed: {}", outcome.why()))
            }
            Self::MayStillRun => (Error, Report::MayStillRun.to_string()),
            Self::DownInTime(left) => {
                (Info, format!("the service is down, {} before it had to be", Ms(*left)))
            }
            Self::DownLate => (Warn, "the service is down, too late".to_owned()),
            Self::Down => (Info, "the service is down".to_owned()),
        }
    }
}

impl fmt::Display for ServiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_texts(reports: &[(ServiceReport, Level, &str)]) {
        for (report, level, text) in reports {
            assert_eq!((report.level(), report.to_string().as_str()), (*level, *text));
        }
    }

    fn failed() -> Outcome {
        Outcome::Failed("exit status 1".to_owned())
    }

    #[test]
    fn level_and_text_of_what_becomes_of_grant_start_and_service() {
        let ms = Duration::from_millis;
        let over = |agent_gone| ServiceReport::LockOver { agent_gone };
        let gone = "the agent is gone; unless it is back within 1.385 s, the guard stops the \
                    service";
        let start_failed = "start failed: it did not end in time and was killed; asserted again \
                            in every stroke";
        let in_time = "the service is down, 355 ms before it had to be";
        assert_texts(&[
            (ServiceReport::AgentGone(ms(1385)), Warn, gone),
            (over(false), Error, "the lock has run out: the guard stops the service"),
            (
                over(true),
                Error,
                "the lock has run out and the agent is gone: the guard stops the service",
            ),
            (ServiceReport::Started(Revision(8)), Info, "the service runs here, term 8"),
            (ServiceReport::StartFailed(Outcome::Overran), Warn, start_failed),
            (ServiceReport::MayStillRun, Error, &Report::MayStillRun.to_string()),
            (ServiceReport::DownInTime(ms(355)), Info, in_time),
            (ServiceReport::DownLate, Warn, "the service is down, too late"),
            (ServiceReport::Down, Info, "the service is down"),
        ]);
    }

    #[test]
    fn level_and_text_of_stops_and_last_resorts_that_ended() {
        let stop = |outcome, cut_short, stake, text| {
            let took = Duration::from_millis(470);
            (ServiceReport::StopFailed { outcome, cut_short, took, stake }, Error, text)
        };
        let resort = |outcome, counts| ServiceReport::LastResortEnded { outcome, counts };
        let beside = "the last resort does not count: start had not ended when it began";
        assert_texts(&[
            stop(
                failed(),
                false,
                Some(Stake::Lock),
                "stop failed: exit status 1; the lock is not released",
            ),
            stop(
                Outcome::Succeeded,
                false,
                Some(Stake::Assurance),
                "stop failed: start had not ended when it began; it is run until it succeeds",
            ),
            stop(Outcome::Overran, true, None, "stop failed: start had not ended when it began"),
            stop(
                Outcome::Overran,
                false,
                None,
                "stop failed: it did not end within 470 ms and was killed",
            ),
            (ServiceReport::LastResort, Error, "running the last resort"),
            (resort(Outcome::Succeeded, true), Warn, "the last resort succeeded"),
            (resort(Outcome::Succeeded, false), Error, beside),
            (resort(failed(), true), Error, "the last resort failed: exit status 1"),
        ]);
    }
}
