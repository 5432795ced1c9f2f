//! The faults of the operator's commands that are known without running them.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::cli::settings::Settings;
use crate::cli::table::Name;
use crate::core::sanitize;

/// The characters that mean themselves to the shell, beside letters and digits. A word with another
/// one may be an assignment, a brace or an expansion.
const PLAIN: &str = "/._-+";

/// Most bytes of the first line of a script: the kernel reads no more.
const LINE_BYTES_MAX: u64 = 256;

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
    if let Some(word) = quoted(text).filter(|word| !Path::new(word).exists()) {
        return Some(format!(
            "there is no program '{word}'; write arguments outside of the quotes"
        ));
    }
    let word = program(text)?;
    // `command -v` of some shells takes every path that exists. The mode of a file is not all:
    // nothing is executed where noexec is mounted.
    let can_run = match word.contains('/') {
        true => Path::new(word).is_file() && access(word, Access::EXEC_OK).is_ok(),
        false => shell_error(&["-c", "command -v -- \"$1\" >/dev/null", "sh", word]).is_none(),
    };
    if can_run && let Some(missing) = interpreter(word).filter(|it| !Path::new(it).exists()) {
        let why = "which does not exist";
        return Some(format!("the first line of {word} names {missing:?}, {why}"));
    }
    let hint = if Path::new(word).is_file() { "; chmod 755 it" } else { "" };
    (!can_run).then(|| format!("there is no program {word} that this user can run{hint}"))
}

/// Returns the program that the first line of a script names, whose path is written. Where lines
/// end in CR LF, the CR is a part of its name.
fn interpreter(script: &str) -> Option<String> {
    let script = Some(script).filter(|word| word.contains('/'))?;
    let mut line = String::new();
    BufReader::new(File::open(script).ok()?).take(LINE_BYTES_MAX).read_line(&mut line).ok()?;
    let words = line.strip_prefix("#!")?.trim_matches([' ', '\t', '\n']);
    words.split([' ', '\t']).next().filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Returns the first word of a command if it is in quotes and has blanks in it, and the shell
/// expands no part of it.
fn quoted(text: &str) -> Option<&str> {
    let mut quotes = ['"', '\''].into_iter();
    let word = quotes.find_map(|quote| Some(text.strip_prefix(quote)?.split_once(quote)?.0))?;
    let is_expanded = word.contains(['$', '`', '\\']);
    (word.contains(char::is_whitespace) && !is_expanded).then_some(word)
}

/// Returns the program of a command; `None` if the first word is quoted, an assignment or an
/// expansion.
fn program(text: &str) -> Option<&str> {
    // The shell becomes the program behind `exec`; an option of `exec` is none.
    let mut words = text.split_ascii_whitespace().skip_while(|word| *word == "exec");
    let is_plain =
        |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || PLAIN.contains(c));
    words.next().filter(is_plain).filter(|word| !word.starts_with('-'))
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
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_that_cannot_be_executed_is_told() {
        let passwd = "there is no program /etc/passwd that this user can run; chmod 755 it";
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
            ("'a b' 'c d'", Some(outside)),
            ("\"a b\" || true", Some(outside)),
            ("exec -a web true", None),
            ("$HOME/start", None),
            ("A=1 no-such", None),
            ("{ no-such; }", None),
        ] {
            assert_eq!(fault(command).as_deref(), says, "{command}");
        }
    }

    /// `putex check` passed a stop that did not run.
    #[test]
    fn a_script_whose_interpreter_does_not_exist_is_told() {
        let path = std::env::temp_dir().join(format!("putex-check-{}", std::process::id()));
        for (text, missing) in [
            ("#!/bin/sh\ntrue\n", None),
            ("#! /bin/sh -e\n", None),
            ("#!/bin/sh\r\ntrue\r\n", Some(r"/bin/sh\r")),
            ("#!/no/such -x\n", Some("/no/such")),
            ("true\n", None),
        ] {
            fs::write(&path, text).expect("it is new");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
            let says = missing.map(|it| {
                format!("the first line of {} names \"{it}\", which does not exist", path.display())
            });
            assert_eq!(fault(&path.display().to_string()), says, "{text:?}");
        }
        fs::remove_file(&path).expect("it is there");
    }
}
