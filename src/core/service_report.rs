//! The reports of the guard to the operator. Only people read the texts: code and tests match on
//! the variants. The comment of a variant is its text: `displaydoc` makes it one.

use displaydoc::Display;
use log::Level::{self, Error, Info, Warn};

use crate::core::command::Outcome;
use crate::core::record::Revision;
use crate::core::time::Ms;

/// A line of the guard's log.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum ServiceReport {
    /// the agent is gone; unless it is back within {0}, the guard stops the service
    AgentGone(Ms),
    /// the guard before this one is dead: the service may have run until now
    ///
    /// A guard of this boot had started it, and has not noted that it was down.
    GuardBeforeDead,
    /// the lock has run out: the guard stops the service
    LockOver,
    /// the lock has run out and the agent is gone: the guard stops the service
    LockOverWithoutAgent,
    /// the agent has another R, F, C or drift than before: the guard stops the service
    OtherTimes,
    /// the service runs here, term {0}
    Started(Revision),
    /// start failed: {0}; it is run again every R
    StartFailed(Outcome),
    /// stop failed: {0}
    ///
    /// The last resort follows.
    StopFailed(StopFailure),
    /// stop failed: {0}; the lock is not released
    StopFailedUnderLock(StopFailure),
    /// stop failed: {0}; it is run again
    StopFailedWithoutLock(StopFailure),
    /// running the last resort
    LastResort,
    /// the last resort succeeded
    LastResortSucceeded,
    /// the last resort does not count: start had not ended when it began
    LastResortBesideStart,
    /// the last resort failed: {0}
    LastResortFailed(Outcome),
    #[displaydoc(
        "THE SERVICE MAY STILL RUN although its lock has run out: another host may start it now; \
         stop it by hand"
    )]
    /// The lock has run out, and the service is not known to be down.
    MayStillRun,
    /// the service is down, {0} before it had to be
    DownInTime(Ms),
    /// the service is down, too late
    DownLate,
    /// the service is down
    ///
    /// No lock was at stake.
    Down,
}

/// Why a run of stop does not count.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
pub enum StopFailure {
    /// it did not end within {0} and was killed
    Overran(Ms),
    /// start had not ended when it began
    BesideStart,
    /// {0}
    Failed(String),
}

impl ServiceReport {
    /// Returns the level of the line.
    pub fn level(&self) -> Level {
        match self {
            Self::Started(_) | Self::DownInTime(_) | Self::Down => Info,
            Self::AgentGone(_) | Self::StartFailed(_) | Self::GuardBeforeDead => Warn,
            Self::OtherTimes => Warn,
            Self::LastResortSucceeded | Self::DownLate => Warn,
            Self::LockOver | Self::LockOverWithoutAgent | Self::StopFailed(_) => Error,
            Self::StopFailedUnderLock(_) | Self::StopFailedWithoutLock(_) => Error,
            Self::LastResort | Self::LastResortBesideStart | Self::LastResortFailed(_) => Error,
            Self::MayStillRun => Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn assert_texts(reports: &[(ServiceReport, Level, &str)]) {
        for (report, level, text) in reports {
            assert_eq!((report.level(), report.to_string().as_str()), (*level, *text));
        }
    }

    #[test]
    fn level_and_text_of_what_becomes_of_grant_start_and_service() {
        let ms = |ms| Ms(Duration::from_millis(ms));
        let gone = "the agent is gone; unless it is back within 1.385 s, the guard stops the \
                    service";
        let over = "the lock has run out and the agent is gone: the guard stops the service";
        let dead = "the guard before this one is dead: the service may have run until now";
        let start_failed = "start failed: it did not end in time and was killed; it is run again \
                            every R";
        let in_time = "the service is down, 355 ms before it had to be";
        let may_run = "THE SERVICE MAY STILL RUN although its lock has run out: another host may \
                       start it now; stop it by hand";
        assert_texts(&[
            (ServiceReport::AgentGone(ms(1385)), Warn, gone),
            (ServiceReport::GuardBeforeDead, Warn, dead),
            (ServiceReport::LockOver, Error, "the lock has run out: the guard stops the service"),
            (ServiceReport::LockOverWithoutAgent, Error, over),
            (ServiceReport::Started(Revision(8)), Info, "the service runs here, term 8"),
            (ServiceReport::StartFailed(Outcome::Overran), Warn, start_failed),
            (ServiceReport::MayStillRun, Error, may_run),
            (ServiceReport::DownInTime(ms(355)), Info, in_time),
            (ServiceReport::DownLate, Warn, "the service is down, too late"),
            (ServiceReport::Down, Info, "the service is down"),
        ]);
    }

    #[test]
    fn level_and_text_of_stops_and_last_resorts_that_ended() {
        let took = Ms(Duration::from_millis(470));
        let exit = "exit status 1".to_owned();
        let beside = "the last resort does not count: start had not ended when it began";
        assert_texts(&[
            (
                ServiceReport::StopFailedUnderLock(StopFailure::Failed(exit.clone())),
                Error,
                "stop failed: exit status 1; the lock is not released",
            ),
            (
                ServiceReport::StopFailedWithoutLock(StopFailure::BesideStart),
                Error,
                "stop failed: start had not ended when it began; it is run again",
            ),
            (
                ServiceReport::StopFailed(StopFailure::Overran(took)),
                Error,
                "stop failed: it did not end within 470 ms and was killed",
            ),
            (ServiceReport::LastResort, Error, "running the last resort"),
            (ServiceReport::LastResortSucceeded, Warn, "the last resort succeeded"),
            (ServiceReport::LastResortBesideStart, Error, beside),
            (
                ServiceReport::LastResortFailed(Outcome::Failed(exit)),
                Error,
                "the last resort failed: exit status 1",
            ),
        ]);
    }
}
