//! `putex audit`: the real program, on the logs of real agents, and on logs and buckets in which
//! an overlap was planted.

#[path = "audit/doubts.rs"]
mod doubts;
#[path = "audit/host.rs"]
mod host;
mod support;

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::host::{Host, Line};
use crate::support::clock::until_true;
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;
use crate::support::wire::Client;

/// The host of an operator who has all logs.
struct Operator(Sandbox);

impl Operator {
    fn new() -> Operator {
        Operator(Sandbox::new("operator"))
    }

    /// Audits the key `db` with these words.
    fn audit(&self, words: &[&str]) -> Run {
        self.0.run(self.0.putex().arg("audit").args(words).arg("db"))
    }

    /// Audits logs, each with the name of its file.
    fn audit_logs(&self, logs: &[(&str, &[Line])]) -> Run {
        let mut words = Vec::new();
        for (name, lines) in logs {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            words.push("--log".to_owned());
            words.push(self.0.file(name, &text, 0o600).display().to_string());
        }
        self.audit(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// Two hosts between which the service has moved in each way there is.
struct Story {
    server: Server,
    logs: [Vec<Line>; 2],
}

/// Plays a switchover, a host that dies and comes back, an agent that is frozen, and two agents
/// that are told to end. The bucket keeps its revisions.
fn story() -> Option<Story> {
    let server = Server::start(&programs::nats_server()?, "");
    let mut client = Client::connect(server.port()).expect("a connection");
    let config = r#"{"name":"KV_putex","subjects":["$KV.putex.>"],"retention":"limits",
        "max_consumers":-1,"max_msgs_per_subject":64,"max_msgs":-1,"max_bytes":-1,"max_age":0,
        "max_msg_size":-1,"storage":"file","discard":"new","num_replicas":1,
        "allow_rollup_hdrs":false,"deny_delete":true,"allow_direct":true}"#;
    client.call("STREAM.CREATE.KV_putex", config).expect("a bucket");
    let url = server.url("nats", "127.0.0.1");
    let [mut one, mut two] = ["h1", "h2"].map(|token| Host::new(token, &url));
    one.start();
    one.wait_for("the service runs here", 1);
    two.start();
    two.wait_for("is held by h1", 1);
    let moved = one.run(Command::new(programs::putex()).args(["switchover", "--nats", &url, "db"]));
    assert_eq!(moved.status, Some(0), "{moved:?}");
    two.wait_for("the service runs here", 1);
    two.kill();
    one.wait_for("the service runs here", 2);
    two.start();
    two.wait_for("looking -> standby", 2);
    // Its guard stops the service.
    one.signal(Signal::STOP);
    one.wait_for("the service is down", 2);
    two.wait_for("the service runs here", 2);
    one.signal(Signal::CONT);
    one.wait_for("stopping -> standby", 2);
    two.end();
    one.wait_for("the service runs here", 3);
    one.end();
    Some(Story { server, logs: [one.lines(), two.lines()] })
}

/// Returns the number of the line that contains `part` for the `count`th time.
#[track_caller]
fn line_with(lines: &[Line], part: &str, count: usize) -> usize {
    let mut found = (0..lines.len()).filter(|at| lines[*at].text.contains(part));
    found.nth(count - 1).unwrap_or_else(|| panic!("{part} is not in {lines:#?}"))
}

fn terms_in(run: &Run) -> usize {
    run.shown.lines().filter(|line| line.split_whitespace().nth(1) == Some("0")).count()
}

#[test]
fn the_logs_and_the_bucket_of_real_agents_have_no_overlap_and_one_that_is_planted_is_found() {
    let Some(Story { server, logs: [one, two] }) = story() else { return };
    let operator = Operator::new();
    let whole = operator.audit_logs(&[("h1.log", &one), ("h2.log", &two)]);
    println!("{}", whole.shown);
    assert_eq!(whole.status, Some(0), "{whole:?}");
    let last = "\nno overlap, if the service whose end no log shows was stopped as the rules say\n";
    assert!(whole.shown.ends_with(last) && whole.said.is_empty(), "{whole:?}");
    assert!(!whole.shown.contains("OVERLAP") && !whole.shown.contains("not known"), "{whole:?}");
    assert_eq!(terms_in(&whole), 5, "{whole:?}");
    for part in ["switchover to h2", "the lock has run out: the guard stops", "SIGTERM"] {
        assert!(whole.shown.contains(part), "{part}: {whole:?}");
    }
    for part in ["closest terms: ", "closest release and take: "] {
        assert!(whole.shown.contains(&format!("\n{part}")), "{part}: {whole:?}");
    }
    let url = server.url("nats", "127.0.0.1");
    let stored = operator.audit(&["--nats", &url]);
    println!("{}", stored.shown);
    assert_eq!((stored.status, terms_in(&stored)), (Some(0), 5), "{stored:?}");
    let both = operator.audit(&[
        "--nats",
        &url,
        "--log",
        &operator.0.join("h1.log").display().to_string(),
    ]);
    assert_eq!(both.status, Some(75), "the log of h2 is missing: {both:?}");
    let last = "\nno overlap shows, but not everything is known\n";
    assert!(both.shown.ends_with(last), "{both:?}");

    planted_in_logs(&operator, &one, &two);
    the_same_in_other_forms(&operator, &one, &two, &whole);
    what_is_missing(&operator, &one, &two);
}

/// The guard of the frozen agent has stopped the service too late.
fn planted_in_logs(operator: &Operator, one: &[Line], two: &[Line]) {
    let started = line_with(two, "confirming -> active", 1);
    let down = line_with(one, "the service is down", 2);
    let mut late = one.to_vec();
    // While the other one runs.
    let ended = two[line_with(two, "the service is down", 1)].at;
    let length = (ended - two[started].at) / 2;
    late[down].at = two[started].at + length;
    let run = operator.audit_logs(&[("late.log", &late), ("h2.log", two)]);
    assert_eq!(run.status, Some(1), "{run:?}");
    let (from, until) = (two[started].time(), late[down].time());
    let overlap = format!("OVERLAP of {length} ms, {from} to {until}: term ");
    let found = run.shown.lines().find(|line| line.starts_with(&overlap));
    let found = found.unwrap_or_else(|| panic!("{overlap}: {run:?}"));
    assert!(found.contains(" of h1 (") && found.contains(" and term "), "{found}");
    assert!(found.contains(" of h2 (") && found.contains("late.log:"), "{found}");
    assert!(run.shown.ends_with("\n1 overlap\n"), "{run:?}");
    // The overlap counts, although the bucket is out of reach.
    let files = ["late.log", "h2.log"].map(|name| operator.0.join(name).display().to_string());
    let words = ["--log", &files[0], "--log", &files[1], "--nats", "127.0.0.1:1"];
    let run = operator.audit(&words);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.said.starts_with("putex: "), "{run:?}");

    // The guard says that it cannot stop the service, and nothing more comes.
    let mut stuck = one[..down].to_vec();
    let mut line = one[down].clone();
    line.text = "putex: db: error: THE SERVICE MAY STILL RUN although its lock has run out: \
                 another host may start it now; stop it by hand"
        .to_owned();
    stuck.push(line);
    let run = operator.audit_logs(&[("stuck.log", &stuck), ("h2.log", two)]);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.shown.contains("POSSIBLE OVERLAP of "), "{run:?}");
    assert!(run.shown.contains("reported that it MAY STILL RUN"), "{run:?}");

    // A clock that is wrong is no overlap where the store has ordered the two.
    let down = line_with(one, "the service is down", 1);
    // The guard may write its line after those of the agent: the first one ends the term.
    let ended = one[down.min(line_with(one, "stopping -> standby", 1))].at;
    let ahead = two[line_with(two, "taking -> active", 1)].at - ended + 40;
    let released = line_with(one, "the lock is released", 1);
    let mut fast = one.to_vec();
    let last = released.max(down);
    fast[..=last].iter_mut().for_each(|line| line.at += ahead);
    let run = operator.audit_logs(&[("fast.log", &fast), ("h2.log", two)]);
    assert_eq!(run.status, Some(0), "{run:?}");
    // The term may have begun in the millisecond before.
    let apart = ["40", "41"].map(|ms| format!("\nclocks: at least {ms} ms apart"));
    assert!(apart.iter().any(|line| run.shown.contains(line)), "{run:?}");
    // Without the release, nothing tells it from an overlap.
    fast.remove(released);
    let run = operator.audit_logs(&[("fast.log", &fast), ("h2.log", two)]);
    assert_eq!(run.status, Some(1), "{run:?}");
    let overlap = ["40", "41"].map(|ms| format!("\nOVERLAP of {ms} ms, "));
    assert!(overlap.iter().any(|line| run.shown.contains(line)), "{run:?}");
}

/// The journal and syslog daemons have added what they add.
fn the_same_in_other_forms(operator: &Operator, one: &[Line], two: &[Line], whole: &Run) {
    let table = |run: &Run| -> Vec<String> {
        let lines = run.shown.lines().filter(|line| line.contains("Z  ") && !line.contains(": "));
        lines.map(str::to_owned).collect()
    };
    let of_journal = |lines: &[Line], host| lines.iter().map(|it| it.of_journal(host)).collect();
    let of_syslog = |lines: &[Line], host| lines.iter().map(|it| it.of_syslog(host)).collect();
    let journal: [Vec<String>; 2] = [of_journal(one, "h1"), of_journal(two, "h2")];
    let syslog: [Vec<String>; 2] = [of_syslog(one, "h1"), of_syslog(two, "h2")];
    // A server that has the lines of all hosts in one file. Those of a host stay in their order:
    // the line of a guard can come after a later one of its agent.
    let mut central = Vec::new();
    for lines in &syslog {
        let mut latest = "";
        for line in lines {
            latest = latest.max(line.split(' ').next().unwrap_or_default());
            central.push((latest.to_owned(), line.clone()));
        }
    }
    central.sort_by(|(one, _), (other, _)| one.cmp(other));
    let central: Vec<String> = central.into_iter().map(|(_, line)| line).collect();
    let file = |name: &str, lines: &[String]| {
        operator.0.file(name, &(lines.join("\n") + "\n"), 0o600).display().to_string()
    };
    let paths = [
        vec![file("h1.journal", &journal[0]), file("h2.journal", &journal[1])],
        vec![file("h1.syslog", &syslog[0]), file("h2.syslog", &syslog[1])],
        vec![file("central", &central)],
        // In two parts.
        vec![
            format!("{},{}", file("1", &syslog[0][..9]), file("2", &syslog[0][9..])),
            file("3", &syslog[1]),
        ],
    ];
    for paths in paths {
        let words: Vec<&str> = paths.iter().flat_map(|path| ["--log", path]).collect();
        let run = operator.audit(&words);
        assert_eq!(run.status, Some(0), "{run:?}");
        assert_eq!(table(&run), table(whole), "{run:?}");
    }
    let text = fs::File::open(operator.0.join("central")).expect("a file");
    let run = operator.0.run(operator.0.putex().args(["audit", "--log", "-", "db"]).stdin(text));
    assert_eq!((run.status, table(&run)), (Some(0), table(whole)), "{run:?}");
}

/// Plays a holder whose agent and guard are killed, so that nobody stops its service, and another
/// agent that takes the lock and runs the service beside it.
fn left_behind() -> Option<(Server, [Host; 2])> {
    let server = Server::start(&programs::nats_server()?, "");
    let url = server.url("nats", "127.0.0.1");
    let [mut one, mut two] = ["h1", "h2"].map(|token| Host::new(token, &url).with_process());
    one.start();
    one.wait_for("the service runs here", 1);
    two.start();
    two.wait_for("is held by h1", 1);
    one.kill_agent_and_guard();
    two.wait_for("the service runs here", 1);
    until_true("both services", || one.has_process() && two.has_process());
    Some((server, [one, two]))
}

#[test]
fn a_service_that_has_outlived_agent_and_guard_is_a_possible_overlap_as_soon_as_a_log_tells() {
    let operator = Operator::new();
    let come_back: [fn(&mut Host); 2] = [Host::start, |host| host.finish()];
    for come_back in come_back {
        let Some((server, [mut one, mut two])) = left_behind() else { return };
        // A host that is dead has the same log.
        let run = operator.audit_logs(&[("h1.log", &one.lines()), ("h2.log", &two.lines())]);
        let last =
            "\nno overlap, if the service whose end no log shows was stopped as the rules say\n";
        assert!(run.status == Some(0) && run.shown.ends_with(last), "{run:?}");

        come_back(&mut one);
        until_true("the service is stopped", || !one.has_process());
        two.end();
        let (of_one, of_two) = (one.lines(), two.lines());
        let run = operator.audit_logs(&[("h1.log", &of_one), ("h2.log", &of_two)]);
        println!("{}", run.shown);
        assert!(run.status == Some(1) && run.shown.ends_with("\n1 overlap\n"), "{run:?}");
        let began = &of_one[line_with(&of_one, "the guard before this one is dead", 1)];
        let started = &of_two[line_with(&of_two, "confirming -> active", 1)];
        let [from, until] = [started.time(), began.time()];
        let overlap = format!(", {from} to {until}: term ");
        let found = run.shown.lines().find(|line| line.starts_with("POSSIBLE OVERLAP of "));
        assert!(found.is_some_and(|line| line.contains(&overlap)), "{overlap}: {run:?}");
        let row =
            format!("  perhaps {until}  its guard was dead: the service may have run until then\n");
        assert!(run.shown.contains(&row), "{row}: {run:?}");

        // The bucket has the last term only: what logs tell counts.
        let url = server.url("nats", "127.0.0.1");
        let logs = ["h1.log", "h2.log"].map(|name| operator.0.join(name).display().to_string());
        let words = ["--log", &logs[0], "--log", &logs[1], "--nats", &url];
        let run = operator.audit(&words);
        let last = "\n1 overlap in the logs, no overlap in the bucket\n";
        assert!(run.status == Some(1) && run.shown.ends_with(last), "{run:?}");
    }
}

#[test]
fn a_guard_that_is_killed_alone_ends_no_term() {
    let Some(binary) = programs::nats_server() else { return };
    let server = Server::start(&binary, "");
    let url = server.url("nats", "127.0.0.1");
    let [mut one, mut two] = ["h1", "h2"].map(|token| Host::new(token, &url).with_process());
    one.start();
    one.wait_for("the service runs here", 1);
    one.kill_guard();
    one.wait_for("the guard before this one is dead", 1);
    one.wait_for("the service runs here", 2);
    two.start();
    two.wait_for("is held by h1", 1);
    one.end();
    two.wait_for("the service runs here", 1);
    two.end();
    let run = Operator::new().audit_logs(&[("h1.log", &one.lines()), ("h2.log", &two.lines())]);
    assert!(run.status == Some(0) && run.shown.ends_with("\nno overlap\n"), "{run:?}");
    assert_eq!((terms_in(&run), run.shown.matches("SIGTERM").count()), (2, 2), "{run:?}");
}

/// What is not known is never taken for no overlap.
fn what_is_missing(operator: &Operator, one: &[Line], two: &[Line]) {
    let run = operator.audit_logs(&[("h1.log", one)]);
    assert_eq!(run.status, Some(75), "{run:?}");
    assert!(run.shown.contains("not known: the log of h2 is missing"), "{run:?}");
    let last = "no overlap shows, but not everything is known\n";
    assert!(run.shown.ends_with(last), "{run:?}");
    let path = operator.0.join("h1.log").display().to_string();
    let run = operator.0.run(operator.0.putex().args(["audit", "--log", &path, "web"]));
    assert_eq!(run.status, Some(75), "{run:?}");
    assert!(run.shown.contains("no line tells that an agent was active"), "{run:?}");
    let run = operator.audit(&["--log", &path, "--log", &path]);
    assert_eq!(run.status, Some(75), "{run:?}");
    assert!(run.shown.contains(" of h1 is in two logs: one is given twice\n"), "{run:?}");
    // Lines of a pipe that nobody has added a time to.
    let pipe: String = two.iter().map(|line| format!("{}\n", line.text)).collect();
    let pipe = operator.0.file("pipe", &pipe, 0o600).display().to_string();
    let run = operator.audit(&["--log", &path, "--log", &pipe]);
    assert_eq!(run.status, Some(75), "{run:?}");
    let said = format!("note: {} lines have no time that can be used\n", two.len());
    assert!(
        run.shown.contains(&said) && run.shown.contains("lines that matter have no"),
        "{run:?}"
    );
}

/// Returns the headers of a record with R 1 s, F 3, C 2.
fn record(of: u64, term: Option<u64>, state: &str) -> String {
    let term = term.map_or_else(String::new, |term| format!("\r\nPutex-Term: {term}"));
    format!(
        "Putex-Format: 1\r\nPutex-Incarnation: {of:032x}\r\nPutex-Nonce: 1\r\nPutex-Host: h{of}\r\n\
         Putex-Timing: 1000 3 2\r\nPutex-Grace-Ms: 2000\r\nPutex-State: {state}{term}"
    )
}

#[test]
fn a_term_in_the_bucket_that_began_before_the_one_before_it_could_end_is_found() {
    let Some(binary) = programs::nats_server() else { return };
    let server = Server::start(&binary, "");
    let operator = Operator::new();
    let url = server.url("nats", "127.0.0.1");
    let run = operator.audit(&["--nats", &url]);
    assert_eq!(run.status, Some(75), "{run:?}");
    assert!(run.shown.contains("the bucket has no term of the key"), "{run:?}");
    let mut client = Client::connect(server.port()).expect("a connection");
    let config = r#"{"name":"KV_putex","subjects":["$KV.putex.>"],"max_msgs_per_subject":9,
        "storage":"file","num_replicas":1,"retention":"limits","discard":"new"}"#;
    client.call("STREAM.CREATE.KV_putex", config).expect("a bucket");
    let mut write = |key: &str, headers: &str, token: &str| {
        let written = client.request(&format!("$KV.putex.{key}"), headers, token);
        written.expect("an answer").stored_revision().expect("it is stored")
    };
    let first = write("db.2", &record(1, None, "active"), "h1");
    let run = operator.audit(&["--nats", &url]);
    assert_eq!(run.status, Some(75), "{run:?}");
    assert!(run.shown.contains("the bucket has the last term only"), "{run:?}");
    write("db.2", &record(1, Some(first), "active"), "h1");
    let second = write("db.2", &record(2, None, "active"), "h2");
    let run = operator.audit(&["--nats", &url]);
    assert_eq!(run.status, Some(1), "{run:?}");
    let pair = format!(", seat 2: term {first} of h1 (revision {first}) and term {second} of h2");
    assert!(run.shown.contains("POSSIBLE OVERLAP of ") && run.shown.contains(&pair), "{run:?}");

    // After a release another may begin at once.
    let third = write("web", &record(1, None, "active"), "h1");
    write("web", &record(1, Some(third), "released"), "");
    write("web", &record(2, None, "active"), "h2");
    let run = operator.0.run(operator.0.putex().args(["audit", "--nats", &url, "web"]));
    assert_eq!(run.status, Some(0), "{run:?}");
}

#[test]
fn a_directory_has_the_last_record_and_what_cannot_be_read_is_told_with_its_status() {
    let operator = Operator::new();
    let dir = operator.0.subfolder("locks").display().to_string();
    let run = operator.audit(&["--dir", &dir]);
    assert_eq!(run.status, Some(75), "{run:?}");
    let mut host = Host::in_dir("h1", &dir);
    host.start();
    host.wait_for("the service runs here", 1);
    let run = operator.audit(&["--dir", &dir]);
    assert_eq!((run.status, terms_in(&run)), (Some(75), 1), "{run:?}");
    assert!(run.shown.contains("the bucket has the last term only"), "{run:?}");
    host.end();
    for (words, status, says) in [
        (&["--log", "/nonexistent"][..], 64, "putex: --log: /nonexistent: No such file"),
        (&["--log", "/"], 64, "putex: --log: /: is a directory"),
        (&["--log", "/dev/zero"], 64, "putex: --log: /dev/zero: is neither a file nor a pipe"),
        (&["--nats", "127.0.0.1:1"], 69, "putex: "),
        (&[], 78, "putex: --nats: is missing"),
    ] {
        let run = operator.audit(words);
        assert_eq!((run.status, &*run.shown), (Some(status), ""), "{run:?}");
        assert!(run.said.starts_with(says), "{run:?}");
    }
}
