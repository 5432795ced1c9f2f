//! `--hold` and `--once`: a job of cron on several hosts, whose clocks differ.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::site::{Site, in_directory, on_both_stores, on_both_stores_quickly, on_server_quickly};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{lives, signal, wait_exit};
use crate::support::programs;

/// Adds a line to the file `ran`.
const JOB: [&str; 3] = ["sh", "-c", "echo ran >>$D/ran"];

fn runs(site: &Site) -> usize {
    fs::read_to_string(site.sandbox.join("ran")).unwrap_or_default().lines().count()
}

/// Runs the job of an ID to its end; returns its stderr.
fn once(site: &Site, id: &str) -> String {
    let run = site.run(&[&["-v", "--once", id, "jobs/mail"][..], &JOB].concat());
    assert_eq!(run.status, Some(0), "{}", run.said);
    run.said
}

#[test]
fn a_job_that_has_succeeded_is_skipped_by_the_hosts_that_come_later() {
    on_both_stores_quickly(|site| {
        assert!(!once(site, "2026-11-23").contains("skipped"));
        for _ in 0..3 {
            let said = once(site, "2026-11-23");
            assert!(said.contains("jobs/mail: skipped: 2026-11-23 has succeeded before"), "{said}");
        }
        assert_eq!(runs(site), 1);
        once(site, "2026-11-24");
        assert_eq!(runs(site), 2);
        // A host whose clock is slow.
        once(site, "2026-11-23");
        assert_eq!(runs(site), 2);
        // Another lock.
        let run = site.run(&[&["--once", "2026-11-23", "jobs"][..], &JOB].concat());
        assert_eq!((run.status, runs(site)), (Some(0), 3), "{}", run.said);
    });
}

#[test]
fn of_many_hosts_that_run_a_job_at_once_one_runs_it() {
    on_both_stores(|site| {
        let words = [&["--once", "now", "jobs/mail"][..], &JOB].concat();
        let start = |_| site.putex(&words).spawn().expect("it can be run");
        let fronts: Vec<_> = (0..6).map(start).collect();
        for mut front in fronts {
            let status = wait_exit(&mut front, now() + PATIENCE).expect("it ends");
            assert_eq!(status.code(), Some(0));
        }
        assert_eq!(runs(site), 1);
    });
}

#[test]
fn a_job_that_has_failed_or_lost_its_lock_is_run_by_the_next_host() {
    on_both_stores_quickly(|site| {
        let failed = site.run(&["--once", "now", "x", "sh", "-c", "exit 3"]);
        assert_eq!(failed.status, Some(3));
        if !site.is_local() {
            let mut lost = site.lock("lost", &["--once", "now", "x"]);
            lost.begun();
            signal(lost.renewer(), Signal::KILL);
            assert_eq!(lost.status(), 100);
        }
        let mut killed = site.lock("killed", &["--once", "now", "x"]);
        killed.begun();
        killed.signal_front(Signal::KILL);
        killed.ended();
        let run = site.run(&[&["--once", "now", "x"][..], &JOB].concat());
        assert_eq!((run.status, runs(site)), (Some(0), 1), "{}", run.said);
    });
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
        assert_eq!(late.status, Some(0), "{}", late.said);
        assert!(late.said.contains("not had: behind "), "{}", late.said);
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

/// The next one got it at once. Whoever reads what the command has said does not wait for that.
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
        assert!(lives(renewer) && now() - begun < hold, "stderr stays open: {line}");
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

/// It is one process, and nobody else has the lock.
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

/// Another process is stopped while it writes into the folder.
#[test]
fn in_a_directory_a_signal_ends_the_try_to_record_a_success() {
    in_directory(|site| {
        once(site, "first");
        let lock = site.lock("slow", &["--once", "now", "--hold", "10m", "jobs/mail"]);
        lock.begun();
        let folder = File::open(site.sandbox.join("store/putex")).expect("a folder");
        folder.lock().expect("nobody has it");
        lock.let_go();
        let begun = now();
        lock.says(": the command has ended, the lock is held for ");
        lock.signal_front(Signal::TERM);
        lock.says(": the success is not recorded: ended by a signal: ");
        assert!(now() < begun + Duration::from_secs(5));
        lock.end();
        drop(folder);
        assert!(!once(site, "now").contains("skipped"));
    });
}

/// What the bucket of the IDs cannot say, it must not say by running the job.
#[test]
fn in_a_directory_whose_ids_are_damaged_no_job_is_run_and_none_succeeds_unsaid() {
    in_directory(|site| {
        once(site, "now");
        let ids = site.sandbox.join("store/putex/once.jobs.mail.key");
        let whole = fs::read(&ids).expect("a record");
        fs::write(&ids, "damaged").expect("it can be written");
        let run = site.attempt(
            &[&["-r", "50ms", "-k", "50ms", "-f", "8"][..], &["--once", "now", "jobs/mail"], &JOB]
                .concat(),
        );
        assert!(matches!(run.status, Some(69 | 78)), "{:?} {}", run.status, run.said);
        assert!(run.said.contains("once.jobs.mail"), "{}", run.said);
        assert_eq!(runs(site), 1);
        fs::write(&ids, &whole).expect("it can be written");
        // No file can be written.
        let in_the_way = site.sandbox.join("store/putex/new");
        fs::create_dir(&in_the_way).expect("a folder");
        let words = ["-r", "50ms", "-k", "50ms", "-f", "8", "--once", "other", "jobs/mail"];
        let run = site.attempt(&[&words[..], &JOB].concat());
        assert_eq!((run.status, runs(site)), (Some(69), 1), "{}", run.said);
        assert!(run.said.starts_with("putex: --once: "), "{}", run.said);
        fs::remove_dir(&in_the_way).expect("a folder");
        // Damaged while the job runs.
        let script = "echo ran >>$D/ran; echo damaged >$D/store/putex/once.jobs.mail.key";
        let words = ["-r", "50ms", "-k", "50ms", "-f", "8", "--once", "then", "jobs/mail"];
        let run = site.run(&[&words[..], &["sh", "-c", script]].concat());
        assert_eq!((run.status, runs(site)), (Some(0), 2), "{}", run.said);
        let part = ": the success is not recorded: ";
        assert!(run.said.contains(part) && run.said.contains("may be run again"), "{}", run.said);
        // A lock without an ID.
        assert_eq!(site.run(&["jobs/mail", "true"]).status, Some(0));
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
