//! The options of all connections of a client.

use std::time::Duration;

use super::auth::Login;
use super::tls::Tls;

/// The default prefix of reply subjects.
const INBOX: &str = "_INBOX";

/// The options of all connections of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The login for servers whose URL has neither user nor token.
    pub login: Login,
    /// The TLS options, which apply whatever the URLs say.
    pub tls: Tls,
    /// The prefix of reply subjects.
    pub inbox: String,
    /// The name in the server's list of connections.
    pub name: String,
    /// A waiting client sends PING after this time without a byte from the server, and ends
    /// the connection after twice that time.
    pub ping_after: Duration,
}

impl ConnectOptions {
    /// Returns options without TLS and with the default prefix of reply subjects.
    pub fn new(login: Login, name: String, ping_after: Duration) -> ConnectOptions {
        ConnectOptions { login, tls: Tls::default(), inbox: INBOX.to_owned(), name, ping_after }
    }
}
