use super::*;
use crate::audit::event::Forms;
use crate::audit::judge::end_by_rules;

const SETTINGS: &str = "putex 0.3.0, agent h1, R 1 s, F 3, C 2, stop budget 1 s";

/// Reads lines, each with the second when it was written.
fn read(lines: &[(u64, &str)]) -> (AgentLog, Vec<Term>) {
    let (mut log, forms) = (AgentLog::new(0, 0, ""), Forms::new());
    for (number, (at, text)) in (1..).zip(lines) {
        log.add(Duration::from_secs(*at), 3, number, forms.event(text));
    }
    let terms = log.finish();
    (log, terms)
}

/// Number, beginning, whether it is known, end, and how it is known.
type Row = (Option<u64>, u64, bool, Option<u64>, End);

fn terms(lines: &[(u64, &str)]) -> Vec<Row> {
    let seconds = |it: Duration| it.as_secs();
    let of =
        |it: Term| (it.number, seconds(it.from), it.from_is_known, it.until.map(seconds), it.end);
    read(lines).1.into_iter().map(of).collect()
}

/// An agent that takes a free lock, and has it from 13 on as term 8.
const ACTIVE: [(u64, &str); 4] = [
    (10, SETTINGS),
    (11, "looking -> standby: the bucket is open"),
    (12, "standby -> taking: from nobody (released on host h2)"),
    (13, "taking -> active: taken as revision 8, free to start"),
];

fn after_active(lines: &[(u64, &'static str)]) -> Vec<(u64, &'static str)> {
    [&ACTIVE[..], lines].concat()
}

#[test]
fn a_term_is_from_the_line_that_allows_the_start_until_the_first_that_says_down() {
    let lines = after_active(&[
        (14, "the service runs here, term 8"),
        (20, "active -> stopping: SIGTERM: ending"),
        (21, "the service is down, 2 s before it had to be"),
        (22, "the lock is released, revision 12"),
        (23, "stopping -> standby: down, 1 s before it had to be"),
    ]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(21), End::Reported)]);
    let (log, of_log) = read(&lines);
    let Term { agent, why, released, take, times, .. } = &of_log[0];
    assert_eq!((&**agent, &**why, *released), ("h1", "SIGTERM: ending", Some(12)));
    assert!(take.is_some_and(|take| take.released && take.stood.is_zero()));
    assert_eq!(times.map(Times::sum), Some(Duration::from_secs(4)));
    assert_eq!((log.gaps, log.is_mixed, log.others.len()), (0, false, 0));
}

#[test]
fn a_lock_that_is_taken_from_another_counts_from_the_confirmation_on() {
    let lines = [
        (10, SETTINGS),
        (11, "looking -> standby: the bucket is open"),
        (11, "the lock is held by h3, revision 5"),
        (20, "standby -> taking: from h2 on host x, not renewed for 3.03 s"),
        (20, "taking -> confirming: taken as revision 8, start in 2 s"),
        (22, "confirming -> active: any holder before had 2 s to stop"),
    ];
    assert_eq!(terms(&lines), [(Some(8), 22, true, None, End::Unknown)]);
    let (log, of_log) = read(&lines);
    let take = of_log[0].take.expect("a take");
    assert_eq!((take.at.as_secs(), take.released), (20, false));
    assert_eq!((take.stood.as_millis(), take.confirmed_for.as_millis()), (3030, 2000));
    assert_eq!(log.others, ["h3", "h2"]);
    // One that is lost before it is confirmed has no service.
    let lost = (21, "confirming -> standby: lost: the store has rolled back");
    assert_eq!(terms(&[&lines[..5], &[lost]].concat()), []);
}

#[test]
fn the_guard_ends_a_term_when_the_agent_is_frozen_or_dead() {
    let stopped = (21, "the service is down, 468 ms before it had to be");
    let lines = after_active(&[
        (20, "the lock has run out: the guard stops the service"),
        stopped,
        (30, "active -> stopping: no renewal was acknowledged within 1.485 s"),
        (31, "stopping -> standby: known to be down 2.556 s after it had to be"),
    ]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(21), End::Reported)]);
    assert_eq!(read(&lines).1[0].why, lines[4].1);
    // Killed, and never started again.
    let gone = (20, "the lock has run out and the agent is gone: the guard stops the service");
    assert_eq!(read(&after_active(&[gone, stopped])).1[0].why, gone.1);
    // Without that line the agent tells why.
    let unsaid = [&ACTIVE[..], &lines[5..]].concat();
    assert_eq!(read(&unsaid).1[0].why, "no renewal was acknowledged within 1.485 s");
    let again = after_active(&[(20, SETTINGS), stopped, (22, "looking -> standby: x")]);
    assert_eq!(terms(&again), [(Some(8), 13, true, Some(21), End::Reported)]);
}

#[test]
fn an_adopted_term_goes_on() {
    let lines = after_active(&[
        (20, SETTINGS),
        (20, "looking -> taking: from this agent's previous instance, term 8"),
        (21, "taking -> active: adopted as revision 15, the service goes on"),
        (30, "active -> stopping: SIGTERM: ending"),
        (31, "the service is down, 2 s before it had to be"),
    ]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(31), End::Reported)]);
    // Its beginning is not in this log.
    let part = terms(&lines[4..]);
    assert_eq!(part, [(Some(8), 20, false, Some(31), End::Reported)]);
}

#[test]
fn a_host_that_came_back_tells_by_when_its_service_was_down() {
    let restart = [(20, SETTINGS), (20, "looking -> standby: the bucket is open")];
    let lines = after_active(&restart);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(24), End::Unknown)]);
    let paused = after_active(&[(15, "paused for 60 s by root@h1"), restart[0], restart[1]]);
    assert_eq!(terms(&paused), [(Some(8), 13, true, Some(79), End::Unknown)]);
    let again = after_active(&[
        restart[0],
        restart[1],
        (22, "standby -> taking: from h1, not renewed for 3.03 s"),
        (22, "taking -> confirming: taken as revision 30, start in 2 s"),
        (24, "confirming -> active: any holder before had 2 s to stop"),
    ]);
    let first = (Some(8), 13, true, Some(24), End::ByRules);
    assert_eq!(terms(&again), [first, (Some(30), 24, true, None, End::Unknown)]);
}

const GUARD_BEFORE_DEAD: &str =
    "the guard before this one is dead: the service may have run until now";

#[test]
fn a_service_whose_guard_was_dead_may_have_run_until_the_next_guard_whatever_the_rules_say() {
    let dead = (40, GUARD_BEFORE_DEAD);
    let instance = [(40, SETTINGS), (41, "looking -> standby: the bucket is open")];
    // Another agent took the lock, which had stood still since 16.
    let taken = Take {
        at: Duration::from_secs(19),
        released: false,
        stood: Duration::from_secs(3),
        confirmed_for: Duration::from_secs(2),
    };
    for lines in [
        [dead, instance[0], instance[1]],
        [instance[0], dead, instance[1]],
        [instance[0], instance[1], dead],
        // `putex finish` has stopped it, and nobody has started the agent again.
        [dead, dead, (42, "finish: stop succeeded")],
    ] {
        let mut of_log = read(&after_active(&lines)).1;
        let other = Term { source: 1, number: Some(30), take: Some(taken), ..of_log[0].clone() };
        of_log.push(Term { from: Duration::from_secs(21), ran_until: Duration::ZERO, ..other });
        end_by_rules(&mut of_log);
        let known = (Some(Duration::from_secs(40)), End::GuardDead);
        assert_eq!((of_log[0].until, of_log[0].end), known, "{lines:?}");
    }
    // The agent's own next term is later.
    let again = after_active(&[
        instance[0],
        (60, GUARD_BEFORE_DEAD),
        (62, "standby -> taking: from h2, not renewed for 3.03 s"),
        (64, "taking -> active: taken as revision 30, free to start"),
    ]);
    let first = (Some(8), 13, true, Some(60), End::GuardDead);
    assert_eq!(terms(&again), [first, (Some(30), 64, true, None, End::Unknown)]);
    // A log that begins with the line says nothing of the time before.
    assert_eq!(terms(&[dead]), [(None, 40, false, None, End::Unknown)]);
    // A service that is down has nothing to do with it.
    let down = after_active(&[(21, "the service is down, 2 s before it had to be"), dead]);
    assert_eq!(terms(&down), [(Some(8), 13, true, Some(21), End::Reported)]);
}

#[test]
fn a_term_goes_on_whose_guard_alone_was_killed() {
    let lines = after_active(&[
        (20, GUARD_BEFORE_DEAD),
        (30, "active -> stopping: SIGTERM: ending"),
        (31, "the service is down, 2 s before it had to be"),
    ]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(31), End::Reported)]);
    assert_eq!(read(&lines).1[0].why, "SIGTERM: ending");
    // The host died later.
    let restart = [lines[4], (100, SETTINGS), (100, "looking -> standby: the bucket is open")];
    assert_eq!(terms(&after_active(&restart)), [(Some(8), 13, true, Some(104), End::Unknown)]);
}

#[test]
fn a_service_that_may_still_run_has_no_end_until_it_is_reported_down() {
    let lines = after_active(&[
        (20, "active -> stopping: another revision stands where 9 was expected"),
        (
            25,
            "THE SERVICE MAY STILL RUN although its lock has run out: another host may start it \
             now; stop it by hand",
        ),
        (90, SETTINGS),
    ]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, None, End::MayStillRun)]);
    let cut_off = [&lines[..2 + ACTIVE.len()], &[(26, "the last resort succeeded")]].concat();
    assert_eq!(terms(&cut_off), [(Some(8), 13, true, Some(26), End::Reported)]);
    let why = &read(&cut_off).1[0].why;
    assert!(why.ends_with(" was expected; cut off by the last resort"), "{why}");
    let down = [&lines[..], &[(95, "the service is down, too late")]].concat();
    assert_eq!(terms(&down), [(Some(8), 13, true, Some(95), End::Reported)]);
}

#[test]
fn where_lines_are_missing_a_term_is_longer() {
    // The log begins in the midst of a term.
    for lines in [
        &[(5, "server a: b"), (20, "active -> stopping: x"), (21, "the service is down, too late")]
            [..],
        &[(5, "server a: b"), (21, "stopping -> standby: down, 1 s before it had to be")],
        &[(5, "server a: b"), (21, "the service is down, too late")],
    ] {
        assert_eq!(terms(lines), [(None, 5, false, Some(21), End::Reported)], "{lines:?}");
    }
    // The line that says active is lost.
    let lost = [&ACTIVE[..3], &[(30, "active -> stopping: x"), (31, "stopping -> standby: y")]];
    assert_eq!(terms(&lost.concat()), [(None, 12, false, Some(31), End::Reported)]);
    assert_eq!(read(&lost.concat()).0.gaps, 1);
    // Those about its end are lost.
    let lines = after_active(&[(40, "standby -> taking: from h2, not renewed for 3.03 s")]);
    assert_eq!(terms(&lines), [(Some(8), 13, true, Some(40), End::ByRules)]);
    assert_eq!(read(&after_active(&[(20, "3 log lines were dropped: the log x")])).0.gaps, 1);
}

#[test]
fn lines_of_agent_and_guard_may_be_in_another_order_than_their_times() {
    let early = [
        ACTIVE[0],
        ACTIVE[1],
        ACTIVE[2],
        (14, "the service runs here, term 8"),
        ACTIVE[3],
        (22, "the lock is released, revision 12"),
        (21, "the service is down, 2 s before it had to be"),
    ];
    assert_eq!(terms(&early), [(Some(8), 13, true, Some(22), End::Reported)]);
    let late = after_active(&[
        (20, "active -> stopping: x"),
        (21, "stopping -> standby: down, 1 s before it had to be"),
        (22, "standby -> taking: from nobody (released on host h1)"),
        (22, "taking -> active: taken as revision 20, free to start"),
        (21, "the service is down, 2 s before it had to be"),
    ]);
    let first = (Some(8), 13, true, Some(21), End::Reported);
    assert_eq!(terms(&late), [first, (Some(20), 22, true, None, End::Unknown)]);
    assert_eq!(read(&late).0.went_back.as_secs(), 1);
}

#[test]
fn each_seat_has_terms_of_its_own_and_two_agents_in_one_log_are_noticed() {
    let lines = [
        (10, SETTINGS),
        (12, "this agent takes seat 2"),
        (12, "standby -> taking: from nobody (the key was deleted), seen so for 3.03 s"),
        (13, "taking -> active: taken as revision 8, free to start"),
        (20, "active -> stopping: x"),
        (21, "stopping -> standby: y"),
    ];
    let (log, of_log) = read(&lines);
    assert_eq!((of_log[0].seat, log.is_mixed), (2, false));
    let other = (30, "putex 0.3.0, agent h2, R 1 s, F 3, C 2, stop budget 1 s");
    assert!(read(&[&lines[..], &[other]].concat()).0.is_mixed);
}

/// A collector stamps a line when it reads it: the first of two may be late.
#[test]
fn a_take_is_not_later_than_the_wait_after_it_allows() {
    let lines = [
        (10, SETTINGS),
        (20, "standby -> taking: from h2, not renewed for 3 s"),
        (20, "taking -> confirming: taken as revision 8, start in 2 s"),
        (21, "confirming -> active: any holder before had 2 s to stop"),
    ];
    let take = read(&lines).1[0].take.expect("it is known");
    assert_eq!((take.at, take.stood), (Duration::from_secs(19), Duration::from_secs(3)));
}
