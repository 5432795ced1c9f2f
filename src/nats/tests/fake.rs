//! A scripted server for tests: one loopback listener, one script a connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;

use super::url::Server;
use crate::sys::PATIENCE;

/// INFO of a server that putex can use.
pub(super) const INFO: &str =
    r#"{"server_name":"fake","version":"2.15.1","headers":true,"max_payload":65536}"#;

/// A connection, as a script uses it.
pub(crate) struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
    /// The reply subjects of the requests so far.
    replies: Vec<String>,
    /// The sid of the inbox subscription of the client.
    pub(super) inbox: String,
}

/// A frame of the client: the words of its line, and its headers and payload.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) words: Vec<String>,
    pub(crate) body: String,
}

impl Frame {
    /// Returns the reply subject of a PUB or HPUB.
    pub(crate) fn reply(&self) -> &str {
        &self.words[2]
    }
}

type Script = Box<dyn FnOnce(&mut Peer) + Send>;

/// A listener whose scripts run one after the other, one for each connection.
pub(crate) struct FakeServer {
    port: u16,
    thread: JoinHandle<()>,
}

impl FakeServer {
    pub(crate) fn new(scripts: Vec<Script>) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let thread = thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().expect("a connection");
                stream.set_read_timeout(Some(PATIENCE)).expect("an option");
                stream.set_nodelay(true).expect("an option");
                let (received, replies, inbox) = (Vec::new(), Vec::new(), String::new());
                script(&mut Peer { stream, received, replies, inbox });
            }
        });
        FakeServer { port, thread }
    }

    /// A server that accepts a single connection and runs this script for it.
    pub(crate) fn once(script: impl FnOnce(&mut Peer) + Send + 'static) -> FakeServer {
        FakeServer::new(vec![Box::new(script)])
    }

    pub(crate) fn server(&self) -> Server {
        self.server_as("")
    }

    /// The server, and one that nobody reaches.
    pub(crate) fn beside_another(&self) -> Vec<Server> {
        let mut servers = Server::parse_list("127.0.0.1:1").expect("an address");
        servers.push(self.server());
        servers
    }

    /// Its address with `user_info`, such as `user:password@`.
    pub(super) fn server_as(&self, user_info: &str) -> Server {
        let text = format!("nats://{user_info}127.0.0.1:{}", self.port);
        Server::parse_list(&text).expect("an address").remove(0)
    }

    /// Waits for the scripts, so that what failed in them fails the test.
    pub(crate) fn finish(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Peer {
    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the client reads");
    }

    /// Sends it in pieces of `size` bytes, with pauses, so that they are read apart.
    pub(super) fn send_slowly(&mut self, text: &str, size: usize) {
        for piece in text.as_bytes().chunks(size) {
            self.stream.write_all(piece).expect("the client reads");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a byte every now and then until the client has closed the connection.
    pub(super) fn trickle(&mut self) {
        while self.stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends INFO and answers the handshake. Returns its CONNECT line.
    pub(crate) fn accept_client(&mut self) -> String {
        self.accept_client_as(INFO)
    }

    pub(crate) fn accept_client_as(&mut self, info: &str) -> String {
        self.send(&format!("INFO {info} \r\n"));
        let connect = self.take_handshake();
        self.send("PONG\r\n");
        connect
    }

    /// Takes CONNECT, SUB and PING, and returns the first.
    pub(crate) fn take_handshake(&mut self) -> String {
        let connect = self.frame().words.join(" ");
        assert!(connect.starts_with("CONNECT {"), "{connect}");
        let inbox = self.frame();
        assert!(inbox.words[0] == "SUB" && inbox.words[1].starts_with("_INBOX."), "{inbox:?}");
        self.ping();
        self.inbox.clone_from(&inbox.words[2]);
        connect
    }

    /// Returns the next frame, but for those that a client sends again while an answer takes long:
    /// PING, and copies of a request.
    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            let frame = self.any_frame();
            if !self.is_again(&frame) {
                return frame;
            }
        }
    }

    /// Takes a PING.
    pub(super) fn ping(&mut self) {
        assert_eq!(self.any_frame().words, ["PING"]);
    }

    pub(super) fn any_frame(&mut self) -> Frame {
        loop {
            match self.received_frame() {
                Some(frame) => return frame,
                None => assert!(self.receive(), "the client left"),
            }
        }
    }

    /// Returns the first frame that was received, if it is whole.
    fn received_frame(&mut self) -> Option<Frame> {
        let end = self.received.windows(2).position(|pair| pair == b"\r\n")? + 2;
        let line = String::from_utf8(self.received[..end].to_vec()).expect("text");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let mut body = String::new();
        if words[0].ends_with("PUB") {
            let size: usize = words[words.len() - 1].parse().expect("a size");
            let payload = self.received.get(end..end + size + 2)?;
            let payload = payload.strip_suffix(b"\r\n").expect("the end of a payload");
            body = String::from_utf8(payload.to_vec()).expect("text");
            self.received.drain(..end + size + 2);
        } else {
            self.received.drain(..end);
        }
        Some(Frame { words, body })
    }

    /// Returns whether a client has sent this again. A request has a reply subject of its own.
    fn is_again(&mut self, frame: &Frame) -> bool {
        let reply = match &frame.words[..] {
            [verb, _, reply, _] if verb == "PUB" => reply,
            [verb, _, reply, _, _] if verb == "HPUB" => reply,
            words => return words == ["PING"],
        };
        let is_again = self.replies.contains(reply);
        if !is_again {
            self.replies.push(reply.clone());
        }
        is_again
    }

    /// Answers the next request with `payload`.
    pub(crate) fn answer(&mut self, payload: &str) {
        let frame = self.frame();
        self.reply_to(&frame, payload);
    }

    pub(crate) fn reply_to(&mut self, request: &Frame, payload: &str) {
        let (reply, inbox, size) = (request.reply(), &self.inbox, payload.len());
        self.send(&format!("MSG {reply} {inbox}  {size}\r\n{payload}\r\n"));
    }

    /// Returns whether the client sends nothing new before it hears more.
    pub(crate) fn is_waited_for(&mut self) -> bool {
        let short = Some(Duration::from_millis(50));
        self.stream.set_read_timeout(short).expect("an option");
        let _ = self.receive();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        self.sent().is_empty()
    }

    /// Waits until the client has closed the connection and returns what else it sent.
    pub(crate) fn rest(&mut self) -> String {
        while self.receive() {}
        self.sent()
    }

    /// Returns what was received, but for what the client has sent again.
    fn sent(&mut self) -> String {
        let mut sent = String::new();
        while let Some(frame) = self.received_frame() {
            if !self.is_again(&frame) {
                sent.push_str(&format!("{frame:?}"));
            }
        }
        sent + &String::from_utf8_lossy(&self.received)
    }

    /// Ends the connection with a reset, which the drop of the peer then sends.
    pub(super) fn reset(&mut self) {
        let linger = Some(Duration::ZERO);
        sockopt::set_socket_linger(&self.stream, linger).expect("an option");
    }

    fn receive(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let count = self.stream.read(&mut chunk).unwrap_or(0);
        self.received.extend_from_slice(&chunk[..count]);
        count > 0
    }
}
