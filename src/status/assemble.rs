//! The status of a bucket, from its entries. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::agents::Said;
use super::answer_wait::Known;
use super::model::{
    Bounds, Holder, HolderState, KeyStatus, Kind, PauseStatus, SwitchoverStatus, TimingStatus,
};
use crate::core::agent_status::seconds;
use crate::core::lease::StoredLease;
use crate::core::tickets::{self, Decision, StoredTicket, Ticket};
use crate::core::timing::{lengthened, shortened};
use crate::core::{
    AgentStatus, DRIFT_PPM_DEFAULT, Lease, Ms, RecordState, Seat, Timing, sanitize_field,
};
use crate::store::lock_key::to_key_state;
use crate::store::name::PAUSE_PREFIX;
use crate::store::pause::{self, StoredPause};
use crate::store::tickets::entry::standing;
use crate::store::{Entry, leases, switchover};

/// A ticket, and how long ago it was written if the store tells.
type Aged = (StoredTicket, Option<Duration>);

/// Returns the keys of agents with what stands under them: those of entries that an agent has
/// written, and those that are named.
pub(super) fn agents(entries: Vec<Entry>, named: &[String]) -> Vec<KeyStatus> {
    let is_of_agent = |entry: &Entry| to_key_state(Some(entry.clone())).value.lease().is_some();
    let is_shown = |entry: &Entry| is_of_agent(entry) || named.contains(&entry.key);
    let shown = entries.into_iter().filter(is_shown);
    let found: BTreeMap<String, Entry> = shown.map(|entry| (entry.key.clone(), entry)).collect();
    let seat_of = |key: &str| {
        let (first, number) = key.rsplit_once('.')?;
        let seat = Seat(number.parse().ok()?);
        (found.contains_key(first) && seat.key(first) == key).then(|| (first.to_owned(), seat))
    };
    let mut groups: BTreeMap<String, BTreeMap<Seat, &Entry>> = BTreeMap::new();
    for (key, entry) in &found {
        let (group, seat) = seat_of(key).unwrap_or((key.clone(), Seat(0)));
        groups.entry(group).or_default().insert(seat, entry);
    }
    let status = |(key, seats): (String, BTreeMap<Seat, &Entry>)| {
        let has_seats = seats.len() > 1;
        let holder = |(seat, entry)| agent(entry, has_seats.then_some(seat));
        let holders = seats.into_iter().filter_map(holder).collect();
        KeyStatus::new(key, Kind::Agent, holders, Vec::new())
    };
    groups.into_iter().map(status).collect()
}

/// Adds the requests that stand to move services to the status of their keys.
pub(super) fn add_switchovers(keys: &mut [KeyStatus], entries: Vec<Entry>) {
    for entry in entries {
        let standing = entry.age.and_then(|_| switchover::standing(&entry));
        let Some((request, left)) = standing else { continue };
        let of = |status: &&mut KeyStatus| {
            status.kind == Kind::Agent && switchover::key_of(&status.key, request.seat) == entry.key
        };
        let Some(status) = keys.iter_mut().find(of) else { continue };
        let is_of = |holder: &Holder| {
            holder.term == Some(request.term.0) && holder.seat.unwrap_or(0) == request.seat.0
        };
        // A request is for one lock of one holder.
        if !status.holders.iter().any(is_of) {
            continue;
        }
        status.switchover = Some(SwitchoverStatus {
            seat: request.seat.0,
            from: request.from,
            to: sanitize_field(&request.to),
            by: request.by,
            expires_in_seconds: seconds(left),
        });
    }
}

/// Adds the pauses that stand to the status of their keys; `time` is the present one.
pub(super) fn add_pauses(keys: &mut Vec<KeyStatus>, entries: Vec<Entry>, time: SystemTime) {
    for entry in entries {
        let Some(key) = entry.key.strip_prefix(PAUSE_PREFIX) else { continue };
        // As the agents take it, also where the store does not tell the age.
        let standing = pause::standing(&entry);
        let Some((StoredPause { by, reason, .. }, left)) = standing else { continue };
        of_agents(keys, key).paused = Some(PauseStatus {
            until: humantime::format_rfc3339_seconds(time + left).to_string(),
            expires_in_seconds: seconds(left),
            by,
            reason,
            serial: pause::serial_of(&entry.content),
        });
    }
}

/// Returns the status of the agents of a key, which is added if it is not there.
fn of_agents<'a>(keys: &'a mut Vec<KeyStatus>, key: &str) -> &'a mut KeyStatus {
    let is_of = |status: &KeyStatus| status.kind == Kind::Agent && status.key == key;
    let at = keys.iter().position(is_of).unwrap_or(keys.len());
    if at == keys.len() {
        keys.push(KeyStatus::new(key.to_owned(), Kind::Agent, Vec::new(), Vec::new()));
    }
    &mut keys[at]
}

/// Adds what agents say of themselves to the status of their keys. A key that nobody has ever held
/// is added for them.
pub(super) fn add_agents(keys: &mut Vec<KeyStatus>, said: &Said) {
    for (Known { key, .. }, status) in said {
        of_agents(keys, key).agents.push(status.clone());
    }
    for known in keys.iter_mut() {
        let order = |it: &AgentStatus| {
            let (seat, term) = (it.seat.unwrap_or(u32::MAX), it.term.is_none());
            (term, seat, it.token.clone(), it.incarnation.clone())
        };
        known.agents.sort_by_key(order);
    }
    keys.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
}

/// Returns the largest R that records of agents tell, if one does.
pub(super) fn largest_renewal(entries: &[Entry]) -> Option<Duration> {
    let renewal = |entry: &Entry| {
        Some(timing_of(to_key_state(Some(entry.clone())).value.lease()?)?.renewal())
    };
    entries.iter().filter_map(renewal).max()
}

/// Returns R, F and C of a record, if they can be those of an agent.
fn timing_of(lease: &Lease) -> Option<Timing> {
    let Lease { renewal, failures, confirmations, .. } = *lease;
    Timing::new(renewal, failures, confirmations, DRIFT_PPM_DEFAULT).ok()
}

/// Returns the agents of keys that are known to be there: they hold a lock.
pub(super) fn known_holders(keys: &[KeyStatus]) -> impl Iterator<Item = Known> {
    let of_agents = keys.iter().filter(|status| status.kind == Kind::Agent);
    of_agents.flat_map(|status| {
        // Agents of putex 0.2.0 have no times in their records, and never answer.
        let holders = status.holders.iter().filter(|holder| holder.timing.is_some());
        holders.map(|it| Known { key: status.key.clone(), name: it.token.clone() })
    })
}

/// Returns the agent that holds a key; `None` if nobody does.
fn agent(entry: &Entry, seat: Option<Seat>) -> Option<Holder> {
    let key_state = to_key_state(Some(entry.clone()));
    let record = key_state.value.holder()?;
    let lease = record.lease.as_ref();
    let timing = lease.and_then(timing_of);
    let lock = timing
        .zip(lease)
        .map(|(timing, lease)| (lease.lock_time(), timing.takeover_wait(lease.lock_time())));
    let state = match lease.map(|lease| lease.state) {
        Some(RecordState::Taking) => HolderState::Taking,
        Some(RecordState::Active | RecordState::Released) | None => HolderState::Active,
    };
    let (number, host) = (entry.revision, lease.map(|lease| sanitize_field(&lease.host)));
    Some(Holder {
        host: host.filter(|host| !host.is_empty()),
        seat: seat.map(|Seat(number)| number),
        priority: lease.map(|lease| lease.priority.to_string()),
        term: lease.map(|lease| lease.term.unwrap_or(number).0),
        timing: timing.map(TimingStatus::of),
        remark: lease.is_none().then(|| "not written by putex 0.3 or later".to_owned()),
        ..holder(&record.token, state, entry.age, lock)
    })
}

/// Returns a holder of which no more is known, which is overdue if it has run out. `lock`: how long
/// after its last write others may have the name, at least and at most.
fn holder(
    token: &str,
    state: HolderState,
    age: Option<Duration>,
    lock: Option<(Duration, Duration)>,
) -> Holder {
    let is_overdue = has_run_out(lock, age);
    Holder {
        token: sanitize_field(token),
        state: if is_overdue { HolderState::Overdue } else { state },
        renewed_age_seconds: age.map(seconds),
        expires_in_seconds: lock.zip(age).map(|((least, most), age)| Bounds {
            min: seconds(least.saturating_sub(age)),
            max: seconds(most.saturating_sub(age)),
        }),
        ..Holder::default()
    }
}

/// Returns the names of locks that tickets stand for, with those who hold and wait. `settled`: so
/// long the tickets of a lost bucket were waited for; a ticket that lasts longer is not granted.
pub(super) fn locks(entries: Vec<Entry>, settled: Duration) -> Vec<KeyStatus> {
    let ticket = |entry: Entry| {
        let age = entry.age;
        Some((standing(entry)?, age))
    };
    let tickets: Vec<Aged> = entries.into_iter().filter_map(ticket).collect();
    let standing: Vec<StoredTicket> = tickets.iter().map(|(ticket, _)| ticket.clone()).collect();
    // A ticket that is over waits for no other that is over: owners that were killed left them all.
    let is_over = |(stored, age): &Aged| {
        let is_old = |ticket: &Ticket| has_run_out(lasts(ticket), *age);
        stored.ticket.as_ref().is_ok_and(is_old) || stored.had_ended(&standing)
    };
    let live = tickets.iter().filter(|aged| !is_over(aged));
    let live: Vec<StoredTicket> = live.map(|(ticket, _)| ticket.clone()).collect();
    let mut found: BTreeMap<String, (Vec<Holder>, Vec<Holder>)> = BTreeMap::new();
    for aged in &tickets {
        let (stored, age) = aged;
        let ticket = match &stored.ticket {
            Ok(ticket) => ticket,
            Err(why) => {
                // Such a ticket blocks all names with the first element of its own.
                let element = stored.key.split('.').nth(1).unwrap_or("?");
                let holder = holder("?", HolderState::Unreadable, *age, None);
                let remark = Some(format!("{}: {}", stored.key, why.why));
                let (holders, _) = found.entry(element.to_owned()).or_default();
                holders.push(Holder { remark, ..holder });
                continue;
            }
        };
        let is_over = is_over(aged);
        let others = if is_over { &live } else { &standing };
        let others: Vec<_> =
            others.iter().filter(|other| other.key != stored.key).cloned().collect();
        let is_young = ticket.lifetime > settled;
        let blockers = match tickets::decide(ticket, stored.number, &others) {
            Decision::Granted | Decision::Slot(_) if is_young => {
                Some((1, "for the bucket, which is new or was lost".to_owned()))
            }
            Decision::Granted | Decision::Slot(_) => None,
            Decision::Wait { blockers, .. } => {
                let ahead = blockers.len() + usize::from(is_young);
                Some((ahead, tickets::decision::describe(&blockers, None)))
            }
        };
        let (holders, waiters) = found.entry(ticket.name.to_string()).or_default();
        let holder = lock_holder(stored, ticket, *age, is_over);
        match blockers {
            None => holders.push(holder),
            Some((ahead, why)) => waiters.push(Holder {
                ahead: Some(ahead),
                state: if is_over { HolderState::Overdue } else { HolderState::Waiting },
                remark: Some(why),
                ..holder
            }),
        }
    }
    let status = |(name, (mut holders, mut waiters)): (String, (Vec<Holder>, Vec<Holder>))| {
        holders.sort_by_key(|holder| (holder.slot, holder.term));
        waiters.sort_by_key(|waiter| waiter.term);
        KeyStatus::new(name, Kind::Lock, holders, waiters)
    };
    found.into_iter().map(status).collect()
}

/// Returns how long a ticket lasts, at least and at most. A ticket in a directory ends with its
/// processes, and says no time.
fn lasts(ticket: &Ticket) -> Option<(Duration, Duration)> {
    let lifetime = Some(ticket.lifetime).filter(|lifetime| !lifetime.is_zero());
    lifetime.map(|lifetime| (lifetime, lengthened(lifetime, DRIFT_PPM_DEFAULT)))
}

fn has_run_out(lock: Option<(Duration, Duration)>, age: Option<Duration>) -> bool {
    lock.zip(age).is_some_and(|((_, most), age)| age > most)
}

/// `is_over`: it has run out, or had ended and was restored.
fn lock_holder(
    stored: &StoredTicket,
    ticket: &Ticket,
    age: Option<Duration>,
    is_over: bool,
) -> Holder {
    let lock = lasts(ticket);
    let state = if is_over { HolderState::Overdue } else { HolderState::Active };
    let left = lock.filter(|_| is_over).map(|(_, most)| {
        let most = Ms(most);
        format!("neither renewed nor released in time: who comes next waits {most} for it")
    });
    Holder {
        mode: Some(ticket.mode.name()),
        slot: ticket.slot,
        term: Some(stored.number.0),
        remark: left,
        ..holder(&ticket.token, state, age, lock)
    }
}

/// Returns the leases of entries in the bucket with this random id.
pub(super) fn leases(entries: Vec<Entry>, epoch: &str) -> Vec<KeyStatus> {
    let lease = |entry: Entry| {
        let age = entry.age;
        let (name, StoredLease { revision, lease, .. }) = leases::of_entry(entry, epoch)?;
        let holder = match lease? {
            Ok(lease) => {
                let least = shortened(lease.duration, DRIFT_PPM_DEFAULT);
                let lasts = Some((least, lengthened(lease.duration, DRIFT_PPM_DEFAULT)));
                let holder = holder(&lease.holder, HolderState::Active, age, lasts);
                Holder { term: Some(lease.term_at(revision).0), ..holder }
            }
            Err(why) => {
                let holder = holder("?", HolderState::Unreadable, age, None);
                Holder { remark: Some(why), ..holder }
            }
        };
        Some(KeyStatus::new(name.to_string(), Kind::Lease, vec![holder], Vec::new()))
    };
    entries.into_iter().filter_map(lease).collect()
}

#[cfg(test)]
mod tests;
