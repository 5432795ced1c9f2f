//! The questions that `putex status -e` answers by its exit status, and the values that `--print`
//! prints. Pure.

use super::model::{Holder, HolderState, KeyState, KeyStatus};

/// A question about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether somebody holds it.
    Held,
    /// Whether nobody holds it.
    Free,
    /// Whether this token holds it.
    Holder(String),
    /// Whether this token holds it, and may run the service.
    Active(String),
    /// Whether its agents are paused.
    Paused,
}

impl Question {
    /// Returns the answer. Nobody holds a name of which nothing is stored.
    pub fn answer(&self, status: Option<&KeyStatus>) -> bool {
        let is_held = status.is_some_and(|status| status.state == KeyState::Held);
        let holders = status.map_or(&[][..], |status| &status.holders);
        let of = |token: &str| {
            let token = token.to_owned();
            holders.iter().filter(move |holder| holder.token == token)
        };
        match self {
            Question::Held => is_held,
            Question::Free => !is_held,
            Question::Paused => status.is_some_and(|status| status.paused.is_some()),
            Question::Holder(token) => is_held && of(token).next().is_some(),
            Question::Active(token) => {
                is_held && of(token).any(|holder| holder.state == HolderState::Active)
            }
        }
    }
}

/// A value of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The token of each holder.
    Holder,
    /// The host of each holder.
    Host,
    /// The term of each holder.
    Term,
    /// Whether it is held or free.
    State,
}

impl Field {
    /// All of them.
    pub const ALL: [Field; 4] = [Field::Holder, Field::Host, Field::State, Field::Term];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Field::Holder => "holder",
            Field::Host => "host",
            Field::Term => "term",
            Field::State => "state",
        }
    }

    /// Returns what is printed, a line for each value.
    pub fn text(self, status: Option<&KeyStatus>) -> String {
        let Some(status) = status else {
            return if self == Field::State { "free\n".to_owned() } else { String::new() };
        };
        let value = |holder: &Holder| match self {
            Field::Holder => Some(holder.token.clone()),
            Field::Host => holder.host.clone(),
            Field::Term => holder.term.map(|term| term.to_string()),
            Field::State => None,
        };
        if self == Field::State {
            return format!("{}\n", status.state);
        }
        status.holders.iter().filter_map(value).map(|value| value + "\n").collect()
    }
}
