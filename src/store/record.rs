//! A [`Lease`] as headers of an entry.
//!
//! | header | value |
//! |---|---|
//! | `Putex-Format` | 1; a record of another format is read without its lease |
//! | `Putex-Incarnation` | 32 hexadecimal digits |
//! | `Putex-Nonce` | decimal |
//! | `Putex-Host`, `Putex-Boot` | text without line breaks; absent when blank |
//! | `Putex-Timing` | R in milliseconds, F, C, separated by blanks |
//! | `Putex-Grace-Ms` | decimal |
//! | `Putex-Term` | decimal; absent in the acquiring write |
//! | `Putex-State` | `taking`, `active` or `released` |
//! | `Putex-Priority` | 1 to 15, or `never`; 1 if absent |
//! | `Putex-Released-To` | the token of the agent that is to have the lock next; absent for all |

use std::time::Duration;

use crate::core::{
    COUNT_MAX, Incarnation, Lease, Priority, R_MAX, RecordState, Revision, sanitize,
};

/// The only format that this program writes and reads.
const FORMAT: &str = "1";

/// Converts a lease into headers, in a fixed order.
pub fn to_headers(lease: &Lease) -> Vec<(&'static str, String)> {
    let state = match lease.state {
        RecordState::Taking => "taking",
        RecordState::Active => "active",
        RecordState::Released => "released",
    };
    let (r_ms, f, c) = (lease.renewal.as_millis(), lease.failures, lease.confirmations);
    let mut headers = vec![
        ("Putex-Format", FORMAT.to_owned()),
        ("Putex-Incarnation", lease.incarnation.to_string()),
        ("Putex-Nonce", lease.nonce.to_string()),
        ("Putex-Host", sanitize(&lease.host)),
        ("Putex-Boot", sanitize(&lease.boot)),
        ("Putex-Timing", format!("{r_ms} {f} {c}")),
        ("Putex-Grace-Ms", lease.grace.as_millis().to_string()),
        ("Putex-State", state.to_owned()),
    ];
    headers.extend(lease.term.map(|term| ("Putex-Term", term.to_string())));
    headers.push(("Putex-Priority", lease.priority.to_string()));
    let to = lease.released_to.as_deref();
    headers.extend(to.map(|token| ("Putex-Released-To", sanitize(token))));
    headers
}

/// Converts headers into a lease; `None` if a header is missing, damaged or of another
/// format. `find` returns the value of a header.
pub fn from_headers<'a>(find: impl Fn(&str) -> Option<&'a str>) -> Option<Lease> {
    if find("Putex-Format")? != FORMAT {
        return None;
    }
    let state = match find("Putex-State")? {
        "taking" => RecordState::Taking,
        "active" => RecordState::Active,
        "released" => RecordState::Released,
        _ => return None,
    };
    let mut timing = find("Putex-Timing")?.split(' ');
    let renewal = Duration::from_millis(timing.next()?.parse().ok()?);
    let failures: u32 = timing.next()?.parse().ok()?;
    let confirmations: u32 = timing.next()?.parse().ok()?;
    let grace = Duration::from_millis(find("Putex-Grace-Ms")?.parse().ok()?);
    // No record may make other agents wait for ever, or overflow a sum.
    let bounded = renewal <= R_MAX && failures <= COUNT_MAX && confirmations <= COUNT_MAX;
    if !bounded || grace > R_MAX * COUNT_MAX {
        return None;
    }
    let term = find("Putex-Term").map(str::parse).transpose().ok()?.map(Revision);
    Some(Lease {
        incarnation: Incarnation(u128::from_str_radix(find("Putex-Incarnation")?, 16).ok()?),
        nonce: find("Putex-Nonce")?.parse().ok()?,
        host: find("Putex-Host").unwrap_or_default().to_owned(),
        boot: find("Putex-Boot").unwrap_or_default().to_owned(),
        renewal,
        failures,
        confirmations,
        grace,
        term,
        state,
        priority: find("Putex-Priority").map_or(Ok(Priority::FIRST), str::parse).ok()?,
        released_to: find("Putex-Released-To").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease {
            incarnation: Incarnation(0xfeed),
            nonce: 7,
            host: "alpha".to_owned(),
            boot: "b-1".to_owned(),
            renewal: Duration::from_millis(500),
            failures: 3,
            confirmations: 1,
            grace: Duration::from_millis(500),
            term: Some(Revision(41)),
            state: RecordState::Active,
            priority: Priority::Behind(1),
            released_to: Some("beta".to_owned()),
        }
    }

    fn parse(headers: &[(&'static str, String)]) -> Option<Lease> {
        from_headers(|name| {
            headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
        })
    }

    #[test]
    fn a_lease_survives_the_way_through_headers() {
        assert_eq!(parse(&to_headers(&lease())), Some(lease()));
    }

    #[test]
    fn a_missing_or_damaged_header_makes_the_record_foreign() {
        let whole = to_headers(&lease());
        for at in 0..whole.len() {
            let name = whole[at].0;
            if ["Putex-Host", "Putex-Boot", "Putex-Released-To"].contains(&name) {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[at].1 = "x-".to_owned();
            assert_eq!(parse(&damaged), None, "{name} damaged");
        }
        for at in 0..whole.len() {
            let mut missing = whole.clone();
            let (name, _) = missing.remove(at);
            let blank = match name {
                "Putex-Host" => Some(Lease { host: String::new(), ..lease() }),
                "Putex-Boot" => Some(Lease { boot: String::new(), ..lease() }),
                "Putex-Term" => Some(Lease { term: None, ..lease() }),
                "Putex-Priority" => Some(Lease { priority: Priority::FIRST, ..lease() }),
                "Putex-Released-To" => Some(Lease { released_to: None, ..lease() }),
                _ => None,
            };
            assert_eq!(parse(&missing), blank, "{name} missing");
        }
    }

    #[test]
    fn numbers_that_no_agent_would_publish_make_the_record_foreign() {
        for (name, value) in [
            ("Putex-Timing", "18446744073709551615 4294967295 1"),
            ("Putex-Timing", "60001 3 1"),
            ("Putex-Timing", "500 101 1"),
            ("Putex-Timing", "500 3 101"),
            ("Putex-Grace-Ms", "6000001"),
            ("Putex-Grace-Ms", "18446744073709551615"),
        ] {
            let mut headers = to_headers(&lease());
            let header = headers.iter_mut().find(|(key, _)| *key == name);
            header.expect("it is written").1 = value.to_owned();
            assert_eq!(parse(&headers), None, "{name}: {value}");
        }
    }

    #[test]
    fn a_line_break_in_a_host_name_cannot_make_a_header() {
        let sly = Lease { host: "a\r\nPutex-State: released".to_owned(), ..lease() };
        assert!(to_headers(&sly).iter().all(|(_, value)| !value.contains(['\r', '\n'])));
    }
}
