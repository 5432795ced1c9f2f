//! The messages that the agents of a key send each other, and those of commands to them. None is
//! stored.
//!
//! A request for the status of all agents has the header `Putex-Status-Request`, a random number.
//! An agent answers with a message that has that number in `Putex-Status`, and an [`AgentStatus`]
//! as JSON. A message with the header `Putex-Switchover` has them read a request for a
//! [`switchover`](super::switchover); one with `Putex-Pause` has them read the
//! [`pause`](super::pause).

use super::Content;
use crate::core::{AgentStatus, Revision, Seat, sanitize};

/// The header of a request for the status of all agents.
const STATUS_REQUEST: &str = "Putex-Status-Request";

/// The header of a status, with the number of the request.
const STATUS: &str = "Putex-Status";

/// The header of a message that says that there is a request for switchover, with its revision;
/// beside it stands the seat.
const SWITCHOVER: &str = "Putex-Switchover";
const SWITCHOVER_SEAT: &str = "Putex-Seat";

/// The header of a message that says that the pause has changed, with its revision.
const PAUSE: &str = "Putex-Pause";

/// The digits of the number of such a request.
const NUMBER_DIGITS: usize = 32;

/// A message to the agents of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// There may be a request for switchover of this seat.
    Switchover(Seat),
    /// The pause may have changed.
    Pause,
    /// A command with this number requests the status of all agents.
    StatusRequest(String),
}

impl Message {
    /// Converts the content of a message; `None` if an agent does not follow it.
    pub(super) fn from_content(content: &Content) -> Option<Message> {
        if content.header(SWITCHOVER).is_some() {
            let seat = content.header(SWITCHOVER_SEAT)?.parse().ok()?;
            return Some(Message::Switchover(Seat(seat)));
        }
        if content.header(PAUSE).is_some() {
            return Some(Message::Pause);
        }
        if let Some(number) = content.header(STATUS_REQUEST) {
            let is_number = number.len() == NUMBER_DIGITS
                && number.bytes().all(|digit| digit.is_ascii_hexdigit());
            return is_number.then(|| Message::StatusRequest(number.to_owned()));
        }
        None
    }
}

/// Returns the message that requests the status of all agents of a key.
pub(crate) fn status_request(number: &str) -> Content {
    Content::new([(STATUS_REQUEST, number.to_owned())], b"")
}

/// Converts a status into a message; `None` if it cannot be.
pub(crate) fn status_to_content(number: &str, status: &AgentStatus) -> Option<Content> {
    let payload = serde_json::to_vec(status).ok()?;
    Some(Content::new([(STATUS, sanitize(number))], &payload))
}

/// Converts a message into the status that it sends in an answer to the request of this number.
pub(crate) fn status_from_content(number: &str, content: &Content) -> Option<AgentStatus> {
    let is_answer = content.header(STATUS) == Some(number);
    let status: AgentStatus =
        is_answer.then(|| serde_json::from_slice(&content.payload).ok()).flatten()?;
    Some(status).filter(AgentStatus::is_valid).map(AgentStatus::sanitized)
}

/// Returns the message which says to the agents of a key that a request for switchover stands at
/// this revision.
pub(crate) fn switchover_notice(seat: Seat, at: Revision) -> Content {
    Content::new([(SWITCHOVER, at.to_string()), (SWITCHOVER_SEAT, seat.to_string())], b"")
}

/// Returns the message which says to the agents of a key that the pause has changed, to this
/// revision.
pub(crate) fn pause_notice(at: Revision) -> Content {
    Content::new([(PAUSE, at.to_string())], b"")
}
