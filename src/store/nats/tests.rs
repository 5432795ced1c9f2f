use super::*;

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
