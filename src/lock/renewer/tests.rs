//! The renewer, with a front that the test plays and a directory.

mod after;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::WaitOptions;

use super::*;
use crate::core::Written;
use crate::core::tickets::{EarlierKeys, LockTiming, Mark, Mode, Name};
use crate::guard::send;
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
        wait: None,
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
    renewer: Renewer<'static>,
    front: OwnedFd,
    base: PathBuf,
}

impl Rig {
    fn granted(name: &str, renewal: Duration) -> Rig {
        let base =
            std::env::temp_dir().join(format!("putex-renewer-{}-{name}", std::process::id()));
        Rig::begin(base, request(renewal))
    }

    /// Returns a renewer that has the lock in this directory, for a request.
    fn begin(base: PathBuf, request: Request) -> Rig {
        let request: &Request = Box::leak(Box::new(request));
        let store = || Box::new(DirStore::new(base.clone(), BUCKET));
        let validity_told = Validity::new().expect("a counter");
        let mut renewer = Renewer::new(request, store(), validity_told).expect("descriptors");
        // The bucket is no new one.
        let mut tickets = Tickets::new(store(), renewer.owner.ticket(), "");
        let soon = sys::now().after(sys::PATIENCE);
        let opened = tickets.open(soon).expect("it can be made");
        let lifetime = request.timing.lifetime();
        let mark = Mark { epoch: opened.info.id.epoch, lifetime, ..opened.mark };
        let written = tickets.perform(&Step::WriteMark(mark, soon), "", "");
        assert!(matches!(written, Some(Input::Written(Written::Stored(_) | Written::Moved(_)))));
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (front, renewers) = pair.expect("a socket");
        renewer.set_front(renewers);
        while renewer.owner.kill_times().is_none() {
            assert!(renewer.turn(), "the lock is free");
        }
        Rig { renewer, front, base }
    }

    fn tell(&self, message: &ToRenewer) {
        let packet = serde_json::to_vec(message).expect("JSON");
        send(self.front.as_fd(), &packet, None).expect("it lives");
    }

    /// Has the command started; returns its group.
    fn start(&mut self) -> Pid {
        self.tell(&ToRenewer::Run(OfTerminal::Nothing));
        self.renewer.hear_front();
        let Progress::Runs { group, .. } = self.renewer.progress else {
            panic!("it was not started")
        };
        group
    }

    fn kill_front(&mut self) {
        self.front = File::open("/dev/null").expect("it is there").into();
    }

    /// Returns how many tickets stand.
    fn standing(&self) -> usize {
        let store = Box::new(DirStore::new(self.base.clone(), BUCKET));
        let mut tickets = Tickets::new(store, self.renewer.owner.ticket(), "");
        let soon = sys::now().after(sys::PATIENCE);
        tickets.open(soon).expect("it is there");
        tickets.list(&EarlierKeys::default(), soon).expect("it is there").standing.len()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// Does this in a process of its own: all of its children are the command's.
fn apart(check: impl FnOnce()) {
    let Some(process) = raw::fork().expect("a process") else {
        raw::end_copy(catch_unwind(AssertUnwindSafe(check)).is_err().into());
    };
    let ended = || rustix::process::waitpid(Some(process), WaitOptions::NOHANG).expect("a child");
    let (_, status) = sys::until("its end", ended);
    assert_eq!(status.exit_status(), Some(0));
}

/// Returns a request whose command leaves a process in a session of its own, which has no parent
/// that lives, no environment, and ignores SIGTERM. Its number is in this file.
fn leaving(number: &std::path::Path, renewal: Duration) -> Request {
    let script = format!(
        "trap '' TERM
        setsid sh -c 'setsid env -i PATH=$PATH \\
            sh -c \"echo \\$\\$ >{0}.new; mv {0}.new {0}; sleep 1000\" &'
        sleep 1000",
        number.display()
    );
    Request { command: ["sh", "-c", &script].map(Into::into).into(), ..request(renewal) }
}

fn has_ended(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// A lock that is held, and the process that its command has left outside of its group.
fn with_outsider(name: &str, renewal: Duration) -> (Rig, Pid) {
    let base = std::env::temp_dir().join(format!("putex-outside-{}-{name}", std::process::id()));
    let number = base.with_extension("number");
    let mut rig = Rig::begin(base, leaving(&number, renewal));
    rig.start();
    sys::until("its command", || number.exists().then_some(()));
    let process = fs::read_to_string(&number).expect("a number");
    fs::remove_file(number).expect("it is there");
    (rig, Pid::from_raw(process.trim().parse().expect("a number")).expect("one"))
}

/// Nothing of it runs beside the next holder, in whatever group and session it is.
#[test]
fn the_ticket_of_a_command_whose_front_was_killed_is_ended_after_all_that_it_has_started() {
    apart(|| {
        let (mut rig, outsider) = with_outsider("dead", LONG);
        rig.kill_front();
        rig.renewer.hear_front();
        assert!(has_ended(outsider));
        assert_eq!(rig.standing(), 1);
        while rig.renewer.turn() {}
        assert_eq!(rig.standing(), 0);
    });
}

/// A front that is stopped does not say that the command has ended.
#[test]
fn a_renewer_kills_the_command_of_a_stopped_front_in_time_and_rests() {
    apart(|| {
        let (mut rig, outsider) = with_outsider("rests", Duration::from_millis(600));
        fs::remove_dir_all(&rig.base).expect("it is there");
        while !has_ended(outsider) {
            assert!(rig.renewer.turn());
        }
        // A slow host takes fewer turns in that time.
        let until = sys::now().after(Duration::from_millis(300));
        let mut turns = 0;
        while sys::now() < until {
            assert!(rig.renewer.turn());
            turns += 1;
        }
        assert!(turns < 100, "{turns} turns in 300 ms");
    });
}

/// A command that cannot end before V does not begin.
#[test]
fn a_command_is_not_started_when_its_time_is_over() {
    let mut rig = Rig::granted("late", Duration::from_millis(100));
    sys::until("the end of its time", || {
        let times = rig.renewer.owner.kill_times();
        times.is_none_or(|times| sys::now() >= times.terminate_at).then_some(())
    });
    rig.tell(&ToRenewer::Run(OfTerminal::Nothing));
    rig.renewer.hear_front();
    assert!(matches!(rig.renewer.progress, Progress::NotStarted(_)));
}
