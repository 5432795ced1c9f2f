//! Names, modes and tickets: which tickets conflict, and which of them comes first.
//!
//! A ticket is one message of the bucket. Its number is the revision of its first write, so
//! tickets have one order for all clients. A ticket is granted when no earlier ticket conflicts
//! with it. Earlier tickets can only vanish: a ticket that is granted stays granted.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grab::marker_time;
use super::key::is_key_of_script;
use crate::core::record::{Incarnation, Revision};
use crate::core::time::{Instant, StoreTime};

/// Whether others may hold a name at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// A single holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// So many holders, each with a slot of its own. A ticket with another number of slots
    /// conflicts.
    Slots(u32),
}

impl Mode {
    /// Returns the name of the mode, for people and for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Slots(_) => "slots",
        }
    }
}

/// The name of a lock: a path of elements, as `db/users`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Vec<String>);

/// Most slots of a name.
pub const SLOTS_MAX: u32 = 1000;

/// Longest name.
const NAME_BYTES_MAX: usize = 150;

impl Name {
    /// Reads a name.
    ///
    /// # Errors
    ///
    /// Why the text is no name, and what to write.
    pub fn parse(text: &str) -> Result<Name, String> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '=');
        if text.is_empty() {
            return Err("is empty; write a name, as in db/users".into());
        }
        // Users of flock(1) lock a file.
        if text.starts_with('/') {
            let why = "a name is not the path of a file; write it without a slash in front";
            return Err(format!("{why}, as in db/users"));
        }
        let elements: Vec<String> = text.split('/').map(str::to_owned).collect();
        if elements.iter().any(String::is_empty) {
            return Err("write elements that are not empty between slashes, as in db/users".into());
        }
        if !elements.iter().flat_map(|element| element.chars()).all(is_valid) {
            return Err("write a-z, A-Z, 0-9, -, _ and = only, with / between".into());
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(format!("is longer than {NAME_BYTES_MAX} bytes"));
        }
        Ok(Name(elements))
    }

    /// Returns the elements of the name.
    pub fn elements(&self) -> &[String] {
        &self.0
    }

    /// Returns whether the other name is this one or below it.
    pub fn contains(&self, other: &Name) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Returns whether one of the two names contains the other.
    pub fn overlaps(&self, other: &Name) -> bool {
        self.contains(other) || other.contains(self)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// A ticket, by which a client asks for a lock or holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The name that is locked.
    pub name: Name,
    /// Whether others may hold the name at the same time.
    pub mode: Mode,
    /// The slot of a granted ticket, from 0; [`Mode::Slots`] only.
    pub slot: Option<u32>,
    /// T: others remove the ticket when it has not moved for so long, with their drift.
    pub lifetime: Duration,
    /// The token of the requester, for people.
    pub token: String,
    /// The process that owns the ticket.
    pub incarnation: Incarnation,
    /// The number of the attempt that has written this ticket: no two attempts of an owner share a
    /// number.
    pub attempt: u64,
    /// The ticket was granted, and stays granted as long as it stands: an earlier ticket that
    /// stands beside it had ended, and was restored by a killed server.
    pub is_granted: bool,
    /// A renewal for a script counts if it was stored by this time; `None` in all other writes. A
    /// later renewal may have replaced a ticket that a killed server has restored.
    pub counts_if_stored_by: Option<StoreTime>,
    /// When the ticket of a script has run out for the host that wrote it; `None` where its clock
    /// has no name.
    pub runs_out: Option<RunsOut>,
}

/// The instant after which nobody relies on a write of a ticket, by one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsOut {
    /// The name of the clock: the boot of a host.
    pub clock: String,
    /// The instant, with the drift.
    pub at: Instant,
}

impl Ticket {
    /// Returns a ticket that was never written and lasts as long as its process.
    pub fn new(name: Name, mode: Mode, token: String) -> Ticket {
        Ticket {
            name,
            mode,
            slot: None,
            lifetime: Duration::ZERO,
            token,
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
            counts_if_stored_by: None,
            runs_out: None,
        }
    }

    /// Returns whether the two tickets cannot be granted at the same time.
    ///
    /// A name includes all names below it. These are the intention modes of Gray, Lorie, Putzolu
    /// and Traiger, "Granularity of Locks and Degrees of Consistency in a Shared Data Base",
    /// 1976: a ticket for `a/b` has an intention on `a`, and intentions conflict with a ticket
    /// for `a` itself only. Tickets for slots of one name do not conflict: they are counted.
    pub fn conflicts(&self, other: &Ticket) -> bool {
        let both_shared = self.mode == Mode::Shared && other.mode == Mode::Shared;
        !both_shared && !self.shares_slots(other) && self.name.overlaps(&other.name)
    }

    /// Returns whether both are for slots of one name.
    pub(super) fn shares_slots(&self, other: &Ticket) -> bool {
        let has_slots = matches!(self.mode, Mode::Slots(_));
        has_slots && self.mode == other.mode && self.name == other.name
    }
}

/// A ticket that stands in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTicket {
    /// The key of the ticket.
    pub key: String,
    /// The revision of its last write.
    pub revision: Revision,
    /// The revision of its first write.
    pub number: Revision,
    /// When it was last written, where that was read.
    pub stored_at: Option<StoreTime>,
    /// The ticket, or why it cannot be read.
    pub ticket: Result<Ticket, Unreadable>,
}

/// A ticket that cannot be read: it is damaged, or that of a later version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Why it cannot be read.
    pub why: String,
    /// T, if that can be read.
    pub lifetime: Option<Duration>,
}

impl StoredTicket {
    /// Returns whether the ticket has to end before `own`, of this number, is granted. A ticket
    /// that cannot be read may be that of a later version: it comes first and conflicts with all.
    pub fn blocks(&self, own: &Ticket, number: Revision) -> bool {
        match &self.ticket {
            Ok(ticket) => self.number < number && (ticket.conflicts(own) || self.is_of_script(own)),
            Err(_) => true,
        }
    }

    /// Returns whether the ticket is of the script that has `own`, for a name that overlaps. Of two
    /// such tickets one is granted at most, whatever their modes: the number of the second is told
    /// only when the first cannot be continued any more.
    pub(super) fn is_of_script(&self, own: &Ticket) -> bool {
        let is_its = |it: &Ticket| it.incarnation == own.incarnation && it.name.overlaps(&own.name);
        is_key_of_script(&self.key) && self.ticket.as_ref().is_ok_and(is_its)
    }

    /// Returns whether the ticket of a script has run out at this time: its last write is older
    /// than its lifetime, was stored too late to count, or has no known time.
    pub fn has_run_out(&self, at: Option<StoreTime>) -> bool {
        let (Ok(ticket), Some(stored_at), Some(at)) = (&self.ticket, self.stored_at, at) else {
            return true;
        };
        let is_first = self.number == self.revision;
        let is_in_time = is_first || ticket.counts_if_stored_by.is_some_and(|by| stored_at <= by);
        !is_in_time || at >= stored_at.after(ticket.lifetime)
    }

    /// Returns whether the ticket has run out by the clocks of all servers: one may be ahead by the
    /// ticket's lifetime and [`CLOCKS_MARGIN`](super::grab::CLOCKS_MARGIN).
    pub fn has_run_out_everywhere(&self, at: Option<StoreTime>) -> bool {
        self.is_older_than(marker_time, at)
    }

    /// Returns whether the last write is older than `age`, a function of the lifetime, at this
    /// time; `false` where one of them is not known.
    pub fn is_older_than(&self, age: impl Fn(Duration) -> Duration, at: Option<StoreTime>) -> bool {
        let (Ok(ticket), Some(stored_at), Some(at)) = (&self.ticket, self.stored_at, at) else {
            return false;
        };
        at >= stored_at.after(age(ticket.lifetime))
    }

    /// Returns whether the ticket had ended, and was restored by a killed server: a later one of
    /// `others` that conflicts was granted.
    pub fn had_ended(&self, others: &[StoredTicket]) -> bool {
        let is_after = |other: &StoredTicket| {
            let granted = other.ticket.as_ref().ok().filter(|it| it.is_granted);
            self.ticket.is_ok() && granted.is_some_and(|it| self.blocks(it, other.number))
        };
        others.iter().any(is_after)
    }

    /// Describes the owner of the ticket for people.
    pub fn describe(&self) -> String {
        match &self.ticket {
            Ok(Ticket { token, mode: Mode::Shared, .. }) => format!("{token}, shared"),
            Ok(Ticket { token, mode: Mode::Exclusive | Mode::Slots(_), .. }) => token.clone(),
            Err(Unreadable { why, .. }) => {
                format!("a ticket that cannot be read, {}: {why}", self.key)
            }
        }
    }
}

#[cfg(test)]
impl Ticket {
    /// Returns an exclusive ticket of alpha for 15 s, which has seen nothing.
    pub(crate) fn sample(name: &str) -> Ticket {
        Ticket {
            name: Name::parse(name).expect("a name"),
            mode: Mode::Exclusive,
            slot: None,
            lifetime: Duration::from_secs(15),
            token: "alpha".to_owned(),
            incarnation: Incarnation(1),
            attempt: 1,
            is_granted: false,
            counts_if_stored_by: None,
            runs_out: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: &str, mode: Mode) -> Ticket {
        Ticket { mode, ..Ticket::sample(name) }
    }

    /// The lock that a ticket for `name` has on `node` with intention modes: none, or whether
    /// it is an intention and whether it is shared.
    fn intention(name: &[usize], mode: Mode, node: &[usize]) -> Option<(bool, bool)> {
        name.starts_with(node).then_some((name.len() > node.len(), mode == Mode::Shared))
    }

    /// IS, IX, S, X: compatible are all intentions with each other, and S with S and IS.
    fn compatible(
        (a_intends, a_shared): (bool, bool),
        (b_intends, b_shared): (bool, bool),
    ) -> bool {
        a_intends && b_intends || a_shared && b_shared
    }

    #[test]
    fn tickets_conflict_as_the_intention_modes_say_over_all_names_of_a_tree() {
        let mut nodes: Vec<Vec<usize>> = vec![vec![]];
        for length in 0..3 {
            let longer: Vec<_> =
                nodes.iter().filter(|node| node.len() == length).cloned().collect();
            for node in longer {
                nodes.extend((0..3).map(|at| [&node[..], &[at]].concat()));
            }
        }
        let names: Vec<_> = nodes.iter().filter(|node| !node.is_empty()).collect();
        let text = |name: &[usize]| name.iter().map(usize::to_string).collect::<Vec<_>>().join("/");
        let mut conflicts = 0;
        for a in &names {
            for b in &names {
                for (a_mode, b_mode) in [
                    (Mode::Exclusive, Mode::Exclusive),
                    (Mode::Exclusive, Mode::Shared),
                    (Mode::Shared, Mode::Exclusive),
                    (Mode::Shared, Mode::Shared),
                ] {
                    let by_intention = nodes.iter().any(|node| {
                        let locks = (intention(a, a_mode, node), intention(b, b_mode, node));
                        matches!(locks, (Some(x), Some(y)) if !compatible(x, y))
                    });
                    let one = ticket(&text(a), a_mode);
                    let found = one.conflicts(&ticket(&text(b), b_mode));
                    assert_eq!(found, by_intention, "{a:?} {a_mode:?} {b:?} {b_mode:?}");
                    conflicts += u32::from(found);
                }
            }
        }
        assert!(conflicts > 100, "{conflicts}");
    }

    #[test]
    fn names_that_a_subject_or_a_path_would_change_are_refused() {
        for good in ["a", "db/users", "x_1/y-2/z=3"] {
            assert_eq!(Name::parse(good).expect(good).to_string(), good);
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "/a", "a/", "a//b", "a.b", "a b", "a,b", "*", "a/>", "ä", &long] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }
}
