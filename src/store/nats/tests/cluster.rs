//! The reports of servers on themselves, requested from a scripted server.

use super::*;

const REFUSED: [&str; 2] = ["$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.JSZ"];

/// Each question cost the whole time in which servers may answer.
#[test]
fn a_question_that_the_user_may_not_ask_ends_with_the_refusal() {
    let fake = FakeServer::once(|peer| {
        peer.accept_client();
        for subject in REFUSED {
            assert_eq!(peer.frame().words[1], subject);
            peer.send(&format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n"));
        }
    });
    let mut store = store_of(fake.beside_another());
    store.client.connect(sys::now().after(PATIENCE)).expect("the script accepts the client");
    // The script waits for the second question less long than for the answers to the first.
    assert_eq!(store.cluster_servers(2 * PATIENCE), []);
    fake.finish();
}
