//! What a command is told of its lock, and of the locks that enclosing `putex lock` processes
//! hold: PUTEX_HELD, as `db:12 web/x:15`. A process that waited for one of them would wait for
//! itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use super::Request;
use crate::core::Revision;
use crate::core::tickets::Name;
use crate::exit::{Exit, Refusal};

/// The variable: each name with its term, blanks between.
pub(crate) const HELD: &str = "PUTEX_HELD";

/// The variable with the id of the bucket.
const EPOCH: &str = "PUTEX_EPOCH";

/// Returns the names that enclosing processes hold, with the numbers of their tickets.
pub(super) fn of_environment() -> Vec<(Name, Revision)> {
    parse(env::var_os(HELD).as_deref())
}

fn parse(held: Option<&OsStr>) -> Vec<(Name, Revision)> {
    let held = held.unwrap_or_default().to_string_lossy();
    let held = held.split_whitespace().filter_map(|word| word.rsplit_once(':'));
    // What is no name was not written by putex.
    let held = held
        .filter_map(|(name, term)| Some((Name::parse(name).ok()?, Revision(term.parse().ok()?))));
    held.collect()
}

/// Checks that no name is held already, nor one above or below it.
///
/// # Errors
///
/// The name that is.
pub(crate) fn check(names: &[Name], held: Option<&OsStr>) -> Result<(), Refusal> {
    for (held, _) in parse(held) {
        let conflicts = |name: &&Name| name.contains(&held) || held.contains(name);
        if let Some(name) = names.iter().find(conflicts) {
            let text = format!(
                "{name}: an enclosing putex lock holds {held}: it would wait for itself ({HELD})"
            );
            return Err(Refusal::new(Exit::Usage, text));
        }
    }
    Ok(())
}

/// Returns the variables of a command under a lock with this term and slot, in the bucket of this
/// id. `names` are those of the request, for people.
pub(super) fn variables(
    request: &Request,
    names: &str,
    (term, slot): (u64, Option<u32>),
    epoch: &str,
) -> [(&'static str, OsString); 7] {
    [
        ("PUTEX_KEY", names.into()),
        ("PUTEX_TOKEN", request.token.clone().into()),
        ("PUTEX_TERM", term.to_string().into()),
        (EPOCH, epoch.into()),
        ("PUTEX_MODE", request.mode.name().into()),
        // Not that of an enclosing lock.
        ("PUTEX_SLOT", slot.map(|slot| slot.to_string()).unwrap_or_default().into()),
        (HELD, with(env::var_os(HELD).as_deref(), &request.names, term)),
    ]
}

/// Returns the variable with these names added.
fn with(held: Option<&OsStr>, names: &[Name], term: u64) -> OsString {
    let mut value = held.unwrap_or_default().to_owned();
    for name in names {
        if !value.is_empty() {
            value.push(" ");
        }
        value.push(format!("{name}:{term}"));
    }
    value
}

/// The variables that tell the processes of a command under a lock from all others: the locks
/// that are held around it, with their terms, in the bucket of this id. Two buckets may have the
/// same names and terms.
pub(super) struct HeldVariables {
    held: Vec<u8>,
    epoch: Vec<u8>,
}

impl HeldVariables {
    /// Returns those of a lock of this process.
    pub(super) fn new(names: &[Name], term: u64, epoch: &str) -> HeldVariables {
        HeldVariables::around(env::var_os(HELD).as_deref(), names, term, epoch)
    }

    fn around(held: Option<&OsStr>, names: &[Name], term: u64, epoch: &str) -> HeldVariables {
        HeldVariables { held: with(held, names, term).into_vec(), epoch: epoch.as_bytes().to_vec() }
    }

    /// Returns whether an environment, as /proc shows it, has them: those of the command, or
    /// those of a lock of the same bucket inside of it.
    pub(super) fn is_in(&self, environment: &[u8]) -> bool {
        let has = |name: &str, is_right: &dyn Fn(&[u8]) -> bool| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| {
                let value = variable.strip_prefix(name.as_bytes());
                value.and_then(|value| value.strip_prefix(b"=")).is_some_and(is_right)
            })
        };
        let is_inside = |value: &[u8]| {
            let inner = value.strip_prefix(&*self.held);
            inner.is_some_and(|inner| inner.is_empty() || inner.starts_with(b" "))
        };
        has(HELD, &is_inside) && has(EPOCH, &|value| value == self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Name> {
        names.iter().map(|name| Name::parse(name).expect("a name")).collect()
    }

    #[test]
    fn a_name_that_is_held_or_lies_above_or_below_a_held_one_is_refused() {
        let refused = |name: &str| check(&names(&["a", name]), Some(OsStr::new("db:12 web/x:15")));
        for name in ["db", "db/users", "web", "web/x", "web/x/y"] {
            let refusal = refused(name).expect_err(name);
            assert_eq!(refusal.exit, Exit::Usage);
            assert!(refusal.text.contains("it would wait for itself"), "{}", refusal.text);
        }
        for name in ["dbx", "web/y", "x"] {
            assert_eq!(refused(name), Ok(()), "{name}");
        }
        assert_eq!(check(&names(&["db"]), None), Ok(()));
        assert_eq!(check(&names(&["db"]), Some(OsStr::new("nonsense :: 7"))), Ok(()));
    }

    #[test]
    fn the_processes_of_a_command_are_told_from_those_of_other_locks() {
        let around = Some(OsStr::new("a:1"));
        let variables = HeldVariables::around(around, &names(&["db", "web/x"]), 12, "8c3e");
        let own = "PUTEX_HELD=a:1 db:12 web/x:12";
        let is_of_lock = |held: &str, epoch: &str| {
            variables.is_in(format!("A=b\0{epoch}\0{held}\0HOME=/\0").as_bytes())
        };
        assert!(is_of_lock(own, "PUTEX_EPOCH=8c3e"));
        assert!(is_of_lock(&format!("{own} inner:13"), "PUTEX_EPOCH=8c3e"));
        // A lock of another bucket, which may have any term.
        assert!(!is_of_lock(own, "PUTEX_EPOCH=8c3"));
        assert!(!is_of_lock(own, "PUTEX_TERM=8c3e"));
        // The renewer and the front themselves.
        assert!(!is_of_lock("PUTEX_HELD=a:1", "PUTEX_EPOCH=8c3e"));
        for other in [
            "PUTEX_HELD=a:1 db:12 web/x:120",
            "PUTEX_HELD=a:1 db:12",
            "PUTEX_HELD=a:1 db:12 web/y:12",
            "PUTEX_HELD=db:12 web/x:12",
            "PUTEX_HELD=b a:1 db:12 web/x:12",
            "XPUTEX_HELD=a:1 db:12 web/x:12",
            "PUTEX_HELD=",
        ] {
            assert!(!is_of_lock(other, "PUTEX_EPOCH=8c3e"), "{other}");
        }
        assert!(!variables.is_in(b""));
    }

    #[test]
    fn held_names_are_added_to_those_of_enclosing_processes() {
        assert_eq!(with(None, &names(&["db", "web/x"]), 12), "db:12 web/x:12");
        assert_eq!(with(Some(OsStr::new("a:1")), &names(&["db"]), 12), "a:1 db:12");
    }
}
