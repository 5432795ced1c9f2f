//! Scripts in a directory: one clock, no earlier bucket, and tickets that end with their processes.

use super::*;

/// Returns a script in a directory that is new, and its ticket.
fn grabber() -> (TicketOwner, Ticket) {
    let timing = timing(10 * SECOND, 0).expect("times");
    let owner = TicketOwner::new(timing, ticket(), 14, Some(60 * SECOND), at(1));
    // A container may not know the name of the boot.
    let mut grabber = owner.for_script(false).with_clock_of_all("");
    assert!(matches!(grabber.next(at(1)), Step::Open(_)));
    let info = BucketInfo { may_be_lost: false, ..bucket(20) };
    let opened = TicketsOpened { info, mark: mark(0), notes: nothing() };
    grabber.handle(Input::Opened(Ok(Box::new(opened))), at(1));
    list(&mut grabber, &[], 20, at(1));
    let mine = write(&mut grabber, 0, 21, at(1));
    (grabber, mine)
}

#[test]
fn in_a_directory_nothing_is_waited_for_but_the_tickets_that_stand() {
    let (mut grabber, mine) = grabber();
    assert_eq!(mine.runs_out, runs_out("", at(11)));
    // The ticket of a process, which it never renews.
    let of_process = Ticket { lifetime: Duration::ZERO, incarnation: Incarnation(0), ..ticket() };
    let of_process = standing("5", 5, 5, of_process);
    let own = |revision| standing(NEW, revision, 21, mine.clone());
    list(&mut grabber, &[of_process.clone(), own(21)], 21, at(1));
    assert_eq!(grabber.next(at(1)), Step::Watch(["lock.a.5".to_owned()].into()));
    grabber.handle(Input::Subscribed, at(1));
    write(&mut grabber, 21, 22, at(1));
    for second in [1, 2, 3] {
        list(&mut grabber, &[of_process.clone(), own(22)], 22, at(second));
        assert!(matches!(grabber.next(at(second)), Step::Rest(_)), "{second}");
        grabber.handle(Input::Ended(None), at(second));
    }
    list(&mut grabber, &[own(22)], 22, at(3));
    grant(&mut grabber, (22, 21), at(3));
}

#[test]
fn in_a_directory_a_ticket_runs_out_by_the_one_clock_whether_its_writer_knew_the_boot_or_not() {
    for name in ["", "boot"] {
        let (mut grabber, mine) = grabber();
        let (incarnation, runs_out) = (Incarnation(2), runs_out(name, at(2)));
        let other = standing("gf", 5, 5, Ticket { incarnation, runs_out, ..ticket() });
        list(&mut grabber, &[other, standing(NEW, 21, 21, mine)], 21, at(2));
        assert!(matches!(grabber.next(at(2)), Step::Remove(..)), "{name}");
    }
}
