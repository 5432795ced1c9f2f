//! The rules of the source that no compiler knows, for every file there is.

#![allow(clippy::unwrap_used)]

mod chance;
mod comments;
mod imports;
mod modules;
mod parts;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use parts::{Within, parts};

const FILE_LINES_MAX: usize = 500;
const LINE_COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;

/// A file of the sources or the tests.
struct Source {
    /// Its path below the root, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// Returns its code: no comments, no text in quotes, the same lines.
    fn code(&self) -> Vec<String> {
        bare(&self.text).lines().map(str::to_owned).collect()
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    gather(&root.join(folder), &mut paths);
    paths.sort();
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(root).unwrap().display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let found: Vec<_> = paths.into_iter().map(read).collect();
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

fn gather(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

/// Returns a source without comments and without what stands in quotes, with as
/// many lines.
fn bare(text: &str) -> String {
    let parts = parts(text).into_iter();
    let kept = parts.filter(|(letter, part)| *letter == '\n' || *part == Within::Code);
    kept.map(|(letter, _)| letter).collect()
}

/// Says where any of `words` stands in the code of `files`.
fn forbid(files: &[Source], words: &[&str]) {
    let mut found = Vec::new();
    for file in files {
        for (index, line) in file.code().iter().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{}:{}: {word}", file.path, index + 1));
            }
        }
    }
    report(&found);
}

fn report(found: &[String]) {
    assert!(found.is_empty(), "{} found:\n{}", found.len(), found.join("\n"));
}

fn core_sources() -> Vec<Source> {
    sources("src/core")
}

fn all_sources() -> Vec<Source> {
    let folders = ["src", "tests", "fuzz/targets"];
    folders.into_iter().flat_map(sources).collect()
}

#[test]
fn nothing_is_unsafe_but_a_few_calls() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""), "Cargo.toml");
    // A few calls that no library has stand in one place.
    let mut shipped = sources("src");
    shipped.retain(|file| !file.path.starts_with("src/sys/raw"));
    forbid(&shipped, &["unsafe ", "unsafe{", "unsafe_code"]);
}

#[test]
fn the_core_reads_no_clock() {
    forbid(&core_sources(), &["std::time::Instant", "SystemTime", "Instant::now", "UNIX_EPOCH"]);
    let mut found = Vec::new();
    for file in core_sources() {
        for (index, line) in file.code().iter().enumerate() {
            let list = line.trim_start().strip_prefix("use std::time::");
            if list.is_some_and(|list| list != "Duration;") {
                found.push(format!("{}:{}: {line}", file.path, index + 1));
            }
        }
    }
    report(&found);
}

#[test]
fn the_core_knows_nothing_of_the_rest() {
    forbid(
        &core_sources(),
        &[
            "crate::agent", "crate::cli", "crate::exit", "crate::nats", "crate::store",
            "crate::sys", "std::fs", "std::io", "std::net", "std::process", "std::thread",
            "rustix", "crossbeam", "log!", "error!", "warn!", "info!", "debug!",
        ],
    );
}

/// Whether a file of the sources is compiled for tests alone.
fn for_tests(path: &str) -> bool {
    path.ends_with("tests.rs") || path.ends_with("fake.rs") || path.contains("/tests/")
}

/// Returns where the tests of a file of the sources begin: at its end if it has none.
fn tests_at(file: &Source) -> usize {
    match for_tests(&file.path) {
        true => 0,
        false => file.text.find("#[cfg(test)]\nmod tests {").unwrap_or(file.text.len()),
    }
}

#[test]
fn nothing_grows_or_sleeps_without_a_limit() {
    forbid(&sources("src"), &["unbounded(", "unbounded_channel"]);
    let mut shipped = sources("src");
    shipped.retain(|file| !for_tests(&file.path));
    forbid(&shipped, &["thread::sleep"]);
}

/// A thread that is started in another way may have to handle signals, for which it has no stack.
#[test]
fn a_thread_is_started_in_one_place_which_has_it_block_all_signals() {
    let mut shipped = sources("src");
    shipped.retain(|file| !for_tests(&file.path) && file.path != "src/sys/threads.rs");
    for file in &mut shipped {
        file.text.truncate(tests_at(file));
    }
    forbid(&shipped, &["thread::Builder", "thread::spawn", "thread::scope"]);
}

#[test]
fn no_deadline_stands_still_with_a_suspended_host() {
    let mut shipped = sources("src");
    shipped.retain(|file| !for_tests(&file.path));
    let timeouts = [
        "connect_timeout", "park_timeout", "recv_deadline", "recv_timeout", "send_deadline",
        "send_timeout", "set_read_timeout", "set_write_timeout", "wait_timeout",
    ];
    forbid(&shipped, &timeouts);
    // The waits in the kernel stand in one place, beside the timer.
    shipped.retain(|file| file.path != "src/sys.rs");
    forbid(&shipped, &["event::poll", "epoll", "nanosleep"]);
}

#[test]
fn nothing_is_left_to_be_done() {
    forbid(&sources("src"), &["todo!", "unimplemented!", "dbg!"]);
}

#[test]
fn no_file_is_longer_than_a_person_reads() {
    let mut found = Vec::new();
    for file in all_sources() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", file.path));
        }
    }
    report(&found);
}

#[test]
fn no_line_is_wider_than_a_screen() {
    let mut found = Vec::new();
    for file in all_sources() {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX {
                let at = index + 1;
                found.push(format!("{}:{at}: {columns} columns", file.path));
            }
        }
    }
    report(&found);
}

#[test]
fn no_function_is_longer_than_a_page() {
    let mut found = Vec::new();
    for file in sources("src").iter().filter(|file| !for_tests(&file.path)) {
        for (name, at, lines) in functions(&file.code()) {
            if lines > FUNCTION_LINES_MAX {
                found.push(format!("{}:{at}: {name} has {lines} lines", file.path));
            }
        }
    }
    report(&found);
}

/// Returns the name, first line and length of each function. The sources are
/// formatted, so a function ends at a brace in its own column.
fn functions(code: &[String]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let Some(at) = words.find("fn ").filter(|at| is_head(&words[..*at])) else {
            continue;
        };
        let name = words[at + 3..].split(['(', '<']).next().unwrap_or_default();
        let end = format!("{}}}", " ".repeat(indent));
        let rest = &code[index..];
        let body = rest.iter().position(|line| line.trim_end().ends_with('{'));
        let bodiless = rest.iter().position(|line| line.trim_end().ends_with(';'));
        if body.is_none() || bodiless.is_some_and(|none| Some(none) < body) {
            continue;
        }
        let lines = rest.iter().position(|line| line.trim_end() == end);
        found.push((name.to_owned(), index + 1, lines.map_or(1, |lines| lines + 1)));
    }
    found
}

/// Returns whether `words` may stand before `fn`.
fn is_head(words: &str) -> bool {
    words.split_whitespace().all(|word| {
        ["const", "async", "extern"].contains(&word)
            || word.starts_with("pub")
            || ["super)", "crate)", "in"].contains(&word)
    })
}

/// A program that is launched elsewhere could outlive its test, and leave files behind.
#[test]
fn tests_launch_programs_and_make_folders_only_in_their_support() {
    let mut files = sources("tests");
    files.extend(sources("benches"));
    files.retain(|file| !file.path.starts_with("tests/support/"));
    let mut found = Vec::new();
    // The words stand in quotes, also here: in two parts.
    for word in [concat!("CARGO_BIN", "_EXE_putex"), concat!("\"NATS", "_SERVER")] {
        for file in files.iter().filter(|file| file.text.contains(word)) {
            found.push(format!("{}: {word}", file.path));
        }
    }
    report(&found);
    // A campaign keeps its folder after a finding; the fuzz targets are part of the crate.
    let own = [
        "tests/system/campaign/main.rs",
        "tests/system/campaign/namespaces.rs",
        "tests/fuzz/files.rs",
    ];
    files.retain(|file| !own.contains(&&*file.path));
    forbid(&files, &["temp_dir()"]);
}

/// A fault that stands nowhere any more proves nothing.
#[test]
fn every_planted_fault_has_its_line_in_the_core() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let planted = ["planted.txt", "planted-tickets.txt"]
        .map(|name| fs::read_to_string(root.join("tests/core/sim").join(name)).unwrap());
    let mut core = String::new();
    let mut found = Vec::new();
    for line in planted.iter().flat_map(|text| text.lines()) {
        if let Some(path) = line.strip_prefix("file: ") {
            core = fs::read_to_string(root.join(path)).unwrap();
        } else if let Some(old) = line.strip_prefix("old: ") {
            let times = core.matches(&old.replace("\\n", "\n")).count();
            if times != 1 {
                found.push(format!("{times} times: {old}"));
            }
        }
    }
    report(&found);
}

#[test]
fn the_rules_themselves_can_be_broken() {
    for (text, code) in [
        ("let a = \"thread::sleep\"; // todo!", "let a = ; "),
        ("if c == '\"' { dbg!(c) }", "if c == ' { dbg!(c) }"),
        ("a(\"one \\\n two\\\" three\");\nb", "a(\n);\nb"),
        ("'\\'' // \"\nc \"//\" d", "' \nc  d"),
    ] {
        assert_eq!(bare(text), code, "{text}");
    }
    let long: Vec<String> =
        ["pub(super) fn long(", ") {", "    x();", "}", "fn short();"].map(str::to_owned).to_vec();
    assert_eq!(functions(&long), [("long".to_owned(), 1, 4)]);
}
