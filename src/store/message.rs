//! The messages that the agents of a key send each other, and the questions of commands to them.
//! None is stored.
//!
//! A notice is a message with the token, `Putex-Incarnation` and `Putex-Host`. A
//! [`FailbackRequest`] is one with the token of the agent that requests, and without an
//! incarnation:
//!
//! | header | value |
//! |---|---|
//! | `Putex-Failback-Seat` | decimal |
//! | `Putex-Priority` | 1 to 15 |
//! | `Putex-Fit-Ms` | decimal |
//!
//! The questions of commands to agents, and their answers, are those of a micro service.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Content;
use super::name::valid_token;
use crate::core::{AgentStatus, FailbackRequest, Notice, Seat, sanitize};

/// The header of a notice with the incarnation of its sender.
const NOTICE_INCARNATION: &str = "Putex-Incarnation";

/// The header of a notice with the host name of its sender.
const NOTICE_HOST: &str = "Putex-Host";

/// The headers of a request for failback.
const REQUEST_SEAT: &str = "Putex-Failback-Seat";
const REQUEST_PRIORITY: &str = "Putex-Priority";
const REQUEST_FIT_MS: &str = "Putex-Fit-Ms";

/// A question of a command to agents: what do they do?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentQuestion {
    /// A random number. Answers to the last one count.
    #[serde(skip)]
    pub number: String,
    /// The bucket of the agents.
    pub bucket: String,
    /// Their keys.
    pub keys: BTreeSet<String>,
    /// Whether they read what operators have requested: a hint may be lost, or the bucket has none.
    pub reads_requests: bool,
}

/// The answer of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAnswer {
    /// The key of the agent.
    pub key: String,
    /// What it does.
    pub status: AgentStatus,
}

/// A message to the agents of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Another agent requests a lock.
    FailbackRequest(FailbackRequest),
    /// Another agent lives.
    Notice(Notice),
}

impl Message {
    /// Converts the content of a message; `None` if an agent does not follow it.
    pub(super) fn from_content(content: &Content) -> Option<Message> {
        let request = request_from_content(content).map(Message::FailbackRequest);
        request.or_else(|| notice_from_content(content).map(Message::Notice))
    }
}

/// Converts a notice into a message.
pub(crate) fn notice_to_content(notice: &Notice) -> Content {
    let (incarnation, host) = (sanitize(&notice.incarnation), sanitize(&notice.host));
    let headers = [(NOTICE_INCARNATION, incarnation), (NOTICE_HOST, host)];
    Content::new(headers, notice.token.as_bytes())
}

/// Converts a message into a notice; `None` if it is none.
pub(crate) fn notice_from_content(content: &Content) -> Option<Notice> {
    Some(Notice {
        token: String::from_utf8(content.payload.clone()).ok()?,
        incarnation: content.header(NOTICE_INCARNATION)?.to_owned(),
        host: content.header(NOTICE_HOST).unwrap_or_default().to_owned(),
    })
}

/// Converts a request for failback into a message.
pub(crate) fn request_to_content(request: &FailbackRequest) -> Content {
    let headers = [
        (REQUEST_SEAT, request.seat.to_string()),
        (REQUEST_PRIORITY, request.priority.to_string()),
        (REQUEST_FIT_MS, request.fit_for.as_millis().to_string()),
    ];
    Content::new(headers, request.token.as_bytes())
}

/// Converts a message into a request for failback; `None` if it is none.
pub(crate) fn request_from_content(content: &Content) -> Option<FailbackRequest> {
    let token = String::from_utf8(content.payload.clone()).ok()?;
    Some(FailbackRequest {
        seat: Seat(content.header(REQUEST_SEAT)?.parse().ok()?),
        token: valid_token(&token).ok()?,
        priority: content.header(REQUEST_PRIORITY)?.parse().ok()?,
        fit_for: Duration::from_millis(content.header(REQUEST_FIT_MS)?.parse().ok()?),
    })
}
