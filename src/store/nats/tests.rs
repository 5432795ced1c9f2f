use super::*;
use crate::nats::fake::FakeServer;
use crate::nats::{Login, bucket};

#[test]
fn the_header_of_a_compare_and_set_is_never_empty_and_spelt_as_the_server_spells_it() {
    for (revision, text) in [(0, "0"), (7, "7"), (u64::MAX, "18446744073709551615")] {
        let expected = Expected::new(Revision(revision), "KV_locks");
        assert_eq!(
            expected.headers(),
            [
                ("Nats-Expected-Last-Subject-Sequence", text),
                ("Nats-Expected-Stream", "KV_locks")
            ]
        );
    }
}

/// Asks scripted servers for the bucket, which answer that in turn.
fn find_or_make(answers: [&str; 3]) -> Result<bool, OpenError> {
    let answers = answers.map(str::to_owned);
    let fake = FakeServer::once(move |peer| {
        peer.accept_client();
        for answer in answers {
            peer.answer(&answer);
        }
    });
    let patience = Duration::from_secs(5);
    let name = "test".to_owned();
    let client = Client::new(vec![fake.server()], Login::None, name, patience);
    let settings = NatsSettings {
        bucket: "locks".to_owned(),
        key: "web".to_owned(),
        replicas: 1,
        allow_memory: false,
        api: None,
    };
    let mut store = NatsStore::new(client, settings);
    let deadline = sys::now().after(patience);
    store
        .client
        .connect(deadline)
        .expect("the script lets us in");
    let found = store.find_or_make(deadline);
    fake.finish();
    found.map(|(_, made)| made)
}

/// nats-server 2.9 may say so while it makes that very stream for somebody else.
#[test]
fn subjects_that_overlap_may_be_those_of_the_bucket_itself() {
    let none = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
    let overlap = r#"{"error":{"code":400,"err_code":10065,"description":"subjects overlap"}}"#;
    let config = bucket::create("locks", 1);
    let stands = format!(
        r#"{{"config":{config},"created":"2026-11-22T07:00:00Z","state":{{"last_seq":0}}}}"#
    );
    let found = find_or_make([none, overlap, &stands]);
    assert!(!found.expect("the bucket"), "another made it");
    let Err(OpenError::Unsafe(text)) = find_or_make([none, overlap, none]) else {
        panic!("another stream has its subjects");
    };
    assert_eq!(
        text,
        "creating the bucket: KV_locks: subjects overlap (error 10065)"
    );
}
