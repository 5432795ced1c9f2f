//! The one table of commands and flags. The parser, `--help`, the completions and the
//! tests of the manual pages use it.

pub use super::subcommand::Subcommand;

/// The name of a flag in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `--nats`
    Nats,
    /// `--context`
    Context,
    /// `--user`
    User,
    /// `--password-file`
    PasswordFile,
    /// `--auth-token-file`
    AuthTokenFile,
    /// `--nkey`
    Nkey,
    /// `--creds`
    Creds,
    /// `--tlsca`
    TlsCa,
    /// `--tlscert`
    TlsCert,
    /// `--tlskey`
    TlsKey,
    /// `--tlsfirst`
    TlsFirst,
    /// `--inbox-prefix`
    InboxPrefix,
    /// `--js-domain`
    JsDomain,
    /// `--js-api-prefix`
    JsApiPrefix,
    /// `--config`
    Config,
    /// `--connect`
    Connect,
    /// `--dir`
    Dir,
    /// `--bucket`
    Bucket,
    /// `--key`
    Key,
    /// `--token`
    Token,
    /// `--healthcheck`
    Healthcheck,
    /// `--start`
    Start,
    /// `--stop`
    Stop,
    /// `--check-failures`
    CheckFailures,
    /// `--start-grace`
    StartGrace,
    /// `--last-resort`
    LastResort,
    /// `--watchdog`
    Watchdog,
    /// `--realtime`
    Realtime,
    /// `-r`, `--renewal`
    Renewal,
    /// `-f`, `--failures`
    Failures,
    /// `-c`, `--confirmations`
    Confirmations,
    /// `--drift`
    Drift,
    /// `--replicas`
    Replicas,
    /// `--allow-memory`
    AllowMemory,
    /// `--notify-fd`
    NotifyFd,
    /// `--syslog`
    Syslog,
    /// `-v`
    Verbose,
    /// `-q`
    Quiet,
    /// `-h`
    Help,
    /// `-V`
    Version,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name in the code.
    pub name: Name,
    /// Its long name without dashes.
    pub long: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// The name of its value; blank for a switch.
    pub value: &'static str,
    /// Its default as a user would write it; blank for none.
    pub default: &'static str,
    /// The environment variable of the same meaning; blank for none.
    pub env: &'static str,
    /// The commands that take it.
    pub subcommands: &'static [Subcommand],
    /// One line of help.
    pub help: &'static str,
}

const AGENT: &[Subcommand] = &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish];
const BOTH: &[Subcommand] =
    &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish, Subcommand::Timing];
const ALL: &[Subcommand] = &Subcommand::ALL;

const fn flag(name: Name, long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, long, short: None, value, default: "", env: "", subcommands: AGENT, help }
}

/// All flags, in the order of the help text.
pub const FLAGS: &[Flag] = &[
    Flag {
        env: "PUTEX_CONFIG",
        default: "/etc/putex/putex.conf",
        ..flag(
            Name::Config,
            "config",
            "file",
            "what is given neither here nor in the environment is in this file",
        )
    },
    Flag {
        env: "NATS_URL",
        ..flag(Name::Nats, "nats", "url[,url]", "keep the lock in NATS JetStream, by these servers")
    },
    Flag {
        env: "NATS_CONTEXT",
        ..flag(
            Name::Context,
            "context",
            "name",
            "take what is not given otherwise from this context of the nats command",
        )
    },
    Flag {
        env: "NATS_USER",
        ..flag(Name::User, "user", "name", "log in as this user, unless a URL names one")
    },
    flag(
        Name::PasswordFile,
        "password-file",
        "file",
        "the user's password is the line of this file",
    ),
    flag(
        Name::AuthTokenFile,
        "auth-token-file",
        "file",
        "log in with the token that is the line of this file",
    ),
    Flag {
        env: "NATS_NKEY",
        ..flag(Name::Nkey, "nkey", "file", "log in with the nkey whose seed is in this file")
    },
    Flag {
        env: "NATS_CREDS",
        ..flag(Name::Creds, "creds", "file", "log in with the JWT and the nkey in this file")
    },
    Flag {
        env: "NATS_CA",
        default: "the system's roots",
        ..flag(Name::TlsCa, "tlsca", "file", "who may sign a server's certificate")
    },
    Flag {
        env: "NATS_CERT",
        ..flag(Name::TlsCert, "tlscert", "file", "certificate that is shown to a server that asks")
    },
    Flag { env: "NATS_KEY", ..flag(Name::TlsKey, "tlskey", "file", "key of that certificate") },
    flag(Name::TlsFirst, "tlsfirst", "", "begin with TLS before the server says anything"),
    Flag {
        default: "_INBOX",
        ..flag(
            Name::InboxPrefix,
            "inbox-prefix",
            "subject",
            "subject below which replies are asked for",
        )
    },
    flag(Name::JsDomain, "js-domain", "name", "JetStream domain that the bucket is in"),
    Flag {
        default: "$JS.API",
        ..flag(
            Name::JsApiPrefix,
            "js-api-prefix",
            "subject",
            "subject below which the API of JetStream answers",
        )
    },
    flag(Name::Dir, "dir", "dir", "keep the lock in a directory: agents on this host only"),
    Flag { default: "putex", ..flag(Name::Bucket, "bucket", "name", "bucket that holds the key") },
    flag(Name::Key, "key", "key", "key that is the lock"),
    Flag {
        default: "the host name",
        ..flag(Name::Token, "token", "token", "who this agent is; no two agents have one token")
    },
    flag(Name::Start, "start", "command", "asserts that the service runs here"),
    flag(Name::Stop, "stop", "command", "asserts that the service does not run here"),
    Flag {
        default: "none",
        ..flag(
            Name::Healthcheck,
            "healthcheck",
            "command",
            "succeeds if the service is, or could be, fit here",
        )
    },
    Flag {
        default: "1",
        ..flag(
            Name::CheckFailures,
            "check-failures",
            "count",
            "failing health checks in a row before the service moves",
        )
    },
    Flag {
        default: "0",
        ..flag(
            Name::StartGrace,
            "start-grace",
            "time",
            "after the first start of a term, failing health checks only warn for so long",
        )
    },
    Flag {
        default: "none",
        ..flag(
            Name::LastResort,
            "last-resort",
            "command",
            "makes an end of a service that stop could not stop in time",
        )
    },
    Flag {
        default: "none",
        ..flag(
            Name::Watchdog,
            "watchdog",
            "device",
            "resets this host when all else fails; with :required never without",
        )
    },
    flag(
        Name::Realtime,
        "realtime",
        "",
        "run before all that has no real-time priority, locked in memory",
    ),
    Flag {
        short: Some('r'),
        default: "3s",
        subcommands: BOTH,
        ..flag(
            Name::Renewal,
            "renewal",
            "time",
            "R, from one renewal to the next: milliseconds, or with ms, s, m",
        )
    },
    Flag {
        short: Some('f'),
        default: "3",
        subcommands: BOTH,
        ..flag(
            Name::Failures,
            "failures",
            "count",
            "F, renewals that must be missed before a takeover",
        )
    },
    Flag {
        short: Some('c'),
        default: "2",
        subcommands: BOTH,
        ..flag(
            Name::Confirmations,
            "confirmations",
            "count",
            "C, renewals between a takeover and the start",
        )
    },
    Flag {
        default: "1%",
        subcommands: BOTH,
        ..flag(Name::Drift, "drift", "percent", "how far the rate of a host's clock may be off")
    },
    Flag {
        default: "1",
        ..flag(
            Name::Replicas,
            "replicas",
            "count",
            "servers that keep a copy of a bucket made by putex",
        )
    },
    flag(
        Name::AllowMemory,
        "allow-memory",
        "",
        "accept a bucket that its server forgets when it restarts",
    ),
    Flag {
        default: "none",
        ..flag(
            Name::NotifyFd,
            "notify-fd",
            "number",
            "descriptor that is written a line when this agent stands by",
        )
    },
    flag(Name::Syslog, "syslog", "", "log to the syslog daemon of this host instead of stderr"),
    Flag { short: Some('v'), ..flag(Name::Verbose, "verbose", "", "say more") },
    Flag {
        short: Some('q'),
        ..flag(Name::Quiet, "quiet", "", "say less: -q warnings and errors, -qq errors")
    },
    Flag {
        subcommands: &[Subcommand::Check],
        ..flag(
            Name::Connect,
            "connect",
            "",
            "ask the servers too; nothing is written or made there",
        )
    },
    Flag { short: Some('h'), subcommands: ALL, ..flag(Name::Help, "help", "", "show this help") },
    Flag {
        short: Some('V'),
        subcommands: ALL,
        ..flag(Name::Version, "version", "", "show the version")
    },
];

/// Returns a flag as a user writes it, for messages.
pub(super) fn shown(name: Name) -> String {
    let flag = FLAGS.iter().find(|flag| flag.name == name);
    flag.map(Flag::shown).unwrap_or_default()
}

impl Flag {
    /// Returns the flag as a user writes it, for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match (self.long, self.short) {
            ("", Some(short)) => format!("-{short}"),
            (long, _) => format!("--{long}"),
        }
    }

    /// Returns its key in a configuration file, which is the long name; `None` if it makes
    /// sense on a command line only.
    #[must_use]
    pub fn key(&self) -> Option<&'static str> {
        let is_line_only =
            matches!(self.name, Name::Config | Name::Connect | Name::Help | Name::Version);
        (!is_line_only).then_some(self.long)
    }
}
