//! The file, used by several open descriptions in one process, as by several processes.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::format::records;
use super::*;
use crate::core::tickets::Mode;

/// A folder that is removed at the end.
struct Base(PathBuf);

impl Base {
    fn new() -> Base {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Base(env::temp_dir().join(format!("putex-lock-file-{}-{number}", std::process::id())))
    }

    /// Opens the file, and enters.
    fn open(&self) -> LockFile {
        let file = LockFile::open(&self.0, "b").expect("a file");
        assert_eq!(file.try_to_enter(), Ok(true));
        file
    }

    fn add(&self, name: &str) -> (LockFile, Added) {
        let file = self.open();
        let taken = file.add(&ticket(name, "alpha"), false).expect("a ticket");
        (file, taken)
    }

    /// Adds a timed ticket; returns it, or the other one that it overlaps with.
    fn add_timed(&self, ticket: &Ticket, lasts: Duration) -> Result<Added, Box<StoredTicket>> {
        self.open().add_timed(ticket, lasts, false).expect("an answer").map_err(Box::new)
    }

    fn end_timed(&self, name: &str, token: &str) -> Option<u64> {
        let name = ticket(name, token).name;
        let ended = self.open().end_timed(&name, token).expect("an answer").ended;
        ended.map(|ended| ended.number.0)
    }

    /// Changes the header; returns the file.
    fn change_header(&self, change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut bytes = fs::read(self.path()).expect("a file");
        let mut header = Header::decode(&bytes).expect("whole").expect("written");
        change(&mut header);
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        fs::write(self.path(), &bytes).expect("it is there");
        bytes
    }

    /// Writes into the record of a timed ticket that it ends now.
    fn run_out_now(&self, added: &Added) {
        let mut bytes = fs::read(self.path()).expect("a file");
        let records = records(&bytes[HEADER_BYTES..], |_| true, 0).0;
        let is_it = |(_, record): &(usize, Record)| Some(record.number) == added.number;
        let (block, record) = records.into_iter().find(is_it).expect("it stands");
        let encoded = Record { until: Some(sys::now()), ..record }.encode();
        let at = HEADER_BYTES + block * BLOCK_BYTES;
        bytes[at..at + encoded.len()].copy_from_slice(&encoded);
        fs::write(self.path(), &bytes).expect("it is there");
    }

    fn path(&self) -> PathBuf {
        self.0.join("b").join(NAME)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ticket(name: &str, token: &str) -> Ticket {
    Ticket {
        lifetime: Duration::ZERO,
        token: token.to_owned(),
        incarnation: Incarnation(0),
        attempt: 0,
        ..Ticket::sample(name)
    }
}

/// Returns the numbers of the tickets that one waits for.
fn numbers(taken: &Added) -> Vec<u64> {
    match &taken.decision {
        Decision::Wait { blockers, .. } => blockers.iter().map(|it| it.number.0).collect(),
        Decision::Granted | Decision::Slot(_) => Vec::new(),
    }
}

#[test]
fn tickets_stand_as_long_as_their_files_are_open_and_later_ones_wait_for_them() {
    let base = Base::new();
    let (first, one) = base.add("a/b");
    let (_second, two) = base.add("c");
    let (third, three) = base.add("a");
    assert_eq!([&one, &two, &three].map(|taken| taken.number), [Some(1), Some(2), Some(3)]);
    assert_eq!((numbers(&one), numbers(&two), numbers(&three)), (vec![], vec![], vec![1]));
    let refused = base.open().add(&ticket("a/x", "beta"), true).expect("an answer");
    assert_eq!((refused.number, numbers(&refused)), (None, vec![3]));
    let own = ticket("a", "alpha");
    let again = || third.decide_without(&own, three.clone()).expect("an answer");
    assert_eq!(numbers(&again()), [1]);
    // A descriptor that a command has inherited.
    let inherited = first.file.try_clone().expect("a descriptor");
    drop(first);
    assert_eq!(numbers(&again()), [1]);
    drop(inherited);
    assert_eq!(third.wait_for_end_of(Revision(1)), Ok(()));
    assert_eq!(again().decision, Decision::Granted);
    let (_fourth, four) = base.add("c/d");
    assert_eq!((four.number, numbers(&four)), (Some(4), vec![2]));
    assert_eq!(four.epoch, one.epoch);
}

/// While a waiter has locked the byte of a ticket that has ended, that is no ticket.
#[test]
fn a_waiter_that_has_been_woken_is_not_taken_for_the_ticket_that_has_ended() {
    let base = Base::new();
    let (first, _) = base.add("a");
    let (waiter, _) = base.add("a");
    drop(first);
    assert_eq!(waiter.lock(ByteLock::Exclusive, DOOR + 1, false), Ok(true));
    let (_third, three) = base.add("a");
    assert_eq!(numbers(&three), [2]);
}

/// The header, and each byte of the record, as a killed writer may have left them.
#[test]
fn a_writer_that_was_killed_at_any_byte_leaves_a_gap_in_the_numbers_at_most() {
    let base = Base::new();
    let (_holder, _) = base.add("a");
    let before = fs::read(base.path()).expect("a file");
    let (second, _) = base.add("b");
    drop(second);
    let after = fs::read(base.path()).expect("a file");
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(changed > 20, "{changed}");
    for at in (HEADER_BYTES..2 * HEADER_BYTES + BLOCK_BYTES).step_by(3) {
        fs::write(base.path(), [&after[..at], &before[at..]].concat()).expect("it is there");
        let (_next, taken) = base.add("a/b");
        assert_eq!((numbers(&taken), taken.number), (vec![1], Some(3)), "up to {at}");
    }
    fs::write(base.path(), &before).expect("it is there");
    let (_next, taken) = base.add("a/b");
    assert_eq!((numbers(&taken), taken.number), (vec![1], Some(2)));
}

#[test]
fn numbers_grow_after_a_boot_and_timed_tickets_of_the_last_one_have_ended() {
    let base = Base::new();
    let other = base.add_timed(&ticket("z", "alpha"), HOUR).expect("a ticket");
    assert_eq!(other.number, Some(1));
    let timed = base.add_timed(&ticket("a", "alpha"), HOUR).expect("a ticket");
    run_out(&base.add_timed(&ticket("r", "alpha"), SHORT).expect("a ticket"));
    base.change_header(|header| header.boot = "another".to_owned());
    // It raises the end of the last timed ticket of this boot.
    let other = base.add_timed(&ticket("b", "beta"), 2 * HOUR).expect("one");
    let (_file, taken) = base.add("a");
    assert_eq!(numbers(&taken), [0; 0]);
    assert!(timed.number < other.number && other.number < taken.number, "{timed:?} {taken:?}");
    assert!(other.number > Some(60_000), "{other:?}");
    // Its own token does not take it again, or end it.
    assert_eq!((base.end_timed("z", "alpha"), base.end_timed("r", "alpha")), (None, None));
    let z = base.add_timed(&ticket("z", "alpha"), HOUR).expect("a ticket");
    assert!(z.number > taken.number, "{z:?}");
}

/// The file as a container has it that was given a name of the boot of its own: each of the two
/// wiped the timed tickets of the other, and both were granted.
#[test]
fn a_process_that_does_not_know_the_boot_keeps_the_timed_tickets_of_the_others() {
    let base = Base::new();
    let in_container = || LockFile { boot: String::new(), ..base.open() };
    let theirs = in_container().add_timed(&ticket("a", "alpha"), HOUR, false);
    let theirs = theirs.expect("an answer").expect("a ticket");
    let ours = base.add_timed(&ticket("b", "beta"), HOUR).expect("a ticket");
    assert!(ours.number > theirs.number, "{ours:?} {theirs:?}");
    assert_eq!(Some(numbers(&base.add("a").1)), theirs.number.map(|it| vec![it]));
    let waits = in_container().add(&ticket("b", "gamma"), false).expect("an answer");
    assert_eq!(Some(numbers(&waits)), ours.number.map(|it| vec![it]));
    let again = in_container().add_timed(&ticket("a", "alpha"), HOUR, false);
    assert_eq!(again.expect("an answer").expect("a ticket").number, theirs.number);
    // The clock says that there was a boot since.
    base.change_header(|header| header.written_at = sys::now().after(HOUR));
    for name in ["a", "b"] {
        let next = in_container().add(&ticket(name, "gamma"), false).expect("an answer");
        assert_eq!(numbers(&next), [0; 0], "{name}");
    }
}

/// It saw a clock that was 100 seconds ahead, took the tickets of others for run out, and was
/// granted.
#[test]
fn a_process_with_another_clock_takes_no_timed_ticket_and_decides_about_none() {
    let base = Base::new();
    let in_namespace = || LockFile { has_clock_of_host: false, ..base.open() };
    let own = ticket("a", "alpha");
    let is_refused = |error: StoreError| {
        assert_eq!(error.kind, StoreErrorKind::Unsafe);
        assert!(error.text.contains("in a time namespace"), "{error:?}");
    };
    is_refused(in_namespace().add_timed(&own, HOUR, false).expect_err("another clock"));
    assert_eq!(in_namespace().add(&own, true).expect("an answer").number, Some(1));
    base.add_timed(&ticket("b", "beta"), HOUR).expect("a ticket");
    is_refused(in_namespace().add(&own, true).expect_err("a ticket that may stand"));
    is_refused(in_namespace().end_timed(&own.name, "alpha").expect_err("another clock"));
}

/// As a writer that was killed has left the header, the record, and the header with the count.
#[test]
fn a_writer_of_a_timed_ticket_that_was_killed_at_any_byte_leaves_a_file_that_can_be_used() {
    let base = Base::new();
    base.add_timed(&ticket("a", "alpha"), HOUR).expect("a ticket");
    let before = fs::read(base.path()).expect("a file");
    base.add_timed(&ticket("b", "beta"), HOUR).expect("a ticket");
    let after = fs::read(base.path()).expect("a file");
    let can_be_used = |bytes: &[u8], what: &str| {
        fs::write(base.path(), bytes).expect("it is there");
        let waits = base.open().add(&ticket("a", "gamma"), false).expect(what);
        assert_eq!(numbers(&waits), [1], "{what}");
        let added = base.add_timed(&ticket("c", "gamma"), HOUR).expect(what);
        assert!(added.number >= Some(3), "{what}: {added:?}");
    };
    fs::write(base.path(), &after).expect("it is there");
    let counted = base.change_header(|header| header.timed -= 1);
    let (written, record) = (HEADER_BYTES + BLOCK_BYTES, HEADER_BYTES + 2 * BLOCK_BYTES);
    for at in (written..=record).step_by(3) {
        can_be_used(&[&counted[..at], &before[at..]].concat(), &format!("up to {at}"));
    }
    can_be_used(&after, "all of it");
    // One that was to be erased, and one that is taken again: the header is first.
    let erased = [&counted[..HEADER_BYTES], &after[HEADER_BYTES..]].concat();
    can_be_used(&erased, "before the erasure");
}

/// Changes a byte of the file.
fn damage(base: &Base, at: usize) {
    let mut bytes = fs::read(base.path()).expect("a file");
    bytes[at] ^= 1;
    fs::write(base.path(), bytes).expect("it is there");
}

/// A byte of a record of a timed ticket was changed, or the file was cut off before it, and the
/// name was granted to another one.
#[test]
fn a_file_that_has_lost_a_timed_ticket_is_refused_until_that_has_run_out() {
    let base = Base::new();
    let add = |name, lasts| base.add_timed(&ticket(name, "alpha"), lasts).expect("a ticket");
    let short = [add("a", SHORT), add("b", SHORT)];
    damage(&base, HEADER_BYTES + 20);
    short.iter().for_each(run_out);
    assert_eq!(numbers(&base.add("a").1), [0; 0]);
    let (_, _) = (add("a", HOUR), add("b", HOUR));
    let whole = fs::read(base.path()).expect("a file");
    let is_refused = |bytes: &[u8], what: &str| {
        fs::write(base.path(), bytes).expect("it is there");
        let error = base.open().add(&ticket("c", "gamma"), true).expect_err(what);
        assert_eq!(error.kind, StoreErrorKind::Unsafe, "{what}");
        assert!(error.text.contains("is damaged: "), "{what}: {error:?}");
        assert_eq!(fs::read(base.path()).expect("a file"), bytes, "{what}");
    };
    let record = Record::decode(&whole[HEADER_BYTES..]).expect("a record").0;
    assert_eq!(record.until.map(|until| until > sys::now()), Some(true));
    let used = record.encode().iter().rposition(|byte| *byte != 0).expect("a byte") + 1;
    for at in HEADER_BYTES..HEADER_BYTES + used {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        is_refused(&damaged, &format!("byte {at}"));
    }
    for at in [HEADER_BYTES, HEADER_BYTES + 20, HEADER_BYTES + BLOCK_BYTES, whole.len() / 8 + 20] {
        is_refused(&whole[..at], &format!("cut off at {at}"));
    }
}

/// A ticket of a process is written over one that has run out, and that is not missed.
#[test]
fn a_timed_ticket_that_is_written_over_is_not_missed() {
    let base = Base::new();
    let long = ticket("a", &"h".repeat(5000));
    let added = base.add_timed(&long, SHORT).expect("a ticket");
    base.add_timed(&ticket("a", "beta"), SHORT).map(|it| run_out(&it)).expect("a ticket");
    base.add_timed(&ticket("b", "beta"), HOUR).expect("a ticket");
    run_out(&added);
    for name in ["c", "d", "e"] {
        let (_file, taken) = base.add(name);
        let stands = base.add_timed(&ticket(name, "gamma"), HOUR).expect("a ticket");
        assert_eq!((numbers(&taken), numbers(&stands)), (vec![], vec![taken.number.unwrap_or(0)]));
    }
    assert_eq!(base.end_timed("b", "beta"), Some(3));
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_timed_ticket_keeps_its_number_when_it_is_taken_again_and_ends_when_it_is_ended() {
    let base = Base::new();
    let own = ticket("a", "alpha");
    let first = base.open().add_timed(&own, HOUR, true).expect("an answer").expect("a ticket");
    assert_eq!(first.number, Some(1));
    let (waiter, waits) = base.add("a/b");
    let below = ticket("a/b", "alpha");
    let end = |added: &Added| added.timed[&Revision(1)];
    let again = base.open().add_timed(&own, 2 * HOUR, true).expect("an answer").expect("a ticket");
    assert_eq!((again.number, numbers(&again)), (Some(1), vec![]));
    assert_eq!(waiter.try_to_enter(), Ok(true));
    let later = waiter.decide_again(&below, waits.clone()).expect("an answer");
    assert!(end(&later) > end(&waits).after(HOUR / 2), "{later:?} {waits:?}");
    // Another one is behind the waiter.
    let other = base.add_timed(&ticket("a", "beta"), HOUR).expect("a ticket");
    assert_eq!((other.number, numbers(&other)), (Some(3), vec![1, 2]));
    assert_eq!(base.end_timed("a", "gamma"), None);
    assert_eq!(base.end_timed("a", "alpha"), Some(1));
    assert_eq!(base.end_timed("a", "alpha"), None);
    assert_eq!(waiter.try_to_enter(), Ok(true));
    let granted = waiter.decide_again(&below, later).expect("an answer");
    assert_eq!(granted.decision, Decision::Granted);
    drop(waiter);
    let again = base.open().add_timed(&own, HOUR, true).expect("an answer").expect("an answer");
    assert_eq!((again.number, numbers(&again)), (None, vec![3]));
}

/// A slot is got at once, or when it is free, and then stands in the file for others to see.
#[test]
fn slots_are_got_in_the_order_of_tickets_and_stand_in_the_file() {
    let base = Base::new();
    let own = |name| Ticket { mode: Mode::Slots(2), ..ticket(name, "alpha") };
    let add = || {
        let file = base.open();
        let added = file.add(&own("a"), false).expect("a ticket");
        (file, added)
    };
    let (first, one) = add();
    let (second, two) = add();
    assert_eq!((one.slot, two.slot), (Some(0), Some(1)));
    let (third, three) = add();
    let (fourth, four) = add();
    assert_eq!((three.slot, numbers(&three), numbers(&four)), (None, vec![1, 2], vec![1, 2, 3]));
    let again = |file: &LockFile, added| {
        assert_eq!(file.try_to_enter(), Ok(true));
        file.decide_again(&own("a"), added).expect("an answer")
    };
    let four = again(&fourth, four);
    assert_eq!(four.slot, None);
    drop(first);
    // The one before it has not got its slot yet.
    let four = again(&fourth, four);
    assert_eq!((four.slot, numbers(&four)), (None, vec![2, 3]));
    assert_eq!(again(&third, three).slot, Some(0));
    drop(second);
    assert_eq!(again(&fourth, four).slot, Some(1));
    let timed = Ticket { mode: Mode::Slots(2), ..ticket("a", "beta") };
    let waits = base.add_timed(&timed, HOUR).expect("a ticket");
    assert_eq!((waits.number, waits.slot), (Some(5), None));
    drop(third);
    let had = base.add_timed(&timed, HOUR).expect("a ticket");
    assert_eq!((had.number, had.slot), (Some(5), Some(0)));
    drop(fourth);
    // Others see its slot.
    assert_eq!(add().1.slot, Some(1));
    let other = Ticket { mode: Mode::Slots(3), ..ticket("a", "gamma") };
    let waits = base.open().add(&other, false).expect("an answer");
    assert_eq!((waits.slot, numbers(&waits)), (None, vec![5]));
}

/// Waits until a timed ticket has run out.
fn run_out(added: &Added) {
    let until = added.until.expect("a timed ticket");
    while sys::now() <= until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_timed_ticket_that_has_run_out_is_taken_again_unless_somebody_came_whom_it_would_hold_up() {
    let base = Base::new();
    let own = ticket("a", "alpha");
    let first = base.add_timed(&own, SHORT).expect("a ticket");
    let (_process, two) = base.add("c");
    run_out(&first);
    // Who inspects the file, and who asks for another name, removes nothing.
    assert_eq!(numbers(&base.open().inspect(&own).expect("an answer")), [0; 0]);
    assert_eq!(base.open().inspect_timed(&own), Ok(None));
    let again = base.add_timed(&own, SHORT).expect("a ticket");
    assert_eq!((again.number, two.number), (Some(1), Some(2)));
    run_out(&again);
    let (third, three) = base.add("a/b");
    assert_eq!((numbers(&three), three.removed.len()), (vec![], 1));
    drop(third);
    let next = base.add_timed(&own, HOUR).expect("a ticket");
    assert_eq!(next.number, Some(4));
    // One that waited when it ran out removes it too.
    let (waiter, waits) = base.add("a");
    assert_eq!(numbers(&waits), [4]);
    base.run_out_now(&next);
    assert_eq!(waiter.try_to_enter(), Ok(true));
    let granted = waiter.decide_again(&ticket("a", "beta"), waits).expect("an answer");
    assert_eq!(granted.decision, Decision::Granted);
    drop(waiter);
    assert_eq!(base.end_timed("a", "alpha"), None);
    let other = base.add_timed(&ticket("a", "gamma"), SHORT).expect("a ticket");
    run_out(&other);
    // A grabber that comes again removes it as well.
    let last = base.add_timed(&own, HOUR).expect("a ticket");
    assert_eq!((last.removed.len(), base.end_timed("a", "gamma")), (1, None));
}

/// More tickets have run out than the first part of the file has room for.
#[test]
fn a_timed_ticket_that_has_run_out_is_removed_wherever_it_stands_in_the_file() {
    let base = Base::new();
    let names: Vec<_> = (0..20).map(|number| format!("n{number}")).collect();
    let own = |name: &String| ticket(name, "alpha");
    let add = |name: &String| base.add_timed(&own(name), HOUR).expect("a ticket");
    let added: Vec<_> = names.iter().map(add).collect();
    added.iter().for_each(|added| base.run_out_now(added));
    drop(base.add("n19"));
    // Whoever holds a lock has the whole file read.
    let (_holder, _) = base.add("other");
    assert_eq!(base.end_timed("n19", "alpha"), None);
    assert_eq!(base.end_timed("n18", "alpha"), Some(19));
}

#[test]
fn a_token_has_no_two_timed_tickets_that_would_wait_for_each_other() {
    let base = Base::new();
    let own = |name: &str| ticket(name, "alpha");
    let two = base.add_timed(&own("a/b"), HOUR).expect("a ticket");
    // A process with the same token is another requester.
    let (_process, three) = base.add("a/b");
    assert_eq!((three.number, numbers(&three)), (Some(2), vec![1]));
    let shared = Ticket { mode: Mode::Shared, ..own("a/b") };
    for other in [own("a"), own("a/b/d"), shared] {
        let refused = base.add_timed(&other, HOUR).expect_err("it would wait");
        assert_eq!(refused.number.0, 1);
    }
    let again = base.add_timed(&own("a/b"), SHORT).expect("a ticket");
    // A shorter time does not shorten it.
    assert_eq!((again.number, again.until), (Some(1), two.until));
    assert_eq!(base.add_timed(&own("d"), HOUR).expect("a ticket").number, Some(3));
}

#[test]
fn a_timed_ticket_ends_by_itself() {
    let base = Base::new();
    let own = ticket("a", "alpha");
    let began = sys::now();
    base.open()
        .add_timed(&own, Duration::from_millis(200), true)
        .expect("an answer")
        .expect("a ticket");
    while base.open().add(&own, true).expect("an answer").number.is_none() {
        assert!(sys::now() < began.after(sys::PATIENCE), "it does not end");
    }
    assert!(sys::now() >= began.after(Duration::from_millis(150)), "it ended early");
}
