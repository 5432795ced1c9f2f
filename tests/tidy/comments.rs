//! Comments name their subject: a reader of one that begins with "it" would have to search the code
//! for the noun.

use super::{Source, all_sources, report, sources};

/// The words with which no block of comments begins.
const PRONOUNS: &[&str] =
    &["It", "One", "That", "These", "They", "Those", "What", "Whatever", "Who", "Whoever"];

/// The part of a source at the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Code,
    Text,
    RawText { hashes: usize },
}

use Within::{Code, RawText, Text};

/// Returns the part of a source at the end of a line that begins within this part.
fn after(line: &str, mut within: Within) -> Within {
    let letters: Vec<char> = line.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or('\n');
    let hashes_from = |index: usize| (index..).take_while(|index| at(*index) == '#').count();
    let mut index = 0;
    while index < letters.len() {
        let mut step = 1;
        match (within, at(index)) {
            (Code, '/') if at(index + 1) == '/' => return Code,
            (Code, '"') => {
                let before = &letters[..index];
                let hashes = before.iter().rev().take_while(|letter| **letter == '#').count();
                let is_raw = before[..index - hashes].ends_with(&['r']);
                within = if is_raw { RawText { hashes } } else { Text };
            }
            // A character of its own, which may be a quote; a lifetime has no second apostrophe.
            (Code, '\'') if at(index + 1) == '\\' => {
                let escaped = index + 3;
                step = (escaped..letters.len()).take_while(|index| at(*index) != '\'').count() + 4;
            }
            (Code, '\'') if at(index + 2) == '\'' => step = 3,
            (Text, '\\') => step = 2,
            (Text, '"') => within = Code,
            (RawText { hashes }, '"') if hashes_from(index + 1) >= hashes => {
                within = Code;
                step = 1 + hashes;
            }
            _ => {}
        }
        index += step;
    }
    within
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Returns the first word of a text; a word with a hyphen is one word.
fn first_word(text: &str) -> &str {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    text.split(|letter| !is_of_word(letter)).next().unwrap_or_default()
}

/// Lists the blocks of comments that begin with a pronoun: a block is a run of adjacent lines. A
/// comment behind code belongs to its line and is no block.
fn without_subject(file: &Source) -> Vec<String> {
    let (mut within, mut was_comment, mut found) = (Code, false, Vec::new());
    for (line, number) in file.text.lines().zip(1..) {
        let text = comment(line).filter(|_| within == Code);
        let word = text.filter(|_| !was_comment).map_or("", first_word);
        if PRONOUNS.contains(&word) {
            let path = &file.path;
            found.push(format!("{path}:{number}: {word}: name the noun that the comment is about"));
        }
        was_comment = text.is_some_and(|text| was_comment || !text.is_empty());
        within = after(line, within);
    }
    found
}

#[test]
fn comments_begin_with_their_subject() {
    let files = all_sources().into_iter().chain(sources("benches"));
    report(&files.flat_map(|file| without_subject(&file)).collect::<Vec<_>>());
}

#[test]
fn a_comment_without_a_subject_is_found() {
    let lines = |text: &str| {
        let file = Source { path: "src/x.rs".to_owned(), text: text.to_owned() };
        let found = without_subject(&file);
        let short = |line: &String| {
            let place = line.strip_prefix("src/x.rs:").unwrap();
            place.split(": name").next().unwrap().to_owned()
        };
        found.iter().map(short).collect::<Vec<_>>()
    };
    for word in PRONOUNS {
        for (begin, end) in [("// ", " is."), ("    /// ", "'s end."), ("//! ", ""), ("//", ":")] {
            assert_eq!(lines(&format!("{begin}{word}{end}\nx();")), [format!("1: {word}")]);
        }
    }
    let text = "/// The key.\n/// It is new.\n\n/// It is old.\nfn x() {}\n//\n// Who asks.\n";
    assert_eq!(lines(text), ["4: It", "7: Who"]);
    assert_eq!(lines("x(); // It runs.\n// What it does: \"\n"), ["2: What"]);
    assert_eq!(lines("/// Items.\n\n// One-way.\n\n//! Whose.\n\n// it\n\n// `It`\n"), [""; 0]);
    // No text hides the comment behind it, and no comment is seen in a text.
    for before in [
        "x(\"\n// It\\\"\n\");",
        "x(r#\"\n// It \"\n\"#);",
        "x(br\"\n// It \\\");",
        "x(r##\"\n// It \"#\n\"##);",
        "x('\"');",
        "x('\\'', '\\u{22}', '\\\"');",
        "// \"",
        "fn x<'a>(y: &'a str, z: '\"') {",
        "x(\"//\");",
        "x(\"\\\n// It \\\\\");",
        "let r = \"\\\"\";",
    ] {
        let text = format!("{before}\n\n// What\n");
        let last = text.lines().count();
        assert_eq!(lines(&text), [format!("{last}: What")], "{before}");
    }
}
