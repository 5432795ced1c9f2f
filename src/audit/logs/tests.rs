use super::*;

const TIME: &str = "2026-11-25T10:00:00.000Z";

fn logs_of(lines: &[&str]) -> Logs {
    let mut logs = Logs::new("db");
    logs.names.push("h1.log".to_owned());
    for (number, line) in (1..).zip(lines) {
        logs.add(0, number, line).expect("it is not too much");
    }
    logs.finish();
    logs
}

fn active(host: &str, at: u64, term: u64) -> String {
    format!(
        "2026-11-25T10:00:{at:02}.000+00:00 {host} putex[7]: db: taking -> active: taken as \
             revision {term}, free to start"
    )
}

#[test]
fn the_lines_of_several_hosts_in_one_file_are_told_apart() {
    let lines = [
        active("h1", 1, 8),
        "2026-11-25T10:00:02.000+00:00 h1 putex[8]: db: the service is down, too late".to_owned(),
        active("h2", 3, 12),
        "2026-11-25T10:00:09.000+00:00 h2 kernel: db: the service is down, too late".to_owned(),
        "2026-11-25T10:00:09.000+00:00 h2 putex[7]: other: the service is down".to_owned(),
    ];
    let logs = logs_of(&lines.each_ref().map(|line| &**line));
    let ends: Vec<_> = logs.terms.iter().map(|term| (&*term.agent, term.until.is_some())).collect();
    assert_eq!(ends, [("(h1)", true), ("(h2)", true)]);
    assert_eq!((logs.lines, logs.untimed, logs.agents.len()), (4, 0, 2));
    assert_eq!(logs.name_of(&logs.terms[1]), "h1.log");
}

#[test]
fn lines_without_a_usable_time_are_counted() {
    let logs = logs_of(&[
        "putex: db: the service is down, too late",
        "Nov 25 10:00:00 h1 putex[7]: db: health check passed: a candidate",
        "putex: other: the service is down, too late",
        "nothing",
        "",
    ]);
    assert_eq!((logs.lines, logs.untimed, logs.untimed_events), (2, 2, 1));
    assert!(logs.terms.is_empty() && logs.span().is_none());
}

#[test]
fn a_holder_whose_log_is_missing_is_named() {
    let settings = "putex 0.3.0, agent h1, R 1 s, F 3, C 2, stop budget 1 s";
    let held = |by: &str| format!("{TIME} putex: db: the lock is held by {by}, revision 7");
    let logs = logs_of(&[
        &format!("{TIME} putex: db: {settings}"),
        &held("h1 on host x"),
        &held("h2 on host x"),
        &held("\u{1b}[2J"),
    ]);
    assert_eq!(logs.missing(), ["h2", "?[2J"]);
}

#[test]
fn the_key_is_found_in_a_line_wherever_it_is() {
    for (line, found) in [("x db: y", true), ("ddb", true), ("d b", false), ("", false)] {
        assert_eq!(contains(line.as_bytes(), b"db"), found, "{line}");
    }
}

#[test]
fn more_hosts_or_terms_than_fit_into_memory_are_refused() {
    let mut logs = Logs::new("db");
    logs.names.push(String::new());
    let last = (0..=HOSTS_MAX).map(|host| logs.add(0, 1, &active(&format!("h{host}"), 1, 8)));
    let refusal = last.last().expect("some").expect_err("it is too much");
    assert_eq!(refusal.text, "--log: more than 1000 hosts; write a part of the logs");
}
