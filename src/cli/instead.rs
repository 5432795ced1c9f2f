//! The words and options that users of like programs write, and the refusals that name what to
//! write instead.

use super::table::{FLAGS, Flag, Subcommand, nearest};
use super::{clean, lock, shown, usage};
use crate::core::tickets;
use crate::exit::{Exit, Refusal};

/// Commands that are written instead of first words that are no commands, and those words: the
/// commands of like programs, and the actions of `putex lease`.
const COMMANDS: [(&str, &str); 18] = [
    ("nats kv get", "get"),
    ("putex --version", "version"),
    ("putex agent", "run"),
    ("putex check", "test validate"),
    ("putex doctor", "health ping"),
    ("putex grab", "acquire"),
    ("putex init", "create"),
    ("putex lease claim", "campaign claim elect"),
    ("putex lease expire", "expire revoke"),
    ("putex lease extend", "extend renew"),
    ("putex lock", "exec flock"),
    ("putex pause", "freeze maintenance suspend"),
    ("putex put", "set"),
    ("putex release", "break unlock"),
    ("putex resume", "unpause"),
    ("putex status", "holder info list ls show who"),
    ("putex switchover", "drain failback failover handover migrate move promote takeover"),
    ("watch putex status", "watch"),
];

/// Actions of systemd on the service of an agent.
const OF_SYSTEMD: [&str; 6] = ["disable", "enable", "reload", "restart", "start", "stop"];

/// Options that are written instead of options of like programs and of other commands, by each
/// command that takes them, and those options.
const OPTIONS: [(&str, &str); 13] = [
    ("--as WHO", "--holder --token"),
    ("--config FILE", "--file -c"),
    ("--force --holder WHO", "-f"),
    ("--for TIME", "--duration --hold --lease --ttl --until -t"),
    ("--hold TIME to hold the lock for so long, or -w SECONDS to wait for it", "--for"),
    ("--json", "--format --output -o"),
    ("--key KEY", "--name --service"),
    ("--nats URL[,URL]", "--endpoints --server --servers --url -s"),
    ("--tlsca FILE", "--cacert"),
    ("--to WHO", "--host --target"),
    ("--token TOKEN", "--as --hostname --id"),
    ("-r TIME and -f COUNT; the lock expires after COUNT times TIME", "--expire --ttl"),
    ("-w SECONDS", "-t"),
];

/// Returns what is written instead of this word, by each row of a table that has it.
pub(super) fn rows_of<'a>(
    table: &'a [(&'static str, &'static str)],
    word: &'a str,
) -> impl Iterator<Item = &'static str> + 'a {
    let has_word = move |(_, words): &&(&str, &str)| words.split(' ').any(|wrong| wrong == word);
    table.iter().filter(has_word).map(|(instead, _)| *instead)
}

/// Most commands that a refusal names: those that take an option.
const TAKERS_SHOWN_MAX: usize = 3;

/// Returns what a user means by a first word that is no command, as far as that can be known.
pub(super) fn instead_of(word: &str) -> Option<String> {
    if let Some(command) = rows_of(&COMMANDS, word).next() {
        return Some(format!("; write {command}"));
    }
    if OF_SYSTEMD.contains(&word) {
        return Some(format!("; write systemctl {word} putex@KEY"));
    }
    let nearest = nearest(word, Subcommand::ALL.map(|known| known.name().to_owned()));
    (!nearest.is_empty()).then_some(nearest)
}

/// Returns the refusal of a first word that is no command. `others_follow`: with other words behind
/// it, the word may be the name of a lock.
pub(super) fn no_command(word: &str, others_follow: bool) -> Refusal {
    let is_name = others_follow && tickets::Name::parse(word).is_ok();
    let of_lock = || is_name.then(|| format!("; for a lock write putex lock {word} COMMAND"));
    let instead = instead_of(word).or_else(of_lock).unwrap_or_default();
    let word = clean(&shown(word));
    Refusal::new(Exit::Usage, format!("{word}: no such command{instead}; see putex help"))
}

/// Returns the refusal of an option that a command does not take; `None`: no command is named.
pub(super) fn no_option(written: &str, subcommand: Option<Subcommand>) -> Refusal {
    let of = subcommand.unwrap_or(Subcommand::Agent);
    let why = match (of, written) {
        (Subcommand::Status, "-w" | "--watch") => "no such option; write watch putex status",
        (_, "--key" | "--name") if takes_name(of) => {
            &format!("not an option of putex {}; write the name without it", of.name())
        }
        (Subcommand::Lock, "-u" | "--unlock" | "-F" | "--no-fork") => lock::LIVES_AS_COMMAND,
        (Subcommand::Lock | Subcommand::Put, number)
            if number[1..].starts_with(|letter: char| letter.is_ascii_digit()) =>
        {
            "no such option; write -- before a word that begins with -"
        }
        _ => &why_no_option(written, of),
    };
    usage(format!("{written}: {why}"))
}

/// Returns whether the first argument of a command is a name or a key.
fn takes_name(of: Subcommand) -> bool {
    use Subcommand::{Doctor, Grab, Lease, Lock, Pause, Put, Release, Resume, Status, Switchover};
    [Doctor, Grab, Lease, Lock, Pause, Put, Release, Resume, Status, Switchover].contains(&of)
}

/// Returns why a command does not take an option that has no answer of its own.
fn why_no_option(written: &str, of: Subcommand) -> String {
    let is_taken = |instead: &str| {
        instead.split(' ').next().is_some_and(|option| Flag::find(option, of).is_some())
    };
    let mut flags = FLAGS.iter().filter(|flag| flag.is_written(written)).peekable();
    if let Some(instead) = rows_of(&OPTIONS, written).find(|instead| is_taken(instead)) {
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
    let spellings = Flag::all_of(of).flat_map(Flag::spellings);
    let nearest = nearest(written, spellings.filter(|it| it.starts_with("--")));
    format!("no such option{nearest}; see putex {} --help", of.name())
}

#[cfg(test)]
mod tests;
