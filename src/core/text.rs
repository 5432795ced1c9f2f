//! Text that others chose, made safe to show.

/// Returns the text without characters that could forge a line, move a terminal's cursor or
/// reverse the order of letters: control characters, line and paragraph separators, overrides
/// of the writing direction. Each becomes `?`.
#[must_use]
pub fn sanitize(text: &str) -> String {
    text.replace(is_unsafe, "?")
}

fn is_unsafe(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::sanitize;

    #[test]
    fn characters_that_forge_lines_are_replaced() {
        assert_eq!(sanitize("alpha \u{e9} \u{65e5}"), "alpha \u{e9} \u{65e5}");
        assert_eq!(
            sanitize("a\0b\r\nc\td\u{7}\u{7f}\u{85}\u{9b}1m\u{1b}[2J"),
            "a?b??c?d????1m?[2J"
        );
        assert_eq!(sanitize("x\u{2028}y\u{202e}z\u{2066}"), "x?y?z?");
    }
}
