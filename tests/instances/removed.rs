//! What agent and guard have in their private directory, removed while they run: by hand, or by
//! what clears old files away.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};

use crate::site::Site;
use crate::small_host::{Host, file_in};
use crate::support::clock::until_true;
use crate::support::process::lives;

/// The next guard is told what the previous one has noted, and the service goes on.
#[test]
fn a_private_directory_that_was_removed_is_made_anew() {
    let site = Site::new("removed");
    let agent = site.agent();
    let before = site.wait_until_up();
    let socket = file_in(&site.sandbox, "socket");
    fs::remove_dir_all(site.sandbox.join("run/putex")).expect("it is there");
    until_true("another guard", || socket.exists());
    let guard = site.sandbox.guard("web");
    assert!(!lives(before.guard.as_raw_nonzero().get().unsigned_abs()), "two guards act");
    kill_process(guard, Signal::KILL).expect("it runs");
    agent.wait_for_any(&["the guard is gone: it has ended: killed by signal 9"]);
    site.wait_for_starts(2);
    agent.kill();
    let agent = site.agent();
    agent.wait_for_any(&["adopted as revision"]);
    let after = site.running();
    after.assert_untouched_since(&before);
}

#[test]
fn a_guard_whose_socket_was_removed_is_replaced() {
    let site = Site::new("socket");
    let agent = site.agent();
    let before = site.wait_until_up();
    let socket = file_in(&site.sandbox, "socket");
    fs::remove_file(&socket).expect("it is there");
    until_true("another socket", || socket.exists());
    agent.kill();
    let agent = site.agent();
    agent.wait_for_any(&["adopted as revision"]);
    let after = site.running();
    assert_ne!(after.guard, before.guard);
    after.assert_untouched_since(&before);
}

/// The guard that lives is kept until the directory is as it has to be.
#[test]
fn a_guard_is_kept_where_another_could_not_begin() {
    let site = Site::new("kept");
    let agent = site.agent();
    let before = site.wait_until_up();
    let socket = file_in(&site.sandbox, "socket");
    let dir = socket.parent().expect("it is in a directory");
    let open_to =
        |mode| fs::set_permissions(dir, Permissions::from_mode(mode)).expect("it is ours");
    open_to(0o755);
    fs::remove_file(&socket).expect("it is there");
    site.wait_for_starts(4);
    assert_eq!(site.running(), before);
    open_to(0o700);
    until_true("another socket", || socket.exists());
    agent.kill();
    let agent = site.agent();
    agent.wait_for_any(&["adopted as revision"]);
    assert_eq!(site.running().service, before.service);
}

/// What a guard was running is known to the next one although its note was removed.
#[test]
fn a_start_that_runs_while_the_private_directory_is_removed_is_killed_with_its_guard() {
    let host = Host::new("noted");
    host.sandbox.file("hold", "", 0o600);
    let _agent = host.agent();
    host.wait_until_up();
    let starts = || host.sandbox.processes_of("sleep");
    until_true("start", || starts().len() == 1);
    let (guard, start) = (host.guard(), starts()[0]);
    fs::remove_dir_all(host.sandbox.join("run/putex")).expect("it is there");
    until_true("the end of start", || !lives(start));
    until_true("another start", || starts().len() == 1);
    assert_ne!(host.guard(), guard);
}

/// The lock on a file that was removed locks nobody out.
#[test]
fn an_agent_whose_lock_another_has_taken_stops_the_service_and_ends() {
    let site = Site::new("displaced");
    let mut agent = site.agent();
    let before = site.wait_until_up();
    let lock = file_in(&site.sandbox, "agent.lock");
    let another = lock.with_extension("new");
    let file = File::create(&another).expect("there is room");
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is new");
    fs::rename(&another, &lock).expect("it is this user's");
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("another agent has taken the private directory"), "{said}");
    assert!(!lives(before.service), "{said}");
}
