//! The text of `--help`, written from the table.

use std::fmt::Write as _;

use super::table::{FLAGS, Flag, Subcommand};
use super::topics::TOPICS;

/// Returns the text of `--help` of one command, or of all if `subcommand` is `None`.
#[must_use]
pub fn help(subcommand: Option<Subcommand>) -> String {
    let mut text = String::new();
    let out = &mut text;
    // Writing into a String cannot fail.
    let _ = match subcommand {
        None => writeln!(
            out,
            "putex keeps at most one copy of a service running over several hosts.\n\n\
             usage: putex [agent] --key KEY --start COMMAND --stop COMMAND [options]\n\
             \x20      putex agent SERVER BUCKET KEY TOKEN --start COMMAND --stop COMMAND \
             [options]\n\
             \x20      putex check [--connect] [-q] [arguments and options of the agent]\n\
             \x20      putex finish [arguments and options of the agent]\n\
             \x20      putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]\n\
             \x20      putex help [TOPIC]\n\ncommands:"
        ),
        Some(Subcommand::Agent) => writeln!(
            out,
            "usage: putex agent [SERVER BUCKET KEY TOKEN] --start COMMAND --stop COMMAND [options]"
        ),
        Some(subcommand @ (Subcommand::Check | Subcommand::Finish)) => writeln!(
            out,
            "usage: putex {} and the arguments and options of the agent",
            subcommand.name()
        ),
        Some(Subcommand::Help) => writeln!(out, "usage: putex help [TOPIC]"),
        Some(Subcommand::Guard) => writeln!(out, "usage: started by putex agent, not by hand"),
        Some(Subcommand::Timing) => {
            writeln!(out, "usage: putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]")
        }
    };
    if subcommand.is_none() {
        for subcommand in Subcommand::ALL {
            let _ = writeln!(out, "  {:<8} {}", subcommand.name(), subcommand.about());
        }
    }
    let _ = writeln!(out, "\noptions:");
    let width = FLAGS.iter().map(|flag| name(flag).len()).max();
    let width = width.unwrap_or_default();
    for flag in
        FLAGS.iter().filter(|flag| subcommand.is_none_or(|of| flag.subcommands.contains(&of)))
    {
        let name = name(flag);
        let mut notes = String::new();
        if !flag.default.is_empty() {
            let _ = write!(notes, " [{}]", flag.default);
        }
        if !flag.env.is_empty() {
            let _ = write!(notes, " [${}]", flag.env);
        }
        let _ = writeln!(out, "  {name:<width$}  {}{notes}", flag.help);
    }
    text.push_str(&more(subcommand));
    text
}

/// Returns the letter, the long name and the value of a flag, as help shows them.
fn name(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| {
        format!("-{short}{} ", if flag.long.is_empty() { " " } else { "," })
    });
    let long = if flag.long.is_empty() { String::new() } else { format!("--{} ", flag.long) };
    format!("{short}{long}{}", flag.value)
}

/// Returns the last lines of help: further commands and pages to read.
fn more(subcommand: Option<Subcommand>) -> String {
    if subcommand.is_some_and(|subcommand| subcommand != Subcommand::Help) {
        return "\nThe rest is told by putex help, and by the manual page putex(8).\n".to_owned();
    }
    let mut text = "\ntopics of putex help:\n".to_owned();
    for topic in TOPICS {
        let _ = writeln!(text, "  {:<12} {}", topic.name, topic.about);
    }
    text
}
