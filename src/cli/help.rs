//! The text of `--help`, written from the table.

use super::table::{FLAGS, Flag, Subcommand};
use super::topics::TOPICS;

/// Returns the text of `--help` of one command, or of all if `subcommand` is `None`.
pub fn help(subcommand: Option<Subcommand>) -> String {
    let mut text = match subcommand {
        None => overview(),
        Some(subcommand) => format!("usage: {}\n", subcommand.usage()),
    };
    text.push_str("\noptions:\n");
    let width = FLAGS.iter().map(|flag| name(flag).len()).max().unwrap_or_default();
    let is_of = |flag: &&Flag| subcommand.is_none_or(|of| flag.subcommands.contains(&of));
    for flag in FLAGS.iter().filter(is_of) {
        text.push_str(&format!("  {:<width$}  {}", name(flag), flag.help));
        if !flag.default.is_empty() {
            text.push_str(&format!(" [{}]", flag.default));
        }
        if !flag.env.is_empty() {
            text.push_str(&format!(" [${}]", flag.env));
        }
        text.push('\n');
    }
    if subcommand.is_some_and(|subcommand| subcommand != Subcommand::Help) {
        text.push_str("\nThe rest is told by putex help, and by the manual page putex(8).\n");
        return text;
    }
    let topics = TOPICS.iter().map(|topic| format!("  {:<12} {}\n", topic.name, topic.about));
    text + "\ntopics of putex help:\n" + &topics.collect::<String>()
}

/// Returns the usage of all commands, and their summaries.
fn overview() -> String {
    let about = |of: Subcommand| format!("  {:<8} {}\n", of.name(), of.about());
    let commands: String = Subcommand::ALL.into_iter().map(about).collect();
    let by_hand = Subcommand::ALL.into_iter().filter(|of| *of != Subcommand::Guard);
    let usages: Vec<_> = by_hand.map(Subcommand::usage).collect();
    format!(
        "putex keeps at most one copy of a service running over several hosts.\n\n\
         usage: {}\n\ncommands:\n{commands}",
        usages.join("\n       ")
    )
}

/// Returns the letter, the long name and the value of a flag, as help shows them.
fn name(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    format!("{short}--{} {}", flag.long, flag.value)
}
