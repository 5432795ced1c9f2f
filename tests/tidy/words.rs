//! A single word for each thing: names that were replaced do not come back.

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
    ("", "guarded", Name, "guard_client"),
    ("", "sentry", Coined, "guard"),
    ("", "sentinel", Coined, "guard_client"),
    ("", "watch", Name, "GuardState"),
    ("", "house", Name, "guard"),
    ("", "herald", Coined, "service_manager"),
    ("", "Ear", Type, "NotifySocket"),
    ("", "Offer", Type, "ManagerEnvironment"),
    ("", "pulse", Name, "keepalive"),
    ("", "keeper", Coined, "store_thread"),
    ("", "Shop", Coined, "StoreThread"),
    ("", "Nursery", Coined, "CommandThread"),
    ("", "Stage", Type, "CommandRunner"),
    ("", "Wishes", Type, "GuardUpdates"),
    ("", "Entrance", Type, "CgroupEntry"),
    ("", "Cage", Coined, "ServiceCgroup"),
    ("", "give_leave", Coined, "release"),
    ("", "gulp", Coined, "READ_MAX"),
    ("", "life", Name, "instance"),
    ("", "Before", Type, "PreviousGuard"),
    ("", "lived_as", Coined, "is_predecessor"),
    ("", "Dead", Type, "Predecessor"),
    ("", "trace", Name, "predecessor"),
    ("", "journal", Function, "log::queue"),
    ("", "voice", Coined, "log::queue"),
    ("", "sink", Name, "log::queue"),
    ("", "Sink", Type, "log::queue"),
    ("", "LastWord", Coined, "end_on_panic"),
    ("", "FatalLog", Type, "end_on_panic"),
    ("", "DirectLog", Type, "LogQueue"),
    ("", "word", Function, "protocol"),
    ("", "Word", Type, "Message"),
    ("", "Answer", Type, "FromGuard"),
    ("", "news", Name, "GuardInput"),
    ("", "News", Type, "GuardInput"),
    ("", "Act", Type, "GuardAction"),
    ("", "heed", Coined, "receive, handle"),
    ("", "hear", Name, "handle"),
    ("", "let_in", Coined, "accept"),
    ("", "settle", Name, "protect"),
    ("", "over", Name, "done"),
    ("", "look", Name, "inspect"),
    ("", "Parts", Type, "GuardProcess"),
    ("", "Facts", Type, "Context"),
    ("", "Me", Type, "AgentId"),
    ("", "Sight", Type, "KeyState"),
    ("", "Found", Type, "KeyValue"),
    ("", "shown", Name, "max_seen"),
    ("", "claim", Name, "takeover_wait, lock"),
    ("", "prospect", Coined, "candidate"),
    ("", "bind", Name, "assume_slowest"),
    ("", "Standing", Type, "RecordState"),
    ("", "Stand", Type, "GuardState"),
    ("", "Under", Type, "LockContext"),
    ("", "Fence", Type, "StopDeadlines"),
    ("", "Left", Type, "Inherited"),
    ("", "Leave", Type, "Exit"),
    ("", "owed", Name, "required"),
    ("", "held_up", Coined, "delayed"),
    ("", "cry", Name, "report_overdue"),
    ("", "cried", Name, "overdue"),
    ("", "bound", Name, "latest_deadline"),
    ("", "pend", Name, "prepare_write"),
    ("", "Draft", Type, "NewWrite"),
    ("", "doubtful", Name, "outcome_unknown"),
    ("", "sooner", Name, "earliest"),
    ("", "told", Name, "sanitize"),
    ("", "bite", Name, "watchdog_timeout"),
    ("", "patience", Name, "takeover_wait"),
    // Elsewhere it takes a lock.
    ("src/core", "lock", Function, "lock_time"),
    ("", "Wish", Type, "Invocation"),
    ("", "World", Type, "Environment"),
    ("", "asked", Name, "resolve"),
    ("", "way", Name, "location"),
    ("", "spread", Name, "expand_positionals"),
    ("", "type_in", Coined, "set"),
    ("", "blame", Name, "attribute"),
    ("", "understand", Name, "parse"),
    ("", "Verb", Type, "Subcommand"),
    ("", "Rank", Type, "Precedence"),
    ("", "reach", Name, "connect"),
    ("", "unasked", Coined, "location"),
    ("", "ask", Name, "api_request"),
    ("", "Silence", Type, "StoreError"),
    ("", "DirectReadError", Type, "StoreError"),
    ("", "FolderError", Type, "StoreError"),
    ("", "ConnectError", Type, "StoreError"),
    ("", "ConnectErrorKind", Type, "StoreErrorKind"),
    ("", "Rejection", Type, "StoreError"),
    ("", "Watched", Type, "Event"),
    ("", "LockGuard", Type, "HeldLock"),
    ("", "Ears", Type, "subscribed"),
    ("", "leader", Function, "entry"),
    ("", "whom", Name, "describe_server"),
    ("", "survey", Name, "inspect"),
    ("", "take", Function, "accept_bucket"),
    ("", "Twin", Type, "DuplicateToken"),
    ("", "badge", Name, "client_certificate"),
    ("", "Door", Type, "CertResolver"),
    ("", "complaint", Name, "server_error"),
    ("", "Dice", Coined, "Rng"),
    ("", "letters", Function, "encoding"),
    ("src/nats", "why", Function, "io_error_text"),
    ("", "Greeting", Type, "StartupLines"),
    ("", "greeting", Name, "startup_lines"),
    ("", "opening", Name, "handshake, generation"),
    ("", "place", Name, "permissions, location, slot"),
];

/// A name that stays: the beginning of the paths, the name, the reason.
type Exception = (&'static str, &'static str, &'static str);

const EXCEPTIONS: &[Exception] = &[
    ("src/agent/service_manager.rs", "bind", "bind(2) for a test"),
    ("src/check.rs", "shown", "the text that `check` shows"),
    ("src/cli/", "shown", "the form of an option that messages show"),
    ("src/store/", "watch", "the watch of a NATS bucket"),
    ("tests/system/campaign/service.rs", "journal", "the file in which a service notes its runs"),
    ("tests/fuzz/", "World", "the simulated host and store"),
    ("tests/core/model/", "World", "the simulated hosts and store"),
    ("tests/system/stores/nats_store.rs", "opening", "the tests that open a store"),
    ("tests/system/stores/nats_store.rs", "watch", "the watch of a NATS bucket"),
    ("tests/core/sim/", "World", "the simulated hosts, network and store"),
    ("tests/core/sim/", "trace", "the events of a simulated run"),
    ("tests/core/story/parse.rs", "word", "a word of a line of a story"),
    ("tests/support/sandbox.rs", "shown", "the text that a command shows on stdout"),
    ("tests/support/wire.rs", "word", "a word of a line of the NATS protocol"),
];

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

/// A source, its code without comments and texts, and all of it in lower case.
struct Scanned {
    file: Source,
    code: String,
    lower: String,
}

impl Scanned {
    fn of(file: Source) -> Scanned {
        let (code, lower) = (bare(&file.text), file.text.to_lowercase());
        Scanned { file, code, lower }
    }

    /// Returns the lines in which a name stands in the given form.
    fn lines_with(&self, name: &str, form: Form) -> Vec<usize> {
        // Words are split only where it is worth it.
        let occurs = match form {
            Coined => self.lower.contains(&name.to_lowercase()),
            Type | Name | Function => self.code.contains(name),
        };
        if !occurs {
            return Vec::new();
        }
        match form {
            Coined => coined(&self.file.text, name).collect(),
            Type => {
                let same = |(_, word): &(usize, &str)| *word == name;
                words(&self.code).filter(same).map(|(line, _)| line).collect()
            }
            Name | Function => {
                let defines = |(line, _): &(&str, usize)| defines(line, name, form);
                self.code.lines().zip(1..).filter(defines).map(|(_, line)| line).collect()
            }
        }
    }

    /// Lists the replaced names in the source.
    fn old_names(&self) -> Vec<String> {
        let (path, mut found) = (&self.file.path, Vec::new());
        for (scope, name, form, new) in REPLACED {
            let stays = |(start, kept, _): &Exception| path.starts_with(start) && kept == name;
            if !path.starts_with(scope) || EXCEPTIONS.iter().any(stays) {
                continue;
            }
            let at = |line| format!("{path}:{line}: {name}: write {new}");
            found.extend(self.lines_with(name, *form).into_iter().map(at));
        }
        found
    }
}

/// Returns all sources but this one.
fn scan() -> Vec<Scanned> {
    let files = ["src", "tests"].into_iter().flat_map(sources);
    files.filter(|file| file.path != file!()).map(Scanned::of).collect()
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
    report(&scan().iter().flat_map(Scanned::old_names).collect::<Vec<_>>());
}

#[test]
fn every_exception_is_needed() {
    let files = scan();
    let needed = |(path, name, _): &&Exception| {
        let mut forms =
            REPLACED.iter().filter(|(_, old, ..)| old == name).map(|(.., form, _)| form);
        let files = files.iter().filter(|scanned| scanned.file.path.starts_with(path));
        let files: Vec<_> = files.collect();
        forms.any(|form| files.iter().any(|file| !file.lines_with(name, *form).is_empty()))
    };
    let needless = EXCEPTIONS.iter().filter(|exception| !needed(exception));
    report(&needless.map(|(path, name, _)| format!("{path}: {name}")).collect::<Vec<_>>());
}

#[test]
fn coined_words_are_not_in_the_manual() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let mut found = Vec::new();
    let pages = ["putex.7", "putex-messages.7", "putex.8", "putex.conf.5", "putex-lock.1"];
    for page in pages {
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
        let found = Scanned::of(Source { path, text }).old_names();
        let short = |line: &String| line.split(": write").next().unwrap().to_owned();
        found.iter().map(short).collect::<Vec<_>>()
    };
    let text = "// the herald\nlet a = Verb::X;\nfn bite() {\n    pulse: Duration,\n";
    let found = ["3: bite", "1: herald", "4: pulse", "2: Verb"];
    let mut all = lines("src/x.rs", text);
    all.sort_by_key(|line| line.rsplit(": ").next().map(str::to_lowercase));
    assert_eq!(all, found.map(|line| format!("src/x.rs:{line}")));
    // Plain words are free in comments and for variables, some of them outside of their
    // rooms, and where an exception stands.
    let text = "// Verb, bite\nlet bite: T = take(reach, blame::X, \"Nest\");\nmod verbs;\n";
    assert_eq!(lines("src/x.rs", text), [""; 0]);
    assert_eq!(lines("tests/x.rs", "fn lock() {}"), [""; 0]);
    assert_eq!(lines("src/store/x.rs", "fn watch() {}"), [""; 0]);
}
