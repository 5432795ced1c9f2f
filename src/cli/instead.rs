//! The words and options that users of like programs write, and the refusals that name what to
//! write instead.

use std::ffi::OsStr;

use super::table::{FLAGS, Flag, Subcommand, nearest};
use super::{clean, lock, shown, usage};
use crate::exit::{Exit, Refusal};

/// First words that are no commands, and what is meant: the commands of like programs and of
/// service managers, and the actions of `putex lease`.
const COMMANDS: [(&str, &str); 51] = [
    ("acquire", "putex grab"),
    ("break", "putex release --force --holder WHO NAME"),
    ("campaign", LEASE),
    ("claim", "putex lease claim"),
    ("create", "putex init"),
    ("disable", "systemctl disable putex@KEY"),
    ("drain", SWITCHOVER),
    ("elect", LEASE),
    ("enable", "systemctl enable --now putex@KEY"),
    ("exec", "putex lock"),
    ("expire", "putex lease expire"),
    ("extend", "putex lease extend"),
    ("failback", SWITCHOVER),
    ("failover", SWITCHOVER),
    ("flock", "putex lock"),
    ("freeze", "putex pause"),
    ("get", "nats kv get"),
    ("handover", SWITCHOVER),
    ("health", DOCTOR),
    ("holder", STATUS),
    ("info", STATUS),
    ("list", STATUS),
    ("logs", "journalctl -u putex@KEY"),
    ("ls", STATUS),
    ("maintenance", "putex pause"),
    ("migrate", SWITCHOVER),
    ("move", SWITCHOVER),
    ("ping", DOCTOR),
    ("promote", SWITCHOVER),
    ("reload", RELOAD),
    ("relocate", SWITCHOVER),
    ("renew", "putex lease extend"),
    ("restart", "systemctl restart putex@KEY"),
    ("revoke", "putex lease expire"),
    ("run", "putex agent"),
    ("set", "putex put"),
    ("show", STATUS),
    ("standby", SWITCHOVER),
    ("start", "putex agent, or systemctl start putex@KEY"),
    ("stepdown", SWITCHOVER),
    ("stop", "systemctl stop putex@KEY"),
    ("suspend", "putex pause"),
    ("takeover", SWITCHOVER),
    ("test", "putex check --connect, or putex doctor"),
    ("unlock", "putex release"),
    ("unpause", "putex resume"),
    ("upgrade", RELOAD),
    ("validate", "putex check"),
    ("version", "putex --version"),
    ("watch", WATCH),
    ("who", STATUS),
];

const DOCTOR: &str = "putex doctor";
const LEASE: &str = "putex lease claim";
const RELOAD: &str = "systemctl reload putex@KEY";
const STATUS: &str = "putex status";
const SWITCHOVER: &str = "putex switchover";

/// A status that is shown again and again.
const WATCH: &str = "watch putex status";

/// Options of like programs and of other commands, and what is written instead, by each command
/// that takes it.
const OPTIONS: [(&str, &str); 38] = [
    ("--as", "--token TOKEN"),
    ("--cacert", "--tlsca FILE"),
    ("--cert", "--tlscert FILE"),
    ("--check", "--healthcheck COMMAND"),
    ("--duration", "--for TIME"),
    ("--endpoints", "--nats URL,URL"),
    ("--expire", "-r TIME and -f COUNT; the lock expires after COUNT times TIME"),
    ("--file", "--config FILE"),
    ("--for", "--hold TIME to hold the lock for so long, or -w SECONDS to wait for it"),
    ("--format", "--json"),
    ("--hold", "--for TIME"),
    ("--holder", "--as WHO"),
    ("--host", "--to WHO"),
    ("--hostname", "--token TOKEN"),
    ("--http-addr", "--nats URL"),
    ("--id", "--token TOKEN"),
    ("--interval", "-r TIME"),
    ("--lease", "--for TIME"),
    ("--log", "--syslog"),
    ("--max", "-j COUNT"),
    ("--name", "--key KEY"),
    ("--nopreempt", "--failback never"),
    ("--output", "--json"),
    ("--server", "--nats URL"),
    ("--service", "--key KEY"),
    ("--servers", "--nats URL,URL"),
    ("--target", "--to WHO"),
    ("--tls", "--nats tls://HOST:PORT"),
    ("--token", "--as WHO"),
    ("--ttl", "--for TIME"),
    ("--ttl", "-r TIME and -f COUNT; the lock expires after COUNT times TIME"),
    ("--until", "--for TIME"),
    ("--url", "--nats URL"),
    ("-c", "--config FILE"),
    ("-o", "--json"),
    ("-s", "--nats URL"),
    ("-t", "--for TIME"),
    ("-t", "-w SECONDS"),
];

/// Most commands that a refusal names: those that take an option.
const TAKERS_SHOWN_MAX: usize = 3;

/// Returns what a user means by a first word that is no command, as far as that can be known.
pub(super) fn instead_of(word: &str) -> Option<String> {
    let instead = COMMANDS.iter().find(|(wrong, _)| *wrong == word);
    if let Some((_, command)) = instead {
        return Some(format!("; write {command}"));
    }
    let nearest = nearest(word, Subcommand::ALL.map(|known| known.name().to_owned()));
    (!nearest.is_empty()).then_some(nearest)
}

/// Returns the refusal of a first word that is no command.
pub(super) fn no_command(word: &str) -> Refusal {
    let instead = instead_of(word).unwrap_or_default();
    let word = clean(&shown(word));
    Refusal::new(Exit::Usage, format!("{word}: no such command{instead}; see putex help"))
}

/// Returns the refusal of a long option with one hyphen, as other programs take it: its letters
/// would be options of their own, `-h` among them.
pub(super) fn one_hyphen(word: &OsStr) -> Option<Refusal> {
    let name = word.to_str()?.strip_prefix('-')?.split('=').next()?;
    let is_long = FLAGS.iter().any(|flag| flag.long == name);
    is_long.then(|| usage(format!("-{name}: a long option has two hyphens; write --{name}")))
}

/// Returns the refusal of an option that a command does not take; `None`: no command is named.
pub(super) fn no_option(written: &str, subcommand: Option<Subcommand>) -> Refusal {
    let of = subcommand.unwrap_or(Subcommand::Agent);
    let of_flock = lock::refuse_option(written).filter(|_| of == Subcommand::Lock);
    of_flock.unwrap_or_else(|| {
        let command = of.name();
        let why = match (of, written) {
            (Subcommand::Status, "-w" | "--watch" | "--follow") => {
                format!("no such option; write {WATCH}")
            }
            (Subcommand::Put, "--key" | "--value" | "--name") => {
                "no such option; write putex put --lease NAME KEY VALUE".to_owned()
            }
            (Subcommand::Release | Subcommand::Resume, "--all") => {
                format!("no such option; write putex {command} once for each name")
            }
            (Subcommand::Init, "-r") => {
                "not an option of putex init; did you mean --replicas?".to_owned()
            }
            (Subcommand::Release, "-f") => {
                "not an option of putex release; write --force --holder WHO".to_owned()
            }
            (
                Subcommand::Status
                | Subcommand::Doctor
                | Subcommand::Switchover
                | Subcommand::Pause
                | Subcommand::Resume,
                "--key" | "--name",
            ) => format!(
                "not an option of putex {command}; write the key without it, as the argument"
            ),
            (
                Subcommand::Lock | Subcommand::Grab | Subcommand::Release | Subcommand::Lease,
                "--key" | "--name",
            ) => format!(
                "not an option of putex {command}; write the name without it, as the argument"
            ),
            (Subcommand::Lock | Subcommand::Put, number) if is_negative_number(number) => {
                "no such option; write -- before a word that begins with -".to_owned()
            }
            _ => why_no_option(written, of),
        };
        usage(format!("{written}: {why}"))
    })
}

fn is_negative_number(written: &str) -> bool {
    written.chars().nth(1).is_some_and(|letter| letter.is_ascii_digit())
}

/// Returns why a command does not take an option that has no answer of its own.
fn why_no_option(written: &str, of: Subcommand) -> String {
    let is_taken = |instead: &str| {
        instead.split(' ').next().is_some_and(|option| Flag::find(option, of).is_some())
    };
    let mut instead = OPTIONS.iter().filter(|(wrong, _)| *wrong == written);
    let mut flags = FLAGS.iter().filter(|flag| flag.is_written(written)).peekable();
    if let Some((_, instead)) = instead.find(|(_, instead)| is_taken(instead)) {
        return match flags.peek() {
            Some(_) => format!("not an option of putex {}; write {instead}", of.name()),
            None => format!("no such option; write {instead}"),
        };
    }
    let takers = flags.flat_map(|flag| flag.subcommands).map(|taker| taker.name());
    let mut takers = takers.collect::<Vec<_>>();
    let others = if takers.len() > TAKERS_SHOWN_MAX { " and others" } else { "" };
    takers.truncate(TAKERS_SHOWN_MAX);
    if !takers.is_empty() {
        let takers = takers.join(", ");
        return format!("not an option of putex {}, but of {takers}{others}", of.name());
    }
    let nearest = nearest(written, Flag::all_of(of).map(Flag::shown));
    format!("no such option{nearest}; see putex {} --help", of.name())
}

#[cfg(test)]
mod tests;
