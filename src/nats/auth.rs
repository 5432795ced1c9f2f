//! Who we say we are.

use std::fmt;

use serde_json::{Map, Value};

/// What is sent to be let in. Closed on purpose: another way of proving oneself
/// is another variant, and every `match` must then say what it does with it.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the server asks for nothing, or knows us by other means.
    #[default]
    None,
    /// A user name and its password.
    User {
        /// The name.
        user: String,
        /// The password, perhaps empty.
        password: String,
    },
    /// A token.
    Token(String),
}

impl Credentials {
    /// Returns what the values of NATS_USER, NATS_PASSWORD and NATS_TOKEN mean. A
    /// user name comes before a token; a password alone means nothing; an empty
    /// value is as good as none.
    #[must_use]
    pub fn from_values(
        user: Option<String>,
        password: Option<String>,
        token: Option<String>,
    ) -> Credentials {
        let given = |value: Option<String>| value.filter(|text| !text.is_empty());
        match (given(user), given(token)) {
            (Some(user), _) => Credentials::User {
                user,
                password: password.unwrap_or_default(),
            },
            (None, Some(token)) => Credentials::Token(token),
            (None, None) => Credentials::None,
        }
    }

    /// Returns these, or `fallback` when these are [`Credentials::None`].
    #[must_use]
    pub fn or<'a>(&'a self, fallback: &'a Credentials) -> &'a Credentials {
        match self {
            Credentials::None => fallback,
            Credentials::User { .. } | Credentials::Token(_) => self,
        }
    }

    /// Adds what goes into the CONNECT line.
    pub(super) fn add_to(&self, connect: &mut Map<String, Value>) {
        let mut add = |name: &str, value: &String| {
            connect.insert(name.to_owned(), Value::String(value.clone()));
        };
        match self {
            Credentials::None => {}
            Credentials::User { user, password } => {
                add("user", user);
                add("pass", password);
            }
            Credentials::Token(token) => add("auth_token", token),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::None => "None",
            Credentials::User { .. } => "User(..)",
            Credentials::Token(_) => "Token(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn values_of_the_environment() {
        let user = |user: &str, password: &str| Credentials::User {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        let from = Credentials::from_values;
        assert_eq!(from(None, None, None), Credentials::None);
        assert_eq!(from(some(""), some("p"), some("")), Credentials::None);
        assert_eq!(from(None, some("p"), None), Credentials::None);
        assert_eq!(from(some("u"), some("p"), some("t")), user("u", "p"));
        assert_eq!(from(some("u"), None, None), user("u", ""));
        assert_eq!(
            from(None, None, some("t")),
            Credentials::Token("t".to_owned())
        );
    }

    #[test]
    fn the_fallback_fills_a_gap_only() {
        let (one, two) = (
            Credentials::Token("1".to_owned()),
            Credentials::Token("2".to_owned()),
        );
        assert_eq!(one.or(&two), &one);
        assert_eq!(Credentials::None.or(&two), &two);
    }

    #[test]
    fn no_secret_is_shown() {
        for credentials in [
            Credentials::from_values(some("secret"), some("secret"), None),
            Credentials::from_values(None, None, some("secret")),
        ] {
            assert!(!format!("{credentials:?}").contains("secret"));
            assert!(!format!("{credentials:#?}").contains("secret"));
        }
    }
}
