//! The numbers of a bucket: `sequence`, the highest that was given.
//!
//! Numbers are reserved in large steps: a step is on the disk before one of its numbers is given.
//! So each number costs a write into memory only, and numbers grow also after a power failure: the
//! first one of another boot is above all that were reserved.

use super::text;
use crate::core::Revision;

/// Name of the file.
pub(super) const SEQUENCE: &str = "sequence";

/// How many numbers are reserved at once.
const RESERVED: u64 = 65_536;

/// The content of the file. It has one length in one boot, so that it can be written over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The highest number that was given in this boot, or before.
    pub(super) last: u64,
    /// No higher number was given. This is on the disk.
    reserved: u64,
    /// The name of the boot; blank if it is not known.
    boot: String,
}

impl Sequence {
    pub(crate) fn new(boot: &str) -> Sequence {
        Sequence { last: 0, reserved: 0, boot: boot.to_owned() }
    }

    /// Returns the body of the file.
    pub(crate) fn encode(&self) -> String {
        let Sequence { last, reserved, boot } = self;
        format!("sequence {last:020}\nreserved {reserved:020}\nboot {boot}")
    }

    /// Decodes a body of [`Sequence::encode`]; `None` for another body.
    pub(crate) fn decode(body: &[u8]) -> Option<Sequence> {
        let mut lines = str::from_utf8(body).ok()?.splitn(3, '\n');
        let last = text::parse_number("sequence", lines.next()?)?;
        let reserved = text::parse_number("reserved", lines.next()?)?;
        let boot = lines.next()?.strip_prefix("boot ")?.to_owned();
        (last <= reserved).then_some(Sequence { last, reserved, boot })
    }

    /// Goes on in this boot. Where it may be another one, the numbers of the last one may not be on
    /// the disk.
    pub(crate) fn enter_boot(self, boot: &str) -> Sequence {
        let is_same = self.boot == boot && !boot.is_empty();
        let last = if is_same { self.last } else { self.reserved };
        Sequence { last, boot: boot.to_owned(), ..self }
    }

    /// Takes the next number above `floor`; `None` when there is none left. With it, whether the
    /// sequence has to be on the disk before the number is used.
    pub(crate) fn next_number(&mut self, floor: Revision) -> Option<(Revision, bool)> {
        self.last = self.last.max(floor.0).checked_add(1)?;
        let is_new_step = self.last > self.reserved;
        if is_new_step {
            self.reserved = self.last.saturating_add(RESERVED);
        }
        Some((Revision(self.last), is_new_step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_also_when_the_last_writes_did_not_reach_the_disk() {
        let mut sequence = Sequence::new("one");
        assert_eq!(sequence.next_number(Revision(0)), Some((Revision(1), true)));
        let on_disk = sequence.encode();
        assert_eq!(sequence.next_number(Revision(0)), Some((Revision(2), false)));
        assert_eq!(sequence.encode().len(), on_disk.len());
        let again = || Sequence::decode(on_disk.as_bytes()).expect("it is whole");
        assert_eq!(again().enter_boot("one").next_number(Revision(0)), Some((Revision(2), false)));
        // A host that does not tell its boot may have been booted at any time.
        for boot in ["two", ""] {
            let (next, must_be_on_disk) =
                again().enter_boot(boot).next_number(Revision(0)).expect("a number");
            assert!(next > Revision(65_000) && must_be_on_disk, "{boot:?}: {next}");
        }
        let blank =
            again().enter_boot("").enter_boot("").next_number(Revision(0)).expect("a number");
        assert!(blank.1);
        let mut full = Sequence { last: u64::MAX - 1, reserved: u64::MAX, ..sequence };
        assert_eq!(full.next_number(Revision(0)), Some((Revision(u64::MAX), false)));
        assert_eq!(full.next_number(Revision(0)), None);
        assert_eq!(again().next_number(Revision(9)), Some((Revision(10), false)));
        let above = on_disk.replace("reserved 00000000000000065537", "reserved 0");
        assert_eq!(Sequence::decode(above.as_bytes()), None, "more were given than reserved");
    }
}
