//! The guard's main loop: one thread, which never blocks but in poll(2).

use std::fs::{self};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, sockopt};

use super::cgroup_entry::CgroupEntry;
use super::device::WatchdogDevice;
use super::parts::Parts;
use super::protocol::{AgentPacket, GuardPacket, Settings, VERSION, decode};
use super::runner::Runner;
use super::socket::{receive, send};
use crate::command::Commands;
use crate::core::command::{Command, Outcome, Role, Run};
use crate::core::guard::{Guard, GuardAction, GuardInput};
use crate::core::level::Level;
use crate::core::protocol::{GuardReport, ToGuard};
use crate::core::service::ServiceAction;
use crate::core::time::{Instant, Ms};
use crate::core::timing::SLACK;
use crate::log::{Destination, command_output, count_left_out, say};
use crate::sys::{self, Alarm, raw};

/// How long the guard pauses when it has no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The highest priority of those that are not real-time.
const NICE_MIN: i32 = -20;

/// How ready the kernel is to kill this process when memory runs out.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// What became ready.
#[derive(Default)]
struct Ready {
    spawned: bool,
    agent: bool,
    listener: bool,
    output: [bool; 3],
    exit: [bool; 3],
    predecessor_start: bool,
}

impl Ready {
    /// For a guard that cannot wait. Whether a start of the guard before has ended is not
    /// known then.
    fn all() -> Ready {
        Ready {
            spawned: true,
            agent: true,
            listener: true,
            output: [true; 3],
            exit: [true; 3],
            predecessor_start: false,
        }
    }
}

/// All that the guard has.
pub(super) struct GuardProcess {
    guard: Guard,
    commands: Arc<Commands>,
    cgroup_entry: CgroupEntry,
    /// The control group is to be emptied, which is told.
    emptying: bool,
    /// The note says that the service may be up.
    noted_up: bool,
    device: WatchdogDevice,
    stderr: Destination,
    listener: Option<OwnedFd>,
    /// The agent, while it is there.
    agent: Option<OwnedFd>,
    alarm: Alarm,
    /// How ready the kernel was to kill this process, which its commands still are.
    oom_score: String,
    buffer: Vec<u8>,
    /// A process without an agent gives up then.
    give_up_at: Option<Instant>,
    pub(super) over: bool,
    /// Dropped last, with the log: nobody waits for this process by a socket meanwhile.
    parts: Parts,
}

impl GuardProcess {
    /// Returns a guard process that has neither agent nor listener.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(super) fn new(guard: Guard, parts: Parts, settings: &Settings) -> io::Result<GuardProcess> {
        Ok(GuardProcess {
            guard,
            commands: Arc::new(settings.commands.clone()),
            cgroup_entry: CgroupEntry::default(),
            emptying: false,
            noted_up: !parts.down,
            device: WatchdogDevice::new(settings.device.clone(), settings.timing),
            stderr: Destination::of_stderr(None),
            listener: None,
            agent: None,
            alarm: Alarm::new()?,
            oom_score: fs::read_to_string(OOM_SCORE).unwrap_or_default(),
            buffer: Vec::new(),
            give_up_at: None,
            parts,
            over: false,
        })
    }

    /// Gives it the agent that started it, and the listener for later ones. `stderr` is where
    /// the log goes unless it is syslog; `buffer` has room for every packet.
    pub(super) fn serve(
        &mut self,
        stderr: Destination,
        listener: OwnedFd,
        agent: OwnedFd,
        buffer: Vec<u8>,
    ) {
        self.stderr = stderr;
        self.listener = Some(listener);
        self.agent = Some(agent);
        self.buffer = buffer;
    }

    /// Has [`GuardProcess::turn`] return at this instant at the latest.
    pub(super) fn give_up_at(&mut self, at: Instant) {
        self.give_up_at = Some(at);
    }

    /// Returns the core.
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Does what can be done beforehand. Best effort, each: not everybody may.
    pub(super) fn settle(&mut self, realtime: bool) {
        let _ = fs::write(OOM_SCORE, "-1000");
        let _ = rustix::mm::mlockall(sys::memory_lock());
        // On a busy host the guard comes first, and the stop that it runs.
        let _ = rustix::process::setpriority_process(None, NICE_MIN);
        let _ = fs::write("/proc/self/autogroup", NICE_MIN.to_string());
        if realtime {
            // The agent says why it is not permitted, if it is not.
            let _ = raw::set_realtime();
        }
    }

    /// Waits for something to happen, takes all of it in, and does what is due.
    pub(super) fn turn(&mut self) {
        let deadline = self.guard.deadline();
        let until = deadline.into_iter().chain(self.give_up_at).min();
        let ready = self.wait(until).unwrap_or_else(|error| {
            // Nothing but the deadlines is left then.
            let text = format!("the guard cannot wait: {error}");
            say(Level::Error, &text);
            Ready::all()
        });
        self.look_at_commands(&ready);
        if ready.agent {
            self.receive_words();
        }
        if ready.listener {
            self.accept();
        }
        let now = sys::now();
        if let Some(at) = deadline
            && now >= at
        {
            let late = now.since(at);
            if late > SLACK {
                let text = format!("the guard woke {} late", Ms(late));
                say(Level::Warn, &text);
            }
            // What was said until this instant is taken in before it counts.
            self.receive_words();
        }
        self.handle_at(GuardInput::Tick, now);
    }

    /// Waits until something is ready or the deadline has come.
    fn wait(&self, deadline: Option<Instant>) -> io::Result<Ready> {
        let mut ready = Ready::default();
        let mut fds = Vec::with_capacity(16);
        let mut flags: Vec<&mut bool> = Vec::with_capacity(16);
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        fds.push(readable(self.parts.waker.as_fd()));
        flags.push(&mut ready.spawned);
        if let Some(agent) = &self.agent {
            fds.push(readable(agent.as_fd()));
            flags.push(&mut ready.agent);
        }
        if let Some(listener) = &self.listener {
            fds.push(readable(listener.as_fd()));
            flags.push(&mut ready.listener);
        }
        let commands = ready.output.iter_mut().zip(&mut ready.exit);
        for (runner, (output, exit)) in self.parts.runners.iter().zip(commands) {
            fds.push(readable(runner.output()));
            flags.push(output);
            if let Some(ended) = runner.exit() {
                fds.push(readable(ended));
                flags.push(exit);
            }
        }
        if let Some(start) = &self.parts.predecessor_start {
            fds.push(readable(start.as_fd()));
            flags.push(&mut ready.predecessor_start);
        }
        if self.emptying {
            let changed = |cgroup| PollFd::from_borrowed_fd(cgroup, PollFlags::PRI);
            let cgroups = self.parts.cgroups.iter();
            fds.extend(cgroups.map(|cgroup| changed(cgroup.events())));
        }
        self.alarm.poll(&mut fds, deadline)?;
        for (fd, flag) in fds.iter().zip(flags) {
            *flag = !fd.revents().is_empty();
        }
        drop(fds);
        Ok(ready)
    }

    /// Takes in which commands were spawned, have written or ended, and whether the control
    /// group is empty.
    fn look_at_commands(&mut self, ready: &Ready) {
        if ready.spawned {
            self.parts.waker.clear();
            for at in 0..self.parts.runners.len() {
                let runner = &mut self.parts.runners[at];
                let command = runner.command();
                if let Some(spawned) = runner.take_spawned() {
                    self.handle(match spawned {
                        Ok(()) => GuardInput::Spawned(command),
                        Err(outcome) => GuardInput::Ended(command, outcome),
                    });
                }
            }
        }
        for at in 0..self.parts.runners.len() {
            let runner = &mut self.parts.runners[at];
            if ready.output[at] {
                runner.pass_on(&mut command_output);
            }
            if ready.exit[at]
                && let Some(outcome) = runner.reap(&mut command_output)
            {
                let command = runner.command();
                count_left_out();
                self.command_ended(command, outcome);
            }
        }
        if ready.predecessor_start {
            self.parts.predecessor_start = None;
            self.handle(GuardInput::Ended(Command::Start, Outcome::Overran));
        }
        if self.emptying {
            self.look_at_cgroup();
        }
    }

    fn command_ended(&mut self, command: Command, outcome: Outcome) {
        if (command, &outcome) == (Command::Start, &Outcome::Succeeded)
            && let Some(cgroup) = self.parts.cgroups.first()
        {
            self.cgroup_entry.start_succeeded(cgroup);
        }
        self.handle(GuardInput::Ended(command, outcome));
    }

    fn look_at_cgroup(&mut self) {
        let mut cgroups = self.parts.cgroups.iter();
        if cgroups.all(|cgroup| !cgroup.is_populated().unwrap_or(true)) {
            self.emptying = false;
            // Only this guard's own is used again.
            self.parts.cgroups.truncate(1);
            self.handle(GuardInput::CgroupEmptied);
        }
    }

    /// Takes in all that the agent has said, and its end.
    fn receive_words(&mut self) {
        while let Some(agent) = &self.agent {
            let packet = receive(agent.as_fd(), &mut self.buffer, RecvFlags::DONTWAIT);
            let word = match packet {
                Ok((count, _)) => decode(&self.buffer[..count]),
                Err(Errno::AGAIN) => return,
                // Told once, before what the agent said, when it ends with a report unread.
                Err(Errno::CONNRESET) => continue,
                Err(_) => None,
            };
            match word {
                Some(AgentPacket::Word(word)) => self.handle(GuardInput::Received(word)),
                Some(AgentPacket::Hello(settings)) => self.configure(&settings),
                // It says Stop next, and waits.
                Some(AgentPacket::OtherVersion) => {
                    let hello = ToGuard::Hello(self.guard.config());
                    self.handle(GuardInput::Received(hello));
                }
                // The agent is gone, or cannot be understood, which is the same.
                None => {
                    self.agent = None;
                    self.handle(GuardInput::Disconnected);
                }
            }
        }
    }

    /// Another instance of the agent may have been set up in another way.
    fn configure(&mut self, settings: &Settings) {
        let closed = self.device.configure(&settings.device, settings.timing);
        closed.into_iter().for_each(|closed| self.handle(closed));
        self.commands = Arc::new(settings.commands.clone());
        let destination = self.stderr.or_syslog(settings.syslog);
        self.parts.log.configure(&settings.commands.key, settings.level, destination);
        let hello = ToGuard::Hello(settings.config());
        self.handle(GuardInput::Received(hello));
        self.send_kill_file();
    }

    /// Gives the agent the means to kill the service where there is no guard that could.
    pub(super) fn send_kill_file(&mut self) {
        let (Some(agent), Some(cgroup)) = (&self.agent, self.parts.cgroups.first()) else {
            return;
        };
        if let Ok(file) = cgroup.kill_file() {
            let _ = send(agent.as_fd(), &GuardPacket::KillFile.encode(), Some(file.as_fd()));
        }
    }

    /// Takes a connection, unless an agent is there.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => {
                // No descriptor or memory: the caller goes on waiting, and so does this, lest
                // it spin. A wait that fails is a short one.
                let _ = self.alarm.wait([], Some(sys::now().after(ACCEPT_PAUSE)));
                return;
            }
        };
        let own = rustix::process::geteuid();
        let same_user = sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == own);
        // The end of the agent before may be there to be read beside this connection.
        self.receive_words();
        if same_user && self.agent.is_none() {
            self.agent = Some(socket);
        }
    }

    pub(super) fn handle(&mut self, input: GuardInput) {
        self.handle_at(input, sys::now());
    }

    fn handle_at(&mut self, input: GuardInput, now: Instant) {
        for action in self.guard.handle(input, now) {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: GuardAction) {
        match action {
            GuardAction::Service(action) => self.perform_on_service(action),
            GuardAction::Report(report) => self.report(&report),
            GuardAction::TryDevice => {
                let answer = self.device.try_out();
                answer.into_iter().for_each(|answer| self.handle(answer));
            }
            GuardAction::OpenDevice => {
                let answer = self.device.open();
                answer.into_iter().for_each(|answer| self.handle(answer));
            }
            GuardAction::KickDevice => self.device.kick(),
            GuardAction::CloseDevice => {
                let answer = self.device.close();
                answer.into_iter().for_each(|answer| self.handle(answer));
            }
            GuardAction::Leave => {
                self.over = true;
                if self.guard.is_down() {
                    // Without the note the next guard runs stop, which does no harm. Nothing
                    // has a deadline any more, so that this thread may write.
                    let _ = self.parts.note.service(false);
                }
                for cgroup in self.parts.cgroups.drain(..) {
                    cgroup.remove();
                }
            }
        }
    }

    fn perform_on_service(&mut self, action: ServiceAction) {
        match action {
            ServiceAction::Run(command, until) => self.run(command, until),
            ServiceAction::Release(command) => self.runner(command).release(),
            ServiceAction::Kill(command) => self.runner(command).kill(),
            ServiceAction::KillCgroup => self.kill_cgroup(),
            ServiceAction::EmptyCgroup => {
                let mut cgroups = self.parts.cgroups.iter();
                if cgroups.any(|cgroup| cgroup.is_populated().unwrap_or(true)) {
                    let text = "stop has left processes of the service behind: they are killed";
                    say(Level::Warn, text);
                    self.kill_cgroup();
                }
                self.emptying = true;
                self.look_at_cgroup();
            }
            ServiceAction::Report(report) => {
                let (level, text) = (report.level(), report.to_string());
                say(level, &text);
                if let Some(agent) = &self.agent {
                    // Best effort: it stands in the log.
                    let _ = send(agent.as_fd(), &GuardPacket::Line(level, text).encode(), None);
                }
            }
        }
    }

    fn runner(&mut self, command: Command) -> &mut Runner {
        &mut self.parts.runners[place(command)]
    }

    fn kill_cgroup(&self) {
        for cgroup in &self.parts.cgroups {
            // One that is gone holds nothing.
            let _ = cgroup.kill();
        }
    }

    fn run(&mut self, command: Command, until: Instant) {
        let (role, cgroup) = match command {
            Command::Start => (Role::Active, self.parts.cgroups.first()),
            Command::Check | Command::Stop | Command::LastResort => {
                self.cgroup_entry.stopped();
                (Role::Standby, None)
            }
        };
        let entered = cgroup.filter(|cgroup| self.cgroup_entry.enters(cgroup));
        let entry = entered.map(|cgroup| cgroup.entry().to_owned());
        let run = Run {
            command,
            role,
            deadline: until,
            starting: false,
            context: self.guard.context().clone(),
        };
        self.noted_up |= command == Command::Start;
        let runner = &mut self.parts.runners[place(command)];
        if !runner.run(&self.commands, run, entry, &self.oom_score) {
            let why = "the one before has not even been spawned".to_owned();
            self.handle(GuardInput::Ended(command, Outcome::Failed(why)));
        }
    }

    fn report(&mut self, report: &GuardReport) {
        if self.guard.is_down() && std::mem::take(&mut self.noted_up) {
            self.parts.runners[place(Command::Start)].note_down();
        }
        if let Some(agent) = &self.agent {
            // An agent that is gone is noticed where it is read from.
            let packet = GuardPacket::Report(VERSION, report.clone());
            let _ = send(agent.as_fd(), &packet.encode(), None);
        }
    }
}

/// Returns the place of a command's runner.
fn place(command: Command) -> usize {
    match command {
        Command::Check | Command::Start => 0,
        Command::Stop => 1,
        Command::LastResort => 2,
    }
}
