//! The agent as a micro service, beside a scripted server: its subscriptions, its answers, and the
//! effect of a flood of requests.

use std::os::fd::AsFd;
use std::time::SystemTime;

use super::*;
use crate::core::AgentStatus;
use crate::nats::Outgoing;
use crate::nats::fake::{Frame, Peer};
use crate::nats::micro::Service;
use crate::store::nats::micro::{BUCKET, KEY};
use crate::store::{AgentAnswer, AgentQuestion};
use crate::sys::Waker;

/// The service `putex` of the ID `0f`, of an agent of the key `web` in this bucket.
fn service_of(bucket: &str) -> Service {
    Service {
        name: "putex",
        id: "0f".to_owned(),
        version: "1.2.3",
        description: "web".to_owned(),
        metadata: [(BUCKET, bucket.to_owned()), (KEY, "web".to_owned())].into(),
        started: SystemTime::UNIX_EPOCH,
    }
}

/// Returns a connected store whose bucket is open, and which is that service.
fn service_at(fake: &FakeServer) -> NatsStore {
    let mut store = store_of(vec![fake.server()]).with_service(service_of("locks"));
    store.client.connect(sys::now().after(PATIENCE)).expect("the script accepts the client");
    store.bucket = Ok(opened());
    store.subscribed.push("web".to_owned());
    store
}

/// A request of another program.
const REQUESTED: Hint = Hint::StatusRequested { reads_requests: false };

/// Waits for a hint until the script has ended.
fn wait(store: &mut NatsStore) -> Hint {
    let waker = Waker::new().expect("a descriptor");
    store.wait(waker.as_fd(), Some(sys::now().after(PATIENCE)))
}

/// Takes the subscriptions; returns the number of the first.
fn take_subscriptions(peer: &mut Peer) -> String {
    let subscriptions: Vec<Frame> = (0..3).map(|_| peer.frame()).collect();
    for frame in &subscriptions {
        // Without a queue group, so that all instances get each request.
        let [verb, subject, _] = &frame.words[..] else { panic!("{frame:?}") };
        assert!(verb == "SUB" && subject.starts_with("$SRV."), "{frame:?}");
    }
    subscriptions[0].words[2].clone()
}

/// A message which says that the key `web` has changed.
fn hint_of_web() -> String {
    let headers = "NATS/1.0\r\nNats-Stream: KV_locks\r\nNats-Subject: $KV.locks.web\r\n\
                   Nats-Sequence: 900\r\n\r\n";
    let length = headers.len();
    format!("HMSG putex.hint.locks.web 3 {length} {length}\r\n{headers}\r\n")
}

#[test]
fn the_subscriptions_are_made_once_and_nothing_is_sent_while_nobody_requests_anything() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let number = take_subscriptions(peer);
        // The request means nothing, so the wait goes on, and so does the next one.
        for _ in 0..3 {
            peer.send(&format!("MSG $SRV.SCHEMA {number} _INBOX.a 0\r\n\r\n"));
            peer.send(&hint_of_web());
        }
        assert!(peer.is_waited_for(), "more was sent");
    });
    let mut store = service_at(&fake);
    for _ in 0..3 {
        assert!(matches!(wait(&mut store), Hint::Changed { .. }));
    }
    assert!(matches!(wait(&mut store), Hint::Gone(_)));
    fake.finish();
}

#[test]
fn an_agent_that_is_no_service_subscribes_to_nothing_and_ignores_requests() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        peer.send("MSG $SRV.PING 2 _INBOX.a 0\r\n\r\n");
        assert!(peer.is_waited_for(), "something was sent");
    });
    let mut store = NatsStore { micro: None, ..service_at(&fake) };
    assert!(matches!(wait(&mut store), Hint::Gone(_)));
    fake.finish();
}

/// An agent may publish where the sender of a request may not.
#[test]
fn answers_go_to_subjects_of_replies_only_and_not_to_those_of_putex() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let own = peer.frame();
        peer.reply_to(&own, "ok");
        let (inbox, _) = own.reply().rsplit_once('.').expect("an inbox");
        let own = format!("{inbox}.2");
        let number = take_subscriptions(peer);
        for reply in ["$KV.locks.web", "$JS.API.STREAM.DELETE.KV_locks", "putex.hint.locks.web"] {
            peer.send(&format!("MSG $SRV.PING {number} {reply} 0\r\n\r\n"));
        }
        for reply in [&own, "", "_INBOX.a..b", "_INBOX.>"] {
            peer.send(&format!("MSG $SRV.STATS {number} {reply} 0\r\n\r\n"));
        }
        peer.send(&format!("MSG $SRV.PING {number} _INBOX.good.1 0\r\n\r\n"));
        let frame = peer.frame();
        assert_eq!(frame.words[..2], ["PUB", "_INBOX.good.1"]);
        assert!(frame.body.contains("io.nats.micro.v1.ping_response"), "{frame:?}");
        assert!(peer.is_waited_for(), "more was sent");
    });
    let mut store = service_at(&fake);
    let sent = Outgoing { subject: "x", ..Outgoing::default() };
    store.client.request(&sent, sys::now().after(PATIENCE)).expect("a reply");
    let mut hint = wait(&mut store);
    while hint == REQUESTED {
        store.send_status(&status());
        hint = wait(&mut store);
    }
    assert!(matches!(hint, Hint::Gone(_)), "{hint:?}");
    fake.finish();
}

fn status() -> AgentStatus {
    AgentStatus::of_candidate("h1")
}

/// The thread of the pump is not disturbed for each of them.
#[test]
fn the_status_is_requested_once_for_all_clients_that_wait_for_it() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let number = take_subscriptions(peer);
        for client in ["a", "b", "c"] {
            peer.send(&format!("MSG $SRV.STATS.putex {number} _INBOX.{client} 0\r\n\r\n"));
        }
        peer.send(&hint_of_web());
        for client in ["a", "b", "c"] {
            let frame = peer.frame();
            assert_eq!(frame.words[..2], ["PUB", &*format!("_INBOX.{client}")]);
            let stats: serde_json::Value = serde_json::from_str(&frame.body).expect("JSON");
            let endpoint = &stats["endpoints"][0];
            assert_eq!(endpoint["num_requests"], 3);
            assert_eq!(endpoint["data"]["token"], "h1");
            assert!(endpoint["processing_time"].as_u64() > Some(0), "{stats}");
        }
        peer.send(&format!("MSG $SRV.STATS.putex.0f {number} _INBOX.d 0\r\n\r\n"));
    });
    let mut store = service_at(&fake);
    assert_eq!(wait(&mut store), REQUESTED);
    assert!(matches!(wait(&mut store), Hint::Changed { .. }));
    store.send_status(&status());
    assert_eq!(wait(&mut store), REQUESTED);
    fake.finish();
}

/// The server goes on to send hints of the lock, and no requests.
#[test]
fn a_flood_ends_the_subscriptions_and_not_the_hints() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let number = take_subscriptions(peer);
        let ping = format!("MSG $SRV.PING {number} _INBOX.a 0\r\n\r\n");
        peer.send(&ping.repeat(20_000));
        let answered = (0..).take_while(|_| peer.frame().words[0] == "PUB").count();
        assert!((50..10_000).contains(&answered), "{answered}");
        for _ in 1..3 {
            assert_eq!(peer.frame().words[0], "UNSUB");
        }
        // The requests that were under way.
        peer.send(&ping.repeat(10));
        peer.send(&hint_of_web());
        assert!(peer.is_waited_for(), "more was sent");
    });
    let mut store = service_at(&fake);
    assert!(matches!(wait(&mut store), Hint::Changed { .. }));
    // A minute is not over.
    assert!(matches!(wait(&mut store), Hint::Gone(_)));
    let micro = store.micro.as_mut().expect("a service");
    micro.end_pause();
    fake.finish();
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        take_subscriptions(peer);
    });
    let mut again = service_at(&fake);
    again.micro = store.micro.take();
    again.micro.iter_mut().for_each(MicroService::forget_connection);
    assert!(matches!(wait(&mut again), Hint::Gone(_)));
    fake.finish();
}

/// Thousands of agents have one account, and each question is for few of them.
#[test]
fn an_agent_answers_questions_that_are_for_it() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let number = take_subscriptions(peer);
        for question in [
            r#"{"bucket":"locks","keys":["db"],"reads_requests":true}"#,
            r#"{"bucket":"other","keys":["web"],"reads_requests":true}"#,
            r#"{"bucket":"locks","keys":["db","web"],"reads_requests":true}"#,
            r#"{"bucket":"locks","keys":["web"],"reads_requests":false}"#,
            "what another program sends",
        ] {
            let length = question.len();
            peer.send(&format!("MSG $SRV.STATS {number} _INBOX.a {length}\r\n{question}\r\n"));
        }
        assert!(peer.is_waited_for(), "something was sent");
    });
    let mut store = service_at(&fake);
    assert_eq!(wait(&mut store), Hint::StatusRequested { reads_requests: true });
    assert!(matches!(wait(&mut store), Hint::Gone(_)), "one status for all three");
    fake.finish();
}

/// The question of a command, and the messages that it takes for an answer.
#[test]
fn the_answers_of_agents_of_the_bucket_are_hints_of_who_has_asked() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let asked = peer.frame();
        assert_eq!(asked.words[..2], ["PUB", "$SRV.STATS.putex"]);
        assert_eq!(asked.body, r#"{"bucket":"locks","keys":["web"],"reads_requests":false}"#);
        let reply = asked.reply().to_owned();
        let (inbox, number) = reply.rsplit_once('.').expect("an inbox");
        assert_eq!(number, format!("{:032x}", 0x77));
        for (of, to) in [("other", &*reply), ("locks", &format!("{inbox}.76")), ("locks", &reply)] {
            let stats = service_of(of).stats(&Default::default(), &status());
            peer.send(&format!("MSG {to} 1 {}\r\n{stats}\r\n", stats.len()));
        }
        peer.send(&format!("MSG {reply} 1 2\r\n{{}}\r\n"));
    });
    let mut store = NatsStore { micro: None, ..service_at(&fake) };
    store.ask_agents(&AgentQuestion::new(0x77, ["web".to_owned()].into(), false));
    let answer = AgentAnswer { key: "web".to_owned(), status: status() };
    assert_eq!(wait(&mut store), Hint::Answered(Box::new(answer)));
    assert!(matches!(wait(&mut store), Hint::Gone(_)));
    fake.finish();
}
