//! `putex pause` and `putex resume`: no agent of a key starts, stops or takes over the service for
//! some time.
//!
//! A pause is an entry of the bucket that ends by itself. It is in force when every agent that has
//! said anything of itself has acknowledged it; otherwise it is withdrawn. The promise does not
//! depend on it: an agent that does not know of it acts as ever.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use log::Level;

use crate::core::{AgentState, AgentStatus, Ms, Revision, Written};
use crate::exit::Refusal;
use crate::log::Destination;
use crate::operation::{Ended, Operation, write};
use crate::status::{ANSWER_MAX, Holder, HolderState, KeyStatus, Reader, Source};
use crate::store::Bucket;
use crate::store::pause::{self as stored, CurrentPause, StoredPause};
use crate::sys;

/// Why nothing is paused or resumed.
const UNKNOWN_KEY: &str =
    "no agent has ever held this key, and none answers: are key and bucket right?";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key of the agents.
    pub key: String,
    /// Whether a pause begins or ends.
    pub action: Action,
    /// How long the agents are waited for.
    pub wait: Duration,
    /// Who asks, for people.
    pub by: String,
    /// The lowest level that is logged.
    pub level: u64,
}

/// Whether a pause begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It begins.
    Pause {
        /// How long it lasts.
        lasts: Duration,
        /// The reason, for people.
        reason: String,
    },
    /// It ends.
    Resume,
}

/// Does what is asked for.
///
/// # Errors
///
/// Why it is not known what has become of it, or why nothing was asked for.
pub fn run(
    request: &Request,
    source: &Source,
    bucket: Box<dyn Bucket>,
    destination: Destination,
) -> Result<Ended, Refusal> {
    let Request { key, level, .. } = request;
    let reader = Reader::new(source).looking();
    let operation = Operation { key, level: *level, bucket, reader, destination };
    let (agents, waits_for) = (BTreeMap::new(), Vec::new());
    let mut process = Process { request, operation, agents, waits_for };
    match &request.action {
        Action::Pause { lasts, reason } => {
            let number = sys::random().map_err(Refusal::system("no random numbers: "))? as u64;
            let (by, reason) = (request.by.clone(), reason.clone());
            process.pause(&StoredPause { lasts: *lasts, by, reason, number })
        }
        Action::Resume => process.resume(),
    }
}

/// The agents that have said something, by token and host: the pause that each observes, and its
/// state.
type Agents = BTreeMap<(String, String), (Option<u64>, AgentState)>;

/// The revision of a pause, and what it replaces.
type AtAndReplaced = (Revision, Option<CurrentPause>);

struct Process<'a> {
    request: &'a Request,
    operation: Operation<'a>,
    agents: Agents,
    /// What was said last of what is waited for.
    waits_for: Vec<String>,
}

impl Process<'_> {
    fn pause(&mut self, own: &StoredPause) -> Result<Ended, Refusal> {
        let status = self.read_status()?;
        if status.is_none() {
            return Ok(self.operation.refuse(&[UNKNOWN_KEY.to_owned()]));
        }
        let reasons = why_not(status.as_ref());
        if !reasons.is_empty() {
            return Ok(self.operation.refuse(&reasons));
        }
        let (at, replaced) = match self.write(own)? {
            Ok(written) => written,
            Err(why) => return Ok(self.operation.refuse(&[why])),
        };
        let written_at = sys::now();
        // It was written earlier: the store says until when it lasts.
        let until = SystemTime::now() + own.lasts;
        let lacking = self.wait_for(|status, agents| lacking(status, agents, at))?;
        if lacking.is_empty() {
            let count = self.agents.len();
            if count == 0 {
                self.operation
                    .tell(Level::Warn, "no agent answers; one that starts observes the pause");
            } else if !is_run(&self.agents) {
                self.operation.tell(
                    Level::Warn,
                    "nobody runs the service, and nobody starts it before the pause ends",
                );
            }
            let until = humantime::format_rfc3339_seconds(until);
            return Ok((format!("until={until} agents={count}\n"), 0));
        }
        let last = match replaced {
            // Somebody relies on the pause before.
            Some(CurrentPause { pause: before, left }) => {
                let lasts = left.saturating_sub(sys::now().since(written_at));
                self.replace(at, Some(&StoredPause { lasts, ..before }))?;
                "it is not made longer; the pause before stands".to_owned()
            }
            None => {
                self.replace(at, None)?;
                "the pause is withdrawn".to_owned()
            }
        };
        Ok(self.operation.refuse(&[lacking, vec![last]].concat()))
    }

    fn resume(&mut self) -> Result<Ended, Refusal> {
        // Without anything to show there may be no bucket.
        let status = self.read_status()?;
        if status.is_none() {
            return Ok(self.operation.refuse(&[UNKNOWN_KEY.to_owned()]));
        }
        let by = sys::now().after(ANSWER_MAX);
        let bucket = &mut *self.operation.bucket;
        let entry = bucket.get(&stored::key_of(&self.request.key), by)?;
        let standing = match &entry {
            Some(entry) => stored::standing(bucket, entry, by)?,
            None => None,
        };
        let (Some(entry), Some(_)) = (entry, standing) else {
            self.operation.tell(Level::Warn, "no pause stands");
            return Ok((String::new(), 0));
        };
        self.replace(entry.revision, None)?;
        let lacking = self.wait_for(still_paused)?;
        if lacking.is_empty() {
            return Ok((format!("agents={}\n", self.agents.len()), 0));
        }
        let last = "the pause is ended; what is named here goes on later".to_owned();
        Ok(self.operation.refuse(&[lacking, vec![last]].concat()))
    }

    /// Reads who holds the lock, and what the agents say of themselves.
    fn read_status(&mut self) -> Result<Option<KeyStatus>, Refusal> {
        let is_answered =
            |status: Option<&KeyStatus>| status.is_some_and(|status| !status.agents.is_empty());
        let status = self.operation.read(is_answered)?;
        for agent in status.iter().flat_map(|status| &status.agents) {
            let AgentStatus { token, host, pause, state, .. } = agent.clone();
            self.agents.insert((token, host), (pause, state));
        }
        Ok(status)
    }

    /// Waits until nothing is lacking, and tells the agents again and again that the pause has
    /// changed. Returns what is lacking at the end.
    fn wait_for(
        &mut self,
        lacking: impl Fn(Option<&KeyStatus>, &Agents) -> Vec<String>,
    ) -> Result<Vec<String>, Refusal> {
        // A busy host may need R to acknowledge it.
        let until = sys::now().after(self.request.wait.max(self.operation.reader.longest_wait()));
        loop {
            let lacks = match self.read_status() {
                Ok(status) => lacking(status.as_ref(), &self.agents),
                // A server may be restarted meanwhile. Before the first answer nothing is known.
                Err(error) if sys::now() >= until || self.waits_for.is_empty() => {
                    vec![format!("not known: {}", error.text)]
                }
                Err(_) => self.waits_for.clone(),
            };
            if without_times(&lacks) != without_times(&self.waits_for) {
                lacks
                    .iter()
                    .for_each(|text| self.operation.tell(Level::Info, &format!("waiting: {text}")));
                self.waits_for.clone_from(&lacks);
            }
            if lacks.is_empty() || sys::now() >= until {
                return Ok(lacks);
            }
        }
    }

    /// Writes the pause; returns its revision with the pause that it replaces and how long that
    /// lasts still, or why it is refused.
    fn write(&mut self, own: &StoredPause) -> Result<Result<AtAndReplaced, String>, Refusal> {
        let (key, mut replaced) = (&self.request.key, None);
        let bucket = &mut *self.operation.bucket;
        let written = write(bucket, "the pause may be written", |bucket, by| {
            let entry = bucket.get(&stored::key_of(key), by)?;
            let standing = match &entry {
                Some(entry) => stored::standing(bucket, entry, by)?,
                None => None,
            };
            let at = entry.map_or(Revision(0), |entry| entry.revision);
            if let Some(standing) = standing {
                let CurrentPause { pause: other, left } = &standing;
                if other.number == own.number {
                    return Ok(Ok(Written::Stored(at)));
                }
                if *left > own.lasts {
                    return Ok(Err(format!(
                        "{} has paused it for {} more; a pause is not shortened: end it with \
                         putex resume {key} first",
                        other.by,
                        Ms(*left)
                    )));
                }
                replaced = Some(standing);
            }
            Ok(Ok(stored::write(bucket, key, at, own, by)))
        })?;
        Ok(written.map(|at| (at, replaced)))
    }

    /// Writes in the place of the pause that stands at this revision: the pause before, or its end.
    fn replace(&mut self, at: Revision, before: Option<&StoredPause>) -> Result<(), Refusal> {
        let key = &self.request.key;
        let bucket = &mut *self.operation.bucket;
        let written = write(bucket, "the pause may stand until it ends by itself", |bucket, by| {
            let written = match before {
                Some(before) => stored::write(bucket, key, at, before, by),
                None => stored::end(bucket, key, at, by),
            };
            // Somebody has ended or replaced it, or the last attempt was stored after all.
            let is_over = matches!(written, Written::Moved(_));
            Ok(if is_over { Err(()) } else { Ok(written) })
        });
        written.map(drop)
    }
}

/// Returns lines without the times in them, which change all the time.
fn without_times(lines: &[String]) -> Vec<String> {
    let is_of_time = |character: char| character.is_ascii_digit() || character == '.';
    lines.iter().map(|line| line.replace(is_of_time, "")).collect()
}

/// Returns whether an agent says that it runs the service.
fn is_run(agents: &Agents) -> bool {
    agents.values().any(|(_, state)| *state == AgentState::Active)
}

/// Returns why the agents of this status cannot be paused.
fn why_not(status: Option<&KeyStatus>) -> Vec<String> {
    let holders = status.map_or(&[][..], |status| &status.holders);
    let why = |holder: &Holder| {
        if holder.state == HolderState::Unreadable || holder.term.is_none() {
            Some("is an agent of another version, which observes no pause")
        } else if holder.renewed_age_seconds.is_none() {
            Some("its store does not tell the age of its record, which a pause needs")
        } else {
            None
        }
    };
    holders
        .iter()
        .filter_map(|holder| Some(format!("{}: {}", holder.token, why(holder)?)))
        .collect()
}

/// Returns what is lacking until all observe the pause of this revision, a line for each agent.
fn lacking(status: Option<&KeyStatus>, agents: &Agents, at: Revision) -> Vec<String> {
    let silent = agents.iter().filter(|(_, (pause, _))| *pause != Some(at.0));
    let silent = silent.map(|((token, _), (_, state))| {
        let stops = *state == AgentState::Stopping;
        format!("{token}: {}", if stops { "stops its service" } else { "has not acknowledged it" })
    });
    let of_holder = |holder: &Holder| {
        let why = "holds the lock and does not answer: it is cut off, or of another version";
        format!("{}: {why}", holder.token)
    };
    silent.chain(silent_holders(status, agents).map(of_holder)).collect()
}

/// Returns the holders that say nothing of themselves. One that is overdue is as good as dead.
fn silent_holders<'a>(
    status: Option<&'a KeyStatus>,
    agents: &'a Agents,
) -> impl Iterator<Item = &'a Holder> {
    let holders = status.map_or(&[][..], |status| &status.holders).iter();
    holders.filter(|holder| {
        let answers = agents.keys().any(|(token, _)| *token == holder.token);
        holder.state != HolderState::Overdue && !answers
    })
}

/// Returns what is lacking until nobody observes a pause any more, a line for each agent.
fn still_paused(status: Option<&KeyStatus>, agents: &Agents) -> Vec<String> {
    let paused = agents.iter().filter(|(_, (pause, _))| pause.is_some());
    let paused = paused.map(|((token, _), _)| format!("{token}: has not acknowledged the end"));
    let of_holder = |holder: &Holder| {
        let until = holder.expires_in_seconds.map(|bounds| Duration::from_secs_f64(bounds.max));
        let until = until.map(|left| format!("; its lock runs out in {}", Ms(left)));
        format!("{}: does not answer{}", holder.token, until.unwrap_or_default())
    };
    paused.chain(silent_holders(status, agents).map(of_holder)).collect()
}

#[cfg(test)]
mod tests;
