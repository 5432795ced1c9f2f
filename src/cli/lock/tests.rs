//! The command line of `putex lock`. A test that begins with `flock` is a case of the tests of
//! flock(1) in util-linux, tests/ts/misc/flock; one with `consul_nomad`, of their `lock`
//! commands.

use log::Level;

use super::super::tests::{environment, once, parse_with, refused_line};
use super::*;
use crate::cli::{self, BucketArgs, Invocation, Location, parse};
use crate::core::DRIFT_PPM_DEFAULT;
use crate::exit::Exit;

/// Returns the bucket and the request of a lock.
fn args_of(parsed: Result<Invocation, Refusal>) -> (BucketArgs, Request) {
    let (bucket, cli::Request::Lock(request)) = once(parsed) else { panic!("no lock") };
    (bucket, request)
}

/// Returns the request of a lock in a directory with these words behind the options for it.
fn lock(words: &str) -> Request {
    args_of(parse_with(&format!("lock --dir /d {words}"), None, &[], "alpha")).1
}

fn refused(line: &str) -> (String, u8) {
    let refusal = refused_line(line);
    (refusal.text, refusal.exit as u8)
}

/// Asserts that words are refused with 64, in one line with this beginning.
fn assert_usage(words: &str, says: &str) {
    let (text, status) = refused(&format!("lock --dir /d {words}"));
    assert!(text.starts_with(says) && !text.contains('\n'), "{words}: {text}");
    assert_eq!(status, 64, "{words}");
}

const INSTEAD: &str = "a lock of putex lives as long as its command, and putex stays beside it; \
                       for a lock without a command write putex grab NAME and putex release NAME";

#[test]
fn defaults_are_those_of_the_page() {
    let (bucket, request) = args_of(parse_with("lock --dir /d db true", None, &[], "alpha"));
    let (location, name) = (Location::Dir("/d".into()), "putex".to_owned());
    assert_eq!(bucket, BucketArgs { location, name, replicas: 1, allow_memory: false });
    let second = Duration::from_secs(1);
    let timing = LockTiming::new(5 * second, 3, DRIFT_PPM_DEFAULT, 2 * second).expect("safe");
    assert_eq!(request.timing, timing);
    assert_eq!((request.mode, request.wait), (Mode::Exclusive, None));
    assert_eq!((request.busy_status, request.token.as_str()), (75, "alpha"));
    assert_eq!(request.level, Level::Warn as u64);
    assert_eq!(request.command, ["true"]);
    assert_eq!((request.hold, request.report), (Duration::ZERO, None));
    assert_eq!(request.name, tickets::Name::parse("db").expect("a name"));
}

#[test]
fn every_spelling_of_an_option_means_the_same() {
    for (words, due) in [("-s --shared", "-s"), ("-x -e --exclusive", "-x")] {
        for word in words.split(' ') {
            assert_eq!(lock(&format!("{word} db true")).mode, lock(&format!("{due} db true")).mode);
        }
    }
    assert_eq!(lock("-s db true").mode, Mode::Shared);
    for word in ["-n", "--nb", "--nonblock", "--nonblocking", "-w 0", "-w 0.0", "--wait=0ms"] {
        assert_eq!(lock(&format!("{word} db true")).wait, Some(Duration::ZERO), "{word}");
    }
    for word in ["-w 7", "-w7", "--wait 7", "--timeout 7", "--timeout=7s"] {
        let seven = Some(Duration::from_secs(7));
        assert_eq!(lock(&format!("{word} db true")).wait, seven, "{word}");
    }
    for word in ["-E 5", "--conflict-exit-code 5", "-E5"] {
        assert_eq!(lock(&format!("{word} db true")).busy_status, 5, "{word}");
    }
    for word in ["-o", "--close"] {
        assert!(lock(&format!("{word} db true")).closes, "{word}");
    }
    assert!(!lock("db true").closes);
}

#[test]
fn of_shared_and_exclusive_the_last_one_counts() {
    for (words, mode) in [
        ("-s -x", Mode::Exclusive),
        ("-x -s", Mode::Shared),
        ("-se", Mode::Exclusive),
        ("-s -x -s", Mode::Shared),
    ] {
        assert_eq!(lock(&format!("{words} db true")).mode, mode, "{words}");
    }
}

#[test]
fn a_lock_is_held_on_and_reported_if_that_is_asked_for() {
    let request = lock("--hold 1.5m --report /r db true");
    assert_eq!(request.hold, Duration::from_secs(90));
    assert_eq!(request.report.as_deref(), Some("/r"));
    assert_usage("--hold x db true", "--hold: x: is not a time");
    assert_usage("--report '' db true", "--report: is empty");
}

/// flock(1) does not wait either, whatever the order.
#[test]
fn slots_are_a_number_of_holders_of_one_name() {
    assert_eq!(lock("-j 4 db true").mode, Mode::Slots(4));
    assert_eq!(lock("--slots=1000 db true").mode, Mode::Slots(1000));
    for (words, says) in [
        ("-j 0 db true", "-j: 0: write 1 to 1000"),
        ("-j 1001 db true", "-j: 1001: write 1 to 1000"),
        ("-j x db true", "-j: x: write 1 to 1000"),
        ("-j 4 -s db true", "-j: cannot be with -s or -x; "),
        ("-j 4 -x db true", "-j: cannot be with -s or -x; "),
    ] {
        assert_usage(words, says);
    }
}

#[test]
fn others_go_first_for_ever_or_for_a_time_and_only_before_an_exclusive_lock() {
    let soft = |quiet_for, hard_after| Some(Soft { quiet_for, hard_after });
    let second = Duration::from_secs(1);
    for (words, expected) in [
        ("", None),
        ("--soft", soft(Duration::ZERO, None)),
        ("--soft --hard-after 1m", soft(Duration::ZERO, Some(60 * second))),
        ("--quiet-for 1.5", soft(second * 3 / 2, None)),
        ("--soft --quiet-for 2s --hard-after 3", soft(2 * second, Some(3 * second))),
    ] {
        let line = format!("{words} db true");
        assert_eq!(lock(line.trim_start()).soft, expected, "{words}");
    }
    for (words, says) in [
        ("--soft -s db true", "--soft: cannot be with -s; "),
        ("--quiet-for 1 -s db true", "--quiet-for: cannot be with -s; "),
        ("--soft -j 2 db true", "--soft: cannot be with -j; "),
        ("--hard-after 1 db true", "--hard-after: says when --soft or --quiet-for ends; "),
        ("--quiet-for x db true", "--quiet-for: x: is not a time; "),
    ] {
        assert_usage(words, says);
    }
}

#[test]
fn no_wait_comes_before_a_wait() {
    for words in ["-n -w 5", "-w 5 -n"] {
        assert_eq!(lock(&format!("{words} db true")).wait, Some(Duration::ZERO));
    }
}

/// util-linux: "flock: timeout" takes fractions, and so does `strtotimeval`.
#[test]
fn flock_waits_for_a_fraction_of_a_second() {
    for (word, ms) in [
        ("5", 5000),
        ("0.5", 500),
        (".5", 500),
        ("5.", 5000),
        ("1.25s", 1250),
        ("250ms", 250),
        ("1.5m", 90_000),
        ("2h", 7_200_000),
        ("0.0000000001", 0),
        ("4294967295", 4_294_967_295_000),
    ] {
        let wait = lock(&format!("-w {word} db true")).wait;
        assert_eq!(wait, Some(Duration::from_millis(ms)), "{word}");
    }
}

#[test]
fn consul_nomad_a_negative_or_junk_time_out_is_refused() {
    for word in ["-1", "-0", "+1", "x", "s", ".", "1.2.3", "1e3", "0x10", "1w", "5 s"] {
        let says = "is not a time; write 30s, 5m or 1h, or a number of seconds";
        let word = word.replace(' ', "\u{a0}");
        let (text, status) = refused(&format!("lock --dir /d -w {word} db true"));
        assert!(text.starts_with("-w: ") && text.ends_with(says), "{word}: {text}");
        assert_eq!(status, 64, "{word}");
    }
    assert_usage("-w 4294967296 db true", "-w: 4294967296: is too large; write 4294967295 at most");
    assert_usage("-w", "-w: its value is missing; write -w SECONDS");
    assert_usage("-w --soft db true", "-w: --soft is an option and not its value; write -w");
    assert_usage("-w '' db true", "-w: is empty");
    // The option has taken a word that was meant for something else.
    assert_usage("-w sh", "-w: sh: is not a time");
    assert_usage("-k db true", "-k: db: is not a time");
    assert_usage("-w 5 db", "COMMAND is missing");
    assert_usage("-w 5", "NAME is missing");
}

/// util-linux: "flock -E 600" and its like end with EX_USAGE.
#[test]
fn flock_a_conflict_status_is_one_that_a_process_can_have() {
    for (word, status) in [("0", 0), ("123", 123), ("255", 255)] {
        assert_eq!(lock(&format!("-E {word} db true")).busy_status, status);
    }
    for word in ["256", "600", "-1", "x", "99999999999"] {
        assert_usage(&format!("-E {word} db true"), &format!("-E: {word}: write 0 to 255"));
    }
}

#[test]
fn flock_exactly_one_word_stands_behind_c() {
    for option in ["-c", "--command"] {
        let command = lock(&format!("db {option} exit")).command;
        assert_eq!(command, ["/bin/sh", "-c", "exit"]);
        let says = format!("{option}: write one word behind it");
        assert_usage(&format!("db {option} exit 1"), &says);
        assert_usage(&format!("db {option}"), &says);
        assert_usage(&format!("{option} exit db"), &format!("{option} comes after the name"));
    }
    assert_eq!(lock("db -c ''").command, ["/bin/sh", "-c", ""]);
}

#[test]
fn flock_the_shell_is_that_of_the_user() {
    for (shell, due) in [("/bin/zsh", "/bin/zsh"), ("", "/bin/sh")] {
        let line = parse_with("lock --dir /d db -c ls", None, &[("SHELL", shell)], "alpha");
        assert_eq!(args_of(line).1.command, [due, "-c", "ls"]);
    }
    let line = parse_with("lock --dir /d db ls", None, &[("SHELL", "/bin/zsh")], "alpha");
    assert_eq!(args_of(line).1.command, ["ls"]);
}

/// consul#776: options of the command were taken for its own.
#[test]
fn consul_the_words_behind_the_name_are_those_of_the_command() {
    for (words, command) in [
        ("db ls -v", &["ls", "-v"][..]),
        ("db -- ls -v", &["ls", "-v"]),
        ("-v -- db ls --help", &["ls", "--help"]),
        ("-- db -- ls", &["ls"]),
        ("db -- -c x", &["-c", "x"]),
        ("db -- -- x", &["--", "x"]),
        ("db ls -- x -c", &["ls", "--", "x", "-c"]),
        ("check agent lock", &["agent", "lock"]),
        ("9 true", &["true"]),
        ("db ''", &[""]),
    ] {
        assert_eq!(lock(words).command, command, "{words}");
    }
    assert_eq!(lock("db ls -v").level, Level::Warn as u64);
    assert_eq!(lock("-v db ls").level, Level::Info as u64);
    assert_eq!(lock("-qq db ls").level, Level::Error as u64);
}

#[test]
fn a_word_of_the_command_need_not_be_utf8() {
    use std::os::unix::ffi::OsStringExt;
    let bad = OsString::from_vec(b"caf\xe9".to_vec());
    let words = ["lock", "--dir", "/d", "db", "cat"].map(OsString::from).into_iter();
    let line = parse(words.chain([bad.clone()]), &environment(&|_| None, "alpha"));
    assert_eq!(args_of(line).1.command, [OsString::from("cat"), bad.clone()]);
    let words = ["lock", "--dir", "/d"].map(OsString::from).into_iter();
    let line = parse(words.chain([bad, "cat".into()]), &environment(&|_| None, "alpha"));
    let refusal = line.expect_err("a name is UTF-8");
    assert!(refusal.text.ends_with("is not UTF-8") && refusal.exit == Exit::Usage, "{refusal:?}");
}

#[test]
fn consul_nomad_a_missing_command_is_refused() {
    let says = "COMMAND is missing; write putex lock NAME COMMAND";
    for words in ["db", "db --", "-n db", "9x"] {
        assert_usage(words, says);
    }
    assert_usage("''", "NAME is empty; write a name");
    assert_usage("-n", "NAME is missing; write putex lock NAME COMMAND");
    assert_usage("--", "NAME is missing; write putex lock NAME COMMAND");
}

#[test]
fn an_option_behind_the_name_is_refused_with_its_place() {
    for option in ["-n", "-v", "--wait", "-", "--exclusive"] {
        assert_usage(&format!("db {option} true"), &format!("{option}: options come before"));
    }
}

#[test]
fn flock_a_descriptor_is_refused_with_the_reason() {
    for words in ["9", "-n 9", "-s 200"] {
        let number = words.split(' ').next_back().unwrap_or_default();
        assert_usage(words, &format!("{number}: a descriptor cannot be locked: {INSTEAD}"));
    }
    for option in ["-u", "--unlock", "-F", "--no-fork"] {
        assert_usage(&format!("{option} db true"), &format!("{option}: {INSTEAD}"));
    }
    assert_eq!(refused("agent -u").0, "-u: no such option; see putex agent --help");
}

#[test]
fn a_lock_has_one_name_which_may_be_a_path() {
    assert_eq!(lock("db/users true").name.to_string(), "db/users");
    let one_name = "a lock has one name; take one lock inside another, or lock a name above, as in \
                    db for db/users and db/orders";
    for (word, says) in [
        ("db/users,web", one_name),
        ("db,", one_name),
        ("/var/lock/db", "a name is not the path of a file; write it without"),
        ("db/", "write elements that are not empty between slashes"),
        ("a.b", "write a-z"),
    ] {
        assert_usage(&format!("{word} true"), &format!("NAME: {word}: {says}"));
    }
}

/// Each has its own letter -r, -f and -c, and its own defaults.
#[test]
fn a_letter_means_what_the_command_says() {
    let request = lock("-r 4s -f 5 -k 0.5 --drift 0.5% db true");
    let timing = LockTiming::new(Duration::from_secs(4), 5, 5000, Duration::from_millis(500));
    assert_eq!(request.timing, timing.expect("safe"));
    let r = lock("-r 500 -k 100ms db true").timing.renewal();
    assert_eq!(r, Duration::from_millis(500), "milliseconds");
    let k = lock("-k 1 db true").timing;
    assert_eq!(k, lock("-k 1s db true").timing, "seconds");
    for option in ["--key", "--start", "--stop", "--syslog", "--confirmations", "--connect"] {
        let says = format!("{option}: not an option of putex lock");
        assert_usage(&format!("{option} x db true"), &says);
    }
    for option in ["-n", "-E", "--timeout", "--wait"] {
        let says = format!("{option}: not an option of putex agent, but of lock");
        let (text, status) = refused(option);
        assert!(text.starts_with(&says), "{text}");
        assert_eq!(status, 64);
    }
    assert_usage("./report", "NAME is missing; write putex lock NAME ./report");
    assert_usage("./report x", "NAME: ./report: ");
    assert_usage("--exclusiv db true", "--exclusiv: no such option; the nearest is --exclusive");
    assert_usage("--wiat 3 db true", "--wiat: no such option; the nearest is --wait");
    assert_eq!(
        refused("-v lock db true").0,
        "lock: a command comes before its options; write putex lock first"
    );
}

#[test]
fn times_that_break_the_promise_are_refused() {
    for (words, says) in [
        ("-k 9", "-k: no time is left to renew the lock"),
        ("-r 1s", "-r: no time is left to renew the lock"),
        ("-f 1", "-f: 1 is less than 2"),
        ("-r 0", "-r: 0 ms is shorter than the minimum"),
        ("-f 101", "-f: 101 is more than the maximum of 100"),
        ("-r 5m", "-r: 300 s is longer than the maximum"),
        ("--drift 50", "--drift: 50 % is more than the maximum"),
        ("-k 4294967295", "-k: no time is left"),
    ] {
        let (text, status) = refused(&format!("lock --dir /d {words} db true"));
        assert!(text.starts_with(says) && !text.contains("-c"), "{words}: {text}");
        assert_eq!(status, 78, "{words}");
    }
}

#[test]
fn a_store_has_to_be_named() {
    let says = "--nats: is missing; write --nats URL, set NATS_URL, or write nats = URL in \
                putex.conf(5), or --dir DIR for a lock that covers this host only";
    assert_eq!(refused("lock db true"), (says.to_owned(), 78));
    let (_, status) = refused("lock --dir d db true");
    assert_eq!(status, 64);
    let (bucket, _) =
        args_of(parse_with("lock db true", None, &[("NATS_URL", "nats://env")], "alpha"));
    assert_eq!(bucket.location, super::super::tests::nats("nats://env"));
}

#[test]
fn every_option_for_a_store_is_that_of_the_agent() {
    let store = "--nats tls://h --creds c --tlsca ca --tlscert crt --tlskey key --tlsfirst \
                 --inbox-prefix in --js-domain hub --bucket b --replicas 3 --allow-memory \
                 --token me";
    let of_agent = format!("agent {store} --key k --start a --stop b").replace("  ", " ");
    let parsed = parse_with(&of_agent, None, &[], "alpha");
    let Ok(Invocation::Agent(agent)) = parsed else { panic!("no agent") };
    let line = format!("lock {store} db true");
    let (bucket, request) = args_of(parse_with(&line, None, &[], "alpha"));
    assert_eq!(bucket, agent.bucket);
    let BucketArgs { name, replicas, allow_memory, .. } = bucket;
    assert_eq!((&*name, replicas, allow_memory), ("b", 3, true));
    assert_eq!(request.token, "me");
}

#[test]
fn of_the_file_the_store_and_the_drift_count() {
    let file = "dir = /of/file\nbucket = b\nrenewal = 50s\nfailures = 9\nconfirmations = junk\n\
                drift = 2%\ntoken = me\nkey = k\nstart = up\nsyslog = yes\nquiet = yes\n";
    let (bucket, request) = args_of(parse_with("lock db true", Some(file), &[], "alpha"));
    let BucketArgs { location, name, .. } = bucket;
    assert_eq!((location, &*name), (Location::Dir("/of/file".into()), "b"));
    let second = Duration::from_secs(1);
    let timing = LockTiming::new(5 * second, 3, 20_000, 2 * second).expect("safe");
    assert_eq!((request.timing, request.token.as_str()), (timing, "me"));
    assert_eq!(request.level, Level::Error as u64);
    for (file, says) in [
        ("bogus = 1\n", "/etc/putex/putex.conf:1: bogus: no such key"),
        ("shared = yes\n", "/etc/putex/putex.conf:1: shared: no such key"),
        ("drift = x\n", "/etc/putex/putex.conf:1: drift: x: is not a rate"),
    ] {
        let refusal =
            parse_with("lock --dir /d db true", Some(file), &[], "alpha").expect_err(file);
        assert!(refusal.text.starts_with(says), "{}", refusal.text);
        assert_eq!(refusal.exit, Exit::Unsafe, "{file}");
    }
}

/// The token of a lock is for people: any name of a host will do.
#[test]
fn a_host_name_that_many_hosts_have_will_do() {
    let (_, request) = args_of(parse_with("lock --dir /d db true", None, &[], "localhost"));
    assert_eq!(request.token, "localhost");
    assert_usage("--token '' db true", "--token: is empty");
}
