//! `putex switchover`: the lock of one agent goes to another, as an operator wants it.
//!
//! The request is an entry of the bucket that ends by itself. The holder that reads it stops the
//! service and releases its lock to the other agent. What became of it is read from the lock
//! itself, never guessed: it is done, refused before anything was written, withdrawn, or has gone
//! elsewhere.

mod judge;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use log::Level;

use self::judge::{Release, Renewals, Seen, judge};
use crate::core::timing::lengthened;
use crate::core::{
    AgentState, AgentStatus, DRIFT_PPM_DEFAULT, Instant, Ms, Priority, REACH_MAX, Revision, Seat,
    ServiceStatus, StoreErrorKind, Timing, Written,
};
use crate::exit::{LockExit, Refusal};
use crate::log::Destination;
use crate::status::{self, ANSWER_MAX, Holder, HolderState, KeyStatus, Reader, Source};
use crate::store::lock_key::to_key_state;
use crate::store::switchover::{self as wanted, Switchover};
use crate::store::{AgentQuestion, Bucket, Entry, Hint, StoreResult};
use crate::sys::{self, Alarm, Waker};

/// How often the lock is looked at if no hint comes, if C·R is not short.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the agents are told again that there is a request.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How often the request is written again after an answer that leaves open whether it was stored.
const WRITES_MAX: u32 = 5;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the bucket is.
    pub source: Source,
    /// The key of the agents.
    pub key: String,
    /// The token of the holder; `None` for the only one.
    pub from: Option<String>,
    /// The token of the agent that is to have the lock; `None` for the best candidate.
    pub to: Option<String>,
    /// For how long the holder may begin.
    pub wait: Duration,
    /// Who asks, for people.
    pub by: String,
    /// The lowest level that is logged.
    pub level: u64,
}

/// How it has ended: what is printed, and the exit status.
pub type Ended = (String, u8);

/// Does what is asked for. `base` is the directory for files of this host.
///
/// # Errors
///
/// Why it is not known what has become of it, or why nothing was asked for.
pub fn run(
    request: &Request,
    bucket: Box<dyn Bucket>,
    base: &Path,
    destination: Destination,
) -> Result<Ended, Refusal> {
    let reader = Reader::new(&request.source, base);
    let mut process = Process { request, bucket, reader, destination, chosen_at: sys::now() };
    let chosen = match process.choose()? {
        Ok(chosen) => chosen,
        Err(Unchosen::Done(text)) => {
            process.tell(Level::Warn, &text);
            return Ok((String::new(), 0));
        }
        Err(Unchosen::Refused(reasons) | Unchosen::Lacking(reasons)) => {
            reasons.iter().for_each(|why| process.tell(Level::Warn, why));
            let not_asked = process.reader.why_not_asked();
            not_asked.iter().for_each(|why| process.tell(Level::Warn, &status::not_asked(why)));
            return Ok((String::new(), LockExit::NotHad as u8));
        }
    };
    process.carry_out(&chosen)
}

/// Which lock is to go, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chosen {
    seat: Seat,
    term: Revision,
    from: String,
    to: String,
    timing: Timing,
}

/// Why nothing is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Unchosen {
    /// It is as it should be.
    Done(String),
    /// It cannot be done, by the record: why.
    Refused(Vec<String>),
    /// No agent has answered that can have it, or says what is needed: why, a line for each host.
    Lacking(Vec<String>),
}

/// Chooses the holder and the agent that is to have its lock.
fn choose(request: &Request, status_of_key: Option<&KeyStatus>) -> Result<Chosen, Unchosen> {
    let refuse = |why: String| Unchosen::Refused(vec![why]);
    let lack = |why: String| Unchosen::Lacking(vec![why]);
    let (holders, agents) =
        status_of_key.map_or((&[][..], &[][..]), |it| (&it.holders[..], &it.agents));
    let is_from = |holder: &&Holder| request.from.as_ref().is_none_or(|it| holder.token == *it);
    if let (Some(to), [holder]) = (&request.to, holders)
        && holder.token == *to
    {
        let is_active =
            |agent: &AgentStatus| agent.token == *to && agent.state == AgentState::Active;
        return Err(match agents.iter().any(is_active) {
            true => Unchosen::Done(format!("{to} has it already")),
            false => lack(format!("{to} holds it, and does not say that it is active")),
        });
    }
    let from: Vec<&Holder> = holders.iter().filter(is_from).collect();
    let holder = match (&from[..], &request.from) {
        ([holder], _) => holder,
        ([], Some(token)) => {
            let is_down = |agent: &AgentStatus| agent.token == *token && agent.stands_by();
            let why = "does not hold it, and does not say that its service is down";
            return Err(match agents.iter().any(is_down) {
                true => Unchosen::Done(format!("{token} does not hold it")),
                false => lack(format!("{token} {why}")),
            });
        }
        ([], None) => return Err(Unchosen::Lacking(why_nobody(agents))),
        ([_, _, ..], _) => {
            let tokens: Vec<_> = from.iter().map(|holder| &*holder.token).collect();
            let tokens = tokens.join(" and ");
            return Err(refuse(format!("it is held by {tokens}; write --from with one of them")));
        }
    };
    if let Some(to) = &request.to
        && holders.iter().any(|holder| holder.token == *to)
    {
        return Err(refuse(format!("{to} has a seat already")));
    }
    let from = holder.token.clone();
    let why = match holder.state {
        HolderState::Active => None,
        HolderState::Taking => Some("has taken the lock a moment ago, and does not run yet"),
        HolderState::Overdue if status_of_key.is_some_and(|it| it.paused.is_some()) => {
            Some("does not renew its lock: others take it over when the pause is over")
        }
        HolderState::Overdue => Some("does not renew its lock: others take it over by themselves"),
        HolderState::Unreadable => Some("has a record that cannot be read"),
    };
    let timing = holder.timing.and_then(|timing| {
        let renewal = Duration::from_secs_f64(timing.renewal_seconds);
        Timing::new(renewal, timing.failures, timing.confirmations, DRIFT_PPM_DEFAULT).ok()
    });
    let (term, timing) = match (why, holder.term, timing) {
        (None, Some(term), Some(timing)) => (Revision(term), timing),
        (Some(why), _, _) => return Err(refuse(format!("{from}: {why}"))),
        (None, _, _) => {
            let why = "is an agent of another version, which follows no such request";
            return Err(refuse(format!("{from}: {why}")));
        }
    };
    if holder.renewed_age_seconds.is_none() {
        let why = "its store does not tell the age of its record, which a switchover needs";
        return Err(refuse(why.to_owned()));
    }
    let to = candidate(request, &from, agents)?.token.clone();
    Ok(Chosen { seat: Seat(holder.seat.unwrap_or(0)), term, from, to, timing })
}

/// Says why nobody holds a lock: what keeps each agent from it.
fn why_nobody(agents: &[AgentStatus]) -> Vec<String> {
    let of_agent = |agent: &AgentStatus| match &agent.not_candidate_why {
        Some(why) => format!("{}: no candidate: {why}", agent.token),
        None => format!("{}: {}, a candidate", agent.token, agent.state),
    };
    let first = match agents {
        [] => "nobody holds it, and no agent of this key answers",
        _ => "nobody holds it",
    };
    [first.to_owned()].into_iter().chain(agents.iter().map(of_agent)).collect()
}

/// Returns the agent that is to have the lock.
fn candidate<'a>(
    request: &Request,
    from: &str,
    agents: &'a [AgentStatus],
) -> Result<&'a AgentStatus, Unchosen> {
    let why_not = |agent: &AgentStatus| match (&agent.not_candidate_why, agent.state) {
        (Some(why), _) if agent.pause.is_some() => {
            Some(format!("{why}; putex resume {} ends that", request.key))
        }
        (Some(why), _) => Some(why.clone()),
        (None, AgentState::Standby) if !agent.guard_up => {
            Some("its guard does not answer".to_owned())
        }
        (None, AgentState::Standby) => None,
        (None, state) => Some(format!("it is {state}")),
    };
    let others: Vec<_> = agents.iter().filter(|agent| agent.token != from).collect();
    let wanted = |agent: &&&AgentStatus| request.to.as_ref().is_none_or(|it| agent.token == *it);
    let fit = others.iter().filter(wanted).filter(|agent| why_not(agent).is_none());
    let first = |agent: &&&AgentStatus| {
        let priority = agent.priority.parse().unwrap_or(Priority::Never);
        (priority, agent.token.clone())
    };
    if let Some(agent) = fit.min_by_key(first) {
        return Ok(agent);
    }
    let mut reasons: Vec<String> = others
        .iter()
        .filter_map(|agent| Some(format!("{}: no candidate: {}", agent.token, why_not(agent)?)))
        .collect();
    let answers = |token: &String| others.iter().any(|agent| agent.token == *token);
    if let Some(to) = request.to.as_ref().filter(|to| !answers(to)) {
        let why = "no answer: there is no such agent, or it is cut off, or an old version";
        let known: Vec<_> = others.iter().map(|agent| agent.token.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(" ") };
        let known = format!("{from} has the lock; others that answer: {known}");
        reasons.insert(0, format!("{to}: {why}; {known}"));
    } else if others.is_empty() {
        reasons.push("no other agent has answered".to_owned());
    }
    Err(Unchosen::Lacking(reasons))
}

struct Process<'a> {
    request: &'a Request,
    bucket: Box<dyn Bucket>,
    reader: Reader<'a>,
    destination: Destination,
    /// When the read was begun by which the holder was chosen.
    chosen_at: Instant,
}

impl Process<'_> {
    fn tell(&self, level: Level, text: &str) {
        let Request { key, level: lowest, .. } = self.request;
        self.destination.tell_waiting(level, *lowest, &format!("{key}: {text}"));
    }

    /// Chooses the holder and the agent that is to have its lock. Nothing is refused before all
    /// agents have had the time to answer: a record or a health check may be a moment old.
    fn choose(&mut self) -> Result<Result<Chosen, Unchosen>, Refusal> {
        let (request, began) = (self.request, sys::now());
        let is_enough = |status: Option<&KeyStatus>| {
            !matches!(choose(request, status), Err(Unchosen::Lacking(_)))
        };
        loop {
            self.chosen_at = sys::now();
            let status = self.reader.read_agents(&request.key, &mut *self.bucket, is_enough)?;
            let chosen = choose(request, status.as_ref());
            let is_refused = matches!(chosen, Err(Unchosen::Refused(_) | Unchosen::Lacking(_)));
            if !is_refused || sys::now().since(began) >= self.reader.longest_wait() {
                return Ok(chosen);
            }
        }
    }

    /// Writes the request, and waits for what becomes of it.
    fn carry_out(&mut self, chosen: &Chosen) -> Result<Ended, Refusal> {
        let Chosen { seat, term, from, to, .. } = chosen;
        let number = sys::random().map_err(Refusal::system("no random numbers: "))? as u64;
        let (by, lasts) = (self.request.by.clone(), self.request.wait);
        let (from, to) = (from.clone(), to.clone());
        let own = Switchover { seat: *seat, term: *term, from, to, lasts, by, number };
        let at = match self.write(&own)? {
            Ok(at) => at,
            Err(other) => {
                self.tell(Level::Warn, &other);
                return Ok((String::new(), LockExit::NotHad as u8));
            }
        };
        // It was written earlier: nobody begins after that.
        let until = sys::now().after(lengthened(lasts, DRIFT_PPM_DEFAULT));
        let text = format!(
            "{} is to give it to {}; the request ends by itself after {}, and not by Control-C",
            chosen.from,
            chosen.to,
            Ms(lasts)
        );
        self.tell(Level::Info, &text);
        let end = self.follow(chosen, until);
        // Best effort: it ends by itself.
        let by = sys::now().after(ANSWER_MAX);
        let _ = wanted::end(&mut *self.bucket, &self.request.key, *seat, at, by);
        end
    }

    /// Writes the request; returns its revision, or why there is another.
    fn write(&mut self, own: &Switchover) -> Result<Result<Revision, String>, Refusal> {
        let (key, mut last) = (self.request.key.clone(), String::new());
        for _ in 0..WRITES_MAX {
            let by = sys::now().after(ANSWER_MAX);
            let entry = self.bucket.get(&wanted::key_of(&key, own.seat), by)?;
            let at = entry.as_ref().map_or(Revision(0), |entry| entry.revision);
            if let Some(entry) = &entry
                && let Some((other, left)) = wanted::standing(&mut *self.bucket, entry, by)?
            {
                if other == *own {
                    return Ok(Ok(at));
                }
                if other.term == own.term {
                    let Switchover { to, by, .. } = &other;
                    let left = Ms(left);
                    return Ok(Err(format!("{by} is about to move it to {to}, for {left} still")));
                }
            }
            match wanted::write(&mut *self.bucket, &key, at, own, by) {
                Written::Stored(at) => return Ok(Ok(at)),
                Written::Moved(_) => {}
                Written::Denied(why) => return Err(StoreErrorKind::Credentials.error(why).into()),
                Written::Unknown(why) => last = why,
            }
        }
        Err(StoreErrorKind::Unreachable.error(format!("the request may be written: {last}")).into())
    }

    /// Follows the lock until it is known what has become of the request, which nobody begins to
    /// follow after `until`.
    fn follow(&mut self, chosen: &Chosen, until: Instant) -> Result<Ended, Refusal> {
        let Chosen { seat, term, from, to, timing } = chosen;
        let no_wait = Refusal::system("cannot wait: ");
        let (wake, alarm) = (Waker::new().map_err(&no_wait)?, Alarm::new().map_err(&no_wait)?);
        let key = seat.key(&self.request.key);
        let takeover = timing.takeover_wait(timing.lock_time()) + timing.confirmation();
        // The stop of the old service, the T of the other agent, and those who come after it.
        let last = until.after(takeover * 3);
        let (mut renewals, mut told, mut told_at) = (Renewals::default(), None, None);
        let mut release = Release::new(self.chosen_at);
        loop {
            let now = sys::now();
            let seen = self.read_lock(&key).map(|entry| judge(&to_key_state(entry), *term, to));
            let not_had = |text: String| (text, LockExit::NotHad as u8);
            let ended = match &seen {
                Ok(Seen::Done(new)) => {
                    let still_runs = match release.is_proved(sys::now(), *timing) {
                        true => None,
                        false => self.still_runs(chosen)?,
                    };
                    match still_runs {
                        None => return Ok((format!("from={from} to={to} term={new}\n"), 0)),
                        Some(why) => Some(not_had(why)),
                    }
                }
                Ok(Seen::Elsewhere(token)) => Some(not_had(format!("{token} has it, not {to}"))),
                Ok(Seen::Held(revision)) if renewals.show(*revision, until, now) => Some(not_had(
                    format!("withdrawn: {from} has not begun to give it, and keeps it"),
                )),
                Ok(Seen::Released { .. }) if now >= last => {
                    Some(not_had(format!("{from} has released it, and nobody has taken it yet")))
                }
                Ok(Seen::Gone) if now >= last => Some(not_had("the key was deleted".to_owned())),
                Ok(Seen::Held(_) | Seen::Taken) if now >= last => {
                    Some(not_had(format!("{from} does not renew it, and {to} does not have it")))
                }
                Err(error) if now >= last => return Err(error.clone().into()),
                Ok(_) | Err(_) => None,
            };
            if let Some((text, status)) = ended {
                self.tell(Level::Warn, &text);
                return Ok((String::new(), status));
            }
            let seen = seen.ok();
            seen.iter().for_each(|seen| release.note(seen, now));
            if let Some(seen) = &seen
                && told.as_ref().is_none_or(|told| !is_alike(told, seen))
            {
                self.tell(Level::Info, &waiting(seen, chosen));
            }
            told = seen.or(told);
            if told_at.is_none_or(|told| now.since(told) >= TELL_EVERY) {
                told_at = Some(now);
                self.have_agents_look()?;
            }
            let next = sys::now().after(LOOK_EVERY.min(timing.confirmation() / 4));
            if let Hint::Gone(_) = self.bucket.wait(wake.as_fd(), Some(next)) {
                alarm.wait([], Some(next)).map_err(&no_wait)?;
            }
        }
    }

    /// Has the agents read the request: its hint may be lost, or the bucket has no hints.
    fn have_agents_look(&mut self) -> Result<(), Refusal> {
        let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
        let (bucket, keys) =
            (self.request.source.bucket.clone(), [self.request.key.clone()].into());
        let number = format!("{number:032x}");
        self.bucket.ask_agents(&AgentQuestion { number, bucket, keys, reads_requests: true });
        Ok(())
    }

    /// Returns why the service may still run where it ran before, if so: the holder has not
    /// released its lock, which has run out.
    fn still_runs(&mut self, Chosen { from, to, .. }: &Chosen) -> Result<Option<String>, Refusal> {
        let of_holder =
            |status: &KeyStatus| status.agents.iter().find(|agent| agent.token == *from).cloned();
        let alarm = Alarm::new().map_err(Refusal::system("cannot wait: "))?;
        let until = sys::now().after(self.reader.longest_wait());
        let found = loop {
            let is_enough = |status: Option<&KeyStatus>| status.and_then(of_holder).is_some();
            let key = &self.request.key;
            match self.reader.read_agents(key, &mut *self.bucket, is_enough) {
                Ok(status) => break status.as_ref().and_then(of_holder),
                // The holder says nothing where the bucket cannot be read.
                Err(_) if sys::now() >= until => break None,
                Err(_) => {
                    let next = Some(sys::now().after(LOOK_EVERY));
                    alarm.wait([], next).map_err(Refusal::system("cannot wait: "))?;
                }
            }
        };
        let lost = format!("{to} has the lock, which {from} has not released before it ran out");
        Ok(match found {
            Some(agent) if agent.service == ServiceStatus::Down => None,
            Some(_) => Some(format!("{lost}: THE SERVICE MAY STILL RUN at {from}")),
            None => Some(format!("{lost}: {from} does not say whether its service is down")),
        })
    }

    /// Reads the key; opens the bucket again where that is needed.
    fn read_lock(&mut self, key: &str) -> StoreResult<Option<Entry>> {
        let by = sys::now().after(ANSWER_MAX);
        let read = self.bucket.get(key, by);
        if read.is_ok() {
            return read;
        }
        self.bucket.open_existing(sys::now().after(REACH_MAX))?;
        let _ = self.bucket.subscribe(&[key]);
        self.bucket.get(key, sys::now().after(ANSWER_MAX))
    }
}

/// Returns whether a person is told the same of both.
fn is_alike(one: &Seen, other: &Seen) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Says what is waited for.
fn waiting(seen: &Seen, Chosen { from, to, .. }: &Chosen) -> String {
    match seen {
        Seen::Held(_) => format!("waiting for {from} to give it"),
        Seen::Released { .. } => format!("{from} has released it; waiting for {to} to take it"),
        Seen::Taken => format!("{to} has taken it; waiting for it to be active"),
        Seen::Done(_) | Seen::Elsewhere(_) | Seen::Gone => {
            "waiting for an agent to take it".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
