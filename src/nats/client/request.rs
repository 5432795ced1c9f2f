//! Requests: messages that are answered.

use std::fmt::Display;

use super::Client;
use crate::core::{Instant, StoreError};
use crate::nats::decode::{Message, ServerOp};
use crate::nats::encode;
use crate::nats::headers::NO_RESPONDERS;
use crate::nats::io_error_text;
use crate::nats::link::{INBOX_SID, Received, server_says};
use crate::nats::server_error::refuses_publish;
use crate::sys;

/// The reason why there is no reply. `displaydoc` makes the first line of a variant its text.
#[derive(Clone, Debug, displaydoc::Display, PartialEq, Eq)]
#[ignore_extra_doc_attributes]
pub enum RequestError {
    /// nobody listens (status 503)
    ///
    /// No subscriber exists for the subject. The request had no effect.
    NoResponders,
    /// {0}; see Rights in NATS in putex help theory
    ///
    /// The server does not permit the request. The request had no effect.
    ///
    /// The server names the subject and not the request. A `-ERR` that arrives during the
    /// next request to the same subject counts for that request, even if the permission was
    /// granted between the two.
    Forbidden(String),
    /// {0}
    ///
    /// There was no reply: nothing was sent, the deadline has passed, or the connection has ended.
    /// The request may have had an effect, or have it later.
    Unanswered(String),
}

/// Returns the error for a message that cannot be sent.
pub(super) fn not_sent(why: impl Display) -> RequestError {
    RequestError::Unanswered(format!("not sent: {why}"))
}

/// Returns the error for a connection that has ended.
pub(super) fn lost(why: impl Display) -> RequestError {
    RequestError::Unanswered(format!("connection lost: {why}"))
}

/// A message to send. Sent as a request, it has an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The subject that it is published to.
    pub subject: &'a str,
    /// Its headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The bytes after the headers.
    pub payload: &'a [u8],
    /// Whether it may be sent more than once. Then a request is sent again and again until a
    /// reply arrives: one that is sent while the servers elect a leader is never answered.
    pub repeats: bool,
}

/// A request under way.
struct Pending<'a> {
    sent: &'a Outgoing<'a>,
    /// The subject of its reply.
    reply: String,
    frame: Vec<u8>,
    answer: Option<Message>,
}

impl Client {
    /// Sends a message and waits for its reply; see [`Client::requests`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`], which says whether the request may have had an effect.
    pub fn request(&mut self, sent: &Outgoing<'_>, by: Instant) -> Result<Message, RequestError> {
        let replies = self.requests(&[*sent], by)?;
        // There is one reply to each message.
        replies.into_iter().next().ok_or_else(|| not_sent("no message"))
    }

    /// Sends messages at once and waits for their replies, which are returned in the order of the
    /// messages. A status other than 503 is a reply. A connection without a byte since then, not
    /// even a PONG, may be lost, see `Link::is_lost`: a later request would not be answered
    /// either.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]: the first that is known of one of the messages.
    pub fn requests(
        &mut self,
        sent: &[Outgoing<'_>],
        by: Instant,
    ) -> Result<Vec<Message>, RequestError> {
        let began = sys::now();
        let mut pending = Vec::with_capacity(sent.len());
        for sent in sent {
            let link = self.link()?;
            // A client that hears the replies to others, and may publish such, does not know the
            // next subject.
            let random = sys::random().map_err(|error| not_sent(io_error_text(&error)))?;
            let reply = format!("{}{random:032x}", link.inbox);
            let frame = self.frame(sent, Some(&reply))?;
            pending.push(Pending { sent, reply, frame, answer: None });
        }
        if began >= by {
            return Err(not_sent("no time is left"));
        }
        let frames: Vec<_> = pending.iter().map(|pending| &*pending.frame).collect();
        self.send(&frames.concat(), by)?;
        let ping_after = self.dialer.options.repeat_after();
        let mut repeat_after = ping_after;
        let (mut repeat_at, mut pinged_at) = (began.after(repeat_after), None);
        while pending.iter().any(|pending| pending.answer.is_none()) {
            self.receive_reply(&mut pending, by.min(repeat_at))?;
            let now = sys::now();
            if pending.iter().all(|pending| pending.answer.is_some()) {
                break;
            }
            if now >= by {
                let (silence_max, link) = (self.silence_max(), self.link()?);
                let pinged_at = pinged_at.filter(|at| now.since(*at) > ping_after);
                if link.received_at < began
                    && pinged_at.is_some_and(|at| link.is_lost(now, at, silence_max))
                {
                    let text = "nothing was heard during a request";
                    self.leave(text);
                    return Err(lost(text));
                }
                return Err(RequestError::Unanswered("no reply before the deadline".to_owned()));
            }
            if now >= repeat_at {
                // Copies at a fixed rate would add to the load of a server that is slow because of
                // its load.
                repeat_after *= 2;
                repeat_at = now.after(repeat_after);
                pinged_at.get_or_insert(now);
                let open = pending
                    .iter()
                    .filter(|pending| pending.answer.is_none() && pending.sent.repeats);
                let again: Vec<_> =
                    open.map(|pending| &*pending.frame).chain([encode::PING]).collect();
                self.send(&again.concat(), by)?;
            }
        }
        Ok(pending.into_iter().filter_map(|pending| pending.answer).collect())
    }

    /// Receives one operation until this instant, and takes the reply to one of the requests.
    fn receive_reply(
        &mut self,
        pending: &mut [Pending<'_>],
        until: Instant,
    ) -> Result<(), RequestError> {
        let silence_max = self.silence_max();
        let link = self.link()?;
        match link.receive(None, Some(until), silence_max) {
            Ok(Received::Op(ServerOp::Msg { sid, message })) if sid != INBOX_SID => {
                link.enqueue(message);
            }
            // A message for none of these requests is the late reply to an earlier one.
            Ok(Received::Op(ServerOp::Msg { message, .. })) => {
                let replied = pending.iter_mut().find(|pending| pending.reply == message.subject);
                if let Some(replied) = replied {
                    let status = message.headers.status();
                    if status == Some(NO_RESPONDERS) && message.payload.is_empty() {
                        return Err(RequestError::NoResponders);
                    }
                    replied.answer.get_or_insert(message);
                }
            }
            Ok(Received::Op(ServerOp::Err(text))) => {
                let mut subjects = pending.iter().flat_map(|it| [it.sent.subject, &*it.reply]);
                if subjects.any(|subject| refuses_publish(&text, subject)) {
                    return Err(RequestError::Forbidden(server_says(&text)));
                }
                self.warn(&text);
            }
            Ok(Received::Op(ServerOp::Info(_))) => self.learn_servers(),
            Ok(Received::Op(_) | Received::Elapsed | Received::Woken) => {}
            Err(StoreError { text, .. }) => {
                self.end(&text);
                return Err(lost(text));
            }
        }
        Ok(())
    }
}
