use RecordState::{Active, Released, Taking};

use super::*;
use crate::audit::judge::judge;
use crate::core::{Incarnation, Record};

/// R 1 s, F 3, C 2: a validity of 2.97 s and a stop budget of 1.94 s.
fn lease(of: u128, term: Option<u64>, state: RecordState) -> Lease {
    Lease {
        incarnation: Incarnation(of),
        nonce: 1,
        host: format!("h{of}"),
        boot: "b".to_owned(),
        renewal: Duration::from_secs(1),
        failures: 3,
        confirmations: 2,
        lock_time: Duration::from_secs(3),
        grace: Duration::from_secs(2),
        term: term.map(Revision),
        state,
        priority: None,
        released_to: None,
    }
}

type Row = (u64, u64, u128, Option<u64>, RecordState);

/// Returns the records of rows: revision, milliseconds, agent, term, state.
fn records(rows: &[Row]) -> Records {
    let key_state = |(revision, at, of, term, state): &Row| {
        let token = if *state == Released { String::new() } else { format!("h{of}") };
        let record = Record { token, lease: Some(lease(*of, *term, *state)) };
        let state = KeyState { revision: Revision(*revision), value: KeyValue::Record(record) };
        (state, Duration::from_millis(*at))
    };
    let mut records = Records::default();
    records.add(0, &rows.iter().map(key_state).collect::<Vec<_>>());
    records
}

/// Returns number, beginning, whether it is known, and end of each term.
fn terms(rows: &[Row]) -> Vec<(u64, u128, bool, Option<u128>, End)> {
    let of = |it: Term| {
        let until = it.until.map(|until| until.as_millis());
        (it.number.expect("a number"), it.from.as_millis(), it.from_is_known, until, it.end)
    };
    records(rows).terms.into_iter().map(of).collect()
}

#[test]
fn a_term_is_from_its_first_active_record_until_its_release_or_by_the_rules() {
    let rows = [
        (5, 1000, 1, None, Active),
        (6, 2000, 1, Some(5), Active),
        (7, 2500, 1, Some(5), Released),
        (8, 2600, 2, None, Active),
        (9, 3600, 2, Some(8), Active),
        (20, 6700, 3, None, Taking),
        (21, 7700, 3, Some(20), Taking),
        (22, 8800, 3, Some(20), Active),
    ];
    let first = (5, 1000, true, Some(2500), End::Reported);
    let second = (8, 2600, true, Some(3600 + 2970 + 1940), End::ByRules);
    assert_eq!(terms(&rows), [first, second, (20, 8800, true, None, End::Unknown)]);
    let found = records(&rows);
    assert_eq!((found.revisions, found.plain, judge(&found.terms).overlaps.len()), (8, 0, 0));
    assert_eq!(found.terms[0].released, Some(7));
    // The first records are gone.
    assert_eq!(terms(&rows[1..2]), [(5, 2000, false, None, End::Unknown)]);
    assert_eq!(terms(&rows[5..7]), [], "no service runs in a term that is not confirmed");
}

#[test]
fn a_term_that_begins_earlier_than_the_record_before_allows_overlaps() {
    for (from, overlaps) in [(8400, 1), (8509, 1), (8510, 1), (8511, 0)] {
        let rows = [
            (8, 2600, 2, None, Active),
            (9, 3600, 2, Some(8), Active),
            (20, 6700, 3, None, Taking),
            (22, from, 3, Some(20), Active),
        ];
        let judgement = judge(&records(&rows).terms);
        assert_eq!(judgement.overlaps.len(), overlaps, "{from}");
    }
    // The lock was taken as if it had been free.
    let rows = [(9, 3600, 2, Some(8), Active), (20, 6700, 3, None, Active)];
    assert_eq!(judge(&records(&rows).terms).overlaps.len(), 1);
}

#[test]
fn a_holder_that_has_published_a_longer_lock_time_may_run_for_longer() {
    let paused = Lease { lock_time: Duration::from_secs(100), ..lease(1, None, Active) };
    assert_eq!(times(&paused).lock_time, Duration::from_secs(99));
    assert_eq!(times(&lease(1, None, Active)).lock_time, Duration::from_millis(2970));
}

#[test]
fn another_instance_of_an_agent_may_adopt_its_term() {
    let adopted = |host: &str| {
        let mut second = lease(2, Some(8), Active);
        second.host = host.to_owned();
        let record = |lease: Lease| Record { token: "one".to_owned(), lease: Some(lease) };
        let of = |revision, lease, at| {
            let value = KeyValue::Record(record(lease));
            (KeyState { revision: Revision(revision), value }, Duration::from_secs(at))
        };
        let mut records = Records::default();
        records.add(3, &[of(8, lease(1, None, Active), 1), of(9, second, 2)]);
        records.terms
    };
    let one = adopted("h1");
    assert_eq!((one.len(), one[0].seat, &*one[0].agent), (1, 3, "one on h1"));
    assert_eq!(adopted("h9").len(), 2);
}

#[test]
fn what_says_no_more_than_a_token_is_counted() {
    let of = |token: &str| {
        let record = Record { token: token.to_owned(), lease: None };
        (KeyState { revision: Revision(1), value: KeyValue::Record(record) }, Duration::ZERO)
    };
    let marker = KeyState { revision: Revision(1), value: KeyValue::Marker };
    let mut records = Records::default();
    records.add(0, &[of("h1"), of(""), of("h2"), (marker, Duration::ZERO)]);
    assert_eq!(records, Records { terms: Vec::new(), revisions: 4, plain: 2 });
}
