//! Slots, requests that let others go first, and waits for each other.

use crate::site::{Lock, Site, on_both_stores};

/// Returns the slot of a lock whose command has begun.
fn slot_of(lock: &Lock<'_>) -> String {
    lock.begun().mode
}

#[test]
fn sem_two_slots_are_held_together_and_the_third_waits_for_the_first_that_is_free() {
    on_both_stores(|site| {
        let first = site.lock("first", &["-j", "2", "licence"]);
        assert_eq!(slot_of(&first), "slots0");
        let second = site.lock("second", &["-j", "2", "licence"]);
        assert_eq!(slot_of(&second), "slots1");
        let third = site.lock("third", &["-j", "2", "licence"]);
        third.waits_behind(2);
        let fourth = site.lock("fourth", &["-j", "2", "licence"]);
        fourth.waits_behind(3);
        // The one that began last ends first.
        second.end();
        assert_eq!(slot_of(&third), "slots1");
        assert!(fourth.held().is_none());
        first.signal_front(rustix::process::Signal::KILL);
        assert_eq!(slot_of(&fourth), "slots0");
        third.end();
        fourth.end();
    });
}

#[test]
fn sem_who_asks_for_another_number_of_slots_waits_until_the_others_have_gone() {
    on_both_stores(|site| {
        let first = site.lock("first", &["-j", "2", "licence"]);
        first.begun();
        let other = site.run(&["-n", "-j", "3", "licence", "true"]);
        assert_eq!(other.status, Some(75), "{}", other.said);
        let exclusive = site.run(&["-n", "licence", "true"]);
        assert_eq!(exclusive.status, Some(75), "{}", exclusive.said);
        first.end();
        let alone = site.run(&["-j", "3", "licence", "true"]);
        assert_eq!(alone.status, Some(0), "{}", alone.said);
    });
}

#[test]
fn a_lock_inside_slots_has_no_slot() {
    on_both_stores(|site| {
        let inner = "$P lock $STORE other sh -c 'echo \"[$PUTEX_SLOT]\"'";
        let script = format!("echo $PUTEX_SLOT; {inner}");
        let store = site.store().join(" ");
        let mut command = site.putex(&["-j", "4", "licence", "sh", "-c", &script]);
        let run = site.sandbox.run(command.env("STORE", store));
        assert_eq!((run.status, &*run.shown), (Some(0), "0\n[]\n"), "{}", run.said);
    });
}

/// Waits until readers come and go, of whom there is one at any time.
fn readers_come_and_go(site: &Site, count: usize, has_begun: &dyn Fn() -> bool) {
    let mut before = site.lock("reader0", &["-s", "db"]);
    before.begun();
    for number in 1..count {
        let next = site.lock(&format!("reader{number}"), &["-s", "db"]);
        next.begun();
        assert!(!has_begun(), "the writer has begun beside a reader");
        before.end();
        before = next;
    }
    before.end();
}

/// The three read/write modes of snaplock: soft.
#[test]
fn snaplock_a_soft_writer_delays_no_reader_and_runs_when_there_is_none() {
    on_both_stores(|site| {
        let reader = site.lock("reader", &["-s", "db"]);
        reader.begun();
        let writer = site.lock("writer", &["--soft", "db"]);
        writer.says(": waiting: behind ");
        readers_come_and_go(site, 4, &|| site.order().contains(&"writer".to_owned()));
        assert!(writer.held().is_none());
        reader.end();
        writer.begun();
        writer.end();
    });
}

/// Timed soft.
#[test]
fn snaplock_a_writer_with_a_quiet_time_runs_after_it() {
    on_both_stores(|site| {
        let reader = site.lock("reader", &["-s", "db"]);
        reader.begun();
        let writer = site.lock("writer", &["--quiet-for", "1.5", "db"]);
        writer.says(": waiting: behind ");
        let ended = reader.begun();
        reader.end();
        let last = site.held().into_iter().find(|held| held.id == ended.id).expect("it ran");
        let begun = writer.begun();
        let quiet = begun.begun_at.saturating_sub(last.last_at);
        assert!(quiet.as_millis() >= 1_480, "it began {quiet:?} after the reader's end");
        writer.end();
    });
}

/// Hard, and after its time timed soft: nobody overtakes the writer, and nobody starves.
#[test]
fn snaplock_a_writer_turns_readers_away_after_its_time() {
    on_both_stores(|site| {
        let reader = site.lock("reader", &["-s", "db"]);
        reader.begun();
        let writer = site.lock("writer", &["--soft", "--hard-after", "1", "db"]);
        writer.waits_behind(1);
        let late = site.lock("late", &["-s", "db"]);
        late.waits_behind(1);
        // The readers do not exclude it, and the writer, which does, only waits.
        let refused = site.run(&["-n", "-s", "db", "true"]);
        assert!(refused.said.contains(": not acquired: behind "), "{}", refused.said);
        assert!(!refused.said.contains("held by"), "{}", refused.said);
        reader.end();
        writer.begun();
        assert!(late.held().is_none());
        writer.end();
        late.begun();
        late.end();
    });
}

/// The first command holds `a` and asks for `b`, the second holds `b` and asks for `a`: nobody
/// tells them so.
#[test]
fn of_two_commands_that_wait_for_each_other_the_one_with_a_limit_ends_with_75() {
    on_both_stores(|site| {
        let store = site.store().join(" ");
        let nested = |outer: &str, inner: &str, limit: &str| {
            let script = format!(
                "touch $D/has-{outer}; while [ ! -e $D/has-{inner} ]; do sleep 0.01; done; \
                 exec $P lock {limit} $STORE {inner} true"
            );
            let mut command = site.putex(&[outer, "sh", "-c", &script]);
            command.env("STORE", &store).stderr(std::process::Stdio::piped());
            command.spawn().expect("the command can be run")
        };
        let both = [nested("a", "b", "-w 0.5"), nested("b", "a", "")]
            .map(|child| child.wait_with_output().expect("it ends"));
        let codes = both.each_ref().map(|output| output.status.code());
        let said = both.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        assert_eq!(codes, [Some(75), Some(0)], "{said:?}");
    });
}
