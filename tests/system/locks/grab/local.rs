//! Scripts in a directory: the file of locks, in which commands have their tickets too.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::{Grab, LONG, SHORT_LOCAL, command, grab, release, run, until_queued};
use crate::site::{Site, in_directory};
use crate::support::clock::{At, PATIENCE, now, observe_for};
use crate::support::process::{signal, wait_exit};
use crate::support::programs;
use crate::support::sandbox::Run;

/// Scripts wait for the end of a process, for a release, and for the end of a time, in turn.
#[test]
fn scripts_that_wait_in_a_directory_get_the_lock_in_their_order_however_it_becomes_free() {
    in_directory(|site| {
        let holder = site.lock("holder", &["x"]);
        let command_of_holder = holder.begun().pid;
        let wait = |who: &str, lasts: &str, ahead: u64| -> Child {
            let words = ["grab", "--as", who, "--for", lasts, "-w", "60", "x"];
            let waiter = command(site, &words).stdout(Stdio::piped()).spawn();
            until_queued(site, ahead);
            waiter.expect("it can be run")
        };
        let mut waiters = [wait("a", LONG, 2), wait("b", "3s", 3), wait("c", LONG, 4)];
        let mut turn = |at: usize, begun: At, least: At| {
            let waiter: &mut Child = &mut waiters[at];
            let status = wait_exit(waiter, now() + PATIENCE).expect("it ends");
            let took = now() - begun;
            assert!(took > least, "{at}: {took:?}");
            let mut line = String::new();
            let mut shown = waiter.stdout.take().expect("a pipe");
            std::io::Read::read_to_string(&mut shown, &mut line).expect("text");
            assert!(Grab::parse(status.code(), &line).is_had());
        };
        let killed = now();
        holder.signal_front(Signal::KILL);
        signal(command_of_holder, Signal::KILL);
        turn(0, killed, At::ZERO);
        let released = now();
        assert_eq!(release(site, "a", "x"), 0);
        turn(1, released, At::ZERO);
        // The requester b does not come again: its time runs out.
        turn(2, released, SHORT_LOCAL * 3);
        let last = site.lock("last", &["x"]);
        last.waits_behind(1);
        assert_eq!(release(site, "c", "x"), 0);
        last.begun();
        last.end();
        assert!(grab(site, "c", &["x"]).is_had());
        // A user who removes the file takes the locks away.
        fs::remove_file(&site.tickets()[0]).expect("a file");
        assert!(grab(site, "d", &["-n", "x"]).is_had());
        assert_eq!(release(site, "c", "x"), 100);
        assert_eq!(release(site, "d", "x"), 0);
    });
}

/// Scripts that wait look at the file when it changes, and do not answer a change with another one.
#[test]
fn scripts_that_wait_in_a_directory_keep_their_places_and_do_not_keep_each_other_busy() {
    in_directory(|site| {
        assert!(grab(site, "a", &["x"]).is_had());
        let words = |who| ["grab", "--as", who, "--for", "2s", "-q", "-w", "60", "x"];
        let waiters = ["b", "c", "d"].map(|who| {
            let waiter = command(site, &words(who)).stdout(Stdio::null()).spawn();
            waiter.expect("it can be run")
        });
        until_queued(site, 4);
        // The time on a processor, in hundredths of a second.
        let busy = || -> u64 {
            let of = |waiter: &Child| {
                let stat = fs::read_to_string(format!("/proc/{}/stat", waiter.id()));
                let stat = stat.expect("it runs");
                let (_, behind_name) = stat.rsplit_once(')').expect("a name");
                let times = behind_name.split_whitespace().skip(11).take(2);
                times.map(|time| time.parse::<u64>().expect("a number")).sum::<u64>()
            };
            waiters.iter().map(of).sum()
        };
        let before = busy();
        observe_for(Duration::from_secs(3));
        let more = busy() - before;
        assert!(more < 30, "{more}");
        // Each has kept its place beyond its time.
        until_queued(site, 4);
        assert_eq!(release(site, "a", "x"), 0);
        for mut waiter in waiters {
            assert_eq!(wait_exit(&mut waiter, now() + PATIENCE).expect("it ends").code(), Some(0));
        }
    });
}

#[test]
fn in_a_directory_a_lock_is_broken_unless_a_process_has_it() {
    in_directory(|site| {
        let by_force = |who: &str| run(site, &["release", "--force", "--holder", who, "x"]);
        let lock = site.lock("holder", &["--token", "h1", "x"]);
        lock.begun();
        let refused = by_force("h1");
        assert_eq!((refused.status, refused.shown.as_str()), (Some(75), ""));
        let says = "x: not broken: a process of putex lock has the ticket of h1; end that process";
        assert!(refused.said.contains(says), "{}", refused.said);
        assert_eq!(refused.said.lines().count(), 1, "{}", refused.said);
        assert!(by_force("h2").said.contains("x: not broken: h1 has a ticket for x"));
        let waits = grab(site, "script", &["x"]);
        assert_eq!(waits.ahead, 1);
        lock.end();
        assert!(grab(site, "script", &["x"]).is_had());
        let next = site.lock("next", &["-s", "x/y"]);
        next.waits_behind(1);
        let broken = by_force("script");
        let says = format!("broke x term={} mode=exclusive holder=script\n", waits.term);
        assert_eq!((broken.status, broken.shown), (Some(0), says), "{}", broken.said);
        next.begun();
        let lost = grab(site, "script", &["x"]);
        assert!(lost.ahead == 1 && lost.term > waits.term, "{lost:?} {waits:?}");
        assert_eq!(release(site, "script", "x"), 0);
        next.end();
        assert_eq!(by_force("script").status, Some(100), "nobody has it");
    });
}

/// Runs a putex of the site by this command, unless root may not do that here.
fn run_in(site: &Site, namespace: &[&str], words: &[&str]) -> Option<Run> {
    let tried = Command::new(namespace[0]).args(&namespace[1..]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("skipped: {} cannot be used here", namespace.join(" "));
        return None;
    }
    let mut command = site.sandbox.command(namespace[0]);
    command.args(&namespace[1..]).arg(programs::putex()).arg(words[0]).args(site.store());
    Some(site.sandbox.run(command.args(&words[1..])))
}

/// A container may be given a name of the boot of its own. Each of the two took the locks of the
/// other for those of an earlier boot, and both had the lock.
#[test]
fn a_lock_of_a_script_stands_also_for_a_container_that_names_the_boot_otherwise() {
    in_directory(|site| {
        let id = site.sandbox.secret("id", "01234567-89ab-cdef-0123-456789abcdef\n");
        let mount = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let id = id.to_str().expect("text");
        let container = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, id];
        let grab_there = |who| {
            let run = run_in(site, &container, &["grab", "--as", who, "--for", "60s", "x"]);
            run.map(|run| Grab::of(&run))
        };
        let first = grab(site, "a", &["x"]);
        assert!(first.is_had());
        if let Some(second) = grab_there("b") {
            assert_eq!((second.status, second.ahead), (75, 1), "{second:?}");
            assert_eq!(grab(site, "a", &["x"]).term, first.term);
            assert_eq!(release(site, "a", "x"), 0);
            assert!(grab_there("b").expect("as before").is_had());
            assert_eq!(grab(site, "a", &["x"]).ahead, 1);
        }
    });
}

/// A release found no ticket there and said that it had run out.
#[test]
fn scripts_in_a_time_namespace_are_refused() {
    in_directory(|site| {
        let namespace = ["unshare", "--time", "--boottime", "1000", "--fork"];
        for words in [
            &["grab", "--as", "a", "x"][..],
            &["grab", "--as", "a", "-n", "x"],
            &["release", "--as", "a", "x"],
            &["release", "--force", "--holder", "a", "x"],
        ] {
            assert_eq!(site.run(&["x", "true"]).status, Some(0), "the bucket is there");
            let Some(run) = run_in(site, &namespace, words) else { return };
            assert_eq!(run.status, Some(78), "{words:?}: {run:?}");
            assert!(run.said.contains("leave that namespace"), "{run:?}");
        }
    });
}
