//! The meaning of a `-ERR` of the server for the connection.

/// The kinds of `-ERR`, distinguished by a part of their text in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerError {
    /// The credentials are refused, or have expired, or were revoked.
    Credentials,
    /// A publish was not permitted. The text names its subject.
    PublishDenied,
    /// A subscription was not permitted. The text names its subject.
    SubscribeDenied,
    /// Another operation was refused, and the connection stays open.
    Refused,
    /// Any other text, such as a stale connection or a full server. The connection counts as
    /// closed.
    Closing,
}

/// A part of each text and its kind. No subject in a text has a blank.
const KINDS: [(&str, ServerError); 9] = [
    ("authorization violation", ServerError::Credentials),
    ("authentication expired", ServerError::Credentials),
    ("authentication revoked", ServerError::Credentials),
    ("permissions violation for publish", ServerError::PublishDenied),
    ("permissions violation for subscription", ServerError::SubscribeDenied),
    ("permissions violation", ServerError::Refused),
    ("maximum subscriptions exceeded", ServerError::Refused),
    ("invalid subject", ServerError::Refused),
    ("invalid publish subject", ServerError::Refused),
];

impl ServerError {
    /// Returns the kind of a `-ERR` text, given without its quotes.
    pub(super) fn of(text: &str) -> ServerError {
        let text = text.to_ascii_lowercase();
        let kind = KINDS.iter().find(|(part, _)| text.contains(part));
        kind.map_or(ServerError::Closing, |&(_, kind)| kind)
    }

    /// Returns whether the server closes the connection after it.
    pub(super) fn closes(self) -> bool {
        matches!(self, ServerError::Credentials | ServerError::Closing)
    }
}

/// Returns whether a `-ERR` text refuses a publish to this subject.
pub(super) fn refuses_publish(text: &str, subject: &str) -> bool {
    let is_denied = ServerError::of(text) == ServerError::PublishDenied;
    is_denied && text.contains(&format!("\"{subject}\""))
}

/// The beginnings of refusals that only a micro service meets, in lower case, and what they mean
/// for it. No other subject that is published to begins with `_`.
const OF_SERVICE: [(&str, &str); 2] = [
    (
        "permissions violation for subscription to \"$srv.",
        "commands such as putex status do not find this agent; its user needs the right to \
         subscribe to $SRV.>",
    ),
    (
        "permissions violation for publish to \"_",
        "commands such as putex status get no answer from this agent; its user needs \
         allow_responses",
    ),
];

/// Returns what a `-ERR` text means for a micro service, if it concerns one.
pub(super) fn meaning_for_service(text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let found = OF_SERVICE.iter().find(|(beginning, _)| text.starts_with(beginning));
    found.map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (text, kind, closes) in [
            ("Authorization Violation", ServerError::Credentials, true),
            ("User Authentication Expired", ServerError::Credentials, true),
            ("Account Authentication Expired", ServerError::Credentials, true),
            ("User Authentication Revoked", ServerError::Credentials, true),
            ("Authentication Timeout", ServerError::Closing, true),
            ("Stale Connection", ServerError::Closing, true),
            ("maximum connections exceeded", ServerError::Closing, true),
            ("Maximum Payload Violation", ServerError::Closing, true),
            ("Unknown Protocol Operation", ServerError::Closing, true),
            ("", ServerError::Closing, true),
            ("Invalid Subject", ServerError::Refused, false),
            ("maximum subscriptions exceeded", ServerError::Refused, false),
            ("Permissions Violation for Publish to \"bad.x\"", ServerError::PublishDenied, false),
            (
                "Permissions Violation for Subscription to \"bad.y\" using queue \"qq\"",
                ServerError::SubscribeDenied,
                false,
            ),
        ] {
            assert_eq!(ServerError::of(text), kind, "{text}");
            assert_eq!(kind.closes(), closes, "{text}");
        }
    }
}
