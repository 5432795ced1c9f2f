//! When two minds are the same: a mind written down so that only what lies between
//! now and its instants, and between the key's revisions, is left of the numbers.
//!
//! The pump and the guard compare instants with instants and revisions with
//! revisions, so one that is shifted as a whole goes on in the same way. What is
//! long past is past alike: no wait of the core that decides anything is longer than
//! [`Frame::past`], nor is a term looked at that is more than [`TERM_AGO_MAX`] back.

use std::hash::{DefaultHasher, Hash, Hasher};

/// How far back the term of a held lock is told from others.
pub(crate) const TERM_AGO_MAX: i64 = 6;

/// The place of a term that lies further back, in the numbers of a mind.
pub(crate) const OLD_TERM: u64 = 1;

/// Where a mind stands in the numbers that its world uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Now, in microseconds since boot.
    pub(crate) now: i64,
    /// The highest revision that it knows.
    pub(crate) base: u64,
    /// What lies further back, in microseconds, is over: T + C·R. Guards answer at
    /// once here, so that nothing waits the 500 ms that they have.
    pub(crate) past: i64,
}

/// Returns a number that two minds share if they are the same; `text` is a mind as
/// `Debug` writes it.
pub(crate) fn canon(text: &str, frame: Frame) -> u128 {
    fold(written(text, frame).as_slice())
}

/// Returns 128 bits of a value: as good as the value itself, for a few billions of
/// them.
pub(crate) fn fold(value: &(impl Hash + ?Sized)) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Returns the nonce of the last attempt, of a pump that is written down in `text`.
pub(crate) fn last_nonce(text: &str) -> u64 {
    let at = text.rfind("nonce: ").map_or(text.len(), |at| at + 7);
    digits(&text[at..]).parse().unwrap_or(0)
}

/// Returns the highest revision that a pump knows; `None` when it knows none.
pub(crate) fn high_water(text: &str) -> Option<u64> {
    let (_, number) = text.split_once("high_water: Revision(")?;
    digits(number).parse().ok().filter(|number| *number > 0)
}

fn digits(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

/// Names that are told and decide nothing.
const NAMES: [&[u8]; 3] = [b"previous: Some(", b"reported: Some(", b"holder: "];

fn written(text: &str, frame: Frame) -> Vec<u8> {
    let nonce = last_nonce(text);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['I', 'R', 'n', '"']) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let (used, shown) = if rest.starts_with("Instant(") {
            let end = rest.find(')').expect("Debug closes what it opens");
            // The two that are only compared with now.
            let over = out.ends_with(b"retry_at: ") || out.ends_with(b"read_at: ");
            let past = if over { 0 } else { frame.past };
            (end, instant(&rest[8..end], frame.now, past))
        } else if let Some(after) = rest.strip_prefix("Revision(") {
            let number = digits(after);
            (9 + number.len(), revision(number, frame))
        } else if NAMES.iter().any(|name| out.ends_with(name)) {
            let end = rest[1..].find('"').expect("Debug closes what it opens");
            (end + 2, String::new())
        } else if let Some(after) = rest.strip_prefix("nonce: ") {
            let number = digits(after);
            (7 + number.len(), attempt(number, nonce))
        } else {
            (1, rest[..1].to_owned())
        };
        out.extend_from_slice(shown.as_bytes());
        rest = &rest[used..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// An instant of a mind is shown as whole and split seconds since boot.
fn instant(shown: &str, now: i64, past: i64) -> String {
    let number = shown.strip_suffix('s').expect("minds live late after boot");
    let (whole, split) = number.split_once('.').unwrap_or((number, ""));
    let whole: i64 = whole.parse().expect("minds live late after boot");
    let split: i64 = format!("{split:0<6}")[..6].parse().expect("digits");
    let from_now = whole * 1_000_000 + split - now;
    format!("I{}", from_now.max(-past))
}

fn revision(shown: &str, frame: Frame) -> String {
    let number: u64 = shown.parse().expect("a revision is a number");
    match number {
        0 => "R none".to_owned(),
        u64::MAX => "R any".to_owned(),
        OLD_TERM => "R old".to_owned(),
        _ => {
            let from_base = number.cast_signed() - frame.base.cast_signed();
            if from_base < -TERM_AGO_MAX {
                "R old".to_owned()
            } else {
                format!("R{from_base}")
            }
        }
    }
}

/// The attempts of others are shown as 0 throughout.
fn attempt(shown: &str, nonce: u64) -> String {
    let number: u64 = shown.parse().expect("an attempt is a number");
    if number == 0 {
        return "n0".to_owned();
    }
    format!("n-{}", nonce - number)
}
