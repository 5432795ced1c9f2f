//! `--help`, written from the table.

use std::fmt::Write as _;

use super::table::{FLAGS, Flag, Verb};
use super::topics::TOPICS;

/// Returns the text of `--help`, of one command or of all.
#[must_use]
pub fn help(verb: Option<Verb>) -> String {
    let mut text = String::new();
    let out = &mut text;
    // Writing into a String cannot fail.
    let _ = match verb {
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
        Some(Verb::Agent) => writeln!(
            out,
            "usage: putex agent [SERVER BUCKET KEY TOKEN] --start COMMAND --stop COMMAND [options]"
        ),
        Some(verb @ (Verb::Check | Verb::Finish)) => writeln!(
            out,
            "usage: putex {} and the arguments and options of the agent",
            verb.word()
        ),
        Some(Verb::Help) => writeln!(out, "usage: putex help [TOPIC]"),
        Some(Verb::Guard) => writeln!(out, "usage: started by putex agent, not by hand"),
        Some(Verb::Timing) => {
            writeln!(
                out,
                "usage: putex timing [-r TIME] [-f COUNT] [-c COUNT] [--drift PERCENT]"
            )
        }
    };
    if verb.is_none() {
        for verb in Verb::ALL {
            let _ = writeln!(out, "  {:<8} {}", verb.word(), verb.about());
        }
    }
    let _ = writeln!(out, "\noptions:");
    let wide = FLAGS.iter().map(|flag| name(flag).len()).max();
    let wide = wide.unwrap_or_default();
    for flag in FLAGS
        .iter()
        .filter(|flag| verb.is_none_or(|verb| flag.verbs.contains(&verb)))
    {
        let name = name(flag);
        let mut notes = String::new();
        if !flag.default.is_empty() {
            let _ = write!(notes, " [{}]", flag.default);
        }
        if !flag.env.is_empty() {
            let _ = write!(notes, " [${}]", flag.env);
        }
        let _ = writeln!(out, "  {name:<wide$}  {}{notes}", flag.help);
    }
    text.push_str(&more(verb));
    text
}

/// Returns a flag's letter, long name and value, as they stand before its text.
fn name(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| {
        format!("-{short}{} ", if flag.long.is_empty() { " " } else { "," })
    });
    let long = if flag.long.is_empty() {
        String::new()
    } else {
        format!("--{} ", flag.long)
    };
    format!("{short}{long}{}", flag.value)
}

/// Returns where more is to be read.
fn more(verb: Option<Verb>) -> String {
    if verb.is_some_and(|verb| verb != Verb::Help) {
        return "\nThe rest is told by putex help, and by the manual page putex(8).\n".to_owned();
    }
    let mut text = "\ntopics of putex help:\n".to_owned();
    for topic in TOPICS {
        let _ = writeln!(text, "  {:<12} {}", topic.word, topic.about);
    }
    text
}
