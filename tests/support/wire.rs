//! The protocol of NATS as far as the tests need it: cutting a byte stream into
//! whole messages, and a client that asks one question at a time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::clock::{now, wait_until};

/// How long the tests' own client waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long it waits for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// A whole protocol message.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The bytes as they came.
    pub(crate) raw: Vec<u8>,
    words: Vec<String>,
    head_len: usize,
    line_len: usize,
}

impl Frame {
    /// Returns the verb in upper case.
    pub(crate) fn verb(&self) -> String {
        self.word(0).to_ascii_uppercase()
    }

    /// Returns the subject of a message, or the argument of another.
    pub(crate) fn subject(&self) -> &str {
        self.word(1)
    }

    /// Returns where the answer to a published message is to go, if anywhere.
    pub(crate) fn reply_to(&self) -> Option<&str> {
        let sizes = if self.verb() == "HPUB" { 2 } else { 1 };
        (self.words.len() == 3 + sizes).then(|| self.word(2))
    }

    /// Returns the headers as text.
    pub(crate) fn headers(&self) -> String {
        let block = &self.raw[self.line_len..self.line_len + self.head_len];
        String::from_utf8_lossy(block).into_owned()
    }

    /// Returns what follows the headers.
    pub(crate) fn payload(&self) -> &[u8] {
        let end = self.raw.len().saturating_sub(2);
        self.raw.get(self.line_len + self.head_len..end).unwrap_or_default()
    }

    /// Returns the revision that this message acknowledges, when it is the answer
    /// to a write into a bucket that was stored.
    pub(crate) fn stored_revision(&self) -> Option<u64> {
        let answer: Value = serde_json::from_slice(self.payload()).ok()?;
        let bucket = answer["stream"].as_str()?.starts_with("KV_");
        (bucket && answer["error"].is_null()).then(|| answer["seq"].as_u64())?
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }
}

/// Cuts bytes into messages, however they were split on their way.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    rest: Vec<u8>,
}

impl Splitter {
    /// Takes further bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// Returns the next message that is complete.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        let line_len = 2 + self.rest.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&self.rest[..line_len]).into_owned();
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        let number = |from_end: usize| -> usize {
            let at = words.len().checked_sub(from_end);
            at.and_then(|at| words[at].parse().ok()).unwrap_or(0)
        };
        let verb = words.first().map(|word| word.to_ascii_uppercase());
        let (head_len, body_len) = match verb.as_deref() {
            Some("PUB" | "MSG") => (0, number(1) + 2),
            Some("HPUB" | "HMSG") => (number(2), number(1) + 2),
            Some(_) | None => (0, 0),
        };
        if self.rest.len() < line_len + body_len {
            return None;
        }
        let raw = self.rest.drain(..line_len + body_len).collect();
        Some(Frame { raw, words, head_len, line_len })
    }
}

/// The tests' own connection to a server, past every proxy.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    splitter: Splitter,
    requests: u64,
}

impl Client {
    /// Connects to the server on `port` of this host.
    pub(crate) fn connect(port: u16) -> Result<Client, String> {
        Client::connect_to((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Connects to the server at `address`.
    pub(crate) fn connect_to(address: SocketAddr) -> Result<Client, String> {
        let stream =
            TcpStream::connect_timeout(&address, CONNECT_MAX).map_err(|e| e.to_string())?;
        let timeout = Some(Duration::from_millis(50));
        stream.set_read_timeout(timeout).map_err(|e| e.to_string())?;
        let mut client = Client { stream, splitter: Splitter::default(), requests: 0 };
        client.write(
            b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\
              \"no_responders\":true,\"lang\":\"rig\",\"version\":\"0\",\"protocol\":1}\r\n\
              SUB _INBOX.rig.> 1\r\n",
        )?;
        Ok(client)
    }

    /// Publishes to `subject` and returns the answer.
    pub(crate) fn request(
        &mut self,
        subject: &str,
        head: &str,
        body: &str,
    ) -> Result<Frame, String> {
        self.requests += 1;
        let inbox = format!("_INBOX.rig.{}", self.requests);
        let message = if head.is_empty() {
            format!("PUB {subject} {inbox} {}\r\n{body}\r\n", body.len())
        } else {
            let head = format!("NATS/1.0\r\n{head}\r\n\r\n");
            let total = head.len() + body.len();
            format!("HPUB {subject} {inbox} {} {total}\r\n{head}{body}\r\n", head.len())
        };
        self.write(message.as_bytes())?;
        wait_until(now() + ANSWER_MAX, || self.next_to(&inbox))
            .ok_or_else(|| format!("no answer to {subject}"))
    }

    /// Calls the JetStream API and returns its answer when that is not an error.
    pub(crate) fn call(&mut self, api: &str, body: &str) -> Result<Value, String> {
        let frame = self.request(&format!("$JS.API.{api}"), "", body)?;
        let answer: Value = serde_json::from_slice(frame.payload())
            .map_err(|error| format!("{api}: {error}: {}", frame.headers()))?;
        if answer["error"].is_null() {
            return Ok(answer);
        }
        Err(format!("{api}: {}", answer["error"]))
    }

    /// Creates a bucket as other clients do, kept in `storage`.
    pub(crate) fn create_bucket(&mut self, bucket: &str, storage: &str) -> Result<(), String> {
        self.create_bucket_of(bucket, storage, 1)
    }

    /// As [`Client::create_bucket`], with so many `replicas`.
    pub(crate) fn create_bucket_of(
        &mut self,
        bucket: &str,
        storage: &str,
        replicas: usize,
    ) -> Result<(), String> {
        let config = format!(
            r#"{{"name":"KV_{bucket}","subjects":["$KV.{bucket}.>"],"retention":"limits",
            "max_consumers":-1,"max_msgs_per_subject":1,"max_msgs":-1,"max_bytes":-1,"max_age":0,
            "max_msg_size":-1,"storage":"{storage}","discard":"new","num_replicas":{replicas},
            "allow_rollup_hdrs":true,"deny_delete":true,"allow_direct":true}}"#
        );
        self.call(&format!("STREAM.CREATE.KV_{bucket}"), &config)?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|e| e.to_string())
    }

    fn next_to(&mut self, inbox: &str) -> Option<Frame> {
        let mut bytes = [0; 4096];
        if let Ok(got) = self.stream.read(&mut bytes) {
            self.splitter.push(&bytes[..got]);
        }
        while let Some(frame) = self.splitter.next_frame() {
            if frame.verb() == "PING" {
                let _ = self.write(b"PONG\r\n");
            }
            if frame.verb().ends_with("MSG") && frame.subject() == inbox {
                return Some(frame);
            }
        }
        None
    }
}
