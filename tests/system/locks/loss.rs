//! Killed and stopped processes, and servers that are gone: the command is dead before the next
//! one begins, and by V.

use rustix::process::Signal;

use crate::site::{ENDLESS, Lock, QUICK_T, Site, on_both_stores_quickly, on_server_quickly};
use crate::support::clock::{At, now, until, until_true};
use crate::support::process::{lives, signal};

/// The exit status of a lost lock.
const LOST: i32 = 100;

/// A holder whose command does not end by SIGTERM.
fn stubborn<'a>(site: &'a Site, name: &str) -> Lock<'a> {
    let holder = site.lock_with("holder", &[name], &["stubborn"]);
    holder.begun();
    holder
}

/// Expects that the command of `holder` has ended by V, when nothing was renewed since `cut`,
/// and that the command of `next` begins after that.
fn assert_dead_by_v(holder: &Lock<'_>, next: &Lock<'_>, cut: At) {
    let begun = next.begun();
    let last = holder.held().expect("it has begun");
    assert!(last.last_at < cut + QUICK_T, "it ran until {:?}, cut at {cut:?}", last.last_at);
    assert!(begun.begun_at > last.last_at, "{begun:?} {last:?}");
    assert!(!lives(last.pid), "its command lives");
    let (ran, after) = (last.last_at.saturating_sub(cut), begun.begun_at - last.last_at);
    println!("it ran {ran:?} on, and the next began {after:?} after it");
}

#[test]
fn when_the_front_is_killed_the_command_is_killed_and_its_ticket_does_not_have_to_run_out() {
    for site in Site::in_directory(&ENDLESS).into_iter().chain(Site::on_server(&ENDLESS)) {
        let holder = stubborn(&site, "x");
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let renewer = (!site.is_local()).then(|| holder.renewer());
        holder.signal_front(Signal::KILL);
        let begun = next.begun();
        let last = holder.held().expect("it has begun");
        assert!(!lives(last.pid) && begun.begun_at >= last.last_at);
        until_true("the end of its renewer", || renewer.is_none_or(|renewer| !lives(renewer)));
        next.end();
        drop(holder);
        site.assert_end();
    }
}

#[test]
fn when_both_are_killed_the_command_dies_with_them_and_the_next_one_begins_after_that() {
    on_server_quickly(|site| {
        let holder = stubborn(site, "x");
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let (renewer, cut) = (holder.renewer(), now());
        signal(renewer, Signal::KILL);
        holder.signal_front(Signal::KILL);
        assert_dead_by_v(&holder, &next, cut);
        next.end();
    });
}

#[test]
fn when_the_renewer_is_stopped_the_command_is_killed_by_v_and_the_next_one_begins_after_that() {
    on_server_quickly(|site| {
        let mut holder = stubborn(site, "x");
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let (renewer, cut) = (holder.renewer(), now());
        signal(renewer, Signal::STOP);
        assert_eq!(holder.status(), LOST, "{}", holder.said());
        assert!(holder.said().contains("the lock is lost: not renewed in time"));
        assert_dead_by_v(&holder, &next, cut);
        signal(renewer, Signal::CONT);
        until_true("the end of the renewer", || !lives(renewer));
        assert!(lives(next.held().expect("it has begun").pid), "it has taken the lock away");
        next.end();
    });
}

#[test]
fn while_the_front_is_stopped_the_lock_goes_on_being_held() {
    on_both_stores_quickly(|site| {
        let mut holder = site.lock("holder", &["x"]);
        holder.begun();
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let stopped = now();
        holder.signal_front(Signal::STOP);
        let beats = || holder.held().is_some_and(|held| held.last_at > stopped + 2 * QUICK_T);
        until_true("that it runs for 2 T more", beats);
        assert!(next.held().is_none());
        holder.signal_front(Signal::CONT);
        holder.let_go();
        assert_eq!(holder.status(), 0, "{}", holder.said());
        next.begun();
        next.end();
    });
}

#[test]
fn a_lock_that_is_lost_while_the_front_is_stopped_has_its_command_killed_by_v() {
    on_server_quickly(|site| {
        let mut holder = stubborn(site, "x");
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        holder.signal_front(Signal::STOP);
        let cut = now();
        site.server().kill();
        until_true("the end of the command", || {
            holder.held().is_some_and(|held| held.last_at + QUICK_T < now())
        });
        site.server().restart().expect("it starts");
        assert_dead_by_v(&holder, &next, cut);
        holder.signal_front(Signal::CONT);
        assert_eq!(holder.status(), LOST, "{}", holder.said());
        next.end();
    });
}

#[test]
fn when_the_server_is_gone_the_command_is_killed_by_v_and_when_it_is_back_the_next_one_begins() {
    on_server_quickly(|site| {
        let mut holder = stubborn(site, "x");
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let other = site.run(&["-n", "other", "true"]);
        assert_eq!(other.status, Some(0), "{}", other.said);
        let cut = now();
        site.server().kill();
        assert_eq!(holder.status(), LOST, "{}", holder.said());
        assert!(holder.said().contains("the lock is lost: "), "{}", holder.said());
        let unreachable = site.run(&["-w", "0.3", "other", "true"]);
        assert_eq!(unreachable.status, Some(69), "{}", unreachable.said);
        assert!(next.held().is_none());
        site.server().restart().expect("it starts");
        assert_dead_by_v(&holder, &next, cut);
        next.end();
    });
}

/// No attempt lasts as long as a holder has to be seen unmoved: its lock was never had. Several
/// attempts notice it together, says putex-lock(1) of `-n`.
#[test]
fn a_job_that_never_waits_gets_the_lock_of_a_holder_that_is_gone_and_not_before_its_time() {
    on_server_quickly(|site| {
        let holder = stubborn(site, "x");
        let busy = site.run(&["-n", "x", "true"]);
        assert_eq!(busy.status, Some(75), "{}", busy.said);
        let (front, renewer) = (holder.front(), holder.renewer());
        for process in [renewer, front] {
            signal(process, Signal::KILL);
        }
        let gone = now();
        let run = || site.run(&["-n", "x", "true"]);
        let had = until("the lock", || Some(run()).filter(|run| run.status != Some(75)));
        assert_eq!(had.status, Some(0), "{}", had.said);
        assert!(now() > gone + QUICK_T / 2, "too early");
        assert!(had.said.contains("has not renewed its lock in time"), "{}", had.said);
    });
}

/// Regression: the renewer ended at a signal, and everybody else waited until its ticket had run
/// out.
#[test]
fn a_renewer_is_ended_by_its_front_and_by_no_signal_of_a_manager_or_terminal() {
    on_server_quickly(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let renewer = holder.renewer();
        let sent = now();
        for number in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            signal(renewer, number);
        }
        let beats = || holder.held().is_some_and(|held| held.last_at > sent + QUICK_T * 2);
        until_true("that the command runs on", beats);
        holder.end();
        until_true("the end of the renewer", || !lives(renewer));
    });
}

/// A defect of `etcdctl lock`.
#[test]
fn a_waiter_whose_ticket_runs_out_promotes_nobody_past_the_holder() {
    on_server_quickly(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let dead = site.lock("dead", &["x"]);
        dead.waits_behind(1);
        let third = site.lock("third", &["x"]);
        third.waits_behind(2);
        // Neither of the two can end the ticket.
        signal(dead.renewer(), Signal::KILL);
        third.waits_behind(1);
        // The renewer says it, and the front the other.
        third.says("has not renewed its lock in time");
        holder.end();
        third.begun();
        third.end();
        assert_eq!(site.order(), ["holder", "third"]);
    });
}
