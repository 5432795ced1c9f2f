//! Stories of one command each.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(secs: u64) -> Instant {
    Instant::from_boot(Duration::from_secs(secs))
}

fn info(replicas: u32, last: u64) -> BucketInfo {
    BucketInfo {
        id: BucketId { epoch: "8c3e".to_owned(), created: String::new() },
        last: Revision(last),
        age: None,
        replicas,
        remarks: Vec::new(),
        retires: Ok(()),
    }
}

fn lease(holder: &str, attempt: u64) -> LeaseEntry {
    let duration = LeaseTime::guaranteeing(60 * SECOND, 10_000).duration();
    LeaseEntry { holder: holder.to_owned(), duration, term: Some(Revision(5)), attempt }
}

fn standing(holder: &str, attempt: u64) -> StoredLease {
    StoredLease { revision: Revision(7), lease: Some(Ok(lease(holder, attempt))) }
}

const NONE: StoredLease = StoredLease { revision: Revision(0), lease: None };

/// Returns a command, begun at second 100 on a bucket of so many copies, to which this lease was
/// shown.
fn begun(task: LeaseTask, replicas: u32, stored: StoredLease, notes: LeaseNotes) -> LeaseCommand {
    let mut command = LeaseCommand::new(task, 10_000, 77, false, at(100));
    assert!(matches!(command.next(at(100)), LeaseStep::Open(_)));
    command.handle(LeaseInput::Opened(Ok(Box::new((info(replicas, 9), stored, notes)))), at(101));
    command
}

fn claiming() -> LeaseTask {
    LeaseTask::Claim { holder: "alpha".to_owned(), at_least: 60 * SECOND }
}

fn extend() -> LeaseTask {
    LeaseTask::Extend { holder: "alpha".to_owned(), at_least: 60 * SECOND }
}

const CHECK: LeaseTask = LeaseTask::Check { holder: None };

/// Seen at second 20, and not there at second 10.
fn seen_long_ago(revision: u64) -> LeaseNotes {
    let mut notes = LeaseNotes::default();
    notes.read(Revision(0), at(10), at(11), true);
    notes.read(Revision(revision), at(19), at(20), true);
    notes
}

/// An answer was lost, and the write too or not: the command finds out, and the time of the lease
/// counts from the first one.
#[test]
fn a_claim_without_an_answer_is_read_again() {
    for is_stored in [false, true] {
        let mut command = begun(claiming(), 1, NONE, LeaseNotes::default());
        let LeaseStep::Write(Revision(0), Some(entry), _) = command.next(at(102)) else {
            panic!("it is written")
        };
        assert_eq!((&*entry.holder, entry.attempt), ("alpha", 77));
        command.handle(LeaseInput::Written(Written::Unknown("none".to_owned())), at(104));
        assert!(matches!(command.next(at(104)), LeaseStep::Rest(_)));
        command.handle(LeaseInput::Rested, at(105));
        assert!(matches!(command.next(at(105)), LeaseStep::Read(_)));
        if is_stored {
            let stored = StoredLease { revision: Revision(10), lease: Some(Ok(entry)) };
            command.handle(LeaseInput::Read(Ok(stored)), at(106));
        } else {
            command.handle(LeaseInput::Read(Ok(NONE)), at(106));
            let again = command.next(at(106));
            assert!(matches!(&again, LeaseStep::Write(_, Some(it), _) if *it == entry));
            command.handle(LeaseInput::Written(Written::Stored(Revision(10))), at(107));
        }
        let Some(LeaseEnd::Had { term, valid_until }) = command.ended() else {
            panic!("{command:?}")
        };
        let sent = if is_stored { at(102) } else { at(106) };
        assert_eq!(*term, Revision(10));
        let has = valid_until.since(sent);
        assert!(has >= 60 * SECOND && has < 61 * SECOND, "{has:?}");
    }
}

/// Whoever claims what it has, or what has run out, is told so: a script that is run twice has not
/// claimed twice.
#[test]
fn what_stands_is_not_claimed_whoever_has_it_and_whether_it_has_run_out() {
    for (holder, notes, state) in [
        ("alpha", LeaseNotes::default(), LeaseState::Unsure),
        ("beta", seen_long_ago(7), LeaseState::RunOut),
    ] {
        let command = begun(claiming(), 3, standing(holder, 1), notes);
        let Some(LeaseEnd::Taken(view)) = command.ended() else { panic!("{command:?}") };
        assert_eq!((&*view.holder, view.state, view.term), (holder, state, Revision(5)));
    }
}

#[test]
fn a_holder_extends_what_stands_and_nothing_else() {
    // Without notes: whatever was left.
    let mut command = begun(extend(), 3, standing("alpha", 1), LeaseNotes::default());
    let LeaseStep::Write(Revision(7), Some(entry), _) = command.next(at(102)) else {
        panic!("{command:?}")
    };
    assert_eq!(entry, LeaseEntry { attempt: 77, ..lease("alpha", 1) });
    command.handle(LeaseInput::Written(Written::Moved(Some(Revision(8)))), at(103));
    assert!(matches!(command.next(at(103)), LeaseStep::Read(_)));
    // It has gone meanwhile: to say that, a bucket of several copies is asked again.
    command.handle(LeaseInput::Read(Ok(standing("beta", 2))), at(104));
    assert!(command.ended().is_none());
    assert!(matches!(command.next(at(104)), LeaseStep::Confirm(Revision(7), _)));
    command.handle(LeaseInput::Written(Written::Stored(Revision(11))), at(105));
    assert!(matches!(command.ended(), Some(LeaseEnd::NotHad(Some(view))) if view.holder == "beta"));
    // What lasts for so long anyway is not written.
    let mut notes = LeaseNotes::default();
    notes.write(Revision(7), at(99), at(100));
    let task = LeaseTask::Extend { holder: "alpha".to_owned(), at_least: 50 * SECOND };
    let command = begun(task, 1, standing("alpha", 1), notes);
    let Some(LeaseEnd::Had { term: Revision(5), valid_until }) = command.ended() else {
        panic!("{command:?}")
    };
    assert!(*valid_until >= at(159));
}

#[test]
fn a_lease_is_expired_when_this_host_has_seen_it_for_so_long_and_not_before() {
    let expire = |wait| LeaseTask::Expire { wait };
    let too_early = begun(expire(Duration::ZERO), 1, standing("beta", 1), LeaseNotes::default());
    assert!(matches!(too_early.ended(), Some(LeaseEnd::TooEarly(_))), "{too_early:?}");
    // It is waited for, and extended meanwhile.
    let mut command = begun(expire(150 * SECOND), 1, standing("beta", 1), LeaseNotes::default());
    let LeaseStep::Rest(until) = command.next(at(102)) else { panic!("{command:?}") };
    let life = lease("beta", 1).duration;
    assert!(until.since(at(101)) >= life.mul_f64(1.01), "{until:?}");
    command.handle(LeaseInput::Rested, until);
    assert!(matches!(command.next(until), LeaseStep::Read(_)));
    let extended = StoredLease { revision: Revision(8), ..standing("beta", 2) };
    command.handle(LeaseInput::Read(Ok(extended.clone())), until);
    let LeaseStep::Rest(later) = command.next(until) else { panic!("{command:?}") };
    assert!(later > until);
    command.handle(LeaseInput::Rested, later);
    assert!(matches!(command.next(later), LeaseStep::Read(_)));
    command.handle(LeaseInput::Read(Ok(extended)), later);
    assert!(matches!(command.next(later), LeaseStep::Write(Revision(8), None, _)));
    command.handle(LeaseInput::Written(Written::Stored(Revision(12))), later);
    assert!(matches!(command.ended(), Some(LeaseEnd::Expired(view)) if view.holder == "beta"));
}

#[test]
fn a_check_has_three_answers_and_confirms_a_no() {
    let state = |command: &LeaseCommand| match command.ended() {
        Some(LeaseEnd::Checked(state, _)) => Some(*state),
        _ => None,
    };
    let unsure = begun(CHECK, 3, standing("beta", 1), LeaseNotes::default());
    assert_eq!(state(&unsure), Some(LeaseState::Unsure));
    let mut notes = LeaseNotes::default();
    notes.read(Revision(0), at(90), at(91), true);
    let held = begun(CHECK, 3, standing("beta", 1), notes.clone());
    assert_eq!(state(&held), Some(LeaseState::Held));
    let of_beta = LeaseTask::Check { holder: Some("beta".to_owned()) };
    assert_eq!(state(&begun(of_beta, 3, standing("beta", 1), notes)), Some(LeaseState::Held));
    let of_alpha = || LeaseTask::Check { holder: Some("alpha".to_owned()) };
    for (task, shown) in
        [(CHECK, NONE), (CHECK, standing("beta", 1)), (of_alpha(), standing("beta", 1))]
    {
        let notes = if task == CHECK { seen_long_ago(7) } else { LeaseNotes::default() };
        let notes = if shown == NONE { LeaseNotes::default() } else { notes };
        let alone = begun(task.clone(), 1, shown.clone(), notes.clone());
        assert_eq!(state(&alone), Some(LeaseState::RunOut));
        for (answer, expected) in [
            (Written::Stored(Revision(10)), Some(LeaseState::RunOut)),
            (Written::Moved(None), None),
            // A server that cannot confirm it.
            (Written::Denied("old".to_owned()), Some(LeaseState::Unsure)),
        ] {
            let mut command = begun(task.clone(), 3, shown.clone(), notes.clone());
            assert!(matches!(command.next(at(102)), LeaseStep::Confirm(..)), "{command:?}");
            command.handle(LeaseInput::Written(answer), at(103));
            assert_eq!(state(&command), expected, "{command:?}");
        }
    }
}

/// Somebody has purged the key: what was noted of it says nothing any more.
#[test]
fn a_key_that_was_purged_is_free_and_a_server_that_is_behind_is_not_believed() {
    let free = begun(CHECK, 1, NONE, seen_long_ago(7));
    assert!(matches!(free.ended(), Some(LeaseEnd::Checked(LeaseState::RunOut, None))));
    let mut behind = begun(CHECK, 3, NONE, seen_long_ago(7));
    assert!(matches!(behind.next(at(102)), LeaseStep::Confirm(Revision(0), _)));
    behind.handle(LeaseInput::Written(Written::Moved(Some(Revision(7)))), at(103));
    assert!(matches!(behind.next(at(103)), LeaseStep::Rest(_)));
}

/// A bucket that was lost and made anew looks free.
#[test]
fn in_a_new_bucket_a_lease_is_claimed_only_after_those_of_a_lost_one_have_run_out() {
    let mut notes = LeaseNotes::default();
    for (now, is_believed) in [(100, false), (161, false), (163, true)] {
        let mut command = LeaseCommand::new(claiming(), 10_000, 77, true, at(now));
        command.next(at(now));
        command
            .handle(LeaseInput::Opened(Ok(Box::new((info(1, 9), NONE, notes.clone())))), at(now));
        assert!(matches!(command.next(at(now)), LeaseStep::ReadMark(_)));
        let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
        command.handle(LeaseInput::Mark(Ok(none)), at(now));
        let written = matches!(command.next(at(now)), LeaseStep::WriteMark(_, _));
        assert_eq!(written, is_believed, "{now}");
        assert_eq!(matches!(command.ended(), Some(LeaseEnd::Young(_))), !is_believed);
        notes = command.notes().clone();
        if is_believed {
            let LeaseStep::WriteMark(mark, _) = command.next(at(now)) else { unreachable!() };
            assert_eq!(mark.lifetime, lease("a", 1).duration);
            command.handle(LeaseInput::Written(Written::Stored(Revision(10))), at(now));
            assert!(matches!(command.next(at(now)), LeaseStep::ReadMark(_)));
            command.handle(LeaseInput::Mark(Ok(mark)), at(now));
            assert!(matches!(command.next(at(now)), LeaseStep::Write(..)));
        }
    }
}

#[test]
fn a_store_that_does_not_answer_is_given_up_and_what_may_be_stored_is_said() {
    let mut command = begun(claiming(), 1, NONE, LeaseNotes::default());
    command.next(at(102));
    command.handle(LeaseInput::Written(Written::Unknown("no answer".to_owned())), at(107));
    for now in 108..112 {
        command.handle(LeaseInput::Rested, at(now));
        command.next(at(now));
        command.handle(LeaseInput::Read(Err("no answer".to_owned())), at(now));
    }
    let Some(LeaseEnd::Refused(StoreErrorKind::Unreachable, why)) = command.ended() else {
        panic!("{command:?}")
    };
    assert_eq!(why, "no answer; the last write may have been stored");
}
