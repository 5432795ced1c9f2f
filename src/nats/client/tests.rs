//! The client against scripted servers: requests, waits, and how they end.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use crossbeam_channel::bounded;

use super::*;
use crate::nats::auth::Login;
use crate::nats::decode::BUFFER_BYTES_MAX;
use crate::nats::fake::{FakeServer, INFO, Peer};
use crate::nats::pool::Candidates;
use crate::sys::{PATIENCE, Waker};

mod micro;
mod servers;
mod silence;

const INTERVAL: Duration = Duration::from_secs(5);

/// The requests of a client that asks soon whether its server lives.
const SHORT: Duration = Duration::from_millis(800);

fn in_ms(ms: u64) -> Instant {
    sys::now().after(Duration::from_millis(ms))
}

/// A client of these servers in this order, for requests at this interval. It gives a server as
/// long to let it in as with a long one.
fn client_of(servers: Vec<Server>, interval: Duration) -> Client {
    let options = ConnectOptions::new(Login::None, "test".to_owned(), interval);
    let mut client = Client::new(servers.clone(), options);
    client.dialer.pool = Candidates::new(servers, INTERVAL);
    client
}

fn give_up() -> Instant {
    sys::now().after(PATIENCE)
}

impl Client {
    /// Puts the first request without an answer so much earlier.
    pub(crate) fn age(&mut self, by: Duration) {
        self.dialer.pool.age(by);
    }
}

/// A client connected to the one server.
fn connected(fake: &FakeServer) -> Client {
    let mut client = client_of(vec![fake.server()], INTERVAL);
    client.connect(give_up()).expect("the script lets us in");
    client
}

fn request(client: &mut Client) -> Result<Message, RequestError> {
    request_by(client, give_up())
}

fn request_by(client: &mut Client, by: Instant) -> Result<Message, RequestError> {
    client.request(
        &Outgoing {
            subject: "$KV.b.k",
            headers: &[("A", "b")],
            payload: b"v1",
            ..Outgoing::default()
        },
        by,
    )
}

/// Waits for an event that is to come.
fn wait(client: &mut Client) -> ClientEvent {
    wait_by(client, give_up())
}

fn wait_by(client: &mut Client, by: Instant) -> ClientEvent {
    let waker = Waker::new().expect("a descriptor");
    client.wait(waker.as_fd(), Some(by))
}

/// Takes the next event, if there is one now.
fn event_now(client: &mut Client) -> ClientEvent {
    wait_by(client, in_ms(10))
}

fn gone(event: &ClientEvent) -> &str {
    match event {
        ClientEvent::Gone(reason) => reason,
        ClientEvent::Message(_)
        | ClientEvent::Reply(_)
        | ClientEvent::NotAsked(_)
        | ClientEvent::Woken
        | ClientEvent::Elapsed => {
            panic!("not gone: {event:?}")
        }
    }
}

/// Returns why there was no reply.
fn unanswered<T: fmt::Debug>(outcome: Result<T, RequestError>) -> String {
    match outcome {
        Err(RequestError::Unanswered(why)) => why,
        other => panic!("answered: {other:?}"),
    }
}

/// The text of a request without a reply.
const NO_REPLY: &str = "no reply before the deadline";

/// A client that had heard one reply to another client knew the subject of the next reply, and
/// forged it.
#[test]
fn no_reply_tells_where_the_next_one_is_expected() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let mut random = Vec::new();
        for _ in 0..2 {
            let frame = peer.frame();
            let (_, secret) = frame.reply().rsplit_once('.').expect("a random part");
            assert!(secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
            random.push(secret.to_owned());
            peer.reply_to(&frame, "ok");
        }
        assert_ne!(random[0], random[1]);
    });
    let mut client = connected(&fake);
    for _ in 0..2 {
        request(&mut client).expect("an answer");
    }
    fake.finish();
}

#[test]
fn request_and_reply() {
    let fake = FakeServer::once(|peer| {
        let connect = peer.accept_client();
        for part in ["\"verbose\":false", "\"no_responders\":true", "\"name\":\"test\""] {
            assert!(connect.contains(part), "{connect}");
        }
        let frame = peer.frame();
        assert_eq!(frame.words[..2], ["HPUB", "$KV.b.k"]);
        assert_eq!(frame.body, "NATS/1.0\r\nA: b\r\n\r\nv1");
        let reply = frame.reply().to_owned();
        peer.send_slowly(&format!("HMSG {reply} 1 18 20\r\nNATS/1.0\r\nC: d\r\n\r\nhi\r\n"), 3);
        peer.answer("two");
    });
    let mut client = connected(&fake);
    let server = client.server().expect("connected");
    assert_eq!((server.name.as_str(), server.version.as_str()), ("fake", "2.15.1"));
    let reply = request(&mut client).expect("a reply");
    assert_eq!(reply.headers.get("C"), Some("d"));
    assert_eq!(reply.payload, b"hi");
    assert_eq!(request(&mut client).expect("a reply").payload, b"two");
    fake.finish();
}

#[test]
fn what_comes_between_request_and_reply() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        assert_eq!(peer.frame().words, ["SUB", "hint.>", "2"]);
        let reply = peer.frame().reply().to_owned();
        peer.send("PING\r\nMSG hint.a 2 1\r\nx\r\n+OK\r\nPONG\r\n");
        assert_eq!(peer.frame().words, ["PONG"]);
        let info = INFO.replace("65536", "99");
        peer.send(&format!("INFO {info}\r\n-ERR 'Invalid Subject'\r\n"));
        peer.send("-ERR 'Permissions Violation for Publish to \"other\"'\r\n");
        peer.send(&format!("MSG {reply}0 1 4\r\nlate\r\nMSG {reply} 1 2\r\nhi\r\n"));
        peer.rest();
    });
    let mut client = connected(&fake);
    client.subscribe(&["hint.>".to_owned()], &[]).expect("connected");
    assert_eq!(request(&mut client).expect("a reply").payload, b"hi");
    assert_eq!(client.server().expect("connected").max_payload, 99);
    let ClientEvent::Message(message) = wait(&mut client) else {
        panic!("no message");
    };
    assert_eq!(message.subject, "hint.a");
    assert_eq!(event_now(&mut client), ClientEvent::Elapsed);
    let large = client.request(
        &Outgoing { subject: "a", payload: &[b'x'; 100], ..Outgoing::default() },
        in_ms(100),
    );
    assert_eq!(unanswered(large), "not sent: 100 bytes are more than the server's limit of 99");
    let bad = client.request(&Outgoing { subject: "a b", ..Outgoing::default() }, in_ms(100));
    assert_eq!(unanswered(bad), "not sent: 'a b' is not a subject");
    assert!(client.is_connected(), "nothing was sent, so nothing is wrong");
    drop(client);
    fake.finish();
}

#[test]
fn nobody_listens_and_nobody_may() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let reply = peer.frame().reply().to_owned();
        peer.send(&format!("HMSG {reply} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"));
        let reply = peer.frame().reply().to_owned();
        peer.send(&format!("HMSG {reply} 1 34 34\r\nNATS/1.0 404 Message Not Found\r\n\r\n\r\n"));
        peer.frame();
        peer.send("-ERR 'Permissions Violation for Publish to \"$KV.b.k\"'\r\n");
        peer.answer("still here");
    });
    let mut client = connected(&fake);
    assert_eq!(request(&mut client), Err(RequestError::NoResponders));
    let missing = request(&mut client).expect("a reply");
    assert_eq!(missing.headers.status(), Some(404));
    match request(&mut client) {
        Err(RequestError::Forbidden(text)) => assert!(text.contains("\"$KV.b.k\""), "{text}"),
        other => panic!("not forbidden: {other:?}"),
    }
    assert_eq!(request(&mut client).expect("a reply").payload, b"still here");
    fake.finish();
}

#[test]
fn silence_until_the_deadline_then_a_late_reply() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let late = peer.frame().reply().to_owned();
        let frame = peer.frame();
        peer.send(&format!("MSG {late} 1 4\r\nlate\r\n"));
        peer.send(&format!("MSG {} 1 6\r\ntimely\r\n", frame.reply()));
    });
    let mut client = connected(&fake);
    let deadline = in_ms(400);
    assert_eq!(unanswered(request_by(&mut client, deadline)), NO_REPLY);
    assert!(sys::now() >= deadline);
    assert_eq!(request(&mut client).expect("a reply").payload, b"timely");
    let past = client.request(&Outgoing { subject: "a", ..Outgoing::default() }, sys::now());
    assert_eq!(unanswered(past), "not sent: no time is left");
    fake.finish();
}

#[test]
fn chatter_does_not_outlast_the_deadline() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let reply = peer.frame().reply().to_owned();
        peer.send(&format!("MSG {reply} 1 1000000\r\n"));
        peer.trickle();
    });
    let mut client = connected(&fake);
    assert_eq!(unanswered(request_by(&mut client, in_ms(400))), NO_REPLY);
    assert_eq!(event_now(&mut client), ClientEvent::Elapsed);
    drop(client);
    fake.finish();
}

#[test]
fn the_connection_ends_in_a_request() {
    let scripts: [fn(&mut Peer); 5] = [
        |_| {},
        Peer::reset,
        |peer| peer.send("-ERR 'Stale Connection'\r\n"),
        |peer| peer.send("MSG _INBOX"),
        |peer| peer.send("HTTP/1.1 400\r\n"),
    ];
    let reasons = [
        "the server closed the connection",
        "connection reset by peer",
        "the server says: Stale Connection",
        "the server closed the connection",
        "not the NATS protocol: a line begins with 'HTTP/1.1 400'",
    ];
    for (script, reason) in scripts.into_iter().zip(reasons) {
        let fake = FakeServer::once(move |peer| {
            peer.accept_client();
            peer.frame();
            script(peer);
        });
        let mut client = connected(&fake);
        assert_eq!(unanswered(request(&mut client)), format!("connection lost: {reason}"));
        assert!(!client.is_connected());
        assert!(gone(&event_now(&mut client)).ends_with(reason));
        let next = unanswered(request(&mut client));
        assert!(next.starts_with("not sent: not connected: "), "{next}");
        fake.finish();
    }
}

#[test]
fn the_connection_ends_in_a_wait() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        peer.send("-ERR 'User Authentication Expired'\r\n");
    });
    let mut client = connected(&fake);
    let event = wait(&mut client);
    assert!(gone(&event).ends_with("the server says: User Authentication Expired"), "{event:?}");
    fake.finish();
}

#[test]
fn wake_deadline_and_publish() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        assert_eq!(peer.frame().words, ["PUB", "putex.notice", "2"]);
    });
    let mut client = connected(&fake);
    let waker = Waker::new().expect("a descriptor");
    assert_eq!(client.wait(waker.as_fd(), Some(in_ms(5))), ClientEvent::Elapsed);
    waker.wake();
    assert_eq!(client.wait(waker.as_fd(), None), ClientEvent::Woken);
    waker.clear();
    assert_eq!(client.wait(waker.as_fd(), Some(in_ms(5))), ClientEvent::Elapsed);
    client
        .publish(&Outgoing { subject: "putex.notice", payload: b"hi", ..Outgoing::default() })
        .expect("connected");
    fake.finish();
}

#[test]
fn nothing_is_carried_over_to_the_next_connection() {
    let first = |peer: &mut Peer| {
        peer.accept_client();
        peer.frame();
        peer.frame();
        peer.send("MSG hint.a 2 1\r\nx\r\nMSG hint.a 2 100\r\nunfinished");
    };
    let second = |peer: &mut Peer| {
        peer.accept_client();
        assert!(peer.rest().is_empty());
    };
    let fake = FakeServer::new(vec![Box::new(first), Box::new(second)]);
    let mut client = connected(&fake);
    client.subscribe(&["hint.>".to_owned()], &[]).expect("connected");
    unanswered(request(&mut client));
    assert!(request(&mut client).is_err());
    client.connect(give_up()).expect("let in again");
    assert_eq!(event_now(&mut client), ClientEvent::Elapsed);
    drop(client);
    fake.finish();
}

#[test]
fn a_peer_that_does_not_read_costs_no_more_than_the_deadline() {
    let (done, wait) = bounded::<()>(0);
    let fake = FakeServer::once(move |peer| {
        peer.send(&format!("INFO {}\r\n", INFO.replace("65536", "100000000")));
        peer.take_handshake();
        peer.send("PONG\r\n");
        let _ = wait.recv();
    });
    let mut client = connected(&fake);
    let large = vec![b'x'; 50_000_000];
    let outcome = client
        .request(&Outgoing { subject: "a", payload: &large, ..Outgoing::default() }, in_ms(400));
    assert_eq!(unanswered(outcome), "connection lost: the server does not read");
    assert!(!client.is_connected(), "half a frame ends the connection");
    drop(done);
    fake.finish();
}

/// A flood of notices must not have an agent miss the release of a lock.
#[test]
fn other_messages_displace_no_hint_during_a_request() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let reply = peer.frame().reply().to_owned();
        let notices = "MSG putex.hint.b.k 3 1\r\nx\r\n".repeat(600);
        peer.send(&format!("MSG putex.hint.b.k 2 1\r\nx\r\n{notices}"));
        peer.send(&format!("MSG {reply} 1 2\r\nhi\r\n"));
        peer.rest();
    });
    let mut client = connected(&fake);
    request(&mut client).expect("a reply");
    let ClientEvent::Message(first) = wait(&mut client) else { panic!("no hint") };
    assert_eq!(first.subject, "putex.hint.b.k");
    drop(client);
    fake.finish();
}

#[test]
fn memory_does_not_grow() {
    const ROUNDS: usize = 3000;
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        for round in 0..ROUNDS {
            let frame = peer.frame();
            let size = if round % 500 == 0 { 900_000 } else { 50 };
            let hint = format!("MSG hint.a 2 {size}\r\n{}\r\n", "x".repeat(size));
            let reply = frame.reply();
            peer.send(&format!("{hint}MSG {reply}x 1 4\r\nlate\r\nMSG {reply} 1 2\r\nhi\r\n"));
        }
        peer.rest();
    });
    let mut client = connected(&fake);
    let held = |client: &Client| client.link.as_ref().map_or(0, Link::held_bytes);
    let mut most = 0;
    for _ in 0..ROUNDS {
        request(&mut client).expect("a reply");
        most = most.max(held(&client));
    }
    assert!(most < BUFFER_BYTES_MAX + 3 * 1024 * 1024, "{most}");
    let mut hints = 0;
    while event_now(&mut client) != ClientEvent::Elapsed {
        hints += 1;
    }
    assert!((2..=256).contains(&hints), "{hints}");
    assert!(held(&client) < 128 * 1024, "{}", held(&client));
    drop(client);
    fake.finish();
}
