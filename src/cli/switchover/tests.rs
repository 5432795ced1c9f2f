//! The command line of `putex switchover`.

use std::ffi::OsString;
use std::time::Duration;

use super::super::tests::environment;
use super::*;
use crate::cli::parse;
use crate::exit::Exit;

fn parsed(line: &str) -> Result<Invocation, Refusal> {
    let words = line.split(' ').map(|word| OsString::from(word.replace("''", "")));
    parse(words, &environment(&|name| (name == "USER").then(|| "root".into()), "alpha"))
}

#[test]
fn what_is_asked_for_is_what_the_page_says() {
    for (words, from, to, wait) in [
        ("web", None, None, 30_000),
        ("--to h2 web", None, Some("h2"), 30_000),
        ("web --from h1 --to=h2 -w 2.5", Some("h1"), Some("h2"), 2500),
        ("--wait 1m web", None, None, 60_000),
    ] {
        let args = match parsed(&format!("switchover --dir /d {words}")) {
            Ok(Invocation::Switchover(args)) => args,
            other => panic!("{words}: {other:?}"),
        };
        let request = args.request;
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
        let refusal = parsed(format!("switchover --dir /d {words}").trim()).expect_err(words);
        assert_eq!(refusal.exit, Exit::Usage, "{words}");
        assert!(refusal.text.starts_with(says), "{words}: {}", refusal.text);
    }
}
