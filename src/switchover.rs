//! `putex switchover`: the lock of one agent goes to another, as an operator wants it.
//!
//! The request is an entry of the bucket that ends by itself. The holder that reads it stops the
//! service and releases its lock to the other agent. The outcome of the request is read from the
//! lock itself, never guessed: it is done, refused before anything was written, withdrawn, or the
//! lock has gone elsewhere.

mod choose;
mod judge;

use std::os::fd::AsFd as _;
use std::time::Duration;

use log::Level;

use self::choose::{Chosen, Unchosen, choose};
use self::judge::{
    Release, Renewals, Seen, StartSeen, judge, judge_start, service_at, where_it_runs,
};
use crate::core::agent_status::seconds;
use crate::core::timing::lengthened;
use crate::core::{DRIFT_PPM_DEFAULT, Instant, Ms, REACH_MAX, Revision, ServiceStatus, Switchover};
use crate::exit::{Ended, Exit, Refusal};
use crate::operation::{BY_SIGNAL, BY_SIGNAL_BEFORE, Operation, write};
use crate::status::{ANSWER_MAX, KeyStatus};
use crate::store::lock_key::to_key_state;
use crate::store::switchover as wanted;
use crate::store::{AgentQuestion, Content, Entry, Expected, Hint, StoreResult, open_existing};
use crate::sys::signals::Endings;
use crate::sys::{self, Alarm, PollFlags};

/// How often the lock is looked at, if C·R is not short. The time without a service is too long by
/// so much at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often the agents are told again that there is a request.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The request of a user to move a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key of the agents.
    pub key: String,
    /// The token of the holder; `None` for the only one.
    pub from: Option<String>,
    /// The token of the agent that is to have the lock; `None` for the best candidate.
    pub to: Option<String>,
    /// For how long the holder may begin.
    pub wait: Duration,
    /// The requester, for people.
    pub by: String,
    /// The lowest level that is logged.
    pub level: u64,
}

/// The text to print after success, or why the switchover has not succeeded.
type Followed = Result<String, String>;

/// Does what is asked for. `signals` has those that end this command: the request is withdrawn
/// at the first, and its result is waited for; at the second it is not.
///
/// # Errors
///
/// Why it is not known what has become of it, or why nothing was asked for.
pub fn run(
    request: &Request,
    operation: Operation<'_>,
    signals: Endings,
) -> Result<Ended, Refusal> {
    let chosen_at = sys::now();
    let mut process = Process { request, operation, signals, chosen_at, written: None };
    match process.choose()? {
        Ok(chosen) => process.carry_out(&chosen),
        Err(Unchosen::Done(text)) => {
            process.operation.tell(Level::Warn, &text);
            Ok((String::new(), 0))
        }
        Err(Unchosen::Refused(why) | Unchosen::Lacking(why)) => process.operation.refuse(&why),
    }
}

struct Process<'a> {
    request: &'a Request,
    operation: Operation<'a>,
    signals: Endings,
    /// When the read was begun by which the holder was chosen.
    chosen_at: Instant,
    /// The revision of the request that is written, and is not withdrawn.
    written: Option<Revision>,
}

impl Process<'_> {
    /// Chooses the holder and the agent that is to have its lock. Nothing is refused before all
    /// agents have had the time to answer: a record or a health check may be a moment old.
    fn choose(&mut self) -> Result<Result<Chosen, Unchosen>, Refusal> {
        let request = self.request;
        let is_enough = |status: &KeyStatus| {
            !matches!(choose(request, Some(status)), Err(Unchosen::Lacking(_)))
        };
        let Process { operation, signals, chosen_at, .. } = self;
        operation.read_until(Duration::ZERO, is_enough, |_, heard| {
            *chosen_at = heard.read_at;
            if signals.read() {
                return Ok(Some(Err(Unchosen::Refused(vec![BY_SIGNAL_BEFORE.to_owned()]))));
            }
            Ok(match choose(request, heard.status?.as_ref()) {
                Err(Unchosen::Refused(_) | Unchosen::Lacking(_)) if !heard.is_last => None,
                chosen => Some(chosen),
            })
        })
    }

    /// Writes the request, and waits for what becomes of it.
    fn carry_out(&mut self, chosen: &Chosen) -> Result<Ended, Refusal> {
        let Chosen { seat, term, from, to, .. } = chosen;
        let number = sys::random().map_err(Refusal::system("no random numbers: "))? as u64;
        let (by, lasts) = (self.request.by.clone(), self.request.wait);
        let (from, to) = (from.clone(), to.clone());
        let own = Switchover { seat: *seat, term: *term, from, to, lasts, by, number };
        let asked_at = sys::now();
        match self.write(&own)? {
            Ok(at) => self.written = Some(at),
            Err(other) => return self.operation.refuse(&[other]),
        }
        // The request was written earlier: nobody begins to follow it after this instant.
        let until = sys::now().after(lengthened(lasts, DRIFT_PPM_DEFAULT));
        let Chosen { from, to, .. } = chosen;
        let text = format!(
            "{from} is to give it to {to}; the request ends by itself after {}, or by Control-C",
            Ms(lasts)
        );
        self.operation.tell(Level::Info, &text);
        let end = self.follow(chosen, asked_at, until);
        if let Some(at) = self.written.take() {
            // Best effort: it ends by itself.
            let key = wanted::key_of(&self.request.key, *seat);
            let (expected, tombstone) = (Expected::Key(at), Content::tombstone());
            let by = sys::now().after(ANSWER_MAX);
            self.operation.bucket.write(&key, expected, &tombstone, None, by);
        }
        match end? {
            Ok(text) => Ok((text, 0)),
            Err(why) => {
                let place = match self.operation.read(|_| true) {
                    Ok(status) => where_it_runs(&status.map_or_else(Vec::new, |it| it.agents)),
                    Err(error) => format!("where it runs is not known: {}", error.text),
                };
                Ok(self.operation.lacks(&[why, place]))
            }
        }
    }

    /// Writes the request; returns its revision, or why there is another.
    fn write(&mut self, own: &Switchover) -> Result<Result<Revision, String>, Refusal> {
        let bucket = &mut *self.operation.bucket;
        let key = wanted::key_of(&self.request.key, own.seat);
        let may = "the request may be written";
        let written = write(bucket, &key, may, REACH_MAX, |found, is_replaced| {
            match found.and_then(wanted::standing) {
                Some((Switchover { term, to, by, .. }, left)) if term == own.term => {
                    Err(Ok(format!("{by} is about to move it to {to}, for {} still", Ms(left))))
                }
                Some(_) | None if is_replaced => {
                    let why = "the request may have been written; others have replaced it since";
                    Err(Err(Refusal::new(Exit::Unreachable, why)))
                }
                Some(_) | None => Ok(wanted::to_content(own)),
            }
        })?;
        match written {
            Ok(at) => Ok(Ok(at)),
            Err(Ok(other)) => Ok(Err(other)),
            Err(Err(unknown)) => Err(unknown),
        }
    }

    /// Follows the lock until it is known what has become of the request, which nobody begins to
    /// follow before `asked_at`, after `until`, or after it is withdrawn. Returns what is printed,
    /// or why it has not succeeded.
    fn follow(
        &mut self,
        chosen: &Chosen,
        asked_at: Instant,
        mut until: Instant,
    ) -> Result<Followed, Refusal> {
        let Chosen { seat, term, from, to, timing } = chosen;
        let no_wait = Refusal::system("cannot wait: ");
        let alarm = Alarm::new().map_err(&no_wait)?;
        let key = seat.key(&self.request.key);
        let takeover = timing.takeover_wait(timing.lock_time()) + timing.confirmation();
        let (mut renewals, mut told, mut told_at) = (Renewals::default(), None, None);
        let mut release = Release::new(self.chosen_at);
        loop {
            let now = sys::now();
            // The stop of the old service, the T of the other agent, and those who come after it.
            let last = until.after(takeover * 3);
            let seen = self.read_lock(&key).map(|entry| judge(&to_key_state(entry), *term, to));
            let ended = match &seen {
                Ok(Seen::Done(new)) => {
                    let is_proved = release.is_proved(sys::now(), *timing);
                    let still_runs = if is_proved { None } else { self.still_runs(chosen)? };
                    if still_runs.is_none() {
                        return self.follow_start(chosen, *new, asked_at);
                    }
                    still_runs
                }
                Ok(Seen::Elsewhere(token)) => Some(format!("{token} has it, not {to}")),
                Ok(Seen::Held(revision)) if renewals.show(*revision, until, now) => {
                    Some(format!("withdrawn: {from} has not begun to give it, and keeps it"))
                }
                Ok(seen) if now >= last => Some(format!("given up: {}", waiting(seen, chosen))),
                Err(error) if now >= last => return Err(error.clone().into()),
                Ok(_) | Err(_) => None,
            };
            if let Some(why) = ended {
                return Ok(Err(why));
            }
            if self.signals.read() {
                self.withdraw(chosen)?;
                until = until.min(sys::now());
            }
            if let Ok(seen) = &seen {
                release.note(seen, now);
                let text = waiting(seen, chosen);
                if told.as_ref() != Some(&text) {
                    self.operation.tell(Level::Info, &text);
                    told = Some(text);
                }
            }
            if told_at.is_none_or(|told| now.since(told) >= TELL_EVERY) {
                told_at = Some(now);
                self.have_agents_look()?;
            }
            let next = sys::now().after(LOOK_EVERY.min(timing.confirmation() / 4));
            if let Hint::Gone(_) = self.operation.bucket.wait(self.signals.as_fd(), Some(next)) {
                let signals = (self.signals.as_fd(), PollFlags::IN);
                alarm.wait([signals], Some(next)).map_err(&no_wait)?;
            }
        }
    }

    /// Withdraws the request, by a signal. The holder may have begun to follow it: what it does
    /// next shows that.
    ///
    /// # Errors
    ///
    /// When it is not known that the request is withdrawn; or when it is already, and what has
    /// become of it is not waited for any more.
    fn withdraw(&mut self, Chosen { seat, from, .. }: &Chosen) -> Result<(), Refusal> {
        let unknown = |why: &str| {
            let text = format!("{from} may still follow the request until it ends: {why}");
            Refusal::new(Exit::Unreachable, text)
        };
        let Some(at) = self.written.take() else { return Err(unknown("a second signal")) };
        let (key, may) = (wanted::key_of(&self.request.key, *seat), "it may be withdrawn");
        // A request that others have replaced is over too.
        let _ = write(&mut *self.operation.bucket, &key, may, REACH_MAX, |found, _| {
            let stands = found.is_some_and(|entry| entry.revision == at);
            stands.then(Content::tombstone).ok_or(())
        })
        .map_err(|refusal| unknown(&refusal.text))?;
        // A signal that came meanwhile has what it wanted.
        while self.signals.read() {}
        let text = format!("the request is withdrawn; waiting for {from} to renew or release it");
        self.operation.tell(Level::Info, &text);
        Ok(())
    }

    /// Follows start at the agent that has the lock of this term. The holder before did not begin
    /// to stop the service before `asked_at`.
    fn follow_start(
        &mut self,
        Chosen { from, to, .. }: &Chosen,
        term: Revision,
        asked_at: Instant,
    ) -> Result<Followed, Refusal> {
        let answers = |status: &KeyStatus| status.agent(to).is_some();
        let (signals, mut told) = (&mut self.signals, false);
        self.operation.read_until(Duration::ZERO, answers, |operation, heard| {
            let (status, now) = (heard.status?, sys::now());
            let agent = status.as_ref().and_then(|status| status.agent(to));
            Ok(match judge_start(agent, to, term) {
                StartSeen::Succeeded(up_for) => {
                    // The answer of the old holder may be older than that of the new one: on a busy
                    // host the difference was 0 for a start that took a second.
                    let down = seconds(now.since(asked_at).saturating_sub(up_for));
                    Some(Ok(format!("from={from} to={to} term={term} down={down}\n")))
                }
                StartSeen::Failed(why) => Some(Err(why)),
                StartSeen::Runs => {
                    if !std::mem::replace(&mut told, true) {
                        let text = format!("{to} has it; waiting for start to succeed");
                        operation.tell(Level::Info, &text);
                    }
                    let why = || format!("{to} has it; {BY_SIGNAL}, before start has succeeded");
                    signals.read().then(|| Err(why()))
                }
            })
        })
    }

    /// Has the agents read the request: its hint may be lost, or the bucket has no hints.
    fn have_agents_look(&mut self) -> Result<(), Refusal> {
        let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
        let keys = [self.request.key.clone()].into();
        let question = AgentQuestion::new(number, keys, true);
        self.operation.bucket.ask_agents(&question);
        Ok(())
    }

    /// Returns why the service may still run where it ran before, if so: the holder has not
    /// released its lock, which has run out.
    fn still_runs(&mut self, Chosen { from, to, .. }: &Chosen) -> Result<Option<String>, Refusal> {
        let service = |status: &KeyStatus| service_at(&status.agents, from);
        // A second agent of the token may answer later, and run the service.
        let is_enough = |status: &KeyStatus| {
            service(status).is_some_and(|service| service != ServiceStatus::Down)
        };
        let found = self.operation.read_until(Duration::ZERO, is_enough, |_, heard| {
            Ok(match heard.status {
                Ok(status) => Some(status.as_ref().and_then(service)),
                // The holder says nothing where the bucket cannot be read.
                Err(_) => heard.is_last.then_some(None),
            })
        })?;
        let lost = format!("{to} has the lock, which {from} has not released before it ran out");
        Ok(match found {
            Some(ServiceStatus::Down) => None,
            Some(_) => Some(format!("{lost}: THE SERVICE MAY STILL RUN at {from}")),
            None => Some(format!("{lost}: {from} does not say whether its service is down")),
        })
    }

    /// Reads the key; opens the bucket again where that is needed.
    fn read_lock(&mut self, key: &str) -> StoreResult<Option<Entry>> {
        let by = sys::now().after(ANSWER_MAX);
        let read = self.operation.bucket.get(key, by);
        if read.is_ok() {
            return read;
        }
        open_existing(&mut *self.operation.bucket, sys::now().after(REACH_MAX))?;
        let _ = self.operation.bucket.subscribe(&[key]);
        self.operation.bucket.get(key, sys::now().after(ANSWER_MAX))
    }
}

/// Says what is waited for.
fn waiting(seen: &Seen, Chosen { from, to, .. }: &Chosen) -> String {
    match seen {
        Seen::Held(_) => format!("waiting for {from} to give it"),
        Seen::Released { .. } => format!("{from} has released it; waiting for {to} to take it"),
        Seen::Taken => format!("{to} has taken it; waiting for it to be active"),
        Seen::Done(_) | Seen::Elsewhere(_) | Seen::Gone => {
            "it was deleted; waiting for an agent to take it".to_owned()
        }
    }
}
