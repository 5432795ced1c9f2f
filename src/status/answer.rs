//! The questions that `putex status -e` answers by its exit status, and the values that `--print`
//! prints. Pure.

use super::model::{Holder, HolderState, KeyState, KeyStatus};

/// A question about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether somebody holds it.
    Held,
    /// Whether nobody holds or waits for it, or for a lock above or below it.
    Free,
    /// Whether this token holds it.
    Holder(String),
    /// Whether this token holds it, and may run the service.
    Active(String),
    /// Whether its agents are paused.
    Paused,
}

impl Question {
    /// Returns the answer. `status` is that of the name; nobody holds a name of which nothing is
    /// stored. `all` are with it those of the locks above and below the name.
    pub fn answer(&self, status: Option<&KeyStatus>, all: &[KeyStatus]) -> bool {
        let is_held_one = |status: &KeyStatus| status.state == KeyState::Held;
        let is_held = status.is_some_and(is_held_one);
        let holders = status.map_or(&[][..], |status| &status.holders);
        let of = |token: &str| {
            let token = token.to_owned();
            holders.iter().filter(move |holder| holder.token == token)
        };
        match self {
            Question::Held => is_held && !holders.is_empty(),
            Question::Free => !is_held && !all.iter().any(is_held_one),
            Question::Paused => status.is_some_and(|status| status.paused.is_some()),
            Question::Holder(token) => is_held && of(token).next().is_some(),
            Question::Active(token) => {
                is_held && of(token).any(|holder| holder.state == HolderState::Active)
            }
        }
    }
}

/// A value of a holder for `--print`: its name on the command line, and its text.
pub type Field = (&'static str, fn(&Holder) -> Option<String>);

/// All values that are printed.
pub const FIELDS: [Field; 3] = [
    ("holder", |holder| Some(holder.token.clone())),
    ("host", |holder| holder.host.clone()),
    ("term", |holder| holder.term.map(|term| term.to_string())),
];
