//! The one table of commands and flags. The parser, `--help`, the completions and the
//! tests of the manual pages use it.

use self::Name::*;
pub use super::subcommand::Subcommand;

/// A flag. Two commands for which a letter or a long name means different things, or has another
/// default, have a row each.
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
    /// The commands that take it so. None takes a secret: it is in the environment or a context.
    pub subcommands: &'static [Subcommand],
    /// The line of help.
    pub help: &'static str,
}

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
    ($($takers:tt { $(
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
                subcommands: flags!(@takers $takers),
                help: $help,
                ..SWITCH
            },)*)*
        ];
    };
    (@takers [All]) => { &Subcommand::ALL };
    (@takers [$($taker:ident)*]) => { &[$(Subcommand::$taker),*] };
}

flags! {
    [Agent Check Finish Init Lock Grab Release Lease Put Switchover Pause Resume Status Doctor] {
        Config: "config" { value: "file", default: "/etc/putex/putex.conf", env: "PUTEX_CONFIG" }
            "settings that neither options nor environment give";
        Nats: "nats" { value: "url[,url]", env: "NATS_URL" }
            "keep the lock in NATS JetStream, by these servers";
        Context: "context" { value: "name", env: "NATS_CONTEXT" }
            "take what is missing from this context of the nats command";
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
            "authorities that may sign a server's certificate";
        TlsCert: "tlscert" { value: "file", env: "NATS_CERT" }
            "certificate for a server that asks for one";
        TlsKey: "tlskey" { value: "file", env: "NATS_KEY" } "key of that certificate";
        TlsFirst: "tlsfirst" {} "begin with TLS before the server says anything";
        InboxPrefix: "inbox-prefix" { value: "subject", default: "_INBOX" }
            "subject below which replies arrive";
        JsDomain: "js-domain" { value: "name" } "JetStream domain that the bucket is in";
        JsApiPrefix: "js-api-prefix" { value: "subject", default: "$JS.API" }
            "subject below which the API of JetStream answers";
        Dir: "dir" { value: "dir" } "keep the lock in a directory: for this host only";
        Bucket: "bucket" { value: "name", default: "putex" } "bucket that holds the lock";
    }
    [Agent Check Finish Init Lock Grab Release Lease Put] {
        Replicas: "replicas" { value: "count", default: "1" }
            "copies of a bucket that putex creates";
        AllowMemory: "allow-memory" {}
            "accept a bucket in memory, which a restart of its server loses";
    }
    [Agent Check Finish] {
        Key: "key" { value: "key" } "key that is the lock";
    }
    [Agent Check Finish Lock] {
        Token: "token" { value: "token", default: "the host name" }
            "name of this agent or holder; no two have the same";
    }
    [Agent Check Finish] {
        Start: "start" { value: "command" } "ensures that the service runs here, and ends";
        Stop: "stop" { value: "command" } "ensures that the service does not run here";
        Healthcheck: "healthcheck" { value: "command", default: "none" }
            "succeeds if the service is, or could be, fit here";
        Priority: "priority" { value: "number", default: "1" }
            "1 takes a free lock first, 15 last; never takes none";
        Failback: "failback" { value: "time", default: "never" }
            "give the service back to an agent of a better priority that was fit for so long";
        Seats: "seats" { value: "count", default: "1" }
            "how many agents may be active at once";
        Agents: "agents" { value: "count", default: "none" }
            "how many agents of this key there are to be: status and doctor warn of fewer";
        Observe: "observe" {}
            "take no lock and run no service; only log what this agent would do";
        CheckFailures: "check-failures" { value: "count", default: "1" }
            "failing health checks in a row before the service moves";
        StartGrace: "start-grace" { value: "time", default: "0" }
            "for so long after the first start, failing health checks only warn";
        LastResort: "last-resort" { value: "command", default: "none" }
            "cuts off a service that stop could not stop in time";
    }
    [Agent Check Finish Doctor] {
        Watchdog: "watchdog" { value: "device", default: "none" }
            "resets this host when agent and guard are gone; DEVICE:required: no start without it";
    }
    [Agent Check Finish Timing Doctor] {
        Renewal: "renewal" { short: Some('r'), value: "time", default: "3s" }
            "R, from one renewal to the next, as in 3s or 500ms";
        Failures: "failures" { short: Some('f'), value: "count", default: "3" }
            "F, renewals that must be missed before a takeover";
        Confirmations: "confirmations" { short: Some('c'), value: "count", default: "2" }
            "C, renewals between a takeover and the start";
    }
    [Lock Grab] {
        Shared: "shared" { short: Some('s') }
            "others with -s may hold the lock at the same time";
        Exclusive: "exclusive" { short: Some('x'), others: &["-e"] }
            "nobody else may hold the lock at the same time (the default)";
    }
    [Lock] {
        Slots: "slots" { short: Some('j'), value: "count" }
            "how many may hold the lock at the same time, each with a slot of its own";
        Soft: "soft" {}
            "let others go first: ask only while nobody holds the lock";
        QuietFor: "quiet-for" { value: "time" }
            "as --soft, once nobody has held the lock for so long";
        HardAfter: "hard-after" { value: "time" }
            "let others go first for so long at most";
    }
    [Lock Grab] {
        NoWait: "nonblock" { short: Some('n'), others: &["--nb", "--nonblocking"] }
            "end at once if the lock is not free";
        BusyStatus: "conflict-exit-code" { short: Some('E'), value: "status", default: "75" }
            "exit status if the lock was not acquired";
    }
    [Lock Grab Lease] {
        Wait: "timeout" { short: Some('w'), others: &["--wait"], value: "seconds" }
            "wait for so long at most; a number is seconds";
    }
    [Lock] {
        KillAfter: "kill-after" { short: Some('k'), value: "time", default: "2s" }
            "from SIGTERM to SIGKILL when the lock is lost";
        Hold: "hold" { value: "time" }
            "hold the lock for so long at least, also after the command";
        Report: "report" { value: "file" }
            "append a line of JSON that says how the command ended";
        LockRenewal: "renewal" { short: Some('r'), value: "time", default: "5s" }
            "R, from one renewal to the next, as in 3s or 500ms";
        LockFailures: "failures" { short: Some('f'), value: "count", default: "3" }
            "F, renewals that must be missed before others get the lock";
        Close: "close" { short: Some('o') }
            "the command does not inherit the lock of a directory, nor does what it starts";
        CommandString: "command" { short: Some('c'), value: "string" }
            "after NAME: the command, as a line for $SHELL or /bin/sh";
    }
    [Grab] {
        For: "for" { value: "time", default: "60s" }
            "the lock, or the place in the queue, runs out after so long";
    }
    [Grab Release Lease Put Status] {
        As: "as" { value: "who", default: "the token of putex.conf, or the host name" }
            "name of the requester; the same name is the same requester";
    }
    [Release] {
        Force: "force" {} "take the lock away from the holder that --holder names";
        Holder: "holder" { value: "who" } "with --force: the holder that loses the lock";
    }
    [Lease] {
        LeaseFor: "for" { value: "time" }
            "claim, extend: for so long at least";
    }
    [Status Doctor] {
        Json: "json" {} "print an object of JSON";
    }
    [Status] {
        Is: "is" { short: Some('e'), value: "question" }
            "exit with 0 for yes, 1 for no: held, free, mine, active, paused or holder=TOKEN";
        Print: "print" { value: "field" } "print one value only: holder, host or term";
    }
    [Switchover] {
        From: "from" { value: "who" } "agent that gives its lock up; needed if several have one";
        To: "to" { value: "who", default: "the best candidate" } "agent that the service moves to";
        SwitchoverWait: "timeout" {
            short: Some('w'), others: &["--wait"], value: "seconds", default: "30s"
        }
            "withdraw it if the holder has not begun after so long";
    }
    [Pause] {
        PauseFor: "for" { value: "time" }
            "how long the pause lasts, as in 2h";
        Reason: "reason" { value: "text" } "why, for whoever sees the pause";
    }
    [Pause Resume] {
        PauseWait: "timeout" {
            short: Some('w'), others: &["--wait"], value: "seconds", default: "10s"
        }
            "how long the agents have to acknowledge it";
    }
    [Doctor] {
        Ignore: "ignore" { value: "name[,name]" }
            "findings that do not make anything unfit";
        Strict: "strict" {} "exit with 1 if there is a warning, as a plugin of Nagios does";
        Samples: "samples" { value: "count", default: "50" }
            "how many reads and writes are measured";
    }
    [Put] {
        Lease: "lease" { value: "name" } "lease without which nothing is written";
    }
    [Agent Check Finish Lock Grab Lease Timing Doctor] {
        Drift: "drift" { value: "percent", default: "1%" }
            "how far the rate of a host's clock may be off";
    }
    [Agent Check Finish] {
        OnChange: "on-change" { value: "command", default: "none" }
            "is run at each change of this agent's state";
        MetricsFile: "metrics-file" { value: "file", default: "none" }
            "keep the metrics of this agent in this file, for Prometheus";
        NotifyFd: "notify-fd" { value: "number", default: "none" }
            "write a line to this descriptor when this agent stands by";
        Syslog: "syslog" {} "log to syslog instead of stderr";
    }
    [Agent Check Finish Lock Grab Release Lease Put Switchover Pause Resume] {
        Verbose: "verbose" { short: Some('v') } "say more";
        Quiet: "quiet" { short: Some('q') } "say less: -q warnings and errors, -qq errors";
    }
    [Check] {
        Connect: "connect" {}
            "ask the servers too; nothing is written or created there";
    }
    [] {
        Password: "(password)" { env: "NATS_PASSWORD" } "password of the user, which is no option";
        AuthToken: "(auth token)" { env: "NATS_TOKEN" } "token to log in with, which is no option";
    }
    [All] {
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

    /// Returns whether it says where the bucket is, or how one is created. Commands have these in
    /// common, and `putex help store` explains them.
    pub fn is_of_store(self) -> bool {
        self <= AllowMemory
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
    let wrong = &*wrong.to_lowercase();
    let like = |known: String| (strsim::osa_distance(wrong, &known), known);
    let known: Vec<_> = known.into_iter().map(like).collect();
    let letters = |word: &str| word.trim_start_matches('-').len();
    let nearest = known.iter().min().filter(|(differences, nearest)| {
        *differences <= DIFFERENCES_MAX && *differences * 3 < letters(nearest)
    });
    let begins =
        |(_, known): &&(usize, String)| letters(wrong) >= BEGINNING_MIN && known.starts_with(wrong);
    let nearest = nearest.or_else(|| known.iter().find(begins));
    nearest.map_or(String::new(), |(_, nearest)| format!("; the nearest is {nearest}"))
}

/// So many letters of a word are enough to know it by its beginning.
const BEGINNING_MIN: usize = 4;

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

    /// Returns it with its value, as a user has written the flag, for messages.
    pub(super) fn with_value(&self, written: &str) -> String {
        format!("{written} {}", self.value.to_uppercase())
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
