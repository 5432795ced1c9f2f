//! The commands of the table.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subcommand {
    /// Keep at most one copy of a service running.
    Agent,
    /// Check the settings of an agent.
    Check,
    /// Stop the service that a dead agent and its dead guard left.
    Finish,
    /// Show what R, F and C mean in seconds.
    Timing,
    /// Show the manual.
    Help,
    /// Guard the service of the agent that started this process.
    Guard,
}

impl Subcommand {
    /// All commands, in the order of the help text.
    pub const ALL: [Subcommand; 6] = [
        Subcommand::Agent,
        Subcommand::Check,
        Subcommand::Finish,
        Subcommand::Timing,
        Subcommand::Help,
        Subcommand::Guard,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Subcommand::Agent => "agent",
            Subcommand::Check => "check",
            Subcommand::Finish => "finish",
            Subcommand::Timing => "timing",
            Subcommand::Help => "help",
            Subcommand::Guard => "guard",
        }
    }

    /// Returns whether it takes the arguments and options of the agent.
    #[must_use]
    pub fn is_agents(self) -> bool {
        match self {
            Subcommand::Agent | Subcommand::Check | Subcommand::Finish => true,
            Subcommand::Timing | Subcommand::Help | Subcommand::Guard => false,
        }
    }

    /// Returns whether it takes arguments that belong to no option.
    #[must_use]
    pub fn takes_arguments(self) -> bool {
        self.is_agents() || self == Subcommand::Help
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Subcommand::Agent => "keep at most one copy of a service running (the default)",
            Subcommand::Check => "show an agent's settings, and say whether they are right",
            Subcommand::Finish => "stop the service if neither agent nor guard is there to",
            Subcommand::Timing => "show what -r, -f, -c and --drift mean in seconds",
            Subcommand::Help => "show the manual, or what is said of a topic",
            Subcommand::Guard => "watch over an agent: started by it, not by hand",
        }
    }
}
