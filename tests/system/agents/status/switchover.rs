//! When `putex switchover` says that it has succeeded, and what it says otherwise.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{Site, holders, of, server};
use crate::support::clock::{PATIENCE, now};
use crate::support::process::{signal, wait_exit};

/// A script that goes on after the command found nobody: it had ended before start.
#[test]
fn it_succeeds_when_start_has_and_says_how_long_nobody_ran_the_service() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let first = site.active_agent("h1", &["--key", "web"]);
        let up = site.sandbox.join("up");
        let start = format!("sleep 1; touch {}", up.display());
        let second = site.agent_of_service(&start, "h2", &["--key", "web"]);
        second.wait_for_any(&["the lock is held by h1"]);
        let run = site.run(&["switchover", "web"]);
        assert!(up.exists() && run.status == Some(0), "{run:?}");
        let (moved, down) = run.shown.trim_end().rsplit_once(" down=").expect("a time");
        assert!(moved.starts_with("from=h1 to=h2 term="), "{run:?}");
        assert!(down.parse::<f64>().expect("seconds") >= 1.0, "{run:?}");
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
}

/// It was left in the bucket, and moved the service later.
#[test]
fn a_signal_withdraws_the_request() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let agent = |token: &str| site.agent_of_r("3s", ["true", "true"], token, &["--key", "web"]);
    let first = agent("h1");
    first.wait_for_any(&["the service runs here"]);
    let second = agent("h2");
    second.wait_for_any(&["the lock is held by h1"]);
    first.signal(Signal::STOP);
    let mut command = site.command(&["switchover", "-v", "web"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it can be run");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut next = || said.next().expect("a line").expect("it is text");
    assert!(next().starts_with("putex: web: h1 is to give it to h2; "));
    signal(child.id(), Signal::INT);
    let withdrawn = std::iter::from_fn(|| Some(next())).find(|line| line.contains("withdrawn"));
    assert_eq!(withdrawn.as_deref(), Some("putex: web: withdrawn, by a signal"));
    let ended = |child: &mut Child| wait_exit(child, now() + PATIENCE).and_then(|it| it.code());
    assert_eq!(ended(&mut child), Some(75));
    first.signal(Signal::CONT);
    let status = site.json(&["web"]);
    assert_eq!(status["keys"][0]["switchover"], Value::Null, "{status:#}");
    assert_eq!(holders(&status, "web"), of("h1", "active"));
}
