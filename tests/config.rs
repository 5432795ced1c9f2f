//! The configuration file: its page and its example against the table, and what becomes
//! of it in a process.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use putex::cli::config::{DEFAULT, LINE_BYTES_MAX};
use putex::cli::table::{FLAGS, Flag, Name};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_page_of_the_file_has_its_keys_and_no_others() {
    let known: BTreeSet<_> = FLAGS.iter().filter_map(Flag::key).collect();
    let page = read("man/putex.conf.5");
    let (_, keys) = page.split_once("\n.Ss Keys\n").unwrap();
    let (keys, _) = keys.split_once("\n.Sh ").unwrap();
    let mut documented = Vec::new();
    for item in keys.split("\n.It ").skip(1) {
        let head = item.lines().next().unwrap();
        let (key, value) = head.split_once(" No = ").unwrap();
        let key = key.strip_prefix("Cm ").unwrap();
        let flag = FLAGS.iter().find(|flag| flag.key() == Some(key));
        let flag = flag.unwrap_or_else(|| panic!("{key} is no key"));
        match (flag.value, flag.name) {
            ("", Name::Verbose | Name::Quiet) => assert_eq!(value, "Cm yes | no | twice"),
            ("", _) => assert_eq!(value, "Cm yes | no"),
            (shown, _) => {
                let first: String = shown.chars().take_while(|c| c.is_alphabetic()).collect();
                assert!(value.starts_with(&format!("Ar {first}")), "{key} = {value}");
            }
        }
        documented.push(key);
    }
    assert_eq!(documented.len(), known.len(), "twice: {documented:?}");
    let documented: BTreeSet<_> = documented.into_iter().collect();
    assert_eq!(documented, known, "left: the page; right: the program");
    for flag in FLAGS.iter().filter(|flag| flag.key().is_none()) {
        let named = format!("-{}", flag.long);
        assert!(page.contains(&named), "{named}: that it is no key");
    }
    let most = format!("lines have {LINE_BYTES_MAX} bytes at most");
    assert!(page.contains(&most) && page.contains(DEFAULT));
}

#[test]
fn the_example_of_the_file_has_every_key() {
    let example = read("contrib/putex.conf");
    let keys = example.lines().filter_map(|line| {
        let (key, _) = line.strip_prefix('#')?.split_once(" = ")?;
        key.chars()
            .all(|c| c == '-' || c.is_ascii_lowercase())
            .then_some(key)
    });
    let mut keys: Vec<_> = keys.collect();
    let mut known: Vec<_> = FLAGS.iter().filter_map(Flag::key).collect();
    keys.sort_unstable();
    known.sort_unstable();
    assert_eq!(keys, known, "left: the example; right: the program");
}
