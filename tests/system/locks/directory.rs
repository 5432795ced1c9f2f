//! Locks in a directory: they end with the processes that have them, however those end, and with
//! nothing else; and what becomes of them when somebody meddles with the file.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::time::Duration;

use putex::sys::raw::{ByteLock, lock_byte};
use rustix::process::Signal;

use crate::damage::assert_refused;
use crate::site::{Lock, Site, in_directory, state_of};
use crate::support::clock::{observe_for, until, until_true};
use crate::support::process::{lives, parent_of, signal};

/// The least limit at the door of the file.
const DOOR_LIMIT: Duration = Duration::from_secs(2);

/// The byte of the door of the file.
const DOOR: u64 = 1 << 62;

/// Returns how many threads a process has.
fn threads_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").count()
}

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

/// A command that had given up the rights of root still had the file for writing, and could write
/// over the ticket of another lock.
#[test]
fn what_the_command_inherits_keeps_the_lock_and_cannot_be_written() {
    in_directory(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let before = fs::read(site.lock_file()).expect("a file");
        let tries = "for file in /proc/$$/fd/*; do
                         number=${file##*/}
                         case $(readlink $file) in */locks)
                             eval \"echo tried; printf 0000 1>&$number && echo written\" ;;
                         esac
                     done 2>/dev/null";
        let run = site.run(&["y", "sh", "-c", tries]);
        assert_eq!(run.shown, "tried\n", "{}", run.said);
        let after = fs::read(site.lock_file()).expect("a file");
        // The record of the holder; the header has changed, and there is another record.
        assert_eq!(after[256..512], before[256..512]);
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
fn who_waits_in_a_file_that_was_removed_waits_anew_in_the_next_one() {
    in_directory(|site| {
        let (holder, waiter) = pair(site);
        fs::remove_file(site.lock_file()).expect("a file");
        let other = site.lock("other", &["-s", "y"]);
        other.begun();
        let new = site.lock("new", &["x/y"]);
        // Whoever removes the file takes the locks away.
        new.begun();
        holder.end();
        waiter.says("1 ahead");
        until_true("it waits for the new one", || waiter.said().matches("1 ahead").count() == 2);
        new.end();
        waiter.begun();
        waiter.end();
        other.end();
        // They have run beside each other.
        File::create(site.sandbox.join("record")).expect("a file");
    });
}

#[test]
fn what_is_no_file_of_this_user_alone_is_refused() {
    in_directory(|site| {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let path = site.lock_file();
        let away = site.sandbox.join("away");
        fs::set_permissions(&path, Permissions::from_mode(0o620)).expect("a file");
        assert_refused(site, "is writable by others (mode 0620)");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file");
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(7), None).expect("root may");
            assert_refused(site, "belongs to user 7");
            chown(&path, Some(0), None).expect("root may");
        }
        fs::rename(&path, &away).expect("it is there");
        symlink(&away, &path).expect("a link");
        assert_refused(site, "is a symbolic link");
        fs::remove_file(&path).expect("a link");
        fs::create_dir(&path).expect("a folder");
        assert_refused(site, "is no file");
        fs::remove_dir(&path).expect("a folder");
        fs::set_permissions(path.parent().expect("a folder"), Permissions::from_mode(0o770))
            .expect("a folder");
        assert_refused(site, "is open to others (mode 0770)");
        fs::set_permissions(path.parent().expect("a folder"), Permissions::from_mode(0o700))
            .expect("a folder");
        fs::rename(&away, &path).expect("it is there");
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
    });
}

/// Returns whether a process waits for a lock of a byte of the file, as the kernel tells it.
fn is_waited_for(site: &Site) -> bool {
    let inode = fs::metadata(site.lock_file()).expect("a file").ino();
    let locks = fs::read_to_string("/proc/locks").expect("the kernel tells of locks");
    locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
}

/// A process stopped at the door, which the test plays.
#[test]
fn a_process_that_is_stopped_at_the_door_holds_nobody_beyond_its_limit_or_a_signal() {
    in_directory(|site| {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let open = || File::options().read(true).write(true).open(site.lock_file());
        let file = open().expect("a file");
        lock_byte(file.as_fd(), ByteLock::Exclusive, DOOR, false).expect("the door");
        let run = site.run(&["-n", "x", "true"]);
        assert_eq!(run.status, Some(69), "{}", run.said);
        assert!(run.said.contains("it is stopped"), "{}", run.said);
        let mut ended = site.lock("ended", &["x"]);
        until_true("a waiter", || is_waited_for(site));
        ended.signal_front(Signal::TERM);
        assert_eq!(ended.status(), -Signal::TERM.as_raw());
        until_true("its end", || !is_waited_for(site));
        let waiter = site.lock("waiter", &["-w", "600", "x"]);
        until_true("a waiter", || is_waited_for(site));
        drop(file);
        waiter.begun();
        waiter.end();
        let file = open().expect("a file");
        for byte in [DOOR + 5, DOOR + 6] {
            lock_byte(file.as_fd(), ByteLock::Shared, byte, false).expect("two bytes");
        }
        assert_refused(site, "is locked by another program");
    });
}

/// Its thread went on waiting for the door after the process had gone in without it, and so got
/// the door when nobody was to leave any more: all names were blocked until the command ended.
#[test]
fn a_process_that_was_stopped_at_the_door_over_its_limit_does_not_keep_the_door() {
    in_directory(|site| {
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
        let file = File::options().read(true).write(true).open(site.lock_file()).expect("a file");
        lock_byte(file.as_fd(), ByteLock::Exclusive, DOOR, false).expect("the door");
        let ids = ["a", "b", "c", "d"];
        let mut stopped = ids.map(|id| site.lock(id, &["-w", "0.2", id]));
        for one in &stopped {
            until_true("two threads", || threads_of(one.front()) == 2);
            one.signal_front(Signal::STOP);
            until_true("a stop", || state_of(one.front()) == Some('T'));
        }
        observe_for(DOOR_LIMIT);
        drop(file);
        for one in &mut stopped {
            one.signal_front(Signal::CONT);
            let front = one.front();
            let is_over = || one.held().is_some() || state_of(front).is_none_or(|it| it == 'Z');
            until_true("its end, or its command", is_over);
            let other = site.run(&["-n", "other", "true"]);
            assert_eq!(other.status, Some(0), "{}", other.said);
            one.let_go();
            assert!([0, 69].contains(&one.status()), "{}", one.said());
        }
    });
}
