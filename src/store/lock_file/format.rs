//! The bytes of the file of tickets: a header, and records in blocks of one size. Pure.
//!
//! | header | bytes | record | bytes |
//! |---|---|---|---|
//! | `putex locks 1` | 0 | checksum of the rest of the record | 0 |
//! | random id of the file | 16 | number of the ticket, never 0 | 8 |
//! | next number | 32 | end of a timed ticket, or 0 | 16 |
//! | numbers below this one may have been given | 40 | mode: `x`, `s`, `k` | 24 |
//! | end of the last timed ticket | 48 | number of slots with `k`, or 0 | 26 |
//! | id of the boot that wrote this | 56 | slot and 1 of a granted ticket, or 0 | 28 |
//! | first number of that boot | 120 | number of bytes of the name | 30 |
//! | records of timed tickets | 128 | number of bytes of the token | 32 |
//! | an instant at which this was written | 136 | name; token | 36 |
//! | checksum of the bytes before | 248 | | |
//!
//! Numbers are little-endian. Instants are nanoseconds since the host was booted. A record begins
//! at the start of a block, and takes as many blocks as it needs.

use std::time::Duration;

use crate::core::sanitize;
use crate::core::tickets::{Mode, Name, SLOTS_MAX, Ticket};
use crate::core::{Incarnation, Instant};
use crate::store::dir::text::checksum;

/// The size of the header.
pub(crate) const HEADER_BYTES: usize = 256;

/// The size of a block: a record of one short name fits into one.
pub(crate) const BLOCK_BYTES: usize = 256;

/// Where the checksum of the header stands.
const HEADER_SUM_AT: usize = 248;

/// Where the id of the boot stands, and its greatest length.
const BOOT_AT: usize = 56;
const BOOT_BYTES_MAX: usize = 64;

/// Where the first number of the boot stands.
const FIRST_AT: usize = 120;

/// Where the number of records of timed tickets stands.
const TIMED_AT: usize = 128;

/// Where the instant of a write stands.
const WRITTEN_AT: usize = 136;

/// Where the name of a record stands. What is before them is written when a timed ticket is taken
/// again.
pub(crate) const NAME_AT: usize = 36;

/// The first bytes of the file.
const FORMAT: &[u8; 16] = b"putex locks 1\n\0\0";

/// Numbers are reserved in so large steps: a step is on the disk before one of its numbers is
/// given, so that numbers grow also after a power failure.
const RESERVED: u64 = 65_536;

/// No number is larger: its byte could not be locked.
pub(crate) const NUMBER_MAX: u64 = 1 << 61;

/// The header of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The random id of the file.
    pub(crate) epoch: Incarnation,
    /// The number of the next ticket.
    pub(crate) next: u64,
    /// Numbers below this one may have been given. It is on the disk.
    pub(crate) reserved: u64,
    /// No timed ticket stands at this instant or later.
    pub(crate) timed_until: Instant,
    /// The boot that has written this.
    pub(crate) boot: String,
    /// The first number of that boot. Timed tickets with a lower one are of another clock.
    pub(crate) first: u64,
    /// There are so many records of timed tickets of that boot, or one more.
    pub(crate) timed: u64,
    /// An instant of that boot, at which this had not been written yet.
    pub(crate) written_at: Instant,
}

/// The part of a number.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn instant(nanos: u64) -> Instant {
    Instant::from_boot(Duration::from_nanos(nanos))
}

/// Returns an instant as a number. No host runs for 500 years.
fn nanos(instant: Instant) -> [u8; 8] {
    u64::try_from(instant.since_boot().as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

impl Header {
    /// Returns the header of a new file.
    pub(crate) fn new(epoch: Incarnation) -> Header {
        let (timed_until, written_at, boot) = (instant(0), instant(0), String::new());
        Header { epoch, next: 1, reserved: 1, timed_until, boot, first: 1, timed: 0, written_at }
    }

    /// Returns the bytes.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let boot = &self.boot.as_bytes()[..self.boot.len().min(BOOT_BYTES_MAX)];
        for (at, part) in [
            (0, &FORMAT[..]),
            (16, &self.epoch.0.to_le_bytes()),
            (32, &self.next.to_le_bytes()),
            (40, &self.reserved.to_le_bytes()),
            (48, &nanos(self.timed_until)),
            (BOOT_AT, boot),
            (FIRST_AT, &self.first.to_le_bytes()),
            (TIMED_AT, &self.timed.to_le_bytes()),
            (WRITTEN_AT, &nanos(self.written_at)),
        ] {
            bytes[at..at + part.len()].copy_from_slice(part);
        }
        let sum = checksum(&bytes[..HEADER_SUM_AT]).to_le_bytes();
        bytes[HEADER_SUM_AT..].copy_from_slice(&sum);
        bytes
    }

    /// Reads a header; `None` if none was written yet.
    ///
    /// # Errors
    ///
    /// The damage, as the end of a sentence about the file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
        // A file whose size is on the disk and whose bytes are not reads as zeros.
        if bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0) {
            return Ok(None);
        }
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or("is cut off")?;
        if bytes[..FORMAT.len()] != FORMAT[..] {
            return Err("is not of the format putex locks 1");
        }
        if bytes[HEADER_SUM_AT..] != checksum(&bytes[..HEADER_SUM_AT]).to_le_bytes() {
            return Err("does not match its checksum");
        }
        let number_at = |at| number(bytes, at).map_or(0, u64::from_le_bytes);
        let boot = &bytes[BOOT_AT..BOOT_AT + BOOT_BYTES_MAX];
        let end = boot.iter().position(|byte| *byte == 0).unwrap_or(boot.len());
        Ok(Some(Header {
            epoch: Incarnation(number(bytes, 16).map_or(0, u128::from_le_bytes)),
            next: number_at(32),
            reserved: number_at(40),
            timed_until: instant(number_at(48)),
            boot: String::from_utf8_lossy(&boot[..end]).into_owned(),
            first: number_at(FIRST_AT),
            timed: number_at(TIMED_AT),
            written_at: instant(number_at(WRITTEN_AT)),
        }))
    }

    /// Goes on in this boot, whose name is blank if it is not known, at this instant of the host's
    /// clock, if that is known. If it is another boot for certain, by its name, or because a clock
    /// never goes back, what ended with the earlier one is forgotten. If it may be the same, timed
    /// tickets stand on until their ends: then they have run out on the clock of either boot.
    pub(crate) fn enter_boot(&mut self, boot: &str, now: Option<Instant>) {
        let are_known = !boot.is_empty() && !self.boot.is_empty();
        let is_earlier = now.is_some_and(|now| now < self.written_at);
        if self.boot != boot || boot.is_empty() || is_earlier {
            // Numbers that were given and are not on the disk are left out.
            self.next = self.next.max(self.reserved);
            self.reserved = self.next;
        }
        if are_known && self.boot != boot || is_earlier {
            (self.first, self.timed) = (self.next, 0);
            (self.timed_until, self.written_at) = (instant(0), instant(0));
        }
        boot.clone_into(&mut self.boot);
        self.written_at = now.unwrap_or(self.written_at);
    }

    /// Returns a number above `floor` and all that were given; `None` when there is none left.
    /// With it, whether the header has to be on the disk before the number is used.
    pub(crate) fn take_number(&mut self, floor: u64) -> Option<(u64, bool)> {
        let given = self.next.max(floor.checked_add(1)?);
        if given > NUMBER_MAX - 2 * RESERVED {
            return None;
        }
        self.next = given + 1;
        let is_reserved = given < self.reserved;
        if !is_reserved {
            self.reserved = given + RESERVED;
        }
        Some((given, !is_reserved))
    }
}

/// A ticket as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its number.
    pub(crate) number: u64,
    /// When it ends by itself; `None` if it ends with the processes that have locked its byte.
    pub(crate) until: Option<Instant>,
    /// The ticket, without what only a ticket in NATS has.
    pub(crate) ticket: Ticket,
}

/// Returns how many blocks so many bytes take.
fn blocks(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

fn mode_of(kind: u8, count: u32, slot: u32) -> Option<(Mode, Option<u32>)> {
    let slot = slot.checked_sub(1);
    match (kind, count, slot) {
        (b'x', 0, None) => Some((Mode::Exclusive, None)),
        (b's', 0, None) => Some((Mode::Shared, None)),
        (b'k', 1..=SLOTS_MAX, _) if slot.is_none_or(|slot| slot < count) => {
            Some((Mode::Slots(count), slot))
        }
        _ => None,
    }
}

impl Record {
    /// Returns the bytes, up to the end of a block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Ticket { name, mode, slot, token, .. } = &self.ticket;
        let name = name.to_string();
        let (kind, count) = match *mode {
            Mode::Exclusive => (b'x', 0),
            Mode::Shared => (b's', 0),
            Mode::Slots(count) => (b'k', count),
        };
        let number = |number: u32| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
        let size = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes();
        let mut bytes = vec![0; 8];
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.until.map_or([0; 8], nanos));
        bytes.extend([kind, 0]);
        bytes.extend(number(count));
        bytes.extend(number(slot.map_or(0, |slot| slot + 1)));
        for text in [&name, token] {
            bytes.extend(size(text));
        }
        bytes.extend([0; 2]);
        for text in [&name, token] {
            bytes.extend(text.as_bytes());
        }
        let sum = checksum(&bytes[8..]).to_le_bytes();
        bytes[..8].copy_from_slice(&sum);
        bytes.resize(blocks(bytes.len()) * BLOCK_BYTES, 0);
        bytes
    }

    /// Reads the record that begins here, and returns how many blocks it takes; `None` for one
    /// that is not whole.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
        let short = |at| number(bytes, at).map(u16::from_le_bytes);
        let token_at = NAME_AT + usize::from(short(30)?);
        let end = token_at + usize::from(short(32)?);
        let sum = u64::from_le_bytes(number(bytes, 0)?);
        if checksum(bytes.get(8..end)?) != sum {
            return None;
        }
        let text = |from, to| str::from_utf8(&bytes[from..to]).ok();
        let ends_at = u64::from_le_bytes(number(bytes, 16)?);
        let (mode, slot) = mode_of(*bytes.get(24)?, short(26)?.into(), short(28)?.into())?;
        let ticket = Ticket {
            name: Name::parse(text(NAME_AT, token_at)?).ok()?,
            mode,
            slot,
            lifetime: Duration::ZERO,
            token: sanitize(text(token_at, end)?),
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
        };
        let until = (ends_at != 0).then(|| instant(ends_at));
        let record = Record { number: u64::from_le_bytes(number(bytes, 8)?), until, ticket };
        (1..=NUMBER_MAX).contains(&record.number).then_some((record, blocks(end)))
    }
}

/// Returns the records behind the header with the blocks in which they begin, and the first block
/// of so many that none of them takes. What does not `stand` takes no block.
pub(crate) fn records(
    behind_header: &[u8],
    stands: impl Fn(&Record) -> bool,
    wanted: usize,
) -> (Vec<(usize, Record)>, usize) {
    let (mut found, mut free, mut block) = (Vec::new(), 0, 0);
    let mut room = None;
    while let Some(bytes) = behind_header.get(block * BLOCK_BYTES..).filter(|it| !it.is_empty()) {
        match Record::decode(bytes).filter(|(record, _)| stands(record)) {
            Some((record, blocks)) => {
                found.push((block, record));
                block += blocks;
                free = block;
            }
            None => block += 1,
        }
        if block - free >= wanted {
            room.get_or_insert(free);
        }
    }
    (found, room.unwrap_or(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, name: &str) -> Record {
        let ticket = Ticket {
            name: Name::parse(name).expect(name),
            mode: Mode::Shared,
            slot: None,
            lifetime: Duration::ZERO,
            token: "alpha".to_owned(),
            incarnation: Incarnation(0),
            attempt: 0,
            is_granted: false,
        };
        Record { number, until: None, ticket }
    }

    fn long(number: u64) -> Record {
        let mut record = record(number, "b");
        record.ticket.token = "h".repeat(5000);
        record
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_a_changed_byte_is_found() {
        let mut header = Header::new(Incarnation(0xfeed));
        header.enter_boot("8c3e", Some(instant(5)));
        (header.timed_until, header.timed) = (instant(7), 3);
        assert_eq!(header.take_number(0), Some((1, true)));
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(Some(header)));
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Ok(None));
        assert_eq!(Header::decode(b""), Ok(None));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
            assert!(at == 0 || Header::decode(&bytes[..at]).is_err(), "cut off at {at}");
        }
    }

    #[test]
    fn numbers_grow_also_when_the_last_writes_did_not_reach_the_disk() {
        let mut header = Header::new(Incarnation(1));
        header.enter_boot("one", Some(instant(9)));
        assert_eq!(header.take_number(0), Some((1, true)));
        let on_disk = header.encode();
        assert_eq!(header.take_number(0), Some((2, false)));
        assert_eq!(header.take_number(9), Some((10, false)));
        let mut header = Header::decode(&on_disk).expect("whole").expect("written");
        header.enter_boot("two", Some(instant(10)));
        let (number, must_be_on_disk) = header.take_number(0).expect("a number");
        assert!(number > 10 && must_be_on_disk, "{number}");
        assert_eq!(header.first, number);
        // A host that does not tell its boot may have been booted at any time.
        header.enter_boot("", Some(instant(11)));
        assert!(header.take_number(0).expect("a number").1);
        assert_eq!(header.take_number(NUMBER_MAX), None);
        assert_eq!(header.take_number(u64::MAX), None);
    }

    /// A container may be given a name of the boot of its own, or none: that ended the timed
    /// tickets of all others, and theirs ended those of the container.
    #[test]
    fn timed_tickets_end_with_a_boot_that_is_another_one_for_certain() {
        let at = |nanos| Some(instant(nanos));
        for (before, boot, now, ends) in [
            ("one", "one", at(100), false),
            ("one", "one", None, false),
            ("one", "two", at(200), true),
            ("one", "two", None, true),
            ("one", "", at(100), false),
            ("one", "", at(99), true),
            ("one", "one", at(99), true),
            ("one", "", None, false),
            ("", "two", at(100), false),
            ("", "two", at(99), true),
            ("", "", at(100), false),
        ] {
            let mut header = Header::new(Incarnation(1));
            header.enter_boot(before, at(100));
            header.take_number(0).expect("a number");
            (header.timed_until, header.timed) = (instant(500), 1);
            let reserved = header.reserved;
            header.enter_boot(boot, now);
            let have_ended = header.timed_until == instant(0);
            assert_eq!(have_ended, ends, "{before} {boot} {now:?}");
            assert_eq!((header.timed == 0, header.first > 1), (ends, ends), "{before} {boot}");
            let is_same = before == boot && !boot.is_empty() && !ends;
            let (number, must_be_on_disk) = header.take_number(0).expect("a number");
            assert_eq!((number == 2, must_be_on_disk), (is_same, !is_same), "{before} {boot}");
            assert!(is_same || number >= reserved, "{number}");
            assert_eq!(header.boot, boot);
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_half_written_one_is_none() {
        let timed = Record { until: Some(instant(5)), ..record(9, "db/users") };
        let mut slots = record(3, "db");
        (slots.ticket.mode, slots.ticket.slot) = (Mode::Slots(1000), Some(999));
        for (record, blocks) in [(record(7, "a"), 1), (timed, 1), (long(8), 20), (slots, 1)] {
            let bytes = record.encode();
            assert_eq!(bytes.len(), blocks * BLOCK_BYTES);
            assert_eq!(Record::decode(&bytes), Some((record, blocks)));
            let used = bytes.iter().rposition(|byte| *byte != 0).expect("a record") + 1;
            for at in 0..used {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Record::decode(&damaged), None, "byte {at}");
                damaged.truncate(at);
                assert_eq!(Record::decode(&damaged), None, "cut off at {at}");
            }
        }
    }

    #[test]
    fn records_that_have_ended_leave_room_and_others_keep_theirs() {
        let all = [record(1, "a"), long(2), record(3, "b"), record(4, "c")];
        let bytes: Vec<u8> = all.iter().flat_map(Record::encode).collect();
        let found = |standing: &[u64], wanted| {
            let stands = |record: &Record| standing.contains(&record.number);
            let (found, room) = records(&bytes, stands, wanted);
            let found: Vec<_> = found.iter().map(|(block, it)| (*block, it.number)).collect();
            (found, room)
        };
        assert_eq!(found(&[], 1), (vec![], 0));
        assert_eq!(found(&[1, 2, 3, 4], 1), (vec![(0, 1), (1, 2), (21, 3), (22, 4)], 23));
        assert_eq!(found(&[2, 4], 1), (vec![(1, 2), (22, 4)], 0));
        assert_eq!(found(&[2, 4], 2), (vec![(1, 2), (22, 4)], 23));
        assert_eq!(found(&[1, 4], 21), (vec![(0, 1), (22, 4)], 1));
        assert_eq!(found(&[1], 30), (vec![(0, 1)], 1));
    }
}
