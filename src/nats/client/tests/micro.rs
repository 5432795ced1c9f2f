//! Requests to a micro service, and the rights that it lacks.

use super::*;

const HINT: &str = "putex.hint.a";

/// A user who may publish below $SRV must not have an agent miss a hint about its lock.
#[test]
fn requests_to_a_micro_service_displace_no_hint_during_a_request() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let reply = peer.frame().reply().to_owned();
        let flood = format!("MSG $SRV.PING 3 _INBOX.a 1000\r\n{}\r\n", "x".repeat(1000));
        peer.send(&flood.repeat(300));
        peer.send(&format!("MSG {HINT} 2 1\r\nx\r\n"));
        peer.send(&flood.repeat(300));
        peer.send(&format!("MSG {reply} 1 2\r\nhi\r\n"));
        peer.rest();
    });
    let mut client = connected(&fake);
    assert_eq!(request(&mut client).expect("a reply").payload, b"hi");
    let held = client.link.as_ref().expect("connected").held_bytes();
    assert!(held < 500_000, "{held}");
    let mut received = Vec::new();
    while let ClientEvent::Message(message) = event_now(&mut client) {
        assert!(message.subject == HINT || message.reply.as_deref() == Some("_INBOX.a"));
        received.push(message.subject);
    }
    let (hints, others): (Vec<_>, Vec<_>) = received.iter().partition(|it| *it == HINT);
    assert_eq!((hints.len(), others.len()), (1, 255));
    drop(client);
    fake.finish();
}

/// Each refusal names another subject; a connection has three of them, and a reply any number.
#[test]
fn that_a_micro_service_lacks_a_right_is_said_once() {
    let script = |last: &'static str| {
        move |peer: &mut Peer| {
            peer.accept_client();
            for subject in ["$SRV.PING", "$SRV.PING.putex", "$SRV.INFO"] {
                let error = "Permissions Violation for Subscription to";
                peer.send(&format!("-ERR '{error} \"{subject}\"'\r\n"));
            }
            for reply in ["_INBOX.a", "_INBOX.b"] {
                peer.send(&format!("-ERR 'Permissions Violation for Publish to \"{reply}\"'\r\n"));
            }
            peer.send(&format!("-ERR 'Permissions Violation for Subscription to \"{last}\"'\r\n"));
            peer.rest();
        }
    };
    let fake = FakeServer::new(vec![Box::new(script("hint.a")), Box::new(script("hint.b"))]);
    let mut client = connected(&fake);
    let said = |client: &mut Client, last: &str| {
        while !client.warned.iter().any(|it| it.contains(last)) {
            assert_eq!(event_now(client), ClientEvent::Elapsed);
        }
        client.warned.to_vec()
    };
    let all = said(&mut client, "hint.a");
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].contains("$SRV.>") && all[1].contains("allow_responses"), "{all:?}");
    // Nor after the next login.
    client.leave("a test");
    client.connect(give_up()).expect("the script accepts the client");
    assert_eq!(said(&mut client, "hint.b").len(), 4);
    drop(client);
    fake.finish();
}
