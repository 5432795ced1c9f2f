//! The command line of `putex doctor`.

use std::time::Duration;

use super::super::tests::{parse_with, refused_line};
use super::*;
use crate::cli::Invocation;
use crate::exit::Exit;

fn args(words: &str) -> (bool, Result<DoctorArgs, Refusal>) {
    match parse_with(&format!("doctor {words}"), None, &[], "alpha") {
        Ok(Invocation::Doctor { is_json, args }) => (is_json, *args),
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn what_is_measured_is_what_the_page_says() {
    for (words, is_json, key, renewal, is_given, ignored, samples) in [
        ("", false, None, 3000, false, &[][..], 50),
        ("--json web", true, Some("web"), 3000, false, &[], 50),
        ("web -r 2s --samples=10", false, Some("web"), 2000, true, &[], 10),
        ("--ignore fsync,watchdog", false, None, 3000, false, &["fsync", "watchdog"], 50),
        ("-f 5", false, None, 3000, true, &[], 50),
    ] {
        let (given, args) = args(format!("--dir /d {words}").trim());
        let args = args.expect(words);
        assert_eq!((given, args.key.as_deref()), (is_json, key), "{words}");
        assert_eq!(args.timing.renewal(), Duration::from_millis(renewal), "{words}");
        assert_eq!((args.is_timing_given, args.samples), (is_given, samples), "{words}");
        assert_eq!(args.ignored, ignored, "{words}");
    }
    let (_, args) = args("--dir /d --watchdog /dev/watchdog0:required");
    assert_eq!(args.expect("valid").device, Some(("/dev/watchdog0".to_owned(), true)));
}

#[test]
fn a_mistake_is_told_with_what_to_write_instead() {
    let refusal = refused_line("doctor --dir /d web db");
    let says = "db: unexpected argument; write one KEY, or none for all";
    assert_eq!((refusal.exit, refusal.text.contains(says)), (Exit::Usage, true), "{refusal:?}");
    for (words, says, exit) in [
        ("--dir /d w*b", "KEY: ", Exit::Usage),
        ("--dir /d lease.x", "KEY: key \"lease.x\": lease, lock, putex and keys", Exit::Usage),
        ("--dir /d --samples 9", "--samples: 9: write 10 to 10000", Exit::Usage),
        (
            "--dir /d --ignore fsnc",
            "fsnc: no finding has this name; see putex help doctor",
            Exit::Usage,
        ),
        ("--dir /d -f 1", "F*R*(1 - drift) > R must hold", Exit::Unsafe),
        ("--json", "--nats: is missing", Exit::Unsafe),
    ] {
        let refusal = args(words).1.expect_err(words);
        assert_eq!(refusal.exit, exit, "{words}: {}", refusal.text);
        assert!(refusal.text.contains(says), "{words}: {}", refusal.text);
    }
}
