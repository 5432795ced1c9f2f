//! The completions of bash, zsh and fish in `contrib/completions` are generated from the
//! table of commands and flags, and work in the shells that are installed.
//!
//! After a change of the table: `PUTEX_REWRITE=1 cargo test --test command_line`.

mod bash;
mod fish;
mod zsh;

use std::collections::BTreeSet;
use std::fs;

use putex::cli::table::{FLAGS, Flag, Subcommand};

use crate::mdoc::{root, run_tool};

const FOLDER: &str = "contrib/completions";

/// The first lines of each file.
const ORIGIN: &str = "# Made from the table of the program, src/cli/table.rs, by\n\
                      # PUTEX_REWRITE=1 cargo test --test command_line\n";

/// The kinds of candidates for the value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The flag takes no value.
    None,
    File,
    Folder,
    Command,
    /// No candidates: only the user knows the value.
    Text,
}

fn value_of(flag: &Flag) -> Value {
    match flag.value {
        "" => Value::None,
        "file" | "device" => Value::File,
        "dir" => Value::Folder,
        "command" => Value::Command,
        "url[,url]" | "name" | "subject" | "key" | "token" | "time" | "count" | "percent"
        | "number" | "seconds" | "status" | "string" | "who" | "id" | "question" | "field"
        | "text" | "format" | "name[,name]" => Value::Text,
        other => panic!("{}: what is to be offered for {other}?", flag.shown()),
    }
}

/// The spellings of the options of `putex lock` whose value may be a word of its own: the long
/// ones, and all letters in one text.
struct Valued {
    long: Vec<String>,
    letters: String,
}

impl Valued {
    fn of_lock() -> Valued {
        let flags = Flag::all_of(Subcommand::Lock).filter(|flag| !flag.value.is_empty());
        let (long, short): (Vec<_>, Vec<_>) =
            flags.flat_map(Flag::spellings).partition(|word| word.starts_with("--"));
        Valued { long, letters: short.concat().replace('-', "") }
    }
}

/// Returns the commands that a user runs.
fn subcommands() -> Vec<Subcommand> {
    let by_hand = |subcommand: &Subcommand| *subcommand != Subcommand::Guard;
    Subcommand::ALL.into_iter().filter(by_hand).collect()
}

/// Returns the names of the commands that take a flag, without those that no user runs.
fn takers(flag: &Flag) -> Vec<&'static str> {
    let takes = |subcommand: &Subcommand| flag.subcommands.contains(subcommand);
    subcommands().into_iter().filter(takes).map(Subcommand::name).collect()
}

/// Returns the flags, grouped by the commands that take them.
fn by_takers() -> Vec<(Vec<&'static str>, Vec<&'static Flag>)> {
    let mut groups: Vec<(Vec<&str>, Vec<&Flag>)> = Vec::new();
    for flag in FLAGS.iter().filter(|flag| !flag.subcommands.is_empty()) {
        let takers = takers(flag);
        match groups.iter_mut().find(|(known, _)| *known == takers) {
            Some((_, flags)) => flags.push(flag),
            None => groups.push((takers, vec![flag])),
        }
    }
    groups
}

#[test]
fn the_files_are_those_that_the_table_makes() {
    let rewrite = std::env::var_os("PUTEX_REWRITE").is_some();
    let mut stale = Vec::new();
    for (name, text) in
        [("putex.bash", bash::script()), ("_putex", zsh::script()), ("putex.fish", fish::script())]
    {
        let path = root().join(FOLDER).join(name);
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept == text {
            continue;
        }
        if rewrite {
            fs::write(&path, &text).unwrap();
            println!("{name}: written");
        } else {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?}: the table has changed; run PUTEX_REWRITE=1 cargo test --test command_line"
    );
}

#[test]
fn shells_can_read_them() {
    for words in [
        &["bash", "-n", "contrib/completions/putex.bash"][..],
        &["zsh", "-f", "-n", "contrib/completions/_putex"],
        &["fish", "-n", "contrib/completions/putex.fish"],
        &["shellcheck", "-s", "bash", "contrib/completions/putex.bash"],
    ] {
        let said = run_tool(words).unwrap_or_default();
        assert_eq!(said, "", "{words:?}");
    }
}

/// Returns the candidates of a shell for the last word; `None` if it is not installed.
type Complete = fn(&[&str]) -> Option<BTreeSet<String>>;

const SHELLS: [(&str, Complete); 3] =
    [("bash", bash::offers), ("fish", fish::offers), ("zsh", zsh::offers)];

/// Behind the name of a lock stands a command, before it none.
#[test]
fn each_shell_completes_commands_flags_files_and_the_command_of_a_lock() {
    for (shell, complete) in SHELLS {
        for (words, due) in [
            (&["ti"][..], &["timing"][..]),
            (&["agent", "--sysl"], &["--syslog"]),
            (&["agent", "--creds", "tests/pages/docs.r"], &["tests/pages/docs.rs"]),
            (
                &["lock", "-nvw", "5", "--nats", "nats://a:4222", "db", "--", "basenam"],
                &["basename"],
            ),
            (&["lock", "-nw", "basenam"], &[]),
            (&["lock", "db", "own", "--creds", "--allow"], &[]),
        ] {
            let Some(offered) = complete(&[&["putex"], words].concat()) else { break };
            let due: BTreeSet<_> = due.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(offered, due, "{shell}: {words:?}");
        }
    }
}
