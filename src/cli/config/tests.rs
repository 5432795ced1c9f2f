use super::*;
use crate::cli::tests::{environment, nats};
use crate::cli::{AgentArgs, Environment, Invocation, Location, parse};

const PATH: &str = "/etc/putex/db.conf";

fn file(bytes: &[u8]) -> Config {
    let bytes = bytes.to_vec();
    let others_read = false;
    parse_file(Path::new(PATH), &TrustedFile { bytes, others_read })
}

/// Returns the value of a key in a file without faults.
fn value(text: &str, name: Name) -> Option<String> {
    let config = file(text.as_bytes());
    assert_eq!(config.faults, [], "{text:?}");
    config.settings.text(name).map(str::to_owned)
}

/// Returns the faults of a file, without its path.
fn faults(bytes: &[u8]) -> Vec<String> {
    let faults = file(bytes).faults.into_iter().map(|refusal| {
        assert_eq!(refusal.exit, Exit::Unsafe);
        let text = refusal.text.strip_prefix(PATH).map(str::to_owned);
        text.unwrap_or_else(|| panic!("no file: {}", refusal.text))
    });
    faults.collect()
}

#[test]
fn a_value_runs_to_the_end_of_its_line() {
    for (line, expected) in [
        ("start = up", "up"),
        ("start=up", "up"),
        ("  start\t =  up now \t", "up now"),
        ("start = up # not a comment", "up # not a comment"),
        ("start = A=1 sh -c 'x=\"$1\"; up'", "A=1 sh -c 'x=\"$1\"; up'"),
        ("start = \"up\"", "\"up\""),
        ("start = up \\", "up \\"),
        ("start = =", "="),
        ("start = up\r", "up"),
        ("start = \u{e9}t\u{e9}", "\u{e9}t\u{e9}"),
    ] {
        assert_eq!(value(line, Name::Start).as_deref(), Some(expected), "{line:?}");
    }
    let longest = "x".repeat(LINE_BYTES_MAX - "start=".len());
    assert_eq!(value(&format!("start={longest}"), Name::Start), Some(longest));
}

#[test]
fn comments_and_blank_lines_are_ignored() {
    for text in ["", "\n", "\n\n", "# start = up", " \t# start", " \r\n\t\n", "#\0"] {
        let config = file(text.as_bytes());
        assert_eq!(config.settings, Settings::default(), "{text:?}");
        assert_eq!(config.faults.len(), usize::from(text.contains('\0')), "{text:?}");
    }
}

#[test]
fn keys_are_the_long_names_of_options() {
    for flag in FLAGS {
        let Some(key) = flag.key() else {
            if FLAGS.iter().any(|other| other.key() == Some(flag.long)) {
                continue; // The key is of the agent's flag with this name.
            }
            let line = format!("{} = x", flag.long);
            let keys = FLAGS.iter().filter_map(Flag::key).map(str::to_owned);
            let nearest = nearest(flag.long, keys);
            let says = format!(":1: {}: no such key{nearest}; see putex.conf(5)", flag.long);
            assert_eq!(faults(line.as_bytes()), [says]);
            continue;
        };
        assert_eq!(key, flag.long);
        let text = if flag.value.is_empty() { "yes" } else { "x" };
        let line = format!("{key} = {text}");
        assert_eq!(value(&line, flag.name).as_deref(), Some(text), "{line}");
    }
}

#[test]
fn a_switch_is_yes_or_no() {
    for (line, says) in [
        ("syslog = yes", None),
        ("syslog = no", None),
        ("quiet = twice", None),
        ("syslog = twice", Some("twice: write yes or no")),
        ("syslog = true", Some("true: write yes or no")),
        ("syslog = Yes", Some("Yes: write yes or no")),
        (
            "syslog = yes # fast",
            Some("fast: write yes or no; a # begins no comment behind a value"),
        ),
        ("verbose = 2", Some("2: write yes, no or twice")),
        ("quiet = true", Some("true: write yes, no or twice")),
    ] {
        match (&faults(line.as_bytes())[..], says) {
            ([], None) => {}
            ([wrong], Some(says)) => assert!(wrong.ends_with(says), "{wrong}"),
            (wrong, _) => panic!("{line}: {wrong:?}"),
        }
    }
}

#[test]
fn a_byte_order_mark_is_ignored() {
    assert_eq!(value("\u{feff}start = up\n", Name::Start).as_deref(), Some("up"));
    assert_eq!(file("\u{feff}".as_bytes()).faults, []);
    // Anywhere else it is a character like others.
    assert_eq!(value("start = \u{feff}up\n", Name::Start).as_deref(), Some("\u{feff}up"));
    let twice = faults("\u{feff}\u{feff}start = up\n".as_bytes());
    assert_eq!(twice.len(), 1, "{twice:?}");
}

#[test]
fn every_faulty_line_is_reported() {
    for (bytes, says) in [
        (&b"start"[..], ":1: is neither 'key = value' nor a comment, which begins with #"),
        (b"\n= up", ":2: : no such key; see putex.conf(5)"),
        (b"-r = 3s", ":1: -r: no such key; see putex.conf(5)"),
        (b"--key = web", ":1: --key: no such key; see putex.conf(5)"),
        (b"Key = web", ":1: Key: no such key; the nearest is key; see putex.conf(5)"),
        (b"[db]\n", ":1: is neither 'key = value' nor a comment, which begins with #"),
        (b"# a\n\nkey =  \t\n", ":3: key: has no value; write key = KEY"),
        (b"key = a\nkey = a", ":2: key: stands in line 1 already"),
        (b"key = a\0b", ":1: has a NUL in it"),
        (b"key = \xff", ":1: is not UTF-8"),
        (b"nats://u:hunter2@h = x", ":1: nats://...@h: no such key; see putex.conf(5)"),
        (b"\x1b[2J = x", ":1: ?[2J: no such key; see putex.conf(5)"),
    ] {
        assert_eq!(faults(bytes), [says], "{}", bytes.escape_ascii());
    }
    let long = [b"key = ".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
    assert_eq!(faults(&long), [":1: is longer than 8192 bytes"]);
    let several = faults(b"key\nkey = a\nbogus = 1\nkey = b\n\xff\n");
    assert_eq!(several.len(), 4, "{several:?}");
}

/// Parses a command line beside this file, with these variables, `NAME=value`.
fn beside(text: &str, line: &str, variables: &[&str]) -> Result<AgentArgs, (String, u8)> {
    let var = |name: &str| {
        let pairs = variables.iter().filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value.into())
    };
    let read = |path: &Path| {
        let here = path == Path::new(DEFAULT) || path == Path::new(PATH);
        Ok(here.then(|| TrustedFile { bytes: text.as_bytes().to_vec(), others_read: true }))
    };
    let environment = Environment { read: &read, ..environment(&var, "alpha") };
    let is_command = line.starts_with("finish") || line.starts_with("agent");
    let line = if is_command { line } else { &format!("agent {line}") };
    match parse(line.split_whitespace().map(Into::into), &environment) {
        Ok(Invocation::Agent(args) | Invocation::Finish(args, _)) => Ok(*args),
        Ok(other) => panic!("{line}: {other:?}"),
        Err(refusal) => Err((refusal.text, refusal.exit as u8)),
    }
}

const WHOLE: &str = "key = web\nstart = up\nstop = down\n";

#[test]
fn options_come_before_the_environment_and_that_before_the_file() {
    let text = format!("{WHOLE}nats = file\nbucket = b\nrenewal = 4s\nquiet = yes\nsyslog = yes");
    let place = |line: &str, variables: &[&str]| {
        beside(&text, line, variables).expect(line).bucket.location
    };
    assert_eq!(place("", &[]), nats("file"));
    assert_eq!(place("", &["NATS_URL=env"]), nats("env"));
    assert_eq!(place("", &["NATS_URL="]), nats("file"));
    assert_eq!(place("--nats flag", &["NATS_URL=env"]), nats("flag"));
    assert_eq!(place("agent argument b2 k t", &[]), nats("argument"));
    assert_eq!(place("--dir /d", &[]), Location::Dir("/d".into()));
    let args = beside(&text, "-v -r 500", &[]).expect("fine");
    assert_eq!(args.guard.timing.renewal().as_millis(), 500);
    assert_eq!(args.guard.level, log::Level::Debug as u64);
    assert!(args.guard.syslog);
    let of_checks = format!("{WHOLE}dir = /d\nstart-grace = 90s\ncheck-failures = 3\n");
    let args = beside(&of_checks, "--check-failures 2", &[]).expect("fine");
    assert_eq!((args.config.start_grace.as_secs(), args.config.check_failures), (90, 2));
    let args = beside(&text, "finish --bucket c", &[]).expect("fine");
    assert_eq!((args.bucket.name.as_str(), args.guard.commands.start.as_str()), ("c", "up"));
    assert_eq!(args.guard.level, log::Level::Warn as u64);
}

#[test]
fn a_login_is_taken_whole_from_one_origin() {
    use crate::nats::{Login, Secret};
    let text = format!("{WHOLE}nats = h\nuser = u\npassword-file = p");
    let login = |line: &str, variables: &[&str]| match beside(&text, line, variables)
        .expect(line)
        .bucket
        .location
    {
        Location::Nats(access) => access.login,
        other @ Location::Dir(_) => panic!("{line}: {other:?}"),
    };
    let user = |name: &str, password| {
        let name = name.to_owned();
        Some(Login::User { name, password })
    };
    let given = |word: &str| Secret::Given(word.to_owned());
    assert_eq!(login("", &[]), user("u", Secret::File("p".into())));
    assert_eq!(login("", &["NATS_PASSWORD=x"]), user("u", Secret::File("p".into())));
    assert_eq!(login("", &["NATS_CREDS=c"]), Some(Login::Creds("c".into())));
    assert_eq!(login("", &["NATS_TOKEN=t"]), Some(Login::Token(given("t"))));
    assert_eq!(login("--nkey n", &["NATS_TOKEN=t"]), Some(Login::Nkey("n".into())));
    assert_eq!(login("--user v", &["NATS_PASSWORD=x"]), user("v", given("x")));
}

#[test]
fn a_refusal_names_the_origin_of_the_value() {
    let faults = |text: &str, line: &str, variables: &[&str]| {
        beside(&format!("{WHOLE}{text}"), line, variables).expect_err(text)
    };
    for (text, says) in [
        ("replicas = 9", "replicas: 9: write 1 to 5"),
        ("start-grace = 9x", "start-grace: 9x: is not a time"),
        ("check-failures = 0", "check-failures: 0: write 1 to 100"),
        ("renewal = 3s # R", "renewal: 3s # R: is not a time; write"),
        ("failures = 1", "failures: 1 is less than 2"),
        ("bucket = a.b", "bucket: bucket \"a.b\": '.' is not"),
        ("nats = ws://h", "nats: server 1: only"),
        (
            "nats = nats://u:p@h",
            "nats: others can read this secret; chmod o= /etc/putex/putex.conf",
        ),
        ("watchdog = wd", "watchdog: wd: is not the path of a device"),
        ("watchdog = /dev/w:require", "watchdog: /dev/w:require: has another word than required"),
        ("token = a\u{7f}b", "token: a?b: has blanks"),
    ] {
        let nats = if text.starts_with("nats") { "" } else { "\nnats = h" };
        let (found, status) = faults(&format!("{text}{nats}"), "", &[]);
        assert_eq!(status, 78, "{text}");
        let says = format!("/etc/putex/putex.conf:4: {says}");
        assert!(found.starts_with(&says), "{found}\n{says}");
    }
    for text in ["replicas = 3 # copies", "syslog = yes # for the log"] {
        let found = faults(&format!("{text}\nnats = h"), "", &[]).0;
        assert!(found.ends_with("; a # begins no comment behind a value"), "{found}");
    }
    let (found, status) = faults("creds = c", "", &[]);
    assert!(found.starts_with("--nats: is missing; "), "{found}");
    assert_eq!(status, 78);
    let (found, status) = faults("creds = c\ndir = /d", "", &[]);
    assert!(found.starts_with("/etc/putex/putex.conf:4: creds: is for a server"), "{found}");
    assert_eq!(status, 78);
    let (found, status) = faults("dir = /d\nnats = h", "", &[]);
    assert!(found.starts_with("/etc/putex/putex.conf:4: dir: "), "{found}");
    assert_eq!(status, 78);
    let (found, status) = faults("", "", &["NATS_URL=ws://h"]);
    assert!(found.starts_with("NATS_URL: server 1: only"), "{found}");
    assert_eq!(status, 64);
    let (found, status) = faults("nats = h", "--creds a --nkey b", &[]);
    assert_eq!((found.as_str(), status), ("--nkey: not together with --creds", 64));
}

#[test]
fn the_file_is_the_one_that_is_named() {
    let named = |line: &str, variables: &[&str]| beside("key", line, variables).expect_err(line).0;
    assert!(named("", &[]).starts_with("/etc/putex/putex.conf:1: "));
    assert!(named("--config /etc/putex/db.conf", &[]).starts_with("/etc/putex/db.conf:1: "));
    let set = ["PUTEX_CONFIG=/etc/putex/db.conf"];
    assert!(named("", &set).starts_with("/etc/putex/db.conf:1: "));
    assert!(named("--config /etc/putex/putex.conf", &set).starts_with("/etc/putex/putex.conf:1"));
    let missing = beside("", "--config /nowhere", &[]).expect_err("missing");
    assert_eq!(missing, ("--config: /nowhere: no such file".to_owned(), 78));
    let missing = beside("", "", &["PUTEX_CONFIG=/nowhere"]).expect_err("missing");
    assert_eq!(missing, ("PUTEX_CONFIG: /nowhere: no such file".to_owned(), 78));
    let blank = beside("", "--config=", &[]).expect_err("blank");
    assert_eq!(blank.1, 78);
}
