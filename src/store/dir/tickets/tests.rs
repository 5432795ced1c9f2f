//! The tickets of a folder, by several openings in one process, as by several processes.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::core::tickets::{Decision, Mode, decide};
use crate::store::StoreErrorKind;

const HOUR: Duration = Duration::from_secs(3600);

/// A folder that is removed at the end.
struct Base(PathBuf);

impl Base {
    fn new() -> Base {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Base(env::temp_dir().join(format!("putex-tickets-{}-{number}", std::process::id())))
    }

    fn open(&self) -> Rc<Folder> {
        self.open_as(|_| {})
    }

    /// Opens it as a process with another clock, or another name of the boot.
    fn open_as(&self, change: impl FnOnce(&mut Folder)) -> Rc<Folder> {
        let mut folder = Folder::open(&self.0, "b").expect("a bucket");
        change(&mut folder);
        Rc::new(folder)
    }

    fn add(&self, name: &str) -> OwnTicket {
        self.open().inside().add(&ticket(name, "alpha")).expect("a ticket")
    }

    /// Writes a ticket that no process has, which ends then.
    fn add_until(&self, name: &str, until: Instant) -> Revision {
        let own = ticket(name, "alpha");
        self.open().inside().write_until(&own, None, until).expect("a ticket")
    }

    /// Returns the numbers of the tickets that stand in the way of this name.
    fn standing(&self, name: &str) -> Vec<u64> {
        numbers(&self.find(name).standing)
    }

    fn find(&self, name: &str) -> Listed {
        self.open().inside().list(&ticket(name, "").name, None).expect("an answer")
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.0.join("b")).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name().display().to_string());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("lock.")).collect();
        names.sort();
        names
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("b").join(name)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn inside(self: &Rc<Folder>) -> Entered<'_> {
        self.enter(None).expect("it is there").expect("it is free")
    }
}

fn numbers(tickets: &[StoredTicket]) -> Vec<u64> {
    tickets.iter().map(|stored| stored.number.0).collect()
}

fn ticket(name: &str, token: &str) -> Ticket {
    Ticket { lifetime: Duration::ZERO, token: token.to_owned(), ..Ticket::sample(name) }
}

fn later() -> Instant {
    sys::now().after(HOUR)
}

#[test]
fn a_ticket_stands_as_long_as_one_of_its_files_is_open_and_leaves_nothing_behind() {
    let base = Base::new();
    let mut first = base.add("a/b");
    let second = base.add("c");
    assert_eq!((base.standing("a"), base.standing("a/b/d")), (vec![1], vec![1]));
    assert_eq!((base.standing("c"), base.standing("x")), (vec![2], vec![]));
    assert_eq!(base.files(), ["lock.a.b.1.held", "lock.c.2.held"]);
    // The file that a command has inherited, which runs on.
    let inherited = first.inherited.take().expect("a file");
    let stored = base.find("a").standing.remove(0);
    let waited_for = base.open().open_to_wait(&stored).expect("an answer").expect("a file");
    drop(first);
    assert_eq!((base.standing("a"), base.files().len()), (vec![1], 2));
    drop(inherited);
    wait_for_end(waited_for).expect("a lock");
    assert_eq!(base.files().len(), 2, "nobody has looked since");
    assert_eq!(base.standing("a"), [0; 0]);
    assert_eq!(base.files(), ["lock.c.2.held"]);
    drop(second);
    assert_eq!(base.files(), [""; 0]);
    assert_eq!(base.add("a").number, Revision(3));
}

#[test]
fn what_the_command_inherits_cannot_be_written() {
    let base = Base::new();
    let own = base.add("a");
    let inherited = own.inherited.as_ref().expect("a file");
    assert!(io::Write::write_all(&mut &*inherited, b"x").is_err());
    assert_eq!(base.standing("a"), [1]);
}

/// A waiter that has been woken has the file locked alone for a moment.
#[test]
fn the_lock_of_a_waiter_is_not_taken_for_the_ticket_that_has_ended() {
    let base = Base::new();
    let own = base.add("a");
    let stored = base.find("a").standing.remove(0);
    let waiter = base.open().open_to_wait(&stored).expect("an answer").expect("a file");
    assert_eq!(raw::try_lock_file(&waiter, FileLock::Exclusive).ok(), Some(false));
    fs::rename(base.path("lock.a.1.held"), base.path("away")).expect("a file");
    drop(own);
    fs::rename(base.path("away"), base.path("lock.a.1.held")).expect("a file");
    assert_eq!(raw::try_lock_file(&waiter, FileLock::Exclusive).ok(), Some(true));
    assert_eq!(base.standing("a"), [0; 0]);
}

/// A waiter that was stopped between the end of the ticket and its own grant kept all others
/// waiting that waited for the same ticket.
#[test]
fn waiters_of_one_ticket_do_not_wait_for_each_other() {
    let base = Base::new();
    let own = base.add("a");
    let stored = base.find("a").standing.remove(0);
    let waiter = || base.open().open_to_wait(&stored).expect("an answer").expect("a file");
    let (stopped, other) = (waiter(), waiter());
    drop(own);
    raw::lock_byte(&stopped, 1).expect("it has ended");
    assert_eq!(raw::is_shared_by_others(&other).ok(), Some(false));
    let (told, waited) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(wait_for_end(other).is_ok()));
    assert_eq!(waited.recv_timeout(sys::PATIENCE), Ok(true));
    drop(stopped);
}

/// The file of a ticket that was added, at each step of its writer.
#[test]
fn a_writer_that_was_killed_at_any_step_leaves_a_gap_in_the_numbers_at_most() {
    let base = Base::new();
    let _holder = base.add("a");
    let own = base.add("b");
    let whole = fs::read(base.path("lock.b.2.held")).expect("a file");
    drop(own);
    for at in (0..=whole.len()).step_by(7) {
        fs::write(base.path(TEMP), &whole[..at]).expect("a file");
        assert_eq!(base.standing("a/b"), [1], "up to {at}");
    }
    // The file had its name, and its process was killed; the content that a power failure has left.
    for content in [&whole[..], &whole[..9], b"", &[0; 100]] {
        fs::write(base.path("lock.b.2.held"), content).expect("a file");
        assert_eq!(base.standing("b"), [0; 0]);
        assert!(!base.path("lock.b.2.held").exists());
    }
    assert_eq!(base.add("b").number, Revision(3));
}

/// The next ticket had the name of the holder's file, and was granted.
#[test]
fn where_numbers_have_gone_back_no_ticket_is_overwritten() {
    let base = Base::new();
    let _first = base.add("b");
    let before = fs::read(base.path("sequence")).expect("a file");
    let _holder = base.add("a");
    fs::write(base.path("sequence"), before).expect("a file");
    let next = base.add("a");
    assert_eq!((next.number, base.standing("a")), (Revision(3), vec![2, 3]));
}

#[test]
fn a_ticket_that_has_another_content_keeps_its_number_and_its_lock() {
    let base = Base::new();
    let slots = Ticket { mode: Mode::Slots(2), ..ticket("a", "alpha") };
    let (tickets, other) = (base.open(), base.open());
    let mut own = tickets.inside().add(&slots).expect("a ticket");
    let stored = base.find("a").standing.remove(0);
    let waiter = other.open_to_wait(&stored).expect("an answer").expect("a file");
    let with_slot = Ticket { slot: Some(1), ..slots };
    tickets.inside().replace(&mut own, &with_slot).expect("it is written");
    // A waiter that found the ticket before would wait for the end of the slot that it has got
    // since.
    assert!(other.open_to_wait(&stored).expect("an answer").is_none());
    // A waiter for the end looks again.
    wait_for_end(waiter).expect("a lock");
    let again = base.find("a").standing.remove(0);
    assert_eq!((again.number, again.ticket.expect("a ticket").slot), (Revision(1), Some(1)));
    assert!(again.revision > stored.revision);
    assert_eq!(tickets.inside().has(&own), Ok(true));
    fs::remove_file(base.path("lock.a.1.held")).expect("a file");
    assert_eq!(tickets.inside().has(&own), Ok(false));
}

#[test]
fn a_ticket_until_an_instant_ends_by_itself_and_leaves_nothing_behind() {
    let base = Base::new();
    let own = ticket("a", "alpha");
    let number = base.add_until("a", later());
    let found = base.find("a");
    assert_eq!(numbers(&found.standing), [1]);
    assert!(found.ends["lock.a.1"] > sys::now().after(HOUR / 2));
    assert_eq!((found.of_requester("alpha").count(), found.of_requester("beta").count()), (1, 0));
    let again = base.open().inside().write_until(&own, Some(number), sys::now());
    assert_eq!(again, Ok(number));
    assert_eq!(base.standing("a"), [0; 0]);
    assert_eq!(base.files(), [""; 0]);
    // The file is looked at whenever a ticket is added.
    base.add_until("a", sys::now());
    drop(base.add("b"));
    assert_eq!(base.files(), [""; 0]);
}

#[test]
fn what_is_left_of_tickets_is_removed_also_if_nobody_asks_for_their_names_again() {
    let base = Base::new();
    let names: Vec<_> = (0..9).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| _ = base.add(name).inherited.take());
    for name in &names {
        fs::write(base.path(&format!("lock.{name}.1.held")), "x").expect("a file");
        fs::write(base.path(&format!("lock.{name}.2.until")), "x").expect("a file");
    }
    (0..40).for_each(|_| drop(base.add("other")));
    assert!(base.files().iter().all(|name| name.ends_with(".until")), "{:?}", base.files());
    // Nobody could tell whether such a ticket stands.
    assert_eq!(base.files().len(), names.len());
}

#[test]
fn a_damaged_file_is_an_error_of_its_name_alone() {
    let base = Base::new();
    let _held = base.add("a");
    base.add_until("b", later());
    for (name, file) in [("a", "lock.a.1.held"), ("b", "lock.b.2.until")] {
        let whole = fs::read(base.path(file)).expect("a file");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            // The holder's file stays the same one.
            fs::write(base.path(file), &damaged).expect("a file");
            let found = base.open().inside().list(&ticket(name, "").name, None);
            let error = found.expect_err("it is damaged");
            assert_eq!(error.kind, StoreErrorKind::Unsafe);
            assert!(error.text.contains(file), "{error:?}");
            assert_eq!(fs::read(base.path(file)).expect("a file"), damaged);
        }
        assert_eq!(base.standing("c"), [0; 0]);
        fs::write(base.path(file), &whole).expect("a file");
    }
    assert_eq!((base.standing("a"), base.standing("b")), (vec![1], vec![2]));
}

#[test]
fn a_ticket_without_a_process_has_ended_in_the_next_boot_and_numbers_go_on() {
    let base = Base::new();
    base.add_until("a", later());
    let in_next_boot = base.open_as(|folder| folder.boot = "another".to_owned());
    let found = in_next_boot.inside().list(&ticket("a", "").name, None).expect("an answer");
    assert_eq!(found.standing.len(), 0);
    assert!(in_next_boot.inside().add(&ticket("a", "")).expect("a ticket").number.0 > 60_000);
}

/// A container may be given a name of the boot of its own: each of the two took the tickets of the
/// other for ended, and both were granted.
#[test]
fn a_process_that_does_not_know_the_boot_keeps_the_tickets_of_the_others() {
    let base = Base::new();
    let container = base.open_as(|folder| folder.boot = String::new());
    let theirs = container.inside().write_until(&ticket("a", "alpha"), None, later());
    let ours = base.add_until("a/b", later());
    let theirs = theirs.expect("a ticket");
    assert!(ours > theirs);
    let both = [theirs.0, ours.0];
    let found = container.inside().list(&ticket("a", "").name, None).expect("an answer");
    assert_eq!((base.standing("a"), numbers(&found.standing)), (both.to_vec(), both.to_vec()));
}

/// The process saw a clock that was 100 seconds ahead, took the tickets of others for run out, and
/// was granted.
#[test]
fn a_process_with_another_clock_may_not_write_a_ticket_that_ends_by_itself_and_judges_none() {
    let base = Base::new();
    let namespace = base.open_as(|folder| folder.has_clock_of_host = false);
    let own = ticket("a", "alpha");
    let is_refused = |error: StoreError| {
        assert_eq!(error.kind, StoreErrorKind::Unsafe);
        assert!(error.text.contains("for a time namespace"), "{error:?}");
    };
    is_refused(namespace.inside().check_clock().expect_err("another clock"));
    assert_eq!(base.open().inside().check_clock(), Ok(()));
    let _held = namespace.inside().add(&own).expect("a ticket");
    base.add_until("b", later());
    let find = |name| namespace.inside().list(&ticket(name, "").name, None);
    assert_eq!(numbers(&find("a").expect("an answer").standing), [1]);
    is_refused(find("b").expect_err("it may stand"));
}

/// A slot is got at once, or when it is free, and then stands for others to see.
#[test]
fn slots_are_got_in_the_order_of_tickets() {
    let base = Base::new();
    let tickets = base.open();
    let of = |slot| Ticket { mode: Mode::Slots(2), slot, ..ticket("a", "alpha") };
    let judge = |own: &OwnTicket| {
        let found = tickets.inside().list(&of(None).name, Some(own.number)).expect("an answer");
        decide(&of(None), own.number, &found.standing)
    };
    let _first = tickets.inside().add(&of(Some(0))).expect("a ticket");
    let second = tickets.inside().add(&of(Some(1))).expect("a ticket");
    let mut third = tickets.inside().add(&of(None)).expect("a ticket");
    let fourth = tickets.inside().add(&of(None)).expect("a ticket");
    assert!(matches!(judge(&third), Decision::Wait { blockers, .. } if blockers.len() == 2));
    drop(second);
    // The one before it has not got its slot yet.
    assert!(matches!(judge(&fourth), Decision::Wait { blockers, .. } if blockers.len() == 2));
    assert_eq!(judge(&third), Decision::Slot(1));
    tickets.inside().replace(&mut third, &of(Some(1))).expect("it is written");
    drop(third);
    assert_eq!(judge(&fourth), Decision::Slot(1));
}
