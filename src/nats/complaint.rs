//! What a `-ERR` of the server means for the connection.

/// The kinds of `-ERR`, told apart by how their text begins in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// The credentials are refused, or have expired, or were revoked.
    Credentials,
    /// The server waited too long for CONNECT.
    AuthenticationTimeout,
    /// The server heard no PONG for too long.
    Stale,
    /// The server or the account has all the connections that it may have.
    Full,
    /// A publish was not permitted. The text names its subject.
    PublishDenied,
    /// A subscription was not permitted. The text names its subject.
    SubscribeDenied,
    /// Something else was refused, and the connection goes on.
    Refused,
    /// Anything else. The connection is taken to be over.
    Unknown,
}

/// How a text begins, and what it means. Texts of 2.9 and of 2.15 are the same.
const KINDS: [(&str, Complaint); 16] = [
    ("authorization violation", Complaint::Credentials),
    ("user authentication expired", Complaint::Credentials),
    ("user authentication revoked", Complaint::Credentials),
    ("account authentication expired", Complaint::Credentials),
    ("authentication timeout", Complaint::AuthenticationTimeout),
    ("authentication expired", Complaint::Credentials),
    ("authentication revoked", Complaint::Credentials),
    ("stale connection", Complaint::Stale),
    ("maximum connections exceeded", Complaint::Full),
    (
        "maximum account active connections exceeded",
        Complaint::Full,
    ),
    (
        "permissions violation for publish",
        Complaint::PublishDenied,
    ),
    (
        "permissions violation for subscription",
        Complaint::SubscribeDenied,
    ),
    ("permissions violation", Complaint::Refused),
    ("maximum subscriptions exceeded", Complaint::Refused),
    ("invalid subject", Complaint::Refused),
    ("invalid publish subject", Complaint::Refused),
];

impl Complaint {
    /// Returns the kind of a `-ERR` text, given without its quotes.
    pub(super) fn of(text: &str) -> Complaint {
        let text = text.to_ascii_lowercase();
        let kind = KINDS.iter().find(|(prefix, _)| text.starts_with(prefix));
        kind.map_or(Complaint::Unknown, |&(_, kind)| kind)
    }

    /// Returns whether the server closes the connection after it.
    pub(super) fn closes(self) -> bool {
        match self {
            Complaint::Credentials
            | Complaint::AuthenticationTimeout
            | Complaint::Stale
            | Complaint::Full
            | Complaint::Unknown => true,
            Complaint::PublishDenied | Complaint::SubscribeDenied | Complaint::Refused => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (text, kind, closes) in [
            ("Authorization Violation", Complaint::Credentials, true),
            ("User Authentication Expired", Complaint::Credentials, true),
            (
                "Account Authentication Expired",
                Complaint::Credentials,
                true,
            ),
            ("User Authentication Revoked", Complaint::Credentials, true),
            (
                "Authentication Timeout",
                Complaint::AuthenticationTimeout,
                true,
            ),
            ("Stale Connection", Complaint::Stale, true),
            ("maximum connections exceeded", Complaint::Full, true),
            ("Maximum Payload Violation", Complaint::Unknown, true),
            ("Unknown Protocol Operation", Complaint::Unknown, true),
            ("", Complaint::Unknown, true),
            ("Invalid Subject", Complaint::Refused, false),
            ("maximum subscriptions exceeded", Complaint::Refused, false),
            (
                "Permissions Violation for Publish to \"bad.x\"",
                Complaint::PublishDenied,
                false,
            ),
            (
                "Permissions Violation for Subscription to \"bad.y\" using queue \"qq\"",
                Complaint::SubscribeDenied,
                false,
            ),
        ] {
            assert_eq!(Complaint::of(text), kind, "{text}");
            assert_eq!(kind.closes(), closes, "{text}");
        }
    }
}
