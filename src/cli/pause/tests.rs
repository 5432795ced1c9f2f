//! The command lines of `putex pause` and `putex resume`.

use std::ffi::OsString;

use super::super::tests::{environment, once};
use super::*;
use crate::cli::{self, Invocation, parse};
use crate::exit::Exit;

fn parsed(line: &[&str]) -> Result<Invocation, Refusal> {
    let words = line.iter().map(OsString::from);
    parse(words, &environment(&|name| (name == "USER").then(|| "root".into()), "alpha"))
}

#[test]
fn what_is_asked_for_is_what_the_page_says() {
    let pause = |seconds, reason: &str| Action::Pause {
        lasts: Duration::from_secs(seconds),
        reason: reason.to_owned(),
    };
    for (words, action, wait) in [
        (&["pause", "--for", "2h", "web"][..], pause(7200, ""), 10_000),
        (
            &["pause", "web", "--for=7d", "--reason", "new kernel"],
            pause(604_800, "new kernel"),
            10_000,
        ),
        (&["pause", "--for", "90", "-w", "2.5", "web"], pause(90, ""), 2500),
        (&["pause", "--for", "1.5h", "web"], pause(5400, ""), 10_000),
        (&["resume", "--wait", "1m", "web"], Action::Resume, 60_000),
    ] {
        let (_, cli::Request::Pause(request)) = once(parsed(&[words, &["--dir", "/d"]].concat()))
        else {
            panic!("{words:?}")
        };
        assert_eq!((&request.action, &*request.key), (&action, "web"), "{words:?}");
        assert_eq!(request.wait, Duration::from_millis(wait), "{words:?}");
        assert_eq!(&*request.by, "root@alpha");
    }
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    let long = "x".repeat(201);
    for (words, says) in [
        (&["pause", "--for", "1h"][..], "KEY is missing; write putex pause --for TIME KEY"),
        (&["resume"], "KEY is missing; write putex resume KEY"),
        (&["pause", "web"], "--for: is missing; write --for TIME, as in --for 2h"),
        (
            &["pause", "--for", "1h", "web", "db"],
            "db: unexpected argument; write putex pause --for TIME KEY",
        ),
        (&["pause", "--for", "1h", "lock.db"], "KEY: key \"lock.db\": lease, lock, putex and keys"),
        (&["pause", "--for", "8d", "web"], "--for: 8d: write 1s to 7d"),
        (&["pause", "--for", "0", "web"], "--for: 0: write 1s to 7d"),
        (&["pause", "--for", "h", "web"], "--for: h: is not a time; write 30s, 5m or 1h"),
        (&["pause", "--for", "5mh", "web"], "--for: 5mh: is not a time"),
        (
            &["pause", "--for", "1h", "--reason", &long, "web"],
            "--reason: write one line of at most 200",
        ),
        (
            &["pause", "--for", "1h", "--reason", "a\nb", "web"],
            "--reason: write one line of at most",
        ),
        (&["resume", "--for", "1h", "web"], "--for: not an option of putex resume"),
        (&["resume", "-w", "0", "web"], "-w: 0: write 1s to 60m"),
    ] {
        let refusal = parsed(&[words, &["--dir", "/d"]].concat()).expect_err(says);
        assert_eq!(refusal.exit, Exit::Usage, "{words:?}");
        assert!(refusal.text.starts_with(says), "{words:?}: {}", refusal.text);
    }
}
