//! Tickets as entries of a bucket.
//!
//! | header | value |
//! |---|---|
//! | `Putex-Ticket` | the ticket's number; absent in the first write, whose revision it is |
//! | `Putex-Mode` | `x` exclusive, `s` shared, `k4` one of four slots |
//! | `Putex-Slot` | the slot of a granted ticket |
//! | `Putex-Life` | T in milliseconds |
//! | `Putex-Incarnation`, `Putex-Nonce` | the owner, and the attempt that has written this |
//! | `Putex-Granted` | `yes` once the ticket was granted |
//! | `Putex-Stored-By` | ms since the epoch by which a renewal of `putex grab` has to be stored |
//! | `Putex-Runs-Out` | when it has run out for a host: its boot, and ms of its clock |
//! | `Putex-End` | why a ticket has ended; `KV-Operation: DEL` and the attempt stand beside it |
//!
//! The payload is the token. The entry of notes has `Putex-Seen` alone: [`Observed`].

use std::fmt::Display;
use std::time::Duration;

use super::super::lifetime::{LIFE, lifetime};
use super::super::name::TICKET_ROOT;
use super::super::{ATTEMPT, Content, Entry, OPERATION};
use crate::core::tickets::{Mode, Name, RunsOut, SLOTS_MAX, StoredTicket, Ticket, Unreadable};
use crate::core::time::{Instant, StoreTime};
use crate::core::{Incarnation, Observed, Revision, sanitize, sanitize_field};

const NUMBER: &str = "Putex-Ticket";
const MODE: &str = "Putex-Mode";
const SLOT: &str = "Putex-Slot";
const INCARNATION: &str = "Putex-Incarnation";
const END: &str = "Putex-End";
const GRANTED: &str = "Putex-Granted";
const STORED_BY: &str = "Putex-Stored-By";
const RUNS_OUT: &str = "Putex-Runs-Out";
const SEEN: &str = "Putex-Seen";

const YES: &str = "yes";

pub(super) fn to_notes(entry: Entry) -> (Revision, Observed) {
    (entry.revision, entry.content.header(SEEN).map(Observed::from_text).unwrap_or_default())
}

pub(super) fn notes_to_content(seen: &Observed) -> Content {
    Content::new([(SEEN, seen.to_text())], b"")
}

/// Why a ticket has ended that its owner has ended.
pub(super) const RELEASED: &str = "released";

/// Returns the last content of a ticket that this attempt ends, for this reason.
pub(super) fn tombstone(why: &str, attempt: u64) -> Content {
    let end = (END, sanitize(why));
    Content::new([(OPERATION, "DEL".to_owned()), end, (ATTEMPT, attempt.to_string())], b"")
}

pub(crate) fn to_content(ticket: &Ticket, number: Option<Revision>) -> Content {
    let mode = match ticket.mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared => "s".to_owned(),
        Mode::Slots(count) => format!("k{count}"),
    };
    let mut headers = vec![
        (MODE, mode),
        (LIFE, ticket.lifetime.as_millis().to_string()),
        (INCARNATION, ticket.incarnation.to_string()),
        (ATTEMPT, ticket.attempt.to_string()),
    ];
    headers.extend(ticket.slot.map(|slot| (SLOT, slot.to_string())));
    headers.extend(number.map(|number| (NUMBER, number.to_string())));
    if let Some(StoreTime(by)) = ticket.counts_if_stored_by {
        headers.push((STORED_BY, by.as_millis().to_string()));
    }
    if let Some(RunsOut { clock, at }) = &ticket.runs_out {
        let ms = at.since_boot().as_nanos().div_ceil(1_000_000);
        headers.push((RUNS_OUT, format!("{clock} {ms}")));
    }
    if ticket.is_granted {
        headers.push((GRANTED, YES.to_owned()));
    }
    Content::new(headers, ticket.token.as_bytes())
}

/// Converts an entry into a ticket; `None` if it has ended.
pub(crate) fn standing(entry: Entry) -> Option<StoredTicket> {
    let Entry { key, revision, content, .. } = entry;
    if content.is_tombstone() {
        return None;
    }
    let number = content.header(NUMBER).map_or(Ok(revision.0), str::parse);
    let (number, ticket) = match number {
        Ok(number) if number <= revision.0 => (number, from_content(&key, &content)),
        // A number is the revision of an earlier write.
        Ok(number) => (revision.0, Err(format!("its number {number} is above its revision"))),
        Err(_) => (revision.0, Err("its number is damaged".to_owned())),
    };
    let lifetime = || lifetime(&content);
    let ticket =
        ticket.map_err(|why| Unreadable { why: sanitize_field(&why), lifetime: lifetime() });
    Some(StoredTicket { key, revision, number: Revision(number), stored_at: None, ticket })
}

fn from_content(key: &str, content: &Content) -> Result<Ticket, String> {
    let header = |name: &str| content.header(name).ok_or_else(|| format!("{name} is missing"));
    let damaged = |name: &str| format!("{name} is damaged");
    let incarnation = u128::from_str_radix(header(INCARNATION)?, 16);
    let mode = mode(header(MODE)?).ok_or_else(|| damaged(MODE))?;
    let slot = content.header(SLOT).map(|slot| slot_of(mode, slot).ok_or_else(|| damaged(SLOT)));
    let by = content.header(STORED_BY).map(|by| by.parse().map_err(|_| damaged(STORED_BY)));
    let runs_out = content.header(RUNS_OUT);
    let runs_out = runs_out.map(|text| runs_out_of(text).ok_or_else(|| damaged(RUNS_OUT)));
    Ok(Ticket {
        name: name_of(key)?,
        mode,
        slot: slot.transpose()?,
        lifetime: lifetime(content).ok_or_else(|| damaged(LIFE))?,
        token: sanitize_field(&String::from_utf8_lossy(&content.payload)),
        incarnation: Incarnation(incarnation.map_err(|_| damaged(INCARNATION))?),
        attempt: header(ATTEMPT)?.parse().map_err(|_| damaged(ATTEMPT))?,
        is_granted: content.header(GRANTED) == Some(YES),
        counts_if_stored_by: by.transpose()?.map(|ms| StoreTime(Duration::from_millis(ms))),
        runs_out: runs_out.transpose()?,
    })
}

/// Returns the key of a ticket for a name.
pub(crate) fn key_of(name: &Name, last_element: impl Display) -> String {
    format!("{TICKET_ROOT}.{}.{last_element}", name.elements().join("."))
}

/// Returns the name in the key of a ticket.
pub(crate) fn name_of(key: &str) -> Result<Name, String> {
    let elements: Vec<&str> = key.split('.').collect();
    let [_, path @ .., _] = &elements[..] else {
        return Err("its key is not that of a ticket".to_owned());
    };
    Name::parse(&path.join("/"))
}

fn runs_out_of(text: &str) -> Option<RunsOut> {
    let (clock, ms) = text.split_once(' ').filter(|(clock, _)| !clock.is_empty())?;
    let at = Instant::from_boot(Duration::from_millis(ms.parse().ok()?));
    Some(RunsOut { clock: clock.to_owned(), at })
}

fn mode(text: &str) -> Option<Mode> {
    match text {
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        _ => {
            let count = text.strip_prefix('k')?.parse().ok()?;
            (1..=SLOTS_MAX).contains(&count).then_some(Mode::Slots(count))
        }
    }
}

fn slot_of(mode: Mode, text: &str) -> Option<u32> {
    let Mode::Slots(count) = mode else { return None };
    text.parse().ok().filter(|slot| *slot < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: &str) -> Ticket {
        Ticket {
            name: Name::parse(name).expect(name),
            mode: Mode::Slots(4),
            slot: Some(3),
            lifetime: Duration::from_secs(15),
            token: "alpha".to_owned(),
            incarnation: Incarnation(0xfeed),
            attempt: 7,
            is_granted: true,
            counts_if_stored_by: Some(StoreTime(Duration::from_millis(1_700_000_000_123))),
            runs_out: Some(RunsOut {
                clock: "boot".to_owned(),
                at: Instant::from_boot(Duration::from_millis(15_150)),
            }),
        }
    }

    fn entry(key: &str, revision: u64, content: Content) -> Entry {
        Entry { key: key.to_owned(), revision: Revision(revision), content, age: None }
    }

    #[test]
    fn a_ticket_survives_the_way_through_an_entry() {
        let one = ticket("db/users");
        let first = standing(entry("lock.db.users.0f", 5, to_content(&one, None))).expect("one");
        assert_eq!((first.number, first.ticket.as_ref()), (Revision(5), Ok(&one)));
        let content = to_content(&one, Some(Revision(5)));
        let later = standing(entry("lock.db.users.0f", 9, content)).expect("one");
        assert_eq!((later.number, later.revision), (Revision(5), Revision(9)));
    }

    #[test]
    fn a_forged_or_damaged_ticket_is_no_ticket_and_blocks_all() {
        let whole = to_content(&ticket("a"), Some(Revision(5)));
        // A damaged `Putex-Granted` says that the ticket was not granted, which costs time only.
        let is_needed = |at: &usize| whole.headers[*at].0 != GRANTED;
        for at in (0..whole.headers.len()).filter(is_needed) {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            let found = standing(entry("lock.a.0f", 9, damaged)).expect("it blocks");
            assert!(found.ticket.is_err(), "{:?}", whole.headers[at]);
        }
        let forged = to_content(&ticket("a"), Some(Revision(10)));
        let found = standing(entry("lock.a.0f", 9, forged)).expect("it blocks");
        let why = "its number 10 is above its revision".to_owned();
        let lifetime = Some(Duration::from_secs(15));
        assert_eq!(found.ticket, Err(Unreadable { why, lifetime }));
        let ended = Content::new([(OPERATION, "DEL".to_owned())], b"");
        assert_eq!(standing(entry("lock.a.0f", 9, ended)), None);
    }
}
