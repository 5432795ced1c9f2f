//! The command lines of `putex lease` and `putex put`.

use log::Level;

use super::super::tests::{once, parse_with, refused_line};
use super::*;
use crate::cli;
use crate::core::DRIFT_PPM_DEFAULT;

fn action(line: &str) -> cli::Request {
    once(parse_with(line, None, &[], "alpha")).1
}

fn request(words: &str) -> Request {
    let cli::Request::Lease(request) = action(&format!("lease {words} --dir /d")) else {
        panic!("{words}")
    };
    request
}

fn name(text: &str) -> tickets::Name {
    tickets::Name::parse(text).expect("a name")
}

#[test]
fn what_is_asked_for_is_what_the_page_says() {
    let at_least = Duration::from_millis(1500);
    let holder = || "alpha".to_owned();
    for (words, task) in [
        ("claim --for 1.5 db/x", LeaseTask::Claim { holder: holder(), at_least }),
        ("extend db/x --for=1500ms", LeaseTask::Extend { holder: holder(), at_least }),
        ("claim db/x --for 1.5s --as me", LeaseTask::Claim { holder: "me".to_owned(), at_least }),
        ("expire db/x", LeaseTask::Expire { wait: Duration::ZERO }),
        ("expire -w 2 db/x", LeaseTask::Expire { wait: Duration::from_secs(2) }),
        ("check db/x", LeaseTask::Check { holder: None }),
        ("check --as me db/x", LeaseTask::Check { holder: Some("me".to_owned()) }),
    ] {
        let Request { task: found, drift_ppm, level, .. } = request(words);
        assert_eq!(found, Task::One(name("db/x"), task), "{words}");
        assert_eq!((drift_ppm, level), (DRIFT_PPM_DEFAULT, Level::Warn as u64));
    }
    assert_eq!(request("list").task, Task::List(None));
    assert_eq!(request("list db").task, Task::List(Some(name("db"))));
    let cli::Request::Put(put) = action("put --lease db --dir /d --as me web on") else {
        panic!("a write")
    };
    let Put { lease, holder, key, value, .. } = put;
    let due = (name("db"), "me", "web", Some("on"));
    assert_eq!((lease, &*holder, &*key, value.as_deref()), due);
}

#[test]
fn wrong_lines_are_refused_with_what_to_write() {
    for (line, says) in [
        ("lease", "write putex lease claim, extend, check or expire NAME"),
        ("lease clam db", "lease clam: no such command; write putex lease claim"),
        ("lease renew db", "lease renew: no such command; write putex lease claim, extend, check"),
        ("claim db --for 60", "claim: no such command; write putex lease claim"),
        ("lease claim --for 60", "NAME is missing; write putex lease claim --for 60s NAME"),
        ("lease claim --for leader", "--for: leader: is not a time"),
        (
            "lease claim a b --for 60",
            "b: unexpected argument; write putex lease claim --for 60s NAME",
        ),
        ("lease check a b", "b: unexpected argument; write putex lease check NAME"),
        ("lease claim a,b --for 60", "NAME: a,b: write a-z, A-Z, 0-9"),
        ("lease claim db", "--for: is missing; write putex lease claim --for 60s NAME"),
        ("lease claim db --for 0.5", "--for: 0.5: write 1s to 75m"),
        ("lease claim db --for 76m", "--for: 76m: write 1s to 75m"),
        ("lease claim db --for x", "--for: x: is not a time"),
        ("lease check db --drift 21", "--drift: 21 % is more than the maximum of 20 %"),
        ("lease check db --for 60", "--for: not an option of putex lease check"),
        ("lease list db --as me", "--as: not an option of putex lease list"),
        ("lease claim db --for 60 -w 5", "-w: not an option of putex lease claim"),
        ("lease list -w 5", "-w: not an option of putex lease list"),
        ("lease claim db --for 60 -n", "-n: not an option of putex lease"),
        ("put db on", "--lease: is missing; write putex put --lease NAME KEY VALUE"),
        ("put --lease db", "KEY is missing; write putex put --lease NAME KEY VALUE"),
        ("put --lease db web on off", "off: unexpected argument; quote a value with blanks"),
        ("put --lease db we*b on", "KEY: key \"we*b\""),
        ("put --lease a,b web on", "--lease: a,b: write a-z, A-Z, 0-9"),
        ("put --lease db lock.x on", "KEY: lock.x: putex keeps locks, leases and notes below it"),
    ] {
        let line = format!("{line} --dir /d");
        let Refusal { text, exit } = refused_line(&line);
        assert!(text.contains(says), "{line}: {text}");
        let due = if line.contains("--drift") { Exit::Unsafe } else { Exit::Usage };
        assert_eq!(exit, due, "{line}");
    }
}
