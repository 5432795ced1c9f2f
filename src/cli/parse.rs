//! Reads the words of a command line, gathers the settings of all origins, and returns
//! the invocation or the first refusal.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::config::{self, Config};
use super::resolve::{self, Resolved};
use super::settings::{Faults, Precedence, Setting, Settings};
use super::table::{FLAGS, Flag, Name, Subcommand, nearest};
use super::{
    CheckArgs, Environment, Invocation, doctor, grab, help, lease, lock, pause, status, switchover,
    timing, topics, usage, utf8,
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
    let (mut is_first, mut begins) = (true, false);
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
                    None if was_first && lease::LeaseSubcommand::of(&word).is_some() => {
                        return Err(usage(format!("{word}: write putex lease {word}")));
                    }
                    Some(_) if subcommand.is_none() && positionals.is_empty() => {
                        return Err(usage(format!("{word}: a command comes before its options")));
                    }
                    _ if subcommand == Some(Subcommand::Timing) => {
                        return Err(usage(format!("{word}: unexpected argument")));
                    }
                    Some(_) | None => {
                        begins |= was_first;
                        positionals.push(word);
                    }
                }
                continue;
            }
        };
        let of = subcommand.unwrap_or(Subcommand::Agent);
        let flag = Flag::find(&written, of).ok_or_else(|| no_option(&written, subcommand))?;
        if let Some(ended) = ends(flag, subcommand, &written) {
            return ended;
        }
        let text = match flag.value {
            "" => "yes".to_owned(),
            _ => utf8(&written, parser.value()?)?,
        };
        settings.set(flag.name, typed(text, "flag", written));
    }
    if subcommand.is_none() {
        check_arguments(&positionals, begins)?;
    }
    invocation(subcommand.unwrap_or(Subcommand::Agent), settings, positionals, environment)
}

/// Checks the number of arguments of an agent; `begins`: the line begins with one.
fn check_arguments(positionals: &[String], begins: bool) -> Result<(), Refusal> {
    let [word, ..] = positionals else { return Ok(()) };
    if positionals.len() == ARGUMENTS.len() {
        return Ok(());
    }
    if !begins {
        return Err(usage(format!("{word}: unexpected argument")));
    }
    let nearest = nearest(word, Subcommand::ALL.map(|known| known.name().to_owned()));
    Err(usage(format!("{word}: no such command{nearest}; see putex --help")))
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

/// Returns the refusal of an option that a command does not take; `None`: no command is named.
fn no_option(written: &str, subcommand: Option<Subcommand>) -> Refusal {
    let of = subcommand.unwrap_or(Subcommand::Agent);
    let of_flock = lock::refuse_option(written).filter(|_| of == Subcommand::Lock);
    of_flock.unwrap_or_else(|| {
        if FLAGS.iter().any(|flag| flag.is_written(written)) {
            return usage(format!("{written}: not an option of putex {}", of.name()));
        }
        let nearest = nearest(written, Flag::all_of(of).map(Flag::shown));
        let named = subcommand.map_or(String::new(), |named| format!("{} ", named.name()));
        usage(format!("{written}: no such option{nearest}; see putex {named}--help"))
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
    expand_positionals(positionals, &mut settings)?;
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
fn expand_positionals(positionals: Vec<String>, settings: &mut Settings) -> Result<(), Refusal> {
    let Some(first) = positionals.first() else { return Ok(()) };
    if positionals.len() != ARGUMENTS.len() {
        let count = positionals.len();
        return Err(usage(format!(
            "{first}: SERVER BUCKET KEY TOKEN are four arguments, not {count}"
        )));
    }
    for (name, text) in ARGUMENTS.into_iter().zip(positionals) {
        let flag = name.flag().shown();
        if settings.get(name).is_some() {
            return Err(usage(format!("{flag}: given twice, as an option and as an argument")));
        }
        settings.set(name, typed(text, "argument", flag));
    }
    Ok(())
}
