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
        may_be_lost: true,
        replicas,
        remarks: Vec::new(),
        retires: Ok(()),
    }
}

fn lease(holder: &str) -> LeaseEntry {
    let duration = LeaseTime::guaranteeing(60 * SECOND, 10_000).duration;
    LeaseEntry { holder: holder.to_owned(), duration, term: Some(Revision(5)) }
}

/// The number of the command that has written the standing leases.
const OTHER: u64 = 1;

fn standing(holder: &str) -> StoredLease {
    StoredLease { revision: Revision(7), attempt: OTHER, lease: Some(Ok(lease(holder))) }
}

const NONE: StoredLease = StoredLease { revision: Revision(0), attempt: 0, lease: None };

/// A mark that is not waited for.
fn mark() -> Mark {
    let (revision, lifetime) = (Revision(2), Duration::from_secs(6_000));
    Mark { revision, epoch: "8c3e".to_owned(), lifetime }
}

/// Returns a command, begun at second 100 on a bucket of so many copies, to which this lease was
/// shown.
fn begun(task: LeaseTask, replicas: u32, stored: StoredLease, notes: Observed) -> LeaseCommand {
    let mut command = LeaseCommand::new(task, 10_000, 77, at(100));
    open(&mut command, replicas, notes, 100);
    assert!(matches!(command.next(at(100)).step, LeaseStep::Read));
    command.handle(LeaseInput::Read(Ok(stored)), at(101));
    command
}

/// The bucket is opened.
fn open(command: &mut LeaseCommand, replicas: u32, notes: Observed, now: u64) {
    assert!(matches!(command.next(at(now)).step, LeaseStep::Open));
    let opened = Box::new((info(replicas, 9), mark(), notes));
    command.handle(LeaseInput::Opened(Ok(opened)), at(now));
}

impl LeaseCommand {
    /// Returns how the command has ended; `None` before that.
    fn ended(&self) -> Option<&LeaseEnd> {
        if let LeaseStep::Exit(end) = &self.step { Some(end) } else { None }
    }
}

fn claiming() -> LeaseTask {
    LeaseTask::Claim { holder: "alpha".to_owned(), at_least: 60 * SECOND }
}

fn extend() -> LeaseTask {
    LeaseTask::Extend { holder: "alpha".to_owned(), at_least: 60 * SECOND }
}

const CHECK: LeaseTask = LeaseTask::Check { holder: None };

/// Observed at second 20, and not there at second 10.
fn seen_long_ago(revision: u64) -> Observed {
    let mut notes = Observed::default();
    notes.read((Revision(0), 0), (at(10), at(11)), true);
    notes.read((Revision(revision), OTHER), (at(19), at(20)), true);
    notes
}

/// An answer was lost, perhaps with its write: the command finds that out, and the time of the
/// lease counts from the first copy. A bucket that was made anew meanwhile may have given the
/// answer: so the first claim of a name is always read again.
#[test]
fn a_claim_without_an_answer_and_the_first_of_a_name_are_read_again() {
    for (answer, is_stored) in [
        (Written::Unknown("none".to_owned()), true),
        (Written::Unknown("none".to_owned()), false),
        (Written::Stored(Revision(10)), true),
        (Written::Stored(Revision(10)), false),
    ] {
        let mut command = begun(claiming(), 1, NONE, Observed::default());
        let LeaseStep::Write(Some(entry)) = command.next(at(102)).step else {
            panic!("it is written")
        };
        assert_eq!(entry.holder, "alpha");
        command.handle(LeaseInput::Written(answer.clone()), at(104));
        if matches!(answer, Written::Unknown(_)) {
            assert!(matches!(command.next(at(104)).step, LeaseStep::Rest(_)));
            command.handle(LeaseInput::Rested, at(105));
            open(&mut command, 1, Observed::default(), 105);
        }
        assert!(matches!(command.next(at(105)).step, LeaseStep::Read));
        if is_stored {
            let lease = Some(Ok(entry));
            let attempt = command.attempt;
            let stored = StoredLease { revision: Revision(10), attempt, lease };
            command.handle(LeaseInput::Read(Ok(stored)), at(106));
            let Some(LeaseEnd::Had { term, valid_until }) = command.ended() else {
                panic!("{command:?}")
            };
            assert_eq!(*term, Revision(10));
            let has = valid_until.since(at(102));
            assert!(has >= 60 * SECOND && has < 61 * SECOND, "{has:?}");
        } else {
            command.handle(LeaseInput::Read(Ok(NONE)), at(106));
            assert!(
                matches!(command.next(at(106)).step, LeaseStep::Write(Some(it)) if it == entry)
            );
        }
    }
}

/// The process was stopped after its claim: the command after `&&` in a script must not run.
#[test]
fn a_claim_that_has_run_out_again_is_none() {
    let tombstone = StoredLease { revision: Revision(7), attempt: OTHER, lease: None };
    for (now, is_had) in [(161, true), (163, false)] {
        let mut command = begun(claiming(), 1, tombstone.clone(), Observed::default());
        assert!(matches!(command.next(at(102)).step, LeaseStep::Write(..)));
        command.handle(LeaseInput::Written(Written::Stored(Revision(10))), at(now));
        assert_eq!(matches!(command.ended(), Some(LeaseEnd::Had { .. })), is_had, "{now}");
        assert_eq!(command.ended() == Some(&LeaseEnd::Over(Revision(10))), !is_had, "{now}");
    }
}

/// A claimer of a lease that it has, or that has run out, is told so: a script that is run twice
/// has not claimed twice.
#[test]
fn what_stands_is_not_claimed_whoever_has_it_and_whether_it_has_run_out() {
    for (holder, notes, state) in [
        ("alpha", Observed::default(), LeaseState::Unsure),
        ("beta", seen_long_ago(7), LeaseState::RunOut),
    ] {
        let command = begun(claiming(), 3, standing(holder), notes);
        let Some(LeaseEnd::Taken(view)) = command.ended() else { panic!("{command:?}") };
        assert_eq!((&*view.holder, view.state, view.term), (holder, state, Revision(5)));
    }
}

#[test]
fn a_holder_extends_what_stands_and_nothing_else() {
    // Without notes: whatever was left of the lease.
    let mut command = begun(extend(), 3, standing("alpha"), Observed::default());
    let LeaseTurn { step: LeaseStep::Write(Some(entry)), at: Revision(7), .. } =
        command.next(at(102))
    else {
        panic!("{command:?}")
    };
    assert_eq!(entry, lease("alpha"));
    command.handle(LeaseInput::Written(Written::Moved(Some(Revision(8)))), at(103));
    assert!(matches!(command.next(at(103)).step, LeaseStep::Read));
    // The lease has gone meanwhile: before that is said, a bucket of several copies is asked again.
    command.handle(LeaseInput::Read(Ok(standing("beta"))), at(104));
    assert!(command.ended().is_none());
    let turn = command.next(at(104));
    assert!(matches!(turn, LeaseTurn { step: LeaseStep::Confirm(_), at: Revision(7), .. }));
    command.handle(LeaseInput::Written(Written::Stored(Revision(11))), at(105));
    assert!(matches!(command.ended(), Some(LeaseEnd::NotHad(Some(view))) if view.holder == "beta"));
    // A lease that lasts for so long anyway is not written.
    let mut notes = Observed::default();
    notes.write((Revision(7), OTHER), (at(99), at(100)));
    let task = LeaseTask::Extend { holder: "alpha".to_owned(), at_least: 50 * SECOND };
    let command = begun(task, 1, standing("alpha"), notes);
    let Some(LeaseEnd::Had { term: Revision(5), valid_until }) = command.ended() else {
        panic!("{command:?}")
    };
    assert!(*valid_until >= at(159));
}

#[test]
fn a_lease_is_expired_when_this_host_has_seen_it_for_so_long_and_not_before() {
    let expire = |wait| LeaseTask::Expire { wait };
    let too_early = begun(expire(Duration::ZERO), 1, standing("beta"), Observed::default());
    assert!(matches!(too_early.ended(), Some(LeaseEnd::TooEarly(_))), "{too_early:?}");
    // The end of the lease is waited for; the lease is extended meanwhile.
    let mut command = begun(expire(150 * SECOND), 1, standing("beta"), Observed::default());
    let LeaseStep::Rest(until) = command.next(at(102)).step else { panic!("{command:?}") };
    let life = lease("beta").duration;
    assert!(until.since(at(101)) >= life.mul_f64(1.01), "{until:?}");
    // The bucket may have been lost and made anew meanwhile.
    command.handle(LeaseInput::Rested, until);
    let reopen = |command: &mut LeaseCommand, now| {
        assert!(matches!(command.next(now).step, LeaseStep::Open));
        let opened = Box::new((info(1, 9), mark(), Observed::default()));
        command.handle(LeaseInput::Opened(Ok(opened)), now);
        assert!(matches!(command.next(now).step, LeaseStep::Read));
    };
    reopen(&mut command, until);
    let extended = StoredLease { revision: Revision(8), attempt: 2, ..standing("beta") };
    command.handle(LeaseInput::Read(Ok(extended.clone())), until);
    let LeaseStep::Rest(later) = command.next(until).step else { panic!("{command:?}") };
    assert!(later > until);
    command.handle(LeaseInput::Rested, later);
    reopen(&mut command, later);
    command.handle(LeaseInput::Read(Ok(extended)), later);
    let turn = command.next(later);
    assert!(matches!(turn, LeaseTurn { step: LeaseStep::Write(None), at: Revision(8), .. }));
    command.handle(LeaseInput::Written(Written::Stored(Revision(12))), later);
    assert!(matches!(command.ended(), Some(LeaseEnd::Expired(view)) if view.holder == "beta"));
}

#[test]
fn a_check_has_three_answers_and_confirms_a_no() {
    let state = |command: &LeaseCommand| match command.ended() {
        Some(LeaseEnd::Checked(state, _)) => Some(*state),
        _ => None,
    };
    let unsure = begun(CHECK, 3, standing("beta"), Observed::default());
    assert_eq!(state(&unsure), Some(LeaseState::Unsure));
    let mut notes = Observed::default();
    notes.read((Revision(0), 0), (at(90), at(91)), true);
    let held = begun(CHECK, 3, standing("beta"), notes.clone());
    assert_eq!(state(&held), Some(LeaseState::Held));
    let of_beta = LeaseTask::Check { holder: Some("beta".to_owned()) };
    assert_eq!(state(&begun(of_beta, 3, standing("beta"), notes)), Some(LeaseState::Held));
    let of_alpha = || LeaseTask::Check { holder: Some("alpha".to_owned()) };
    for (task, shown) in [(CHECK, NONE), (CHECK, standing("beta")), (of_alpha(), standing("beta"))]
    {
        let notes = if task == CHECK { seen_long_ago(7) } else { Observed::default() };
        let notes = if shown == NONE { Observed::default() } else { notes };
        let alone = begun(task.clone(), 1, shown.clone(), notes.clone());
        assert_eq!(state(&alone), Some(LeaseState::RunOut));
        for (answer, expected) in [
            (Written::Stored(Revision(10)), Some(LeaseState::RunOut)),
            (Written::Moved(None), None),
            // This server cannot confirm the end.
            (Written::Denied(Kind::Unreachable.error("old")), Some(LeaseState::Unsure)),
        ] {
            let mut command = begun(task.clone(), 3, shown.clone(), notes.clone());
            assert!(matches!(command.next(at(102)).step, LeaseStep::Confirm(..)), "{command:?}");
            command.handle(LeaseInput::Written(answer), at(103));
            assert_eq!(state(&command), expected, "{command:?}");
        }
    }
}

/// Somebody has purged the key: the notes on it mean nothing any more.
#[test]
fn a_key_that_was_purged_is_free_and_a_server_that_is_behind_is_not_believed() {
    let free = begun(CHECK, 1, NONE, seen_long_ago(7));
    assert!(matches!(free.ended(), Some(LeaseEnd::Checked(LeaseState::RunOut, None))));
    let mut behind = begun(CHECK, 3, NONE, seen_long_ago(7));
    let turn = behind.next(at(102));
    assert!(matches!(turn, LeaseTurn { step: LeaseStep::Confirm(_), at: Revision(0), .. }));
    behind.handle(LeaseInput::Written(Written::Moved(Some(Revision(7)))), at(103));
    assert!(matches!(behind.next(at(103)).step, LeaseStep::Rest(_)));
}

/// A bucket that was lost and made anew looks free.
#[test]
fn in_a_new_bucket_a_lease_is_claimed_only_after_those_of_a_lost_one_have_run_out() {
    let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
    let find_nobody = |command: &mut LeaseCommand, mark: &Mark, notes: &Observed, now: u64| {
        command.next(at(now));
        let opened = Box::new((info(1, 9), mark.clone(), notes.clone()));
        command.handle(LeaseInput::Opened(Ok(opened)), at(now));
        assert!(matches!(command.next(at(now)).step, LeaseStep::Read));
        command.handle(LeaseInput::Read(Ok(NONE)), at(now));
    };
    let mut check = LeaseCommand::new(CHECK, 10_000, 77, at(100));
    find_nobody(&mut check, &none, &Observed::default(), 100);
    assert_eq!(check.ended(), Some(&LeaseEnd::Checked(LeaseState::Unsure, None)));
    let mut notes = Observed::default();
    for (now, is_believed) in [(100, false), (161, false), (163, true)] {
        let mut command = LeaseCommand::new(claiming(), 10_000, 77, at(now));
        find_nobody(&mut command, &none, &notes, now);
        let step = command.next(at(now)).step;
        assert_eq!(matches!(step, LeaseStep::WriteMark(_)), is_believed, "{now}");
        assert_eq!(matches!(command.ended(), Some(LeaseEnd::Young(_))), !is_believed);
        notes = command.notes().clone();
        if let LeaseStep::WriteMark(mark) = step {
            assert_eq!(mark.lifetime, lease("a").duration);
            command.handle(LeaseInput::Written(Written::Stored(Revision(10))), at(now));
            find_nobody(&mut command, &mark, &notes, now);
            assert!(matches!(command.next(at(now)).step, LeaseStep::Write(..)));
        }
    }
}

#[test]
fn a_store_that_does_not_answer_is_given_up_and_what_may_be_stored_is_said() {
    let mut command = begun(claiming(), 1, NONE, Observed::default());
    command.next(at(102));
    command.handle(LeaseInput::Written(Written::Unknown("no answer".to_owned())), at(107));
    for now in 108..112 {
        command.handle(LeaseInput::Rested, at(now));
        command.next(at(now));
        let error = Kind::Unreachable.error("no answer".to_owned());
        command.handle(LeaseInput::Opened(Err(error)), at(now));
    }
    let why = "no answer; the last write may have been stored";
    assert_eq!(command.ended(), Some(&LeaseEnd::Refused(Kind::Unreachable.error(why))));
}

/// A user without the right to write was told after 10 s that the store is out of reach. What has
/// become of a write without an answer is not known.
#[test]
fn a_write_that_the_store_denies_is_final_unless_an_earlier_copy_may_be_stored() {
    let denied = || LeaseInput::Written(Written::Denied(Kind::Credentials.error("no right")));
    for (task, stored) in [(claiming(), NONE), (extend(), standing("alpha"))] {
        let mut command = begun(task.clone(), 1, stored.clone(), Observed::default());
        assert!(matches!(command.next(at(102)).step, LeaseStep::Write(Some(_))));
        command.handle(denied(), at(102));
        let due = LeaseEnd::Refused(Kind::Credentials.error("no right"));
        assert_eq!(command.ended(), Some(&due));
        let mut command = begun(task, 1, stored.clone(), Observed::default());
        assert!(matches!(command.next(at(102)).step, LeaseStep::Write(Some(_))));
        command.handle(LeaseInput::Written(Written::Unknown("none".to_owned())), at(103));
        for (now, is_over) in [(105, false), (200, true)] {
            assert_eq!(command.ended(), None);
            command.handle(LeaseInput::Rested, at(now));
            open(&mut command, 1, Observed::default(), now);
            command.next(at(now));
            command.handle(LeaseInput::Read(Ok(stored.clone())), at(now));
            assert!(matches!(command.next(at(now)).step, LeaseStep::Write(Some(_))));
            command.handle(denied(), at(now));
            assert_eq!(command.ended().is_some(), is_over);
        }
        let text = "no right; the last write may have been stored";
        let due = LeaseEnd::Refused(Kind::Unreachable.error(text));
        assert_eq!(command.ended(), Some(&due));
    }
    // A mark or a confirmation that is denied says nothing of an earlier write either.
    let expire = LeaseTask::Expire { wait: Duration::ZERO };
    let mut command = begun(expire, 3, NONE, Observed::default());
    assert!(matches!(command.next(at(102)).step, LeaseStep::Confirm(_)));
    command.handle(denied(), at(102));
    let due = LeaseEnd::Refused(Kind::Credentials.error("no right"));
    assert_eq!(command.ended(), Some(&due));
}
