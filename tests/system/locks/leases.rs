//! `putex lease` and `putex put`: the holder of a lease when the process that has claimed it is
//! gone.

#[path = "leases/stress.rs"]
mod stress;

use std::time::Duration;

use crate::site::Site;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::wait_exit;
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};

/// Tells a story about a directory, and about nats-server.
fn on_both_stores(story: impl Fn(&Site)) {
    for site in Site::in_directory(&[]).into_iter().chain(Site::on_server(&[])) {
        story(&site);
        expect_no_processes(&site);
    }
}

/// No command leaves a process: leases need none.
fn expect_no_processes(site: &Site) {
    assert_eq!(site.sandbox.processes(), [0; 0]);
}

/// Runs `putex` with these words, the store behind the first of them.
fn run(site: &Site, words: &[&str]) -> Run {
    run_on(&site.sandbox, site, words)
}

/// Runs it on another host, which has seen nothing yet.
fn run_on(host: &Sandbox, site: &Site, words: &[&str]) -> Run {
    host.run(host.putex().arg(words[0]).args(site.store()).args(&words[1..]))
}

fn status(site: &Site, words: &[&str]) -> i32 {
    run(site, words).status.expect("no signal")
}

/// Returns the numbers in the line of a claim or an extension.
fn had(run: &Run) -> (u64, u64) {
    assert_eq!(run.status, Some(0), "{run:?}");
    let numbers: Vec<u64> = ["term=", "valid="]
        .iter()
        .zip(run.shown.trim_end().split(' '))
        .filter_map(|(name, word)| word.strip_prefix(name)?.parse().ok())
        .collect();
    let [term, valid] = numbers[..] else { panic!("{run:?}") };
    (term, valid)
}

fn claiming(who: &str, time: &str) -> Vec<String> {
    ["lease", "claim", "--as", who, "--for", time, "db/x"].map(str::to_owned).to_vec()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn a_lease_is_had_for_its_time_whatever_becomes_of_who_has_claimed_it() {
    on_both_stores(|site| {
        let (term, valid) = had(&run(site, &words(&claiming("one", "60"))));
        assert!((59..=60).contains(&valid), "{valid}");
        for who in ["one", "two"] {
            let again = run(site, &words(&claiming(who, "60")));
            assert_eq!(again.status, Some(75), "{again:?}");
            assert!(again.said.contains("db/x: not claimed: one has it, for "), "{again:?}");
        }
        // The time of the lease never becomes shorter.
        let extend = ["lease", "extend", "--as", "one", "db/x", "--for"];
        for (time, least) in [("5", 57), ("70s", 69)] {
            let (same, valid) = had(&run(site, &[&extend[..], &[time]].concat()));
            assert_eq!(same, term);
            assert!((least..=70).contains(&valid), "{time}: {valid}");
        }
        let others = run(site, &["lease", "extend", "--as", "two", "db/x", "--for", "5"]);
        assert_eq!(others.status, Some(100), "{others:?}");
        assert!(others.said.contains("db/x: not extended: two does not have it: one has it"));
        for (words_behind, due) in [
            (&["db/x"][..], 0),
            (&["--as", "one", "db/x"], 0),
            (&["--as", "two", "db/x"], 1),
            (&["db"], 1),
        ] {
            let check = run(site, &[&["lease", "check"], words_behind].concat());
            assert_eq!(
                (check.status, &*check.said, &*check.shown),
                (Some(due), "", ""),
                "{words_behind:?}"
            );
        }
        let early = run(site, &["lease", "expire", "db/x"]);
        assert_eq!(early.status, Some(75), "{early:?}");
        assert!(early.said.contains("db/x: not expired: one has it, for "), "{early:?}");
        for (words_behind, lines) in [(&[][..], 1), (&["db"], 1), (&["db/x"], 1), (&["web"], 0)] {
            let list = run(site, &[&["lease", "list"], words_behind].concat());
            assert_eq!(list.shown.lines().count(), lines, "{words_behind:?}: {list:?}");
            if lines > 0 {
                let start = format!("db/x term={term} state=held least=");
                assert!(list.shown.starts_with(&start), "{list:?}");
                assert!(list.shown.ends_with(" holder=one\n"), "{list:?}");
            } else {
                assert!(list.said.contains("web: no lease has this name"), "{list:?}");
            }
        }
    });
}

#[test]
fn what_has_run_out_stays_until_it_is_expired_and_then_is_claimed_anew() {
    on_both_stores(|site| {
        let (term, _) = had(&run(site, &words(&claiming("one", "1"))));
        let began = now();
        let late = run(site, &["lease", "expire", "-w", "20", "db/x"]);
        assert_eq!(late.status, Some(0), "{late:?}");
        assert_eq!(late.shown, format!("expired db/x term={term} holder=one\n"));
        assert!(now() - began > Duration::from_millis(900));
        assert_eq!(status(site, &["lease", "check", "db/x"]), 1);
        let none = run(site, &["lease", "expire", "db/x"]);
        assert_eq!((none.status, &*none.shown, &*none.said), (Some(0), "", ""));
        let (next, _) = had(&run(site, &words(&claiming("two", "1"))));
        assert!(next > term);
        let gone = run(site, &["lease", "extend", "--as", "one", "--for", "5", "db/x"]);
        assert_eq!(gone.status, Some(100), "{gone:?}");
        // The lease has run out, and nobody has expired it: its holder extends it.
        until_true("its end", || status(site, &["lease", "check", "db/x"]) == 1);
        let taken = run(site, &words(&claiming("two", "1")));
        assert!(taken.said.contains("has run out; see putex lease expire db/x"), "{taken:?}");
        let (same, _) = had(&run(site, &["lease", "extend", "--as", "two", "--for", "60", "db/x"]));
        assert_eq!(same, next);
        assert_eq!(status(site, &["lease", "check", "db/x"]), 0);
    });
}

/// Only durations are compared, so a host that sees a lease for the first time cannot know more.
#[test]
fn another_host_does_not_know_how_long_a_lease_has_stood_until_it_has_seen_it_for_so_long() {
    if let Some(site) = &Site::on_server(&[]) {
        let host = Sandbox::new("lease-host");
        had(&run(site, &words(&claiming("one", "2"))));
        let check = |words_behind: &[&str]| {
            run_on(&host, site, &[&["lease", "check"], words_behind].concat())
        };
        let unsure = check(&["db/x"]);
        assert_eq!(unsure.status, Some(75), "{unsure:?}");
        assert!(unsure.said.contains("db/x: one may have it; this host knows in "), "{unsure:?}");
        assert_eq!(check(&["--as", "two", "db/x"]).status, Some(1));
        let began = now();
        // The host knows more when it looks again, says putex-lease(1).
        until_true("its end", || check(&["db/x"]).status == Some(1));
        assert!(now() - began > Duration::from_millis(1800));
        let expired = run_on(&host, site, &["lease", "expire", "db/x"]);
        assert_eq!(expired.status, Some(0), "{expired:?}");
        // Now it has seen that there was none before.
        had(&run(site, &words(&claiming("two", "60"))));
        assert_eq!(check(&["db/x"]).status, Some(0));
        assert_eq!(check(&["--as", "two", "db/x"]).status, Some(0));
        expect_no_processes(site);
    }
}

/// Regression: such commands made a bucket of a misspelt name, which has one copy of each lock.
#[test]
fn a_command_about_what_is_there_makes_no_bucket() {
    on_both_stores(|site| {
        let list = ["lease", "list"];
        for words in [
            &["release", "x"][..],
            &["release", "--force", "--holder", "h", "x"],
            &["lease", "check", "x"],
            &["lease", "extend", "--for", "5s", "x"],
            &["lease", "expire", "x"],
            &["put", "--lease", "x", "key", "value"],
            &list,
            &list,
        ] {
            let run = run(site, &[words, &["--bucket", "nope"]].concat());
            let says = "bucket nope: does not exist, so nobody has a lock or a lease in it";
            assert!(run.status == Some(78) && run.said.contains(says), "{words:?}: {run:?}");
        }
    });
}

#[test]
fn whoever_has_lost_its_lease_writes_nothing_more() {
    on_both_stores(|site| {
        let put = |who: &str, value: &str| {
            run(site, &["put", "--lease", "db/x", "--as", who, "leader", value])
        };
        // In a bucket that is there.
        had(&run(site, &["lease", "claim", "--for", "5s", "--as", "one", "other"]));
        let none = put("one", "early");
        assert_eq!(none.status, Some(100), "{none:?}");
        assert!(none.said.contains("db/x: nothing written, one does not have it: nobody has it"));
        had(&run(site, &words(&claiming("one", "1"))));
        let written = put("one", "first");
        assert!(written.status == Some(0) && written.shown.starts_with("revision="), "{written:?}");
        assert_eq!(put("two", "other").status, Some(100));
        // The lease has run out and stands: nobody else can have it.
        until_true("its end", || status(site, &["lease", "check", "db/x"]) == 1);
        assert_eq!(put("one", "late").status, Some(0));
        assert_eq!(status(site, &["lease", "expire", "-w", "20", "db/x"]), 0);
        assert_eq!(put("one", "too late").status, Some(100));
        had(&run(site, &words(&claiming("two", "60"))));
        assert_eq!(put("one", "too late").status, Some(100));
        assert_eq!(put("two", "second").status, Some(0));
    });
}

#[test]
fn the_lock_of_an_agent_is_not_written_over() {
    on_both_stores(|site| {
        let mut agent = site.sandbox.putex();
        agent.args(["agent", "--key", "web", "--token", "one", "--start", "echo up >$D/up"]);
        agent.args(["--stop", "true", "-r", "100ms", "-q"]).args(site.store());
        agent.env("D", site.sandbox.text());
        let mut agent = agent.spawn().expect("an agent");
        until_true("its start", || site.sandbox.join("up").exists());
        had(&run(site, &words(&claiming("one", "60"))));
        let put = run(site, &["put", "--lease", "db/x", "--as", "one", "web", "x"]);
        assert_eq!(put.status, Some(78), "{put:?}");
        assert!(put.said.contains("web: it is the lock of a putex agent; write another key"));
        crate::support::process::signal(agent.id(), rustix::process::Signal::TERM);
        wait_exit(&mut agent, now() + PATIENCE).expect("it ends");
        until_true("the end of its guard", || site.sandbox.processes().is_empty());
    });
}

/// A new user waited 15 s for the first lock, 61 s for the first lease and 303 s for the first
/// `grab --for 5m`.
#[test]
fn after_putex_init_no_first_lock_or_lease_waits() {
    let Some(site) = Site::on_new_bucket(&[]) else { return };
    let made = run(&site, &["init"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    assert!(made.shown.contains("bucket putex: did not exist and was created\n"), "{made:?}");
    assert!(made.shown.contains("bucket putex: ready"), "{made:?}");
    for words in [
        &["lock", "-n", "x", "true"][..],
        &["grab", "-n", "--for", "5m", "--as", "a", "y"],
        &["lease", "claim", "--for", "10m", "--as", "a", "z"],
        &["init"],
    ] {
        let first = run(&site, words);
        assert_eq!((first.status, &*first.said), (Some(0), ""), "{words:?}: {first:?}");
    }
    // A user who asks for replicas relies on them, and the bucket has one.
    let few = run(&site, &["init", "--replicas", "3"]);
    assert_eq!((few.status, &*few.shown), (Some(78), ""), "{few:?}");
    assert!(few.said.contains("bucket putex: it has 1 of the 3 replicas"), "{few:?}");
    expect_no_processes(&site);
}

#[test]
fn in_a_new_bucket_nobody_claims_before_leases_of_a_lost_one_have_run_out() {
    let Some(site) = Site::on_new_bucket(&[]) else { return };
    for _ in 0..2 {
        let early = run(&site, &words(&claiming("one", "1")));
        assert_eq!(early.status, Some(75), "{early:?}");
        assert!(early.said.contains("db/x: not claimed: first lease of this length"), "{early:?}");
    }
    let check = run(&site, &["lease", "check", "db/x"]);
    assert_eq!(check.status, Some(75), "{check:?}");
    assert!(check.said.contains("nobody has it, but the bucket is new"), "{check:?}");
    // In a new bucket nobody can claim before that, says putex-lease(1).
    let began = now();
    let attempt = || run(&site, &words(&claiming("one", "1")));
    until_true("the claim", || attempt().status == Some(0));
    assert!(now() - began > Duration::from_secs(13));
    expect_no_processes(&site);
}

/// Before nats-server 2.11 a condition on another key was ignored: a write under a lease would be
/// stored whoever has the lease.
#[test]
fn a_server_that_cannot_compare_is_refused_for_leases() {
    let Some(old) = programs::old_nats_server() else { return };
    let site = Site::on(&old);
    let refused = run(&site, &words(&claiming("one", "60")));
    assert_eq!(refused.status, Some(78), "{refused:?}");
    assert!(refused.said.contains("older than nats-server 2.11"), "{refused:?}");
    expect_no_processes(&site);
}
