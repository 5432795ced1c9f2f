//! The completions of bash, zsh and fish in `contrib/completions` are generated from the
//! table of commands and flags, and work in the shells that are installed.
//!
//! After a change of the table: `PUTEX_REWRITE=1 cargo test --test completions`.

mod bash;
mod fish;
mod zsh;

use std::collections::BTreeSet;
use std::fs;

use putex::cli::table::{FLAGS, Flag, Subcommand};
use putex::cli::topics::TOPICS;

use crate::mdoc::{root, run_tool, spellings};

const FOLDER: &str = "contrib/completions";

/// The first lines of each file.
const ORIGIN: &str = "# Made from the table of the program, src/cli/table.rs, by\n\
                      # PUTEX_REWRITE=1 cargo test --test completions\n";

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
    for flag in FLAGS {
        let takers = takers(flag);
        match groups.iter_mut().find(|(known, _)| *known == takers) {
            Some((_, flags)) => flags.push(flag),
            None => groups.push((takers, vec![flag])),
        }
    }
    groups
}

/// Returns the summary of a command, as `--help` shows it.
fn about(subcommand: Subcommand) -> String {
    let help = putex::cli::help::help(None);
    let start = format!("  {:<8} ", subcommand.name());
    let line = help.lines().find(|line| line.starts_with(&start)).unwrap();
    line[start.len()..].to_owned()
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
        "{stale:?}: the table has changed; run PUTEX_REWRITE=1 cargo test --test completions"
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

fn set<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_owned).collect()
}

#[test]
fn commands_and_topics_are_offered() {
    let commands = set(subcommands().into_iter().map(Subcommand::name));
    let topics = set(TOPICS.iter().map(|topic| topic.name));
    for (shell, complete) in SHELLS {
        for (words, due) in [
            (&["putex", ""][..], commands.clone()),
            (&["putex", "ti"], set(["timing"])),
            (&["putex", "help", ""], topics.clone()),
            (&["putex", "help", "gu"], set(["guard"])),
            (&["putex", "help", "guard", ""], set([])),
            (&["putex", "timing", ""], set([])),
            (&["putex", "lease", ""], set(["claim", "extend", "check", "expire", "list"])),
            (&["putex", "lease", "cl"], set(["claim"])),
            (&["putex", "lease", "claim", ""], set([])),
            (&["putex", "put", ""], set([])),
            (&["putex", "lock", ""], set([])),
            (&["putex", "grab", ""], set([])),
            (&["putex", "release", ""], set([])),
            (&["putex", "agent", ""], set([])),
            (&["putex", "--key", "k", ""], set([])),
        ] {
            if let Some(offered) = complete(words) {
                assert_eq!(offered, due, "{shell}: {words:?}");
            }
        }
    }
}

#[test]
fn every_command_is_offered_its_flags_and_no_others() {
    for (shell, complete) in SHELLS {
        let mut cases: Vec<_> =
            subcommands().into_iter().map(|subcommand| (subcommand.name(), subcommand)).collect();
        // Without a command the flags are those of the agent.
        cases.push(("--syslog", Subcommand::Agent));
        for (first, subcommand) in cases {
            let flags = FLAGS.iter().filter(|flag| flag.subcommands.contains(&subcommand));
            let all: BTreeSet<_> = flags.flat_map(spellings).collect();
            let long: BTreeSet<_> =
                all.iter().filter(|flag| flag.starts_with("--")).cloned().collect();
            if let Some(offered) = complete(&["putex", first, "--"]) {
                assert_eq!(offered, long, "{shell}: putex {first} --");
            }
            if let Some(offered) = complete(&["putex", first, "-"]) {
                assert_eq!(offered, all, "{shell}: putex {first} -");
            }
        }
    }
}

#[test]
fn values_are_offered_where_they_are_known() {
    for (shell, complete) in SHELLS.into_iter().filter(|(shell, _)| *shell != "zsh") {
        for flag in FLAGS {
            let Some(subcommand) = takers(flag).first().copied() else {
                continue;
            };
            for word in spellings(flag) {
                let (file, dir) = ("tests/pages/docs.rs", "tests/pages/docs");
                let (typed, due) = match value_of(flag) {
                    Value::None => continue,
                    Value::File => ("tests/pages/docs", set([file, dir])),
                    Value::Folder => ("tests/pages/docs", set([dir])),
                    Value::Command => ("sleep", set(["sleep"])),
                    Value::Text => ("", set([])),
                };
                let Some(offered) = complete(&["putex", subcommand, &word, typed]) else {
                    continue;
                };
                let offered: BTreeSet<_> =
                    offered.iter().map(|word| word.trim_end_matches('/').to_owned()).collect();
                let fits = match value_of(flag) {
                    Value::Command => offered.is_superset(&due),
                    Value::None | Value::File | Value::Folder | Value::Text => offered == due,
                };
                assert!(fits, "{shell}: {word}: {offered:?} instead of {due:?}");
            }
        }
    }
}

/// What may stand before the command of `putex lock`: options, the name, and a mark.
const BEFORE: [&[&str]; 13] = [
    &["db"],
    &["a=b,c"],
    &["-w", "5", "db"],
    &["-w5", "db"],
    &["-w=5", "db"],
    &["-nvw", "5", "db"],
    &["--wait", "5", "db"],
    &["--wait=5", "db"],
    &["--nonblock", "-s", "db"],
    // Its last letter is that of an option with a value.
    &["--soft", "--quiet-for=1", "--tlsfirst", "--once", "x", "db"],
    &["--nats", "nats://a:4222,nats://b", "--creds", "c", "db"],
    &["--", "db"],
    &["db", "--"],
];

/// It completed options of putex there, which it would have refused, and commands everywhere.
#[test]
fn behind_the_name_of_a_lock_the_words_are_those_of_a_command() {
    for before in BEFORE {
        for (shell, complete) in SHELLS.into_iter().filter(|(shell, _)| *shell != "zsh") {
            let offered = |words: &[&str]| complete(&[&["putex", "lock"], before, words].concat());
            let Some(commands) = offered(&["slee"]) else { continue };
            assert!(commands.contains("sleep"), "{shell}: {before:?}: {commands:?}");
            // To bash alone, the arguments of any command are files.
            let files: BTreeSet<_> =
                offered(&["own", "-f", "tests/command_line/completi"]).unwrap();
            let files = files.iter().map(|word| word.trim_end_matches('/'));
            assert_eq!(
                set(files),
                set(["tests/command_line/completions", "tests/command_line/completions.rs"]),
                "{shell}"
            );
            let own = if shell == "fish" { set(["--almost-all"]) } else { set([]) };
            for words in [&["own", "--al"][..], &["own", "--creds", "--al"]] {
                assert_eq!(offered(words).unwrap(), own, "{shell}: {before:?} {words:?}");
            }
        }
        let line = format!("putex lock {}", before.join(" "));
        for (typed, due) in [
            ("basenam", "basename "),
            ("own --al", "own --almost-all "),
            ("own --creds --al", "own --creds --almost-all "),
            ("--allow", "--allow"),
        ] {
            let Some(shown) = zsh::types_out(&format!("{line} {typed}")) else { continue };
            assert_eq!(shown, format!("{line} {due}"));
        }
    }
}

#[test]
fn before_the_name_of_a_lock_no_command_is_offered() {
    for words in [
        &["sle"][..],
        &["-w", "sle"],
        &["-nw", "sle"],
        &["--wait", "sle"],
        &["--", "sle"],
        // Nor behind it in the text for a shell.
        &["db", "-c", "sle"],
    ] {
        let words = [&["putex", "lock"], words].concat();
        for (shell, complete) in SHELLS.into_iter().filter(|(shell, _)| *shell != "zsh") {
            let Some(offered) = complete(&words) else { continue };
            assert_eq!(offered, set([]), "{shell}: {words:?}");
        }
        let line = words.join(" ");
        let Some(shown) = zsh::types_out(&line) else { continue };
        assert_eq!(shown, line);
    }
    for before in [&["-w", "5"][..], &["-w5"], &["--wait=5"], &["--creds", "c"]] {
        let words = [&["putex", "lock"], before, &["--allow"]].concat();
        for (shell, complete) in SHELLS {
            let Some(offered) = complete(&words) else { continue };
            assert_eq!(offered, set(["--allow-memory"]), "{shell}: {words:?}");
        }
    }
}

/// bash-completion, of this version or that, knows how a command completes its arguments.
#[test]
fn bash_completion_completes_the_command_of_a_lock_where_it_is_there() {
    for name in ["_comp_command_offset", "_command_offset"] {
        let functions = format!("{name}() {{ COMPREPLY=(\"{name} ${{COMP_WORDS[*]:$1}}\"); }}");
        for before in BEFORE {
            for command in [&["sle"][..], &["own", "--al"]] {
                let words = [&["putex", "lock"], before, command].concat();
                let Some(offered) = bash::offers_beside(&functions, &words) else { continue };
                let due = format!("{name} {}", command.join(" "));
                assert_eq!(offered, set([due.as_str()]), "{words:?}");
            }
        }
    }
}

#[test]
fn zsh_offers_options_behind_arguments_where_they_may_stand() {
    for (typed, due) in [
        ("grab --as x db --fo", "grab --as x db --for="),
        ("release db --forc", "release db --force "),
        ("agent n b k t --sysl", "agent n b k t --syslog "),
    ] {
        let Some(shown) = zsh::types_out(&format!("putex {typed}")) else { continue };
        assert_eq!(shown, format!("putex {due}"));
    }
}

#[test]
fn a_value_behind_an_equals_sign_is_completed_too() {
    // To bash, this is three words.
    let words = ["putex", "agent", "--creds=tests/pages/docs.r"];
    if let Some(offered) = bash::offers(&words) {
        assert_eq!(offered, set(["tests/pages/docs.rs"]));
    }
    if let Some(offered) = bash::offers(&["putex", "agent", "--dir="]) {
        assert!(offered.contains("tests"), "{offered:?}");
    }
}
