//! Decodes bytes of the server, in any pieces, into operations.
//!
//! The decoder holds at most one unfinished operation and the rest of one read. It
//! refuses an operation above its limit as soon as it knows the length, before it
//! allocates memory, and keeps only the first part of a large message. After the
//! first error it refuses all further bytes: they cannot be trusted to begin where
//! an operation begins.

use super::headers::Headers;
use crate::core::sanitize;

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

/// Most bytes of one message, header block and payload together, that are kept; the others
/// are skipped. This is the server's default limit. The messages of putex have a few KiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Largest message that is skipped. A server permits values of 64 MiB at the most, and
/// MSG.GET returns them in base64.
const SKIPPED_BYTES_MAX: u64 = 128 * 1024 * 1024;

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
    /// The subject that its sender expects an answer at.
    pub reply: Option<String>,
    /// Its header block; empty when it has none.
    pub headers: Headers,
    /// The bytes after the headers.
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns the approximate memory that it occupies, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let content = self.headers.0.len() + self.payload.len();
        let reply = self.reply.as_ref().map_or(0, String::len);
        size_of::<Message>() + self.subject.len() + reply + content
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerOp {
    /// `INFO <json>[ ]\r\n`, the first operation, and again at any time.
    Info(String),
    /// `MSG <subject> <sid> [reply-to] <#bytes>\r\n[payload]\r\n`, or with headers
    /// `HMSG <subject> <sid> [reply-to] <#header bytes> <#total bytes>\r\n`
    /// `[headers]\r\n\r\n[payload]\r\n`
    Msg {
        /// The subscription; it alone identifies the receiver of a delivery.
        sid: u64,
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

/// How the server violated the NATS protocol, in one printable line.
pub(crate) type ProtocolError = String;

/// The error for more bytes than [`READ_BYTES_MAX`] permits: a bug in putex.
pub(crate) const OVERFLOW: &str = "bytes were read faster than decoded";

/// The fault of a line above its limit.
const LINE_TOO_LONG: &str = "a line has no end";

/// Returns the error for an operation that breaks its grammar.
pub(super) fn malformed(what: &str) -> ProtocolError {
    format!("not the NATS protocol: {what}")
}

/// Collects bytes and returns operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) buffer: Vec<u8>,
    /// Start of the unfinished operation in `buffer`.
    start: usize,
    /// End of the part of `buffer` that is known to have no line end.
    searched: usize,
    /// The message whose line has been read and whose body has not.
    pub(crate) body: Option<Body>,
    dead: Option<ProtocolError>,
}

/// The line of a MSG or HMSG.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    sid: u64,
    subject: String,
    reply: Option<String>,
    /// 0 for a MSG.
    header_bytes: usize,
    /// Headers and payload, as far as they are kept.
    total_bytes: usize,
    /// The bytes behind them that are still to be skipped.
    pub(crate) surplus: usize,
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
            return Err(self.die(OVERFLOW.to_owned()));
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

    fn die(&mut self, error: ProtocolError) -> ProtocolError {
        *self = Decoder { dead: Some(error.clone()), ..Decoder::default() };
        error
    }

    fn step(&mut self) -> Result<Option<ServerOp>, ProtocolError> {
        if self.body.is_none() {
            let Some((end, after)) = self.find_line()? else { return Ok(None) };
            let op = self.read_line(end)?;
            (self.start, self.searched) = (after, after);
            if op.is_some() {
                return Ok(op);
            }
        }
        self.finish()
    }

    /// Returns the end of the first line, without and with its line end.
    fn find_line(&mut self) -> Result<Option<(usize, usize)>, ProtocolError> {
        let unread = &self.buffer[self.start..];
        // Only INFO begins with an I, so the limit is known from the first byte.
        let is_info = matches!(unread.first(), Some(b'I' | b'i'));
        let limit = if is_info { INFO_LINE_BYTES_MAX } else { LINE_BYTES_MAX };
        let from = self.searched.max(self.start);
        let newline = self.buffer[from..].iter().position(|&byte| byte == b'\n');
        let Some(newline) = newline.map(|at| from + at) else {
            self.searched = self.buffer.len();
            // The byte after the limit may be the carriage return of a line of the largest length.
            if unread.len() > limit + 1 {
                return Err(malformed(LINE_TOO_LONG));
            }
            return Ok(None);
        };
        let line = &self.buffer[self.start..newline];
        let length = line.strip_suffix(b"\r").unwrap_or(line).len();
        if length > limit {
            return Err(malformed(LINE_TOO_LONG));
        }
        Ok(Some((self.start + length, newline + 1)))
    }

    /// Reads the first line, which ends there. Returns the operation that it is, or notes the
    /// message that it begins.
    fn read_line(&mut self, end: usize) -> Result<Option<ServerOp>, ProtocolError> {
        let line = &self.buffer[self.start..end];
        let blank = line.iter().position(|&byte| byte == b' ' || byte == b'\t');
        let (verb, rest) = line.split_at(blank.unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        Ok(Some(match &*verb.to_ascii_uppercase() {
            verb @ (b"MSG" | b"HMSG") => {
                self.body = Some(parse_message(rest, verb == b"HMSG")?);
                return Ok(None);
            }
            b"INFO" => {
                let json = str::from_utf8(rest).map_err(|_| malformed("INFO is not text"))?;
                ServerOp::Info(json.to_owned())
            }
            b"-ERR" => ServerOp::Err(sanitize(String::from_utf8_lossy(rest).trim_matches('\''))),
            b"PING" => ServerOp::Ping,
            b"PONG" => ServerOp::Pong,
            b"+OK" => ServerOp::Ok,
            _ => {
                let start = line[..line.len().min(16)].escape_ascii();
                return Err(malformed(&format!("a line begins with '{start}'")));
            }
        }))
    }

    /// Returns the message once all of its bytes are here.
    fn finish(&mut self) -> Result<Option<ServerOp>, ProtocolError> {
        if let Some(body) = &mut self.body {
            let kept = self.buffer.len().min(self.start + body.total_bytes);
            let skipped = body.surplus.min(self.buffer.len() - kept);
            self.buffer.drain(kept..kept + skipped);
            body.surplus -= skipped;
        }
        let unread = &self.buffer[self.start..];
        let is_whole = |body: &mut Body| body.surplus == 0 && unread.len() >= body.total_bytes + 2;
        let Some(body) = self.body.take_if(is_whole) else { return Ok(None) };
        let (content, rest) = unread.split_at(body.total_bytes);
        if !rest.starts_with(b"\r\n") {
            return Err(malformed("a payload does not end where it should"));
        }
        // `parse_message` has checked that the headers are within the content.
        let (block, payload) = content.split_at(body.header_bytes);
        let headers = Headers::parse(block);
        let payload = payload.to_vec();
        let Body { sid, subject, reply, .. } = body;
        self.start += body.total_bytes + 2;
        self.searched = self.start;
        Ok(Some(ServerOp::Msg { sid, message: Message { subject, reply, headers, payload } }))
    }
}

fn parse_message(rest: &[u8], has_headers: bool) -> Result<Body, ProtocolError> {
    let fields = rest.split(|&byte| byte == b' ' || byte == b'\t');
    let mut fields: Vec<&[u8]> = fields.filter(|field| !field.is_empty()).take(6).collect();
    let mut size = || fields.pop().and_then(number).ok_or(malformed("a message without a size"));
    let total = size()?;
    let header = if has_headers { size()? } else { 0 };
    let (subject, sid, reply) = match fields[..] {
        [subject, sid] => (subject, sid, None),
        [subject, sid, reply] => (subject, sid, Some(reply)),
        _ => return Err(malformed("a message with a wrong number of fields")),
    };
    let sid = number(sid).ok_or(malformed("a message without a subscription"))?;
    if header > total {
        return Err(malformed("headers longer than their message"));
    }
    if total > SKIPPED_BYTES_MAX {
        return Err(format!("a message is larger than the limit of {SKIPPED_BYTES_MAX} bytes"));
    }
    let total_bytes = (total as usize).min(MESSAGE_BYTES_MAX);
    let surplus = total as usize - total_bytes;
    let header_bytes = (header as usize).min(total_bytes);
    // With a wildcard subscription other clients choose the subject: a subject that
    // is not text must not end the connection.
    let text = |subject| String::from_utf8_lossy(subject).into_owned();
    let (subject, reply) = (text(subject), reply.map(text));
    Ok(Body { sid, subject, reply, header_bytes, total_bytes, surplus })
}

/// Reads decimal digits and nothing else.
fn number(field: &[u8]) -> Option<u64> {
    let is_decimal = field.iter().all(u8::is_ascii_digit);
    str::from_utf8(field).ok().filter(|_| is_decimal)?.parse().ok()
}

#[cfg(test)]
mod tests;
