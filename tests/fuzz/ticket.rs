//! Tickets of `putex lock`, as NATS hands them out.

use std::time::Duration;

use super::assert_one_line;
use crate::core::observed::Observed;
use crate::core::record::{Incarnation, Revision};
use crate::core::tickets::{Decision, Mode, Name, SLOTS_MAX, StoredTicket, Ticket, decide};
use crate::core::timing::{COUNT_MAX, R_MAX};
use crate::nats::Headers;
use crate::nats::encode;
use crate::store::nats::{answer, write::sendable};
use crate::store::tickets::entry::{standing, to_content};
use crate::store::{Content, Entry};

const NUMBER: Revision = Revision(7);

/// A header block with the token behind it, under the keys of a ticket for one name, for several,
/// and under none of these: a block that is taken for a ticket can be written and is then read the
/// same. Any other block keeps every ticket waiting, and says why in a line. The notes of a host,
/// too, can be written as they were read.
pub fn ticket(data: &[u8]) -> bool {
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    let (block, payload) = data.split_at(end.map_or(data.len(), |at| at + 4));
    let content = answer::content(&Headers::parse(block), payload);
    // The notes of a host are in such a header alone.
    if let Some(text) = content.header("Putex-Seen") {
        let seen = Observed::from_text(text);
        assert_eq!(Observed::from_text(&seen.to_text()), seen);
    }
    let mut is_ticket = false;
    for key in ["lock.a.0f", "lock.a.b.0f", "lock._.0f", "lock.0f", "lock.a b.0f"] {
        let Some(found) = stands(key, content.clone()) else { continue };
        assert!(found.number <= NUMBER && found.revision == NUMBER);
        // The bytes of a token are shown as they are but for control characters.
        assert_one_line(&found.describe());
        match &found.ticket {
            Ok(ticket) => {
                is_ticket = true;
                survives(key, &found, ticket);
            }
            Err(unreadable) => {
                assert!(unreadable.lifetime.is_none_or(|lifetime| lifetime <= R_MAX * COUNT_MAX));
                blocks_all(&found);
            }
        }
    }
    is_ticket
}

fn stands(key: &str, content: Content) -> Option<StoredTicket> {
    standing(Entry { key: key.to_owned(), revision: NUMBER, content, age: None })
}

fn survives(key: &str, found: &StoredTicket, ticket: &Ticket) {
    assert!(ticket.lifetime <= R_MAX * COUNT_MAX);
    if let Mode::Slots(count) = ticket.mode {
        assert!((1..=SLOTS_MAX).contains(&count));
        assert!(ticket.slot.is_none_or(|slot| slot < count));
    } else {
        assert_eq!(ticket.slot, None);
    }
    let content = to_content(ticket, Some(found.number));
    let written = encode::publish("$KV.locks.x", None, &sendable(&content), &content.payload);
    written.expect("a ticket can always be written");
    let again = stands(key, content).expect("it stands");
    assert_eq!(&again, found);
}

/// A ticket of a later version may be for any name.
fn blocks_all(found: &StoredTicket) {
    let own = Ticket {
        name: Name::parse("elsewhere").expect("a name"),
        mode: Mode::Shared,
        slot: None,
        lifetime: Duration::from_secs(15),
        token: "alpha".to_owned(),
        incarnation: Incarnation(1),
        attempt: 1,
        is_granted: false,
        counts_if_stored_by: None,
        runs_out: None,
    };
    for number in [1, 100] {
        let decision = decide(&own, Revision(number), std::slice::from_ref(found));
        assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
    }
}
