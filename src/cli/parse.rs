//! Reads the words of a command line, gathers the settings of all origins, and returns
//! the invocation or the first refusal.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::instead::{instead_of, no_command, no_option};
use super::line::{Line, add_origins};
use super::resolve::{self, Resolved};
use super::settings::{Faults, Precedence, Setting, Settings};
use super::table::{FLAGS, Flag, Name, Subcommand};
use super::{
    CheckArgs, Environment, Invocation, Request, doctor, grab, help, lease, lock, pause, status,
    switchover, timing, unexpected, usage, utf8,
};
use crate::exit::Refusal;
use crate::store::name::valid_agents_key;

/// Reads a command line.
///
/// # Errors
///
/// The first fault. `putex check` reports all of them in its [`Invocation::Check`].
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let mut words = words.into_iter().peekable();
    // Settings in a file may make a whole agent. Nobody who writes the name alone asks for one.
    let without_command = if words.peek().is_none() { Subcommand::Help } else { Subcommand::Agent };
    let first = words.peek().and_then(|word| word.to_str()).map(str::to_owned);
    let subcommand = first.as_deref().and_then(Subcommand::find);
    let of = subcommand.unwrap_or(without_command);
    let unknown = first.filter(|word| subcommand.is_none() && !word.starts_with('-'));
    if let Some(word) = unknown.as_deref().filter(|word| instead_of(word).is_some()) {
        return Err(no_command(word, false));
    } else if subcommand == Some(Subcommand::Guard) {
        // Its key, which a list of processes shows, may begin with a hyphen.
        return Ok(Invocation::Guard);
    }
    let mut parser = Parser::from_args(words.skip(usize::from(subcommand.is_some())));
    let (mut settings, mut positionals, mut rest) = (Settings::default(), Vec::new(), Vec::new());
    while let Some(arg) = parser.next()? {
        let written = match arg {
            Arg::Long(long) => format!("--{long}"),
            Arg::Short(short) => short_option(short, &parser, subcommand)?,
            // All words that follow the name are the command's.
            Arg::Value(name) if subcommand == Some(Subcommand::Lock) => {
                positionals.push(utf8("NAME", name)?);
                rest = parser.raw_args()?.collect();
                break;
            }
            Arg::Value(word) => {
                let word = utf8("argument", word)?;
                let is_command = Subcommand::find(&word).is_some();
                if is_command && subcommand.is_none() && positionals.is_empty() {
                    let why = "a command comes before its options";
                    return Err(usage(format!("{word}: {why}; write putex {word} first")));
                }
                positionals.push(word);
                continue;
            }
        };
        let Some(flag) = Flag::find(&written, of) else {
            return Err(match positionals.is_empty() || !is_of_agent(of) {
                true => no_option(&written, subcommand),
                false => no_argument(of, &positionals, &settings, unknown.is_some()),
            });
        };
        if flag.name == Name::Help {
            return Ok(Invocation::Print(help::help(subcommand)));
        } else if flag.name == Name::Version {
            return Ok(Invocation::Print(format!("putex {}\n", env!("CARGO_PKG_VERSION"))));
        } else if flag.name == Name::CommandString {
            let why = "comes after the name; write putex lock NAME -c STRING";
            return Err(usage(format!("{written} {why}")));
        }
        let text = match flag.value {
            "" => "yes".to_owned(),
            _ => value(&mut parser, flag, &written, of)?,
        };
        // Of two values one would be dropped, and the user meant both.
        if settings.get(flag.name).is_some() && !flag.value.is_empty() {
            let once = flag.with_value(&written);
            return Err(usage(format!("{written}: is given twice; write it once: {once}")));
        }
        settings.set(flag.name, typed(text, "option", written));
    }
    refuse_words(subcommand, of, &positionals, &settings, unknown)?;
    invocation(Line { of, settings, words: positionals, rest, environment })
}

/// Returns an option of one letter as it is written. A long option behind a single dash is refused:
/// its letters are hardly meant as options, and one of them may be that of help.
fn short_option(
    first: char,
    parser: &Parser,
    subcommand: Option<Subcommand>,
) -> Result<String, Refusal> {
    let rest = parser.clone().optional_value().unwrap_or_default();
    let word = format!("{first}{}", rest.to_string_lossy());
    let long = format!("--{}", word.split('=').next().unwrap_or_default());
    if FLAGS.iter().any(|flag| flag.is_written(&long)) {
        return Err(usage(format!("-{word}: no such option; write {long}")));
    }
    match ['h', 'V'].contains(&first) && word.len() > 1 {
        true => Err(no_option(&format!("-{word}"), subcommand)),
        false => Ok(format!("-{first}")),
    }
}

/// Reads the value of a flag. A word of its own that is an option was hardly meant to be the value.
fn value(
    parser: &mut Parser,
    flag: &Flag,
    written: &str,
    of: Subcommand,
) -> Result<String, Refusal> {
    let write = format!("write {}", flag.with_value(written));
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

/// Refuses a line whose words are hardly meant as what they would be. `unknown`: its first word, if
/// that is no command.
fn refuse_words(
    subcommand: Option<Subcommand>,
    of: Subcommand,
    words: &[String],
    settings: &Settings,
    unknown: Option<String>,
) -> Result<(), Refusal> {
    if subcommand.is_none() && of == Subcommand::Agent && !is_of_service(settings) {
        let missing = "a command is missing; write putex agent and options, or putex lock NAME \
                       COMMAND, or see putex help";
        let no_agent = || usage(missing.to_owned());
        return Err(unknown.map_or_else(no_agent, |word| no_command(&word, words.len() > 1)));
    }
    if is_of_agent(of) {
        return match is_arguments(of, words, settings) {
            true => Ok(()),
            false => Err(no_argument(of, words, settings, unknown.is_some())),
        };
    }
    match words.first().filter(|word| word.contains("://")) {
        Some(url) => Err(usage(format!("{url}: write --nats {url}"))),
        None => Ok(()),
    }
}

/// Returns whether a line without a command is meant as an agent. Where a file has all settings of
/// one, a line without the word `lock` would be an agent too, and have the service stopped.
fn is_of_service(settings: &Settings) -> bool {
    [Name::Key, Name::Start, Name::Stop].into_iter().any(|name| settings.get(name).is_some())
}

/// Returns whether words are the arguments of an agent with these options.
fn is_arguments(of: Subcommand, positionals: &[String], settings: &Settings) -> bool {
    let are_given = ARGUMENTS.into_iter().any(|name| settings.get(name).is_some());
    let takes_some = of != Subcommand::Timing && !are_given;
    positionals.is_empty() || positionals.len() == ARGUMENTS.len() && takes_some
}

/// Returns the refusal of words that are not the arguments of an agent. `is_first`: the line begins
/// with the first of them.
fn no_argument(of: Subcommand, words: &[String], settings: &Settings, is_first: bool) -> Refusal {
    if is_first {
        return no_command(&words[0], false);
    }
    let is_key = |word: &str| settings.get(Name::Key).is_none() && valid_agents_key(word).is_ok();
    let is_file = |word: &str| word.ends_with(".conf");
    let write = match words {
        _ if of == Subcommand::Timing => "write options alone",
        [word] if word == "help" => &format!("write putex {} --help", of.name()),
        [word] if is_file(word) => &format!("write --config {word}"),
        [word] if is_key(word) => &format!("write --key {word}"),
        [word, ..] if settings.get(Name::Start).is_some() && !word.contains("://") => {
            "quote a command of several words, as in --start 'systemctl start db'; of SERVER \
             BUCKET KEY TOKEN write all four, without --nats and --key"
        }
        _ => "write options alone, as in --key KEY, or SERVER BUCKET KEY TOKEN and options",
    };
    unexpected(&words[0], write)
}

impl From<lexopt::Error> for Refusal {
    fn from(error: lexopt::Error) -> Refusal {
        let lexopt::Error::UnexpectedValue { option, .. } = error else {
            return usage(error.to_string());
        };
        usage(format!("{option}: takes no value; write {option} alone"))
    }
}

/// Returns whether a command takes settings of an agent.
fn is_of_agent(of: Subcommand) -> bool {
    use Subcommand::{Agent, Check, Finish, Timing};
    [Agent, Check, Finish, Timing].contains(&of)
}

fn invocation(line: Line<'_>) -> Result<Invocation, Refusal> {
    let request: fn(&Line<'_>) -> Result<Request, Refusal> = match line.of {
        Subcommand::Help => return help::answer(&line.words).map(Invocation::Print),
        Subcommand::Agent
        | Subcommand::Check
        | Subcommand::Finish
        | Subcommand::Timing
        | Subcommand::Guard => return of_agent(line),
        Subcommand::Doctor => return doctor::invocation(line),
        Subcommand::Lock => |line| lock::request(line).map(Request::Lock),
        Subcommand::Grab | Subcommand::Release => |line| grab::request(line).map(Request::Grab),
        Subcommand::Lease => |line| lease::request(line).map(Request::Lease),
        Subcommand::Put => |line| lease::put(line).map(Request::Put),
        Subcommand::Init => |line| match line.words.first() {
            Some(word) => Err(unexpected(word, "write --bucket NAME")),
            None => Ok(Request::Init),
        },
        Subcommand::Status => |line| status::request(line).map(Request::Status),
        Subcommand::Switchover => |line| switchover::request(line).map(Request::Switchover),
        Subcommand::Pause | Subcommand::Resume => |line| pause::request(line).map(Request::Pause),
    };
    let line = line.complete()?;
    let request = request(&line)?;
    Ok(Invocation::Once(line.bucket()?, Box::new(request)))
}

/// Builds the invocation of a command that takes settings of an agent.
fn of_agent(line: Line<'_>) -> Result<Invocation, Refusal> {
    let Line { of: subcommand, mut settings, words, environment, .. } = line;
    for (name, text) in ARGUMENTS.into_iter().zip(words) {
        settings.set(name, typed(text, "argument", name.flag().shown()));
    }
    if subcommand == Subcommand::Timing {
        let mut faults = Faults::default();
        let timing = resolve::timing(&settings, &mut faults);
        return Ok(Invocation::Print(timing::report(faults.or_first(timing)?)));
    }
    let (path, faults) = add_origins(&mut settings, environment)?;
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

/// Returns a setting of the command line.
fn typed(text: String, origin: &str, written: String) -> Setting {
    Setting { text, precedence: Precedence::CommandLine, origin: origin.to_owned(), written }
}

/// The options that the arguments of an agent stand for, in their order.
const ARGUMENTS: [Name; 4] = [Name::Nats, Name::Bucket, Name::Key, Name::Token];
