//! What happens to the guard, and what it does.

use std::time::Duration;

use super::Watch;
use crate::core::command::{Command, Outcome};
use crate::core::event::Level;
use crate::core::time::Instant;

/// What happened to the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A deadline may have passed, and all that is known has been told.
    Tick,
    /// The agent told how long the service may run.
    Told(Watch),
    /// The agent is gone.
    AgentGone,
    /// Another life of the agent is here.
    AgentBack,
    /// The agent runs its stop command.
    AgentsStopBegan,
    /// That has ended, however.
    AgentsStopEnded,
    /// The agent ends although the service may run: nothing more can be done.
    GivenUp,
    /// The watchdog device runs, with this timeout.
    Device(Duration),
    /// There is none that could be used; why, when one is required.
    NoDevice(Option<String>),
    /// There was no start to be killed by [`Act::KillLeft`].
    NoStart,
    /// The start that was killed has ended.
    StartGone,
    /// A command ended.
    Ended(Command, Outcome),
}

/// What the guard does. Acts are done in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Open the watchdog device and close it again, so that it does not run and it is
    /// known whether it will do; answer with [`News::NoDevice`] if it will not.
    Try,
    /// Open the watchdog device, so that it runs; answer with [`News::Device`] or
    /// [`News::NoDevice`].
    Arm,
    /// Kick the device.
    Kick,
    /// Close the device so that it does not bite.
    Disarm,
    /// Tell the agent that it may start the service.
    SayArmed,
    /// Tell the agent that it must not start the service, and why.
    SayUnfit(String),
    /// Kill the agent.
    KillAgent,
    /// Kill the commands that the agent left running; answer with [`News::NoStart`], or
    /// with [`News::StartGone`] when that has ended.
    KillLeft,
    /// Kill all that start ever left behind, where the kernel keeps track of it.
    KillService,
    /// Run stop or the last resort, which has until then.
    Run(Command, Instant),
    /// Kill a command with all that belongs to it.
    Kill(Command),
    /// Tell the operator.
    Say(Level, String),
    /// End. The last act there is.
    Leave,
}
