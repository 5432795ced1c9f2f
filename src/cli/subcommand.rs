//! The commands: half of the one table.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Keep at most one copy of a service running.
    Agent,
    /// Say whether the options of an agent would do.
    Check,
    /// Stop the service if an agent has ended and its guard too.
    Finish,
    /// Show what R, F and C mean in seconds.
    Timing,
    /// Show the manual.
    Help,
    /// Watch over an agent.
    Guard,
}

impl Verb {
    /// All of them, as help lists them.
    pub const ALL: [Verb; 6] = [
        Verb::Agent,
        Verb::Check,
        Verb::Finish,
        Verb::Timing,
        Verb::Help,
        Verb::Guard,
    ];

    /// Returns the word that selects it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verb::Agent => "agent",
            Verb::Check => "check",
            Verb::Finish => "finish",
            Verb::Timing => "timing",
            Verb::Help => "help",
            Verb::Guard => "guard",
        }
    }

    /// Returns whether it takes what the agent takes.
    #[must_use]
    pub fn is_agents(self) -> bool {
        match self {
            Verb::Agent | Verb::Check | Verb::Finish => true,
            Verb::Timing | Verb::Help | Verb::Guard => false,
        }
    }

    /// Returns whether words may follow it that belong to no option.
    #[must_use]
    pub fn takes_words(self) -> bool {
        self.is_agents() || self == Verb::Help
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Verb::Agent => "keep at most one copy of a service running (the default)",
            Verb::Check => "show an agent's settings, and say whether they are right",
            Verb::Finish => "stop the service if neither agent nor guard is there to",
            Verb::Timing => "show what -r, -f, -c and --drift mean in seconds",
            Verb::Help => "show the manual, or what is said of a topic",
            Verb::Guard => "watch over an agent: started by it, not by hand",
        }
    }
}
