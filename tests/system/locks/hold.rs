//! `--hold`: a job of cron on several hosts, whose clocks differ.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::site::{Site, in_directory, on_both_stores, on_both_stores_quickly, on_server_quickly};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{lives, signal, wait_exit};
use crate::support::programs;

fn runs(site: &Site) -> usize {
    fs::read_to_string(site.sandbox.join("ran")).unwrap_or_default().lines().count()
}

#[test]
fn a_lock_is_held_on_after_its_command_and_the_status_is_that_of_the_command() {
    on_both_stores_quickly(|site| {
        // Longer than T.
        let begun = now();
        let words = ["-v", "--hold", "1.5", "x", "sh", "-c", "echo ran >>$D/ran; exit 3"];
        let mut front = site.putex(&words).spawn().expect("it can be run");
        until_true("the command", || runs(site) == 1);
        let late = site.run(&["-n", "-E", "0", "x", "sh", "-c", "touch $D/never"]);
        assert_eq!((late.status, &*late.said), (Some(0), ""), "each losing host sends a mail");
        let verbose = site.run(&["-v", "-n", "-E", "0", "x", "true"]);
        assert!(verbose.said.contains("not acquired: behind "), "{}", verbose.said);
        let next = site.run(&["-w", "20", "x", "true"]);
        assert_eq!(next.status, Some(0), "{}", next.said);
        assert!(now() - begun >= Duration::from_millis(1500));
        let status = wait_exit(&mut front, now() + PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(3));
    });
}

/// Nobody continues it for an hour, and the others have jobs to run.
#[test]
fn a_lock_that_is_held_on_is_released_in_time_though_its_front_is_stopped() {
    on_server_quickly(|site| {
        let lock = site.lock("stopped", &["--hold", "0.8", "x"]);
        lock.begun();
        lock.let_go();
        lock.says(": the command has ended, the lock is held for ");
        lock.signal_front(Signal::STOP);
        let next = site.run(&["-w", "20", "x", "true"]);
        assert_eq!(next.status, Some(0), "{}", next.said);
        lock.signal_front(Signal::CONT);
        lock.end();
    });
}

#[test]
fn a_signal_releases_a_lock_that_is_held_on_and_in_a_directory_sigkill_too() {
    on_both_stores_quickly(|site| {
        let signals = [(Signal::INT, 0), (Signal::HUP, 0), (Signal::KILL, -9)];
        for (number, end) in signals.into_iter().take(2 + usize::from(site.is_local())) {
            let id = format!("{end}-{number:?}");
            let mut lock = site.lock(&id, &["--hold", "10m", "x"]);
            lock.begun();
            lock.let_go();
            lock.says(": the command has ended, the lock is held for ");
            lock.signal_front(number);
            assert_eq!(lock.status(), end, "{number:?}");
            let next = site.run(&["-w", "20", "x", "true"]);
            assert_eq!(next.status, Some(0), "{}", next.said);
        }
    });
}

/// Regression: the next command got the lock at once. A process that reads the output of the
/// command does not wait for the end of the hold.
#[test]
fn a_lock_is_held_on_though_its_front_is_killed() {
    on_server_quickly(|site| {
        let (hold, begun) = (Duration::from_secs(4), now());
        let mut command = site.putex(&["-v", "--hold", "4", "x", "true"]);
        let mut front = command.stderr(Stdio::piped()).spawn().expect("it can be run");
        let mut stderr = BufReader::new(front.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(": the command has ended, the lock is held for ") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("a line") > 0, "it is not held on");
        }
        let renewer = site.renewer_of(front.id());
        front.kill().expect("it lives");
        front.wait().expect("it is dead");
        stderr.read_to_string(&mut line).expect("its end");
        assert!(lives(renewer), "stderr stays open: {line}");
        let next = site.run(&["-w", "20", "x", "true"]);
        assert_eq!(next.status, Some(0), "{}", next.said);
        assert!(now() - begun >= hold, "after {:?}", now() - begun);
    });
}

#[test]
fn a_lock_that_is_lost_after_its_command_changes_no_status() {
    on_server_quickly(|site| {
        let mut lock = site.lock("lost", &["--hold", "10m", "x"]);
        lock.begun();
        let renewer = lock.renewer();
        lock.let_go();
        lock.says(": the command has ended, the lock is held for ");
        signal(renewer, Signal::KILL);
        assert_eq!(lock.status(), 0);
        lock.says("the lock was lost after the command had ended: ");
        assert_eq!(site.run(&["-w", "10", "x", "true"]).status, Some(0));
    });
}

/// In a directory the front alone has the lock: there is no renewer.
#[test]
fn in_a_directory_a_lock_that_is_held_on_is_released_when_its_stopped_front_goes_on() {
    in_directory(|site| {
        let lock = site.lock("stopped", &["--hold", "0.8", "x"]);
        lock.begun();
        lock.let_go();
        lock.says(": the command has ended, the lock is held for ");
        lock.signal_front(Signal::STOP);
        let late = site.run(&["-w", "1.2", "x", "true"]);
        assert_eq!(late.status, Some(75), "{}", late.said);
        lock.signal_front(Signal::CONT);
        let next = site.run(&["-w", "20", "x", "true"]);
        assert_eq!(next.status, Some(0), "{}", next.said);
        lock.end();
    });
}

/// A shell that reads a pipe of the command does not wait for the end of that.
#[test]
fn what_the_command_has_inherited_is_closed_while_the_lock_is_held_on() {
    on_both_stores(|site| {
        let script = "\"$P\" lock $S --hold 30 x true 3>&1 >/dev/null 2>&1 & echo $!";
        let mut shell = site.sandbox.command("sh");
        shell.args(["-c", script]).env("P", programs::putex());
        shell.env("S", site.options().join(" "));
        let run = site.sandbox.run(&mut shell);
        let front = run.shown.trim().parse().expect("a number");
        let late = site.run(&["-n", "x", "true"]);
        assert_eq!(late.status, Some(75), "{}", late.said);
        signal(front, Signal::TERM);
        assert_eq!(site.run(&["-w", "20", "x", "true"]).status, Some(0));
    });
}

#[test]
fn how_long_a_lock_was_waited_for_and_held_is_said() {
    on_both_stores(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        holder.let_go();
        holder.says("x: released, held for ");
        next.says("; before that: behind ");
        next.says("x: had after ");
        holder.end();
        next.end();
    });
}
