//! Logs that do not tell everything, although no overlap shows in them.

use crate::Operator;

/// The settings line of an agent.
fn settings(token: &str) -> String {
    format!("putex 0.3.0, agent {token}, R 500 ms, F 3, C 2, stop budget 960 ms")
}

/// The lines of an agent that has the lock from 12:00:`from` on, and is told to end at 12:00:`to`.
fn holder(token: &str, from: u32, to: u32, term: u64, release: u64) -> String {
    [
        (from - 1, settings(token)),
        (from - 1, "looking -> standby: the bucket is open".to_owned()),
        (from, "standby -> taking: from nobody (the key never existed)".to_owned()),
        (from, format!("taking -> active: taken as revision {term}, free to start")),
        (to, "active -> stopping: SIGTERM: ending".to_owned()),
        (to, "the service is down, 900 ms before it had to be".to_owned()),
        (to, format!("the lock is released, revision {release}")),
    ]
    .map(|(at, text)| format!("2026-11-25T12:00:{at:02}.000Z putex: db: {text}\n"))
    .concat()
}

/// Audits logs; returns the exit status and the last line.
fn result(logs: &[(&str, &str)]) -> (Option<i32>, String) {
    let operator = Operator::new();
    let mut words = Vec::new();
    for (name, text) in logs {
        words.push("--log".to_owned());
        words.push(operator.0.file(name, text, 0o600).display().to_string());
    }
    let run = operator.audit(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(run.said, "", "{run:?}");
    let doubts: Vec<_> = run.shown.lines().filter(|it| it.starts_with("not known: ")).collect();
    (run.status, doubts.join("; "))
}

/// In the bucket of h2 the key was written after others: its numbers are larger than those of the
/// release in the bucket of h1, though both had a lock at once.
#[test]
fn agents_that_have_not_had_one_bucket_are_not_said_to_have_had_no_overlap() {
    let logs =
        [("h1.log", &*holder("h1", 10, 40, 2, 90)), ("h2.log", &*holder("h2", 11, 39, 300, 390))];
    let (status, doubts) = result(&logs);
    assert_eq!(status, Some(75), "{doubts}");
    assert!(doubts.contains("or the agents have not had one bucket"), "{doubts}");
    let apart =
        [("h1.log", &*holder("h1", 10, 20, 2, 40)), ("h2.log", &*holder("h2", 25, 39, 300, 390))];
    assert_eq!(result(&apart), (Some(0), String::new()));
}

#[test]
fn a_clock_that_goes_back_makes_no_term_shorter() {
    let whole = holder("h1", 30, 50, 2, 90);
    let active: String = whole.lines().take(4).map(|line| format!("{line}\n")).collect();
    // It is restarted with a clock that is behind.
    let again = format!("2026-11-25T12:00:01.000Z putex: db: {}\n", settings("h1"));
    let again = again + "2026-11-25T12:00:01.000Z putex: db: the lock is held by h2, revision 9\n";
    let logs = [("h1.log", &*(active + &again)), ("h2.log", &*holder("h2", 31, 50, 5, 90))];
    let (status, doubts) = result(&logs);
    assert!(matches!(status, Some(1 | 75)), "{doubts}");
}

/// The files of `--log h1.log,h2.log` are parts of one log.
#[test]
fn logs_of_two_hosts_that_are_given_as_parts_of_one_are_told() {
    let operator = Operator::new();
    let one = operator.0.file("h1.log", &holder("h1", 10, 20, 2, 40), 0o600);
    let two = operator.0.file("h2.log", &holder("h2", 25, 39, 300, 390), 0o600);
    let run = operator.audit(&["--log", &format!("{},{}", one.display(), two.display())]);
    let says =
        "their lines are mixed; if its parts are logs of two hosts, write --log before each\n";
    assert!(run.shown.contains(says), "{run:?}");
}

#[test]
fn a_log_without_a_line_that_is_understood_is_named() {
    let other = holder("h1", 10, 40, 2, 90).replace("putex: db: ", "1 - - putex db ");
    for text in ["", "nothing\n", &other] {
        let (status, doubts) =
            result(&[("h1.log", text), ("h2.log", &holder("h2", 11, 39, 300, 390))]);
        assert_eq!(status, Some(75), "{doubts}");
        assert!(doubts.contains("h1.log has no line about the key"), "{doubts}");
    }
}

/// Two hosts of one name write into one file, and the lines in which the agents name themselves
/// are gone.
#[test]
fn a_term_whose_end_is_missing_is_told() {
    let take = |at: u32, number: u64, term: u64| {
        format!(
            "2026-11-25T12:{at:02}:09.000Z web putex[{number}]: db: taking -> active: taken as \
             revision {term}, free to start\n"
        )
    };
    let (status, doubts) = result(&[("web.log", &(take(1, 5, 2) + &take(6, 9, 5000)))]);
    assert_eq!(status, Some(75), "{doubts}");
    assert!(doubts.contains("lines are missing where a term has ended"), "{doubts}");
}
