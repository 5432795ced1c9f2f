//! The frames that a client sends while it hears nothing, and when it leaves a silent server.

use super::*;

/// The only one is left after eight times the shortest limit of 250 ms, and one of two when it has
/// not answered a PING for as long as it was silent before.
#[test]
fn a_silent_server_is_asked_and_then_left() {
    let interval = Duration::from_millis(240);
    for (is_only, least) in [(false, 2 * interval), (true, Duration::from_secs(2))] {
        let fake = FakeServer::once(move |peer| {
            peer.accept_client();
            peer.ping();
            // A client of two servers may have left by then.
            if is_only {
                peer.send("MSG hint.a 2 1\r\nx\r\n");
                peer.ping();
            }
            assert_eq!(peer.rest(), "");
        });
        let servers = if is_only { vec![fake.server()] } else { fake.beside_another() };
        let mut client = client_of(servers.clone(), interval);
        client.connect(give_up()).expect("let in");
        client.dialer.pool = Candidates::new(servers, interval);
        if is_only {
            assert!(matches!(wait(&mut client), ClientEvent::Message(_)));
        }
        let received_at = client.link.as_ref().expect("connected").received_at;
        let event = wait(&mut client);
        assert!(gone(&event).contains("nothing was heard for "), "{event:?}");
        assert!(sys::now().since(received_at) >= least, "{is_only}");
        fake.finish();
    }
}

/// The first copy was sent before the servers had a leader.
#[test]
fn a_query_is_repeated_until_its_answer() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let first = peer.frame();
        assert_eq!(first.words[..2], ["PUB", "$JS.API.INFO"]);
        assert_eq!(peer.any_frame().words, first.words);
        peer.ping();
        peer.reply_to(&first, "hi");
        peer.answer("next");
    });
    let mut client = client_of(vec![fake.server()], SHORT);
    client.connect(give_up()).expect("let in");
    let query = Outgoing { subject: "$JS.API.INFO", repeats: true, ..Outgoing::default() };
    assert_eq!(client.request(&query, give_up()).expect("a reply").payload, b"hi");
    assert_eq!(client.request(&query, give_up()).expect("one").payload, b"next");
    fake.finish();
}

/// A server that was slow under the load of ten thousand clients got more copies the slower it
/// was, and did not recover.
#[test]
fn the_copies_of_a_query_become_rarer() {
    const COPIES: u32 = 3;
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        let first = peer.frame();
        for _ in 0..COPIES {
            while peer.any_frame().words != first.words {}
        }
        peer.reply_to(&first, "enough");
    });
    let mut client = client_of(vec![fake.server()], SHORT);
    client.connect(give_up()).expect("let in");
    let query = Outgoing { subject: "$JS.API.INFO", repeats: true, ..Outgoing::default() };
    let began = sys::now();
    client.request(&query, give_up()).expect("a reply");
    // At a fixed rate they would have been sent in 300 ms.
    assert!(sys::now().since(began) >= Duration::from_millis(100 + 200 + 400));
    fake.finish();
}

/// A write is sent once. A server that answers PING lives, and one that does not is left at
/// the deadline of the request, if there is another: twice the liveness check of a wait would be
/// too late. The only server is not left so soon.
#[test]
fn a_request_without_an_answer_asks_whether_the_server_lives() {
    for (lives, is_only) in [(true, false), (false, true), (false, false)] {
        let fake = FakeServer::once(move |peer| {
            peer.accept_client();
            assert_eq!(peer.frame().words[0], "HPUB");
            peer.ping();
            if lives {
                peer.send("PONG\r\n");
            }
            assert_eq!(peer.rest(), "");
        });
        let servers = if is_only { vec![fake.server()] } else { fake.beside_another() };
        let mut client = client_of(servers, SHORT);
        client.connect(give_up()).expect("let in");
        let is_kept = lives || is_only;
        let lost = "connection lost: nothing was heard during a request";
        let due = if is_kept { NO_REPLY } else { lost };
        assert_eq!(unanswered(request_by(&mut client, in_ms(1000))), due, "{lives}, {is_only}");
        assert_eq!(client.is_connected(), is_kept, "{lives}, {is_only}");
        drop(client);
        fake.finish();
    }
}
