//! The cases of the tests of `etcdctl lock`, and of its issues.

use std::time::Duration;

use rustix::process::Signal;

use crate::site::{on_both_stores, on_server_quickly};
use crate::support::clock::now;
use crate::support::process::signal;

/// How long the next one may take when a holder has released.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn etcd_lockers_are_served_in_order_and_an_interrupted_waiter_disturbs_nobody() {
    on_both_stores(|site| {
        let mut first = site.lock("first", &["x"]);
        first.begun();
        let mut second = site.lock("second", &["x"]);
        second.waits_behind(1);
        let mut third = site.lock("third", &["x"]);
        third.waits_behind(2);
        second.signal_front(Signal::INT);
        assert_eq!(second.status(), -Signal::INT.as_raw(), "{}", second.said());
        third.waits_behind(1);
        let interrupted = now();
        first.signal_front(Signal::INT);
        assert_eq!(first.status(), 128 + Signal::INT.as_raw(), "{}", first.said());
        let next = third.begun();
        assert!(next.begun_at < interrupted + SOON, "{next:?}");
        third.let_go();
        assert_eq!(third.status(), 0);
        assert_eq!(site.order(), ["first", "third"]);
    });
}

#[test]
fn etcd_the_output_and_the_status_are_those_of_the_command() {
    on_both_stores(|site| {
        let echoed = site.run(&["x", "echo", "held"]);
        assert_eq!((echoed.status, &*echoed.shown), (Some(0), "held\n"), "{}", echoed.said);
        assert_eq!(site.run(&["x", "-c", "exit 3"]).status, Some(3));
        assert_eq!(site.run(&["x", "-c", "kill -9 $$"]).status, Some(137));
        assert_eq!(site.run(&["x", "/nonexistent"]).status, Some(127));
        assert_eq!(site.run(&["x", "/dev/null"]).status, Some(126));
        // All of them have released it.
        assert_eq!(site.run(&["-n", "x", "true"]).status, Some(0));
    });
}

#[test]
fn etcd_a_waiter_whose_ticket_runs_out_promotes_nobody_past_the_holder() {
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

#[test]
fn etcd_names_that_are_prefixes_of_others_are_independent_unless_a_slash_follows() {
    on_both_stores(|site| {
        let holder = site.lock("holder", &["job"]);
        holder.begun();
        for name in ["jobs", "jo", "job_", "job-a/b", "other/job"] {
            assert_eq!(site.run(&["-n", name, "true"]).status, Some(0), "{name}");
        }
        for name in ["job", "job/a", "job/a/b", "a,job/b"] {
            assert_eq!(site.run(&["-n", name, "true"]).status, Some(75), "{name}");
        }
        holder.end();
    });
}

#[test]
fn etcd_of_many_that_try_at_once_one_has_it() {
    on_both_stores(|site| {
        // The bucket is not new any more.
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let ids: Vec<String> = (0..6).map(|number| format!("try{number}")).collect();
        let mut all: Vec<_> = ids.iter().map(|id| site.lock(id, &["-n", "x"])).collect();
        let winner = crate::support::clock::until("a holder", || site.held().pop());
        let mut statuses = Vec::new();
        for (id, lock) in ids.iter().zip(&mut all) {
            if *id == winner.id {
                continue;
            }
            statuses.push(lock.status());
        }
        // On a busy machine the server can be too slow for one that does not wait.
        assert!(statuses.iter().all(|status| matches!(status, 69 | 75)), "{statuses:?}");
        let won = ids.iter().position(|id| *id == winner.id).expect("one of them");
        all.swap_remove(won).end();
        assert_eq!(site.held().len(), 1);
    });
}
