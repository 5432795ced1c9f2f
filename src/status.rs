//! `putex status`: who holds what, as the leader of the bucket has it.
//!
//! | file | content |
//! |---|---|
//! | `agents` | what the agents say of themselves |
//! | `answer_wait` | how long they are waited for |
//! | `assemble` | the status, from the entries of the bucket |
//! | `model` | the status as an object of JSON |
//! | `text` | the status as a table |
//! | `answer` | questions about one name, answered by the exit status, and single values |
//!
//! Nothing is made or written, and nothing is guessed: what the leader does not show is not known.

mod agents;
mod answer;
mod answer_wait;
mod assemble;
mod model;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::Serialize;

pub use self::answer::{FIELDS, Field, Question};
use self::answer_wait::{AnswerWait, Known, RENEWAL_UNKNOWN};
use self::model::SCHEMA;
pub(crate) use self::model::{
    Holder, HolderState, KeyStatus, Kind, PauseStatus, Status, TimingStatus,
};
use crate::core::tickets::Name;
use crate::core::{Instant, REACH_MAX, SEATS_MAX, Seat};
use crate::exit::{Ended, Exit, Refusal};
use crate::store::{Bucket, Entry, Selection, StoreResult, mark, name, open_existing, pause};
use crate::sys;

/// How long a server is waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The exit status of a question whose answer is no, and if there is nothing to show.
const NO: u8 = 1;

/// Where a bucket is that is only looked at.
pub struct Source {
    /// The name of the bucket.
    pub bucket: String,
    /// The digest of its directory, if it is in one: its agents answer by files then.
    pub location: Option<String>,
    /// The directory for files of this host, and for those of the agents.
    pub base: PathBuf,
}

/// The request of a user for the status of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The names; all if there are none.
    pub keys: Vec<String>,
    /// The form of the answer.
    pub form: Form,
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Table,
    /// An object of JSON.
    Json,
    /// A value of the first key.
    Print(Field),
    /// The exit status, about the first key.
    Exit(Question),
}

/// Returns what is asked for as text, and the exit status.
///
/// # Errors
///
/// Why the bucket was not read.
pub fn run(
    request: &Request,
    source: &Source,
    mut bucket: Box<dyn Bucket>,
) -> Result<Ended, Refusal> {
    // Where no agent has answered, nothing is said of a name but that nothing is known.
    let is_known = |_: &KeyStatus| true;
    let asks_agents = matches!(request.form, Form::Table | Form::Json);
    let is_enough: Option<IsEnough<'_>> = if asks_agents { Some(&is_known) } else { None };
    let status = Reader::new(source).read(&request.keys, is_enough, &mut *bucket)?;
    let of_first = || request.keys.first().and_then(|key| find(&status, key));
    let text = match &request.form {
        Form::Table => text::table(&status, &request.keys),
        Form::Json => json(&status)?,
        Form::Print((_, value)) => {
            let holders = of_first().into_iter().flat_map(KeyStatus::standing_holders);
            holders.filter_map(value).map(|value| value + "\n").collect()
        }
        Form::Exit(question) => {
            let answer = if question.answer(of_first(), &status.keys) { 0 } else { NO };
            return Ok((String::new(), answer));
        }
    };
    let has_bucket = status.epoch.is_some() || !status.keys.is_empty();
    let is_there = |key: &String| find(&status, key).is_some();
    let is_lacking = text.is_empty() || !has_bucket || !request.keys.iter().all(is_there);
    Ok((text, if is_lacking { NO } else { 0 }))
}

/// Returns a line of JSON.
///
/// # Errors
///
/// When it cannot be written.
pub fn json(value: &impl Serialize) -> Result<String, Refusal> {
    let json = serde_json::to_string(value).map(|json| json + "\n");
    json.map_err(|error| Refusal::new(Exit::System, format!("cannot print: {error}")))
}

/// Returns whether it is the status of a name, or of a lock above or below it.
fn is_about(status: &KeyStatus, name: &str) -> bool {
    let locks = [&*status.key, name].map(Name::parse);
    let overlaps = matches!(&locks, [Ok(lock), Ok(name)] if lock.overlaps(name));
    status.key == name || status.kind == Kind::Lock && overlaps
}

/// Returns what stands under a name: the key of agents, else the lock, else the lease.
fn find<'a>(status: &'a Status, key: &str) -> Option<&'a KeyStatus> {
    let named = status.keys.iter().filter(|status| status.key == key);
    named.min_by_key(|status| status.kind)
}

/// Whether a command has heard enough of the agents of a key, by what stands under it with what has
/// been heard so far: it would not say that one is missing.
pub(crate) type IsEnough<'a> = &'a dyn Fn(&KeyStatus) -> bool;

/// Reads a bucket as often as a command wants, and asks its agents.
pub(crate) struct Reader<'a> {
    source: &'a Source,
    /// The agents that are asked read first what operators have requested.
    pub(crate) looks: bool,
    /// The agents that answered the last time.
    answered: BTreeSet<Known>,
    /// The largest R of the records that were read last.
    renewal: Duration,
    /// Why this user may not ask agents what they do, if so.
    pub(crate) not_asked: Option<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a Source) -> Reader<'a> {
        let answered = BTreeSet::new();
        let renewal = RENEWAL_UNKNOWN;
        Reader { source, looks: false, answered, renewal, not_asked: None }
    }

    /// Returns how long a known agent had to answer the last time.
    pub(crate) fn longest_wait(&self) -> Duration {
        answer_wait::longest(self.renewal)
    }

    /// Reads who holds the lock of the agents of a key, and what they say of themselves; `None` if
    /// nothing is known of such agents. `is_enough`: whether enough has been heard of them.
    ///
    /// # Errors
    ///
    /// Why the bucket was not read.
    pub(crate) fn read_agents(
        &mut self,
        key: &String,
        bucket: &mut dyn Bucket,
        is_enough: impl Fn(&KeyStatus) -> bool,
    ) -> Result<Option<KeyStatus>, Refusal> {
        let is_of_agents = |status: &KeyStatus| status.kind == Kind::Agent;
        let is_enough = |status: &KeyStatus| is_of_agents(status) && is_enough(status);
        let status = self.read(std::slice::from_ref(key), Some(&is_enough), bucket)?;
        Ok(status.keys.into_iter().find(is_of_agents))
    }

    /// Reads what stands under the wanted names, or all if there are none, and asks the agents what
    /// they do, until enough has been heard, or not at all.
    ///
    /// # Errors
    ///
    /// Why the bucket was not read.
    pub(crate) fn read(
        &mut self,
        wanted: &[String],
        is_enough: Option<IsEnough<'_>>,
        bucket: &mut dyn Bucket,
    ) -> Result<Status, Refusal> {
        let epoch = open_existing(bucket, sys::now().after(REACH_MAX))?.map(|info| info.id.epoch);
        let began = sys::now();
        let by = began.after(ANSWER_MAX);
        let (mut tickets, mut agents, mut leases) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pauses, mut switchovers) = (Vec::new(), Vec::new());
        // Nothing is lost with the processes of a host that ends.
        let mut settled = Duration::MAX;
        if let Some(epoch) = epoch.as_ref().filter(|_| self.source.location.is_none()) {
            let mark = mark::of_entry(bucket.get(name::MARK_KEY, by)?);
            settled = Some(mark.lifetime).filter(|_| mark.epoch == *epoch).unwrap_or_default();
        }
        if epoch.is_some() {
            for entry in entries(wanted, bucket, by)? {
                match root(&entry.key) {
                    "lock" => tickets.push(entry),
                    "lease" => leases.push(entry),
                    "putex" if entry.key.starts_with(name::PAUSE_PREFIX) => pauses.push(entry),
                    "putex" => switchovers.push(entry),
                    _ => agents.push(entry),
                }
            }
        }
        self.renewal = assemble::largest_renewal(&agents).unwrap_or(RENEWAL_UNKNOWN);
        let mut keys = assemble::agents(agents, wanted);
        assemble::add_switchovers(&mut keys, switchovers);
        assemble::add_pauses(&mut keys, pauses, SystemTime::now());
        keys.extend(assemble::locks(tickets, settled));
        keys.extend(assemble::leases(leases, epoch.as_deref().unwrap_or_default()));
        keys.retain(|status| wanted.is_empty() || wanted.iter().any(|name| is_about(status, name)));
        if let Some(is_enough) = is_enough.filter(|_| epoch.is_some()) {
            let read_took = sys::now().since(began);
            self.add_agents(&mut keys, wanted, read_took, is_enough, bucket)?;
        }
        let (bucket, not_asked) = (self.source.bucket.clone(), self.not_asked.clone());
        Ok(Status { schema: SCHEMA, bucket, epoch, not_asked, keys })
    }

    /// Asks the agents of these keys, and of those that are named, and adds what they say.
    fn add_agents(
        &mut self,
        keys: &mut Vec<KeyStatus>,
        wanted: &[String],
        read_took: Duration,
        is_enough: IsEnough<'_>,
        bucket: &mut dyn Bucket,
    ) -> Result<(), Refusal> {
        let of_agents = keys.iter().filter(|status| status.kind == Kind::Agent);
        let may_be = |key: &&String| name::valid_key(key).is_ok() && !name::is_own(key);
        let of_agents = of_agents.map(|status| &status.key).chain(wanted.iter().filter(may_be));
        let asked: BTreeSet<String> = of_agents.cloned().collect();
        let known = std::mem::take(&mut self.answered);
        let known = known.into_iter().chain(assemble::known_holders(keys)).collect();
        let wait = AnswerWait::new(asked.clone(), known, self.renewal, read_took, sys::now());
        let (said, not_asked) = agents::request(wait, bucket, self.source, self.looks, |said| {
            let mut all = keys.clone();
            assemble::add_agents(&mut all, said);
            all.retain(|status| is_enough(status));
            let is_lacking = |key: &&String| all.iter().all(|status| status.key != **key);
            asked.iter().filter(is_lacking).cloned().collect()
        })?;
        self.not_asked = not_asked;
        assemble::add_agents(keys, &said);
        note_lost_pauses(keys, bucket)?;
        self.answered = said.into_keys().collect();
        Ok(())
    }
}

/// Notes the keys whose agents are paused by a pause that the bucket has lost.
///
/// # Errors
///
/// Why the bucket was not read.
fn note_lost_pauses(keys: &mut [KeyStatus], bucket: &mut dyn Bucket) -> StoreResult<()> {
    for status in keys.iter_mut().filter(|status| status.paused.is_none()) {
        let observed: Vec<_> = status.agents.iter().filter(|agent| agent.paused).collect();
        if let Some(serial) = observed.iter().map(|agent| agent.pause).max() {
            // The pause may have begun or ended since the bucket was read.
            let read = pause::read(bucket, &status.key, sys::now().after(ANSWER_MAX))?;
            let tokens = observed.iter().map(|agent| &*agent.token).collect::<Vec<_>>().join(" ");
            let lost = format!("paused by a pause that the bucket has lost: {tokens}");
            status.lost_pause = Some(lost).filter(|_| read.pause.is_none() && read.serial < serial);
        }
    }
    Ok(())
}

/// Says that this user may not ask agents.
pub(crate) fn not_asked(why: &str) -> String {
    format!(
        "the agents cannot be asked what they do: {why}; see Rights in NATS in putex help theory"
    )
}

/// Returns the entries that are asked for, with their ages. Tickets for other names may block those
/// for the ones that are asked for.
fn entries(keys: &[String], bucket: &mut dyn Bucket, by: Instant) -> Result<Vec<Entry>, Refusal> {
    let is_of = |key: &str| {
        let is_seat = |name: &String| Seat::all(SEATS_MAX).any(|seat| seat.key(name) == key);
        keys.is_empty() || keys.iter().any(is_seat)
    };
    let is_wanted = |key: &str| match root(key) {
        "lock" | "lease" => true,
        "putex" => key.starts_with(name::SWITCHOVER_PREFIX) || key.starts_with(name::PAUSE_PREFIX),
        _ => !name::is_own(key) && is_of(key),
    };
    let selection = Selection::Below { prefix: "", wanted: &is_wanted };
    Ok(bucket.list(selection, by)?.entries)
}

/// Returns the first element of a key.
fn root(key: &str) -> &str {
    key.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
