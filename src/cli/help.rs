//! The texts of `putex help` and of `--help`, written from the tables.

use super::table::{Flag, Subcommand};
use super::topics::{self, TOPICS, Topic};
use super::unexpected;
use crate::exit::Refusal;

/// Most columns of a line: those of a terminal that nobody has made wider.
const COLUMNS_MAX: usize = 80;

/// The column at which the help of an option begins. A longer option has a line of its own.
const HELP_COLUMN: usize = 31;

/// Returns the text of `--help` of one command, or of `putex help` if `subcommand` is `None`.
pub fn help(subcommand: Option<Subcommand>) -> String {
    let Some(subcommand) = subcommand.filter(|known| *known != Subcommand::Help) else {
        return overview();
    };
    let name = subcommand.name();
    let (of_store, own): (Vec<&Flag>, Vec<&Flag>) =
        Flag::all_of(subcommand).partition(|flag| flag.name.is_of_store());
    let mut text = format!("putex {name}: {}\n\n", subcommand.about());
    text.push_str(&format!("usage: {}\n\noptions:\n", subcommand.usage()));
    own.into_iter().for_each(|flag| text.push_str(&option(flag)));
    if !of_store.is_empty() {
        text.push_str("  where the bucket is: putex help store\n");
    }
    if !subcommand.example().is_empty() {
        text.push_str(&format!("\nexample:\n  {}\n", subcommand.example()));
    }
    if let Some(topic) = Topic::of(subcommand) {
        text.push_str(&format!("\nmore: putex help {}\n", topic.name));
    }
    text
}

/// Returns the output of `putex help` with these arguments.
pub(super) fn answer(arguments: &[String]) -> Result<String, Refusal> {
    match arguments {
        [] => Ok(overview()),
        [name] if name.eq_ignore_ascii_case(Subcommand::Help.name()) => Ok(overview()),
        [name] => topics::text_of(name),
        [first, more, ..] => {
            Err(unexpected(more, &format!("one topic at a time; write putex help {first}")))
        }
    }
}

/// Returns the lines of an option: how it is written, its meaning, its default and its variable.
fn option(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let mut lines = vec![format!("  {short}--{} {}", flag.long, flag.value).trim_end().to_owned()];
    let also = match flag.others {
        [] => String::new(),
        others => format!("; also {}", others.join(", ")),
    };
    let shown = |value: &str, open: &str| match value {
        "" | "none" => String::new(),
        value => format!(" [{open}{value}]"),
    };
    let (default, env) = (shown(flag.default, ""), shown(flag.env, "$"));
    if lines[0].len() + 2 > HELP_COLUMN {
        lines.push(String::new());
    }
    for word in format!("{}{also}{default}{env}", flag.help).split(' ') {
        let last = lines.last_mut().expect("the list has a line from the beginning");
        if last.len() < HELP_COLUMN {
            *last = format!("{last:<HELP_COLUMN$}{word}");
        } else if last.len() + 1 + word.len() <= COLUMNS_MAX {
            last.push_str(&format!(" {word}"));
        } else {
            lines.push(format!("{:<HELP_COLUMN$}{word}", ""));
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the commands by task, examples, and where to read on.
fn overview() -> String {
    let mut text = "putex keeps at most one copy of a service running over several hosts.\n\n\
                    usage: putex COMMAND [options]\n"
        .to_owned();
    for (task, commands) in Subcommand::GROUPS.iter().filter(|(task, _)| !task.is_empty()) {
        text.push_str(&format!("\n{task}\n"));
        for command in *commands {
            text.push_str(&format!("  {:<11} {}\n", command.name(), command.about()));
        }
    }
    text.push_str(EXAMPLES);
    let topics = TOPICS.iter().map(|topic| topic.name);
    let topics = topics.filter(|name| Subcommand::find(name).is_none());
    text + &topics.collect::<Vec<_>>().join(" ") + "\n"
}

const EXAMPLES: &str = "
examples
  putex lock --nats nats://n1 nightly ./report    # on one host at a time
  putex agent --nats nats://n1 --key web \\
      --start 'systemctl start web' --stop 'systemctl stop web'
  putex status --nats nats://n1

putex COMMAND --help shows the options of a command, putex help COMMAND or
putex help TOPIC the manual. Topics:
";
