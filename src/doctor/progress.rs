//! What is being measured, on the last line of a terminal.

use std::io::{self, IsTerminal as _, Write as _};

/// Says on standard error what is being measured, if that is a terminal.
pub(super) struct Progress {
    is_terminal: bool,
}

/// What empties the line of a terminal.
const CLEAR: &str = "\r\u{1b}[K";

impl Progress {
    /// Returns one for standard error.
    pub(super) fn new() -> Progress {
        Progress { is_terminal: io::stderr().is_terminal() }
    }

    /// Shows what is being measured.
    pub(super) fn tell(&self, what: &str) {
        self.write(&format!("{CLEAR}putex doctor: measuring {what}"));
    }

    fn write(&self, text: &str) {
        if self.is_terminal {
            // A terminal that is gone needs no line.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

impl Drop for Progress {
    /// Empties the line.
    fn drop(&mut self) {
        self.write(CLEAR);
    }
}
