//! Which server is taken, left and given up.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use crossbeam_channel::Sender;

use super::*;
use crate::core::StoreErrorKind;
use crate::nats::RefuseAlone;
use crate::nats::auth::Secret;

/// A client with this order of servers.
fn client_in_order<const N: usize>(fakes: [&FakeServer; N]) -> Client {
    client_of(fakes.map(FakeServer::server).to_vec(), INTERVAL)
}

#[test]
fn wrong_password() {
    let refuse = |peer: &mut Peer| {
        peer.send(&format!("INFO {}\r\n", INFO.replace('}', ",\"auth_required\":true}")));
        let connect = peer.take_handshake();
        assert!(connect.contains("\"user\":\"u\"") && connect.contains("\"pass\":\"wrong\""));
        peer.send("-ERR 'Authorization Violation'\r\n");
    };
    let fake = FakeServer::once(refuse);
    let mut client = client_of(vec![fake.server_as("u:wrong@")], INTERVAL);
    // The server is not asked again: the script ends with its refusal.
    let Err(StoreError { kind: StoreErrorKind::Credentials, text }) = client.connect(give_up())
    else {
        panic!("not refused");
    };
    let hint = "Authorization Violation (correct the user or the password)";
    assert!(text.ends_with(&format!(": the server says: {hint}")), "{text}");
    assert!(!text.contains("wrong"));
    fake.finish();
}

#[test]
fn the_fallback_is_for_servers_without_credentials() {
    let fake = FakeServer::once(|peer| {
        assert!(peer.accept_client().contains("\"auth_token\":\"t\""));
    });
    let token = Login::Token(Secret::Given("t".to_owned()));
    let options = ConnectOptions::new(token, "test".to_owned(), INTERVAL);
    let mut client = Client::new(vec![fake.server()], options);
    client.connect(give_up()).expect("let in");
    fake.finish();
}

#[test]
fn servers_of_no_use() {
    let cases: [(&str, &str); 6] = [
        ("INFO {\"headers\":false}\r\n", "it does not support headers"),
        (
            "INFO {\"headers\":true,\"tls_required\":true}\r\nPING\r\n",
            "it said more than INFO before TLS began",
        ),
        ("INFO {\r\n", "not the NATS protocol: INFO is not JSON"),
        ("PING\r\n", "it does not begin with INFO: not a NATS server"),
        (
            "-ERR 'maximum connections exceeded'\r\n",
            "the server says: maximum connections exceeded",
        ),
        ("", "is it nats-server? one with handshake_first needs --tlsfirst"),
    ];
    for (greeting, reason) in cases {
        let fake = FakeServer::once(move |peer| peer.send(greeting));
        let mut client = client_of(vec![fake.server()], INTERVAL);
        let error = client.connect(give_up()).expect_err("of no use");
        assert!(error.to_string().ends_with(reason), "{error}");
        fake.finish();
    }
}

/// Agents stayed connected to such a server, which refused them, while the cluster was there.
#[test]
fn a_server_in_no_cluster_is_left_for_one_that_is_in_it() {
    let with = |fields: &str| INFO.replace('}', &format!(",\"jetstream\":true{fields}}}"));
    let alone = || {
        let info = with("");
        FakeServer::once(move |peer| peer.send(&format!("INFO {info}\r\n")))
    };
    let in_cluster = with(",\"cluster\":\"C\"");
    let member = FakeServer::once(move |peer| drop(peer.accept_client_as(&in_cluster)));
    let mut options = ConnectOptions::new(Login::None, "test".to_owned(), INTERVAL);
    options.refuse_alone = RefuseAlone::Always;
    let client_of = |servers: Vec<Server>| {
        let mut client = Client::new(servers.clone(), options.clone());
        client.dialer.pool = Candidates::new(servers, INTERVAL);
        client
    };
    let stray = alone();
    let mut client = client_of(vec![stray.server(), member.server()]);
    client.connect(give_up()).expect("one of them lets it in");
    assert_eq!(client.server().and_then(|server| server.cluster.as_deref()), Some("C"));
    stray.finish();
    member.finish();
    let stray = alone();
    let refused = client_of(vec![stray.server()]).connect(give_up()).expect_err("no other");
    assert_eq!(refused.kind, StoreErrorKind::Unsafe, "{refused}");
    stray.finish();
}

/// An agent that names one server of a cluster believed the empty server that took its place.
#[test]
fn a_server_in_no_cluster_does_not_take_the_place_of_one_that_was_in_it() {
    let info = |cluster: &str| INFO.replace('}', &format!(",\"jetstream\":true{cluster}}}"));
    let (member, stray) = (info(",\"cluster\":\"C\""), info(""));
    let fake = FakeServer::new(vec![
        Box::new(move |peer: &mut Peer| drop(peer.accept_client_as(&member))),
        Box::new(move |peer: &mut Peer| peer.send(&format!("INFO {stray}\r\n"))),
    ]);
    let mut options = ConnectOptions::new(Login::None, "test".to_owned(), INTERVAL);
    options.refuse_alone = RefuseAlone::AfterCluster;
    let mut client = Client::new(vec![fake.server()], options);
    client.connect(give_up()).expect("let in");
    gone(&event_now(&mut client));
    let refused = client.connect(give_up()).expect_err("another bucket");
    assert_eq!(refused.kind, StoreErrorKind::Unsafe, "{refused}");
    fake.finish();
}

#[test]
fn a_refused_inbox_is_a_matter_of_credentials() {
    let fake = FakeServer::once(|peer| {
        peer.send(&format!("INFO {INFO}\r\n"));
        peer.take_handshake();
        peer.send("-ERR 'Permissions Violation for Subscription to \"_INBOX.x.*\"'\r\nPONG\r\n");
    });
    let mut client = client_of(vec![fake.server()], INTERVAL);
    let refused = client.connect(give_up());
    assert!(
        matches!(refused, Err(StoreError { kind: StoreErrorKind::Credentials, .. })),
        "{refused:?}"
    );
    fake.finish();
}

#[test]
fn no_server_answers_by_the_deadline() {
    // A server that accepts, by the kernel's backlog, and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = mute.local_addr().expect("bound").port();
    let servers = Server::parse_list(&format!("127.0.0.1:{port}")).expect("an address");
    let mut client = client_of(servers, INTERVAL);
    let deadline = in_ms(400);
    let Err(StoreError { kind: StoreErrorKind::Unreachable, text }) = client.connect(deadline)
    else {
        panic!("reached");
    };
    assert!(sys::now() >= deadline);
    assert!(text.contains("it sent no INFO in time"), "{text}");
    drop(mute);
    // The attempt at that server went on until the listener was dropped.
    let reset = client.connect(give_up()).expect_err("nobody listens");
    assert!(reset.to_string().contains("connection reset by peer"), "{reset}");
    let refused = client.connect(give_up()).expect_err("nobody listens");
    assert!(refused.to_string().ends_with("connection refused"), "{refused}");
}

#[test]
fn one_dead_server_of_two_costs_nothing() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = dead.local_addr().expect("bound").port();
    drop(dead);
    let script = |peer: &mut Peer| {
        peer.accept_client();
        peer.answer("ok");
    };
    let fake = FakeServer::new(vec![Box::new(script), Box::new(script)]);
    let mut servers = Server::parse_list(&format!("127.0.0.1:{port}")).expect("an address");
    servers.push(fake.server());
    let mut client = client_of(servers, INTERVAL);
    for _ in 0..2 {
        // The fake one has a pause after the first connection, which was short.
        let until = give_up();
        while client.connect(until).is_err() {
            assert!(sys::now() < until, "{:?}", client.reason);
        }
        assert_eq!(request(&mut client).expect("a reply").payload, b"ok");
        gone(&wait(&mut client));
    }
    fake.finish();
}

#[test]
fn a_lame_duck_is_left_for_an_advertised_server() {
    let other = FakeServer::once(|peer| {
        assert!(peer.accept_client().contains("\"user\":\"u\""), "credentials go along");
        peer.answer("other");
    });
    let address = other.server().to_string();
    let lame = FakeServer::once(move |peer| {
        peer.accept_client();
        let reply = peer.frame().reply().to_owned();
        // The second INFO advertises nobody, and withdraws nobody.
        for more in [format!(",\"connect_urls\":[\"{address}\"]}}"), ",\"ldm\":true}".to_owned()] {
            peer.send(&format!("INFO {}\r\n", INFO.replace('}', &more)));
        }
        peer.send(&format!("MSG {reply} 1 4\r\nlame\r\n"));
        assert!(peer.rest().is_empty());
    });
    let mut client = client_of(vec![lame.server_as("u:p@")], INTERVAL);
    client.connect(give_up()).expect("let in");
    assert_eq!(request(&mut client).expect("a reply").payload, b"lame");
    assert!(gone(&wait(&mut client)).contains("about to shut down"));
    client.connect(give_up()).expect("let in");
    assert_eq!(request(&mut client).expect("a reply").payload, b"other");
    lame.finish();
    other.finish();
}

#[test]
fn a_server_without_an_answer_is_left_and_connected_to_again() {
    let script = |peer: &mut Peer| {
        peer.accept_client();
        peer.rest();
    };
    let fake = FakeServer::new(vec![Box::new(script), Box::new(script)]);
    let mut client = client_of(fake.beside_another(), INTERVAL);
    client.connect(give_up()).expect("let in");
    // Requests that were not answered before this connection do not count.
    let earlier = sys::now().before(2 * INTERVAL);
    client.note_answer(false, earlier);
    assert!(client.is_connected(), "not for too long yet");
    client.note_answer(true, sys::now());
    client.link.as_mut().expect("connected").opened_at = earlier;
    client.note_answer(false, earlier);
    assert!(gone(&event_now(&mut client)).ends_with("nothing was answered for too long"));
    client.connect(give_up()).expect("let in again");
    drop(client);
    fake.finish();
}

/// The first address accepts connections and says nothing, or refuses the login.
#[test]
fn a_name_whose_first_address_is_of_no_use() {
    for refuses in [false, true] {
        let accept = |peer: &mut Peer| drop(peer.accept_client());
        let (good, port, bad) = loop {
            let good = FakeServer::new(vec![Box::new(accept), Box::new(accept)]);
            let port = good.server().port;
            // Another process may have that port there.
            if let Ok(bad) = TcpListener::bind(("127.0.0.2", port)) {
                break (good, port, bad);
            }
        };
        let refusal = b"-ERR 'Authorization Violation'\r\n";
        let refuser = refuses.then(|| {
            let bad = bad.try_clone().expect("a descriptor");
            thread::spawn(move || {
                let (mut peer, _) = bad.accept().expect("a client");
                peer.write_all(refusal).expect("sent");
            })
        });
        let options = ConnectOptions::new(Login::None, "test".to_owned(), INTERVAL);
        let servers = Server::parse_list(&format!("nats.invalid:{port}")).expect("a URL");
        let mut client = Client::new(servers, options);
        let [first, second] = ["127.0.0.2", "127.0.0.1"].map(|it| it.parse().expect("one"));
        client.dialer.pool.resolved(1, &[first, second], sys::now());
        client.connect(give_up()).expect("by the second address");
        if refuses {
            let faults = client.dialer.pool.faults();
            assert!(faults.starts_with(&format!("nats.invalid:{port} (127.0.0.2): ")), "{faults}");
        }
        // Once the leader has answered there, that address is the first.
        client.note_answer(true, sys::now());
        client.link = None;
        drop(bad);
        client.connect(give_up()).expect("by the second address again");
        assert_eq!(client.dialer.pool.faults(), "no server has answered yet");
        good.finish();
        refuser.into_iter().for_each(|thread| thread.join().expect("it ended"));
    }
}

/// A script that lets no client in, until the test has ended.
fn hung_server() -> (FakeServer, Sender<()>) {
    let (done, wait) = bounded::<()>(0);
    let fake = FakeServer::once(move |peer| {
        peer.send(&format!("INFO {INFO}\r\n"));
        peer.take_handshake();
        let _ = wait.recv();
    });
    (fake, done)
}

#[test]
fn servers_that_hang_after_info_are_left_for_another() {
    let [(hung, done), (hung_too, done_too)] = [hung_server(), hung_server()];
    let good = FakeServer::once(|peer| {
        peer.accept_client();
        peer.answer("good");
    });
    let mut client = client_in_order([&hung, &hung_too, &good]);
    client.connect(give_up()).expect("let in by the third");
    assert_eq!(request(&mut client).expect("a reply").payload, b"good");
    drop((done, done_too));
    hung.finish();
    hung_too.finish();
    good.finish();
}

#[test]
fn a_slow_login_goes_on_beside_that_at_another_server() {
    for hangs in [true, false] {
        let (asked, wait) = bounded::<()>(1);
        let slow = FakeServer::once(move |peer| {
            peer.send(&format!("INFO {INFO}\r\n"));
            peer.take_handshake();
            wait.recv().expect("the other is asked");
            peer.send("PONG\r\n");
            peer.answer("slow");
        });
        let (done, ended) = bounded::<()>(0);
        let other = FakeServer::once(move |peer| {
            peer.send(&format!("INFO {INFO}\r\n"));
            peer.take_handshake();
            asked.send(()).expect("it waits");
            if hangs {
                let _ = ended.recv();
            }
        });
        let mut client = client_in_order([&slow, &other]);
        client.connect(give_up()).expect("let in by the first");
        assert_eq!(request(&mut client).expect("a reply").payload, b"slow");
        drop(done);
        slow.finish();
        other.finish();
    }
}

#[test]
fn a_slow_login_ends_at_the_deadline() {
    let (hung, done) = hung_server();
    let mut client = client_in_order([&hung]);
    let deadline = in_ms(1000);
    let error = client.connect(deadline).expect_err("of no use");
    assert!(sys::now() >= deadline);
    assert!(error.to_string().contains("did not answer CONNECT"), "{error}");
    drop(done);
    hung.finish();
}

/// The URL of one server of a cluster is enough: with what that server advertises, at the login or
/// later, it is no only server, which would be given eight times as long.
#[test]
fn a_server_that_advertises_others_is_not_the_only_one() {
    let advertise = |urls: &str| INFO.replace('}', &format!(",\"connect_urls\":[{urls}]}}"));
    let cases = [(true, advertise("\"127.0.0.1:1\"")), (false, INFO.to_owned())];
    for (at_login, first) in cases {
        let later = advertise("\"127.0.0.1:1\"");
        let fake = FakeServer::once(move |peer| {
            peer.accept_client_as(&first);
            if !at_login {
                peer.send(&format!("INFO {later}\r\n"));
            }
            peer.rest();
        });
        let mut client = client_of(vec![fake.server()], INTERVAL);
        client.connect(give_up()).expect("let in");
        assert_eq!(client.has_another_server(), at_login);
        while !client.has_another_server() {
            assert_eq!(event_now(&mut client), ClientEvent::Elapsed);
        }
        drop(client);
        fake.finish();
    }
}

/// A server that hangs is not waited for again before the others.
#[test]
fn a_server_that_was_silent_during_a_request_is_not_the_next() {
    let silent = FakeServer::new(vec![
        Box::new(|peer| {
            peer.accept_client();
            peer.rest();
        }),
        Box::new(|peer| drop(peer.accept_client())),
    ]);
    let good = FakeServer::once(|peer| drop(peer.accept_client()));
    let mut client = client_of([&silent, &good].map(FakeServer::server).to_vec(), SHORT);
    client.connect(give_up()).expect("let in");
    client.note_answer(true, sys::now());
    let link = client.link.as_mut().expect("connected");
    link.opened_at = sys::now().before(Duration::from_secs(10));
    let why = unanswered(request_by(&mut client, in_ms(1000)));
    assert_eq!(why, "connection lost: nothing was heard during a request");
    client.connect(give_up()).expect("let in by the other");
    assert_eq!(client.link.as_ref().map(|link| link.candidate), Some(2));
    good.finish();
}
