//! The command line of `putex switchover`.

use std::time::Duration;

use log::Level;

use super::super::tests::{once, parse_with, refused_line};
use crate::cli;
use crate::exit::Exit;

#[test]
fn what_is_asked_for_is_what_the_page_says() {
    for (words, from, to, wait) in [
        ("web", None, None, 30_000),
        ("--to h2 web", None, Some("h2"), 30_000),
        ("web --from h1 --to=h2 -w 2.5", Some("h1"), Some("h2"), 2500),
        ("--wait 1m web", None, None, 60_000),
    ] {
        let line = format!("switchover --dir /d {words}");
        let parsed = parse_with(&line, None, &[("USER", "root")], "alpha");
        let (_, cli::Request::Switchover(request)) = once(parsed) else { panic!("{words}") };
        assert_eq!((request.from.as_deref(), request.to.as_deref()), (from, to), "{words}");
        assert_eq!((&*request.key, request.wait), ("web", Duration::from_millis(wait)));
        assert_eq!((&*request.by, request.level), ("root@alpha", Level::Warn as u64));
    }
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    for (words, says) in [
        ("", "KEY is missing; write putex switchover [--to WHO] KEY"),
        ("web h2", "h2: unexpected argument; write putex switchover [--to WHO] KEY"),
        ("lock.db", "KEY: key \"lock.db\": lease, lock, putex and keys"),
        ("w*b", "KEY: "),
        ("--to '' web", "--to: is empty"),
        ("--from h1 --to h1 web", "--to: h1: is also --from; write another agent"),
        ("-w 0 web", "-w: 0: write 1s to 60m"),
        ("-w 61m web", "-w: 61m: write 1s to 60m"),
        ("--replicas 3 web", "--replicas: not an option of putex switchover"),
    ] {
        let refusal = refused_line(format!("switchover --dir /d {words}").trim());
        assert_eq!(refusal.exit, Exit::Usage, "{words}");
        assert!(refusal.text.starts_with(says), "{words}: {}", refusal.text);
    }
}
