//! An agent and a guard of different versions of putex.

use std::env;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use putex::guard::{receive, send};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketType, accept, bind, connect, listen, socket,
};

use crate::small_host::{Host, kill_both, wait_for_end};
use crate::support::clock::until_true;
use crate::support::process::lives;

/// Names the directory of the guard, in the process that plays one.
const DIR: &str = "PUTEX_TEST_GUARD_DIR";

/// A guard that did not understand its agent, and waited for orders of it, would keep the service
/// up after the lock.
#[test]
fn a_guard_takes_an_agent_of_another_version_for_one_that_is_gone() {
    let host = Host::new("newer");
    let agent = host.agent();
    host.wait_until_up();
    let guard = host.guard();
    agent.kill();
    let newer = a_socket();
    connect(&newer, &address(&host.file_of_guard("socket"))).expect("the guard listens");
    send(newer.as_fd(), br#"{"Hello":[99,{}]}"#, None).expect("there is room");
    let next = || receive(newer.as_fd(), RecvFlags::DONTWAIT).ok();
    until_true("its end", || next().is_some_and(|(packet, _)| packet.is_empty()));
    host.wait_until_down();
    wait_for_end(guard);
}

/// Such a guard stops the service when the lock runs out: it is not killed before.
#[test]
fn a_guard_of_another_version_stops_the_service_before_it_is_replaced() {
    let host = Host::new("older");
    let agent = host.agent();
    host.wait_until_up();
    let dir = host.file_of_guard("socket");
    let dir = dir.parent().expect("it has one").to_owned();
    kill_both(host.guard(), agent);
    let mut guard = host.sandbox.marked(env::current_exe().expect("it has a path"));
    guard.args(["--exact", "instances::other_version::as_a_guard", "--nocapture"]).env(DIR, &dir);
    let mut guard = guard.spawn().expect("it runs");
    until_true("a guard", || dir.join("listens").exists());
    let agent = host.agent();
    let why = "it takes no messages of this putex, as one of another version";
    agent.wait_for_any(&[why]);
    until_true("another attempt", || dir.join("called-again").exists());
    assert!(lives(guard.id()), "it was killed before the service was down");
    assert_eq!(agent.log.text().matches(why).count(), 1, "{}", agent.log.text());
    fs::remove_file(host.sandbox.join("up")).expect("the previous guard has left it");
    fs::write(dir.join("stopped"), "").expect("there is room");
    let status = guard.wait().expect("it was not waited for");
    assert!(status.success(), "it was killed");
    host.wait_until_up();
}

/// Plays the guard, in a process of its own: it closes each connection, and ends when the service
/// is down.
#[test]
fn as_a_guard() {
    let Some(dir) = env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    env::set_current_dir(&dir).expect("it is there");
    let lock = fs::File::options().write(true).open("lock");
    let lock = lock.expect("the previous guard has made it");
    fcntl_lock(&lock, FlockOperation::LockExclusive).expect("the previous guard ends");
    let _ = fs::remove_file("socket");
    let listener = a_socket();
    bind(&listener, &address(Path::new("socket"))).expect("it is free");
    listen(&listener, 1).expect("it can be called");
    for heard in ["listens", "called", "called-again"] {
        fs::write(heard, "").expect("there is room");
        let agent = accept(&listener).expect("the agent calls");
        receive(agent.as_fd(), RecvFlags::empty()).expect("it says something");
    }
    until_true("the end of the service", || Path::new("stopped").exists());
}

fn a_socket() -> OwnedFd {
    socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket")
}

fn address(path: &Path) -> SocketAddrUnix {
    SocketAddrUnix::new(path).expect("it is short")
}
