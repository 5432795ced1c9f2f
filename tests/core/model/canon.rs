//! The canonical form of a state of a pump or of a guard, by which two states are found to be the
//! same. Of the numbers it has only the distances between now and the instants, and between the
//! revisions of the key, and whether all messages were heard.
//!
//! The core compares instants with instants, revisions with revisions, counts of messages with
//! counts of messages, so a state that is shifted as a whole goes on in the same way. What is
//! long past is past alike: no wait of the core that decides anything is longer than
//! [`Frame::past`], nor is a term looked at that is more than [`TERM_AGO_MAX`] back.

use super::quick::fold;

/// How far back a term is told from others: the service is started this long after the take,
/// as a rule.
pub(crate) const TERM_AGO_MAX: i64 = 2;

/// The same for any other revision, from the highest that is known.
const REVISION_AGO_MAX: i64 = 6;

/// The revision of a term that lies further back.
pub(crate) const OLD_TERM: u64 = 1;

/// The nonce of every attempt of another instance.
pub(crate) const OTHERS_NONCE: u64 = 1 << 40;

/// Where a pump or a guard stands in the numbers of its world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Now, in microseconds since boot.
    pub(crate) now: i64,
    /// The highest revision that a pump knows; the last term that a guard was told.
    pub(crate) base: u64,
    /// Age, in microseconds, from which on instants are past alike: T + C·R.
    pub(crate) past: i64,
    /// The last attempt of a pump to write.
    pub(crate) nonce: u64,
    /// Messages that a pump has said, or that a guard has received.
    pub(crate) messages: u64,
    /// The number of a pump's last connection to a guard.
    pub(crate) link: u64,
}

/// Returns a number that two states share if they are the same; `text` is a state as
/// `Debug` writes it.
pub(crate) fn canon(text: &str, frame: Frame) -> u128 {
    fold(Canonical::of(text, frame).out.as_slice())
}

/// Returns the number that follows the last of such names, if there is one.
pub(crate) fn last_number(text: &str, name: &str) -> Option<u64> {
    let at = text.rfind(name)? + name.len();
    number(&text.as_bytes()[at..]).map(|(number, _)| number)
}

/// Returns the number that follows the first of such names that a number follows.
pub(crate) fn first_number(text: &str, name: &str) -> Option<u64> {
    let after = text.match_indices(name).map(|(at, _)| at + name.len());
    let mut numbers = after.filter_map(|at| number(&text.as_bytes()[at..]));
    numbers.next().map(|(number, _)| number)
}

/// Returns the highest revision in a text; 0 when there is none.
pub(crate) fn highest_revision(text: &str) -> u64 {
    let after = text.match_indices("Revision(").map(|(at, _)| at + 9);
    let numbers = after.filter_map(|at| number(&text.as_bytes()[at..]));
    numbers.map(|(number, _)| number).max().unwrap_or(0)
}

/// Returns the number at the beginning and how many digits it has.
fn number(text: &[u8]) -> Option<(u64, usize)> {
    let digits = text.iter().take_while(|letter| letter.is_ascii_digit());
    let count = digits.clone().count();
    let digits = digits.map(|digit| u64::from(digit - b'0'));
    let number = digits.fold(0u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(digit));
    (count > 0).then_some((number, count))
}

/// Texts that are told and decide nothing.
const TOLD: [&[u8]; 3] = [b"previous: Some(", b"reported: Some(", b"holder: "];

/// Instants that are only compared with now.
const ONLY_DUE: [&[u8]; 4] = [b"retry_at: ", b"read_at: ", b"started: At(", b"Deadline { at: "];

/// Revisions that are only compared with each other.
const TERMS: [&[u8]; 2] = [b"term: ", b"term: Some("];

/// The numbers that are shown as what counts of them.
const NUMBERS: [&[u8]; 7] =
    [b"Revision(", b"attempt: ", b"nonce: ", b"number: ", b"sent_count: ", b"heard: ", b"link: "];

/// When a stop or a last resort began is only told. There is no health check.
const BEGAN: &[u8] = b"began: ";

struct Canonical {
    frame: Frame,
    out: Vec<u8>,
}

impl Canonical {
    fn of(text: &str, frame: Frame) -> Canonical {
        let out = Vec::with_capacity(text.len());
        let mut canonical = Canonical { frame, out };
        let text = text.as_bytes();
        let (mut at, mut written, mut before) = (0, 0, b' ');
        while at < text.len() {
            let letter = text[at];
            let begins = matches!(before, b' ' | b'(');
            let used = match letter {
                b'I' | b'R' | b'a' | b'n' | b's' | b'h' | b'l' | b'"' if begins => {
                    canonical.out.extend_from_slice(&text[written..at]);
                    written = at;
                    canonical.shorten(&text[at..])
                }
                _ => None,
            };
            before = letter;
            at += used.unwrap_or(1);
            if used.is_some() {
                written = at;
            }
        }
        canonical.out.extend_from_slice(&text[written..]);
        canonical
    }

    /// Writes a number or a text that begins here as what counts of it; returns how much of
    /// `rest` that was.
    fn shorten(&mut self, rest: &[u8]) -> Option<usize> {
        let told = |out: &[u8]| TOLD.iter().any(|name| out.ends_with(name));
        if rest[0] == b'"' {
            let end = rest[1..].iter().position(|letter| *letter == b'"')?;
            return told(&self.out).then_some(end + 2);
        }
        if let Some(after) = rest.strip_prefix(b"Instant(") {
            let end = after.iter().position(|letter| *letter == b')')?;
            self.instant(&after[..end]);
            return Some(8 + end);
        }
        for name in NUMBERS {
            let found = rest.strip_prefix(name).and_then(number);
            if let Some((number, digits)) = found {
                self.show(name, number);
                return Some(name.len() + digits);
            }
        }
        // The messages that a guard has received: the reports count from them.
        let (_, digits) = rest.strip_prefix(b"heard: Some(").and_then(number)?;
        self.out.extend_from_slice(b"heard: Some(");
        Some(12 + digits)
    }

    /// An instant is shown as whole and split seconds since boot.
    fn instant(&mut self, text: &[u8]) {
        if self.out.ends_with(BEGAN) {
            return;
        }
        let (whole, digits) = number(text).expect("states live late after boot");
        let split = text[digits..].strip_prefix(b".").unwrap_or_default();
        let (split, digits) = number(split).unwrap_or((0, 0));
        let digits = u32::try_from(digits).expect("a few");
        let micros = whole * 1_000_000 + split * 10u64.pow(6 - digits);
        let only_due = ONLY_DUE.iter().any(|name| self.out.ends_with(name));
        let past = if only_due { 0 } else { self.frame.past };
        self.write(b'I', (micros.cast_signed() - self.frame.now).max(-past));
    }

    fn show(&mut self, name: &[u8], number: u64) {
        let Frame { base, nonce, messages, link, .. } = self.frame;
        match name[0] {
            b'R' => self.revision(number, base),
            _ if name == b"nonce: " && number == OTHERS_NONCE => {
                self.out.extend_from_slice(b"no nonce");
            }
            _ if [&b"nonce: "[..], b"attempt: "].contains(&name) => {
                self.write(b'n', nonce.wrapping_sub(number).cast_signed());
            }
            // The number of the link, and the count from which those of reports count.
            b'n' | b's' => {}
            b'l' => self.write(b'l', i64::from(link == number)),
            // All messages, or not all.
            _ => self.write(b'h', i64::from(messages == number)),
        }
    }

    fn revision(&mut self, number: u64, base: u64) {
        let from_base = number.cast_signed() - base.cast_signed();
        let term = TERMS.iter().any(|name| self.out.ends_with(name));
        let most = if term { TERM_AGO_MAX } else { REVISION_AGO_MAX };
        match number {
            0 => self.out.extend_from_slice(b"no revision"),
            u64::MAX => self.out.extend_from_slice(b"any revision"),
            _ if number == OLD_TERM || from_base < -most => {
                self.out.extend_from_slice(b"old revision");
            }
            _ => self.write(b'R', from_base),
        }
    }

    fn write(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        self.out.extend_from_slice(&number.to_le_bytes());
    }
}
