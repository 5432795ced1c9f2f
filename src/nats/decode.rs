//! Bytes from the server, in any pieces, to operations.
//!
//! The decoder holds at most one unfinished operation and the rest of one read. It
//! refuses an operation above its limit as soon as it knows the length, before it
//! allocates memory. After the first error it refuses all further bytes: they cannot
//! be trusted to begin where an operation begins.

use std::fmt;

use super::headers::Headers;
use crate::core::text::sanitize;

/// Most bytes that may be fed at once, and the size of one read. Replies have a few
/// hundred bytes.
pub(crate) const READ_BYTES_MAX: usize = 16 * 1024;

/// Longest INFO line, without its end. An entry of `connect_urls` takes some 25
/// bytes, so a cluster of two thousand servers fits.
pub(crate) const INFO_LINE_BYTES_MAX: usize = 64 * 1024;

/// Longest line of any other operation, without its end. The server's own limit
/// for a client's line is 4096 bytes by default; a delivery repeats the subject
/// and adds a reply subject and the sizes.
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024;

/// Largest header block and payload of one message together: the server's default
/// limit. The messages of putex have a few KiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes that the decoder ever holds: a whole message with its line end,
/// and one read.
pub(crate) const BUFFER_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 2 + READ_BYTES_MAX;

/// Capacity that an empty decoder keeps; the memory of a large message beyond it is
/// freed.
const IDLE_BYTES_MAX: usize = 2 * READ_BYTES_MAX;

const _: () = assert!(INFO_LINE_BYTES_MAX + 2 + READ_BYTES_MAX <= BUFFER_BYTES_MAX);
const _: () = assert!(LINE_BYTES_MAX <= INFO_LINE_BYTES_MAX);

/// A delivered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The subject that it was published to.
    pub subject: String,
    /// The subject for an answer.
    pub reply: Option<String>,
    /// Its header block; empty when it has none.
    pub headers: Headers,
    /// The bytes after the headers.
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns the approximate memory that it occupies, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let reply = self.reply.as_ref().map_or(0, String::len);
        let content = self.headers.block_bytes() + self.payload.len();
        size_of::<Message>() + self.subject.len() + reply + content
    }
}

/// One operation of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerOp {
    /// `INFO <json>[ ]\r\n`, the first operation, and again at any time.
    Info(String),
    /// `MSG <subject> <sid> [reply-to] <#bytes>\r\n[payload]\r\n`
    Msg {
        /// The subscription; it alone identifies the receiver of a delivery.
        sid: u64,
        /// The message, without headers.
        message: Message,
    },
    /// `HMSG <subject> <sid> [reply-to] <#header bytes> <#total bytes>\r\n`
    /// `[headers]\r\n\r\n[payload]\r\n`
    Hmsg {
        /// The subscription.
        sid: u64,
        /// The message, with headers.
        message: Message,
    },
    /// `PING\r\n`
    Ping,
    /// `PONG\r\n`
    Pong,
    /// `+OK\r\n`
    Ok,
    /// `-ERR '<text>'\r\n`
    Err(String),
}

/// The server violated the NATS protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// When a line begins with an unknown word. Holds its beginning, made printable.
    UnknownVerb(String),
    /// When a line is longer than its limit.
    LineTooLong,
    /// When a message is longer than [`MESSAGE_BYTES_MAX`].
    MessageTooLarge,
    /// When an operation breaks its grammar. Holds the reason.
    Malformed(&'static str),
    /// When more bytes are fed than [`READ_BYTES_MAX`] permits: a bug in putex.
    Overflow,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::UnknownVerb(start) => {
                write!(f, "not the NATS protocol: a line begins with '{start}'")
            }
            ProtocolError::LineTooLong => f.write_str("not the NATS protocol: a line has no end"),
            ProtocolError::MessageTooLarge => {
                write!(f, "a message is larger than the limit of {MESSAGE_BYTES_MAX} bytes")
            }
            ProtocolError::Malformed(what) => write!(f, "not the NATS protocol: {what}"),
            ProtocolError::Overflow => f.write_str("bytes were read faster than decoded"),
        }
    }
}

/// Collects bytes and returns operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// Start of the unfinished operation in `buffer`.
    start: usize,
    /// End of the part of `buffer` that is known to have no line end.
    searched: usize,
    /// The message whose line has been read and whose body has not.
    body: Option<Body>,
    dead: Option<ProtocolError>,
}

/// The line of a MSG or HMSG.
#[derive(Clone, Debug)]
struct Body {
    sid: u64,
    subject: String,
    reply: Option<String>,
    /// `None` for a MSG.
    header_bytes: Option<usize>,
    total_bytes: usize,
}

enum Line {
    Whole(ServerOp),
    Head(Body),
}

impl Decoder {
    /// Appends the next bytes of the stream.
    ///
    /// Call [`Decoder::next`] until it returns `None` before feeding again, and
    /// feed at most [`READ_BYTES_MAX`]: then it always fits.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched = self.searched.saturating_sub(self.start);
            self.start = 0;
        }
        let needed = self.buffer.len().saturating_add(bytes.len());
        if needed > BUFFER_BYTES_MAX {
            return Err(self.die(ProtocolError::Overflow));
        }
        if needed > self.buffer.capacity() {
            let room = needed.max(2 * self.buffer.capacity()).min(BUFFER_BYTES_MAX);
            self.buffer.reserve_exact(room - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next whole operation, or `None` until more is fed.
    pub(crate) fn next(&mut self) -> Result<Option<ServerOp>, ProtocolError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let step = self.step();
        if self.start == self.buffer.len() {
            self.buffer.clear();
            (self.start, self.searched) = (0, 0);
            if self.body.is_none() {
                self.buffer.shrink_to(IDLE_BYTES_MAX);
            }
        }
        step.map_err(|error| self.die(error))
    }

    /// Returns whether no bytes are left over.
    pub(super) fn is_blank(&self) -> bool {
        self.buffer.is_empty() && self.body.is_none()
    }

    /// Returns the capacity of the buffer in bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    fn die(&mut self, error: ProtocolError) -> ProtocolError {
        *self = Decoder { dead: Some(error.clone()), ..Decoder::default() };
        error
    }

    fn step(&mut self) -> Result<Option<ServerOp>, ProtocolError> {
        if let Some(body) = self.body.take() {
            return self.finish(body);
        }
        let Some((end, after)) = self.find_line()? else {
            return Ok(None);
        };
        let line = parse_line(&self.buffer[self.start..end])?;
        self.start = after;
        self.searched = after;
        match line {
            Line::Whole(op) => Ok(Some(op)),
            Line::Head(body) => self.finish(body),
        }
    }

    /// Returns the end of the first line, without and with its line end.
    fn find_line(&mut self) -> Result<Option<(usize, usize)>, ProtocolError> {
        let unread = &self.buffer[self.start..];
        // Only INFO begins with an I, so the limit is known from the first byte.
        let limit = match unread.first() {
            Some(b'I' | b'i') => INFO_LINE_BYTES_MAX,
            Some(_) | None => LINE_BYTES_MAX,
        };
        let from = self.searched.max(self.start);
        let newline = self.buffer[from..].iter().position(|&byte| byte == b'\n');
        let Some(newline) = newline.map(|at| from + at) else {
            self.searched = self.buffer.len();
            // One more byte may be the carriage return of a line of the largest length.
            if unread.len() > limit + 1 {
                return Err(ProtocolError::LineTooLong);
            }
            return Ok(None);
        };
        let line = &self.buffer[self.start..newline];
        let length = line.strip_suffix(b"\r").unwrap_or(line).len();
        if length > limit {
            return Err(ProtocolError::LineTooLong);
        }
        Ok(Some((self.start + length, newline + 1)))
    }

    /// Returns the message once all of its bytes are here, else keeps `body`.
    fn finish(&mut self, body: Body) -> Result<Option<ServerOp>, ProtocolError> {
        let unread = &self.buffer[self.start..];
        if unread.len() < body.total_bytes + 2 {
            self.body = Some(body);
            return Ok(None);
        }
        let (content, rest) = unread.split_at(body.total_bytes);
        if !rest.starts_with(b"\r\n") {
            return Err(ProtocolError::Malformed("a payload does not end where it should"));
        }
        // `parse_message` has checked that the headers are within the content.
        let (block, payload) = content.split_at(body.header_bytes.unwrap_or(0));
        let message = Message {
            subject: body.subject,
            reply: body.reply,
            headers: Headers::parse(block),
            payload: payload.to_vec(),
        };
        self.start += body.total_bytes + 2;
        self.searched = self.start;
        let sid = body.sid;
        Ok(Some(match body.header_bytes {
            None => ServerOp::Msg { sid, message },
            Some(_) => ServerOp::Hmsg { sid, message },
        }))
    }
}

fn parse_line(line: &[u8]) -> Result<Line, ProtocolError> {
    let blank = line.iter().position(|&byte| byte == b' ' || byte == b'\t');
    let (verb, rest) = line.split_at(blank.unwrap_or(line.len()));
    let rest = rest.trim_ascii();
    let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    if is("MSG") {
        return parse_message(rest, false).map(Line::Head);
    }
    if is("HMSG") {
        return parse_message(rest, true).map(Line::Head);
    }
    if is("INFO") {
        let json =
            str::from_utf8(rest).map_err(|_| ProtocolError::Malformed("INFO is not text"))?;
        return Ok(Line::Whole(ServerOp::Info(json.to_owned())));
    }
    if is("-ERR") {
        let text = String::from_utf8_lossy(rest);
        let text = sanitize(text.trim_matches('\''));
        return Ok(Line::Whole(ServerOp::Err(text)));
    }
    for (name, op) in [("PING", ServerOp::Ping), ("PONG", ServerOp::Pong), ("+OK", ServerOp::Ok)] {
        if is(name) {
            return Ok(Line::Whole(op));
        }
    }
    let start = &line[..line.len().min(16)];
    Err(ProtocolError::UnknownVerb(start.escape_ascii().to_string()))
}

fn parse_message(rest: &[u8], has_headers: bool) -> Result<Body, ProtocolError> {
    let mut fields: Vec<&[u8]> = rest
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|field| !field.is_empty())
        .take(6)
        .collect();
    let bad_size = ProtocolError::Malformed("a message without a size");
    let size = |field: Option<&[u8]>| field.and_then(number).ok_or(bad_size.clone());
    let total = size(fields.pop())?;
    let header = if has_headers { Some(size(fields.pop())?) } else { None };
    let (subject, sid, reply) = match fields[..] {
        [subject, sid] => (subject, sid, None),
        [subject, sid, reply] => (subject, sid, Some(reply)),
        _ => {
            return Err(ProtocolError::Malformed("a message with a wrong number of fields"));
        }
    };
    let sid = number(sid).ok_or(ProtocolError::Malformed("a message without a subscription"))?;
    if header.is_some_and(|header| header > total) {
        return Err(ProtocolError::Malformed("headers longer than their message"));
    }
    let fits = |bytes: u64| usize::try_from(bytes).ok().filter(|&bytes| bytes <= MESSAGE_BYTES_MAX);
    let total_bytes = fits(total).ok_or(ProtocolError::MessageTooLarge)?;
    // Not larger than the total, which fits.
    let header_bytes = header.map(|header| fits(header).unwrap_or(0));
    // With a wildcard subscription other clients choose the subject: a subject that
    // is not text must not end the connection.
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Ok(Body { sid, subject: text(subject), reply: reply.map(text), header_bytes, total_bytes })
}

/// Reads decimal digits and nothing else.
fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
