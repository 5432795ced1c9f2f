//! The manual pages as formatters and `putex help` show them.
//!
//! The text that putex shows is the output of mandoc, and stands in `man/text`. After a
//! change of a page: `PUTEX_REWRITE=1 cargo test --test pages`.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Output, Stdio};

use putex::cli::help::help;
use putex::cli::topics::{TOPICS, page_text};

use crate::mdoc::{root, run_tool};
use crate::support::sandbox::Sandbox;

const COLUMNS_MAX: usize = 78;

/// Returns the pages that can be asked for as a whole.
fn pages() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().filter(|topic| topic.head.is_empty()).map(|topic| topic.page)
}

fn putex(words: &[&str]) -> Output {
    let sandbox = Sandbox::new("manual");
    let mut putex = sandbox.putex();
    putex.args(words).output().unwrap()
}

/// Returns the output of a formatter as plain text: a letter that is struck twice, or over
/// a line, becomes that letter.
fn plain(formatter: &[&str]) -> Option<String> {
    let struck = run_tool(formatter)?;
    let mut text = String::new();
    for letter in struck.chars() {
        match letter {
            '\u{8}' => drop(text.pop()),
            letter => text.push(letter),
        }
    }
    Some(text)
}

#[test]
fn formatters_of_manual_pages_have_nothing_to_say() {
    // Other pages need not be installed.
    let about_others =
        |line: &&str| line.contains("referenced manual not found") || line.contains("mandoc.db");
    for page in pages() {
        let file = format!("man/{page}");
        for words in [
            ["mandoc", "-T", "lint", "-W", "style", &file],
            ["groff", "-mdoc", "-Tutf8", "-ww", "-z", &file],
        ] {
            let said = run_tool(&words).unwrap_or_default();
            let complaints: Vec<_> = said.lines().filter(|line| !about_others(line)).collect();
            assert!(complaints.is_empty(), "{}:\n{}", words[0], complaints.join("\n"));
        }
    }
}

/// A formatter names the system that it takes a page to be of, unless the page does.
#[test]
fn formatters_take_the_pages_to_be_of_putex() {
    for page in pages() {
        let file = format!("man/{page}");
        for words in
            [&["mandoc", "-T", "ascii", &file][..], &["groff", "-mdoc", "-Tutf8", "-P-c", &file]]
        {
            let Some(text) = plain(words) else {
                continue;
            };
            let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            let (title, footer) = (lines[0], lines[lines.len() - 1]);
            assert!(!title.contains("BSD"), "{words:?}: {title}");
            let named = footer.starts_with("putex ") && footer.ends_with(" putex");
            assert!(named, "{words:?}: {footer}");
        }
    }
}

#[test]
fn putex_help_shows_the_pages_as_mandoc_does() {
    let rewrite = std::env::var_os("PUTEX_REWRITE").is_some();
    let mut stale = Vec::new();
    for page in pages() {
        let Some(text) = plain(&["mandoc", "-T", "ascii", &format!("man/{page}")]) else {
            return;
        };
        let name = format!("man/text/{page}.txt");
        let path = root().join(&name);
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if rewrite && kept != text {
            fs::write(&path, &text).unwrap();
            println!("{name}: written");
        } else if kept != text {
            stale.push(name);
        } else {
            assert!(page_text(page) == text, "{name}: built before it was written");
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?}: the page has changed; run PUTEX_REWRITE=1 cargo test --test pages"
    );
}

#[test]
fn every_page_is_plain_and_can_be_asked_for_as_a_whole() {
    let files: BTreeSet<_> = fs::read_dir(root().join("man"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "text" && !name.ends_with(".svg"))
        .collect();
    let known: BTreeSet<_> = pages().map(str::to_owned).collect();
    assert_eq!(files, known, "left: the folder; right: the program");
    for page in pages() {
        for line in page_text(page).lines() {
            let plain = line.chars().all(|c| c == ' ' || c.is_ascii_graphic());
            assert!(plain && line.len() <= COLUMNS_MAX, "{page}: {line}");
        }
    }
}

#[test]
fn every_topic_has_its_text_and_there_are_few() {
    assert!(TOPICS.len() <= 20, "{} topics", TOPICS.len());
    let overview = help(None);
    let (_, shown) = overview.split_once("Topics:\n").unwrap();
    for topic in TOPICS {
        let said = topic.text().expect(topic.name);
        let lines: Vec<_> = said.lines().collect();
        assert!(lines.len() > 1, "{}: {said}", topic.name);
        assert!(lines[0].starts_with(topic.head), "{}", topic.name);
        assert!(page_text(topic.page).contains(said.trim_end()), "{}", topic.name);
        let is_command = overview.contains(&format!("\n  {} ", topic.name));
        assert_ne!(is_command, shown.split_whitespace().any(|word| word == topic.name));
    }
    let words: BTreeSet<_> = TOPICS.iter().map(|topic| topic.name).collect();
    assert_eq!(words.len(), TOPICS.len(), "a word for two topics");
}

#[test]
fn a_page_is_found_by_its_name_and_a_topic_in_capitals() {
    for (name, due) in [
        ("putex.conf", "config"),
        ("conf", "config"),
        ("putex.conf.5", "config"),
        ("putex.conf(5)", "config"),
        ("putex-lock", "lock"),
        ("putex-lock.1", "lock"),
        ("putex-put", "lease"),
        ("release", "grab"),
        ("resume", "pause"),
        ("putex", "agent"),
        ("putex.8", "agent"),
        ("putex(8)", "agent"),
        ("PUTEX(7)", "theory"),
        ("TIMING", "timing"),
    ] {
        let output = putex(&["help", name]);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        let topic = TOPICS.iter().find(|topic| topic.name == due).unwrap();
        assert_eq!(String::from_utf8(output.stdout).ok(), topic.text(), "{name}");
    }
}

#[test]
fn an_unknown_topic_is_refused_in_a_line() {
    for (words, says) in [
        (
            &["help", "timimg"][..],
            "putex: timimg: no such topic; the nearest is timing; see putex help\n",
        ),
        (
            &["help", "troubleshooting"][..],
            "putex: troubleshooting: no such topic; see putex help trouble\n",
        ),
        (&["help", "putex.1"][..], "putex: putex.1: no such topic; see putex help\n"),
        (&["help", ""][..], "putex: '': no such topic; see putex help\n"),
        (
            &["help", "agent", "theory"][..],
            "putex: theory: unexpected argument; one topic at a time; write putex help agent\n",
        ),
        (
            &["help", "--key", "k"][..],
            "putex: --key: not an option of putex help, but of agent, check, finish\n",
        ),
    ] {
        let output = putex(words);
        assert_eq!(output.status.code(), Some(64), "{words:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), says);
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    let overview = putex(&["help"]);
    assert!(overview.status.success());
    assert_eq!(String::from_utf8_lossy(&overview.stdout), help(None));
    for words in [&["--help"][..], &["help", "help"], &["help", "--help"], &[]] {
        assert_eq!(putex(words).stdout, overview.stdout, "{words:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let sandbox = Sandbox::new("manual");
    let mut putex = sandbox.putex();
    let putex = putex.args(["help", "agent"]).stdout(writer);
    let output = putex.stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert!(output.stderr.is_empty(), "{output:?}");
}
