//! The faults of the operator's commands that are known without running them.

use std::process::{Command, Stdio};

use crate::cli::settings::Settings;
use crate::cli::table::Name;
use crate::core::sanitize;

/// Bytes of a word that means itself to the shell, beside letters and digits. A word with
/// another byte may be an assignment, a brace or an expansion.
const PLAIN: &[u8] = b"/._-+";

/// Returns the syntax errors, and the programs that do not exist. They are warnings: the
/// program may be installed later.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let names = [Name::Start, Name::Stop, Name::Healthcheck, Name::LastResort, Name::OnChange];
    let warning = |name| {
        let why = fault(settings.text(name)?)?;
        Some(format!("{}: {why}", settings.written(name)))
    };
    names.into_iter().filter_map(warning).collect()
}

fn fault(text: &str) -> Option<String> {
    if let Some(said) = shell_error(&["-n", "-c", text]) {
        return Some(format!("the shell cannot read it: {said}"));
    }
    let word = text.split_whitespace().next()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte);
    if !word.bytes().all(is_plain) {
        return None;
    }
    shell_error(&["-c", "command -v -- \"$1\" >/dev/null", "sh", word])?;
    Some(format!("there is no program {word} that this user can run"))
}

/// Runs the shell with these arguments. Returns the first line of its error when it fails.
fn shell_error(words: &[&str]) -> Option<String> {
    let output = Command::new("/bin/sh").args(words).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = sanitize(said.lines().next().unwrap_or_default());
    (!output.status.success()).then_some(said)
}
