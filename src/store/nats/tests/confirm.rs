//! What has been read is confirmed by writes that are sent at once.

use super::*;

#[test]
fn entries_are_confirmed_if_each_of_them_is() {
    let keys = [("lock.a.g1", Revision(5)), ("lock.a.g2", Revision(6)), ("lock.a.g3", Revision(7))];
    let ack = |seq: u64| format!(r#"{{"stream":"KV_locks","seq":{seq}}}"#);
    let moved = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"}}"#;
    let confirm = |answers: [&str; 3]| {
        with_answers(&answers, |store, deadline| {
            store.settings.for_locks = true;
            store.bucket = Ok(opened());
            store.confirm(&keys, deadline)
        })
    };
    let acks = [8, 9, 10].map(ack);
    let [first, second, third] = [0, 1, 2].map(|at| &*acks[at]);
    assert_eq!(confirm([first, second, third]), Written::Stored(Revision(10)));
    for answers in [[moved, second, third], [first, moved, third], [first, second, moved]] {
        assert_eq!(confirm(answers), Written::Moved(Some(Revision(9))), "{answers:?}");
    }
}
