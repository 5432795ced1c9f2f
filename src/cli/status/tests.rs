//! The command line of `putex status`.

use std::ffi::OsString;

use super::super::tests::environment;
use super::*;
use crate::cli::parse;
use crate::exit::Exit;

fn parsed(line: &str) -> Result<Invocation, Refusal> {
    let words = line.split(' ').map(|word| OsString::from(word.replace("''", "")));
    parse(words, &environment(&|_| None, "alpha"))
}

fn request(words: &str) -> Request {
    match parsed(&format!("status --dir /d {words}").trim().replace("  ", " ")) {
        Ok(Invocation::Status(args)) => args.request,
        other => panic!("{words}: {other:?}"),
    }
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
        ("web --print holder", Form::Print(Field::Holder)),
        ("web --print=term", Form::Print(Field::Term)),
    ] {
        let Request { form: found, keys, every, source } = request(words);
        assert_eq!((found, &keys[..]), (form, &["web".to_owned()][..]), "{words}");
        assert_eq!((every, &*source.bucket), (None, "putex"));
        assert_eq!(source.dir.map(|(dir, _)| dir), Some("/d".into()));
    }
    assert_eq!(request("").keys, Vec::<String>::new());
    assert_eq!(request("a b/c").keys, ["a", "b/c"]);
    assert_eq!(request("-W 2.5").every, Some(Duration::from_millis(2500)));
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    for (words, says) in [
        ("-e held", "-e: write one KEY with it"),
        ("-e held a b", "-e: write one KEY with it"),
        ("--print host", "--print: write one KEY with it"),
        ("-e maybe web", "-e: maybe: write held, free, mine, active, paused or holder=TOKEN"),
        ("-e holder= web", "-e: holder=: write held, free, mine, active, paused or holder=TOKEN"),
        (
            "--print hostt web",
            "--print: hostt: write holder, host, state or term; the nearest is host",
        ),
        ("-e held --json web", "-e: cannot be with --json; write one of them"),
        ("--print term --json web", "--print: cannot be with --json; write one of them"),
        ("-e held -W 1 web", "-W: cannot be with -e, which answers once"),
        ("--as me web", "--as: says who asks -e mine or -e active; write holder=TOKEN instead"),
        ("-W 0.01", "-W: write 100ms or more"),
        ("-W soon", "-W: soon: "),
        ("''", "KEY: \"\": is empty; write none for all keys"),
        ("\u{fc}", "KEY: key \"\u{fc}\": '\u{fc}' is not allowed in a key, which is of "),
        ("-e free d*b", "KEY: key \"d*b\": '*' is not allowed in a key, which is of "),
        ("web .a", "KEY: key \".a\": a key has something around each dot"),
        ("--replicas 3", "--replicas: not an option of putex status"),
        ("-q", "-q: not an option of putex status"),
    ] {
        let refusal = parsed(&format!("status --dir /d {words}")).expect_err(words);
        assert_eq!(refusal.exit, Exit::Usage, "{words}");
        assert!(refusal.text.starts_with(says), "{words}: {}", refusal.text);
    }
}
