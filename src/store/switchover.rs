//! The request of an operator, or of an agent with failback, that a lock goes to another agent, as
//! an entry of a [`Bucket`].
//!
//! | key | entry |
//! |---|---|
//! | `putex.switchover.<key>` | the last request for a seat, by the key of that, or a tombstone |
//!
//! | header | value |
//! |---|---|
//! | `Putex-Seat` | decimal |
//! | `Putex-Term` | the term of the lock that is to go |
//! | `Putex-Life` | for how many milliseconds it may be begun |
//! | `Putex-Nonce` | decimal: by it, the writer of a request knows it |
//! | `Putex-From`, `Putex-By` | the holder, and who has requested it, for people |
//!
//! The payload is the token of the agent that is to have the lock. The request lasts by the clock
//! of the store: it may be read long after it was written.

use std::time::Duration;

use super::lifetime::{LIFE, left_of, lifetime, read_with_age};
use super::name::{SWITCHOVER_PREFIX, valid_token};
use super::{ATTEMPT, Bucket, Content, Entry, StoreResult};
use crate::core::{
    Instant, Revision, Seat, Switchover, SwitchoverRequest, sanitize, sanitize_field,
};
use crate::sys;

const SEAT: &str = "Putex-Seat";
const TERM: &str = "Putex-Term";
const FROM: &str = "Putex-From";
const BY: &str = "Putex-By";

/// Returns the key of the requests for a seat of the agents of a key.
pub(crate) fn key_of(key: &str, seat: Seat) -> String {
    format!("{SWITCHOVER_PREFIX}{}", seat.key(key))
}

/// Converts a request into the content of its entry.
pub(crate) fn to_content(switchover: &Switchover) -> Content {
    let Switchover { seat, term, from, to, lasts, by, number } = switchover;
    let headers = [
        (SEAT, seat.to_string()),
        (TERM, term.to_string()),
        (LIFE, lasts.as_millis().to_string()),
        (ATTEMPT, number.to_string()),
        (FROM, sanitize(from)),
        (BY, sanitize(by)),
    ];
    Content::new(headers, to.as_bytes())
}

/// Converts the content of an entry into a request; `None` if it is over, or none.
pub(crate) fn from_content(content: &Content) -> Option<Switchover> {
    if content.is_tombstone() {
        return None;
    }
    let text = |name: &str| content.header(name).map(sanitize_field).unwrap_or_default();
    Some(Switchover {
        seat: Seat(content.header(SEAT)?.parse().ok()?),
        term: Revision(content.header(TERM)?.parse().ok()?),
        from: text(FROM),
        to: valid_token(str::from_utf8(&content.payload).ok()?).ok()?,
        lasts: lifetime(content)?,
        by: text(BY),
        number: content.attempt()?,
    })
}

/// Returns the request in an entry, and how long it lasts still; `None` if it is over.
pub(crate) fn standing(entry: &Entry) -> Option<(Switchover, Duration)> {
    let switchover = from_content(&entry.content)?;
    left_of(switchover.lasts, entry).map(|left| (switchover, left))
}

/// Reads the request for a seat of the agents of a key as its holder is to follow it; `None` if
/// there is none, or it is over.
///
/// # Errors
///
/// When there was no answer by the deadline.
pub(crate) fn read(
    bucket: &mut dyn Bucket,
    key: &str,
    seat: Seat,
    deadline: Instant,
) -> StoreResult<Option<SwitchoverRequest>> {
    let began = sys::now();
    let found = read_with_age(bucket, &key_of(key, seat), deadline)?;
    let request = |(Switchover { seat, term, to, .. }, left)| SwitchoverRequest {
        seat,
        term,
        to,
        until: began.after(left),
    };
    Ok(found.as_ref().and_then(standing).map(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OPERATION;

    fn switchover() -> Switchover {
        Switchover {
            seat: Seat(1),
            term: Revision(118),
            from: "h1".to_owned(),
            to: "h 2".to_owned(),
            lasts: Duration::from_secs(30),
            by: "root@h3".to_owned(),
            number: 7,
        }
    }

    #[test]
    fn a_request_survives_the_way_through_an_entry() {
        assert_eq!(from_content(&to_content(&switchover())), Some(switchover()));
    }

    #[test]
    fn an_entry_that_is_damaged_or_over_is_no_request() {
        let whole = to_content(&switchover());
        for at in 0..4 {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            assert_eq!(from_content(&damaged), None, "{:?}", whole.headers[at]);
        }
        let blank = Content { payload: Vec::new(), ..whole.clone() };
        let mut over = whole;
        over.headers.push((OPERATION.to_owned(), "DEL".to_owned()));
        assert_eq!((from_content(&blank), from_content(&over)), (None, None));
    }
}
