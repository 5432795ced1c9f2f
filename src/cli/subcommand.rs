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
    pub const ALL: [Self; 6] =
        [Self::Agent, Self::Check, Self::Finish, Self::Timing, Self::Help, Self::Guard];

    /// The commands that take the arguments and options of the agent.
    pub const AGENTS: &[Subcommand] = &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish];

    /// Returns its name on the command line, its summary and its usage.
    fn row(self) -> [&'static str; 3] {
        match self {
            Subcommand::Agent => [
                "agent",
                "keep at most one copy of a service running (the default)",
                "putex [agent] --key KEY --start COMMAND --stop COMMAND [options]\n       \
                 putex [agent] SERVER BUCKET KEY TOKEN --start COMMAND --stop COMMAND [options]",
            ],
            Subcommand::Check => [
                "check",
                "show an agent's settings, and say whether they are right",
                "putex check [--connect] [-q] [arguments and options of the agent]",
            ],
            Subcommand::Finish => [
                "finish",
                "stop the service if neither agent nor guard is there to",
                "putex finish [arguments and options of the agent]",
            ],
            Subcommand::Timing => [
                "timing",
                "show what -r, -f, -c and --drift mean in seconds",
                "putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]",
            ],
            Subcommand::Help => {
                ["help", "show the manual, or what is said of a topic", "putex help [TOPIC]"]
            }
            Subcommand::Guard => [
                "guard",
                "watch over an agent: started by it, not by hand",
                "started by putex agent, not by hand",
            ],
        }
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        self.row()[0]
    }

    /// Returns its summary, in one line.
    pub fn about(self) -> &'static str {
        self.row()[1]
    }

    /// Returns its usage, a line for each form.
    pub(super) fn usage(self) -> &'static str {
        self.row()[2]
    }
}
