//! The one table of commands and flags. The parser, `--help`, the completions and the
//! tests of the manual pages use it.

use self::Name::*;
pub use super::subcommand::Subcommand;

/// One flag. Two commands for which a letter or a long name means different things, or has
/// another default, have a row each.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name in the code.
    pub name: Name,
    /// Its long name without dashes.
    pub long: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// Further spellings, with their dashes.
    pub others: &'static [&'static str],
    /// The name of its value; blank for a switch.
    pub value: &'static str,
    /// Its default as a user would write it; blank for none.
    pub default: &'static str,
    /// The environment variable of the same meaning; blank for none.
    pub env: &'static str,
    /// The commands that take it so.
    pub subcommands: &'static [Subcommand],
    /// One line of help.
    pub help: &'static str,
}

/// The commands that take the arguments and options of the agent.
const AGENTS: &[Subcommand] = Subcommand::AGENTS;

/// The commands that use a store: first [`MAKERS`], then those that have more to say than a
/// result.
const STORES: &[Subcommand] = &[
    Subcommand::Agent,
    Subcommand::Check,
    Subcommand::Finish,
    Subcommand::Lock,
    Subcommand::Grab,
    Subcommand::Release,
    Subcommand::Lease,
    Subcommand::Put,
    Subcommand::Switchover,
    Subcommand::Pause,
    Subcommand::Resume,
    Subcommand::Status,
    Subcommand::Doctor,
];

/// The commands that make the bucket if it does not exist, and those for what was had in it.
const MAKERS: &[Subcommand] = STORES.split_at(8).0;

/// The commands that have more to say than a result.
const SPEAKERS: &[Subcommand] = STORES.split_at(11).0;

/// The commands with a process that has a token.
const TOKENS: &[Subcommand] =
    &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish, Subcommand::Lock];

/// The commands that take the options of R, F and C.
const TIMING: &[Subcommand] = &[
    Subcommand::Agent,
    Subcommand::Check,
    Subcommand::Finish,
    Subcommand::Timing,
    Subcommand::Doctor,
];

/// The commands that know the watchdog device of a host.
const DEVICES: &[Subcommand] =
    &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish, Subcommand::Doctor];

/// The commands that rely on clocks, which is all of those.
const CLOCKS: &[Subcommand] = &[
    Subcommand::Agent,
    Subcommand::Check,
    Subcommand::Finish,
    Subcommand::Lock,
    Subcommand::Grab,
    Subcommand::Lease,
    Subcommand::Timing,
    Subcommand::Doctor,
];

const CHECK: &[Subcommand] = &[Subcommand::Check];

/// The commands that ask for a lock.
const LOCKS: &[Subcommand] = &[Subcommand::Lock, Subcommand::Grab];

const LOCK: &[Subcommand] = &[Subcommand::Lock];

const GRAB: &[Subcommand] = &[Subcommand::Grab];

const RELEASE: &[Subcommand] = &[Subcommand::Release];

/// The commands for a lock, or a lease, without a process.
const ASKERS: &[Subcommand] =
    &[Subcommand::Grab, Subcommand::Release, Subcommand::Put, Subcommand::Status];

const LEASE: &[Subcommand] = &[Subcommand::Lease];

const ONLY_TIMING: &[Subcommand] = &[Subcommand::Timing];

const PUT: &[Subcommand] = &[Subcommand::Put];

/// The commands that print a report.
const REPORTS: &[Subcommand] = &[Subcommand::Status, Subcommand::Doctor];

const STATUS: &[Subcommand] = &[Subcommand::Status];

const SWITCHOVER: &[Subcommand] = &[Subcommand::Switchover];

const PAUSE: &[Subcommand] = &[Subcommand::Pause];

const PAUSES: &[Subcommand] = &[Subcommand::Pause, Subcommand::Resume];

const DOCTOR: &[Subcommand] = &[Subcommand::Doctor];

const ALL: &[Subcommand] = &Subcommand::ALL;

/// A switch. Each row of [`FLAGS`] begins with it.
const SWITCH: Flag = Flag {
    name: Config,
    long: "",
    short: None,
    others: &[],
    value: "",
    default: "",
    env: "",
    subcommands: &[],
    help: "",
};

/// Makes [`Name`] and [`FLAGS`] of one list: of the commands that take them, flags; of each
/// flag its name in the code, its long name, the fields that differ from [`SWITCH`], and its
/// line of help.
macro_rules! flags {
    ($($takers:ident { $(
        $name:ident: $long:literal { $($field:ident: $value:expr),* } $help:literal;
    )* })*) => {
        /// The name of a flag in the code. The order is that of [`FLAGS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Name {
            $($(#[doc = concat!("`--", $long, "`")] $name,)*)*
        }

        /// All flags, in the order of [`Name`] and of the help text.
        pub const FLAGS: &[Flag] = &[
            $($(Flag {
                name: $name,
                long: $long,
                $($field: $value,)*
                subcommands: $takers,
                help: $help,
                ..SWITCH
            },)*)*
        ];
    };
}

flags! {
    STORES {
        Config: "config" { value: "file", default: "/etc/putex/putex.conf", env: "PUTEX_CONFIG" }
            "file with the settings that neither options nor environment give";
        Nats: "nats" { value: "url[,url]", env: "NATS_URL" }
            "keep the lock in NATS JetStream, by these servers";
        Context: "context" { value: "name", env: "NATS_CONTEXT" }
            "take what is not given otherwise from this context of the nats command";
        User: "user" { value: "name", env: "NATS_USER" }
            "log in as this user, unless a URL names one";
        PasswordFile: "password-file" { value: "file" }
            "the user's password is the line of this file";
        AuthTokenFile: "auth-token-file" { value: "file" }
            "log in with the token that is the line of this file";
        Nkey: "nkey" { value: "file", env: "NATS_NKEY" }
            "log in with the nkey whose seed is in this file";
        Creds: "creds" { value: "file", env: "NATS_CREDS" }
            "log in with the JWT and the nkey in this file";
        TlsCa: "tlsca" { value: "file", default: "the system's roots", env: "NATS_CA" }
            "who may sign a server's certificate";
        TlsCert: "tlscert" { value: "file", env: "NATS_CERT" }
            "certificate that is shown to a server that asks";
        TlsKey: "tlskey" { value: "file", env: "NATS_KEY" } "key of that certificate";
        TlsFirst: "tlsfirst" {} "begin with TLS before the server says anything";
        InboxPrefix: "inbox-prefix" { value: "subject", default: "_INBOX" }
            "subject below which replies are asked for";
        JsDomain: "js-domain" { value: "name" } "JetStream domain that the bucket is in";
        JsApiPrefix: "js-api-prefix" { value: "subject", default: "$JS.API" }
            "subject below which the API of JetStream answers";
        Dir: "dir" { value: "dir" } "keep the lock in a directory: for this host only";
        Bucket: "bucket" { value: "name", default: "putex" } "bucket that holds the lock";
    }
    AGENTS {
        Key: "key" { value: "key" } "key that is the lock";
    }
    TOKENS {
        Token: "token" { value: "token", default: "the host name" }
            "who this is to the others; no two agents have one token";
    }
    AGENTS {
        Start: "start" { value: "command" } "asserts that the service runs here";
        Stop: "stop" { value: "command" } "asserts that the service does not run here";
        Healthcheck: "healthcheck" { value: "command", default: "none" }
            "succeeds if the service is, or could be, fit here";
        Priority: "priority" { value: "number", default: "1" }
            "1 goes first to have a lock that is free, 15 last; never takes none";
        Failback: "failback" { value: "time", default: "never" }
            "the service goes back to an agent of a higher priority that was fit for so long";
        Seats: "seats" { value: "count", default: "1" }
            "so many agents may be active at once, each in a seat of its own";
        Observe: "observe" {}
            "take no lock and run no service: only say what this agent would do";
        CheckFailures: "check-failures" { value: "count", default: "1" }
            "failing health checks in a row before the service moves";
        StartGrace: "start-grace" { value: "time", default: "0" }
            "after the first start of a term, failing health checks only warn for so long";
        LastResort: "last-resort" { value: "command", default: "none" }
            "cuts off a service that stop could not stop in time";
    }
    DEVICES {
        Watchdog: "watchdog" { value: "device", default: "none" }
            "resets this host when all else fails; with :required, no start without it";
    }
    TIMING {
        Renewal: "renewal" { short: Some('r'), value: "time", default: "3s" }
            "R, from one renewal to the next: milliseconds, or with ms, s, m";
        Failures: "failures" { short: Some('f'), value: "count", default: "3" }
            "F, renewals that must be missed before a takeover";
        Confirmations: "confirmations" { short: Some('c'), value: "count", default: "2" }
            "C, renewals between a takeover and the start";
    }
    LOCKS {
        Shared: "shared" { short: Some('s') }
            "others may hold the lock at the same time if they ask for it so";
        Exclusive: "exclusive" { short: Some('x'), others: &["-e"] }
            "nobody else may hold the lock at the same time: the default";
    }
    LOCK {
        Slots: "slots" { short: Some('j'), value: "count" }
            "so many may hold the lock at the same time, each with a slot of its own";
        Soft: "soft" {}
            "let others go first: ask for the lock only while nobody holds it";
        QuietFor: "quiet-for" { value: "time" }
            "as --soft, once nobody has held it for so long: seconds, or with ms, s, m";
        HardAfter: "hard-after" { value: "time" }
            "let others go first for so long at most: seconds, or with ms, s, m";
        NoWait: "nonblock" { short: Some('n'), others: &["--nb", "--nonblocking"] }
            "end at once if the lock is not free";
    }
    LOCKS {
        Wait: "timeout" { short: Some('w'), others: &["--wait"], value: "seconds" }
            "end if the lock was not had after so long: seconds, or with ms, s, m";
        BusyStatus: "conflict-exit-code" { short: Some('E'), value: "status", default: "75" }
            "exit status if the lock was not had";
    }
    LOCK {
        KillAfter: "kill-after" { short: Some('k'), value: "time", default: "2s" }
            "from SIGTERM to SIGKILL if the lock is lost: seconds, or with ms, s, m";
        Hold: "hold" { value: "time" }
            "the lock is held for so long at least, also after the command";
        Report: "report" { value: "file" }
            "add a line of JSON to this file that says how it has ended";
        LockRenewal: "renewal" { short: Some('r'), value: "time", default: "5s" }
            "R, from one renewal to the next: milliseconds, or with ms, s, m";
        LockFailures: "failures" { short: Some('f'), value: "count", default: "3" }
            "F, renewals that must be missed before others get the lock";
        Close: "close" { short: Some('o') }
            "the command does not inherit the lock of a directory, nor does what it starts";
        CommandString: "command" { short: Some('c'), value: "string" }
            "behind the name: the command, as a line for $SHELL or /bin/sh";
    }
    GRAB {
        NoQueue: "nonblock" { short: Some('n'), others: &["--nb", "--nonblocking"] }
            "keep no place in the queue if the lock is not free";
        For: "for" { value: "time", default: "60s" }
            "the lock, or the place, runs out after so long: seconds, or with ms, s, m, h";
    }
    ASKERS {
        As: "as" { value: "who", default: "the token of putex.conf, or the host name" }
            "who asks: whoever asks by the same name is the same requester";
    }
    RELEASE {
        Force: "force" {} "take the lock away from another holder, whom --holder names";
        Holder: "holder" { value: "who" } "with --force: the holder that is to lose the lock";
    }
    LEASE {
        LeaseFor: "for" { value: "time" }
            "of claim and extend: for so long at least, in seconds, or with ms, s, m, h";
        LeaseAs: "as" { value: "who", default: "the token of putex.conf, or the host name" }
            "of claim and extend: the holder; of check: whether this one has it";
        ExpireWait: "timeout" { short: Some('w'), others: &["--wait"], value: "seconds" }
            "of expire: wait for so long at most until the lease has run out";
    }
    ONLY_TIMING {
        TimingLease: "lease" { value: "time" }
            "show what a lease for this time means instead: seconds, or with ms, s, m, h";
    }
    REPORTS {
        Json: "json" {} "print an object of JSON";
    }
    STATUS {
        Is: "is" { short: Some('e'), value: "question" }
            "exit with 0 for yes, 1 for no: held, free, mine, active, paused or holder=TOKEN";
        Print: "print" { value: "field" } "print one value only: holder, host, state or term";
        Watch: "watch" { short: Some('W'), value: "seconds" }
            "repeat it so often: seconds, or with ms, s, m";
    }
    SWITCHOVER {
        From: "from" { value: "who" } "the agent that gives its lock; needed if several have one";
        To: "to" { value: "who", default: "the best candidate" } "the agent that is to have it";
        SwitchoverWait: "timeout" {
            short: Some('w'), others: &["--wait"], value: "seconds", default: "30s"
        }
            "withdraw it if the holder has not begun after so long: seconds, or with ms, s, m";
    }
    PAUSE {
        PauseFor: "for" { value: "time" }
            "how long the pause lasts: seconds, or with ms, s, m, h, d";
        Reason: "reason" { value: "text" } "why, for whoever sees the pause";
    }
    PAUSES {
        PauseWait: "timeout" {
            short: Some('w'), others: &["--wait"], value: "seconds", default: "10s"
        }
            "how long the agents have to acknowledge it: seconds, or with ms, s, m";
    }
    DOCTOR {
        Ignore: "ignore" { value: "name[,name]" }
            "findings of these names do not make anything unfit";
        Samples: "samples" { value: "count", default: "50" }
            "measure so many reads and so many writes";
    }
    PUT {
        Lease: "lease" { value: "name" } "the lease without which nothing is written";
    }
    CLOCKS {
        Drift: "drift" { value: "percent", default: "1%" }
            "how far the rate of a host's clock may be off";
    }
    MAKERS {
        Replicas: "replicas" { value: "count", default: "1" }
            "servers that keep a copy of a bucket made by putex";
        AllowMemory: "allow-memory" {} "accept a bucket that its server forgets when it restarts";
    }
    AGENTS {
        OnChange: "on-change" { value: "command", default: "none" }
            "is told each change of this agent's state";
        MetricsFile: "metrics-file" { value: "file", default: "none" }
            "keep the metrics of this agent in this file, for Prometheus";
        NotifyFd: "notify-fd" { value: "number", default: "none" }
            "descriptor that is written a line when this agent stands by";
        Micro: "micro" {} "clients of NATS micro services, such as nats micro, find this agent";
        Syslog: "syslog" {} "log to the syslog daemon of this host instead of stderr";
    }
    SPEAKERS {
        Verbose: "verbose" { short: Some('v') } "say more";
        Quiet: "quiet" { short: Some('q') } "say less: -q warnings and errors, -qq errors";
    }
    CHECK {
        Connect: "connect" {}
            "ask the servers too; nothing is written or made there";
    }
    ALL {
        Help: "help" { short: Some('h') } "show this help";
        Version: "version" { short: Some('V') } "show the version";
    }
}

impl Name {
    /// Returns the flag of this name.
    pub fn flag(self) -> &'static Flag {
        &FLAGS[self as usize]
    }

    /// Returns whether it is a setting of login, TLS or subjects for servers.
    pub fn is_of_access(self) -> bool {
        (User..=JsApiPrefix).contains(&self)
    }

    /// Returns whether it is a switch that counts when it is given twice.
    pub fn counts_up(self) -> bool {
        matches!(self, Verbose | Quiet)
    }

    /// Returns the switch that this one turns off: of the two, the last one counts.
    pub(super) fn opposite(self) -> Option<Name> {
        match self == Shared {
            true => Some(Exclusive),
            false => (self == Exclusive).then_some(Shared),
        }
    }
}

/// Returns a part of a message: the known word that a wrong one is most like, or nothing.
pub(super) fn nearest(wrong: &str, known: impl IntoIterator<Item = String>) -> String {
    let like = |known: String| (strsim::osa_distance(wrong, &known), known);
    let (differences, nearest) = known.into_iter().map(like).min().unwrap_or_default();
    match differences <= DIFFERENCES_MAX && differences < nearest.len() / 2 {
        true => format!("; the nearest is {nearest}"),
        false => String::new(),
    }
}

/// So many letters of a mistyped word are wrong at most.
const DIFFERENCES_MAX: usize = 3;

impl Flag {
    /// Returns the flag that a user of a command writes so, with one dash or two.
    pub fn find(written: &str, of: Subcommand) -> Option<&'static Flag> {
        Flag::all_of(of).find(|flag| flag.is_written(written))
    }

    /// Returns the flags that a command takes.
    pub fn all_of(of: Subcommand) -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(move |flag| flag.subcommands.contains(&of))
    }

    /// Returns whether a user writes it so, with one dash or two.
    pub(super) fn is_written(&self, written: &str) -> bool {
        self.spellings().any(|spelling| spelling == written)
    }

    /// Returns all its spellings: the letter, the long name, and the others.
    pub fn spellings(&self) -> impl Iterator<Item = String> {
        let short = self.short.map(|short| format!("-{short}"));
        let others = self.others.iter().map(|other| (*other).to_owned());
        short.into_iter().chain([self.shown()]).chain(others)
    }

    /// Returns the flag as a user writes it, for messages.
    pub fn shown(&self) -> String {
        format!("--{}", self.long)
    }

    /// Returns its key in a configuration file, which is the long name; `None` if it makes
    /// sense on a command line only, or is not of the agent: the file is the agent's.
    pub fn key(&self) -> Option<&'static str> {
        let is_of_agent = self.subcommands.contains(&Subcommand::Agent);
        let is_line_only = matches!(self.name, Config | Help | NotifyFd | Version);
        (is_of_agent && !is_line_only).then_some(self.long)
    }

    /// Returns its default if it is a value; `None` for none, or one that is described.
    pub(super) fn default_value(&self) -> Option<&'static str> {
        let is_value = !["", "none"].contains(&self.default) && !self.default.contains(' ');
        is_value.then_some(self.default)
    }
}
