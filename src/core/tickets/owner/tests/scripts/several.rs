//! Several processes of one requester, beside others, on a bucket whose servers' clocks differ.

use super::super::simulated_bucket::Bucket;
use super::*;

pub(super) struct Environment {
    pub(super) bucket: Bucket,
    processes: u64,
}

const EXCLUSIVE: (u128, &str, Mode) = (1, "a", Mode::Exclusive);
const OTHER: (u128, &str, Mode) = (2, "a", Mode::Exclusive);

/// Returns this many milliseconds after the boot.
fn ms(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(ms))
}

impl Environment {
    /// Returns a bucket with a mark for so many seconds.
    pub(super) fn new(marked: u32) -> Environment {
        let mut bucket = Bucket::new(1);
        let mark = Mark { epoch: "1".to_owned(), revision: Revision(0), ..mark(marked) };
        bucket.answer(Step::WriteMark(mark, at(0)), "", false);
        Environment { bucket, processes: 0 }
    }

    /// Returns a process of the host with this clock that asks for the name for so many seconds.
    pub(super) fn begin(
        &mut self,
        (requester, name, mode): (u128, &str, Mode),
        (clock, seconds, withdraws): (&str, u32, bool),
        now: Instant,
    ) -> TicketOwner {
        self.processes += 1;
        let (lifetime, attempt) = (seconds * SECOND, self.processes << 9);
        let timing = timing(lifetime, 10_000).expect("times");
        let (name, incarnation) = (Name::parse(name).expect("a name"), Incarnation(requester));
        let ticket = Ticket { name, mode, lifetime, incarnation, attempt, ..ticket() };
        let nonce = u128::from(self.processes);
        let (asker, wait) = (Asker::Script { withdraws }, Some(Duration::ZERO));
        TicketOwner::new(timing, ticket, nonce, asker, wait, now).with_notes(clock)
    }

    /// Has the server answer this step, which arrives at this instant.
    pub(super) fn answer(&mut self, step: Step, of: &TicketOwner, now: Instant) -> Input {
        self.bucket.now = now.since_boot().as_micros() as u64;
        let is_of_host = matches!(step, Step::Open(_) | Step::WriteNotes(..));
        let element = if is_of_host { of.seen.clock().to_owned() } else { of.key_element() };
        self.bucket.answer(step, &element, false).0
    }

    /// Performs the steps of a process, until the next one is of this kind. Returns it.
    fn perform(&mut self, it: &mut TicketOwner, now: Instant, until: fn(&Step) -> bool) -> Step {
        for _ in 0..30 {
            let step = it.next(now);
            if step == Step::Exit || until(&step) {
                return step;
            }
            let answer = self.answer(step, it, now);
            it.handle(answer, now);
        }
        panic!("it does not end: {:?}", it.next(now));
    }

    /// Has a process ask for the name for 10 s, and make one attempt; returns its last message.
    pub(super) fn grab(&mut self, asks: (u128, &str, Mode), clock: &str, now: Instant) -> ToFront {
        let mut process = self.begin(asks, (clock, 10, false), now);
        self.perform(&mut process, now, |_| false);
        ended(&process).expect("an end")
    }
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write(..))
}

pub(super) fn is_had(message: &ToFront) -> bool {
    matches!(message, ToFront::Granted { .. })
}

fn unknown() -> Input {
    Input::Written(Written::Unknown("no answer".to_owned()))
}

/// A process renews the first ticket for 60 s while another one takes that for one that has run
/// out, and waits behind it. The first ticket is continued, and protects the requester.
#[test]
fn a_ticket_that_was_renewed_before_another_of_its_requester_is_kept() {
    for kind in [("a", Mode::Exclusive), ("a", Mode::Shared), ("a/b", Mode::Exclusive)] {
        let mut environment = Environment::new(60);
        assert!(is_had(&environment.grab(EXCLUSIVE, "one", at(1))));
        let mut renewing = environment.begin(EXCLUSIVE, ("one", 60, false), at(10));
        let renewal = environment.perform(&mut renewing, at(10), is_write);
        environment.bucket.ahead = 19_900_000;
        let same = environment.grab((1, kind.0, kind.1), "two", at(10));
        assert!(matches!(same, ToFront::Waiting { .. }), "{same:?}");
        environment.bucket.ahead = 0;
        let answer = environment.answer(renewal, &renewing, ms(10_500));
        renewing.handle(answer, ms(10_500));
        environment.perform(&mut renewing, ms(10_500), |_| false);
        let renewed = ended(&renewing).expect("an end");
        assert!(matches!(renewed, ToFront::Granted { term: 2, .. }), "{kind:?} {renewed:?}");
        for (clock, seconds) in [("one", 11), ("two", 12), ("one", 30), ("two", 60), ("one", 69)] {
            let other = environment.grab((2, kind.0, kind.1), clock, at(seconds));
            assert!(!is_had(&other), "{kind:?} {clock} {seconds}: {other:?}");
        }
        if kind == ("a", Mode::Exclusive) {
            let same = environment.grab(EXCLUSIVE, "two", at(69));
            assert!(matches!(same, ToFront::Granted { term: 2, .. }), "{same:?}");
        }
    }
}

/// Of the copies of a write, any one is stored: the ticket stands at least until V on each host.
#[test]
fn a_copy_of_a_write_runs_out_after_v() {
    for (is_first_stored, is_second_stored) in [(true, false), (false, true), (true, true)] {
        for granting in [false, true] {
            let mut environment = Environment::new(60);
            let mut first = environment.begin(EXCLUSIVE, ("one", 10, false), at(1));
            let is_it = if granting {
                |step: &Step| matches!(step, Step::Write(_, _, ticket, _) if ticket.is_granted)
            } else {
                is_write
            };
            let copy = environment.perform(&mut first, at(1), is_it);
            if is_first_stored {
                environment.answer(copy, &first, at(1));
            }
            first.handle(unknown(), at(2));
            first.goal = Goal::Get(Some(at(9)));
            first.handle(Input::Rested, at(4));
            let copy = first.next(at(4));
            assert!(is_it(&copy), "{copy:?}");
            if is_second_stored {
                let answer = environment.answer(copy, &first, at(4));
                first.handle(answer, at(4));
            } else {
                first.handle(unknown(), at(5));
                first.handle(Input::Rested, at(6));
            }
            environment.perform(&mut first, at(6), |_| false);
            let told = ended(&first).expect("an end");
            let until = first.valid_until().expect("a ticket");
            assert!(is_had(&told), "{told:?}");
            let v = until.since_boot().as_millis() as u64;
            for now in (6_000..v).step_by(50).chain([v - 1]) {
                let other = environment.grab(OTHER, "one", ms(now));
                assert!(!is_had(&other), "{now} of {v}: {other:?}");
            }
        }
    }
}

/// Seconds after the lifetime has passed, but not yet the drift, a single attempt of the requester
/// is behind its own ticket.
#[test]
fn the_requester_has_it_at_once_when_its_ticket_has_run_out_with_the_drift() {
    for (now, is_granted) in [(11_050, false), (11_099, false), (11_100, true)] {
        let mut environment = Environment::new(60);
        assert!(is_had(&environment.grab(EXCLUSIVE, "one", at(1))));
        let same = environment.grab(EXCLUSIVE, "one", ms(now));
        assert_eq!(is_had(&same), is_granted, "{now}: {same:?}");
    }
}

/// Nobody withdraws, or removes, a ticket on which another process relies.
#[test]
fn a_process_that_keeps_no_place_withdraws_only_its_own() {
    let mut environment = Environment::new(10);
    assert!(is_had(&environment.grab(EXCLUSIVE, "one", at(1))));
    environment.bucket.ahead = 9_000_000;
    assert!(!is_had(&environment.grab(EXCLUSIVE, "two", at(3))));
    for (at_ms, seconds) in [(4_000, 20), (5_000, 10), (6_000, 1), (10_800, 1)] {
        let mut third = environment.begin(EXCLUSIVE, ("three", seconds, true), ms(at_ms));
        environment.perform(&mut third, ms(at_ms), |_| false);
        assert!(!is_had(&ended(&third).expect("an end")));
        let other = environment.grab(OTHER, "two", ms(at_ms));
        assert!(!is_had(&other), "{other:?}");
    }
}

/// A process is stopped between the instant that its write names and the write.
#[test]
fn a_write_that_comes_after_it_has_run_out_tells_nobody_of_a_lock() {
    let mut environment = Environment::new(60);
    let mut first = environment.begin(EXCLUSIVE, ("one", 10, false), at(1));
    let copy = environment.perform(&mut first, at(1), is_write);
    let answer = environment.answer(copy, &first, at(20));
    assert!(is_had(&environment.grab(OTHER, "one", at(20))));
    first.handle(answer, at(20));
    environment.perform(&mut first, at(20), |_| false);
    let told = ended(&first).expect("an end");
    assert!(!is_had(&told), "{told:?}");
}

/// A shared ticket of the requester that another process relies on, beside shared and exclusive
/// ones of others.
#[test]
fn terms_rise_in_each_mode() {
    let shared = |requester| (requester, "a", Mode::Shared);
    let mut environment = Environment::new(60);
    assert!(is_had(&environment.grab(shared(1), "one", at(1))));
    environment.bucket.ahead = 15_000_000;
    let waits = environment.grab(shared(1), "two", at(3));
    assert!(matches!(waits, ToFront::Waiting { ahead: 1, .. }), "{waits:?}");
    assert!(!is_had(&environment.grab(OTHER, "two", at(4))));
    assert!(!is_had(&environment.grab(shared(3), "two", at(4))));
    environment.bucket.ahead = 0;
    let again = environment.grab(shared(1), "two", at(5));
    assert!(matches!(again, ToFront::Granted { term: 2, .. }), "{again:?}");
    assert!(!is_had(&environment.grab(OTHER, "one", ms(14_900))));
}

/// In a container with a boot of its own, or in another time namespace, attempts can note nothing:
/// the page has one request wait there.
#[test]
fn a_loop_of_attempts_has_the_lock_at_last_where_the_clock_has_a_name() {
    for (marked, holder) in [(60, Some(OTHER)), (1, None)] {
        for (clock, is_had_at_last) in [("one", true), ("", false)] {
            let mut environment = Environment::new(marked);
            if let Some(asks) = holder {
                assert!(is_had(&environment.grab(asks, "two", at(1))));
            }
            let is_had_at = |seconds| is_had(&environment.grab(EXCLUSIVE, clock, at(seconds)));
            assert_eq!((2..200).any(is_had_at), is_had_at_last, "{clock:?}, {marked}, {holder:?}");
        }
    }
}

/// The next ticket, behind others, would say that it was granted.
#[test]
fn a_ticket_that_is_begun_anew_was_not_granted() {
    let (mut owner, begin) = opened();
    owner.asker = Asker::Script { withdraws: false };
    owner.ticket.is_granted = true;
    owner.gone("its ticket was removed", begin);
    assert!(!owner.ticket().is_granted);
}
