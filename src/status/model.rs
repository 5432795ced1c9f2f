//! The object of JSON that `putex status` shows. No member is ever absent: `null` stands for a
//! value that is not known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::core::agent_status::seconds;
use crate::core::text::display_as_json;
use crate::core::{AgentState, AgentStatus, DRIFT_PPM_DEFAULT, Timing};

/// The number of this form. A form that is not an extension of it has another number.
pub(super) const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Status {
    pub(super) schema: u32,
    /// The bucket.
    pub bucket: String,
    /// Its random id; `None` if it does not exist, or nothing has written to it.
    pub epoch: Option<String>,
    /// Why the agents could not be asked what they do, if so.
    pub not_asked: Option<String>,
    /// The locks of agents, the locks of commands and scripts, and the leases, in this order.
    pub keys: Vec<KeyStatus>,
}

/// The kind of the users of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Agents: it is their key.
    Agent,
    /// `putex lock` and `putex grab`.
    Lock,
    /// `putex lease`.
    Lease,
}

/// The status of a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyStatus {
    /// The name: the key of agents, or the name of a lock or lease.
    pub key: String,
    /// The kind of its users.
    pub kind: Kind,
    /// Whether somebody holds it.
    pub state: KeyState,
    /// The holders of the name.
    pub holders: Vec<Holder>,
    /// The waiters for the name, in the order in which they get it.
    pub waiters: Vec<Holder>,
    /// The answers of the agents of this key about themselves.
    pub agents: Vec<AgentStatus>,
    /// The request that stands to move the service.
    pub switchover: Option<SwitchoverStatus>,
    /// The pause that stands.
    pub paused: Option<PauseStatus>,
    /// Which agents are paused by a pause that the bucket has lost, for people.
    #[serde(skip)]
    pub(crate) lost_pause: Option<String>,
}

impl KeyStatus {
    /// Returns the status of a name of which no more is known. Somebody holds it where somebody
    /// waits: nobody else gets it. A lock or lease that has run out is free.
    pub(crate) fn new(
        key: String,
        kind: Kind,
        holders: Vec<Holder>,
        waiters: Vec<Holder>,
    ) -> KeyStatus {
        let is_over = |it: &Holder| kind != Kind::Agent && it.state == HolderState::Overdue;
        let is_free = waiters.is_empty() && holders.iter().all(is_over);
        let state = if is_free { KeyState::Free } else { KeyState::Held };
        let (agents, switchover, paused, lost_pause) = (Vec::new(), None, None, None);
        KeyStatus { key, kind, state, holders, waiters, agents, switchover, paused, lost_pause }
    }

    /// Returns how many agents there are to be, if fewer have answered.
    pub(crate) fn agents_due(&self) -> Option<u32> {
        let due = self.agents.iter().filter_map(|agent| agent.agents).max()?;
        (self.agents.len() < due as usize).then_some(due)
    }

    /// Returns the holders that hold it: a lock or lease that has run out is held by nobody.
    pub(super) fn standing_holders(&self) -> impl Iterator<Item = &Holder> {
        let stands =
            |holder: &&Holder| self.kind == Kind::Agent || holder.state != HolderState::Overdue;
        let is_held = self.state == KeyState::Held;
        self.holders.iter().filter(stands).filter(move |_| is_held)
    }

    /// Returns the answer of an agent with this token, if there is one.
    pub(crate) fn agent(&self, token: &str) -> Option<&AgentStatus> {
        self.agents.iter().find(|agent| agent.token == token)
    }

    /// Returns the tokens that more than one agent has, with the host of each incarnation.
    pub(crate) fn twins(&self) -> BTreeMap<&str, BTreeMap<&str, &str>> {
        let mut hosts: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for agent in &self.agents {
            hosts.entry(&agent.token).or_default().insert(&agent.incarnation, &agent.host);
        }
        hosts.retain(|_, instances| instances.len() > 1);
        hosts
    }

    /// Returns what shows that more agents are active than there are seats: their tokens, or those
    /// of agents that have different buckets of one name.
    pub(crate) fn too_many(&self) -> Option<String> {
        let seats = self.agents.iter().map(|agent| agent.seats).max()?;
        let active = self.agents.iter().filter(|agent| agent.state == AgentState::Active);
        let active: Vec<_> = active.map(|agent| &*agent.token).collect();
        let open = self.agents.iter().filter(|agent| !agent.epoch.is_empty());
        let epochs: BTreeSet<_> = open.clone().map(|agent| &*agent.epoch).collect();
        if active.len() > seats as usize {
            let tokens = active.join(" ");
            return Some(format!(
                "{} agents are active, of {seats} seat(s): {tokens}",
                active.len()
            ));
        }
        (epochs.len() > 1).then(|| {
            let of: Vec<_> = open.map(|agent| format!("{} {}", agent.token, agent.epoch)).collect();
            format!("agents have different buckets of this name: {}", of.join(", "))
        })
    }
}

/// A request that stands to move the service of agents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwitchoverStatus {
    /// The seat.
    pub seat: u32,
    /// The token of the holder that is to give its lock.
    pub from: String,
    /// The token of the agent that is to have it.
    pub to: String,
    /// The requester of the switchover.
    pub by: String,
    /// For how much longer the holder may begin.
    pub expires_in_seconds: f64,
}

/// A pause of agents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseStatus {
    /// When it ends by itself, by the clocks of the store and of this host, as RFC 3339 has it.
    pub until: String,
    /// For how much longer it lasts.
    pub expires_in_seconds: f64,
    /// The requester of the pause.
    pub by: String,
    /// The reason that was given, which may be blank.
    pub reason: String,
    /// The serial number of the pause, which the agents acknowledge.
    pub serial: u64,
}

/// Whether somebody holds a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Somebody does, or nobody else may have it yet.
    Held,
    /// Nobody does.
    Free,
}

/// How far a holder, or a ticket that waits, has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderState {
    /// An agent has taken the lock, and does not run the service yet.
    Taking,
    /// An agent holds the lock, and runs the service; or somebody has a lock or a lease.
    #[default]
    Active,
    /// A ticket waits for a lock.
    Waiting,
    /// The entry was not renewed for so long that others may have the name: its owner seems to be
    /// gone.
    Overdue,
    /// The entry cannot be read: it is damaged, or was written by something else.
    Unreadable,
}

/// A holder of a name, or a waiter for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Holder {
    /// The token of an agent, or the owner of a lock or a lease, or of a ticket that waits for it.
    pub token: String,
    /// The host of an agent.
    pub host: Option<String>,
    /// The seat of an agent, from 0.
    pub seat: Option<u32>,
    /// The priority of an agent: 1 to 15, or `never`.
    pub priority: Option<String>,
    /// The mode of a lock.
    pub mode: Option<&'static str>,
    /// The slot of a lock that has slots, from 0.
    pub slot: Option<u32>,
    /// How many come before a ticket that waits.
    #[serde(rename = "place")]
    pub ahead: Option<usize>,
    /// How far it has got.
    pub state: HolderState,
    /// The number of its take, grant or claim.
    pub term: Option<u64>,
    /// How long ago it was written last, by the clock of the store.
    pub renewed_age_seconds: Option<f64>,
    /// When others may have it, or remove the ticket that waits, unless it is written again, by
    /// the clock of the store.
    pub expires_in_seconds: Option<Bounds>,
    /// R, F and C of an agent.
    pub timing: Option<TimingStatus>,
    /// The fault of the entry, or what a ticket waits for.
    pub remark: Option<String>,
}

/// Bounds of a time that is not known more precisely.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Not before.
    pub min: f64,
    /// Not after.
    pub max: f64,
}

/// R, F and C of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimingStatus {
    /// R.
    pub renewal_seconds: f64,
    /// F.
    pub failures: u32,
    /// C.
    pub confirmations: u32,
}

impl TimingStatus {
    pub(crate) fn of(timing: Timing) -> TimingStatus {
        TimingStatus {
            renewal_seconds: seconds(timing.renewal()),
            failures: timing.failures(),
            confirmations: timing.confirmations(),
        }
    }

    /// Returns them with the default drift, if they can be those of an agent.
    pub(crate) fn timing(self) -> Option<Timing> {
        let renewal = Duration::from_secs_f64(self.renewal_seconds);
        Timing::new(renewal, self.failures, self.confirmations, DRIFT_PPM_DEFAULT).ok()
    }
}

display_as_json! { Kind KeyState HolderState }

#[cfg(test)]
mod tests;
