//! `putex pause` and `putex resume`: no agent of a key starts, stops or takes over the service for
//! some time.
//!
//! A pause is an entry of the bucket that ends by itself. It is in force when every agent that has
//! said anything of itself has acknowledged it; otherwise it is withdrawn, unless it has replaced
//! one: somebody may rely on that. The promise does not depend on a pause: an agent that does not
//! know of it acts as ever.

mod agents;

use std::time::{Duration, SystemTime};

use log::Level;

use self::agents::Agents;
use crate::core::{AgentState, AgentStatus, Ms, REACH_MAX, ServiceStatus};
use crate::exit::{Ended, Refusal};
use crate::operation::{BY_SIGNAL, BY_SIGNAL_BEFORE, Operation, UNKNOWN_KEY, write};
use crate::status::{Holder, HolderState, KeyStatus};
use crate::store::pause::{self as stored, StoredPause};
use crate::store::{Content, Entry};
use crate::sys;
use crate::sys::signals::Endings;

/// The request of a user: a pause, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key of the agents.
    pub key: String,
    /// Whether a pause begins or ends.
    pub action: Action,
    /// How long the agents are waited for.
    pub wait: Duration,
    /// The requester, for people.
    pub by: String,
    /// The lowest level that is logged.
    pub level: u64,
}

/// Whether a pause begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A pause begins.
    Pause {
        /// How long it lasts.
        lasts: Duration,
        /// The reason, for people.
        reason: String,
    },
    /// The pause ends.
    Resume,
}

/// Does what is asked for. `signals` has those that end this command: a pause that is not
/// acknowledged is withdrawn.
///
/// # Errors
///
/// Why it is not known what has become of it, or why nothing was asked for.
pub fn run(
    request: &Request,
    mut operation: Operation<'_>,
    mut signals: Endings,
) -> Result<Ended, Refusal> {
    operation.reader.looks = true;
    let read = operation.read(is_answered);
    // The signal is the cause, also where the read has failed.
    if signals.read() {
        return Ok(operation.lacks(&[BY_SIGNAL_BEFORE.to_owned()]));
    }
    let Some(status) = &read? else {
        return operation.refuse(&[UNKNOWN_KEY.to_owned()]);
    };
    let mut process = Process { request, operation, agents: Agents::default(), signals };
    process.agents.note(status);
    match &request.action {
        Action::Pause { lasts, reason } => {
            let number = sys::random().map_err(Refusal::system("no random numbers: "))? as u64;
            let (by, reason) = (request.by.clone(), reason.clone());
            process.pause(status, &StoredPause { lasts: *lasts, by, reason, number })
        }
        Action::Resume => process.resume(),
    }
}

/// The answers of the agents to a pause, or to its end.
enum Answers {
    /// Lines on the answers that are lacking, one for each agent.
    Lack(Vec<String>),
    /// The pause stands no longer.
    Over,
}

struct Process<'a> {
    request: &'a Request,
    operation: Operation<'a>,
    agents: Agents,
    signals: Endings,
}

impl Process<'_> {
    fn pause(&mut self, status: &KeyStatus, own: &StoredPause) -> Result<Ended, Refusal> {
        let reasons = why_not(status);
        if !reasons.is_empty() || self.operation.reader.not_asked.is_some() {
            return self.operation.refuse(&reasons);
        }
        // The pause is written later: the store has its exact end.
        let until = SystemTime::now() + own.lasts;
        let (serial, replaced) = match self.write(own)? {
            Ok(written) => written,
            Err(why) => return self.operation.refuse(&[why]),
        };
        let lacking = self.wait_for(|status, agents| match serial_of(status) {
            Some(stands) if stands == serial => {
                Answers::Lack(unacknowledged(status, agents, serial))
            }
            _ => Answers::Over,
        })?;
        if lacking.is_empty() {
            let count = self.agents.all().count();
            if !self.agents.all().any(|agent| agent.service == ServiceStatus::Up) {
                let text = "no agent says that the service runs; none starts it in the pause";
                self.operation.tell(Level::Warn, text);
            }
            let until = humantime::format_rfc3339_seconds(until);
            return Ok((format!("until={until} agents={count}\n"), 0));
        }
        if let Some(StoredPause { by, .. }) = replaced {
            let ended = self.operation.lacks(&lacking);
            let why = format!("it is in the place of the pause of {by}, who may rely on it");
            // Also with -q: something remains.
            let text = format!("not withdrawn: {why}; putex resume {} ends it", self.request.key);
            self.operation.tell(Level::Error, &text);
            return Ok(ended);
        }
        let read = last_read(&self.agents);
        let ended = self.write_end(|found| withdrawal(found, own, read))?;
        let last = match ended {
            true => "the pause is withdrawn",
            false => "others have ended or replaced it: putex status shows what stands",
        };
        Ok(self.operation.lacks(&[lacking, vec![last.to_owned()]].concat()))
    }

    fn resume(&mut self) -> Result<Ended, Refusal> {
        let (mut stood, mut serial, read) = (false, 0, last_read(&self.agents));
        // Also where no pause stands: the write of one may come yet, and expects what stands.
        self.write_end(|found| {
            stood |= found.and_then(stored::standing).is_some();
            serial = stored::next_serial(found, read);
            Some(stored::to_content(None, serial))
        })?;
        let done = if stood { "the pause is ended; " } else { "no pause stands; " };
        if let Some(refusal) = self.operation.not_asked_refusal(done) {
            return Err(refusal);
        }
        if !stood {
            self.operation.tell(Level::Warn, "no pause stands");
        }
        let lacking =
            self.wait_for(|status, agents| Answers::Lack(unended(status, agents, serial)))?;
        if lacking.is_empty() {
            return Ok((format!("agents={}\n", self.agents.all().count()), 0));
        }
        let last = "the pause is ended; who has not acknowledged that goes on later".to_owned();
        Ok(self.operation.lacks(&[lacking, vec![last]].concat()))
    }

    /// Waits until nothing is lacking, for a signal, or until nothing is waited for any longer, and
    /// tells the agents again and again that the pause has changed. Returns what is lacking at the
    /// end.
    fn wait_for(
        &mut self,
        answers: impl Fn(Option<&KeyStatus>, &Agents) -> Answers,
    ) -> Result<Vec<String>, Refusal> {
        let Process { request, operation, agents, signals } = self;
        let mut waits_for = Vec::new();
        operation.read_until(request.wait, is_answered, |operation, heard| {
            if signals.read() {
                return Ok(Some(vec![BY_SIGNAL.to_owned()]));
            }
            let lacks = match heard.status {
                Ok(status) => {
                    status.iter().for_each(|status| agents.note(status));
                    match answers(status.as_ref(), agents) {
                        Answers::Over => return Ok(Some(vec![NOT_STANDING.to_owned()])),
                        Answers::Lack(lacks) => [lacks, of_twins(agents)].concat(),
                    }
                }
                // A server may be restarted meanwhile.
                Err(_) if !heard.is_last => return Ok(None),
                Err(error) => vec![format!("not known: {}", error.text)],
            };
            if lacks != waits_for {
                let tell = |text| operation.tell(Level::Info, &format!("waiting: {text}"));
                lacks.iter().for_each(tell);
                waits_for.clone_from(&lacks);
            }
            Ok((lacks.is_empty() || heard.is_last).then_some(lacks))
        })
    }

    /// Writes the pause; returns its serial number with the pause that it replaces, or why it is
    /// refused.
    fn write(
        &mut self,
        own: &StoredPause,
    ) -> Result<Result<(u64, Option<StoredPause>), String>, Refusal> {
        let (key, mut replaced, mut serial) = (&self.request.key, None, 0);
        let read = last_read(&self.agents);
        let bucket = &mut *self.operation.bucket;
        let of_key = stored::key_of(key);
        let may = "the pause may be written";
        let written = write(bucket, &of_key, may, REACH_MAX, |found, is_replaced| {
            if is_replaced {
                let why = "it may have been paused; others have ended or replaced that since: \
                           putex status shows what stands";
                return Err(why.to_owned());
            }
            let standing = found.and_then(stored::standing);
            if let Some((other, left)) = &standing
                && *left > own.lasts
            {
                return Err(format!(
                    "{} has paused it for {} more; a pause is not shortened: end it with putex \
                     resume {key} first",
                    other.by,
                    Ms(*left)
                ));
            }
            replaced = standing.map(|(other, _)| other);
            serial = stored::next_serial(found, read);
            Ok(stored::to_content(Some(own), serial))
        })?;
        Ok(written.map(|_| (serial, replaced)))
    }

    /// Writes what ends a pause, unless `judge` returns none for what stands. Returns whether it is
    /// written.
    fn write_end(
        &mut self,
        mut judge: impl FnMut(Option<&Entry>) -> Option<Content>,
    ) -> Result<bool, Refusal> {
        let (bucket, key) = (&mut *self.operation.bucket, stored::key_of(&self.request.key));
        let may = "its end may be written";
        let ended = write(bucket, &key, may, REACH_MAX, |found, _| judge(found).ok_or(()));
        let stands = "the pause may stand until it ends by itself";
        let may_stand = |it: Refusal| Refusal { text: format!("{stands}: {}", it.text), ..it };
        ended.map(|ended| ended.is_ok()).map_err(may_stand)
    }
}

/// Returns the end that is written in the place of the own pause, if that stands. The agents have
/// read entries up to the serial number `read`.
fn withdrawal(standing: Option<&Entry>, own: &StoredPause, read: u64) -> Option<Content> {
    let is_own = stored::from_content(&standing?.content)?.number == own.number;
    is_own.then(|| stored::to_content(None, stored::next_serial(standing, read)))
}

fn is_answered(status: &KeyStatus) -> bool {
    !status.agents.is_empty()
}

/// Returns the highest serial number that an agent has read.
fn last_read(agents: &Agents) -> u64 {
    agents.all().map(|agent| agent.pause).max().unwrap_or_default()
}

/// Returns why the agents of this status cannot be paused.
fn why_not(status: &KeyStatus) -> Vec<String> {
    let others = status.holders.iter().filter(|holder| holder.term.is_none());
    let why = "is an agent of another version, which observes no pause";
    others.map(|holder| format!("{}: {why}", holder.token)).collect()
}

/// Why a pause is not waited for any longer.
const NOT_STANDING: &str = "it stands no longer: it is over, or others have ended or replaced it";

/// Returns the serial number of the pause that stands.
fn serial_of(status: Option<&KeyStatus>) -> Option<u64> {
    Some(status?.paused.as_ref()?.serial)
}

/// Returns what is lacking until all observe the pause of this serial number, a line for each
/// agent.
fn unacknowledged(status: Option<&KeyStatus>, agents: &Agents, serial: u64) -> Vec<String> {
    let is_busy = |agent: &AgentStatus| match agent.state {
        // The agent looks for a service to adopt, may get the lock yet, or stops the service.
        AgentState::Looking | AgentState::Taking | AgentState::Stopping | AgentState::Ended => true,
        AgentState::Standby | AgentState::Confirming | AgentState::Active => false,
    };
    let observes = |agent: &AgentStatus| {
        agent.paused && agent.pause == serial && !agent.start_pending && !is_busy(agent)
    };
    let silent = agents.all().filter(|agent| !observes(agent));
    let silent = silent.map(|agent| {
        let why = if agent.state == AgentState::Stopping {
            "stops its service"
        } else if !agent.guard_up {
            "its guard does not answer"
        } else if agent.paused && agent.start_pending {
            "its start is about to begin"
        } else {
            "has not acknowledged it"
        };
        format!("{}: {why}", agent.token)
    });
    let of_holder = |holder: &Holder| {
        let mut instances = agents.all().filter(|agent| agent.token == holder.token).peekable();
        let why = if instances.peek().is_none() {
            "holds the lock and does not answer: it is cut off, or of another version"
        } else if instances.all(|agent| agent.term != holder.term) {
            // Its guard may live, and begin start until the lock has run out.
            "the lock of its earlier instance has not run out"
        } else {
            return None;
        };
        Some(format!("{}: {why}", holder.token))
    };
    silent.chain(holders_in_time(status).filter_map(of_holder)).collect()
}

/// Returns a line for each token of two agents. The acknowledgement of one of them says nothing of
/// the other, which may answer too late for one read.
fn of_twins(agents: &Agents) -> Vec<String> {
    let why = "two agents have this token; give each its own --token";
    agents.twins().into_iter().map(|token| format!("{token}: {why}")).collect()
}

/// Returns the holders but those that are overdue, which count as dead.
fn holders_in_time(status: Option<&KeyStatus>) -> impl Iterator<Item = &Holder> {
    let holders = status.map_or(&[][..], |status| &status.holders).iter();
    holders.filter(|holder| holder.state != HolderState::Overdue)
}

/// Returns what is lacking until all have read the end of this serial number, or what was written
/// later, a line for each agent. One that has not may read a pause of before yet. A lost pause of a
/// host whose clock was ahead may have a higher number.
fn unended(status: Option<&KeyStatus>, agents: &Agents, serial: u64) -> Vec<String> {
    let stands = serial_of(status);
    let is_lost = |agent: &AgentStatus| agent.paused && stands != Some(agent.pause);
    let paused = agents.all().filter(|agent| agent.pause < serial || is_lost(agent));
    let paused = paused.map(|agent| format!("{}: has not acknowledged the end", agent.token));
    let answers = |holder: &&Holder| agents.all().any(|agent| agent.token == holder.token);
    let silent = holders_in_time(status).filter(|holder| !answers(holder));
    let silent = silent.map(|holder| format!("{}: does not answer", holder.token));
    paused.chain(silent).collect()
}

#[cfg(test)]
mod tests;
