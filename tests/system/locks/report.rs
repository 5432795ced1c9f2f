//! `--report`: what a script reads when the status does not tell.

use std::fs;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::site::{
    Site, in_directory, on_both_stores, on_both_stores_quickly, on_server_quickly, state_of,
};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{signal, wait_exit};
use crate::support::programs;

/// The fields of each line, in their order.
const FIELDS: [&str; 14] = [
    "schema", "name", "mode", "token", "outcome", "status", "command_status", "term", "epoch",
    "slot", "waited_seconds", "waited_for", "held_seconds", "why",
];

/// Returns the lines of the report, and expects that each field is in each of them.
fn lines(site: &Site) -> Vec<Value> {
    let text = fs::read_to_string(site.sandbox.join("report")).expect("a report");
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        let places = FIELDS.map(|field| line.find(&format!("\"{field}\":")));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    }
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs a `putex lock` with a report; returns the line.
fn report(site: &Site, words: &[&str]) -> Value {
    let path = site.sandbox.join("report").display().to_string();
    let run = site.run(&[&["--token", "alpha", "--report", &path], words].concat());
    let line = lines(site).pop().expect("a line");
    assert_eq!(line["status"], json!(run.status), "{line} {}", run.said);
    line
}

/// Expects these values.
fn assert_values(line: &Value, values: &[(&str, Value)]) {
    for (field, value) in values {
        assert_eq!(line[field], *value, "{field}: {line}");
    }
}

#[test]
fn a_command_that_has_run_is_told_from_a_lock_that_was_not_had_or_not_started() {
    on_both_stores_quickly(|site| {
        let line = report(site, &["-s", "x", "sh", "-c", "exit 75"]);
        assert_values(
            &line,
            &[
                ("schema", json!(1)),
                ("name", json!("x")),
                ("mode", json!("shared")),
                ("token", json!("alpha")),
                ("outcome", json!("ran")),
                ("status", json!(75)),
                ("command_status", json!(75)),
                ("why", Value::Null),
            ],
        );
        assert!(line["term"].is_u64() && line["epoch"].is_string(), "{line}");
        assert!(line["held_seconds"].is_f64() && line["waited_seconds"].is_f64(), "{line}");
        let line = report(site, &["--hold", "10m", "x", "/no/such/program"]);
        let nothing = ("command_status", Value::Null);
        assert_values(
            &line,
            &[("outcome", json!("not-started")), ("status", json!(127)), nothing.clone()],
        );
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let line = report(site, &["-n", "x", "true"]);
        assert_values(
            &line,
            &[
                ("outcome", json!("not-had")),
                ("status", json!(75)),
                ("term", Value::Null),
                ("held_seconds", Value::Null),
                nothing.clone(),
            ],
        );
        assert!(line["why"].as_str().is_some_and(|why| why.starts_with("behind ")), "{line}");
        holder.end();
        let script = format!("$P lock {} --report $D/report x true", site.options().join(" "));
        assert_eq!(report(site, &["x", "sh", "-c", &script])["status"], json!(64));
        // Lines of a lock that did not reach its server, and was repeated, may stand before.
        let lines = lines(site);
        let inner = &lines[lines.len() - 2];
        assert_values(inner, &[("outcome", json!("refused")), ("status", json!(64)), nothing]);
    });
}

/// Each of these waits in a system call of its own without a report.
#[test]
fn in_a_directory_each_kind_of_wait_is_ended_by_a_signal_and_stopped_by_the_terminal() {
    in_directory(|site| {
        let path = site.sandbox.join("report").display().to_string();
        let holders = ["a", "b"].map(|id| site.lock(id, &["-j", "2", "x"]));
        holders.iter().for_each(|holder| drop(holder.begun()));
        let waits =
            [&["x"][..], &["-s", "x"], &["-w", "600", "x"], &["-j", "2", "x"], &["--soft", "x"]];
        for (at, words) in waits.into_iter().enumerate() {
            let mut waiter =
                site.lock(&format!("waiter{at}"), &[&["--report", &path], words].concat());
            waiter.says(": waiting");
            waiter.signal_front(Signal::TSTP);
            until_true("its stop", || state_of(waiter.front()) == Some('T'));
            waiter.signal_front(Signal::CONT);
            until_true("it goes on", || state_of(waiter.front()) == Some('S'));
            waiter.signal_front(Signal::WINCH);
            waiter.signal_front(Signal::INT);
            assert_eq!(waiter.status(), -2, "{words:?}");
            let line = lines(site).pop().expect("a line");
            assert_values(&line, &[("outcome", json!("interrupted")), ("status", json!(130))]);
            assert!(line["waited_for"].is_string() && line["term"].is_null(), "{line}");
            assert_eq!(lines(site).len(), at + 1);
        }
        for holder in holders {
            holder.end();
        }
    });
}

#[test]
fn a_lost_lock_is_reported_with_the_status_of_its_command() {
    on_server_quickly(|site| {
        let path = site.sandbox.join("report").display().to_string();
        let mut lock = site.lock("lost", &["--report", &path, "x"]);
        lock.begun();
        signal(lock.renewer(), Signal::KILL);
        assert_eq!(lock.status(), 100);
        let line = lines(site).pop().expect("a line");
        assert_values(&line, &[("outcome", json!("lost")), ("status", json!(100))]);
        // The kernel kills the command with the renewer; the front, which sees the renewer's end
        // a moment before, may have sent SIGTERM by then.
        let status = &line["command_status"];
        assert!([json!(137), json!(143)].contains(status), "{line}");
        assert!(line["why"].as_str().is_some_and(|why| !why.is_empty()), "{line}");
        assert_eq!(site.run(&["-w", "10", "x", "true"]).status, Some(0));
    });
}

/// The front killed the command when the kernel had no memory for a wait, and the report said that
/// the lock could not be acquired. Before and after the command it ended with 71. A renewer without
/// a descriptor took a whole processor.
#[test]
fn a_lock_and_its_command_go_on_while_the_kernel_refuses_to_wait() {
    on_both_stores_quickly(|site| {
        let path = site.sandbox.join("report").display().to_string();
        let words = ["--report", &path, "--hold", "10m", "x"];
        let first = (!site.is_local()).then(|| site.lock("first", &["x"]));
        first.iter().for_each(|first| drop(first.begun()));
        let mut lock = site.lock("second", &words);
        if let Some(first) = first {
            lock.waits_behind(1);
            refuse_waits_of(lock.front());
            first.end();
        }
        lock.begun();
        refuse_waits_of(lock.front());
        if !site.is_local() {
            refuse_waits_of(lock.renewer());
        }
        lock.let_go();
        lock.says(": the command has ended, the lock is held for ");
        refuse_waits_of(lock.front());
        lock.signal_front(Signal::INT);
        assert_eq!(lock.status(), 0, "{}", lock.said());
        let line = lines(site).pop().expect("a line");
        assert_values(&line, &[("outcome", json!("ran")), ("command_status", json!(0))]);
    });
}

/// Has the kernel refuse to let a process wait, until the process has looked again ten times, each
/// time after a pause.
fn refuse_waits_of(process: u32) {
    let pid = Pid::from_raw(process.cast_signed());
    // poll(2) of more descriptors than a process may have is refused.
    let limit = getrlimit(Resource::Nofile);
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("its limit");
    let before = sleeps(process);
    signal(process, Signal::WINCH);
    until_true("it looks again", || sleeps(process) > before + 10);
    prlimit(pid, Resource::Nofile, limit).expect("its limit");
}

/// Returns how often a process has slept.
fn sleeps(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("a count").trim().parse().expect("a number")
}

#[test]
fn a_store_that_is_not_there_is_reported() {
    let site = Site::in_directory(&[]).expect("a directory");
    fs::write(site.sandbox.join("store"), "").expect("a file");
    let line = report(&site, &["-w", "0.1", "x", "true"]);
    assert_values(&line, &[("outcome", json!("refused")), ("command_status", Value::Null)]);
    assert!(line["why"].as_str().is_some_and(|why| why.contains("store")), "{line}");
}

#[test]
fn a_file_that_cannot_be_opened_is_refused_before_the_store_is_touched() {
    let site = Site::in_directory(&[]).expect("a directory");
    let pipe = site.sandbox.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .expect("a pipe");
    // Nobody reads the pipe.
    for path in ["/no/such/folder/report", "/", &pipe.display().to_string()] {
        let run = site.run(&["--report", path, "x", "true"]);
        assert_eq!(run.status, Some(64), "{path}: {}", run.said);
        assert!(run.said.starts_with(&format!("putex: --report: {path}: ")), "{}", run.said);
        assert_eq!(run.said.lines().count(), 1, "{}", run.said);
    }
    assert!(!site.sandbox.join("store").exists());
}

#[test]
fn a_line_that_cannot_be_written_is_said_and_changes_no_status() {
    on_both_stores_quickly(|site| {
        let run = site.run(&["--report", "/dev/full", "x", "sh", "-c", "exit 6"]);
        assert_eq!(run.status, Some(6));
        let said = "putex: warning: --report: /dev/full: No space left on device (os error 28)\n";
        assert_eq!(run.said, said);
    });
}

#[test]
fn a_descriptor_of_the_shell_takes_the_line_and_the_command_inherits_it_once() {
    on_both_stores_quickly(|site| {
        let script =
            "outcome=$(\"$P\" lock $S --report /dev/fd/3 x ls -l /proc/self/fd 3>&1 >$D/out)
                      case $outcome in *'\"outcome\":\"ran\"'*) echo it has run ;; esac";
        let mut command = site.sandbox.command("sh");
        command.args(["-c", script]).env("D", site.sandbox.text());
        command.env("P", programs::putex()).env("S", site.options().join(" "));
        let run = site.sandbox.run(&mut command);
        assert_eq!(run.shown, "it has run\n", "{}", run.said);
        let open = fs::read_to_string(site.sandbox.join("out")).expect("a list");
        let (_, pipe) = open.split_once(" 3 -> ").expect("it is inherited");
        let pipe = pipe.lines().next().expect("a pipe");
        assert_eq!(open.matches(pipe).count(), 1, "{open}");
    });
}

#[test]
fn several_locks_write_whole_lines_into_one_file() {
    on_both_stores(|site| {
        let path = site.sandbox.join("report").display().to_string();
        let start = |_| {
            let mut command = site.putex(&["--report", &path, "-s", "x", "true"]);
            command.stderr(Stdio::null()).spawn().expect("it can be run")
        };
        let fronts: Vec<_> = (0..8).map(start).collect();
        for mut front in fronts {
            let status = wait_exit(&mut front, now() + PATIENCE).expect("it ends");
            assert_eq!(status.code(), Some(0));
        }
        until_true("all lines", || lines(site).len() == 8);
    });
}

/// Its path was opened anew: what the shell wrote later stood over the line.
#[test]
fn a_descriptor_of_the_shell_goes_on_behind_the_line() {
    in_directory(|site| {
        let script = "exec 3>$D/mixed; echo one >&3
                      \"$P\" lock $S --report /dev/fd/3 x true; echo two >&3";
        let mut command = site.sandbox.command("sh");
        command.args(["-c", script]).env("D", site.sandbox.text());
        command.env("P", programs::putex()).env("S", site.options().join(" "));
        let run = site.sandbox.run(&mut command);
        assert_eq!(run.status, Some(0), "{}", run.said);
        let text = fs::read_to_string(site.sandbox.join("mixed")).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "one", "two"), "{text}");
        let line: Value = serde_json::from_str(lines[1]).expect("JSON");
        assert_eq!(line["status"], 0);
    });
}

/// Regression: `putex lock` was held up in the write, after the release, until somebody read.
#[test]
fn a_pipe_without_room_for_the_line_holds_nobody_up() {
    in_directory(|site| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a page");
        writer.write_all(&[b'x'; 4000]).expect("there is room");
        let mut command = site.putex(&["--report", "/dev/stdout", "x", "true"]);
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().expect("it runs");
        let status = wait_exit(&mut child, now() + PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(0));
        drop(reader);
    });
}

#[test]
fn a_descriptor_that_takes_no_line_is_refused() {
    on_both_stores_quickly(|site| {
        for (words, open) in [("/dev/fd/9", ""), ("/dev/fd/10", ""), ("/dev/fd/3", "3</dev/null")] {
            let script = format!("\"$P\" lock $S --report {words} x true {open}");
            let mut command = site.sandbox.command("sh");
            command.args(["-c", &script]);
            command.env("P", programs::putex()).env("S", site.options().join(" "));
            let run = site.sandbox.run(&mut command);
            assert_eq!(run.status, Some(64), "{words}: {}", run.said);
        }
        // Makes the bucket.
        assert_eq!(site.run(&["x", "true"]).status, Some(0));
    });
}

/// The journal of systemd is a socket, which no path opens.
#[test]
fn a_socket_takes_the_line() {
    in_directory(|site| {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let mut command = site.putex(&["--report", "/dev/stderr", "x", "true"]);
        let mut child = command.stderr(OwnedFd::from(theirs)).spawn().expect("it runs");
        drop(command);
        let status = wait_exit(&mut child, now() + PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(0));
        let mut text = String::new();
        (&ours).read_to_string(&mut text).expect("a text");
        let line: Value = serde_json::from_str(&text).expect("one line");
        assert_eq!(line["outcome"], "ran");
    });
}

#[test]
fn a_wait_and_its_end_by_a_signal_are_reported() {
    on_both_stores_quickly(|site| {
        let path = site.sandbox.join("report").display().to_string();
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let mut waiter = site.lock("waiter", &["--report", &path, "x"]);
        waiter.waits_behind(1);
        waiter.signal_front(Signal::TERM);
        assert_eq!(waiter.status(), -15);
        let line = lines(site).pop().expect("a line");
        assert_values(&line, &[("outcome", json!("interrupted")), ("status", json!(143))]);
        let second = site.lock("second", &["--report", &path, "x"]);
        second.waits_behind(1);
        holder.end();
        second.begun();
        second.end();
        let line = lines(site).pop().expect("a line");
        assert!(line["waited_for"].as_str().is_some_and(|who| who.starts_with("behind ")));
        assert!(line["waited_seconds"].as_f64() > Some(0.0), "{line}");
    });
}
