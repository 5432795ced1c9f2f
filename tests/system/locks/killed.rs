//! Servers that are killed and started again, under locks that have ended: a server restores a
//! ticket when it has removed the marker of its end. Nobody takes such a ticket for the own one.

use std::time::Duration;

use rustix::process::Signal;

use crate::minority::{SLOW, leading_server};
use crate::site::{Lock, QUICK, QUICK_T, Site};
use crate::support::clock::{At, now, observe_for, until, until_true};
use crate::support::process::signal;
use crate::support::sandbox::Run;
use crate::support::wire::Client;

/// How long the marker of the end of a `putex lock` stays, and a while.
const MARKER: Duration = Duration::from_millis(2500);

/// The exit statuses of a lock that is held by others, and of a ticket that is not there.
const NOT_HAD: Option<i32> = Some(75);
const LOST: Option<i32> = Some(100);

/// Returns the names of the keys below this one that the bucket has, without the notes that a key
/// is not used again.
fn keys(site: &Site, below: &str) -> Vec<String> {
    until("an answer of the server", || {
        let mut client = Client::connect(site.server().port()).ok()?;
        let filter = format!(r#"{{"subjects_filter":"$KV.putex.{below}.>"}}"#);
        let info = client.call("STREAM.INFO.KV_putex", &filter).ok()?;
        let subjects = info["state"]["subjects"].as_object();
        let names = subjects.into_iter().flatten().map(|(name, _)| name.clone());
        Some(names.filter(|name| !name.ends_with(".ended")).collect())
    })
}

/// Kills the only server, and starts it again.
fn kill(site: &Site) {
    let mut server = site.server();
    server.kill();
    server.restart().expect("it starts again");
}

fn script(site: &Site, words: &[&str]) -> Run {
    let mut command = site.sandbox.putex();
    command.arg(words[0]).args(site.store()).args(&words[1..]);
    site.sandbox.run(&mut command)
}

fn grab(site: &Site, who: &str) -> Run {
    script(site, &["grab", "--as", who, "--for", "20", "n"])
}

fn term(run: &Run) -> &str {
    run.shown.split(' ').next().unwrap_or_default()
}

/// The script that had released its lock was told after the kill that it has it, with its old
/// term, and the one that has it was told that it waits.
#[test]
fn a_script_that_has_released_its_lock_waits_behind_the_next_one_after_a_kill() {
    let Some(site) = Site::on_server(&QUICK) else { return };
    for round in 0..rounds() {
        let first = grab(&site, "a");
        assert_eq!(first.status, Some(0), "{}", first.said);
        assert_eq!(script(&site, &["release", "--as", "a", "n"]).status, Some(0));
        let second = grab(&site, "b");
        assert_eq!(second.status, Some(0), "{}", second.said);
        observe_for(MARKER);
        kill(&site);
        let again = grab(&site, "a");
        assert_eq!(again.status, NOT_HAD, "round {round}: {}", again.shown);
        assert_ne!(term(&again), term(&first));
        let still = grab(&site, "b");
        assert_eq!((still.status, term(&still)), (Some(0), term(&second)), "{}", still.said);
        for who in ["a", "b"] {
            assert_eq!(script(&site, &["release", "--as", who, "n"]).status, Some(0));
        }
    }
}

/// Its marker stays for two lifetimes and 10 s: then the server restores the ticket.
#[test]
fn a_ticket_of_a_script_that_is_restored_is_no_ticket_of_it_any_more() {
    let Some(site) = Site::on_server(&QUICK) else { return };
    let short = |who| script(&site, &["grab", "--as", who, "--for", "5s", "n"]);
    let first = short("a");
    assert_eq!(script(&site, &["release", "--as", "a", "n"]).status, Some(0));
    let marked = keys(&site, "lock");
    until_true("the removal of the marker", || keys(&site, "lock").is_empty());
    let second = grab(&site, "b");
    assert_eq!(second.status, Some(0), "{}", second.said);
    kill(&site);
    let restored = keys(&site, "lock").into_iter().filter(|key| marked.contains(key)).count();
    println!("{restored} of {} tickets were restored", marked.len());
    let released = script(&site, &["release", "--as", "a", "n"]);
    assert_eq!(released.status, LOST, "{}", released.said);
    let again = short("a");
    assert_eq!(again.status, NOT_HAD, "{}", again.shown);
    assert_ne!(term(&again), term(&first));
    let still = grab(&site, "b");
    assert_eq!((still.status, term(&still)), (Some(0), term(&second)), "{}", still.said);
}

/// Stops front and renewer of a lock, as a host that stands still, or has them go on.
fn signal_both(lock: &Lock<'_>, renewer: u32, number: Signal) {
    signal(renewer, number);
    lock.signal_front(number);
}

/// Has one lock end while the second, which waits for it, stands still: the third removes the
/// second one's ticket. Returns the second, its renewer, and the third, whose command has begun.
fn overtaken<'a>(site: &'a Site, round: &str) -> (Lock<'a>, u32, Lock<'a>) {
    let [a, b, c] = ["a", "b", "c"].map(|id| format!("{id}{round}"));
    let first = site.lock(&a, &["x"]);
    first.begun();
    let second = site.lock(&b, &["x"]);
    second.waits_behind(1);
    let renewer = second.renewer();
    signal_both(&second, renewer, Signal::STOP);
    let third = site.lock(&c, &["x"]);
    third.waits_behind(2);
    first.end();
    third.begun();
    (second, renewer, third)
}

/// Its ticket was removed, restored, and renewed: its command ran beside that of the next one.
#[test]
fn who_waited_and_stood_still_goes_on_behind_the_others_after_a_kill() {
    let Some(site) = Site::on_server(&QUICK) else { return };
    for round in 0..rounds() {
        let (second, renewer, third) = overtaken(&site, &round.to_string());
        observe_for(MARKER);
        kill(&site);
        signal_both(&second, renewer, Signal::CONT);
        goes_on(&third, QUICK_T * 2);
        assert!(second.held().is_none(), "it runs beside the third: {}", second.said());
        third.end();
        second.begun();
        second.end();
    }
    site.assert_end();
}

/// Expects that the command of this lock runs on for this time.
fn goes_on(lock: &Lock<'_>, time: At) {
    let since = now();
    let beats = || lock.held().is_some_and(|held| held.last_at > since + time);
    until_true("that the command runs on", beats);
}

/// The first of them was shown as the holder, and the others as waiting for it.
#[test]
fn locks_that_have_ended_are_not_shown_as_held_after_a_kill() {
    let Some(site) = Site::on_server(&QUICK) else { return };
    for _ in 0..10 {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
    }
    until_true("the removal of the markers", || keys(&site, "lock").is_empty());
    observe_for(QUICK_T);
    kill(&site);
    let restored = keys(&site, "lock").len();
    println!("{restored} of 10 tickets were restored");
    let shown = script(&site, &["status", "x"]).shown;
    let expected = if restored == 0 { "no lock" } else { "has run out" };
    assert!(shown.contains(expected), "{shown}");
    assert!(!shown.contains("held by") && !shown.contains("waiting"), "{shown}");
    let began = now();
    assert_eq!(site.run(&["x", "true"]).status, Some(0));
    println!("the next one had it after {:?}", now() - began);
    let shown = script(&site, &["status", "x"]).shown;
    assert!(shown.contains("no lock"), "{shown}");
}

/// A lease ends by an entry that stays. So do a pause and a request for switchover.
#[test]
fn a_lease_is_what_it_was_after_each_kill() {
    let Some(site) = Site::on_server(&QUICK) else { return };
    let claim = |who| script(&site, &["lease", "claim", "--for", "2", "--as", who, "l"]).status;
    let extend = |who| script(&site, &["lease", "extend", "--for", "2", "--as", who, "l"]).status;
    let expire = || script(&site, &["lease", "expire", "-w", "1m", "l"]).status;
    for _ in 0..rounds() {
        assert_eq!(claim("a"), Some(0));
        kill(&site);
        assert_eq!(claim("b"), NOT_HAD, "it is a's");
        assert_eq!(expire(), Some(0));
        observe_for(MARKER);
        kill(&site);
        assert_ne!(extend("a"), Some(0), "it has run out");
        assert_eq!(claim("b"), Some(0));
        kill(&site);
        assert_eq!(claim("a"), NOT_HAD, "it is b's");
        assert_eq!(expire(), Some(0));
    }
}

/// Kills servers of a cluster, starts them again, and has one of them lead the bucket.
fn kill_of_three(site: &Site, killed: &[usize], leader: usize) {
    killed.iter().for_each(|number| site.server_of(*number).kill());
    killed.iter().for_each(|number| site.server_of(*number).spawn().expect("it starts"));
    let body = format!(r#"{{"placement":{{"preferred":"n{leader}"}}}}"#);
    until_true("that it leads", || {
        if leading_server(site) == leader {
            return true;
        }
        let client = Client::connect(site.server_of(leader).port());
        let _ = client.and_then(|mut it| it.call("STREAM.LEADER.STEPDOWN.KV_putex", &body));
        false
    });
}

/// The servers that are killed, and the leader of the bucket after that.
const OF_THREE: [(&[usize], usize); 5] =
    [(&[0], 0), (&[1], 1), (&[2], 2), (&[0, 1, 2], 0), (&[0, 1, 2], 1)];

#[test]
#[ignore = "takes minutes"]
fn scripts_and_locks_of_three_servers_wait_behind_the_next_one_after_a_kill() {
    let Some(site) = Site::on_cluster(&SLOW) else { return };
    site.believe();
    for round in 0..rounds() {
        for (number, (killed, leader)) in OF_THREE.into_iter().enumerate() {
            let (second, renewer, third) = overtaken(&site, &format!("{round}.{number}"));
            let one = grab(&site, "a");
            assert_eq!(one.status, Some(0), "{}", one.said);
            assert_eq!(script(&site, &["release", "--as", "a", "n"]).status, Some(0));
            let other = grab(&site, "b");
            assert_eq!(other.status, Some(0), "{}", other.said);
            observe_for(MARKER);
            kill_of_three(&site, killed, leader);
            signal_both(&second, renewer, Signal::CONT);
            let again = grab(&site, "a");
            assert_eq!(again.status, NOT_HAD, "{killed:?}: {}", again.shown);
            let still = grab(&site, "b");
            assert_eq!((still.status, term(&still)), (Some(0), term(&other)), "{}", still.said);
            goes_on(&third, QUICK_T);
            assert!(second.held().is_none(), "it runs beside the third: {}", second.said());
            third.end();
            second.begun();
            second.end();
            for who in ["a", "b"] {
                assert_eq!(script(&site, &["release", "--as", who, "n"]).status, Some(0));
            }
        }
    }
    site.assert_end();
}

/// `PUTEX_ROUNDS` has each story told so often.
fn rounds() -> u32 {
    std::env::var("PUTEX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
