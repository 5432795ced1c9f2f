//! The guard: a second, small process that outlives the agent, so that the service
//! does not outlive its lock.
//!
//! It has a socket to the agent, the stop command and a clock that counts suspend;
//! no threads, no store. What it decides is [`crate::core::guard`]; this performs it.
//! It is in a session of its own, so that what ends the agent's process group or
//! terminal does not end it, and heeds no signal but SIGKILL, SIGSTOP and those of a fault.

mod device;
mod left;
mod line;
pub mod word;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::net::{RecvFlags, SocketFlags, sockopt};
use rustix::process::Signal;

use self::device::Device;
pub use self::device::look as look_at_device;
use self::left::Left;
use self::line::{Agent, Heard, listen};
pub use self::line::{call, is_there, receive, send};
use self::word::{Answer, PACKET_MAX, SetUp, Word};
use crate::command::{Commands, Stage};
use crate::core::command::{Command, LockContext, Outcome, Role, Run};
use crate::core::event::Level;
use crate::core::guard::{Act, Guard, News};
use crate::core::time::{Instant, Ms};
use crate::core::timing::SLACK;
use crate::exit::Exit;
use crate::log::{Destination, DirectLog};
use crate::sys::{self, Alarm, Want, raw, signals};

/// How long the guard waits when it could not let one in.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// The highest priority of those that are not real-time.
const FIRST: i32 = -20;

/// How ready the kernel is to kill this process when memory runs out.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Runs the guard of the agent at the other end of stdin, until the service is
/// known to be down and the agent has gone.
///
/// # Errors
///
/// When stdin does not lead to an agent, or the system has not what it needs.
pub fn run(stderr: Destination) -> Result<Exit, String> {
    let stdin = io::stdin();
    let no_descriptor = |error: io::Error| format!("no descriptor: {error}");
    let socket = rustix::io::fcntl_dupfd_cloexec(&stdin, 3);
    let socket = socket.map_err(|error| no_descriptor(error.into()))?;
    // The agent sees the guard's end when the last copy of the socket is closed.
    let nothing = File::open("/dev/null").map_err(no_descriptor)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| no_descriptor(error.into()))?;
    let mut buffer = vec![0; PACKET_MAX];
    let first = receive(socket.as_fd(), &mut buffer, RecvFlags::empty());
    let first = first.map(|(count, _)| Word::decode(&buffer[..count]));
    let Ok(Some(Word::SetUp(set_up))) = first else {
        return Err("guard: it is started by an agent, not by hand".to_owned());
    };
    let mut house =
        House::new(socket, *set_up, stderr, nothing, buffer).map_err(|error| error.to_string())?;
    house.settle();
    Ok(house.keep())
}

/// All that the guard has.
struct House {
    guard: Guard,
    commands: Commands,
    under: LockContext,
    set_up: SetUp,
    /// The agent, while it is there.
    agent: Option<Agent>,
    listener: OwnedFd,
    stages: [Stage; 2],
    killed: [bool; 2],
    left: Left,
    device: Option<Device>,
    /// What stderr is.
    stderr: Destination,
    log: DirectLog,
    alarm: Alarm,
    nothing: File,
    /// How ready the kernel was to kill this process, which its commands still are.
    oom_score: String,
    buffer: Vec<u8>,
    over: bool,
}

/// What became ready, in the order of looking.
struct Ready {
    agent: bool,
    caller: bool,
    output: [bool; 2],
    exit: [bool; 2],
    agents_stop: bool,
}

impl House {
    fn new(
        socket: OwnedFd,
        set_up: SetUp,
        stderr: Destination,
        nothing: File,
        buffer: Vec<u8>,
    ) -> io::Result<House> {
        signals::heed_none()?;
        // It fails where the agent made the guard the leader of a group already.
        let _ = rustix::process::setsid();
        let listener = listen(&set_up.name)?;
        let device_wanted = set_up.device.is_some();
        let destination = stderr.or_syslog(set_up.syslog);
        let log = DirectLog::new(destination, &set_up.key, set_up.level).with_writer_process();
        Ok(House {
            guard: Guard::new(set_up.timing, set_up.last_resort.is_some(), device_wanted),
            commands: set_up.commands(),
            under: LockContext::default(),
            log,
            stderr,
            agent: Some(Agent::of(socket)),
            listener,
            stages: [Stage::new(Command::Stop)?, Stage::new(Command::LastResort)?],
            killed: [false; 2],
            left: Left::new(set_up.cage.as_deref()),
            device: None,
            alarm: Alarm::new()?,
            nothing,
            oom_score: String::new(),
            set_up,
            buffer,
            over: false,
        })
    }

    /// Does what can be done beforehand, and tells the agent.
    fn settle(&mut self) {
        // Best effort, each: not everybody may.
        if self.oom_score.is_empty() {
            self.oom_score = fs::read_to_string(OOM_SCORE).unwrap_or_default();
            let _ = fs::write(OOM_SCORE, "-1000");
        }
        let _ = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
        // On a busy host the guard comes first, and the stop that it runs.
        let _ = rustix::process::setpriority_process(None, FIRST);
        let _ = fs::write("/proc/self/autogroup", FIRST.to_string());
        if self.set_up.realtime {
            // The agent says why it is not permitted, if it is not.
            let _ = raw::set_realtime();
        }
        self.greet();
    }

    fn have(&mut self, device: Device) {
        let timeout = device.timeout();
        self.device = Some(device);
        self.hear(News::Device(timeout));
    }

    /// Waits and acts until there is nothing left to guard.
    fn keep(mut self) -> Exit {
        while !self.over {
            if let Some(news) = self.left.start_gone() {
                self.hear(news);
            }
            let deadline = self.guard.deadline();
            match self.wait(deadline) {
                Ok(ready) => self.look(&ready),
                // Nothing but the deadlines is left then.
                Err(error) => {
                    let text = format!("the guard cannot wait: {error}");
                    self.log.say(Level::Error, &text);
                    let ready = Ready {
                        agent: true,
                        caller: true,
                        output: [true; 2],
                        exit: [true; 2],
                        agents_stop: true,
                    };
                    self.look(&ready);
                }
            }
            if let Some(at) = deadline
                && sys::now() >= at
            {
                let late = sys::now().since(at);
                if late > SLACK {
                    let text = format!("the guard woke {} late", Ms(late));
                    self.log.say(Level::Warn, &text);
                }
            }
            // What was said until this instant is taken in before it counts.
            let now = sys::now();
            self.listen_to_agent();
            self.hear_at(News::Tick, now);
        }
        Exit::Success
    }

    fn wait(&self, deadline: Option<Instant>) -> io::Result<Ready> {
        // In the place of what is not there stands what is looked at anyway.
        let caller = self.listener.as_fd();
        let agent = self.agent.as_ref().map(|agent| agent.socket.as_fd());
        let [stop, resort] = &self.stages;
        let fds = [
            agent.unwrap_or(caller),
            caller,
            stop.output(),
            resort.output(),
            stop.exit().unwrap_or(caller),
            resort.exit().unwrap_or(caller),
            self.left.agents_stop().unwrap_or(caller),
            self.left.dying_start().map_or(caller, |(_, leader)| leader),
        ];
        let fds = fds.map(|fd| (fd, Want::Read));
        let [agent, caller, out0, out1, exit0, exit1, agents_stop, _] =
            self.alarm.wait(fds, deadline)?;
        Ok(Ready {
            agent,
            caller,
            output: [out0, out1],
            exit: [exit0, exit1],
            agents_stop,
        })
    }

    fn look(&mut self, ready: &Ready) {
        let now = sys::now();
        for (at, stage) in self.stages.iter_mut().enumerate() {
            let log = &mut self.log;
            if ready.output[at] {
                stage.pass_on(&mut |command, line| log.command_output(command, line, now));
            }
        }
        for at in 0..self.stages.len() {
            // Beside it, the exit of a command may stand for a caller.
            if ready.exit[at] && self.stages[at].has_ended() {
                let killed = std::mem::take(&mut self.killed[at]);
                let (stage, log) = (&mut self.stages[at], &mut self.log);
                let outcome = stage.reap(killed, &mut |command, line| {
                    log.command_output(command, line, now)
                });
                log.count_left_out(now);
                let command = stage.command();
                self.hear(News::Ended(command, outcome));
            }
        }
        if ready.agents_stop && self.left.agents_stop_ended() {
            self.hear(News::AgentsStopEnded);
        }
        if ready.agent {
            self.listen_to_agent();
        }
        if ready.caller {
            self.let_in();
        }
    }

    /// Takes in all that the agent has said, and its end.
    fn listen_to_agent(&mut self) {
        while let Some(agent) = &self.agent {
            match agent.hear(&mut self.buffer) {
                Heard::Said(word, leader) => self.heed(word, leader),
                Heard::Nothing => return,
                Heard::End => {
                    self.agent = None;
                    self.hear(News::AgentGone);
                }
            }
        }
    }

    fn heed(&mut self, word: Word, leader: Option<OwnedFd>) {
        match word {
            Word::SetUp(set_up) => {
                let device_wanted = set_up.device.is_some();
                let last_resort = set_up.last_resort.is_some();
                if set_up.device != self.set_up.device || set_up.timing != self.set_up.timing {
                    // Another device, or another time for it: it is armed anew.
                    self.disarm();
                }
                self.guard.set_up(set_up.timing, last_resort, device_wanted);
                self.commands = set_up.commands();
                self.left.add_cage(set_up.cage.as_deref());
                let destination = self.stderr.or_syslog(set_up.syslog);
                self.log.configure(destination, &set_up.key, set_up.level);
                self.set_up = *set_up;
                self.settle();
            }
            Word::Watch(watch) => self.hear(News::Told(watch)),
            Word::LockContext(under) => self.under = under,
            Word::Group(command, group) => {
                if !self.left.note(command, group, leader) {
                    // The agent starts another, which has descriptors left.
                    let text = "the guard has no descriptor left: it ends";
                    self.log.say(Level::Error, text);
                    self.over = true;
                }
            }
            Word::KillService => self.left.kill_service(),
            // A quick one was seen to end before its agent got to say that it began.
            Word::StopBegins if self.left.agents_stop().is_none() => {}
            Word::StopBegins => self.hear(News::AgentsStopBegan),
            Word::GivenUp => self.hear(News::GivenUp),
        }
    }

    /// Lets another life of the agent in, if the one before is gone and the service
    /// is still as it left it.
    fn let_in(&mut self) {
        let socket = match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => {
                // No descriptor or memory: the caller goes on waiting, and so does
                // this, lest it spin. A wait that fails is one that is short.
                let _ = self.alarm.wait([], Some(sys::now().after(ACCEPT_AGAIN)));
                return;
            }
        };
        let own = rustix::process::geteuid();
        let same_user = sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == own);
        // The end of the one before may be there to be read beside this call, and its
        // time may be up.
        self.listen_to_agent();
        self.hear(News::Tick);
        if !same_user || self.agent.is_some() || self.over {
            return;
        }
        self.agent = Some(Agent::of(socket));
        self.hear(News::AgentBack);
        self.greet();
    }

    /// Says what is watched here. With the packet goes the start that dies.
    fn greet(&self) {
        let watch = self.guard.watch();
        if self.guard.acting() {
            return self.answer(&Answer::Acting(watch), None);
        }
        let start = self.left.dying_start();
        let group = start.map(|(group, _)| group);
        let ready = Answer::Ready(watch, self.under.clone(), group);
        self.answer(&ready, start.map(|(_, leader)| leader));
    }

    fn answer(&self, answer: &Answer, descriptor: Option<BorrowedFd<'_>>) {
        if let Some(agent) = &self.agent {
            // An agent that is gone is noticed where it is read from.
            let _ = send(agent.socket.as_fd(), &answer.encode(), descriptor);
        }
    }

    /// Turns the guard and does what it wants.
    fn hear(&mut self, news: News) {
        self.hear_at(news, sys::now());
    }

    fn hear_at(&mut self, news: News, now: Instant) {
        let mut acts = self.guard.turn(news, now);
        for act in acts.drain(..) {
            self.perform(act);
        }
        self.guard.done(acts);
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Try => self.try_device(),
            Act::Arm => self.arm(),
            Act::Kick => {
                if let Some(Err(error)) = self.device.as_mut().map(Device::kick) {
                    let text = format!("the watchdog device cannot be kicked: {error}");
                    self.log.say(Level::Error, &text);
                }
            }
            Act::Disarm => self.disarm(),
            Act::SayArmed => self.answer(&Answer::Armed, None),
            Act::SayUnfit(why) => self.answer(&Answer::Unfit(why), None),
            Act::KillAgent => self.kill_agent(),
            Act::KillLeft => self.left.kill(),
            Act::KillService => self.left.kill_service(),
            Act::Run(command, deadline) => self.run(command, deadline),
            Act::Kill(command) => {
                for (at, stage) in self.stages.iter().enumerate() {
                    if stage.command() == command {
                        self.killed[at] = stage.exit().is_some();
                        stage.kill();
                    }
                }
            }
            Act::Say(level, text) => self.log.say(level, &text),
            Act::Leave => self.over = true,
        }
    }

    fn arm(&mut self) {
        if let Some(device) = self.open_device() {
            self.have(device);
        }
    }

    /// Opens the device once and closes it again, to know whether it will do.
    fn try_device(&mut self) {
        let Some(device) = self.open_device() else {
            return;
        };
        let path = self.set_up.device.as_ref().map_or("", |(path, _)| path);
        if device.nowayout() {
            let text = format!(
                "watchdog {path}: it cannot be disarmed (nowayout): it resets this host when \
                 putex has ended"
            );
            self.answer(&Answer::Remark(true, text), None);
            return self.have(device);
        }
        let text = format!("watchdog {path}: timeout {}", Ms(device.timeout()));
        self.answer(&Answer::Remark(false, text), None);
        device.disarm();
    }

    /// Opens the device, or tells why it cannot be had.
    fn open_device(&mut self) -> Option<Device> {
        let (path, required) = self.set_up.device.clone()?;
        match Device::open(&path, self.set_up.timing) {
            Ok(device) => return Some(device),
            Err(why) if required => self.hear(News::NoDevice(Some(why))),
            Err(why) => {
                let text = format!("{why}; going on without it");
                self.answer(&Answer::Remark(true, text), None);
                self.hear(News::NoDevice(None));
            }
        }
        None
    }

    /// Closes the device; one that cannot be stopped is kept and kicked instead.
    fn disarm(&mut self) {
        if self
            .device
            .as_ref()
            .is_some_and(|device| !device.nowayout())
            && let Some(device) = self.device.take()
        {
            device.disarm();
            self.guard.disarmed();
        }
    }

    fn kill_agent(&mut self) {
        if let Some(Agent {
            process: Some(process),
            ..
        }) = &self.agent
        {
            // It fails when the agent has ended already.
            let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
        }
    }

    fn run(&mut self, command: Command, deadline: Instant) {
        let run = Run {
            command,
            role: Role::Standby,
            deadline,
            starting: false,
            under: self.under.clone(),
        };
        let mut prepared = self.commands.prepare(&run, None, sys::now());
        let at = usize::from(command == Command::LastResort);
        self.killed[at] = false;
        match self.stages[at].spawn(&mut prepared, &self.nothing) {
            Ok(group) => {
                self.stages[at].give_leave();
                // Best effort: it may have ended.
                let path = format!("/proc/{}/oom_score_adj", group.as_raw_nonzero());
                let _ = fs::write(path, &self.oom_score);
                // Another life of the agent may wait.
                self.answer(&Answer::Acting(self.guard.watch()), None);
            }
            Err(error) => {
                let outcome = Outcome::Failed(format!("it could not be run: {error}"));
                self.hear(News::Ended(command, outcome));
            }
        }
    }
}
