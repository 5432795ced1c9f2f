//! The commands of the table.

/// Makes [`Subcommand`] of one list: of each group its name, and of each command its name in the
/// code, its name on the command line, its summary, its usage, and an example.
macro_rules! subcommands {
    ($($group:literal { $(
        $subcommand:ident $name:literal $about:literal $usage:literal $example:literal;
    )* })*) => {
        /// A command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Subcommand {
            $($(#[doc = $about] $subcommand,)*)*
        }

        impl Subcommand {
            /// All commands, in the order of the help text.
            pub const ALL: [Self; 17] = [$($(Self::$subcommand),*),*];

            /// The commands that a user runs, by task: the task, and its commands.
            pub(super) const GROUPS: &[(&str, &[Self])] =
                &[$(($group, &[$(Self::$subcommand),*])),*];

            const ROWS: [[&str; 4]; 17] = [$($([$name, $about, $usage, $example]),*),*];
        }
    };
}

subcommands! {
    "run a service" {
        Agent "agent" "keep at most one copy of a service running over several hosts"
            "putex agent --key KEY --start COMMAND --stop COMMAND [options]\n       \
             putex agent SERVER BUCKET KEY TOKEN --start ... --stop ... [options]"
            "putex agent --nats nats://n1 --key web \\\n      \
             --start 'systemctl start web' --stop 'systemctl stop web'";
        Check "check" "show the settings of an agent, and what is wrong with them"
            "putex check [--connect] [-q] [arguments and options of the agent]"
            "putex check --connect --nats nats://n1 --key web \\\n      \
             --start 'systemctl start web' --stop 'systemctl stop web'";
        Finish "finish" "stop the service that an agent and its guard have left running"
            "putex finish [arguments and options of the agent]"
            "putex finish --nats nats://n1 --key web \\\n      \
             --start 'systemctl start web' --stop 'systemctl stop web'";
        Timing "timing" "show what -r, -f, -c and --drift mean in seconds"
            "putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]"
            "putex timing -r 4s -c 3";
    }
    "hold a lock" {
        Lock "lock" "run a command while a lock is held; end it if the lock is lost"
            "putex lock [options] NAME [--] COMMAND [ARG ...]\n       \
             putex lock [options] NAME -c STRING"
            "putex lock --nats nats://n1 -n backup/db pg_dump -f /backup/db.sql db";
        Grab "grab" "take a lock for a script, or keep it; it runs out by itself"
            "putex grab [--for TIME] [-n | -w SECONDS] [options] NAME"
            "putex grab --nats nats://n1 --for 5m -w 30 deploy";
        Release "release" "give back a lock of putex grab, or take it from its holder"
            "putex release [--as WHO] [--force --holder WHO] [options] NAME"
            "putex release --nats nats://n1 deploy";
        Lease "lease" "claim, extend, check, expire and list leases"
            "putex lease claim --for TIME [--as WHO] [options] NAME\n       \
             putex lease extend --for TIME [--as WHO] [options] NAME\n       \
             putex lease check [--as WHO] [options] NAME\n       \
             putex lease expire [-w SECONDS] [options] NAME\n       \
             putex lease list [options] [NAME]"
            "putex lease claim --nats nats://n1 --for 60s leader";
        Put "put" "write a value unless a lease has gone"
            "putex put --lease NAME [--as WHO] [options] KEY [VALUE]"
            "putex put --nats nats://n1 --lease leader address 192.0.2.7";
    }
    "look" {
        Status "status" "show who holds which lock or lease, since when and until when"
            "putex status [--json] [options] [KEY ...]\n       \
             putex status -e QUESTION [options] KEY\n       \
             putex status --print FIELD [options] KEY"
            "putex status --nats nats://n1 web";
        Doctor "doctor" "measure whether the servers, the agents and this host are fit"
            "putex doctor [--json] [-r TIME] [-f COUNT] [-c COUNT] [options] [KEY]"
            "putex doctor --nats nats://n1 web";
    }
    "operate" {
        Init "init" "make the bucket, so that the first lock and lease do not wait"
            "putex init [--bucket NAME] [--replicas COUNT] [options]"
            "putex init --nats nats://n1,nats://n2,nats://n3 --replicas 3";
        Switchover "switchover" "move the service to another agent, and say what became of it"
            "putex switchover [--from WHO] [--to WHO] [-w SECONDS] [options] KEY"
            "putex switchover --nats nats://n1 --to h2 web";
        Pause "pause" "for some time, agents leave the service alone"
            "putex pause --for TIME [--reason TEXT] [-w SECONDS] [options] KEY"
            "putex pause --nats nats://n1 --for 1h --reason 'new disk' web";
        Resume "resume" "end a pause"
            "putex resume [-w SECONDS] [options] KEY"
            "putex resume --nats nats://n1 web";
    }
    "" {
        Help "help" "show the commands, or what the manual says of a topic"
            "putex help [COMMAND | TOPIC]"
            "putex help trouble";
        Guard "guard" "stop the service in time when its agent cannot"
            "started by putex agent, not by hand"
            "";
    }
}

impl Subcommand {
    /// Returns the command of this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

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

    /// Returns a command line as an example.
    pub(super) fn example(self) -> &'static str {
        Self::ROWS[self as usize][3]
    }
}
