//! The actions of the guard, and the processes of the commands that it runs.

use crate::core::command::Command;
use crate::core::protocol::GuardReport;
use crate::core::service_report::ServiceReport;
use crate::core::time::Instant;

/// An action of the guard. Actions are performed in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardAction {
    /// Run a command. It waits for [`GuardAction::Release`] before it begins. It is killed at this
    /// instant, which the command is told.
    Run(Command, Instant),
    /// Let a spawned command begin.
    Release(Command),
    /// Kill a command with its process group. Its end is told all the same.
    Kill(Command),
    /// Kill all processes in the control group of start. Nobody waits for their end.
    KillCgroup,
    /// Kill all processes in the control group of start, report them if there are any, and tell
    /// when the group is empty.
    EmptyCgroup,
    /// Tell the operator.
    Log(ServiceReport),
    /// Tell the agent, if there is one.
    Report(GuardReport),
    /// Open the watchdog device and close it again, so that it is known whether it can be
    /// used; answered at once with `DeviceClosed`, `DeviceOpened` or `DeviceFailed`.
    TryDevice,
    /// Open the watchdog device; answered at once with `DeviceOpened` or `DeviceFailed`.
    OpenDevice,
    /// Kick the watchdog device.
    KickDevice,
    /// Close the watchdog device so that it does not reset the host; answered at once with
    /// `DeviceClosed`, or not at all when the device cannot be stopped.
    CloseDevice,
    /// End. The last action there is.
    Exit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Process {
    /// There is no process.
    #[default]
    None,
    /// The process is being spawned, or waits for its release: it can do nothing yet.
    Waiting,
    /// As [`Process::Waiting`], but the process will not be released.
    Unwanted,
    Released,
    /// The process was released and killed, and has not ended.
    Dying,
}

/// The processes of all commands, and the actions that are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    processes: [Process; Command::ALL.len()],
    pub(super) actions: Vec<GuardAction>,
}

impl Processes {
    /// `start_alive` tells that a start of the previous guard was killed and has not ended.
    pub(super) fn new(start_alive: bool) -> Processes {
        let mut processes = Processes::default();
        if start_alive {
            *processes.of(Command::Start) = Process::Dying;
        }
        processes
    }

    fn of(&mut self, command: Command) -> &mut Process {
        &mut self.processes[command as usize]
    }

    /// Returns whether a command was run that has not ended.
    pub(super) fn is_alive(&self, command: Command) -> bool {
        self.processes[command as usize] != Process::None
    }

    /// Returns whether a command is being spawned, and begins later.
    pub(super) fn is_waiting(&self, command: Command) -> bool {
        self.processes[command as usize] == Process::Waiting
    }

    /// Returns whether a command has begun and not ended, killed or not.
    pub(super) fn has_begun(&self, command: Command) -> bool {
        matches!(self.processes[command as usize], Process::Released | Process::Dying)
    }

    /// Returns whether a command was killed and has not ended.
    pub(super) fn is_killed(&self, command: Command) -> bool {
        matches!(self.processes[command as usize], Process::Unwanted | Process::Dying)
    }

    /// Runs a command that is not alive.
    pub(super) fn run(&mut self, command: Command, until: Instant) {
        *self.of(command) = Process::Waiting;
        self.act(GuardAction::Run(command, until));
    }

    pub(super) fn kill(&mut self, command: Command) {
        self.withdraw(command);
        self.act(GuardAction::Kill(command));
    }

    /// The command is not to begin any more.
    pub(super) fn withdraw(&mut self, command: Command) {
        let process = self.of(command);
        *process = match *process {
            Process::None => Process::None,
            Process::Waiting | Process::Unwanted => Process::Unwanted,
            Process::Released | Process::Dying => Process::Dying,
        };
    }

    /// A command was spawned: lets it begin, or kills it if it may not begin or was withdrawn.
    pub(super) fn spawned(&mut self, command: Command, may_begin: bool) {
        if may_begin && *self.of(command) == Process::Waiting {
            *self.of(command) = Process::Released;
            self.act(GuardAction::Release(command));
        } else {
            self.kill(command);
        }
    }

    pub(super) fn ended(&mut self, command: Command) {
        *self.of(command) = Process::None;
    }

    pub(super) fn report(&mut self, report: ServiceReport) {
        self.act(GuardAction::Log(report));
    }

    pub(super) fn act(&mut self, action: GuardAction) {
        self.actions.push(action);
    }
}
