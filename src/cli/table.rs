//! The one table of commands and flags. The parser, `--help`, the completions and the
//! tests of the manual pages use it.

use self::Name::*;
pub use super::subcommand::Subcommand;

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

/// A switch of the agent's commands. Each row of [`FLAGS`] begins with it.
const SWITCH: Flag = Flag {
    name: Config,
    long: "",
    short: None,
    value: "",
    default: "",
    env: "",
    subcommands: Subcommand::AGENTS,
    help: "",
};

/// Makes [`Name`] and [`FLAGS`] of one list: of each flag its name in the code, its long name,
/// the fields that differ from [`SWITCH`], and its line of help.
macro_rules! flags {
    ($($name:ident: $long:literal { $($field:ident: $value:expr),* } $help:literal;)*) => {
        /// The name of a flag in the code. The order is that of [`FLAGS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Name {
            $(#[doc = concat!("`--", $long, "`")] $name,)*
        }

        /// All flags, in the order of [`Name`] and of the help text.
        pub const FLAGS: &[Flag] = &[
            $(Flag { name: $name, long: $long, $($field: $value,)* help: $help, ..SWITCH },)*
        ];
    };
}

flags! {
    Config: "config" { value: "file", default: "/etc/putex/putex.conf", env: "PUTEX_CONFIG" }
        "file with the settings that neither options nor environment give";
    Nats: "nats" { value: "url[,url]", env: "NATS_URL" }
        "keep the lock in NATS JetStream, by these servers";
    Context: "context" { value: "name", env: "NATS_CONTEXT" }
        "take what is not given otherwise from this context of the nats command";
    User: "user" { value: "name", env: "NATS_USER" } "log in as this user, unless a URL names one";
    PasswordFile: "password-file" { value: "file" } "the user's password is the line of this file";
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
    Dir: "dir" { value: "dir" } "keep the lock in a directory: agents on this host only";
    Bucket: "bucket" { value: "name", default: "putex" } "bucket that holds the key";
    Key: "key" { value: "key" } "key that is the lock";
    Token: "token" { value: "token", default: "the host name" }
        "who this agent is; no two agents have one token";
    Start: "start" { value: "command" } "asserts that the service runs here";
    Stop: "stop" { value: "command" } "asserts that the service does not run here";
    Healthcheck: "healthcheck" { value: "command", default: "none" }
        "succeeds if the service is, or could be, fit here";
    CheckFailures: "check-failures" { value: "count", default: "1" }
        "failing health checks in a row before the service moves";
    StartGrace: "start-grace" { value: "time", default: "0" }
        "after the first start of a term, failing health checks only warn for so long";
    LastResort: "last-resort" { value: "command", default: "none" }
        "cuts off a service that stop could not stop in time";
    Watchdog: "watchdog" { value: "device", default: "none" }
        "resets this host when all else fails; with :required, no start without it";
    Renewal: "renewal" { short: Some('r'), value: "time", default: "3s", subcommands: TIMING }
        "R, from one renewal to the next: milliseconds, or with ms, s, m";
    Failures: "failures" { short: Some('f'), value: "count", default: "3", subcommands: TIMING }
        "F, renewals that must be missed before a takeover";
    Confirmations: "confirmations"
        { short: Some('c'), value: "count", default: "2", subcommands: TIMING }
        "C, renewals between a takeover and the start";
    Drift: "drift" { value: "percent", default: "1%", subcommands: TIMING }
        "how far the rate of a host's clock may be off";
    Replicas: "replicas" { value: "count", default: "1" }
        "servers that keep a copy of a bucket made by putex";
    AllowMemory: "allow-memory" {} "accept a bucket that its server forgets when it restarts";
    NotifyFd: "notify-fd" { value: "number", default: "none" }
        "descriptor that is written a line when this agent stands by";
    Syslog: "syslog" {} "log to the syslog daemon of this host instead of stderr";
    Verbose: "verbose" { short: Some('v') } "say more";
    Quiet: "quiet" { short: Some('q') } "say less: -q warnings and errors, -qq errors";
    Connect: "connect" { subcommands: &[Subcommand::Check] }
        "ask the servers too; nothing is written or made there";
    Help: "help" { short: Some('h'), subcommands: &Subcommand::ALL } "show this help";
    Version: "version" { short: Some('V'), subcommands: &Subcommand::ALL } "show the version";
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
