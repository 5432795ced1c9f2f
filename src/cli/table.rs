//! The one table of commands and flags. The parser, `--help`, the completions and the
//! tests of the manual pages use it.

use self::Name::*;
pub use super::subcommand::Subcommand;

/// The name of a flag in the code. The order is that of [`FLAGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// `--config`
    Config,
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
    /// `--dir`
    Dir,
    /// `--bucket`
    Bucket,
    /// `--key`
    Key,
    /// `--token`
    Token,
    /// `--start`
    Start,
    /// `--stop`
    Stop,
    /// `--healthcheck`
    Healthcheck,
    /// `--check-failures`
    CheckFailures,
    /// `--start-grace`
    StartGrace,
    /// `--last-resort`
    LastResort,
    /// `--watchdog`
    Watchdog,
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
    /// `--connect`
    Connect,
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

/// The commands that take the options of R, F, C and drift.
const TIMING: &[Subcommand] =
    &[Subcommand::Agent, Subcommand::Check, Subcommand::Finish, Subcommand::Timing];

/// Returns a flag of the agent's commands: its name in the code, its long name, the name of its
/// value, its default, its environment variable.
const fn flag(
    name: Name,
    long: &'static str,
    value: &'static str,
    default: &'static str,
    env: &'static str,
) -> Flag {
    let subcommands = Subcommand::AGENTS;
    Flag { name, long, short: None, value, default, env, subcommands, help: "" }
}

impl Flag {
    const fn help(self, help: &'static str) -> Flag {
        Flag { help, ..self }
    }

    const fn short(self, short: char) -> Flag {
        Flag { short: Some(short), ..self }
    }

    const fn of(self, subcommands: &'static [Subcommand]) -> Flag {
        Flag { subcommands, ..self }
    }
}

/// All flags, in the order of [`Name`] and of the help text.
pub const FLAGS: &[Flag] = &[
    flag(Config, "config", "file", "/etc/putex/putex.conf", "PUTEX_CONFIG")
        .help("what is given neither here nor in the environment is in this file"),
    flag(Nats, "nats", "url[,url]", "", "NATS_URL")
        .help("keep the lock in NATS JetStream, by these servers"),
    flag(Context, "context", "name", "", "NATS_CONTEXT")
        .help("take what is not given otherwise from this context of the nats command"),
    flag(User, "user", "name", "", "NATS_USER").help("log in as this user, unless a URL names one"),
    flag(PasswordFile, "password-file", "file", "", "")
        .help("the user's password is the line of this file"),
    flag(AuthTokenFile, "auth-token-file", "file", "", "")
        .help("log in with the token that is the line of this file"),
    flag(Nkey, "nkey", "file", "", "NATS_NKEY")
        .help("log in with the nkey whose seed is in this file"),
    flag(Creds, "creds", "file", "", "NATS_CREDS")
        .help("log in with the JWT and the nkey in this file"),
    flag(TlsCa, "tlsca", "file", "the system's roots", "NATS_CA")
        .help("who may sign a server's certificate"),
    flag(TlsCert, "tlscert", "file", "", "NATS_CERT")
        .help("certificate that is shown to a server that asks"),
    flag(TlsKey, "tlskey", "file", "", "NATS_KEY").help("key of that certificate"),
    flag(TlsFirst, "tlsfirst", "", "", "").help("begin with TLS before the server says anything"),
    flag(InboxPrefix, "inbox-prefix", "subject", "_INBOX", "")
        .help("subject below which replies are asked for"),
    flag(JsDomain, "js-domain", "name", "", "").help("JetStream domain that the bucket is in"),
    flag(JsApiPrefix, "js-api-prefix", "subject", "$JS.API", "")
        .help("subject below which the API of JetStream answers"),
    flag(Dir, "dir", "dir", "", "").help("keep the lock in a directory: agents on this host only"),
    flag(Bucket, "bucket", "name", "putex", "").help("bucket that holds the key"),
    flag(Key, "key", "key", "", "").help("key that is the lock"),
    flag(Token, "token", "token", "the host name", "")
        .help("who this agent is; no two agents have one token"),
    flag(Start, "start", "command", "", "").help("asserts that the service runs here"),
    flag(Stop, "stop", "command", "", "").help("asserts that the service does not run here"),
    flag(Healthcheck, "healthcheck", "command", "none", "")
        .help("succeeds if the service is, or could be, fit here"),
    flag(CheckFailures, "check-failures", "count", "1", "")
        .help("failing health checks in a row before the service moves"),
    flag(StartGrace, "start-grace", "time", "0", "")
        .help("after the first start of a term, failing health checks only warn for so long"),
    flag(LastResort, "last-resort", "command", "none", "")
        .help("cuts off a service that stop could not stop in time"),
    flag(Watchdog, "watchdog", "device", "none", "")
        .help("resets this host when all else fails; with :required never without"),
    flag(Renewal, "renewal", "time", "3s", "")
        .help("R, from one renewal to the next: milliseconds, or with ms, s, m")
        .short('r')
        .of(TIMING),
    flag(Failures, "failures", "count", "3", "")
        .help("F, renewals that must be missed before a takeover")
        .short('f')
        .of(TIMING),
    flag(Confirmations, "confirmations", "count", "2", "")
        .help("C, renewals between a takeover and the start")
        .short('c')
        .of(TIMING),
    flag(Drift, "drift", "percent", "1%", "")
        .help("how far the rate of a host's clock may be off")
        .of(TIMING),
    flag(Replicas, "replicas", "count", "1", "")
        .help("servers that keep a copy of a bucket made by putex"),
    flag(AllowMemory, "allow-memory", "", "", "")
        .help("accept a bucket that its server forgets when it restarts"),
    flag(NotifyFd, "notify-fd", "number", "none", "")
        .help("descriptor that is written a line when this agent stands by"),
    flag(Syslog, "syslog", "", "", "")
        .help("log to the syslog daemon of this host instead of stderr"),
    flag(Verbose, "verbose", "", "", "").help("say more").short('v'),
    flag(Quiet, "quiet", "", "", "")
        .help("say less: -q warnings and errors, -qq errors")
        .short('q'),
    flag(Connect, "connect", "", "", "")
        .help("ask the servers too; nothing is written or made there")
        .of(&[Subcommand::Check]),
    flag(Help, "help", "", "", "").help("show this help").short('h').of(&Subcommand::ALL),
    flag(Version, "version", "", "", "").help("show the version").short('V').of(&Subcommand::ALL),
];

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
    /// Returns the flag that a user writes so, with one dash or two.
    pub fn find(written: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| match written.strip_prefix("--") {
            Some(long) => flag.long == long,
            None => flag.short.is_some_and(|short| written == format!("-{short}")),
        })
    }

    /// Returns the flag as a user writes it, for messages.
    pub fn shown(&self) -> String {
        format!("--{}", self.long)
    }

    /// Returns its key in a configuration file, which is the long name; `None` if it makes
    /// sense on a command line only.
    pub fn key(&self) -> Option<&'static str> {
        let is_line_only = matches!(self.name, Config | Connect | Help | NotifyFd | Version);
        (!is_line_only).then_some(self.long)
    }

    /// Returns its default if it is a value; `None` for none, or one that is described.
    pub(super) fn default_value(&self) -> Option<&'static str> {
        let is_value = !["", "none"].contains(&self.default) && !self.default.contains(' ');
        is_value.then_some(self.default)
    }
}
