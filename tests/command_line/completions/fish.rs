//! The completion of fish.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use putex::cli::lease::ACTIONS;
use putex::cli::table::Subcommand;
use putex::cli::topics::TOPICS;

use super::{ORIGIN, Value, Valued, by_takers, subcommands, value_of};
use crate::mdoc::run_tool;

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

/// Returns the functions that find and complete the command of `putex lock`.
fn command_of_lock() -> String {
    let Valued { long, letters } = Valued::of_lock();
    format!(
        r#"function __putex_command -d 'The words of the command behind the name of a lock'
    set -l words (commandline -opc) (commandline -ct)
    test "$words[2]" = lock; or return
    set -e words[1..2]
    while string match -q -- '-?*' $words[1]
        set -l word $words[1]
        set -e words[1]
        test "$word" = --; and break
        # The value may be the next word.
        if contains -- $word {}
            or string match -rq -- '^-[^-{letters}]*[{letters}]$' $word
            set -e words[1]
        end
    end
    # The name.
    set -e words[1]
    if test "$words[1]" = --; and set -q words[2]
        set -e words[1]
    end
    set -q words[1]; or return
    string join0 -- $words
    return 0
end

function __putex_complete_command -d 'Completes that command; what begins with a hyphen is none'
    set -l words (__putex_command | string split0)
    string match -q -- '-*' $words[1]; or __fish_complete_subcommand --commandline $words
end"#,
        long.join(" ")
    )
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
         if test $verb = lock; and __putex_command >/dev/null\n        \
         return 1\n    \
         end\n    \
         contains -- $verb $argv\n\
         end\n\n\
         {}\n\n\
         function __putex_word -d 'Whether the word of this number is typed'\n    \
         test (count (commandline -opc)) -eq $argv[1]\n\
         end\n\n\
         complete -c putex -f\n",
        words.join(" "),
        command_of_lock()
    );
    for subcommand in subcommands() {
        let _ = writeln!(
            out,
            "complete -c putex -n '__putex_word 1' -a {} -d {}",
            subcommand.name(),
            quoted(subcommand.about())
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
    for action in ACTIONS {
        let _ = writeln!(
            out,
            "complete -c putex -n '__putex_runs lease; and __putex_word 2' -a {action}"
        );
    }
    let completes = "-n '__putex_command >/dev/null' -a '(__putex_complete_command)'";
    let _ = writeln!(out, "complete -c putex {completes}");
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
    let script = "source contrib/completions/putex.fish\n\
                  complete -C \"$argv\"";
    let mut call = vec!["fish", "--no-config", "-c", script];
    call.extend(words);
    let said = run_tool(&call)?;
    let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    Some(said.lines().map(word).collect())
}
