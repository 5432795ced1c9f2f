//! The options of all connections of a client.

use super::auth::Login;
use super::tls::Tls;

/// The default prefix of reply subjects.
const INBOX: &str = "_INBOX";

/// Login, TLS and inbox of all connections of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The login for servers whose URL has neither user nor token.
    pub login: Login,
    /// The TLS options, which apply whatever the URLs say.
    pub tls: Tls,
    /// The prefix of reply subjects.
    pub inbox: String,
}

impl From<Login> for ConnectOptions {
    fn from(login: Login) -> ConnectOptions {
        ConnectOptions { login, tls: Tls::default(), inbox: INBOX.to_owned() }
    }
}
