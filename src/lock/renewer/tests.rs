//! The renewer, with a front that the test plays and a directory.

mod after;

use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::PidfdFlags;

use super::*;
use crate::core::Written;
use crate::core::tickets::{EarlierKeys, LockTiming, Mark, Mode, Name};
use crate::lock::Wait;
use crate::store::dir::DirStore;

const BUCKET: &str = "locks";

/// R where no test waits until the lock is lost.
const LONG: Duration = Duration::from_secs(60);

fn name() -> Name {
    Name::parse("db").expect("a name")
}

fn request(renewal: Duration) -> Request {
    Request {
        name: name(),
        mode: Mode::Exclusive,
        soft: None,
        wait: Wait::Forever,
        timing: LockTiming::new(renewal, 5, 10_000, renewal / 4).expect("times"),
        busy_status: 75,
        token: "alpha".to_owned(),
        closes: false,
        hold: Duration::ZERO,
        report: None,
        command: vec!["true".into()],
        level: 0,
    }
}

/// A renewer that has the lock, the front's end of its socket, and the directory.
struct Rig {
    renewer: Renewer,
    front: OwnedFd,
    base: PathBuf,
}

impl Rig {
    fn granted(name: &str, renewal: Duration) -> Rig {
        let base =
            std::env::temp_dir().join(format!("putex-renewer-{}-{name}", std::process::id()));
        Rig::begin(base, &request(renewal))
    }

    /// Returns a renewer that has the lock in this directory, for a request.
    fn begin(base: PathBuf, request: &Request) -> Rig {
        let store = || Box::new(DirStore::new(base.clone(), BUCKET));
        let validity_told = Validity::new().expect("a counter");
        let holder = HolderId::random().expect("random numbers");
        let mut renewer =
            Renewer::new(request, holder, store(), validity_told).expect("descriptors");
        // The bucket is no new one.
        let mut tickets = Tickets::new(store(), renewer.owner.ticket());
        let soon = sys::now().after(sys::PATIENCE);
        let (bucket, mark) = tickets.open(soon).expect("it can be made");
        let lifetime = request.timing.lifetime();
        let mark = Mark { epoch: bucket.id.epoch, lifetime, ..mark };
        let written = tickets.perform(&Step::WriteMark(mark, soon), "", "", sys::now());
        assert!(matches!(written, Some(Input::Written(Written::Stored(_) | Written::Moved(_), _))));
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (front, renewers) = pair.expect("a socket");
        renewer.front = Some(renewers);
        while renewer.owner.kill_times().is_none() {
            assert!(renewer.turn(), "the lock is free");
        }
        Rig { renewer, front, base }
    }

    fn tell(&self, message: &ToRenewer, with: Option<BorrowedFd<'_>>) {
        let packet = serde_json::to_vec(message).expect("JSON");
        send(self.front.as_fd(), &packet, with).expect("it lives");
    }

    /// Returns how many tickets stand.
    fn standing(&self) -> usize {
        let store = Box::new(DirStore::new(self.base.clone(), BUCKET));
        let mut tickets = Tickets::new(store, self.renewer.owner.ticket());
        let soon = sys::now().after(sys::PATIENCE);
        tickets.open(soon).expect("it is there");
        tickets.list(&EarlierKeys::default(), "", soon).expect("it is there").0.len()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// Returns a group, and the command as the front tells of it.
fn group(script: &str) -> (Child, Command) {
    let mut program = Program::new("sh");
    program.args(["-c", script]).process_group(0).stdout(Stdio::piped());
    let child = program.spawn().expect("a shell");
    let group = Pid::from_child(&child);
    let leader = rustix::process::pidfd_open(group, PidfdFlags::empty()).expect("it is there");
    (child, Command { group, leader })
}

/// The front lives, and lets the command begin as soon as it has told of it.
#[test]
fn the_ticket_stands_when_no_descriptor_is_left_for_the_command() {
    let mut rig = Rig::granted("descriptor", LONG);
    rig.tell(&ToRenewer::Started(1 << 21), None);
    while rig.renewer.turn() {}
    assert_eq!(rig.standing(), 1);
}

/// It saves a round trip. After another step it may be out of date.
#[test]
fn the_mark_that_was_read_with_the_opening_serves_the_next_step_only() {
    let mut rig = Rig::granted("mark", LONG);
    let by = sys::now().after(LONG);
    let mut other =
        Tickets::new(Box::new(DirStore::new(rig.base.clone(), BUCKET)), rig.renewer.owner.ticket());
    for is_next in [true, false] {
        let (_, mut mark) = other.open(by).expect("it is there");
        let opened = rig.renewer.perform(Step::Open(by), sys::now());
        assert!(matches!(opened, Input::Opened(Ok(_))), "{opened:?}");
        if !is_next {
            rig.renewer.perform(Step::Watch(["lock.db.a".to_owned()].into()), sys::now());
        }
        mark.epoch = format!("changed {is_next}");
        let step = Step::WriteMark(mark.clone(), by);
        let written = other.perform(&step, "", "", sys::now());
        assert!(matches!(written, Some(Input::Written(Written::Stored(_), _))), "{written:?}");
        let read = rig.renewer.perform(Step::ReadMark(by), sys::now());
        let Input::Mark(Ok(read)) = read else { panic!("{read:?}") };
        assert_eq!(read.epoch == mark.epoch, !is_next, "{read:?}");
    }
}

#[test]
fn a_command_has_ended_when_nobody_is_in_its_group() {
    let (mut child, command) = group("sleep 1000 & exit");
    child.wait().expect("it ends");
    let processes = Processes::open().expect("descriptors");
    assert!(sys::is_ready(&command.leader));
    assert!(!command.has_ended(&processes), "one is left in the group");
    command.kill();
    let give_up = sys::now().after(sys::PATIENCE);
    while !command.has_ended(&processes) {
        assert!(sys::now() < give_up, "it does not end");
    }
}

#[test]
fn the_ticket_of_a_command_that_was_killed_with_the_front_is_ended_after_it() {
    let mut rig = Rig::granted("dead", LONG);
    let (mut child, command) = group("sleep 1000 & exec sleep 1000");
    rig.tell(&ToRenewer::Started(command.group.as_raw_pid()), Some(command.leader.as_fd()));
    rig.renewer.hear_front();
    rig.front = File::open("/dev/null").expect("it is there").into();
    let reaper = std::thread::spawn(move || child.wait());
    while rig.renewer.turn() {}
    assert!(command.has_ended(&rig.renewer.processes));
    assert_eq!(rig.standing(), 0);
    reaper.join().expect("it ends").expect("it was reaped");
}

/// A front that is stopped does not say that the command has ended.
#[test]
fn a_renewer_that_has_killed_the_command_of_a_stopped_front_rests() {
    let mut rig = Rig::granted("rests", Duration::from_millis(400));
    let (mut child, command) = group("sleep 1000");
    rig.tell(&ToRenewer::Started(command.group.as_raw_pid()), Some(command.leader.as_fd()));
    std::fs::remove_dir_all(&rig.base).expect("it is there");
    while !sys::is_ready(&command.leader) {
        assert!(rig.renewer.turn());
    }
    child.wait().expect("it was killed");
    // A slow host takes fewer turns in that time.
    let until = sys::now().after(Duration::from_millis(300));
    let mut turns = 0;
    while sys::now() < until {
        assert!(rig.renewer.turn());
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns in 300 ms");
}
