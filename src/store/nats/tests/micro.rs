//! The agent as a micro service, beside a scripted server: what is subscribed to, whom it answers,
//! and what a flood of requests does.

use std::os::fd::AsFd;
use std::time::SystemTime;

use super::*;
use crate::nats::fake::{Frame, Peer};
use crate::nats::micro::Service;
use crate::sys::Waker;

/// Returns a connected store whose bucket is open, and which is the service `putex` of the ID `0f`.
fn service_at(fake: &FakeServer) -> NatsStore {
    let mut store = store_of(vec![fake.server()]).with_service(Service {
        name: "putex",
        id: "0f".to_owned(),
        version: "1.2.3",
        description: "web".to_owned(),
        metadata: Vec::new(),
        started: SystemTime::UNIX_EPOCH,
    });
    store.client.connect(sys::now().after(PATIENCE)).expect("the script accepts the client");
    store.bucket = Ok(opened());
    store
}

/// Waits for a hint until the script has ended.
fn wait(store: &mut NatsStore) -> Hint {
    let waker = Waker::new().expect("a descriptor");
    store.wait(waker.as_fd(), Some(sys::now().after(PATIENCE)))
}

/// Takes the subscriptions; returns the number of the first.
fn take_subscriptions(peer: &mut Peer) -> String {
    let subscriptions: Vec<Frame> = (0..9).map(|_| peer.frame()).collect();
    for frame in &subscriptions {
        // Without a queue group, so that all instances get each request.
        let [verb, subject, _] = &frame.words[..] else { panic!("{frame:?}") };
        assert!(verb == "SUB" && subject.starts_with("$SRV."), "{frame:?}");
    }
    subscriptions[0].words[2].clone()
}

#[test]
fn the_subscriptions_are_made_once_and_nothing_is_sent_while_nobody_requests_anything() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let number = take_subscriptions(peer);
        // It means nothing, so the wait goes on, and so does the next one.
        for _ in 0..3 {
            peer.send(&format!("MSG $SRV.SCHEMA {number} _INBOX.a 0\r\n\r\n"));
            peer.send("MSG putex.twin.locks.web 3 1\r\nx\r\n");
        }
        assert!(peer.is_waited_for(), "more was sent");
    });
    let mut store = service_at(&fake);
    for _ in 0..3 {
        assert!(matches!(wait(&mut store), Hint::Announced { .. }));
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
        for reply in ["$KV.locks.web", "$JS.API.STREAM.DELETE.KV_locks", "putex.twin.locks.web"] {
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
    while hint == Hint::StatusRequested {
        store.send_stats(&status());
        hint = wait(&mut store);
    }
    assert!(matches!(hint, Hint::Gone(_)), "{hint:?}");
    fake.finish();
}

/// The status of an agent.
fn status() -> AgentStatus {
    let text = r#"{"token":"h1","host":"h1","incarnation":"0f","version":"1.2.3",
        "state":"standby","state_seconds":1.0,"why":"","seat":null,"term":null,
        "valid_seconds":null,"priority":"1","failback_seconds":null,"candidate":true,
        "not_candidate_why":null,"store_up":true,"guard_up":true,"renewal_seconds":1.0,
        "failures":3,"confirmations":2}"#;
    serde_json::from_str(text).expect("a status")
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
        peer.send("MSG putex.twin.locks.web 3 1\r\nx\r\n");
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
    assert_eq!(wait(&mut store), Hint::StatusRequested);
    assert!(matches!(wait(&mut store), Hint::Announced { .. }));
    store.send_stats(&status());
    assert_eq!(wait(&mut store), Hint::StatusRequested);
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
        for _ in 1..9 {
            assert_eq!(peer.frame().words[0], "UNSUB");
        }
        // What was under way.
        peer.send(&ping.repeat(10));
        peer.send("MSG putex.twin.locks.web 3 1\r\nx\r\n");
        assert!(peer.is_waited_for(), "more was sent");
    });
    let mut store = service_at(&fake);
    assert!(matches!(wait(&mut store), Hint::Announced { .. }));
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
