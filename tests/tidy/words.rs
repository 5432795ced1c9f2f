//! One word for one thing: names that were replaced do not come back.

use super::{Source, bare, report, sources};
use std::fs;
use std::path::Path;

/// The form in which a replaced name must not stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A coined word: anywhere in code, comments and manual pages, in any case.
    Coined,
    /// A type or a variant: anywhere in code.
    Type,
    /// A plain English word, which comments and variables may use: the name of a function,
    /// a module, a constant, a field or a parameter.
    Name,
    /// A word that is right for a field or a parameter: the name of a function or a module.
    Function,
}

use Form::{Coined, Function, Name, Type};

/// A replaced name: the beginning of the paths where it must not stand, the name, the form,
/// and the name to write.
type Replaced = (&'static str, &'static str, Form, &'static str);

const REPLACED: &[Replaced] = &[
    ("src", "guarded", Name, "guard_client"),
    ("", "sentry", Coined, "guard"),
    ("", "sentinel", Coined, "guard_client"),
    ("src/core", "watch", Name, "GuardState"),
    ("src/agent", "watch", Name, "guard_client"),
    ("src", "house", Name, "guard"),
    ("", "herald", Coined, "service_manager"),
    ("", "Ear", Type, "NotifySocket"),
    ("", "Offer", Type, "ManagerEnvironment"),
    ("src", "pulse", Name, "keepalive"),
    ("", "keeper", Coined, "store_thread"),
    ("", "Shop", Coined, "StoreThread"),
    ("", "Nursery", Coined, "CommandThread"),
    ("", "Wishes", Type, "GuardUpdates"),
    ("", "Entrance", Type, "CgroupEntry"),
    ("", "give_leave", Coined, "release"),
    ("", "gulp", Coined, "READ_MAX"),
    ("src", "life", Name, "instance"),
    ("", "lived_as", Coined, "is_predecessor"),
    ("", "Dead", Type, "Predecessor"),
    ("src", "trace", Name, "predecessor"),
    ("src", "journal", Function, "log::queue"),
    ("", "voice", Coined, "log::queue"),
    ("src", "sink", Name, "log::queue"),
    ("", "Sink", Type, "log::queue"),
    ("", "LastWord", Coined, "end_on_panic"),
    ("", "FatalLog", Type, "end_on_panic"),
    ("", "DirectLog", Type, "LogQueue"),
    ("src", "word", Function, "protocol"),
    ("src", "news", Name, "GuardInput"),
    ("", "News", Type, "GuardInput"),
    ("", "Act", Type, "GuardAction"),
    ("", "heed", Coined, "receive, handle"),
    ("src", "hear", Name, "handle"),
    ("", "let_in", Coined, "accept"),
    ("src/guard", "settle", Name, "protect"),
    ("src/guard", "over", Name, "done"),
    ("src/guard", "look", Name, "inspect"),
    ("src/guard", "Parts", Type, "GuardProcess"),
    ("", "Facts", Type, "Context"),
    ("", "Me", Type, "AgentId"),
    ("", "Sight", Type, "KeyState"),
    ("", "Found", Type, "KeyValue"),
    ("", "prospect", Coined, "candidate"),
    ("src/core", "bind", Name, "assume_slowest"),
    ("", "Standing", Type, "RecordState"),
    ("", "Stand", Type, "GuardState"),
    ("", "Under", Type, "LockContext"),
    ("", "Fence", Type, "StopDeadlines"),
    ("", "Left", Type, "Inherited"),
    ("src", "owed", Name, "required"),
    ("", "held_up", Coined, "delayed"),
    ("src", "cry", Name, "report_overdue"),
    ("src", "cried", Name, "overdue"),
    ("src", "pend", Name, "prepare_write"),
    ("", "Draft", Type, "NewWrite"),
    ("src", "doubtful", Name, "outcome_unknown"),
    ("src", "sooner", Name, "earliest"),
    ("src", "told", Name, "sanitize"),
    ("src", "bite", Name, "watchdog_timeout"),
    ("src", "patience", Name, "takeover_wait"),
    ("src/core", "lock", Function, "lock_time"),
    ("", "Wish", Type, "Invocation"),
    ("src", "World", Type, "Environment"),
    ("src", "asked", Name, "resolve"),
    ("src", "way", Name, "location"),
    ("src", "spread", Name, "expand_positionals"),
    ("", "type_in", Coined, "set"),
    ("src", "blame", Name, "attribute"),
    ("src", "understand", Name, "parse"),
    ("", "Verb", Type, "Subcommand"),
    ("", "Rank", Type, "Precedence"),
    ("src", "reach", Name, "connect"),
    ("", "unasked", Coined, "default_dir_warning"),
    ("src", "ask", Name, "api_request"),
    ("", "Silence", Type, "StoreError"),
    ("", "DirectReadError", Type, "StoreError"),
    ("", "FolderError", Type, "StoreError"),
    ("", "Watched", Type, "Event"),
    ("", "LockGuard", Type, "HeldLock"),
    ("", "Ears", Type, "subscribed"),
    ("src/store", "leader", Function, "leader_entry"),
    ("src/store", "direct", Function, "direct_entry"),
    ("src", "whom", Name, "describe_server"),
    ("src", "survey", Name, "inspect"),
    ("src", "take", Function, "accept_bucket"),
    ("", "Twin", Type, "DuplicateToken"),
    ("src", "badge", Name, "client_certificate"),
    ("", "Door", Type, "CertResolver"),
    ("src", "complaint", Name, "server_error"),
    ("src", "letters", Function, "encoding"),
    ("src/nats", "why", Function, "io_error_text"),
    ("", "Greeting", Type, "StartupLines"),
    ("src", "greeting", Name, "startup_lines"),
    ("src", "opening", Name, "handshake, generation"),
];

/// A name that stays: the beginning of the paths, the name, the reason.
type Exception = (&'static str, &'static str, &'static str);

const EXCEPTIONS: &[Exception] = &[];

/// Splits a text into words, each with the number of its line, counted from 1.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let split = |c: char| !(c.is_alphanumeric() || c == '_');
    let lines = text.lines().zip(1..);
    lines.flat_map(move |(line, number)| {
        let words = line.split(split).filter(|word| !word.is_empty());
        words.map(move |word| (number, word))
    })
}

/// Returns whether a line of code defines an item of this name or, unless only functions
/// and modules count, a field or a parameter.
fn defines(line: &str, name: &str, form: Form) -> bool {
    const KEYWORDS: [&str; 2] = ["fn", "mod"];
    line.match_indices(name).any(|(at, _)| {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        if before.ends_with(is_of_word) || after.starts_with(is_of_word) {
            return false;
        }
        let keyword = before.split_whitespace().next_back().unwrap_or_default();
        // A field or a parameter has its type behind it, as a variable may have; `::` is a
        // path.
        let is_variable = ["let", "mut"].contains(&keyword);
        let is_typed = after.starts_with(':') && !after.starts_with("::") && !is_variable;
        let is_typed = is_typed && form == Name;
        KEYWORDS.contains(&keyword) && before.ends_with(' ') || is_typed
    })
}

/// Lists the replaced names in a source.
fn old_names(file: &Source) -> Vec<String> {
    let (code, lower) = (bare(&file.text), file.text.to_lowercase());
    let mut found = Vec::new();
    for (scope, name, form, new) in REPLACED {
        let stays = |(path, kept, _): &Exception| file.path.starts_with(path) && kept == name;
        if !file.path.starts_with(scope) || EXCEPTIONS.iter().any(stays) {
            continue;
        }
        // Words are split only where it is worth it.
        let occurs = match form {
            Coined => lower.contains(&name.to_lowercase()),
            Type | Name | Function => code.contains(name),
        };
        if !occurs {
            continue;
        }
        let lines: Vec<usize> = match form {
            Coined => coined(&file.text, name).collect(),
            Type => {
                let same = |(_, word): &(usize, &str)| word == name;
                words(&code).filter(same).map(|(line, _)| line).collect()
            }
            Name | Function => {
                let defines = |(line, _): &(&str, usize)| defines(line, name, *form);
                code.lines().zip(1..).filter(defines).map(|(_, line)| line).collect()
            }
        };
        let at = |line| format!("{}:{line}: {name}: write {new}", file.path);
        found.extend(lines.into_iter().map(at));
    }
    found
}

/// Returns the lines of a coined word: alone, or as a part of a name.
fn coined(text: &str, name: &str) -> impl Iterator<Item = usize> {
    let name = name.to_lowercase();
    let is_part = move |word: &str| {
        let word = word.to_lowercase();
        word == name || word.split('_').any(|part| part == name)
    };
    words(text).filter(move |(_, word)| is_part(word)).map(|(line, _)| line)
}

#[test]
fn replaced_names_do_not_come_back() {
    let mut files: Vec<_> = ["src", "tests"].into_iter().flat_map(sources).collect();
    files.retain(|file| file.path != file!());
    report(&files.iter().flat_map(old_names).collect::<Vec<_>>());
}

#[test]
fn coined_words_are_not_in_the_manual() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let mut found = Vec::new();
    for page in ["putex.7", "putex.8", "putex.conf.5"] {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        for (_, name, _, new) in REPLACED.iter().filter(|(.., form, _)| *form == Coined) {
            let at = |line| format!("man/{page}:{line}: {name}: write {new}");
            found.extend(coined(&text, name).map(at));
        }
    }
    report(&found);
}

#[test]
fn a_replaced_name_is_found() {
    let lines = |path: &str, text: &str| {
        let (path, text) = (path.to_owned(), text.to_owned());
        let found = old_names(&Source { path, text });
        let short = |line: &String| line.split(": write").next().unwrap().to_owned();
        found.iter().map(short).collect::<Vec<_>>()
    };
    let text = "// the herald\nlet a = Verb::X;\nfn bite() {\n    pulse: Duration,\n";
    let found = ["3: bite", "1: herald", "4: pulse", "2: Verb"];
    let mut all = lines("src/x.rs", text);
    all.sort_by_key(|line| line.rsplit(": ").next().map(str::to_lowercase));
    assert_eq!(all, found.map(|line| format!("src/x.rs:{line}")));
    // Plain words are free in comments, for variables, and outside of their rooms.
    let text = "// Verb, bite\nlet bite: T = take(reach, blame::X, \"Nest\");\nmod verbs;\n";
    assert_eq!(lines("src/x.rs", text), [""; 0]);
    assert_eq!(lines("tests/x.rs", "fn bite() {}"), [""; 0]);
}
