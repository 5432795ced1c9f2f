//! Locks in a directory: they end with the processes that have them, however those end, and with
//! nothing else; and what becomes of them when somebody meddles with the files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::damage::assert_refused;
use crate::disk::{command_by, has};
use crate::site::{Lock, Site, in_directory};
use crate::support::clock::{PATIENCE, now, until, until_true};
use crate::support::process::{lives, parent_of, signal, wait_exit};

/// A holder, and one who waits for it.
pub(crate) fn pair(site: &Site) -> (Lock<'_>, Lock<'_>) {
    let holder = site.lock("holder", &["x"]);
    holder.begun();
    let next = site.lock("next", &["x"]);
    next.waits_behind(1);
    (holder, next)
}

#[test]
fn a_lock_takes_one_process_and_the_command_has_the_only_descriptor_that_it_inherits() {
    in_directory(|site| {
        let lock = site.lock("holder", &["x"]);
        let command = lock.begun().pid;
        assert_eq!(parent_of(command), Some(lock.front()));
        let children: Vec<_> = site.sandbox.processes_of("putex");
        assert_eq!(children, [lock.front()]);
        assert_eq!(fs::read_dir(format!("/proc/{}/task", lock.front())).expect("it").count(), 1);
        let opened = |options: &[&str]| {
            let run = site.run(&[options, &["y", "sh", "-c", "ls -l /proc/$$/fd"]].concat());
            run.shown
                .lines()
                .filter(|line| line.contains(" -> /") && !line.contains(" -> /dev/null"))
                .count()
        };
        assert_eq!((opened(&[]), opened(&["-o"])), (1, 0));
        lock.end();
    });
}

/// The end of the command was read behind the signal that ended it, after its process had been
/// reaped: `putex lock` waited for ever, and held the lock.
#[test]
fn a_command_that_ends_while_it_is_sent_a_signal_has_ended() {
    if !has("strace") {
        return;
    }
    in_directory(|site| {
        let [log, ran] = ["strace", "ran"].map(|name| site.sandbox.join(name));
        let slow = ["-e", "trace=kill", "-e", "inject=kill:delay_exit=500000"];
        let strace = [&["strace", "-o", log.to_str().expect("text")][..], &slow].concat();
        let script = format!("touch {}; exec sleep 1000", ran.display());
        let mut command = command_by(site, &strace, &["x", "sh", "-c", &script]);
        let mut tracer = command.stderr(Stdio::null()).spawn().expect("it can be run");
        let has_ended = |tracer: &mut Child| tracer.try_wait().expect("a child").is_some();
        until_true("a command", || ran.exists() || has_ended(&mut tracer));
        if !ran.exists() {
            return println!("skipped: strace may not trace");
        }
        for front in site.sandbox.processes_of("putex") {
            signal(front, Signal::TERM);
        }
        let ended = wait_exit(&mut tracer, now() + PATIENCE).expect("an end");
        assert_eq!(ended.code(), Some(143));
    });
}

/// A command that had given up the rights of root still had the file for writing, and could write
/// over the ticket of another lock.
#[test]
fn what_the_command_inherits_keeps_the_lock_and_cannot_be_written() {
    in_directory(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let [ticket] = &site.tickets()[..] else { panic!("one ticket") };
        let before = fs::read(ticket).expect("a file");
        let tries = "for file in /proc/$$/fd/*; do
                         number=${file##*/}
                         case $(readlink $file) in *.held)
                             eval \"echo tried; printf 0000 1>&$number && echo written\" ;;
                         esac
                     done 2>/dev/null";
        let run = site.run(&["y", "sh", "-c", tries]);
        assert_eq!(run.shown, "tried\n", "{}", run.said);
        assert_eq!(fs::read(ticket).expect("a file"), before);
        holder.end();
    });
}

/// The kernel gives a signal to any thread that does not block it: the end of the command would
/// not be heard of, and a SIGTERM not passed on.
#[test]
fn the_threads_of_a_waiter_get_no_signal() {
    in_directory(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let next = site.lock("next", &["-w", "30", "x"]);
        next.waits_behind(1);
        let front = next.front();
        let threads = || fs::read_dir(format!("/proc/{front}/task")).expect("it runs");
        until_true("a thread", || threads().count() > 1);
        for thread in threads() {
            let thread = thread.expect("an entry");
            if thread.file_name().to_string_lossy() != front.to_string() {
                let status = fs::read_to_string(thread.path().join("status")).expect("it runs");
                let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
                let blocked = u64::from_str_radix(blocked.expect("a set").trim(), 16);
                // SIGKILL and SIGSTOP cannot be blocked, and two are those of the C library.
                assert_eq!(blocked.expect("a number") | 0x1_8004_0100, 0xffff_ffff_ffff_ffff);
            }
        }
        holder.end();
        next.end();
    });
}

#[test]
fn a_holder_that_is_stopped_goes_on_holding_and_a_waiter_that_is_stopped_keeps_its_place() {
    in_directory(|site| {
        let (mut holder, second) = pair(site);
        let command = holder.held().expect("it has begun").pid;
        holder.signal_front(Signal::STOP);
        signal(command, Signal::STOP);
        assert_eq!(site.run(&["-w", "0.5", "x", "true"]).status, Some(75));
        second.signal_front(Signal::STOP);
        let third = site.lock("third", &["x"]);
        third.waits_behind(2);
        signal(command, Signal::KILL);
        holder.signal_front(Signal::CONT);
        assert_eq!(holder.status(), 137);
        let late = site.run(&["-w", "0.5", "x", "true"]);
        assert_eq!(late.status, Some(75), "{}", late.said);
        assert!(third.held().is_none());
        second.signal_front(Signal::CONT);
        second.begun();
        second.end();
        third.begun();
        third.end();
    });
}

/// A command that leaves a process behind, in its group or not, until a file is there.
fn leaving(runs: &str) -> String {
    let left = "while [ ! -e $D/let-go ]; do sleep 0.01; done; rm $D/let-go";
    format!("{runs} sh -c 'echo $$ >$D/left; {left}' >/dev/null 2>&1 &")
}

#[test]
fn what_a_command_leaves_behind_keeps_the_lock_unless_it_was_closed() {
    in_directory(|site| {
        let left = || -> u32 {
            let text = until("a number", || {
                fs::read_to_string(site.sandbox.join("left"))
                    .ok()
                    .filter(|text| text.ends_with('\n'))
            });
            fs::remove_file(site.sandbox.join("left")).expect("it is there");
            text.trim().parse().expect("a number")
        };
        let daemon = leaving("setsid");
        assert_eq!(site.run(&["x", "sh", "-c", &daemon]).status, Some(0));
        let pid = left();
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        assert!(lives(pid));
        File::create(site.sandbox.join("let-go")).expect("a file");
        next.begun();
        next.end();
        assert_eq!(site.run(&["-o", "x", "sh", "-c", &daemon]).status, Some(0));
        let pid = left();
        assert_eq!(site.run(&["-n", "x", "true"]).status, Some(0));
        assert!(lives(pid));
        File::create(site.sandbox.join("let-go")).expect("a file");
        until_true("its end", || !lives(pid));
    });
}

#[test]
fn who_waits_in_a_folder_that_was_removed_waits_anew_in_the_next_one() {
    in_directory(|site| {
        let (holder, waiter) = pair(site);
        fs::remove_dir_all(site.folder()).expect("a folder");
        let other = site.lock("other", &["-s", "y"]);
        other.begun();
        let new = site.lock("new", &["x/y"]);
        // A user who removes the folder takes the locks away.
        new.begun();
        holder.end();
        waiter.says("1 ahead");
        until_true("it waits for the new one", || waiter.said().matches("1 ahead").count() == 2);
        new.end();
        waiter.begun();
        waiter.end();
        other.end();
        // The commands `holder` and `new` have run beside each other: the record is emptied.
        File::create(site.sandbox.join("record")).expect("a file");
    });
}

#[test]
fn whoever_has_lost_the_file_of_a_ticket_that_waits_takes_another_ticket() {
    in_directory(|site| {
        let (holder, waiter) = pair(site);
        let last = site.lock("last", &["x"]);
        last.waits_behind(2);
        let tickets = site.tickets();
        assert_eq!(tickets.len(), 3);
        fs::remove_file(&tickets[1]).expect("a file");
        holder.end();
        // The waiter has gone to the end of the queue.
        last.begun();
        assert!(waiter.held().is_none());
        last.end();
        waiter.begun();
        waiter.end();
    });
}

#[test]
fn what_is_no_folder_of_this_user_alone_is_refused() {
    in_directory(|site| {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let folder = site.folder();
        let (link, away) = (folder.join("lock.y.1.held"), site.sandbox.join("away"));
        symlink(&away, &link).expect("a link");
        assert_refused(site, "Too many levels of symbolic links");
        fs::remove_file(&link).expect("a link");
        fs::set_permissions(&folder, Permissions::from_mode(0o770)).expect("a folder");
        assert_refused(site, "is writable by others (mode 0770)");
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("a folder");
        fs::rename(&folder, &away).expect("it is there");
        symlink(&away, &folder).expect("a link");
        assert_refused(site, "Not a directory");
        fs::remove_file(&folder).expect("a link");
        fs::rename(&away, &folder).expect("it is there");
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
    });
}

/// Returns whether a process waits for the lock of the folder, as the kernel tells it.
fn is_waited_for(site: &Site) -> bool {
    let inode = fs::metadata(site.folder()).expect("a folder").ino();
    let locks = fs::read_to_string("/proc/locks").expect("the kernel tells of locks");
    locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
}

/// A process that is stopped while it has the lock of the folder, which the test plays.
#[test]
fn a_process_that_is_stopped_inside_holds_nobody_beyond_its_limit_or_a_signal() {
    in_directory(|site| {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let folder = File::open(site.folder()).expect("a folder");
        folder.lock().expect("the lock");
        let run = site.run(&["-n", "x", "true"]);
        assert_eq!(run.status, Some(69), "{}", run.said);
        assert!(run.said.contains("one that has it is stopped"), "{}", run.said);
        let mut ended = site.lock("ended", &["x"]);
        until_true("a waiter", || is_waited_for(site));
        ended.signal_front(Signal::TERM);
        assert_eq!(ended.status(), -Signal::TERM.as_raw());
        let report = site.sandbox.join("report").display().to_string();
        let mut reported = site.lock("reported", &["--report", &report, "x"]);
        let waiter = site.lock("waiter", &["-w", "600", "x"]);
        reported.signal_front(Signal::TERM);
        assert_eq!(reported.status(), -Signal::TERM.as_raw());
        folder.unlock().expect("it was locked");
        waiter.begun();
        waiter.end();
    });
}
