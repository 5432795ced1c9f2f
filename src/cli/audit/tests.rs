use std::ffi::OsString;

use super::super::config::ReadConfig;
use super::super::tests::environment;
use super::*;
use crate::cli::parse;
use crate::exit::Exit;

fn parsed_with(line: &str, url: Option<&str>, read: ReadConfig<'_>) -> Result<AuditArgs, Refusal> {
    let words = line.split(' ').map(|word| OsString::from(word.replace("''", "")));
    let var = |name: &str| url.filter(|_| name == "NATS_URL").map(OsString::from);
    let invocation = parse(words, &Environment { read, ..environment(&var, "alpha") })?;
    let Invocation::Audit(args) = invocation else { panic!("{line}: {invocation:?}") };
    Ok(*args)
}

fn parsed(line: &str) -> Result<AuditArgs, Refusal> {
    parsed_with(&format!("audit {line}"), None, &|_| Ok(None))
}

#[test]
fn logs_are_given_one_by_one_and_their_parts_with_commas() {
    for (line, logs) in [
        ("--log a db", vec![vec!["a"]]),
        ("db --log a --log=b,c --log -", vec![vec!["a"], vec!["b", "c"], vec!["-"]]),
        ("--dir /d db", vec![]),
    ] {
        let args = parsed(line).expect(line);
        assert_eq!((args.request.logs, &*args.request.key), (logs_of(&logs), "db"), "{line}");
    }
}

fn logs_of(logs: &[Vec<&str>]) -> Vec<Vec<String>> {
    let owned = |log: &Vec<&str>| log.iter().map(|part| (*part).to_owned()).collect();
    logs.iter().map(owned).collect()
}

#[test]
fn with_logs_the_bucket_is_read_if_options_or_variables_name_it() {
    let file = |_: &std::path::Path| {
        Ok(Some(crate::nats::file::TrustedFile { bytes: b"nats = h".to_vec(), others_read: false }))
    };
    let none = |_: &std::path::Path| Ok(None);
    for (line, url, read, is_read) in [
        ("--log a db", None, &none as ReadConfig<'_>, false),
        ("--log a db", None, &file, false),
        ("--log a db", Some("h"), &none, true),
        ("--log a --nats h db", None, &none, true),
        ("--log a --dir /d --bucket b db", None, &file, true),
        ("db", None, &file, true),
        ("db", Some("h"), &none, true),
    ] {
        let args = parsed_with(&format!("audit {line}"), url, read).expect(line);
        assert_eq!(args.bucket.is_some(), is_read, "{line} {url:?}");
    }
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    for (words, says) in [
        ("--log a", "KEY is missing; write putex audit [--log FILE] KEY"),
        ("--log a b db", "b: more than one KEY; write --log before each file"),
        ("--log a lock.db", "KEY: key \"lock.db\": lease, lock, once, putex and keys"),
        ("--log a d*b", "KEY: "),
        ("--log '' db", "--log: the name of a file is empty"),
        ("--log a,,b db", "--log: the name of a file is empty"),
        ("--log - --log - db", "--log: -: standard input can be read once"),
        ("--log a --replicas 3 db", "--replicas: not an option of putex audit"),
    ] {
        let refusal = parsed(words).expect_err(words);
        assert_eq!(refusal.exit, Exit::Usage, "{words}");
        assert!(refusal.text.starts_with(says), "{words}: {}", refusal.text);
    }
    let refusal = parsed("db").expect_err("no store");
    assert!(refusal.exit == Exit::Unsafe && refusal.text.starts_with("--nats: is missing"));
}
