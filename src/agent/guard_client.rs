//! The guard client thread: connects to the guard that lives, or starts one, says to it what
//! the pump wants said, and passes its reports on. When to do what, the pump decides.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use super::inbox::{Inbox, InboxSender, inbox};
use crate::command::{describe, remove_agents_own};
use crate::core::{
    Event, GuardEvent, GuardReport, Level, LockContext, ServiceState, Stake, StopOrder, ToGuard,
};
use crate::guard::protocol::{GuardPacket, Settings, VERSION, encode};
use crate::guard::{HeldDir, receive, send};
use crate::log::panic_if_asked;
use crate::sys::{self, Alarm, PollFlags};

/// Messages that may wait: the pump sends a few a stroke.
const ORDERS_MAX: usize = 64;

/// Lines of the guard's log that may wait to be shown.
const LINES_MAX: usize = 16;

/// How long to wait until the kernel may have memory for a message.
const SEND_PAUSE: Duration = Duration::from_millis(10);

/// How long a guard may take to end that has closed its socket, or whose agent ends.
const END_WITHIN: Duration = Duration::from_millis(500);

/// What the pump wants of this thread.
pub(super) enum Order {
    /// Connects to a guard or starts one, and sends it these messages first.
    Connect(u64, Vec<ToGuard>),
    /// Sends a message.
    Tell(ToGuard),
    /// Kills the guard.
    Kill,
    /// The agent ends.
    End(InboxSender<()>),
}

/// The pump's end of the thread.
pub(super) struct GuardHandle {
    orders: InboxSender<Order>,
    /// Number of the guard that was asked for last.
    number: u64,
    kill_file: Arc<Mutex<Option<File>>>,
    /// The lines that the guard has logged.
    pub(super) lines: Receiver<(Level, String)>,
}

impl GuardHandle {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread to give.
    pub(super) fn start(
        dir: HeldDir,
        settings: Settings,
        events: InboxSender<Event>,
    ) -> io::Result<GuardHandle> {
        let (own, orders) = inbox(ORDERS_MAX)?;
        let (lines_said, lines) = bounded(LINES_MAX);
        let kill_file = Arc::new(Mutex::new(None));
        let mut thread = GuardThread {
            dir,
            settings,
            orders,
            alarm: Alarm::new()?,
            events,
            kill_file: Arc::clone(&kill_file),
            lines: lines_said,
            link: None,
            output: None,
            dead: Vec::new(),
        };
        let work = move || while thread.turn().is_some() {};
        thread::Builder::new().name("putex-guard".to_owned()).spawn(work)?;
        Ok(GuardHandle { orders: own, number: 0, kill_file, lines })
    }

    /// Gives an order without waiting. What could not even be said to the guard is the loss of
    /// that guard, which is returned.
    pub(super) fn order(&mut self, order: Order) -> Option<Event> {
        if let Order::Connect(number, _) = &order {
            self.number = *number;
        }
        self.orders.offer(order)?;
        let why = "the guard client thread does not keep up".to_owned();
        Some(Event::Guard(self.number, GuardEvent::Lost(why)))
    }

    /// Kills all processes in the control group of start. Needs no other thread.
    pub(super) fn kill_cgroup(&self) {
        let mut file = self.kill_file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = file.as_mut() {
            // A control group that is gone holds nothing.
            let _ = file.write_all(b"1");
        }
    }

    /// Waits until the guard, whose service is down, has put the watchdog device away and
    /// ended.
    pub(super) fn end(&mut self) {
        if let Ok((done, ended)) = inbox(1)
            && self.order(Order::End(done)).is_none()
        {
            // A guard that takes longer is left to itself.
            ended.next_or([], Some(sys::now().after(END_WITHIN)));
        }
    }
}

/// A guard that lives.
struct Link {
    number: u64,
    socket: OwnedFd,
    process: OwnedFd,
    /// The guard is of another version and was told to stop the service.
    outdated: bool,
    /// The messages to a guard that was connected to and has not answered yet.
    unanswered: Option<Vec<ToGuard>>,
}

struct GuardThread {
    dir: HeldDir,
    settings: Settings,
    orders: Inbox<Order>,
    alarm: Alarm,
    events: InboxSender<Event>,
    kill_file: Arc<Mutex<Option<File>>>,
    lines: Sender<(Level, String)>,
    link: Option<Link>,
    /// The reading end of start's output, for the next guard.
    output: Option<OwnedFd>,
    /// Guards that were killed and are to be reaped.
    dead: Vec<OwnedFd>,
}

impl GuardThread {
    /// Waits, then handles all reports and orders; `None` when the agent has ended.
    fn turn(&mut self) -> Option<()> {
        let socket = self.link.as_ref().map(|link| link.socket.as_fd());
        // A kernel that refuses to wait leaves only to look again.
        let _ = self.orders.wait(socket, None);
        panic_if_asked("putex-guard");
        self.receive_reports()?;
        while let Some(order) = self.orders.try_next() {
            self.carry_out(order)?;
        }
        self.dead.retain(|process| matches!(reap(process), Ok(None)));
        Some(())
    }

    /// Carries out one order; `None` when the agent has ended.
    fn carry_out(&mut self, order: Order) -> Option<()> {
        match order {
            Order::Connect(number, messages) => self.connect(number, &messages),
            Order::Tell(message) => self.tell(&message),
            Order::Kill => {
                if let Some(link) = self.link.take() {
                    // It fails when the guard has ended already.
                    let _ = rustix::process::pidfd_send_signal(&link.process, Signal::KILL);
                    self.dead.push(link.process);
                }
                Some(())
            }
            Order::End(done) => {
                if let Some(link) = self.link.take() {
                    drop(link.socket);
                    self.wait_for_end(&link.process);
                }
                done.tell(());
                None
            }
        }
    }

    fn connect(&mut self, number: u64, messages: &[ToGuard]) -> Option<()> {
        self.dead.extend(self.link.take().map(|link| link.process));
        if let Some((socket, process)) = self.dir.connect() {
            log::info!("connected to a guard that runs: its lines are in the log it began with");
            let unanswered = Some(Vec::new());
            self.link = Some(Link { number, socket, process, outdated: false, unanswered });
            return messages.iter().try_for_each(|message| self.tell(message));
        }
        match self.start(number, messages) {
            Ok(link) => self.link = Some(link),
            Err(error) => return self.lost(number, format!("it cannot be started: {error}")),
        }
        Some(())
    }

    /// Starts a guard. The messages are in its socket before it runs, so it knows them whatever
    /// becomes of this agent.
    fn start(&self, number: u64, messages: &[ToGuard]) -> io::Result<Link> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (own, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let mut output = self.output.as_ref().map(AsFd::as_fd);
        for message in messages {
            send(own.as_fd(), &encode(message, &self.settings, sys::now()), output.take())?;
        }
        // This very program, also when its file has been replaced.
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0("putex").arg("guard").arg(&self.settings.commands.key);
        remove_agents_own(&mut command);
        command.stdin(theirs).stdout(self.dir.guard_lock.try_clone()?);
        let mut child = command.spawn()?;
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.inspect_err(|_| {
            // Without it, its end would be waited for in vain.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Link { number, socket: own, process, outdated: false, unanswered: None })
    }

    /// Sends the guard a message. A guard that takes no message counts as gone.
    fn tell(&mut self, message: &ToGuard) -> Option<()> {
        let Some(link) = &mut self.link else { return Some(()) };
        link.unanswered.iter_mut().for_each(|messages| messages.push(message.clone()));
        let packet = encode(message, &self.settings, sys::now());
        let until = sys::now().after(self.settings.timing.guard_answer_time());
        loop {
            match send(link.socket.as_fd(), &packet, None) {
                // Messages are counted: none may be left out.
                Err(Errno::NOBUFS | Errno::NOMEM) if sys::now() < until => {
                    // A wait that fails is a short wait.
                    let _ = self.alarm.wait([], Some(sys::now().after(SEND_PAUSE)));
                }
                // The end of the guard is noticed where the socket is read from.
                Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => return Some(()),
                Err(error) => {
                    let number = link.number;
                    self.carry_out(Order::Kill)?;
                    return self.lost(number, format!("it takes nothing in: {error}"));
                }
            }
        }
    }

    /// Passes on all that the guard has reported, and its end.
    fn receive_reports(&mut self) -> Option<()> {
        while let Some(link) = &mut self.link {
            let number = link.number;
            let received = receive(link.socket.as_fd(), RecvFlags::DONTWAIT);
            match received {
                Ok((packet, file)) if !packet.is_empty() => {
                    link.unanswered = None;
                    match serde_json::from_slice(&packet) {
                        Ok(GuardPacket::Report(VERSION, report)) => {
                            self.events.tell(Event::Guard(number, GuardEvent::Report(report)))?;
                        }
                        Ok(GuardPacket::Report(_, report)) => {
                            self.replace_outdated(number, report)?;
                        }
                        Ok(GuardPacket::Line(level, text)) => {
                            // The guard has logged it; here it is only shown.
                            let _ = self.lines.try_send((level, text));
                        }
                        Ok(GuardPacket::KillFile) => {
                            let known = self.kill_file.lock();
                            let mut known = known.unwrap_or_else(PoisonError::into_inner);
                            *known = file.map(File::from).or(known.take());
                        }
                        Ok(GuardPacket::Output) => self.output = file.or(self.output.take()),
                        // It is of another version.
                        Err(_) => {}
                    }
                }
                Err(Errno::AGAIN) => return Some(()),
                Err(Errno::CONNRESET) => {}
                Ok(_) | Err(_) => self.ended(number)?,
            }
        }
        Some(())
    }

    /// A guard of another version is told to stop the service, and killed when that is down.
    /// Meanwhile the pump is told that the service is being stopped.
    fn replace_outdated(&mut self, number: u64, mut report: GuardReport) -> Option<()> {
        let link = self.link.as_mut()?;
        if !std::mem::replace(&mut link.outdated, true) {
            log::warn!("the guard is of another version of putex: it stops the service first");
            let dead_by = match &report.service {
                ServiceState::Up(grant, _) => grant.dead_by,
                ServiceState::Unknown | ServiceState::Down | ServiceState::Stopping { .. } => {
                    sys::now().after(self.settings.timing.stop_budget())
                }
            };
            let context = LockContext::default();
            self.tell(&ToGuard::Stop(StopOrder { dead_by, stake: Stake::Lock, context }))?;
        } else if report.service == ServiceState::Down {
            self.carry_out(Order::Kill)?;
            let why = "it was of another version; the service is down".to_owned();
            return self.lost(number, why);
        } else {
            // This thread's own message is none of the pump's.
            report.heard = report.heard.saturating_sub(1);
        }
        report.service = ServiceState::Stopping { overdue: false };
        report.start_failure = None;
        self.events.tell(Event::Guard(number, GuardEvent::Report(report)))
    }

    /// The guard has closed its end of the socket.
    fn ended(&mut self, number: u64) -> Option<()> {
        let mut why = "it has ended".to_owned();
        if let Some(link) = self.link.take() {
            // It has closed the socket before the kernel tells of its end.
            self.wait_for_end(&link.process);
            // As a rule the previous instance needed it no more.
            if let Some(messages) = link.unanswered.filter(|_| sys::is_ready(&link.process)) {
                self.dead.push(link.process);
                log::info!("the guard that was connected to has ended: another one is started");
                return self.connect(number, &messages);
            }
            match reap(&link.process) {
                Ok(Some(status)) => {
                    let how = describe(status.exit_status(), status.terminating_signal());
                    why = format!("{why}: {how}");
                }
                Err(_) if sys::is_ready(&link.process) => {}
                Ok(None) | Err(_) => why = "it has closed the connection".to_owned(),
            }
            self.dead.push(link.process);
        }
        self.lost(number, why)
    }

    fn wait_for_end(&self, process: &OwnedFd) {
        // A wait that fails is a short wait.
        let until = Some(sys::now().after(END_WITHIN));
        let _ = self.alarm.wait([(process.as_fd(), PollFlags::IN)], until);
    }

    fn lost(&self, number: u64, why: String) -> Option<()> {
        self.events.tell(Event::Guard(number, GuardEvent::Lost(why)))
    }
}

/// Reaps a guard that has ended and returns how; `None` while it runs. An error says that it is
/// no child of this process: a guard may have been started by the previous instance, which was
/// this process too where the program was executed anew.
fn reap(process: &OwnedFd) -> Result<Option<WaitIdStatus>, Errno> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    rustix::process::waitid(WaitId::PidFd(process.as_fd()), how)
}
