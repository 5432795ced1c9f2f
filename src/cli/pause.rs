//! The command lines of `putex pause` and `putex resume`.

use std::time::Duration;

use super::line::Line;
use super::table::{Name, Subcommand};
use super::value::{time_within, wait};
use crate::core::PAUSE_MAX;
use crate::exit::Refusal;
use crate::pause::{Action, Request};

/// The shortest pause: it takes some time until all have acknowledged it.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// Returns what the line asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    let resumes = line.of == Subcommand::Resume;
    let usual = if resumes { "putex resume KEY" } else { "putex pause --for TIME KEY" };
    // First the options: one that takes a value may have taken the key.
    let wait = line.settings.value(Name::PauseWait, "", wait)?;
    let action = if resumes { Action::Resume } else { pause(line)? };
    let key = line.agents_key(usual)?;
    Ok(Request { key, action, wait, by: line.requester(), level: line.level() })
}

fn pause(line: &Line<'_>) -> Result<Action, Refusal> {
    let time = time_within(LASTS_MIN..=PAUSE_MAX, "write 1s to 7d");
    let lasts = line.settings.value(Name::PauseFor, "--for TIME, as in --for 2h", time)?;
    let reason = line.settings.text(Name::Reason).unwrap_or_default().trim().to_owned();
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        let why = "write one line of at most 200 bytes";
        return Err(line.settings.usage(Name::Reason, why));
    }
    // Records have whole milliseconds.
    let lasts = Duration::from_millis(lasts.as_millis() as u64);
    Ok(Action::Pause { lasts, reason })
}

#[cfg(test)]
mod tests;
