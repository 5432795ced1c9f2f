//! The commands of the table.

/// Makes [`Subcommand`] of one list: of each command its name in the code, its name on the
/// command line, its summary, and its usage.
macro_rules! subcommands {
    ($($subcommand:ident $name:literal $about:literal $usage:literal;)*) => {
        /// A command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Subcommand {
            $(#[doc = $about] $subcommand,)*
        }

        impl Subcommand {
            /// All commands, in the order of the help text.
            pub const ALL: [Self; 16] = [$(Self::$subcommand),*];

            const ROWS: [[&str; 3]; 16] = [$([$name, $about, $usage]),*];
        }
    };
}

subcommands! {
    Agent "agent" "keep at most one copy of a service running (the default)"
        "putex [agent] --key KEY --start COMMAND --stop COMMAND [options]\n       \
         putex [agent] SERVER BUCKET KEY TOKEN --start COMMAND --stop COMMAND [options]";
    Check "check" "show an agent's settings, and say whether they are right"
        "putex check [--connect] [-q] [arguments and options of the agent]";
    Finish "finish" "stop the service if neither agent nor guard is there to"
        "putex finish [arguments and options of the agent]";
    Lock "lock" "run a command while a lock is held, which no other host can have then"
        "putex lock [options] NAME [--] COMMAND [ARG ...]\n       \
         putex lock [options] NAME -c STRING";
    Grab "grab" "get a lock for a script, or keep it: it runs out by itself"
        "putex grab [--for TIME] [--as WHO] [-n | -w SECONDS] [options] NAME";
    Release "release" "give back what putex grab has got, or take it away from its holder"
        "putex release [--as WHO] [--force --holder WHO] [options] NAME";
    Lease "lease" "claim, extend, expire and show leases, which outlive the process that claims"
        "putex lease claim --for TIME [--as WHO] [options] NAME\n       \
         putex lease extend --for TIME [--as WHO] [options] NAME\n       \
         putex lease check [--as WHO] [options] NAME\n       \
         putex lease expire [-w SECONDS] [options] NAME\n       \
         putex lease list [options] [NAME]";
    Put "put" "write a value unless a lease has gone"
        "putex put --lease NAME [--as WHO] [options] KEY [VALUE]";
    Status "status" "show who holds which lock or lease, since when and until when"
        "putex status [--json] [-W SECONDS] [options] [KEY ...]\n       \
         putex status -e QUESTION [options] KEY\n       \
         putex status --print FIELD [options] KEY";
    Switchover "switchover" "move the service to another agent, and say what became of it"
        "putex switchover [--from WHO] [--to WHO] [-w SECONDS] [options] KEY";
    Pause "pause" "for some time, no agent starts, stops or takes over the service"
        "putex pause --for TIME [--reason TEXT] [-w SECONDS] [options] KEY";
    Resume "resume" "end a pause" "putex resume [-w SECONDS] [options] KEY";
    Doctor "doctor" "measure whether the servers, the agents and this host are fit"
        "putex doctor [--json] [-r TIME] [-f COUNT] [-c COUNT] [options] [KEY]";
    Timing "timing" "show what -r, -f, -c and --drift mean in seconds"
        "putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]\n       \
         putex timing --lease TIME [--drift PERCENT]";
    Help "help" "show this help, or what the manual says of a topic" "putex help [TOPIC]";
    Guard "guard" "watch over an agent: started by it, not by hand"
        "started by putex agent, not by hand";
}

impl Subcommand {
    /// The commands that take the arguments and options of the agent.
    pub const AGENTS: &[Subcommand] = &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish];

    /// The commands that use a store and have pages of their own.
    pub const WITH_PAGES: &[Subcommand] = &[
        Subcommand::Lock,
        Subcommand::Grab,
        Subcommand::Release,
        Subcommand::Lease,
        Subcommand::Put,
        Subcommand::Status,
        Subcommand::Switchover,
        Subcommand::Pause,
        Subcommand::Resume,
        Subcommand::Doctor,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ROWS[self as usize][0]
    }

    /// Returns its summary, in one line.
    pub fn about(self) -> &'static str {
        Self::ROWS[self as usize][1]
    }

    /// Returns its usage, a line for each form.
    pub(super) fn usage(self) -> &'static str {
        Self::ROWS[self as usize][2]
    }
}
