//! An agent that meets the guard of another version of putex.

use std::env;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use putex::core::command::LockContext;
use putex::core::protocol::{Grant, GuardReport, ServiceState, StartState, ToGuard};
use putex::core::record::Incarnation;
use putex::guard::protocol::{AgentPacket, GuardPacket, decode};
use putex::guard::{receive, send};
use putex::sys;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketType, accept, bind, listen, socket,
};

use crate::small_host::{Host, kill_both};
use crate::support::clock::until_true;
use crate::support::process::lives;

/// Names the directory of the guard, in the process that plays one.
const DIR: &str = "PUTEX_TEST_GUARD_DIR";

/// A version that there will not be.
const VERSION: u64 = 99;

/// The guard is told to stop the service by a message that stays for ever, again and again, and is
/// not killed before the service is down. A question, which it could not read, was the end of its
/// agent for it.
#[test]
fn a_guard_of_another_version_stops_the_service_before_it_is_replaced() {
    let host = Host::new("version");
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
    let waits = "the guard is of another version of putex: it stops the service first";
    agent.wait_for_any(&[waits]);
    until_true("stop", || dir.join("stops").exists());
    assert!(lives(guard.id()), "it was killed before the service was down");
    fs::write(dir.join("stopped"), "").expect("there is room");
    agent.wait_for_any(&["it was of another version; the service is down"]);
    assert_eq!(agent.log.text().matches(waits).count(), 1, "{}", agent.log.text());
    let status = guard.wait().expect("it was not waited for");
    assert!(!status.success(), "it was not killed");
    fs::remove_file(host.sandbox.join("up")).expect("the previous guard has left it");
    host.wait_until_up();
}

/// Plays the guard, in a process of its own: the agent kills the process that listens.
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
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let address = SocketAddrUnix::new("socket").expect("it is short");
    bind(&listener, &address).expect("it is free");
    listen(&listener, 1).expect("it can be called");
    fs::write("listens", "").expect("there is room");
    let agent = accept(&listener).expect("the agent calls");
    let now = sys::now();
    let grant = Grant {
        holder: Incarnation(7),
        context: LockContext::default(),
        valid_until: now.after(crate::support::clock::PATIENCE),
        dead_by: now.after(crate::support::clock::PATIENCE),
    };
    let (mut heard, mut orders) = (0, 0);
    let mut service = ServiceState::Up(grant, StartState::Ended);
    while let Ok((packet, _)) = receive(agent.as_fd(), RecvFlags::empty()) {
        heard += 1;
        match decode(&packet) {
            Some(AgentPacket::Message(ToGuard::Stop(_))) => {
                service = ServiceState::Stopping { overdue: false };
                orders += 1;
            }
            Some(AgentPacket::Message(ToGuard::AskReport)) | None => return,
            Some(AgentPacket::Hello(_) | AgentPacket::OtherVersion | AgentPacket::Message(_)) => {}
        }
        report(&agent, heard, &service);
        if orders == 2 {
            fs::write("stops", "").expect("there is room");
            until_true("leave to stop", || PathBuf::from("stopped").exists());
            service = ServiceState::Down;
            report(&agent, heard, &service);
        }
    }
}

fn report(agent: &OwnedFd, heard: u64, service: &ServiceState) {
    let report = GuardReport {
        heard,
        service: service.clone(),
        unfit: None,
        start_failure: None,
        start_waits: false,
    };
    let packet = GuardPacket::Report(VERSION, report);
    let packet = serde_json::to_vec(&packet).expect("it has a form in JSON");
    send(agent.as_fd(), &packet, None).expect("it listens");
}
