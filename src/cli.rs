//! The command line: a loop over the words that only validates, and what they
//! come to.

pub mod access;
pub mod help;
pub mod report;
pub mod table;
pub mod topics;
mod value;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};
use log::LevelFilter;

use self::access::{Access, Typed as TypedAccess};
use self::table::{FLAGS, Flag, Name, Verb};
use self::value::{count, descriptor, device, drift_ppm, duration, replicas};
use crate::core::bite::wanted_timeout;
use crate::core::timing::{DRIFT_PPM_DEFAULT, Timing};
use crate::exit::Exit;
use crate::store::name::{valid_bucket, valid_key};

/// Longest token that is accepted: a host name has at most 64 bytes on Linux, a
/// domain name 253.
const TOKEN_BYTES_MAX: usize = 255;

/// What the user wants.
#[derive(Debug)]
pub enum Wish {
    /// Run the agent.
    Agent(Box<AgentArgs>),
    /// Say that this command line is right.
    Check(Box<AgentArgs>),
    /// Stop what this agent and its guard left.
    Finish(Box<AgentArgs>),
    /// Run the guard of the agent that started this process.
    Guard,
    /// Print this and end well: help, version, timing.
    Print(String),
}

/// What the agent was asked for, valid word by word.
#[derive(Debug)]
pub struct AgentArgs {
    /// Where the lock is kept.
    pub place: Place,
    /// Who this agent is to the servers, and how they are talked to.
    pub access: Access,
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// Who this agent is.
    pub token: String,
    /// The operator's commands.
    pub check: Option<String>,
    /// See `check`.
    pub start: String,
    /// See `check`.
    pub stop: String,
    /// See `check`.
    pub last_resort: Option<String>,
    /// The watchdog device, and whether it is required.
    pub device: Option<(String, bool)>,
    /// Whether to run with real-time priority.
    pub realtime: bool,
    /// R, F, C and drift.
    pub timing: Timing,
    /// Copies of a bucket that has to be made.
    pub replicas: u32,
    /// Whether a bucket in memory is good enough.
    pub allow_memory: bool,
    /// Descriptor that is written to when the agent stands by.
    pub notify_fd: Option<i32>,
    /// Log to syslog.
    pub syslog: bool,
    /// How much is logged.
    pub level: LevelFilter,
}

/// Where the lock is kept.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// In NATS JetStream; the servers as they were given, secrets included.
    Nats(String),
    /// In NATS JetStream; the context says by which servers.
    Context,
    /// In this directory.
    Dir(PathBuf),
    /// In the directory that is the default on this host.
    DefaultDir,
}

/// Why a command line is refused: one line, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the user is told.
    pub text: String,
    /// How the process ends.
    pub exit: Exit,
}

fn usage(text: String) -> Refusal {
    let words: Vec<String> = text.split(' ').map(without_secret).collect();
    Refusal {
        text: words.join(" ").replace(char::is_control, "?"),
        exit: Exit::Usage,
    }
}

/// Returns a word as it may be shown: what stands before an `@` in a URL may be a
/// password, wherever the URL was put by mistake.
fn without_secret(word: &str) -> String {
    match word.rsplit_once('@') {
        Some((before, place)) => {
            let scheme = before.split('@').next().and_then(|first| first.find("://"));
            format!("{}...@{place}", &before[..scheme.map_or(0, |at| at + 3)])
        }
        None => word.to_owned(),
    }
}

/// What was typed, before defaults.
#[derive(Default)]
struct Typed {
    nats: Option<String>,
    dir: Option<PathBuf>,
    access: TypedAccess,
    bucket: Option<String>,
    key: Option<String>,
    token: Option<String>,
    check: Option<String>,
    start: Option<String>,
    stop: Option<String>,
    last_resort: Option<String>,
    device: Option<(String, bool)>,
    realtime: bool,
    renewal: Option<Duration>,
    failures: Option<u32>,
    confirmations: Option<u32>,
    drift_ppm: Option<u32>,
    replicas: Option<u32>,
    allow_memory: bool,
    notify_fd: Option<i32>,
    syslog: bool,
    verbose: i32,
    places: Vec<String>,
}

/// What looks a variable of the environment up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a command line. `var` looks the environment up, `host` is this host's name.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    var: Lookup<'_>,
    host: &str,
) -> Result<Wish, Refusal> {
    let mut parser = Parser::from_args(words);
    let mut typed = Typed::default();
    let mut verb = None;
    let mut begun = false;
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        let (shown, flag) = match arg {
            Arg::Value(word) => {
                let word = plain("argument", word)?;
                match Verb::ALL.iter().find(|verb| verb.word() == word && !begun) {
                    Some(known) => verb = Some(*known),
                    None if verb.is_some_and(Verb::takes_words) => typed.places.push(word),
                    // The key: for whoever looks at a list of processes.
                    None if verb == Some(Verb::Guard) => {}
                    None if !begun => {
                        return Err(usage(format!("{word}: no such command; see putex --help")));
                    }
                    None => return Err(usage(format!("{word}: unexpected argument"))),
                }
                begun = true;
                continue;
            }
            Arg::Long(long) => {
                let known = FLAGS
                    .iter()
                    .find(|flag| flag.long == long && !long.is_empty());
                (format!("--{long}"), known)
            }
            Arg::Short(short) => (
                format!("-{short}"),
                FLAGS.iter().find(|flag| flag.short == Some(short)),
            ),
        };
        begun = true;
        let Some(flag) = flag else {
            return Err(usage(format!("{shown}: no such option; see putex --help")));
        };
        if let Some(verb) = verb.filter(|verb| !flag.verbs.contains(verb)) {
            let verb = verb.word();
            return Err(usage(format!("{shown}: not an option of putex {verb}")));
        }
        if flag.name == Name::Help {
            return Ok(Wish::Print(help::help(verb)));
        }
        if flag.name == Name::Version {
            return Ok(Wish::Print(version()));
        }
        typed.set(flag, &mut parser)?;
    }
    match verb.unwrap_or(Verb::Agent) {
        Verb::Guard => Ok(Wish::Guard),
        Verb::Timing => Ok(Wish::Print(report::report(typed.timing()?))),
        Verb::Help => topics::answer(&typed.places).map(Wish::Print),
        verb @ (Verb::Agent | Verb::Check | Verb::Finish) => {
            let args = Box::new(typed.agent(var, host)?);
            Ok(match verb {
                Verb::Check => Wish::Check(args),
                Verb::Finish => Wish::Finish(args),
                Verb::Agent | Verb::Timing | Verb::Help | Verb::Guard => Wish::Agent(args),
            })
        }
    }
}

fn version() -> String {
    format!("putex {}\n", env!("CARGO_PKG_VERSION"))
}

/// Returns an argument as text. Commands, keys and tokens are all UTF-8 here.
fn plain(what: &str, word: OsString) -> Result<String, Refusal> {
    word.into_string()
        .map_err(|word| usage(format!("{what}: {} is not UTF-8", word.display())))
}

impl Typed {
    /// Takes in one flag and its value.
    fn set(&mut self, flag: &Flag, parser: &mut Parser) -> Result<(), Refusal> {
        let shown = flag.shown();
        let mut value = || match flag.value {
            "" => Ok(String::new()),
            _ => {
                let word = parser.value().map_err(|error| usage(error.to_string()))?;
                plain(&shown, word)
            }
        };
        let text = value()?;
        let refuse = |why: &str| usage(format!("{shown}: {text}: {why}"));
        match flag.name {
            Name::Nats => self.nats = Some(text),
            Name::Dir => self.dir = Some(PathBuf::from(text)),
            Name::User
            | Name::PasswordFile
            | Name::AuthTokenFile
            | Name::Nkey
            | Name::Creds
            | Name::TlsCa
            | Name::TlsCert
            | Name::TlsKey
            | Name::TlsFirst
            | Name::InboxPrefix
            | Name::JsDomain
            | Name::JsApiPrefix
            | Name::Context => self.access.set(flag, text)?,
            Name::Bucket => self.bucket = Some(text),
            Name::Key => self.key = Some(text),
            Name::Token => self.token = Some(text),
            Name::Healthcheck => self.check = Some(text),
            Name::Start => self.start = Some(text),
            Name::Stop => self.stop = Some(text),
            Name::LastResort => self.last_resort = Some(text),
            Name::Watchdog => self.device = Some(device(&text).map_err(refuse)?),
            Name::Realtime => self.realtime = true,
            Name::Renewal => self.renewal = Some(duration(&text).map_err(refuse)?),
            Name::Failures => self.failures = Some(count(&text).map_err(refuse)?),
            Name::Confirmations => self.confirmations = Some(count(&text).map_err(refuse)?),
            Name::Drift => self.drift_ppm = Some(drift_ppm(&text).map_err(refuse)?),
            Name::Replicas => self.replicas = Some(replicas(&text).map_err(refuse)?),
            Name::AllowMemory => self.allow_memory = true,
            Name::NotifyFd => self.notify_fd = Some(descriptor(&text).map_err(refuse)?),
            Name::Syslog => self.syslog = true,
            Name::Verbose => self.verbose += 1,
            Name::Quiet => self.verbose -= 1,
            // Answered before anything is taken in.
            Name::Help | Name::Version => {}
        }
        Ok(())
    }

    fn timing(&self) -> Result<Timing, Refusal> {
        Timing::new(
            self.renewal.unwrap_or(Duration::from_secs(3)),
            self.failures.unwrap_or(3),
            self.confirmations.unwrap_or(2),
            self.drift_ppm.unwrap_or(DRIFT_PPM_DEFAULT),
        )
        .map_err(|refused| Refusal {
            text: refused.0,
            exit: Exit::Unsafe,
        })
    }

    /// Puts defaults in and checks what is whole.
    fn agent(mut self, var: Lookup<'_>, host: &str) -> Result<AgentArgs, Refusal> {
        self.spread_places()?;
        let place = self.place(var)?;
        let access = match &place {
            Place::Nats(_) | Place::Context => std::mem::take(&mut self.access).complete(var)?,
            Place::Dir(_) | Place::DefaultDir => self.access.without_server()?,
        };
        let bucket = self.bucket.take().unwrap_or_else(|| "putex".to_owned());
        valid_bucket(&bucket).map_err(|why| usage(format!("--bucket: {why}")))?;
        let key = needed("--key", self.key.take())?;
        valid_key(&key).map_err(|why| usage(format!("--key: {why}")))?;
        let timing = self.timing()?;
        let token = match self.token.take() {
            Some(token) => given_token(token)?,
            None => host_token(host)?,
        };
        let given = |command: Option<String>| command.filter(|text| !text.trim().is_empty());
        if let Some((_, true)) = self.device {
            wanted_timeout(timing).map_err(|why| Refusal {
                text: format!("--watchdog: {why}"),
                exit: Exit::Unsafe,
            })?;
        }
        Ok(AgentArgs {
            place,
            access,
            bucket,
            key,
            token,
            check: given(self.check.take()),
            start: needed("--start", self.start.take())?,
            stop: needed("--stop", self.stop.take())?,
            last_resort: given(self.last_resort.take()),
            device: self.device.take(),
            realtime: self.realtime,
            timing,
            replicas: self.replicas.unwrap_or(1),
            allow_memory: self.allow_memory,
            notify_fd: self.notify_fd,
            syslog: self.syslog,
            level: match self.verbose {
                ..=-2 => LevelFilter::Error,
                -1 => LevelFilter::Warn,
                0 => LevelFilter::Info,
                1.. => LevelFilter::Debug,
            },
        })
    }

    fn place(&mut self, var: Lookup<'_>) -> Result<Place, Refusal> {
        if self.nats.is_some() && self.dir.is_some() {
            return Err(usage(
                "--dir: the lock is kept in --nats or in --dir, not in both".to_owned(),
            ));
        }
        if let Some(dir) = self.dir.take() {
            return match dir.as_os_str().is_empty() {
                true => Err(usage("--dir: is empty".to_owned())),
                false => Ok(Place::Dir(dir)),
            };
        }
        let set = |name| var(name).filter(|value| !value.is_empty());
        let context = self.access.has_context() || set("NATS_CONTEXT").is_some();
        Ok(match self.nats.take().or_else(|| set("NATS_URL")) {
            Some(urls) => Place::Nats(urls),
            None if context => Place::Context,
            None => Place::DefaultDir,
        })
    }

    /// `putex agent SERVER BUCKET KEY TOKEN`
    fn spread_places(&mut self) -> Result<(), Refusal> {
        let places = std::mem::take(&mut self.places);
        let [server, bucket, key, token] = match <[String; 4]>::try_from(places) {
            Ok(four) => four,
            Err(none) if none.is_empty() => return Ok(()),
            Err(some) => {
                let count = some.len();
                let text = format!(
                    "{}: SERVER BUCKET KEY TOKEN are four arguments, not {count}",
                    some[0]
                );
                return Err(usage(text));
            }
        };
        let slots = [
            ("--nats", &mut self.nats, server),
            ("--bucket", &mut self.bucket, bucket),
            ("--key", &mut self.key, key),
            ("--token", &mut self.token, token),
        ];
        for (shown, slot, value) in slots {
            if slot.replace(value).is_some() {
                return Err(usage(format!(
                    "{shown}: given twice, as an option and as an argument"
                )));
            }
        }
        Ok(())
    }
}

fn needed(shown: &str, value: Option<String>) -> Result<String, Refusal> {
    match value {
        Some(value) if value.trim().is_empty() => Err(usage(format!("{shown}: is empty"))),
        Some(value) => Ok(value),
        None => Err(usage(format!("{shown}: is missing; see putex --help"))),
    }
}

fn given_token(token: String) -> Result<String, Refusal> {
    let refuse = |why: String| Err(usage(format!("--token: {why}")));
    if token.trim().is_empty() {
        return refuse("is empty".to_owned());
    }
    if token.len() > TOKEN_BYTES_MAX {
        return refuse(format!(
            "{} bytes are more than the maximum of {TOKEN_BYTES_MAX}",
            token.len()
        ));
    }
    if token.chars().any(char::is_control) || token.trim() != token {
        return refuse(format!(
            "{token:?} has blanks around it or control characters in it"
        ));
    }
    Ok(token)
}

/// The host's name, unless every host that was not set up has it.
fn host_token(host: &str) -> Result<String, Refusal> {
    let common = ["", "(none)", "localhost", "localhost.localdomain"].contains(&host);
    match common || given_token(host.to_owned()).is_err() {
        true => Err(usage(format!(
            "--token: is missing, and the host name {host:?} is not this host's own"
        ))),
        false => Ok(host.to_owned()),
    }
}

#[cfg(test)]
mod tests;
