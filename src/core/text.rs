//! Text that others chose, made safe to show.

/// Returns the text without characters that could forge a line, move a terminal's cursor, reverse
/// the order of letters or be invisible: control characters, line and paragraph separators, marks
/// and overrides of the writing direction, letters without a width. Each becomes `?`.
pub fn sanitize(text: &str) -> String {
    text.replace(is_unsafe, "?")
}

/// Writes enums for people as in JSON.
macro_rules! display_as_json {
    ($($type:ty)*) => {
        $(impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.serialize(f)
            }
        })*
    };
}

pub(crate) use display_as_json;

/// Longest field of another's record that is shown, in bytes: the longest token.
const FIELD_BYTES_MAX: usize = 255;

/// Ends a text that was cut off.
const CUT_OFF: &str = "...";

/// Returns a field of another's record for people: sanitized, and at most as long as a token.
/// Anybody who may write to the bucket may have chosen the field. A field that was returned once
/// stays as it is.
pub fn sanitize_field(text: &str) -> String {
    cut_off(sanitize(text), FIELD_BYTES_MAX)
}

/// Returns the text, cut off if it has more than `bytes_max` bytes.
pub(crate) fn cut_off(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let mut lengths = (0..=bytes_max - CUT_OFF.len()).rev();
        let longest = lengths.find(|length| text.is_char_boundary(*length));
        text.truncate(longest.unwrap_or_default());
        text.push_str(CUT_OFF);
    }
    text
}

fn is_unsafe(letter: char) -> bool {
    let has_no_width = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{3164}');
    let directs = matches!(letter, '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}');
    letter.is_control() || has_no_width || directs
}

#[cfg(test)]
mod tests {
    use super::{sanitize, sanitize_field};

    #[test]
    fn characters_that_forge_lines_are_replaced() {
        assert_eq!(sanitize("alpha \u{e9} \u{65e5}"), "alpha \u{e9} \u{65e5}");
        assert_eq!(
            sanitize("a\0b\r\nc\td\u{7}\u{7f}\u{85}\u{9b}1m\u{1b}[2J"),
            "a?b??c?d????1m?[2J"
        );
        assert_eq!(sanitize("x\u{2028}y\u{202e}z\u{2066}"), "x?y?z?");
        assert_eq!(sanitize("x\u{200b}y\u{200f}z\u{61c}\u{feff}\u{3164}"), "x?y?z???");
    }

    #[test]
    fn a_field_of_another_is_shown_in_one_short_line() {
        assert_eq!(sanitize_field("a\0b\r\nc"), "a?b??c");
        let most = "\u{e9}".repeat(127) + "z";
        assert_eq!(sanitize_field(&most), most);
        assert_eq!(sanitize_field(&(most + "z")), "\u{e9}".repeat(126) + "...");
    }

    #[test]
    fn a_field_that_was_cut_off_is_cut_off_no_more() {
        for letter in ["z", "\u{e9}", "\u{65e5}", "\u{85}", "\u{2028}"] {
            let shown = sanitize_field(&format!("a{}", letter.repeat(300)));
            assert_eq!(sanitize_field(&shown), shown, "{letter:?}");
        }
    }
}
