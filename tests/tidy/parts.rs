//! The parts of a source: code, comments, and texts in quotes.

use Within::{Char, Code, Comment, RawText, Text};

/// The part that a letter belongs to. A newline in a text belongs to that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    Code,
    /// From its slashes to the end of the line.
    Comment,
    /// With its quotes.
    Text,
    /// With its quotes, and the hashes behind the last one.
    RawText {
        hashes: usize,
    },
    /// A character of its own, but for the apostrophe before it.
    Char,
}

/// Returns the letters of a source, each with its part.
pub(super) fn parts(source: &str) -> Vec<(char, Within)> {
    let letters: Vec<char> = source.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or('\n');
    let hashes_from = |index: usize| (index..).take_while(|index| at(*index) == '#').count();
    let (mut parts, mut within) = (Vec::with_capacity(letters.len()), Code);
    while parts.len() < letters.len() {
        let index = parts.len();
        // The part of this letter, the number of those that belong to it, and the part after it.
        let (part, count, next) = match (within, at(index)) {
            (Code, '/') if at(index + 1) == '/' => (Comment, 2, Comment),
            (Comment, '\n') => (Code, 1, Code),
            (Code, '"') => {
                let before = &letters[..index];
                let hashes = before.iter().rev().take_while(|letter| **letter == '#').count();
                let is_raw = before[..index - hashes].ends_with(&['r']);
                let text = if is_raw { RawText { hashes } } else { Text };
                (text, 1, text)
            }
            // The character may be a quote; a lifetime has no second apostrophe.
            (Code, '\'') if at(index + 1) == '\\' || at(index + 2) == '\'' => (Code, 1, Char),
            (Char, '\\') => (Char, 2, Char),
            (Char, '\'') => (Char, 1, Code),
            (Text, '\\') => (Text, 2, Text),
            (Text, '"') => (Text, 1, Code),
            (RawText { hashes }, '"') if hashes_from(index + 1) >= hashes => {
                (within, 1 + hashes, Code)
            }
            _ => (within, 1, within),
        };
        parts.extend(letters[index..].iter().take(count).map(|letter| (*letter, part)));
        within = next;
    }
    parts
}
