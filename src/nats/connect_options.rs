//! The options of all connections of a client.

use std::time::Duration;

use super::auth::Login;
use super::tls::Tls;

/// Shortest time after which a request is repeated: a server that stores to a disk needs
/// some milliseconds.
const REPEAT_AFTER_MIN: Duration = Duration::from_millis(20);

/// Longest time after which a request is repeated, so that one is sent soon after an election.
const REPEAT_AFTER_MAX: Duration = Duration::from_millis(500);

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
    /// The interval at which the owner of the client makes requests. It sets the times after
    /// which a silent server is asked with PING, and is left.
    pub interval: Duration,
    /// When a server with JetStream and without a cluster is refused.
    pub refuse_alone: RefuseAlone,
}

/// When a server with JetStream and without a cluster is refused: beside others, each would have a
/// bucket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefuseAlone {
    /// Never.
    Never,
    /// After a server in a cluster: this one has taken its place.
    AfterCluster,
    /// Always: several servers are named.
    Always,
}

impl ConnectOptions {
    /// Returns options without TLS and with the default prefix of reply subjects.
    pub fn new(login: Login, name: String, interval: Duration) -> ConnectOptions {
        let (tls, inbox) = (Tls::default(), "_INBOX".to_owned());
        ConnectOptions { login, tls, inbox, name, interval, refuse_alone: RefuseAlone::Never }
    }

    /// Returns the time without a byte from the server after which a waiting client sends PING.
    /// It ends the connection after twice that time, if there is another server. A connection that
    /// is used in each interval needs no PING.
    pub(super) fn ping_after(&self) -> Duration {
        self.interval + self.interval / 4
    }

    /// Returns the time without an answer after which a client sends PING during a request, and
    /// the request again if that is harmless.
    pub(super) fn repeat_after(&self) -> Duration {
        (self.interval / 8).clamp(REPEAT_AFTER_MIN, REPEAT_AFTER_MAX)
    }
}
