//! What is known of the guard, and what it was told.

use std::time::Duration;

use super::facts::Facts;
use crate::core::command::LockContext;
use crate::core::event::{Effect, Level, Sentry};
use crate::core::guard::Watch;
use crate::core::time::{Instant, Ms};

/// Shortest time in which a guard has to be there and to answer: a loaded host
/// needs it to start a process.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// What is known of the guard.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    stand: Stand,
    /// What the present guard was told last.
    told: Option<(Watch, LockContext)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// There is none, since then.
    Absent(Instant),
    /// It watches over a service that is down.
    Ready,
    /// It was told that the service may run and has not answered since then.
    Asked(Instant),
    /// It is prepared to end the service.
    Armed,
    /// It cannot do what was required of it.
    Unfit,
}

impl Guarded {
    pub(super) fn new(now: Instant) -> Guarded {
        Guarded {
            stand: Stand::Absent(now),
            told: None,
        }
    }

    /// Whether an agent may become a holder: without a guard it may not.
    pub(super) fn able(&self) -> bool {
        match self.stand {
            Stand::Ready | Stand::Asked(_) | Stand::Armed => true,
            Stand::Absent(_) | Stand::Unfit => false,
        }
    }

    /// Whether the service may be started.
    pub(super) fn armed(&self) -> bool {
        self.stand == Stand::Armed
    }
}

impl Facts {
    /// Takes in what the guard says, or what became of it.
    pub(super) fn note_guard(&mut self, sentry: &Sentry, now: Instant) {
        match sentry {
            Sentry::Ready => {
                self.guard.stand = Stand::Ready;
                self.guard.told = None;
            }
            Sentry::Armed => {
                if let Stand::Asked(_) = self.guard.stand {
                    self.guard.stand = Stand::Armed;
                }
            }
            Sentry::Unfit(why) => {
                if self.guard.stand != Stand::Unfit {
                    self.say(Level::Error, format!("not a candidate: {why}"));
                }
                self.guard.stand = Stand::Unfit;
            }
            Sentry::Lost(why) => {
                if self.guard.able() {
                    self.say(Level::Warn, format!("the guard is gone: {why}"));
                } else {
                    self.say(Level::Error, format!("there is no guard: {why}"));
                }
                if !matches!(self.guard.stand, Stand::Absent(_)) {
                    self.guard.stand = Stand::Absent(now);
                }
                self.guard.told = None;
            }
        }
    }

    /// Tells the guard, at the end of a turn, what it does not know yet; also one that
    /// is not fit, and the next one where there is none. Whatever else the turn wants
    /// is done after that.
    pub(super) fn tell_guard(&mut self, watch: Watch, under: LockContext, now: Instant) {
        let news = (watch, under);
        if self.guard.told.as_ref() == Some(&news) {
            return;
        }
        match (watch, self.guard.stand) {
            (Watch::Down, Stand::Asked(_) | Stand::Armed) => self.guard.stand = Stand::Ready,
            (Watch::MayRun(_), Stand::Ready) => self.guard.stand = Stand::Asked(now),
            (Watch::Down, Stand::Ready)
            | (Watch::MayRun(_), Stand::Asked(_) | Stand::Armed)
            | (_, Stand::Absent(_) | Stand::Unfit) => {}
        }
        self.want_first(Effect::Guard(news.0, news.1.clone()));
        self.guard.told = Some(news);
    }

    /// Returns when something is to be done because no guard watches the service;
    /// `None` while one does.
    pub(super) fn unguarded_until(&self) -> Option<Instant> {
        match self.guard.stand {
            Stand::Absent(since) | Stand::Asked(since) => Some(since.after(self.patience())),
            Stand::Ready | Stand::Armed => None,
            Stand::Unfit => Some(Instant::from_boot(Duration::ZERO)),
        }
    }

    /// Says why the service has to be stopped for want of a guard. One that does not
    /// answer is replaced first.
    pub(super) fn unguarded(&mut self, now: Instant) -> Option<String> {
        self.unguarded_until().filter(|until| now >= *until)?;
        let patience = Ms(self.patience());
        match self.guard.stand {
            Stand::Unfit => Some("the guard cannot do what is required of it".to_owned()),
            Stand::Absent(_) => Some(format!("no guard within {patience}")),
            Stand::Asked(_) => {
                let text = format!("the guard did not answer within {patience}");
                self.say(Level::Error, text);
                self.want(Effect::ReplaceGuard);
                self.guard.stand = Stand::Absent(now);
                self.guard.told = None;
                None
            }
            Stand::Ready | Stand::Armed => None,
        }
    }

    fn patience(&self) -> Duration {
        self.config.timing.renewal().max(ANSWER_MIN)
    }
}
