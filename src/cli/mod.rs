//! The command line: its table of commands and options, the settings that it, the
//! environment, a configuration file and a context give, and the values that a command
//! runs with.
//!
//! | file | content |
//! |---|---|
//! | `table`, `subcommand` | every option and every command |
//! | `parse`, and a file for each command with a page | words to an [`Invocation`] |
//! | `instead` | words of other programs, and the words of putex for the same |
//! | `settings`, `config` | the settings of all origins, each with its origin |
//! | `line` | what the parser of each command reads a line by |
//! | `resolve`, `access`, `value` | settings to values, and every fault in them |
//! | `context`, `connect` | files of the nats command; a location to a store |
//! | `help`, `topics`, `timing` | texts that are printed |

pub mod access;
pub mod config;
pub mod connect;
pub mod context;
mod doctor;
mod grab;
pub mod help;
mod instead;
pub mod lease;
mod line;
mod lock;
mod parse;
mod pause;
pub mod resolve;
pub mod settings;
mod status;
mod subcommand;
mod switchover;
pub mod table;
pub mod timing;
pub mod topics;
mod value;

use std::ffi::OsString;
use std::path::PathBuf;

use self::access::Access;
use self::config::ReadConfig;
pub use self::doctor::{DoctorArgs, FINDINGS};
pub use self::parse::parse;
use self::resolve::Resolved;
use self::settings::Settings;
use crate::core::{Config, Seat, sanitize};
use crate::exit::{Exit, Refusal};
use crate::guard::protocol;

/// A command with its arguments.
#[derive(Debug)]
pub enum Invocation {
    /// Run the agent.
    Agent(Box<AgentArgs>),
    /// Show the settings of an agent and every fault in them.
    Check(Box<CheckArgs>),
    /// Stop the service that an agent and its guard left. The faults are those of
    /// settings that `finish` does not need; they are only reported.
    Finish(Box<AgentArgs>, Vec<Refusal>),
    /// Do something once with what stands in a bucket.
    Once(BucketArgs, Box<Request>),
    /// Measure whether all is fit.
    Doctor {
        /// Whether an object of JSON is asked for.
        is_json: bool,
        /// The arguments of the measurement, or why nothing can be measured.
        args: Box<Result<DoctorArgs, Refusal>>,
    },
    /// Run the guard of the agent that started this process.
    Guard,
    /// Print this text and exit with success: help, version, timing.
    Print(String),
}

/// A request to a command that ends by itself.
#[derive(Debug)]
pub enum Request {
    /// Run a command while a lock is held.
    Lock(crate::lock::Request),
    /// Get a lock for a script, or release it.
    Grab(crate::grab::Request),
    /// Do something with leases.
    Lease(crate::lease::Request),
    /// Write under a lease.
    Put(crate::lease::Put),
    /// Make the bucket.
    Init,
    /// Show who holds what.
    Status(crate::status::Request),
    /// Move a lock to another agent.
    Switchover(crate::switchover::Request),
    /// Begin or end a pause.
    Pause(crate::pause::Request),
}

/// The arguments of `putex check`.
#[derive(Debug)]
pub struct CheckArgs {
    /// All settings with their origins.
    pub settings: Settings,
    /// The configuration file that was read.
    pub config: Option<String>,
    /// The values of the settings, and their faults.
    pub resolved: Resolved,
}

/// The arguments of an agent, each of them valid.
#[derive(Debug)]
pub struct AgentArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// The configuration by which the agent decides.
    pub config: Config,
    /// The path of the file with the metrics of the agent, if there is one.
    pub metrics_file: Option<String>,
    /// The descriptor to which a line is written when the agent stands by.
    pub notify_fd: Option<i32>,
    /// The settings that the guard needs too, but for its directory.
    pub guard: protocol::Settings,
}

impl AgentArgs {
    /// Returns the keys of all seats.
    pub fn keys(&self) -> Vec<String> {
        let key = &self.guard.commands.key;
        Seat::all(self.config.seats).map(|seat| seat.key(key)).collect()
    }
}

/// Where the bucket of a command is, and how it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketArgs {
    /// Where it is.
    pub location: Location,
    /// Its name.
    pub name: String,
    /// The number of replicas if putex creates it.
    pub replicas: u32,
    /// Whether it may be in memory.
    pub allow_memory: bool,
}

impl BucketArgs {
    /// Returns whether it is in a directory, for this host only.
    pub fn is_local(&self) -> bool {
        matches!(self.location, Location::Dir(_))
    }
}

/// Where the lock is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In NATS JetStream.
    Nats(Box<Access>),
    /// In this directory.
    Dir(PathBuf),
}

fn usage(text: String) -> Refusal {
    Refusal::new(Exit::Usage, clean(&text))
}

/// Returns the refusal of a word that a command does not take: `write` is what to write.
fn unexpected(word: &str, write: &str) -> Refusal {
    usage(format!("{}: unexpected argument; {write}", shown(word)))
}

/// Returns a word as a message shows it: a blank one is seen by its quotes.
fn shown(word: &str) -> String {
    if word.trim().is_empty() { format!("'{word}'") } else { word.to_owned() }
}

/// Returns an argument as text. Commands of an agent, keys and tokens have to be UTF-8.
fn utf8(subject: &str, word: OsString) -> Result<String, Refusal> {
    word.into_string().map_err(|word| usage(format!("{subject}: {} is not UTF-8", word.display())))
}

/// Returns a text in one line, with the parts of a URL that may hold a secret left out.
fn clean(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(without_secret).collect();
    sanitize(&words.join(" "))
}

/// Returns a word without the part of a URL before its last `@`, which may be a password, and
/// without a query, which may hold a token. Any word can be a URL: users put them behind the
/// wrong option.
pub(crate) fn without_secret(word: &str) -> String {
    let host = word.rfind('@').unwrap_or(0);
    if let Some(query) = word[host..].find('?').filter(|at| word[host + at..].contains('=')) {
        return without_secret(&word[..host + query]) + "?...";
    }
    match word.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split('@').next().and_then(|first| first.find("://"));
            let shown = scheme.map_or(usize::from(before.starts_with(['"', '\''])), |at| at + 3);
            let hidden = if shown < before.len() { "..." } else { "" };
            format!("{}{hidden}@{host}", &before[..shown])
        }
        None => word.to_owned(),
    }
}

/// Returns the value of an environment variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment of a command line: everything besides its words that its meaning depends
/// on.
pub struct Environment<'a> {
    /// Returns the value of an environment variable.
    pub var: Lookup<'a>,
    /// The name of this host.
    pub host: &'a str,
    /// Reads a configuration file.
    pub read: ReadConfig<'a>,
}

#[cfg(test)]
mod tests;
