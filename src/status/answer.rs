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
        let mut holders = status.into_iter().flat_map(KeyStatus::standing_holders);
        match self {
            Question::Held => holders.next().is_some(),
            Question::Free => !status.into_iter().chain(all).any(is_held_one),
            Question::Paused => status.is_some_and(|status| status.paused.is_some()),
            Question::Holder(token) => holders.any(|holder| holder.token == *token),
            Question::Active(token) => {
                holders.any(|holder| holder.token == *token && holder.state == HolderState::Active)
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
