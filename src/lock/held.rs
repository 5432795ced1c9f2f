//! The variables of a command on its lock, and on the locks that enclosing `putex lock` processes
//! hold: PUTEX_HELD, as `db:12 web/x:15`. A process that waited for one of these would wait for
//! itself.

use std::env;
use std::ffi::{OsStr, OsString};

use super::Request;
use crate::core::tickets::Name;
use crate::exit::{Exit, Refusal};

/// The variable: each name with its term, blanks between.
const HELD: &str = "PUTEX_HELD";

/// A lock that is held, as its command is told of it.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) term: u64,
    pub(super) epoch: String,
    pub(super) slot: Option<u32>,
}

/// Checks that neither the name is held already, nor one above or below it.
///
/// # Errors
///
/// The name that is held.
pub(crate) fn check(name: &Name) -> Result<(), Refusal> {
    check_in(env::var_os(HELD).as_deref(), name)
}

fn check_in(held: Option<&OsStr>, name: &Name) -> Result<(), Refusal> {
    let held = held.unwrap_or_default().to_string_lossy();
    // A word that is no name was not written by putex.
    let name_of = |word: &str| Name::parse(word.rsplit_once(':')?.0).ok();
    let mut held = held.split_whitespace().filter_map(name_of);
    let Some(held) = held.find(|held| held.overlaps(name)) else { return Ok(()) };
    let why = format!(
        "an enclosing putex lock holds {held}, by {HELD}: it could wait for itself; if that lock \
         is in another bucket or has ended, write env -u {HELD} in front"
    );
    Err(Refusal::new(Exit::Usage, format!("{name}: {why}")))
}

/// Returns the variables of a command under a lock.
pub(super) fn variables(request: &Request, grant: &Grant) -> [(&'static str, OsString); 7] {
    let Grant { term, slot, epoch, .. } = grant;
    [
        ("PUTEX_KEY", request.name.to_string().into()),
        ("PUTEX_TOKEN", request.token.clone().into()),
        ("PUTEX_TERM", term.to_string().into()),
        ("PUTEX_EPOCH", epoch.into()),
        ("PUTEX_MODE", request.mode.name().into()),
        // The slot of this lock, not that of an enclosing one.
        ("PUTEX_SLOT", slot.map_or(String::new(), |slot| slot.to_string()).into()),
        (HELD, with(env::var_os(HELD).as_deref(), &request.name, *term)),
    ]
}

/// Returns the variable with this name added.
fn with(held: Option<&OsStr>, name: &Name, term: u64) -> OsString {
    let mut value = held.unwrap_or_default().to_owned();
    if !value.is_empty() {
        value.push(" ");
    }
    value.push(format!("{name}:{term}"));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn a_name_that_is_held_or_lies_above_or_below_a_held_one_is_refused() {
        let refused = |text: &str| check_in(Some(OsStr::new("db:12 web/x:15")), &name(text));
        for name in ["db", "db/users", "web", "web/x", "web/x/y"] {
            let refusal = refused(name).expect_err(name);
            assert_eq!(refusal.exit, Exit::Usage);
            assert!(refusal.text.contains("it could wait for itself"), "{}", refusal.text);
        }
        for name in ["dbx", "web/y", "x"] {
            assert_eq!(refused(name), Ok(()), "{name}");
        }
        assert_eq!(check_in(None, &name("db")), Ok(()));
        assert_eq!(check_in(Some(OsStr::new("nonsense :: 7")), &name("db")), Ok(()));
    }

    #[test]
    fn held_names_are_added_to_those_of_enclosing_processes() {
        assert_eq!(with(None, &name("web/x"), 12), "web/x:12");
        assert_eq!(with(Some(OsStr::new("a:1")), &name("db"), 12), "a:1 db:12");
    }
}
