//! The command line: a loop over the words, the settings that they, the environment
//! and a file come to, and what is asked for by these.

pub mod access;
pub mod asked;
pub mod config;
pub mod help;
pub mod report;
pub mod settings;
pub mod table;
pub mod topics;
mod value;
mod verb;

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser};
use log::LevelFilter;

use self::access::Access;
use self::asked::Asked;
use self::config::Read;
use self::settings::{Faults, Given, Origin, Settings};
use self::table::{FLAGS, Flag, Name, Verb, shown};
use crate::core::timing::Timing;
use crate::exit::Exit;

/// What the user wants.
#[derive(Debug)]
pub enum Wish {
    /// Run the agent.
    Agent(Box<AgentArgs>),
    /// Say what is set and whether it is right.
    Check(Box<CheckArgs>),
    /// Stop what this agent and its guard left. What is wrong beside it is said.
    Finish(Box<AgentArgs>, Vec<Refusal>),
    /// Run the guard of the agent that started this process.
    Guard,
    /// Print this and end well: help, version, timing.
    Print(String),
}

/// What is to be checked.
#[derive(Debug)]
pub struct CheckArgs {
    /// All that was set, and where.
    pub settings: Settings,
    /// The configuration file that was read.
    pub config: Option<String>,
    /// What that comes to, and what is wrong with it.
    pub asked: Asked,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the user is told.
    pub text: String,
    /// How the process ends.
    pub exit: Exit,
}

fn usage(text: String) -> Refusal {
    let (text, exit) = (clean(&text), Exit::Usage);
    Refusal { text, exit }
}

/// Returns a text as it may be shown: in one line, and without what may be a secret.
fn clean(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(without_secret).collect();
    words.join(" ").replace(char::is_control, "?")
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

/// What looks a variable of the environment up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What a command line is read in.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Looks the environment up.
    pub var: Lookup<'a>,
    /// This host's name.
    pub host: &'a str,
    /// Reads a configuration file.
    pub read: Read<'a>,
}

/// Reads a command line.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    world: &World<'_>,
) -> Result<Wish, Refusal> {
    let mut parser = Parser::from_args(words);
    let (mut line, mut places) = (Vec::new(), Vec::new());
    let mut verb = None;
    let mut begun = false;
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        let (shown, flag) = match arg {
            Arg::Value(word) => {
                let word = plain("argument", word)?;
                match Verb::ALL.iter().find(|verb| verb.word() == word && !begun) {
                    Some(known) => verb = Some(*known),
                    None if verb.is_some_and(Verb::takes_words) => places.push(word),
                    // The key: for whoever looks at a list of processes.
                    None if verb == Some(Verb::Guard) => {}
                    None if !begun => {
                        return Err(usage(format!("{word}: no such command; see putex --help")));
                    }
                    None if Verb::ALL.iter().any(|verb| verb.word() == word) => {
                        return Err(usage(format!("{word}: a command comes before its options")));
                    }
                    None => return Err(usage(format!("{word}: unexpected argument"))),
                }
                begun = true;
                continue;
            }
            Arg::Long(long) => (
                format!("--{long}"),
                FLAGS.iter().find(|flag| flag.long == long),
            ),
            Arg::Short(short) => (
                format!("-{short}"),
                FLAGS.iter().find(|flag| flag.short == Some(short)),
            ),
        };
        begun = true;
        let Some(flag) = flag else {
            return Err(usage(format!("{shown}: no such option; see putex --help")));
        };
        let of = verb.unwrap_or(Verb::Agent);
        if !flag.verbs.contains(&of) {
            let verb = of.word();
            return Err(usage(format!("{shown}: not an option of putex {verb}")));
        }
        if flag.name == Name::Help {
            return Ok(Wish::Print(help::help(verb)));
        }
        if flag.name == Name::Version {
            return Ok(Wish::Print(version()));
        }
        line.push((flag.name, given(flag, shown, &mut parser)?));
    }
    let verb = verb.unwrap_or(Verb::Agent);
    if verb == Verb::Help {
        return topics::answer(&places).map(Wish::Print);
    }
    spread(places, &mut line)?;
    wish(verb, line, world)
}

/// Takes in the value of an option, which was written as `shown`.
fn given(flag: &Flag, shown: String, parser: &mut Parser) -> Result<Given, Refusal> {
    let text = match flag.value {
        "" => "yes".to_owned(),
        _ => {
            let word = parser.value().map_err(|error| usage(error.to_string()))?;
            plain(&shown, word)?
        }
    };
    let origin = Origin::Flag(shown);
    Ok(Given { text, origin })
}

/// Makes a wish of a command and its options.
fn wish(verb: Verb, line: Vec<(Name, Given)>, world: &World<'_>) -> Result<Wish, Refusal> {
    if verb == Verb::Guard {
        return Ok(Wish::Guard);
    }
    let mut settings = Settings::gather(line, world.var)?;
    if verb == Verb::Timing {
        let mut faults = Faults {
            settings: &settings,
            found: Vec::new(),
        };
        let timing = asked::timing(&mut faults);
        let text = timing.map(|timing| Wish::Print(report::report(timing)));
        return text.ok_or_else(|| first(faults.found));
    }
    let config = config::load(&settings, world.read);
    let is_readable = config.path.is_some() || config.faults.is_empty();
    settings.fill(&config);
    let asked = match is_readable {
        true => asked::asked(&settings, world, config.faults),
        // What is missing then is in the file.
        false => Asked {
            faults: config.faults,
            ..Asked::default()
        },
    };
    if verb == Verb::Check {
        let config = config.path;
        return Ok(Wish::Check(Box::new(CheckArgs {
            settings,
            config,
            asked,
        })));
    }
    let Asked { args, faults, .. } = asked;
    match args {
        // Who stops what is left does not leave it for a fault in something else.
        Some(args) if verb == Verb::Finish => Ok(Wish::Finish(Box::new(args), faults)),
        Some(args) if faults.is_empty() => Ok(Wish::Agent(Box::new(args))),
        Some(_) | None => Err(first(faults)),
    }
}

/// Who runs an agent is told one thing at a time; `putex check` tells all.
fn first(faults: Vec<Refusal>) -> Refusal {
    let none = || usage("nothing is wrong".to_owned());
    faults.into_iter().next().unwrap_or_else(none)
}

fn version() -> String {
    format!("putex {}\n", env!("CARGO_PKG_VERSION"))
}

/// Returns an argument as text. Commands, keys and tokens are all UTF-8 here.
fn plain(what: &str, word: OsString) -> Result<String, Refusal> {
    word.into_string()
        .map_err(|word| usage(format!("{what}: {} is not UTF-8", word.display())))
}

/// `putex agent SERVER BUCKET KEY TOKEN`
fn spread(places: Vec<String>, line: &mut Vec<(Name, Given)>) -> Result<(), Refusal> {
    let four = match <[String; 4]>::try_from(places) {
        Ok(four) => four,
        Err(none) if none.is_empty() => return Ok(()),
        Err(some) => {
            let (first, count) = (&some[0], some.len());
            return Err(usage(format!(
                "{first}: SERVER BUCKET KEY TOKEN are four arguments, not {count}"
            )));
        }
    };
    let names = [Name::Nats, Name::Bucket, Name::Key, Name::Token];
    for (name, text) in names.into_iter().zip(four) {
        if line.iter().any(|(known, _)| *known == name) {
            let shown = shown(name);
            return Err(usage(format!(
                "{shown}: given twice, as an option and as an argument"
            )));
        }
        let origin = Origin::Argument;
        line.push((name, Given { text, origin }));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
