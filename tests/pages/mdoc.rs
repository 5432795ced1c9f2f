//! Reads manual pages, and runs tools that read them.

// Not every test program uses all of it.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use putex::cli::table::Flag;

use crate::support::programs;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the lines of a section of a page, up to the next section.
pub(crate) fn section(page: &str, name: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("\n.Sh {name}\n"))
        .unwrap_or_else(|| panic!("the page has no section {name}"));
    rest.split("\n.Sh ").next().unwrap().to_owned()
}

/// Returns what follows `key` in the lines of the literal blocks of a page. A line that begins
/// with blanks belongs to the one before.
pub(crate) fn logged(file: &str, key: &str) -> Vec<String> {
    let page = read(&format!("man/{file}")).replace("\\-", "-");
    let blocks = page.split("\n.Bd -literal").skip(1);
    let blocks = blocks.map(|rest| rest.split("\n.Ed").next().unwrap());
    let mut lines: Vec<String> = Vec::new();
    for line in blocks.collect::<Vec<_>>().join("\n").lines() {
        match lines.last_mut() {
            Some(last) if line.starts_with("   ") => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => lines.push(format!(" {line}")),
        }
    }
    lines.iter().filter_map(|line| Some(line.split_once(key)?.1.to_owned())).collect()
}

/// An item of a list: the arguments of `.It`, and the text below it.
pub(crate) struct Item {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn items(section: &str) -> Vec<Item> {
    let mut pieces = section.split("\n.It ");
    pieces.next();
    pieces
        .map(|piece| {
            let (head, body) = piece.split_once('\n').unwrap_or((piece, ""));
            let body = body.split("\n.El").next().unwrap();
            Item { head: head.to_owned(), body: plain(body) }
        })
        .collect()
}

/// Returns mdoc as running text, without the names of macros.
pub(crate) fn plain(mdoc: &str) -> String {
    let mut words = Vec::new();
    for line in mdoc.lines() {
        let is_macro = line.starts_with('.');
        words.extend(
            line.split_whitespace()
                .skip(usize::from(is_macro))
                .filter(|word| !is_macro || !["Ns", "Ar", "Ev", "Cm", "Ql", "Fl"].contains(word)),
        );
    }
    words.join(" ").replace("\\-", "-").replace(" .", ".")
}

/// Returns the flags of an item's head: `Fl v , Fl -verbose` are `-v`, `--verbose`.
pub(crate) fn flags_of(head: &str) -> BTreeSet<String> {
    let words: Vec<&str> = head.trim_start_matches('.').split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == "Fl").map(|pair| format!("-{}", pair[1])).collect()
}

/// Returns all spellings of a flag.
pub(crate) fn spellings(flag: &Flag) -> BTreeSet<String> {
    flag.spellings().collect()
}

/// Returns the words of `text` that begin with `prefix`, made of capitals and `_`.
pub(crate) fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    let inside = |c: char| c.is_ascii_uppercase() || c == '_';
    text.split(|c: char| !inside(c))
        .filter(|word| word.len() > prefix.len() && word.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

/// Runs a tool; returns its output, and `None` if it is absent: see [`programs::tool`].
pub(crate) fn run_tool(words: &[&str]) -> Option<String> {
    let mut command = Command::new(programs::tool(words[0])?);
    // fish makes folders for its history.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_DATA_HOME", home.join("data"));
    command.args(&words[1..]).current_dir(root()).env("PATH", programs::path());
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}
