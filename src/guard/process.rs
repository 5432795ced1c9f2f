//! The guard's main loop: one thread, which never blocks but in poll(2).

use std::fs::{self, File};
use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

use super::cgroup::{PREFIX, ServiceCgroup};
use super::cgroups::Cgroups;
use super::device::WatchdogDevice;
use super::instance_dir::GUARD_LOCK;
use super::note::{Fact, Note, NoteThread, Service};
use super::output_rest::OutputRest;
use super::protocol::{AgentPacket, GuardPacket, Settings, VERSION, decode};
use super::service_command::ServiceCommand;
use super::socket::{next_packet, send_json};
use crate::command::{Commands, OutputPipe};
use crate::core::service_report::ServiceReport;
use crate::core::{
    Command, Guard, GuardAction, GuardInput, GuardReport, Instant, Ms, Outcome, Role, Run, SLACK,
    Timing, ToGuard,
};
use crate::log::{LogQueue, command_output};
use crate::sys::{self, Alarm, Waker};

/// How long the guard pauses when it has no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The pause after the kernel had no memory for a report.
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// How ready the kernel is to kill this process when memory runs out.
pub(super) const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// The guard with its resources: commands, control groups, notes, device, sockets and log.
pub(super) struct GuardProcess {
    pub(super) guard: Guard,
    commands: Commands,
    /// Start, stop, last resort.
    runners: [ServiceCommand; 3],
    output_rest: OutputRest,
    /// The waker, which wakes the guard when a command was spawned, and when a start that does not
    /// succeed has ended.
    waker: Arc<Waker>,
    cgroups: Cgroups,
    /// The control group is to be emptied, and the end of its processes is awaited.
    emptying: bool,
    notes: NoteThread,
    /// The note says that the service may be up.
    noted_up: bool,
    noted_times: Option<Timing>,
    device: WatchdogDevice,
    /// The socket where later agents connect.
    pub(super) listener: Option<OwnedFd>,
    /// The agent, while it is there.
    pub(super) agent: Option<OwnedFd>,
    /// The last report, if the agent was not sent it yet.
    unsent: Option<GuardReport>,
    alarm: Alarm,
    /// [`GuardProcess::turn`] returns at this instant at the latest.
    pub(super) give_up_at: Option<Instant>,
    pub(super) done: bool,
    /// Dropped last, after the lock: it may wait for its reader.
    _log: LogQueue,
}

impl GuardProcess {
    /// Kills the commands that the previous guard was running, and makes a control group for start,
    /// where that is permitted: one for all guards of this agent, so that a guard which has to end
    /// the service finds the processes that each of them has left. The lock proves that the
    /// previous guard is dead.
    ///
    /// `output` is the reading end of start's output that the previous guard had. Unless the
    /// service `may_be_down`, it counts as up whatever the previous guard has noted. The process
    /// has neither agent nor listener.
    ///
    /// # Errors
    ///
    /// When the system lacks a resource.
    pub(super) fn new(
        dir: &Path,
        lock: File,
        settings: &Settings,
        log: LogQueue,
        output: Option<OwnedFd>,
        may_be_down: bool,
    ) -> io::Result<GuardProcess> {
        let priority = sys::come_first();
        let named = |error| sys::named(dir.join(GUARD_LOCK).display())(error);
        let (mut note, previous) = Note::begin(lock).map_err(named)?;
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let own = ServiceCgroup::make(&format!("{PREFIX}{name}"));
        // `putex finish` runs no start.
        if let Err(why) = &own
            && may_be_down
        {
            log::info!("no control group: {why}");
        }
        let cgroups = Cgroups::new(own.ok(), &previous.cgroups);
        // Without the note, the next guard still finds its own, below the same parent.
        if let Err(why) = note.cgroups(cgroups.dirs()).map_err(named) {
            log::warn!("the control groups are not noted: {why}");
        }
        if previous.service.was_started() {
            // An operator who looks for the end of the service finds no other line about it.
            log_report(&ServiceReport::GuardBeforeDead);
        }
        let waker = Arc::new(Waker::new()?);
        let notes = NoteThread::start(note)?;
        // The guard gets another score later, its commands do not.
        let oom_score = fs::read_to_string(OOM_SCORE).unwrap_or_default();
        let runner = |command, output| {
            let output = OutputPipe::new(command, output)?;
            let waker = Arc::clone(&waker);
            ServiceCommand::start(output, notes.clone(), waker, oom_score.clone(), priority)
        };
        let start = runner(Command::Start, output)?;
        let session = previous.kill_commands();
        session.into_iter().for_each(|session| start.runner.end_session(session));
        let may_be_up = previous.service != Service::Down;
        let (down, start_alive) = (may_be_down && !may_be_up, session.is_some());
        let guard = Guard::new(settings.config(), down, start_alive, previous.times(), sys::now());
        Ok(GuardProcess {
            guard,
            commands: settings.commands.clone(),
            runners: [start, runner(Command::Stop, None)?, runner(Command::LastResort, None)?],
            output_rest: OutputRest::default(),
            waker,
            cgroups,
            emptying: false,
            notes,
            noted_up: may_be_up,
            noted_times: previous.times(),
            device: WatchdogDevice::new(settings.device.clone(), settings.timing),
            listener: None,
            agent: None,
            unsent: None,
            alarm: Alarm::new()?,
            give_up_at: None,
            done: false,
            _log: log,
        })
    }

    /// Waits for an event, takes all events in, and does what is due.
    pub(super) fn turn(&mut self) {
        self.send_report();
        let deadline = self.guard.deadline();
        let send_at = self.unsent.is_some().then(|| sys::now().after(SEND_PAUSE));
        let until = [deadline, self.give_up_at, send_at, self.output_rest.until];
        let until = until.into_iter().flatten().min();
        // If the kernel refuses to wait, the guard looks at everything at once.
        let _ = self.wait(until);
        self.handle_command_events();
        self.receive_messages();
        self.accept();
        let now = sys::now();
        if let Some(at) = deadline
            && now >= at
        {
            let late = now.since(at);
            if late > SLACK {
                log::warn!("the guard woke {} late", Ms(late));
            }
            // The events until this instant are handled before it counts.
            self.handle_command_events();
            self.receive_messages();
        }
        self.handle_at(GuardInput::Tick, now);
    }

    /// Waits until something has happened or the deadline has come.
    fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        let sockets = self.agent.iter().chain(&self.listener).map(AsFd::as_fd);
        let reads_output = self.output_rest.until.is_none();
        let commands = self.runners.iter().flat_map(|it| it.events(reads_output)).flatten();
        let readable = iter::once(self.waker.as_fd()).chain(sockets).chain(commands);
        let readable = readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let events = self.cgroups.events().filter(|_| self.emptying);
        let changed = events.map(|events| PollFd::new(events, PollFlags::PRI));
        self.alarm.poll(&mut readable.chain(changed).collect(), deadline)
    }

    /// Takes in which commands were spawned, have written or ended, and whether the control
    /// group is empty.
    fn handle_command_events(&mut self) {
        self.waker.clear();
        for at in 0..self.runners.len() {
            if let Some(input) = self.runners[at].take_spawned() {
                self.handle(input);
            }
        }
        self.pass_output_on();
        for at in 0..self.runners.len() {
            if let Some(ended) = self.runners[at].take_ended() {
                if ended == GuardInput::Ended(Command::Start, Outcome::Succeeded) {
                    self.cgroups.start_succeeded();
                }
                self.handle(ended);
            }
        }
        self.check_cgroup_empty();
    }

    /// Passes on the output of the commands, but not all of it at once.
    fn pass_output_on(&mut self) {
        let began = sys::now();
        if self.output_rest.is_over(began) {
            let pass_on = |it: &mut ServiceCommand| it.output.pass_on(&mut command_output);
            let was_some =
                self.runners.iter_mut().map(pass_on).fold(false, |some, more| some | more);
            self.output_rest.begin(was_some, began, sys::now());
        }
    }

    fn check_cgroup_empty(&mut self) {
        if self.emptying && self.cgroups.are_empty() {
            self.emptying = false;
            // Only the control group of this guard is used again.
            self.cgroups.forget_others();
            self.handle(GuardInput::CgroupEmptied);
        }
    }

    /// Handles all messages of the agent, and its end.
    fn receive_messages(&mut self) {
        while let Some(agent) = &self.agent
            && let Some((packet, _)) = next_packet(agent.as_fd())
        {
            match decode(&packet) {
                Some(AgentPacket::Message(message)) => {
                    self.handle(GuardInput::Received(message));
                }
                // The message was sent before now: if its clock is ahead, that is another clock.
                Some(AgentPacket::Hello(settings)) if settings.clock > sys::now() => {
                    log::error!(
                        "the agent is in another time namespace: its clock is not that of this \
                         guard"
                    );
                    self.disconnected();
                }
                Some(AgentPacket::Hello(settings)) => self.configure(*settings),
                // The agent says Stop next, and waits.
                Some(AgentPacket::OtherVersion) => {
                    let hello = ToGuard::Hello(self.guard.config());
                    self.handle(GuardInput::Received(hello));
                }
                // The agent is gone, or cannot be understood, which is the same.
                None => self.disconnected(),
            }
        }
    }

    fn disconnected(&mut self) {
        self.agent = None;
        self.unsent = None;
        self.handle(GuardInput::Disconnected);
    }

    /// Another instance of the agent may have been set up in another way.
    pub(super) fn configure(&mut self, settings: Settings) {
        self.device.configure(&settings.device, settings.timing);
        self.handle(GuardInput::Received(ToGuard::Hello(settings.config())));
        self.commands = settings.commands;
        // With this file the agent can kill the service when there is no guard.
        if let Some(cgroup) = self.cgroups.own() {
            let _ = self.send(&GuardPacket::KillFile, Some(cgroup.kill_file.as_fd()));
        }
        let _ = self.send(&GuardPacket::Output, Some(self.runners[0].output.as_fd()));
    }

    /// Takes the connection of the next agent.
    fn accept(&mut self) {
        // Without a descriptor left, the kernel refuses before it looks for a connection.
        let Some(listener) = self.listener.as_ref().filter(|it| sys::is_ready(it)) else { return };
        let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) else {
            // Without a descriptor or memory the connection stays in the queue, and poll(2) returns
            // at once: a pause keeps the guard from spinning. A wait that fails is a short one.
            let _ = self.alarm.wait([], Some(sys::now().after(ACCEPT_PAUSE)));
            return;
        };
        let own = rustix::process::geteuid();
        if sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == own) {
            // The end of the previous agent may be there to be read beside this connection.
            self.receive_messages();
            // The previous agent is dead: the next one has its lock. A health check that is being
            // spawned may still have its socket.
            if self.agent.is_some() {
                self.disconnected();
            }
            self.agent = Some(socket);
        }
    }

    fn handle(&mut self, input: GuardInput) {
        self.handle_at(input, sys::now());
    }

    fn handle_at(&mut self, input: GuardInput, now: Instant) {
        for action in self.guard.handle(input, now) {
            if let Some(answer) = self.perform(action) {
                self.handle(answer);
            }
        }
    }

    /// Performs an action; returns its answer, if there is one at once.
    fn perform(&mut self, action: GuardAction) -> Option<GuardInput> {
        match action {
            GuardAction::Run(command, until) => self.run(command, until),
            GuardAction::Release(command) => self.runner(command).runner.release(),
            GuardAction::Kill(command) => self.runner(command).runner.kill(),
            GuardAction::KillCgroup => self.cgroups.kill(),
            GuardAction::EmptyCgroup => self.empty_cgroup(),
            GuardAction::Log(report) => log_report(&report),
            GuardAction::Report(report) => self.report(report),
            GuardAction::TryDevice => return self.device.try_out(),
            GuardAction::OpenDevice => return self.device.open(),
            GuardAction::KickDevice => self.device.kick(),
            GuardAction::CloseDevice => return self.device.close(),
            GuardAction::Exit => {
                self.done = true;
                if self.guard.is_down() {
                    // Without the note the next guard runs stop, which does no harm. Nothing
                    // has a deadline any more, so that this thread may write.
                    let _ = self.notes.write(Fact::Down);
                }
                self.cgroups.remove();
            }
        }
        None
    }

    fn empty_cgroup(&mut self) {
        if !self.cgroups.are_empty() {
            log::warn!("stop has left processes of the service behind: they are killed");
            self.cgroups.kill();
        }
        self.emptying = true;
        self.check_cgroup_empty();
    }

    fn runner(&mut self, command: Command) -> &mut ServiceCommand {
        // The agent runs the health check and on-change.
        &mut self.runners[match command {
            Command::Check | Command::OnChange | Command::Start => 0,
            Command::Stop => 1,
            Command::LastResort => 2,
        }]
    }

    fn run(&mut self, command: Command, until: Instant) {
        let is_start = command == Command::Start;
        let role = if is_start { Role::Active } else { Role::Standby };
        let context = self.guard.context();
        let run = Run { command, role, deadline: until, starting: false, context };
        if !is_start {
            self.cgroups.forget_start();
        }
        let entry = if is_start { self.cgroups.entry() } else { None };
        let prepared = self.commands.prepare(&run, entry, sys::now());
        self.noted_up |= is_start;
        if !self.runner(command).runner.spawn(Box::new(prepared)) {
            let why = "its previous run has not been spawned yet".to_owned();
            self.handle(GuardInput::Ended(command, Outcome::Failed(why)));
        }
    }

    /// Only the last report counts: the agent is sent one in a turn at most.
    fn report(&mut self, report: GuardReport) {
        if self.guard.is_down() && std::mem::take(&mut self.noted_up) {
            self.notes.order(Fact::Down);
        }
        if let Some(times) = self.guard.times()
            && self.noted_times != Some(times)
            && self.notes.order(Fact::Times(times))
        {
            self.noted_times = Some(times);
        }
        self.unsent = Some(report);
    }

    /// Sends the report. A report for which the kernel has no memory or no room stays for the next
    /// turn: an agent that misses a report kills this guard.
    fn send_report(&mut self) {
        let Some(report) = &self.unsent else { return };
        let sent = self.send(&GuardPacket::Report(VERSION, report.clone()), None);
        if !matches!(sent, Err(Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN)) {
            self.unsent = None;
        }
    }

    /// Sends the agent a packet, if there is an agent. An agent that is gone is noticed where its
    /// messages are read.
    fn send(&self, packet: &GuardPacket, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let Some(agent) = &self.agent else { return Ok(()) };
        send_json(agent.as_fd(), packet, descriptor)
    }
}

fn log_report(report: &ServiceReport) {
    log::log!(report.level(), "{report}");
}
