//! The text of `--help`, written from the table.

use super::table::{FLAGS, Flag, Subcommand};
use super::topics::TOPICS;

/// Returns the text of `--help` of one command, or of all if `subcommand` is `None`.
pub fn help(subcommand: Option<Subcommand>) -> String {
    let Some(subcommand) = subcommand else { return overview() + &topics() };
    let flags = Flag::all_of(subcommand).collect();
    let text = format!("usage: {}\n\noptions:\n{}", subcommand.usage(), options(flags));
    match subcommand {
        Subcommand::Help => text + &topics(),
        Subcommand::Lock => text + "\nThe rest is told by putex help lock, putex-lock(1).\n",
        Subcommand::Grab | Subcommand::Release => {
            text + "\nThe rest is told by putex help grab, putex-grab(1).\n"
        }
        Subcommand::Lease | Subcommand::Put => {
            text + "\nThe rest is told by putex help lease, putex-lease(1).\n"
        }
        Subcommand::Doctor => text + "\nThe rest is told by putex help doctor, putex-doctor(1).\n",
        Subcommand::Switchover => {
            text + "\nThe rest is told by putex help switchover, putex-switchover(1).\n"
        }
        Subcommand::Pause | Subcommand::Resume => {
            text + "\nThe rest is told by putex help pause, putex-pause(1).\n"
        }
        Subcommand::Status => text + "\nThe rest is told by putex help status, putex-status(1).\n",
        Subcommand::Agent | Subcommand::Check | Subcommand::Finish => text + SEE_AGENT,
        Subcommand::Timing | Subcommand::Guard => text + SEE_AGENT,
    }
}

const SEE_AGENT: &str = "\nThe rest is told by putex help, and by the manual page putex(8).\n";

/// Returns the lines of these flags.
fn options(flags: Vec<&Flag>) -> String {
    let width = flags.iter().map(|flag| name(flag).len()).max().unwrap_or_default();
    let mut text = String::new();
    for flag in flags {
        text.push_str(&format!("  {:<width$}  {}", name(flag), flag.help));
        if !flag.others.is_empty() {
            text.push_str(&format!("; also {}", flag.others.join(", ")));
        }
        if !flag.default.is_empty() {
            text.push_str(&format!(" [{}]", flag.default));
        }
        if !flag.env.is_empty() {
            text.push_str(&format!(" [${}]", flag.env));
        }
        text.push('\n');
    }
    text
}

fn topics() -> String {
    let topics = TOPICS.iter().map(|topic| format!("  {:<12} {}\n", topic.name, topic.about));
    format!("\ntopics of putex help:\n{}", topics.collect::<String>())
}

/// Returns the usage of all commands, and their summaries.
fn overview() -> String {
    let about = |of: Subcommand| format!("  {:<8} {}\n", of.name(), of.about());
    let commands: String = Subcommand::ALL.into_iter().map(about).collect();
    let by_hand = Subcommand::ALL.into_iter().filter(|of| *of != Subcommand::Guard);
    let usages: Vec<_> = by_hand.map(Subcommand::usage).collect();
    let (of_locks, others): (Vec<&Flag>, Vec<&Flag>) =
        FLAGS.iter().partition(|flag| is_of_locks(flag));
    let is_of = |flag: &&Flag, of: Subcommand| flag.subcommands.contains(&of);
    let (of_lock, others_of_locks): (Vec<_>, Vec<_>) =
        of_locks.into_iter().partition(|flag| is_of(flag, Subcommand::Lock));
    let (of_grab, of_lease): (Vec<_>, Vec<_>) = others_of_locks
        .into_iter()
        .partition(|flag| is_of(flag, Subcommand::Grab) || is_of(flag, Subcommand::Release));
    format!(
        "putex keeps at most one copy of a service running over several hosts.\n\n\
         usage: {}\n\ncommands:\n{commands}\noptions:\n{}\n\
         options of putex lock, besides those for a store:\n{}\n\
         options of putex grab and putex release, besides -s -x -w -E and those for a store:\n{}\n\
         options of the other commands, besides those for a store:\n{}",
        usages.join("\n       "),
        options(others),
        options(of_lock),
        options(of_grab),
        options(of_lease)
    )
}

/// Returns whether a flag is of the commands alone that have pages of their own.
fn is_of_locks(flag: &Flag) -> bool {
    flag.subcommands.iter().all(|of| Subcommand::WITH_PAGES.contains(of))
}

/// Returns the letter, the long name and the value of a flag, as help shows them.
fn name(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    format!("{short}--{} {}", flag.long, flag.value)
}
