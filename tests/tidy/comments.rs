//! Comments name their subject: a reader of one that begins with "it" would have to search the code
//! for the noun.

use super::parts::{Within, parts};
use super::{Source, all_sources, report, sources};

/// The words with which no block of comments begins.
const PRONOUNS: &[&str] =
    &["It", "One", "That", "These", "They", "Those", "What", "Whatever", "Who", "Whoever"];

/// Returns the text of a line that is a comment.
fn comment(line: &[(char, Within)]) -> Option<String> {
    let mut letters = line.iter().skip_while(|(letter, _)| letter.is_whitespace()).peekable();
    let is_comment = letters.peek().is_some_and(|(_, part)| *part == Within::Comment);
    let text: String = letters.map(|(letter, _)| letter).collect();
    is_comment.then(|| text[2..].trim_start_matches(['/', '!']).trim_start().to_owned())
}

/// Returns the first word of a text; a word with a hyphen is one word.
fn first_word(text: &str) -> &str {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    text.split(|letter| !is_of_word(letter)).next().unwrap_or_default()
}

/// Lists the blocks of comments that begin with a pronoun: a block is a run of adjacent lines. A
/// comment behind code belongs to its line and is no block.
fn without_subject(file: &Source) -> Vec<String> {
    let (mut was_comment, mut found) = (false, Vec::new());
    for (line, number) in parts(&file.text).split(|(letter, _)| *letter == '\n').zip(1..) {
        let text = comment(line);
        let word = text.as_deref().filter(|_| !was_comment).map_or("", first_word);
        if PRONOUNS.contains(&word) {
            let path = &file.path;
            found.push(format!("{path}:{number}: {word}: name the noun that the comment is about"));
        }
        was_comment = text.is_some_and(|text| was_comment || !text.is_empty());
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
