//! What a command is told of its lock, and of the locks that enclosing `putex lock` processes
//! hold: PUTEX_HELD, as `db:12 web/x:15`. A process that waited for one of them would wait for
//! itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;

use super::Request;
use crate::core::tickets::Name;
use crate::exit::{Exit, Refusal};
use crate::sys;

/// The variable: each name with its term, blanks between.
pub(crate) const HELD: &str = "PUTEX_HELD";

/// The variable by which the processes of a command are found.
const HELD_BY: &str = "PUTEX_HELD_BY";

/// Checks that neither the name is held already, nor one above or below it.
///
/// # Errors
///
/// The name that is held.
pub(crate) fn check(name: &Name, held: Option<&OsStr>) -> Result<(), Refusal> {
    let held = held.unwrap_or_default().to_string_lossy();
    // What is no name was not written by putex.
    let name_of = |word: &str| Name::parse(word.rsplit_once(':')?.0).ok();
    let mut held = held.split_whitespace().filter_map(name_of);
    let Some(held) = held.find(|held| held.overlaps(name)) else { return Ok(()) };
    let why = format!("an enclosing putex lock holds {held}: it would wait for itself");
    Err(Refusal::new(Exit::Usage, format!("{name}: {why} ({HELD})")))
}

/// Returns the variables of a command under a lock with this term and slot, in the bucket of this
/// id.
pub(super) fn variables(
    request: &Request,
    (term, slot): (u64, Option<u32>),
    epoch: &str,
) -> [(&'static str, OsString); 7] {
    [
        ("PUTEX_KEY", request.name.to_string().into()),
        ("PUTEX_TOKEN", request.token.clone().into()),
        ("PUTEX_TERM", term.to_string().into()),
        ("PUTEX_EPOCH", epoch.into()),
        ("PUTEX_MODE", request.mode.name().into()),
        // Not that of an enclosing lock.
        ("PUTEX_SLOT", slot.map(|slot| slot.to_string()).unwrap_or_default().into()),
        (HELD, with(env::var_os(HELD).as_deref(), &request.name, term)),
    ]
}

/// Returns the variable with this name added.
fn with(held: Option<&OsStr>, name: &Name, term: u64) -> OsString {
    let mut value = held.unwrap_or_default().to_owned();
    add_word(&mut value, &format!("{name}:{term}"));
    value
}

/// Adds a word to the value of a variable.
fn add_word(value: &mut OsString, word: &str) {
    if !value.is_empty() {
        value.push(" ");
    }
    value.push(word);
}

/// A random number by which the processes of a command are told from all others: what they start
/// inherits it, also under a lock inside of it. The names and terms of two buckets may be equal.
pub(super) struct HolderId(String);

impl HolderId {
    /// Returns the number of this process.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub(super) fn random() -> io::Result<HolderId> {
        Ok(HolderId(format!("{:032x}", sys::random()?)))
    }

    /// Returns the variable of the command: the numbers of the enclosing processes, and this one.
    pub(super) fn variable(&self) -> (&'static str, OsString) {
        let mut value = env::var_os(HELD_BY).unwrap_or_default();
        add_word(&mut value, &self.0);
        (HELD_BY, value)
    }

    /// Returns whether an environment, as /proc shows it, is that of a process of the command.
    pub(super) fn is_in(&self, environment: &[u8]) -> bool {
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| {
            let value = variable.strip_prefix(HELD_BY.as_bytes());
            let value = value.and_then(|value| value.strip_prefix(b"=")).unwrap_or_default();
            value.split(|byte| *byte == b' ').any(|word| word == self.0.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn a_name_that_is_held_or_lies_above_or_below_a_held_one_is_refused() {
        let refused = |text: &str| check(&name(text), Some(OsStr::new("db:12 web/x:15")));
        for name in ["db", "db/users", "web", "web/x", "web/x/y"] {
            let refusal = refused(name).expect_err(name);
            assert_eq!(refusal.exit, Exit::Usage);
            assert!(refusal.text.contains("it would wait for itself"), "{}", refusal.text);
        }
        for name in ["dbx", "web/y", "x"] {
            assert_eq!(refused(name), Ok(()), "{name}");
        }
        assert_eq!(check(&name("db"), None), Ok(()));
        assert_eq!(check(&name("db"), Some(OsStr::new("nonsense :: 7"))), Ok(()));
    }

    #[test]
    fn the_processes_of_a_command_are_told_from_those_of_other_locks() {
        let id = HolderId("8c3e".to_owned());
        let is_of_command =
            |variable: &str| id.is_in(format!("A=b\0{variable}\0HOME=/\0").as_bytes());
        for own in ["PUTEX_HELD_BY=8c3e", "PUTEX_HELD_BY=7 8c3e", "PUTEX_HELD_BY=7 8c3e 9"] {
            assert!(is_of_command(own), "{own}");
        }
        for other in ["PUTEX_HELD_BY=8c3", "PUTEX_HELD_BY=8c3ee 7", "PUTEX_HELD=8c3e", "B=8c3e", ""]
        {
            assert!(!is_of_command(other), "{other}");
        }
        assert!(!id.is_in(b""));
    }

    #[test]
    fn held_names_are_added_to_those_of_enclosing_processes() {
        assert_eq!(with(None, &name("web/x"), 12), "web/x:12");
        assert_eq!(with(Some(OsStr::new("a:1")), &name("db"), 12), "a:1 db:12");
    }
}
