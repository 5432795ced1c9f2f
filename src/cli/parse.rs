//! Reads the words of a command line, gathers the settings of all origins, and returns
//! the invocation or the first refusal.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::config::{self, Config};
use super::resolve::{self, Resolved};
use super::settings::{Faults, Precedence, Setting, Settings};
use super::table::{FLAGS, Flag, Name, Subcommand, nearest};
use super::{
    CheckArgs, Environment, Invocation, doctor, grab, help, init, lease, lock, pause, status,
    switchover, timing, topics, usage, utf8,
};
use crate::exit::Refusal;

/// Reads a command line.
///
/// # Errors
///
/// The first fault. `putex check` reports all of them in its [`Invocation::Check`].
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let mut parser = Parser::from_args(words);
    let (mut settings, mut positionals) = (Settings::default(), Vec::new());
    let mut subcommand = None;
    let (mut is_first, mut stray) = (true, Stray::default());
    while let Some(arg) = parser.next()? {
        let was_first = std::mem::take(&mut is_first);
        let written = match arg {
            Arg::Long(long) => format!("--{long}"),
            Arg::Short(short) => format!("-{short}"),
            // What follows the name is the command's.
            Arg::Value(name) if subcommand == Some(Subcommand::Lock) => {
                let rest = parser.raw_args()?.collect();
                return lock::invocation(settings, name, rest, environment);
            }
            Arg::Value(word) => {
                let word = utf8("argument", word)?;
                let known = Subcommand::ALL.into_iter().find(|known| known.name() == word);
                match known {
                    // Its key, which a list of processes shows, may begin with a hyphen.
                    Some(Subcommand::Guard) if was_first => return Ok(Invocation::Guard),
                    Some(_) if was_first => subcommand = known,
                    None if was_first && instead_of(&word).is_some() => {
                        return Err(no_command(&word));
                    }
                    Some(_) if subcommand.is_none() && positionals.is_empty() => {
                        let why = "a command comes before its options";
                        return Err(usage(format!("{word}: {why}; write putex {word} first")));
                    }
                    _ if subcommand == Some(Subcommand::Timing) => {
                        return Err(usage(format!("{word}: unexpected argument")));
                    }
                    Some(_) | None => {
                        stray.note(&word, was_first);
                        positionals.push(word);
                    }
                }
                continue;
            }
        };
        let of = subcommand.unwrap_or(Subcommand::Agent);
        let flag = Flag::find(&written, of)
            .ok_or_else(|| stray.refusal().unwrap_or_else(|| no_option(&written, subcommand)))?;
        if let Some(ended) = ends(flag, subcommand, &written) {
            return ended;
        }
        let text = match flag.value {
            "" => "yes".to_owned(),
            _ => value(&mut parser, flag, &written, of)?,
        };
        stray.note_option(flag, &written, &text);
        settings.set(flag.name, typed(text, "flag", written));
    }
    // Settings in a file may make a whole agent. Nobody who writes the name alone asks for one.
    if is_first {
        return Ok(Invocation::Print(help::help(None)));
    }
    let subcommand = subcommand.unwrap_or(Subcommand::Agent);
    if AGENTS.contains(&subcommand) && !is_arguments(&positionals, &settings) {
        let unexpected = || no_argument(&positionals[0]);
        return Err(stray.refusal().unwrap_or_else(unexpected));
    }
    invocation(subcommand, settings, positionals, environment)
}

/// The commands that take the arguments and options of the agent.
const AGENTS: [Subcommand; 3] = [Subcommand::Agent, Subcommand::Check, Subcommand::Finish];

/// Reads the value of a flag. A word of its own that is an option was hardly meant to be the value.
fn value(
    parser: &mut Parser,
    flag: &Flag,
    written: &str,
    of: Subcommand,
) -> Result<String, Refusal> {
    let write = format!("write {written} {}", flag.value.to_uppercase());
    if let Some(attached) = parser.optional_value() {
        return utf8(written, attached);
    }
    let missing = |_| usage(format!("{written}: its value is missing; {write}"));
    let text = utf8(written, parser.value().map_err(missing)?)?;
    match Flag::find(&text, of) {
        Some(_) => Err(usage(format!("{written}: {text} is an option and not its value; {write}"))),
        None => Ok(text),
    }
}

/// The words of a line that are hardly meant as the arguments of an agent.
#[derive(Debug, Default)]
struct Stray {
    /// The first word of the line, if it is no command.
    first: Option<String>,
    /// The last option that takes a command, that command, and the words behind it. In a shell, a
    /// command of several words is quoted.
    command: Option<(String, Vec<String>)>,
}

impl Stray {
    /// Notes an argument.
    fn note(&mut self, word: &str, is_first: bool) {
        if is_first {
            self.first = Some(word.to_owned());
        }
        if let Some((_, words)) = &mut self.command {
            words.push(word.to_owned());
        }
    }

    /// Notes an option: it ends the words behind the one before.
    fn note_option(&mut self, flag: &Flag, written: &str, text: &str) {
        if self.command.as_ref().is_none_or(|(_, words)| words.len() == 1) {
            let is_command = flag.value == "command";
            self.command = is_command.then(|| (written.to_owned(), vec![text.to_owned()]));
        }
    }

    /// Returns the refusal of a line that has these words; `None` if it has none.
    fn refusal(&self) -> Option<Refusal> {
        if let Some(first) = &self.first {
            return Some(no_command(first));
        }
        let (written, words) = self.command.as_ref().filter(|(_, words)| words.len() > 1)?;
        let command = words.join(" ");
        let why = "quote a command of several words";
        Some(usage(format!("{written}: {why}; write {written} '{command}'")))
    }
}

/// Returns whether words are the arguments of an agent with these options.
fn is_arguments(positionals: &[String], settings: &Settings) -> bool {
    let is_given = |name: Name| settings.get(name).is_some_and(|given| given.origin == "flag");
    let are_given = ARGUMENTS.into_iter().any(is_given);
    positionals.is_empty() || positionals.len() == ARGUMENTS.len() && !are_given
}

fn no_argument(word: &str) -> Refusal {
    usage(format!(
        "{word}: unexpected argument; write options alone, or SERVER BUCKET KEY TOKEN and options"
    ))
}

/// Words that are no commands, and the commands that are meant: those of like programs, and
/// those behind `putex lease`.
const INSTEAD: [(&str, &str); 15] = [
    ("claim", "lease claim"),
    ("expire", "lease expire"),
    ("extend", "lease extend"),
    ("failback", "switchover"),
    ("failover", "switchover"),
    ("flock", "lock"),
    ("list", "status"),
    ("ls", "status"),
    ("move", "switchover"),
    ("run", "agent"),
    ("show", "status"),
    ("start", "agent"),
    ("unlock", "release"),
    ("unpause", "resume"),
    ("version", "--version"),
];

/// Returns what a user means by a first word that is no command, as far as that can be known.
fn instead_of(word: &str) -> Option<String> {
    let instead = INSTEAD.iter().find(|(wrong, _)| *wrong == word);
    if let Some((_, command)) = instead {
        return Some(format!("; write putex {command}"));
    }
    let nearest = nearest(word, Subcommand::ALL.map(|known| known.name().to_owned()));
    (!nearest.is_empty()).then_some(nearest)
}

/// Returns the refusal of a first word that is no command.
fn no_command(word: &str) -> Refusal {
    let instead = instead_of(word).unwrap_or_default();
    usage(format!("{word}: no such command{instead}; see putex help"))
}

/// Returns the invocation, or its refusal, if a flag ends the line.
fn ends(
    flag: &Flag,
    subcommand: Option<Subcommand>,
    written: &str,
) -> Option<Result<Invocation, Refusal>> {
    let print = |text| Some(Ok(Invocation::Print(text)));
    if flag.name == Name::Help {
        return print(help::help(subcommand));
    }
    if flag.name == Name::Version {
        return print(format!("putex {}\n", env!("CARGO_PKG_VERSION")));
    }
    (flag.name == Name::CommandString).then(|| Err(lock::refuse_early(written)))
}

/// Options of like programs, and what is written instead.
const OPTIONS_INSTEAD: [(&str, &str); 5] = [
    ("--check", "--healthcheck COMMAND"),
    ("--interval", "-r TIME"),
    ("--name", "--key KEY"),
    ("--server", "--nats URL"),
    ("--servers", "--nats URL,URL"),
];

/// Most commands that a refusal names: those that take an option.
const TAKERS_SHOWN_MAX: usize = 3;

/// Returns the refusal of an option that a command does not take; `None`: no command is named.
fn no_option(written: &str, subcommand: Option<Subcommand>) -> Refusal {
    let of = subcommand.unwrap_or(Subcommand::Agent);
    let of_flock = lock::refuse_option(written).filter(|_| of == Subcommand::Lock);
    of_flock.unwrap_or_else(|| {
        if let Some((_, instead)) = OPTIONS_INSTEAD.iter().find(|(wrong, _)| *wrong == written) {
            return usage(format!("{written}: no such option; write {instead}"));
        }
        if FLAGS.iter().any(|flag| flag.is_written(written)) {
            let takers = FLAGS.iter().filter(|flag| flag.is_written(written));
            let takers = takers.flat_map(|flag| flag.subcommands).map(|taker| taker.name());
            let takers = takers.take(TAKERS_SHOWN_MAX).collect::<Vec<_>>().join(", ");
            let why = format!("not an option of putex {}, but of {takers}", of.name());
            return usage(format!("{written}: {why}"));
        }
        let nearest = nearest(written, Flag::all_of(of).map(Flag::shown));
        usage(format!("{written}: no such option{nearest}; see putex {} --help", of.name()))
    })
}

impl From<lexopt::Error> for Refusal {
    fn from(error: lexopt::Error) -> Refusal {
        usage(error.to_string())
    }
}

/// Builds the invocation of a command with these options and arguments.
fn invocation(
    of: Subcommand,
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    match of {
        Subcommand::Lock => Err(lock::refuse_no_name(&settings)),
        Subcommand::Grab | Subcommand::Release => {
            grab::invocation(of, settings, words, environment)
        }
        Subcommand::Lease | Subcommand::Put => lease::invocation(of, settings, words, environment),
        Subcommand::Init => init::invocation(settings, &words, environment),
        Subcommand::Status => status::invocation(settings, words, environment),
        Subcommand::Doctor => doctor::invocation(settings, words, environment),
        Subcommand::Switchover => switchover::invocation(settings, words, environment),
        Subcommand::Pause | Subcommand::Resume => {
            pause::invocation(of, settings, words, environment)
        }
        Subcommand::Agent
        | Subcommand::Check
        | Subcommand::Finish
        | Subcommand::Timing
        | Subcommand::Help
        | Subcommand::Guard => of_agent(of, settings, words, environment),
    }
}

/// Builds the invocation of a command that takes settings of an agent, or of one without any.
fn of_agent(
    subcommand: Subcommand,
    mut settings: Settings,
    positionals: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    if subcommand == Subcommand::Help {
        return topics::answer(&positionals).map(Invocation::Print);
    }
    expand_positionals(positionals, &mut settings);
    settings.add_environment(environment.var)?;
    if subcommand == Subcommand::Timing {
        let mut faults = Faults { settings: &settings, found: Vec::new() };
        let text = match settings.get(Name::TimingLease) {
            Some(_) => lease_timing(&mut faults),
            None => resolve::timing(&mut faults).map(timing::report),
        };
        let text = text.map(Invocation::Print);
        return text.ok_or_else(|| faults.found.swap_remove(0));
    }
    let Config { path, settings: of_file, faults } = config::load(&settings, environment.read);
    settings.add(of_file);
    let resolved = match path.is_some() || faults.is_empty() {
        true => resolve::resolve(&settings, environment, faults),
        // The settings that seem to be missing are in the file.
        false => Resolved { faults, ..Resolved::default() },
    };
    if subcommand == Subcommand::Check {
        let args = CheckArgs { settings, config: path, resolved };
        return Ok(Invocation::Check(Box::new(args)));
    }
    let Resolved { args, mut faults, .. } = resolved;
    match args {
        // The service must be stopped, whatever is wrong with a setting that stop does
        // not need.
        Some(args) if subcommand == Subcommand::Finish => {
            Ok(Invocation::Finish(Box::new(args), faults))
        }
        Some(args) if faults.is_empty() => Ok(Invocation::Agent(Box::new(args))),
        // Without arguments there is a fault. An agent reports the first; `putex check` all.
        Some(_) | None => Err(faults.swap_remove(0)),
    }
}

/// Returns what the time of a lease means.
fn lease_timing(faults: &mut Faults<'_>) -> Option<String> {
    let settings = faults.settings;
    let of_agents = [Name::Renewal, Name::Failures, Name::Confirmations];
    if let Some(name) = of_agents.into_iter().find(|name| settings.get(*name).is_some()) {
        return faults.usage(name, "cannot be with --lease, which has no R, F and C");
    }
    let at_least = lease::time_of_lease(faults, Name::TimingLease);
    let drift_ppm = lease::drift(faults);
    Some(timing::lease_report(at_least?, drift_ppm?))
}

/// Returns a setting of the command line.
fn typed(text: String, origin: &str, written: String) -> Setting {
    Setting { text, precedence: Precedence::CommandLine, origin: origin.to_owned(), written }
}

/// The options that the arguments of an agent stand for, in their order.
const ARGUMENTS: [Name; 4] = [Name::Nats, Name::Bucket, Name::Key, Name::Token];

/// Sets the options that correspond to the arguments of `putex agent SERVER BUCKET KEY TOKEN`.
fn expand_positionals(positionals: Vec<String>, settings: &mut Settings) {
    for (name, text) in ARGUMENTS.into_iter().zip(positionals) {
        settings.set(name, typed(text, "argument", name.flag().shown()));
    }
}
