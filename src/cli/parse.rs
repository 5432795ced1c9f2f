//! Reads the words of a command line, gathers the settings of all origins, and returns
//! the invocation or the first refusal.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::resolve::{self, Resolved};
use super::settings::{Faults, Origin, Setting, Settings};
use super::table::{FLAGS, Flag, Name, Subcommand, shown};
use super::{CheckArgs, Environment, Invocation, Refusal, config, help, timing, topics, usage};

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
    let (mut options, mut positionals) = (Vec::new(), Vec::new());
    let mut subcommand = None;
    let mut is_first = true;
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        let was_first = std::mem::take(&mut is_first);
        let (shown, flag) = match arg {
            Arg::Value(word) => {
                let word = utf8("argument", word)?;
                let known = Subcommand::ALL.into_iter().find(|known| known.name() == word);
                match known {
                    Some(known) if was_first => subcommand = Some(known),
                    _ if subcommand.is_some_and(Subcommand::takes_arguments) => {
                        positionals.push(word)
                    }
                    // The key, which shows in a list of processes.
                    _ if subcommand == Some(Subcommand::Guard) => {}
                    known => return Err(unexpected(&word, known, was_first)),
                }
                continue;
            }
            Arg::Long(long) => (format!("--{long}"), FLAGS.iter().find(|flag| flag.long == long)),
            Arg::Short(short) => {
                (format!("-{short}"), FLAGS.iter().find(|flag| flag.short == Some(short)))
            }
        };
        let Some(flag) = flag else {
            return Err(usage(format!("{shown}: no such option; see putex --help")));
        };
        let of = subcommand.unwrap_or(Subcommand::Agent);
        if !flag.subcommands.contains(&of) {
            let of = of.name();
            return Err(usage(format!("{shown}: not an option of putex {of}")));
        }
        if flag.name == Name::Help {
            return Ok(Invocation::Print(help::help(subcommand)));
        }
        if flag.name == Name::Version {
            return Ok(Invocation::Print(version()));
        }
        options.push((flag.name, setting(flag, shown, &mut parser)?));
    }
    let subcommand = subcommand.unwrap_or(Subcommand::Agent);
    if subcommand == Subcommand::Help {
        return topics::answer(&positionals).map(Invocation::Print);
    }
    expand_positionals(positionals, &mut options)?;
    invocation(subcommand, options, environment)
}

/// Refuses a word that no command takes.
fn unexpected(word: &str, known: Option<Subcommand>, was_first: bool) -> Refusal {
    usage(match known {
        _ if was_first => format!("{word}: no such command; see putex --help"),
        Some(_) => format!("{word}: a command comes before its options"),
        None => format!("{word}: unexpected argument"),
    })
}

/// Reads the value of an option, which was written as `shown`.
fn setting(flag: &Flag, shown: String, parser: &mut Parser) -> Result<Setting, Refusal> {
    let text = match flag.value {
        "" => "yes".to_owned(),
        _ => {
            let word = parser.value().map_err(|error| usage(error.to_string()))?;
            utf8(&shown, word)?
        }
    };
    let origin = Origin::Flag(shown);
    Ok(Setting { text, origin })
}

/// Builds the invocation of a command with these options.
fn invocation(
    subcommand: Subcommand,
    options: Vec<(Name, Setting)>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    if subcommand == Subcommand::Guard {
        return Ok(Invocation::Guard);
    }
    let mut settings = Settings::gather(options, environment.var)?;
    if subcommand == Subcommand::Timing {
        let mut faults = Faults::new(&settings, Vec::new());
        let timing = resolve::timing(&mut faults);
        let text = timing.map(|timing| Invocation::Print(timing::report(timing)));
        return text.ok_or_else(|| first(faults.found));
    }
    let config = config::load(&settings, environment.read);
    let is_readable = config.path.is_some() || config.faults.is_empty();
    settings.add_file(&config);
    let resolved = match is_readable {
        true => resolve::resolve(&settings, environment, config.faults),
        // The settings that seem to be missing are in the file.
        false => Resolved { faults: config.faults, ..Resolved::default() },
    };
    if subcommand == Subcommand::Check {
        let config = config.path;
        return Ok(Invocation::Check(Box::new(CheckArgs { settings, config, resolved })));
    }
    let Resolved { args, faults, .. } = resolved;
    match args {
        // The service must be stopped, whatever is wrong with a setting that stop does
        // not need.
        Some(args) if subcommand == Subcommand::Finish => {
            Ok(Invocation::Finish(Box::new(args), faults))
        }
        Some(args) if faults.is_empty() => Ok(Invocation::Agent(Box::new(args))),
        Some(_) | None => Err(first(faults)),
    }
}

/// Returns the first fault, the only one that an agent reports; `putex check` reports all.
fn first(faults: Vec<Refusal>) -> Refusal {
    let none = || usage("nothing is wrong".to_owned());
    faults.into_iter().next().unwrap_or_else(none)
}

fn version() -> String {
    format!("putex {}\n", env!("CARGO_PKG_VERSION"))
}

/// Returns an argument as text. Commands, keys and tokens have to be UTF-8.
fn utf8(subject: &str, word: OsString) -> Result<String, Refusal> {
    word.into_string().map_err(|word| usage(format!("{subject}: {} is not UTF-8", word.display())))
}

/// Adds the arguments of `putex agent SERVER BUCKET KEY TOKEN` to the options that they
/// stand for.
fn expand_positionals(
    positionals: Vec<String>,
    options: &mut Vec<(Name, Setting)>,
) -> Result<(), Refusal> {
    let four = match <[String; 4]>::try_from(positionals) {
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
        if options.iter().any(|(known, _)| *known == name) {
            let shown = shown(name);
            return Err(usage(format!("{shown}: given twice, as an option and as an argument")));
        }
        let origin = Origin::Argument;
        options.push((name, Setting { text, origin }));
    }
    Ok(())
}
