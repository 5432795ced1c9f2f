//! The findings as text and as JSON. Pure.
//!
//! The first line of a text, and the exit status, are those of a plugin of Nagios: monitoring
//! systems run the command as it is.

use std::cmp::Reverse;

use super::finding::{Finding, Level, Report};
use crate::exit::Refusal;

/// The columns of the level and the name in a text.
const LEVEL_WIDTH: usize = 8;
const NAME_WIDTH: usize = 9;

/// The exit status when nothing could be measured.
pub const NOT_MEASURED: u8 = 3;

/// Returns the line that says why nothing could be measured.
pub fn not_measured(refusal: &Refusal) -> String {
    first_line(Level::Unknown, &refusal.text)
}

impl Report {
    /// Returns the exit status of a plugin of Nagios: 0 for fit, 2 for something critical; 1 for a
    /// warning if that was asked for.
    pub fn status(&self) -> u8 {
        match self.judged() {
            Level::Ok => 0,
            Level::Warning => 1,
            Level::Critical => 2,
            Level::Unknown => NOT_MEASURED,
        }
    }

    /// Returns the level by which the exit status goes.
    fn judged(&self) -> Level {
        if self.level == Level::Warning && !self.is_strict { Level::Ok } else { self.level }
    }

    /// Returns a line with all that is wrong, then a line for each finding, and below one that is
    /// not fit what to do.
    pub fn text(&self) -> String {
        let mut told: Vec<_> = self.findings.iter().filter(|it| it.is_told()).collect();
        told.sort_by_key(|finding| Reverse(finding.level));
        let describe = |finding: &&Finding| {
            let key = finding.key.as_ref().map(|key| format!("{key} ")).unwrap_or_default();
            format!("{key}{}: {}", finding.name, finding.text)
        };
        let mut said: Vec<String> = told.iter().map(describe).collect();
        if self.judged() == Level::Ok {
            let warnings = match told.len() {
                0 => String::new(),
                1 => ", 1 warning".to_owned(),
                count => format!(", {count} warnings"),
            };
            // Its finding follows.
            let bucket = match told.iter().any(|finding| finding.name == "bucket") {
                true => "nothing is critical".to_owned(),
                false => format!("bucket {} is fit", self.bucket),
            };
            said.insert(0, bucket + &warnings);
        }
        let is_unknown = |it: &&Finding| it.level == Level::Unknown && !it.ignored;
        let unknown = self.findings.iter().filter(is_unknown);
        let unknown: Vec<_> = unknown.map(|finding| finding.name).collect();
        if !unknown.is_empty() {
            said.push(format!("not known: {}", unknown.join(" ")));
        }
        let mut text = first_line(self.judged(), &said.join("; "));
        self.findings.iter().for_each(|finding| text.push_str(&lines_of(finding)));
        text
    }
}

fn first_line(level: Level, said: &str) -> String {
    without_bars(format!("PUTEX {} - {said}\n", level.to_string().to_uppercase()))
}

fn lines_of(finding: &Finding) -> String {
    let Finding { name, key, level, ignored, text, advice, .. } = finding;
    let key = key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
    let ignored = if *ignored { "(ignored) " } else { "" };
    let level = level.to_string();
    let mut lines = format!("{level:<LEVEL_WIDTH$} {name:<NAME_WIDTH$} {ignored}{key}{text}\n");
    if let Some(advice) = advice {
        lines.push_str(&format!("{:LEVEL_WIDTH$} -> {advice}\n", ""));
    }
    without_bars(lines)
}

/// Behind a bar, figures follow: there are none.
fn without_bars(text: String) -> String {
    text.replace('|', "/")
}
