//! A front in a process of its own. Its child plays the renewer: it has the command, and passes on
//! the messages between the test and the front.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::io::{PipeReader, pipe};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use log::Level;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::*;
use crate::core::tickets::{LockTiming, Mode, Name};
use crate::guard::send;
use crate::lock::command::{Event, events, spawn};
use crate::lock::held::{self, Grant};
use crate::lock::protocol::OfTerminal;
use crate::lock::terminal::Terminal;
use crate::lock::{Request, conclude};
use crate::log::Destination;
use crate::sys::{PATIENCE, PollFlags};

/// R of the tests.
pub(super) const R: Duration = Duration::from_millis(1500);

/// From SIGTERM to SIGKILL.
pub(super) const KILL_AFTER: Duration = Duration::from_millis(300);

/// SIGTERM is due so long before V, or a little later.
pub(super) const TERM_AFTER: Duration = Duration::from_millis(400);

/// A validity that outlasts the patience of a test: an end has another reason.
pub(super) const LONG: Duration = Duration::from_secs(140);

/// A validity that runs out in a test. A command has begun by then, as a shell does in a second or
/// two on a busy host.
pub(super) const SHORT: Duration = Duration::from_secs(3);

/// Returns a path that is the caller's alone.
pub(super) fn file(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    env::temp_dir().join(format!("putex-front-{}-{number}-{name}", std::process::id()))
}

pub(super) fn request(command: &[&str]) -> Request {
    Request {
        soft: None,
        name: Name::parse("web/x").expect("a name"),
        mode: Mode::Exclusive,
        wait: None,
        timing: LockTiming::new(R, 100, 10_000, KILL_AFTER).expect("times"),
        busy_status: 75,
        token: "alpha".to_owned(),
        closes: false,
        hold: Duration::ZERO,
        report: None,
        command: command.iter().map(OsString::from).collect(),
        level: Level::Info as u64,
    }
}

/// A front's side of the connection to its renewer.
pub(super) type Line = (OwnedFd, Validity);

/// The messages to the test.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Heard {
    Front(ToRenewer),
    Command(Event),
    /// The front has the last message of the test.
    PassedOn,
}

/// A front that runs.
pub(super) struct Run {
    /// The process that was forked: the front, or the parent of it.
    pub(super) process: Pid,
    pub(super) renewer: Option<OwnedFd>,
    validity: RefCell<Validity>,
    heard: RefCell<VecDeque<Heard>>,
    stderr: PipeReader,
    read: String,
}

impl Run {
    /// Runs a front for a command.
    pub(super) fn begin(command: &[&str]) -> Run {
        Run::fork_keeping(&[], |line| front(line, command))
    }

    /// Runs a front for a command whose lock is held for so long.
    pub(super) fn begin_holding(command: &[&str], hold: Duration) -> Run {
        let request = Request { hold, ..request(command) };
        Run::fork_keeping(&[], |line| front_of(line, &request))
    }

    /// Runs a closure in a process of its own, with the front's end of the socket. The process
    /// keeps these descriptors.
    pub(super) fn fork_keeping(kept: &[i32], front: impl FnOnce(Line) -> u8) -> Run {
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (renewer, fronts) = pair.expect("a socket");
        let validity = Validity::new().expect("a counter");
        let (stderr, writer) = pipe().expect("a pipe");
        let Some(process) = raw::fork().expect("a process") else {
            rustix::stdio::dup2_stderr(&writer).expect("a descriptor");
            // A shell has the tests ignore these when it runs them in the background.
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                raw::restore_default(signal);
            }
            let own = [fronts.as_raw_fd(), validity.counter.as_raw_fd()];
            close_all_but(&[&own, kept].concat());
            raw::end_copy(front((fronts, validity)));
        };
        rustix::io::ioctl_fionbio(&stderr, true).expect("a pipe");
        let (renewer, validity) = (Some(renewer), RefCell::new(validity));
        let heard = RefCell::default();
        Run { process, renewer, validity, heard, stderr, read: String::new() }
    }

    /// Tells the front a message; returns when the front can read it.
    pub(super) fn tell(&self, message: &ToFront) {
        let packet = serde_json::to_vec(message).expect("JSON");
        send(self.renewer.as_ref().expect("a renewer").as_fd(), &packet, None).expect("the front");
        loop {
            match self.receive() {
                Heard::PassedOn => return,
                heard @ (Heard::Front(_) | Heard::Command(_)) => {
                    self.heard.borrow_mut().push_back(heard)
                }
            }
        }
    }

    /// Renews the lock for so long from now; returns V.
    pub(super) fn renew(&self, validity: Duration) -> Instant {
        let valid_until = sys::now().after(validity);
        self.validity.borrow_mut().tell(valid_until);
        valid_until
    }

    /// Grants the lock for so long from now; returns V.
    pub(super) fn grant(&self, validity: Duration) -> Instant {
        let valid_until = self.renew(validity);
        self.tell(&ToFront::Granted {
            valid_until,
            term: 42,
            epoch: "8c3e".to_owned(),
            slot: None,
        });
        valid_until
    }

    fn receive(&self) -> Heard {
        self.receive_unless_gone().expect("the renewer")
    }

    /// Returns the next message to the test; `None` when the renewer has ended.
    fn receive_unless_gone(&self) -> Option<Heard> {
        let renewer = self.renewer.as_ref().expect("a renewer").as_fd();
        wait_for(renewer, "the front");
        let (packet, _) = next_packet(renewer).expect("a packet");
        (!packet.is_empty()).then(|| serde_json::from_slice(&packet).expect("a message"))
    }

    /// Returns the next message to the test.
    fn take_heard(&self) -> Heard {
        let heard = self.heard.borrow_mut().pop_front();
        heard.unwrap_or_else(|| self.receive())
    }

    /// Returns the next message of the front.
    pub(super) fn next(&self) -> ToRenewer {
        loop {
            match self.take_heard() {
                Heard::Front(ToRenewer::Run(_) | ToRenewer::Terminate)
                | Heard::Command(_)
                | Heard::PassedOn => {}
                Heard::Front(message) => return message,
            }
        }
    }

    /// Returns whether the front has said nothing more.
    pub(super) fn is_silent(&self) -> bool {
        while sys::is_ready(self.renewer.as_ref().expect("a renewer")) {
            let heard = self.receive();
            self.heard.borrow_mut().push_back(heard);
        }
        !self.heard.borrow().iter().any(|heard| matches!(heard, Heard::Front(_)))
    }

    /// Returns the group of the command, which is the number of its leader, when it was started.
    pub(super) fn started(&self) -> Pid {
        loop {
            match self.take_heard() {
                Heard::Command(Event::Started(group)) => return Pid::from_raw(group).expect("one"),
                Heard::Command(Event::NotStarted(_)) => panic!("it was not started"),
                Heard::Front(message) => assert!(matches!(message, ToRenewer::Run(_))),
                Heard::Command(_) | Heard::PassedOn => {}
            }
        }
    }

    /// Waits until the front can read that nothing of the command is left.
    pub(super) fn nothing_left(&self) {
        while self.take_heard() != Heard::Command(Event::NothingLeft) {}
    }

    pub(super) fn wait_for_end_of(&self, leader: Pid) {
        wait_until_so("the end of the command", || {
            let stat = fs::read_to_string(format!("/proc/{leader}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }

    /// Ends the ticket when the front says so next; returns its status.
    pub(super) fn expect_done(&mut self) -> u8 {
        assert_eq!(self.next(), ToRenewer::Done);
        self.end_ticket();
        self.status()
    }

    /// Tells the front that the ticket is released; then the renewer ends.
    fn end_ticket(&mut self) {
        self.tell(&ToFront::Ended(End::Released));
        self.renewer = None;
    }

    /// Ends the ticket when the front says so, after a loss; returns its status. A command that
    /// has not ended within `KILL_AFTER`, as on a busy host, is killed with the renewer, and then
    /// there is nobody left to tell.
    pub(super) fn status_after_loss(&mut self) -> u8 {
        loop {
            let queued = self.heard.borrow_mut().pop_front();
            match queued.or_else(|| self.receive_unless_gone()) {
                Some(Heard::Front(ToRenewer::Done)) => {
                    self.end_ticket();
                    break;
                }
                Some(Heard::Front(_) | Heard::Command(_) | Heard::PassedOn) => {}
                None => break,
            }
        }
        self.status()
    }

    pub(super) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.process, signal).expect("it is there");
    }

    /// Returns how the process ends.
    pub(super) fn ending(&mut self) -> WaitStatus {
        let ended = || rustix::process::waitpid(Some(self.process), WaitOptions::NOHANG);
        let (_, status) = sys::until("its end", || ended().expect("a child"));
        status
    }

    pub(super) fn status(&mut self) -> u8 {
        let status = self.ending().exit_status();
        status.and_then(|status| u8::try_from(status).ok()).expect("a status")
    }

    /// Returns the text on stderr until now.
    pub(super) fn stderr(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.stderr.read_to_end(&mut bytes);
        self.read.push_str(&String::from_utf8_lossy(&bytes));
        self.read.clone()
    }

    pub(super) fn wait_for_stderr(&mut self, text: &str) {
        sys::until(text, || self.stderr().contains(text).then_some(()));
    }
}

/// Runs a front; returns the status that the program would have.
pub(super) fn front(line: Line, command: &[&str]) -> u8 {
    front_of(line, &request(command))
}

/// Runs a front for a request; returns the status that the program would have.
pub(super) fn front_of((test, validity): Line, request: &Request) -> u8 {
    let destination = Destination::Pipe;
    let signals = Signals::open().expect("a descriptor");
    let mut account = Account::new(request.clone(), destination, sys::now());
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (socket, fronts) = pair.expect("a socket");
    let mut children = Children::adopt().expect("it can be");
    children.note_older();
    let Some(process) = raw::fork().expect("a process") else {
        drop((socket, children));
        rustix::process::setpgid(None, None).expect("a group");
        renewer(&test, fronts, request);
        raw::end_copy(0);
    };
    drop((test, fronts));
    let renewer = Some(Renewer { process, socket });
    let front = Front::new(&mut account, signals, children, renewer);
    match front.and_then(|front| front.run(validity)) {
        Ok(ending) => conclude(ending),
        Err(refusal) => destination.refuse(&refusal) as u8,
    }
}

/// Plays the renewer, until the test or the front is gone.
fn renewer(test: &OwnedFd, front: OwnedFd, request: &Request) {
    let mut children = Children::adopt().expect("it can be");
    children.note_older();
    let alarm = Alarm::new().expect("a timer");
    let of_children = raw::take_signals(&[libc::SIGCHLD]).expect("a descriptor");
    let tell = |event: Event| {
        let packets = (FromRenewer::Command(event), Heard::Command(event));
        let _ = send(front.as_fd(), &serde_json::to_vec(&packets.0).expect("JSON"), None);
        let _ = send(test.as_fd(), &serde_json::to_vec(&packets.1).expect("JSON"), None);
    };
    let next = |socket: BorrowedFd<'_>| next_packet(socket).map(|(packet, _)| packet);
    let (mut grant, mut group) = (None, None);
    loop {
        while sys::next_signal(&of_children).is_some() {}
        if let Some(group) = group {
            events(&children.reap(), group).into_iter().for_each(tell);
            children.are_none.then(|| tell(Event::NothingLeft));
        }
        while let Some(packet) = next(test.as_fd()) {
            if packet.is_empty() {
                return;
            }
            let message: ToFront = serde_json::from_slice(&packet).expect("a message");
            if let ToFront::Granted { term, epoch, slot, .. } = &message {
                grant = Some(Grant { term: *term, epoch: epoch.clone(), slot: *slot });
            }
            let packet = serde_json::to_vec(&FromRenewer::Ticket(message)).expect("JSON");
            let _ = send(front.as_fd(), &packet, None);
            let passed_on = serde_json::to_vec(&Heard::PassedOn).expect("JSON");
            let _ = send(test.as_fd(), &passed_on, None);
        }
        while let Some(packet) = next(front.as_fd()) {
            if packet.is_empty() {
                return;
            }
            let message: ToRenewer = serde_json::from_slice(&packet).expect("a message");
            let heard = serde_json::to_vec(&Heard::Front(message.clone())).expect("JSON");
            let _ = send(test.as_fd(), &heard, None);
            match message {
                ToRenewer::Run(of_terminal) => {
                    let grant = grant.as_ref().expect("a grant");
                    let is_given = of_terminal == OfTerminal::All;
                    let terminal = is_given.then(Terminal::open).flatten();
                    let terminal = terminal.as_ref().map(|it| it.file.as_fd());
                    let variables = held::variables(request, grant);
                    let spawned = spawn(&request.command, &variables, None, terminal);
                    group = spawned.as_ref().ok().copied();
                    tell(match spawned {
                        Ok(group) => Event::Started(group.as_raw_pid()),
                        Err(error) => Event::NotStarted(error.raw_os_error()),
                    });
                }
                ToRenewer::Terminate => children.terminate(),
                ToRenewer::Ended | ToRenewer::Done => {}
            }
        }
        let all = [test.as_fd(), front.as_fd(), of_children.as_fd()];
        let _ = alarm.wait(all.map(|fd| (fd, PollFlags::IN)), None);
    }
}

/// Closes the descriptors of other tests, which would wait for the end of this process.
fn close_all_but(kept: &[i32]) {
    let open = fs::read_dir("/proc/self/fd").expect("descriptors");
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2 && !kept.contains(number))
        .collect();
    for number in numbers {
        drop(raw::inherited(number));
    }
}

pub(super) fn wait_for(descriptor: BorrowedFd<'_>, what: &str) {
    let alarm = Alarm::new().expect("a timer");
    let until = Some(sys::now().after(PATIENCE));
    let ready = alarm.wait([(descriptor, PollFlags::IN)], until).expect("it waits");
    assert_eq!(ready, [true], "in vain for {what}");
}

/// Returns the state of a process, as /proc names it.
pub(super) fn state_of(process: Pid) -> String {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it is there");
    let state = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').next());
    state.expect("a state").to_owned()
}

/// Returns whether a process has yet to take this signal.
pub(super) fn is_pending(process: Pid, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = u64::from_str_radix(pending.expect("a set").trim(), 16).expect("a set");
    pending & (1 << (signal - 1)) != 0
}

/// Waits until this is so.
pub(super) fn wait_until_so(what: &str, is_so: impl Fn() -> bool) {
    sys::until(what, || is_so().then_some(()));
}

pub(super) fn wait_until(until: Instant) {
    Alarm::new().and_then(|alarm| alarm.wait([], Some(until))).expect("it waits");
}
