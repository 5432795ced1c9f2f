//! The calls of putex that a text shows.

use std::path::PathBuf;

/// Returns the words of each call of putex in the code blocks and spans of a text.
pub(crate) fn putex_calls(text: &str) -> Vec<Vec<String>> {
    let fenced = text.split("```").skip(1).step_by(2).flat_map(|block| {
        block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let spans = text.split('`').map(str::to_owned);
    fenced
        .chain(spans)
        .map(|line| split_words(&line))
        .filter(|words| words.first().is_some_and(|word| PathBuf::from(word).ends_with("putex")))
        .collect()
}

/// Splits a line as a shell does, as far as single and double quotes go.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.trim().chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, _) => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}
