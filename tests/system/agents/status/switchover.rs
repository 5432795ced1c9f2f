//! When `putex switchover` says that it has succeeded, and what it says otherwise.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{Site, holders, of, server};
use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{signal, wait_exit};

/// A script that goes on after the command found nobody: it had ended before start. The time did
/// not count stop, which ends the service at its begin as a rule.
#[test]
fn it_succeeds_when_start_has_and_says_how_long_nobody_ran_the_service() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let first = site.agent_of_r("1s", ["true", "sleep 0.5"], "h1", &["--key", "web"]);
        first.wait_for_any(&["the service runs here"]);
        let up = site.sandbox.join("up");
        let start = format!("sleep 1; touch {}", up.display());
        let second = site.agent_of_service(&start, "h2", &["--key", "web"]);
        second.wait_for_any(&["the lock is held by h1"]);
        let run = site.run(&["switchover", "web"]);
        assert!(up.exists() && run.status == Some(0), "{run:?}");
        let (moved, down) = run.shown.trim_end().rsplit_once(" down=").expect("a time");
        assert!(moved.starts_with("from=h1 to=h2 term="), "{run:?}");
        assert!(down.parse::<f64>().expect("seconds") >= 1.5, "{run:?}");
        drop((first, second));
    }
}

#[test]
fn where_start_fails_it_does_not_and_says_where_the_service_is() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let _first = site.active_agent("h1", &["--key", "web"]);
    let second = site.agent_of_service("exit 7", "h2", &["--key", "web"]);
    second.wait_for_any(&["the lock is held by h1"]);
    let run = site.run(&["switchover", "web"]);
    assert_eq!((run.status, &*run.shown), (Some(75), ""), "{run:?}");
    let lines: Vec<_> = run.said.lines().collect();
    assert!(
        lines[0].starts_with("putex: web: h2 is active: start fails: exit status 7"),
        "{run:?}"
    );
    assert_eq!(lines[1..], ["putex: web: start has not succeeded yet at h2"], "{run:?}");
    // The command said that there was nothing to do.
    let again = site.run(&["switchover", "--to", "h2", "web"]);
    let says = "h2 holds it, and does not say that start has succeeded";
    assert!(again.status == Some(75) && again.said.contains(says), "{again:?}");
}

/// Returns the holder h1, which is frozen before it can follow a request, and the candidate h2.
fn frozen_holder_and_candidate(site: &Site) -> [Agent; 2] {
    let agent = |token: &str| site.agent_of_r("3s", ["true", "true"], token, &["--key", "web"]);
    let first = agent("h1");
    first.wait_for_any(&["the service runs here"]);
    let second = agent("h2");
    second.wait_for_any(&["the lock is held by h1"]);
    first.signal(Signal::STOP);
    [first, second]
}

/// The request was written after the signal, and the holder followed it.
#[test]
fn after_a_signal_nothing_is_requested() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let [first, second] = frozen_holder_and_candidate(&site);
    first.signal(Signal::CONT);
    // No agent answers that can have it.
    second.signal(Signal::STOP);
    let (mut child, said) = site.begin(&["switchover", "-v", "web"]);
    let descriptors = format!("/proc/{}/fd", child.id());
    let takes_signals = || {
        let all = std::fs::read_dir(&descriptors).expect("it runs").flatten();
        let mut targets = all.filter_map(|one| std::fs::read_link(one.path()).ok());
        targets.any(|target| target.ends_with("anon_inode:[signalfd]"))
    };
    until_true("the signals are taken", takes_signals);
    signal(child.id(), Signal::INT);
    second.signal(Signal::CONT);
    let said: Vec<_> = said.map(|line| line.expect("it is text")).collect();
    let ended = child.wait().expect("it ends");
    let due = ["putex: web: ended by a signal; nothing is requested"];
    assert_eq!((ended.code(), &*said), (Some(75), &due.map(str::to_owned)[..]), "{ended}");
    let status = site.json(&["web"]);
    assert_eq!(holders(&status, "web"), of("h1", "active"));
}

/// Regression: the request was left in the bucket, and moved the service later.
#[test]
fn a_signal_withdraws_the_request() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let [first, _second] = frozen_holder_and_candidate(&site);
    let (mut child, mut said) = site.begin(&["switchover", "-v", "web"]);
    let mut next = || said.next().expect("a line").expect("it is text");
    assert!(next().starts_with("putex: web: h1 is to give it to h2; "));
    signal(child.id(), Signal::INT);
    let mut withdrawn = || {
        let line = std::iter::from_fn(|| Some(next())).find(|line| line.contains("withdrawn"));
        line.expect("a line")
    };
    let due = "putex: web: the request is withdrawn; waiting for h1 to renew or release it";
    assert_eq!(withdrawn(), due);
    first.signal(Signal::CONT);
    let due = "putex: web: withdrawn: h1 has not begun to give it, and keeps it";
    assert_eq!(withdrawn(), due);
    let ended = |child: &mut Child| wait_exit(child, now() + PATIENCE).and_then(|it| it.code());
    assert_eq!(ended(&mut child), Some(75));
    let status = site.json(&["web"]);
    assert_eq!(status["keys"][0]["switchover"], Value::Null, "{status:#}");
    assert_eq!(holders(&status, "web"), of("h1", "active"));
}

/// Regression: the command said that the request was withdrawn, and the service moved.
#[test]
fn after_a_signal_a_holder_that_has_begun_is_waited_for() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let [slow, stops] = ["slow", "stops"].map(|name| site.sandbox.join(name));
    let stop = format!("! test -e {} || {{ touch {}; sleep 2; }}", slow.display(), stops.display());
    let agent =
        |stop: &str, token: &str| site.agent_of_r("3s", ["true", stop], token, &["--key", "web"]);
    let first = agent(&stop, "h1");
    first.wait_for_any(&["the service runs here"]);
    let second = agent("true", "h2");
    second.wait_for_any(&["the lock is held by h1"]);
    std::fs::write(&slow, "").expect("a file");
    let mut command = site.command(&["switchover", "web"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be run");
    until_true("stop", || stops.exists());
    signal(child.id(), Signal::TERM);
    let ended = wait_exit(&mut child, now() + PATIENCE).and_then(|it| it.code());
    let shown = std::io::read_to_string(child.stdout.take().expect("a pipe")).expect("text");
    assert_eq!(ended, Some(0), "{shown}");
    assert!(shown.starts_with("from=h1 to=h2 term="), "{shown}");
}

#[test]
fn after_a_second_signal_it_says_that_the_result_is_not_known() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let [first, _second] = frozen_holder_and_candidate(&site);
    let (mut child, mut said) = site.begin(&["switchover", "-v", "web"]);
    let mut line_with = |text: &str| {
        let lines = said.by_ref().map(|line| line.expect("it is text"));
        lines.into_iter().find(|line| line.contains(text)).expect("a line")
    };
    line_with("h1 is to give it to h2");
    signal(child.id(), Signal::INT);
    line_with("the request is withdrawn");
    until_true("the end of the command", || {
        signal(child.id(), Signal::INT);
        child.try_wait().expect("it is a child").is_some()
    });
    line_with("h1 may still follow the request until it ends: a second signal");
    let ended = wait_exit(&mut child, now() + PATIENCE).and_then(|it| it.code());
    assert_eq!(ended, Some(69));
    first.signal(Signal::CONT);
}

/// The first signal had come before the new agent had the lock, the second one ends the wait.
#[test]
fn a_second_signal_during_start_ends_the_wait_for_it() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let [slow, stops, starts] = ["slow", "stops", "starts"].map(|name| site.sandbox.join(name));
    let waits =
        |file: &std::path::Path| format!("while test -e {}; do sleep 0.02; done", file.display());
    let stop =
        format!("! test -e {} || touch {}; {}", slow.display(), stops.display(), waits(&slow));
    let agent = |commands: [&str; 2], token: &str| {
        site.agent_of_r("3s", commands, token, &["--key", "web"])
    };
    let first = agent(["true", &stop], "h1");
    first.wait_for_any(&["the service runs here"]);
    let second = agent([&waits(&starts), "true"], "h2");
    second.wait_for_any(&["the lock is held by h1"]);
    for file in [&slow, &starts] {
        std::fs::write(file, "").expect("a file");
    }
    let (mut child, said) = site.begin(&["switchover", "-v", "web"]);
    let mut said = said.map(|line| line.expect("it is text"));
    let mut line_with = |text: &str| said.find(|line| line.contains(text)).expect("a line");
    until_true("stop", || stops.exists());
    signal(child.id(), Signal::INT);
    line_with("the request is withdrawn");
    std::fs::remove_file(&slow).expect("a file");
    line_with("h2 has it; waiting for start to succeed");
    until_true("the end of the command", || {
        signal(child.id(), Signal::INT);
        child.try_wait().expect("it is a child").is_some()
    });
    line_with("h2 has it; ended by a signal, before start has succeeded");
    let ended = wait_exit(&mut child, now() + PATIENCE).and_then(|it| it.code());
    assert_eq!(ended, Some(75));
    std::fs::remove_file(&starts).expect("a file");
}
