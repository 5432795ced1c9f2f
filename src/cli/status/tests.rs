//! The command line of `putex status`.

use super::super::tests::{once, parse_with, refused_line};
use super::*;
use crate::cli::{self, BucketArgs, Location};
use crate::exit::Exit;

fn parsed(words: &str) -> (BucketArgs, Request) {
    let line = format!("status --dir /d {words}").trim().replace("  ", " ");
    let (bucket, cli::Request::Status(request)) = once(parse_with(&line, None, &[], "alpha"))
    else {
        panic!("{words}")
    };
    (bucket, request)
}

fn request(words: &str) -> Request {
    parsed(words).1
}

#[test]
fn what_is_asked_for_is_what_the_page_says() {
    let holder = |token: &str| Form::Exit(Question::Holder(token.to_owned()));
    for (words, form) in [
        ("web", Form::Table),
        ("--json web", Form::Json),
        ("-e held web", Form::Exit(Question::Held)),
        ("--is free web", Form::Exit(Question::Free)),
        ("-e mine web", holder("alpha")),
        ("-e mine --as me web", holder("me")),
        ("-e holder=h2 web", holder("h2")),
        ("-e active web", Form::Exit(Question::Active("alpha".to_owned()))),
        ("web --print holder", Form::Print(FIELDS[0])),
        ("web --print=term", Form::Print(FIELDS[2])),
    ] {
        let (bucket, Request { form: found, keys }) = parsed(words);
        assert_eq!((found, &keys[..]), (form, &["web".to_owned()][..]), "{words}");
        assert_eq!(bucket.name, "putex");
        assert_eq!(bucket.location, Location::Dir("/d".into()));
    }
    assert_eq!(request("").keys, Vec::<String>::new());
    assert_eq!(request("a b/c").keys, ["a", "b/c"]);
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    for (words, says) in [
        ("-e held", "-e: write one KEY with it"),
        ("-e held a b", "-e: write one KEY with it"),
        ("--print host", "--print: write one KEY with it"),
        ("-e maybe web", "-e: maybe: write held, free, mine, active, paused or holder=TOKEN"),
        ("-e holder= web", "-e: holder=: write held, free, mine, active, paused or holder=TOKEN"),
        ("--print hostt web", "--print: hostt: write holder, host or term"),
        ("-e held --json web", "-e: cannot be with --json; write one of them"),
        ("--print term --json web", "--print: cannot be with --json; write one of them"),
        ("--as me web", "--as: says who asks -e mine or -e active; write -e holder=TOKEN"),
        ("-W 1", "-W: no such option; see putex status --help"),
        ("--key web", "--key: not an option of putex status; write the name without it"),
        ("''", "KEY: "),
        ("\u{fc}", "KEY: key \"\u{fc}\": '\u{fc}' is not allowed in a key; write "),
        ("-e free d*b", "KEY: key \"d*b\": '*' is not allowed in a key; write "),
        ("web .a", "KEY: key \".a\": a key has something around each dot"),
        ("--replicas 3", "--replicas: not an option of putex status"),
        ("-q", "-q: not an option of putex status"),
    ] {
        let refusal = refused_line(&format!("status --dir /d {words}"));
        assert_eq!(refusal.exit, Exit::Usage, "{words}");
        assert!(refusal.text.starts_with(says), "{words}: {}", refusal.text);
    }
}
