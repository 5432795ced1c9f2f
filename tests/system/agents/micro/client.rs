//! A client of NATS that sends what no library would: any subject for a reply, at any rate.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::support::clock::{PATIENCE, now, wait_until};
use crate::support::server::Server;
use crate::support::wire::{Frame, Splitter};

/// How long a read waits for more.
const READ_MAX: Duration = Duration::from_millis(10);

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    splitter: Splitter,
    /// Frames that have come and were not used.
    received: VecDeque<Frame>,
    subscriptions: u64,
    inboxes: u64,
}

impl Client {
    /// Logs in as this user, whose password is `p`; a server without users takes anybody.
    pub(crate) fn connect(server: &Server, user: &str) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_read_timeout(Some(READ_MAX)).expect("an option");
        let (splitter, received) = (Splitter::default(), VecDeque::new());
        let mut client = Client { stream, splitter, received, subscriptions: 0, inboxes: 0 };
        client.send(
            format!(
                "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\
                 \"no_responders\":true,\"lang\":\"test\",\"version\":\"0\",\"protocol\":1,\
                 \"user\":\"{user}\",\"pass\":\"p\"}}\r\n"
            )
            .as_bytes(),
        );
        client.flush();
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends as long as the server takes bytes.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(crate) fn subscribe(&mut self, subject: &str) {
        self.subscriptions += 1;
        self.send(format!("SUB {subject} {}\r\n", self.subscriptions).as_bytes());
        self.flush();
    }

    /// Returns a new subject for replies that this client receives.
    pub(crate) fn new_inbox(&mut self) -> String {
        self.inboxes += 1;
        let port = self.stream.local_addr().expect("connected").port();
        let inbox = format!("_INBOX.{port}.{}", self.inboxes);
        self.subscribe(&inbox);
        inbox
    }

    pub(crate) fn publish(&mut self, subject: &str, reply: &str) {
        self.send(format!("PUB {subject} {reply} 0\r\n\r\n").as_bytes());
    }

    /// Waits until the server has processed all that was sent. Frames that come meanwhile are kept.
    pub(crate) fn flush(&mut self) {
        self.send(b"PING\r\n");
        let pong = self.next(|frame| (frame.verb() == "PONG").then_some(()));
        pong.expect("the server answers");
    }

    /// Returns the next frame of which `pick` makes something; `None` if none comes in time.
    pub(crate) fn next<T>(&mut self, pick: impl Fn(&Frame) -> Option<T>) -> Option<T> {
        wait_until(now() + PATIENCE, || {
            let mut bytes = [0; 65536];
            if let Ok(count) = self.stream.read(&mut bytes) {
                self.splitter.push(&bytes[..count]);
            }
            while let Some(frame) = self.splitter.next_frame() {
                match &*frame.verb() {
                    "PING" => self.send(b"PONG\r\n"),
                    _ => self.received.push_back(frame),
                }
            }
            let found = self.received.iter().position(|frame| pick(frame).is_some())?;
            self.received.remove(found).and_then(|frame| pick(&frame))
        })
    }

    /// Sends a request; returns so many answers, or none if no client is subscribed to it.
    pub(crate) fn request(&mut self, subject: &str, count: usize) -> Vec<Value> {
        let inbox = self.new_inbox();
        self.publish(subject, &inbox);
        let to_inbox = |frame: &Frame| (frame.subject() == inbox).then(|| frame.clone());
        let mut answers = Vec::new();
        while answers.len() < count
            && let Some(frame) = self.next(to_inbox)
        {
            // Nobody is subscribed to it.
            if !frame.headers().starts_with("NATS/1.0 503") {
                answers.push(serde_json::from_slice(frame.payload()).expect("JSON"));
            } else if count > 0 {
                break;
            }
        }
        answers
    }
}
