//! Locks in a directory on a disk that is full, or fails.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Command;

use serde_json::Value;

use crate::site::{Lock, Site, in_directory};
use crate::support::programs;

/// Returns a `putex lock` with these words that a program with these runs.
pub(crate) fn command_by(site: &Site, program: &[&str], words: &[&str]) -> Command {
    let putex = site.putex(words);
    let mut command = site.sandbox.command(program[0]);
    let words = putex.get_args().skip_while(|word| *word != "lock");
    command.args(&program[1..]).arg(programs::putex()).args(words).env("D", site.sandbox.text());
    command
}

/// Runs [`command_by`].
fn run_by(site: &Site, program: &[&str], words: &[&str]) -> (Option<i32>, String) {
    let run = site.sandbox.run(&mut command_by(site, program, words));
    (run.status, run.said)
}

/// Returns whether a program is there; says so if not.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        println!("skipped: no {program}");
    }
    found
}

#[test]
fn without_room_for_the_bucket_no_lock_is_had_and_with_it_the_next_one_is() {
    if !has("prlimit") {
        return;
    }
    in_directory(|site| {
        let (status, said) = run_by(site, &["prlimit", "--fsize=100"], &["x", "true"]);
        assert_eq!(status, Some(69), "{said}");
        assert!(said.contains("cannot write") && said.contains("File too large"), "{said}");
        assert_eq!(site.run(&["-n", "x", "true"]).status, Some(0));
    });
}

#[test]
fn without_room_for_one_more_ticket_that_one_is_not_had_and_the_others_are_served_in_their_order() {
    if !has("prlimit") {
        return;
    }
    in_directory(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let ids: Vec<_> = (1..6).map(|number| format!("waiter{number}")).collect();
        let waiters = (1..).zip(&ids).map(|(place, id)| {
            let waiter = site.lock(id, &["x"]);
            waiter.waits_behind(place);
            waiter
        });
        let waiters: Vec<_> = waiters.collect();
        let standing = site.tickets();
        // There is room for the numbers, and not for a ticket.
        let bytes = fs::metadata(site.folder().join("sequence")).expect("a file").len();
        let limit = format!("--fsize={bytes}");
        let (status, said) = run_by(site, &["prlimit", &limit], &["-s", "y", "true"]);
        assert_eq!(status, Some(69), "{said}");
        assert_eq!(site.tickets(), standing);
        // Regression: a part of the new numbers was written over the old ones: nobody had a lock
        // any more.
        let limit = format!("--fsize={}", bytes / 2);
        let (status, said) = run_by(site, &["prlimit", &limit], &["-s", "y", "true"]);
        assert_eq!(status, Some(69), "{said}");
        assert!(said.contains("sequence: File too large"), "{said}");
        assert_eq!(site.tickets(), standing);
        waiters.iter().for_each(Lock::let_go);
        holder.end();
        waiters.into_iter().for_each(Lock::end);
        assert_eq!(site.order()[1..], ids);
        assert_eq!(site.run(&["-s", "y", "true"]).status, Some(0));
    });
}

/// A reader would find neither in one line.
#[test]
fn a_part_of_a_report_does_not_stay_before_the_next() {
    if !has("prlimit") {
        return;
    }
    in_directory(|site| {
        let before = format!("{{\"before\":\"{}\"}}\n", "x".repeat(65_436));
        let path = site.sandbox.file("report", &before, 0o600);
        let script = "prlimit --fsize=65536 \"$P\" lock $S --report $D/report x true
                      \"$P\" lock $S --report $D/report x true";
        let through_descriptor = "exec 3<>$D/report; cat <&3 >/dev/null
                      prlimit --fsize=65536 \"$P\" lock $S --report /dev/fd/3 x true
                      \"$P\" lock $S --report /dev/fd/3 x true";
        for script in [script, through_descriptor] {
            fs::write(&path, &before).expect("it is there");
            let mut command = site.sandbox.command("sh");
            command.args(["-c", script]).env("D", site.sandbox.text());
            command.env("P", programs::putex()).env("S", site.options().join(" "));
            let run = site.sandbox.run(&mut command);
            assert_eq!(run.status, Some(0), "{}", run.said);
            assert!(
                run.said.ends_with(": there was room for a part of the line\n"),
                "{}",
                run.said
            );
            let text = fs::read_to_string(&path).expect("it is text");
            let line = text.strip_prefix(&before).expect("what was there");
            let line: Value = serde_json::from_str(line).expect("one line");
            assert_eq!(line["outcome"], "ran");
        }
    });
}

#[test]
fn a_file_system_without_these_locks_is_refused_and_a_disk_that_fails_grants_nothing() {
    if !has("strace") {
        return;
    }
    in_directory(|site| {
        let strace = |name: &str, fault: &str| -> (Option<i32>, String) {
            let inject = format!("inject={fault}");
            let paths =
                [site.sandbox.join("strace"), site.folder().join(name), site.sandbox.join("ran")];
            let [log, file, ran] = paths.each_ref().map(|path| path.to_str().expect("text"));
            let strace = ["strace", "-o", log, "-P", file, "-e", &inject];
            run_by(site, &strace, &["x", "touch", ran])
        };
        if strace("new", "none:error=EIO").1.contains("ptrace") {
            return println!("skipped: strace may not trace");
        }
        fs::remove_file(site.sandbox.join("ran")).expect("without a fault it is granted");
        // The file of the next ticket.
        let ticket = || {
            let text = fs::read_to_string(site.folder().join("sequence")).expect("a file");
            let last = text.lines().find_map(|line| line.strip_prefix("sequence "));
            let last: u64 = last.expect("a number").parse().expect("a number");
            format!("lock.x.{}.held", last + 1)
        };
        for (name, fault) in
            [(ticket(), "fcntl:error=EOPNOTSUPP"), (String::new(), "flock:error=EOPNOTSUPP")]
        {
            let (status, said) = strace(&name, fault);
            assert_eq!(status, Some(78), "{fault}: {said}");
            assert!(
                said.contains("cannot lock ") && said.contains("Operation not supported"),
                "{said}"
            );
            assert!(site.tickets().is_empty(), "what was not locked is removed");
        }
        for (name, fault) in [
            ("sequence", "pwrite64:error=EIO"),
            ("sequence", "read:error=EIO"),
            (&*ticket(), "write:error=ENOSPC"),
            ("", "getdents64:error=EIO"),
        ] {
            let (status, said) = strace(name, fault);
            assert_eq!(status, Some(69), "{name} {fault}: {said}");
        }
        for (name, fault) in [("new", "fdatasync:error=EIO"), ("", "renameat:error=EIO")] {
            fs::remove_dir_all(site.folder()).expect("a folder");
            DirBuilder::new().mode(0o700).create(site.folder()).expect("a folder");
            let (status, said) = strace(name, fault);
            assert_eq!(status, Some(69), "{fault}: {said}");
        }
        assert!(!site.sandbox.join("ran").exists());
        assert_eq!(site.run(&["-n", "x", "true"]).status, Some(0));
    });
}
