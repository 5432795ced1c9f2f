//! The completion of fish.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use putex::cli::table::Subcommand;
use putex::cli::topics::TOPICS;

use super::mdoc::run_tool;
use super::{ORIGIN, Value, about, by_takers, subcommands, value_of};

/// Returns a text in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns the option of `complete` for a spelling of a flag.
fn option(spelling: &str) -> String {
    match spelling.strip_prefix("--") {
        Some(long) => format!(" -l {long}"),
        None => spelling.replacen('-', " -s ", 1),
    }
}

/// Returns the file.
pub(crate) fn script() -> String {
    let words: Vec<_> = subcommands().into_iter().map(Subcommand::name).collect();
    let mut out = format!(
        "# fish completion of putex: /usr/share/fish/vendor_completions.d/putex.fish\n\
         {ORIGIN}\n\
         function __putex_runs -d 'Whether the command is one of these'\n    \
         set -l words (commandline -opc)\n    \
         set -l verb agent\n    \
         if contains -- \"$words[2]\" {}\n        \
         set verb $words[2]\n    \
         end\n    \
         contains -- $verb $argv\n\
         end\n\n\
         function __putex_word -d 'Whether the word of this number is typed'\n    \
         test (count (commandline -opc)) -eq $argv[1]\n\
         end\n\n\
         complete -c putex -f\n",
        words.join(" ")
    );
    for subcommand in subcommands() {
        let _ = writeln!(
            out,
            "complete -c putex -n '__putex_word 1' -a {} -d {}",
            subcommand.name(),
            quoted(&about(subcommand))
        );
    }
    for topic in TOPICS {
        let _ = writeln!(
            out,
            "complete -c putex -n '__putex_runs help; and __putex_word 2' -a {} -d {}",
            topic.name,
            quoted(topic.about)
        );
    }
    let command = "__putex_runs lock; and not __putex_word 1; and not __putex_word 2";
    let _ = writeln!(out, "complete -c putex -n '{command}' -a '(__fish_complete_command)'");
    for (takers, flags) in by_takers() {
        for flag in flags {
            let names: String = flag.spellings().map(|word| option(&word)).collect();
            let value = match value_of(flag) {
                Value::None => "",
                Value::File => " -r -F",
                Value::Folder => " -x -a '(__fish_complete_directories)'",
                Value::Command => " -x -a '(__fish_complete_command)'",
                Value::Text => " -x",
            };
            let _ = writeln!(
                out,
                "complete -c putex -n '__putex_runs {}'{names}{value} -d {}",
                takers.join(" "),
                quoted(flag.help)
            );
        }
    }
    out
}

/// Returns the candidates of fish for the last of these words.
pub(crate) fn offers(words: &[&str]) -> Option<BTreeSet<String>> {
    let script = "source contrib/completions/putex.fish; complete -C \"$argv\"";
    let mut call = vec!["fish", "--no-config", "-c", script];
    call.extend(words);
    let said = run_tool(&call)?;
    let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    Some(said.lines().map(word).collect())
}
