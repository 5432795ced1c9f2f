//! The faults of the operator's commands that are known without running them.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::cli::settings::Settings;
use crate::cli::table::Name;
use crate::core::sanitize;

/// The characters that mean themselves to the shell, beside letters and digits. A word with another
/// one may be an assignment, a brace or an expansion.
const PLAIN: &str = "/._-+";

/// The characters between words.
const BLANKS: [char; 3] = [' ', '\t', '\n'];

/// The commands without which the service is not kept as it was asked for.
pub(super) const OF_SERVICE: [Name; 4] =
    [Name::Start, Name::Stop, Name::Healthcheck, Name::LastResort];

/// Returns the syntax errors in these commands, and the programs that do not exist or cannot be
/// executed.
pub(super) fn faults<'a>(
    names: &'a [Name],
    settings: &'a Settings,
) -> impl Iterator<Item = String> + 'a {
    names.iter().filter_map(|name| {
        let why = fault(settings.text(*name)?)?;
        Some(format!("{}: {why}", settings.written(*name)))
    })
}

fn fault(text: &str) -> Option<String> {
    if let Some(said) = shell_error(&["-n", "-c", text]) {
        return Some(format!("the shell cannot read it: {said}"));
    }
    let (word, rest) = first_word(text)?;
    // The shell becomes the program behind it.
    let word = if word == "exec" { first_word(rest)?.0 } else { word };
    // `command -v` of some shells takes every path that exists. The mode of a file is not all:
    // nothing is executed where noexec is mounted.
    let can_run = match word.contains('/') {
        true => Path::new(&word).is_file() && access(&*word, Access::EXEC_OK).is_ok(),
        false => shell_error(&["-c", "command -v -- \"$1\" >/dev/null", "sh", &word]).is_none(),
    };
    (!can_run).then(|| no_program(&word))
}

/// Returns the first word as the shell reads it, and the text behind it; `None` if there is none,
/// or if the shell expands a part of it.
fn first_word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text.trim_start_matches(BLANKS).chars();
    while let Some(next) = rest.next().filter(|next| !BLANKS.contains(next)) {
        match next {
            // The shell joins two lines.
            '\\' => word.push(rest.next().filter(|next| *next != '\n')?),
            '\'' | '"' => {
                let (quoted, behind) = rest.as_str().split_once(next)?;
                if next == '"' && quoted.contains(['$', '`', '\\']) {
                    return None;
                }
                word.push_str(quoted);
                rest = behind.chars();
            }
            _ if next.is_ascii_alphanumeric() || PLAIN.contains(next) => word.push(next),
            _ => return None,
        }
    }
    // An option of `exec` is no program.
    (!word.is_empty() && !word.starts_with('-')).then_some((word, rest.as_str()))
}

fn no_program(word: &str) -> String {
    if word.contains(char::is_whitespace) {
        return format!("there is no program '{word}'; write arguments outside of the quotes");
    }
    format!("there is no program {word} that this user can run")
}

/// Runs the shell with these arguments. Returns the first line of its error when it fails.
fn shell_error(words: &[&str]) -> Option<String> {
    let output = Command::new("/bin/sh").args(words).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = sanitize(said.lines().next().unwrap_or_default());
    (!output.status.success()).then_some(said)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_executed_is_told() {
        let passwd = "there is no program /etc/passwd that this user can run";
        let folder = std::env::temp_dir().join(format!("putex check {}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let spaced = format!("'{}'", folder.display());
        let no_folder =
            format!("there is no program {spaced}; write arguments outside of the quotes");
        let script = format!("\"{}\"/'a script' web", folder.display());
        fs::write(folder.join("a script"), "").expect("there is room");
        fs::set_permissions(folder.join("a script"), fs::Permissions::from_mode(0o700))
            .expect("it is there");
        let outside = "there is no program 'a b'; write arguments outside of the quotes";
        for (command, says) in [
            ("/bin/sh -c true", None),
            ("true", None),
            ("/etc/passwd", Some(passwd)),
            ("  /etc/passwd web >/dev/null", Some(passwd)),
            ("/etc", Some("there is no program /etc that this user can run")),
            ("/no/such", Some("there is no program /no/such that this user can run")),
            ("no-such", Some("there is no program no-such that this user can run")),
            ("exec no-such", Some("there is no program no-such that this user can run")),
            ("exec >/dev/null", None),
            ("\"$HOME/a b\" c", None),
            (&spaced, Some(&no_folder)),
            (&script, None),
            ("'a b' 'c d'", Some(outside)),
            ("exec \"a b\" || true", Some(outside)),
            ("a\\ b", Some(outside)),
            ("exec \\\n /bin/true", None),
            ("exec -a web true", None),
            ("$HOME/start", None),
            ("A=1 no-such", None),
            ("{ no-such; }", None),
        ] {
            assert_eq!(fault(command).as_deref(), says, "{command}");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
