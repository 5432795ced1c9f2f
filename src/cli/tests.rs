use std::time::Duration;

use super::table::{FLAGS, Flag, Name, Subcommand};
use super::*;
use crate::core::{DRIFT_PPM_DEFAULT, Timing};
use crate::nats::Server;
use crate::nats::file::TrustedFile;

const BASE: &str = "--dir /lock --key web --start up --stop down";

fn parse_line(line: &str) -> Result<Invocation, Refusal> {
    parse_at(line, None, "alpha")
}

fn parse_at(line: &str, nats_url: Option<&str>, host: &str) -> Result<Invocation, Refusal> {
    let words = line.split_whitespace().map(|word| OsString::from(word.replace("''", "")));
    let var = |name: &str| nats_url.filter(|_| name == "NATS_URL").map(OsString::from);
    parse(words, &environment(&var, host))
}

/// An environment without a configuration file.
pub(super) fn environment<'a>(var: Lookup<'a>, host: &'a str) -> Environment<'a> {
    let read = &|_: &std::path::Path| Ok(None);
    Environment { var, host, read }
}

/// Parses a line whose words are separated by blanks, with this file and these variables.
pub(super) fn parse_with(
    line: &str,
    file: Option<&str>,
    variables: &[(&str, &str)],
    host: &str,
) -> Result<Invocation, Refusal> {
    let read: ReadConfig<'_> = &|_| {
        Ok(file.map(|text| TrustedFile { bytes: text.as_bytes().to_vec(), others_read: true }))
    };
    let var = |name: &str| {
        let given = variables.iter().find(|(known, _)| *known == name);
        given.map(|(_, value)| OsString::from(value))
    };
    let words = line.split(' ').map(|word| OsString::from(word.replace("''", "")));
    parse(words, &Environment { read, ..environment(&var, host) })
}

/// Returns the bucket and what is asked for of a command that ends by itself.
pub(super) fn once(parsed: Result<Invocation, Refusal>) -> (BucketArgs, Request) {
    match parsed {
        Ok(Invocation::Once(bucket, request)) => (bucket, *request),
        other => panic!("{other:?}"),
    }
}

/// Returns how a line is refused without a file and without variables.
pub(super) fn refused_line(line: &str) -> Refusal {
    parse_with(line, None, &[], "alpha").expect_err(line)
}

/// Were `NATS_URL` ignored, the lock would be in a directory and cover one host only.
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    for name in ["NATS_URL", "PUTEX_CONFIG", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN"] {
        let bad = OsString::from_vec(b"caf\xe9".to_vec());
        let var = |known: &str| (known == name).then(|| bad.clone());
        let words = BASE.split(' ').map(OsString::from);
        let refusal = parse(words, &environment(&var, "alpha")).expect_err(name);
        assert_eq!(refusal.text, format!("{name}: its value is not UTF-8"));
        assert_eq!(refusal.exit, Exit::Usage);
    }
}

#[test]
fn a_blank_variable_counts_as_unset() {
    let var = |_: &str| Some(OsString::from(" "));
    let location = |line: &str| -> Result<Location, Refusal> {
        let words = line.split(' ').map(OsString::from);
        match parse(words, &environment(&var, "alpha")) {
            Ok(Invocation::Agent(args)) => Ok(args.bucket.location),
            Err(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    };
    let settings = "--key web --start up --stop down";
    assert_eq!(location(&format!("{settings} --nats h")), Ok(nats("h")));
    let refusal = location(settings).expect_err("NATS_URL is blank");
    assert!(refusal.text.starts_with("--nats: is missing"), "{refusal:?}");
}

/// Returns the location of servers without any other setting.
pub(super) fn nats(url: &str) -> Location {
    let servers = Server::parse_list(url).expect("servers");
    let inbox = Some("_INBOX".to_owned());
    Location::Nats(Box::new(Access { servers, inbox, ..Access::default() }))
}

fn agent(line: &str) -> AgentArgs {
    match parse_line(line) {
        Ok(Invocation::Agent(args)) => *args,
        other => panic!("{line}: {other:?}"),
    }
}

pub(super) fn refused(line: &str) -> (String, u8) {
    match parse_line(line) {
        Err(refusal) => (refusal.text, refusal.exit as u8),
        Ok(invocation) => panic!("{line}: {invocation:?}"),
    }
}

#[test]
fn a_flag_stands_where_its_name_says() {
    for flag in FLAGS {
        assert_eq!(flag.name.flag().long, flag.long);
    }
    let of_access = FLAGS.iter().filter(|flag| flag.name.is_of_access());
    let of_access: Vec<_> = of_access.map(|flag| flag.long).collect();
    let due = "user password-file auth-token-file nkey creds tlsca tlscert tlskey tlsfirst \
               inbox-prefix js-domain js-api-prefix";
    assert_eq!(of_access.join(" "), due);
}

#[test]
fn the_flags_of_0_2_0_need_no_command() {
    let args = agent(
        "--nats nats://h:4222 --bucket locks --key web --token t --healthcheck ok --start up \
         --stop down -r 500 -f 4 -c 1 -v",
    );
    assert_eq!(args.bucket.location, nats("nats://h:4222"));
    assert_eq!(
        (
            args.bucket.name.as_str(),
            args.guard.commands.key.as_str(),
            args.guard.commands.token.as_str()
        ),
        ("locks", "web", "t")
    );
    assert_eq!(
        (
            args.guard.commands.check.as_deref(),
            args.guard.commands.start.as_str(),
            args.guard.commands.stop.as_str()
        ),
        (Some("ok"), "up", "down")
    );
    let timing = Timing::new(Duration::from_millis(500), 4, 1, DRIFT_PPM_DEFAULT).expect("safe");
    assert_eq!(args.guard.timing, timing);
    assert_eq!(args.guard.level, log::Level::Debug as u64);
}

#[test]
fn the_four_arguments_stand_for_four_flags() {
    let args = agent("agent nats://h locks web t --start up --stop down");
    assert_eq!(args.bucket.location, nats("nats://h"));
    assert_eq!(
        (
            args.bucket.name.as_str(),
            args.guard.commands.key.as_str(),
            args.guard.commands.token.as_str()
        ),
        ("locks", "web", "t")
    );
    let (text, status) = refused("agent nats://h locks web --start up --stop down");
    assert_eq!(status, 64);
    assert!(text.starts_with("nats://h: unexpected argument; write options alone"), "{text}");
    let (text, _) = refused("agent nats://h locks web t --key web --start up --stop down");
    assert!(text.starts_with("nats://h: unexpected argument"), "{text}");
}

#[test]
fn defaults_are_those_of_0_2_0_and_of_this_host() {
    let args = agent(BASE);
    let timing = Timing::new(Duration::from_secs(3), 3, 2, DRIFT_PPM_DEFAULT).expect("safe");
    assert_eq!(args.guard.timing, timing);
    assert_eq!((args.bucket.name.as_str(), args.guard.commands.token.as_str()), ("putex", "alpha"));
    assert_eq!((args.guard.commands.check, args.bucket.replicas), (None, 1));
    assert_eq!(args.guard.level, log::Level::Info as u64);
    assert_eq!(agent(&format!("{BASE} -qv")).guard.level, args.guard.level);
}

#[test]
fn an_agent_without_a_location_is_refused() {
    for command in ["agent", "finish"] {
        let line = format!("{command} --key web --start up --stop down");
        let says = "--nats: is missing; write --nats URL, set NATS_URL, or write nats = URL in \
                    putex.conf(5), or --dir DIR for a lock that covers this host only";
        assert_eq!(refused(&line), (says.to_owned(), 78));
    }
}

#[test]
fn the_environment_names_servers_unless_a_directory_is_asked_for() {
    let place = |line: &str| match parse_at(line, Some("nats://env"), "alpha") {
        Ok(Invocation::Agent(args)) => args.bucket.location,
        other => panic!("{other:?}"),
    };
    let settings = "--key web --start up --stop down";
    assert_eq!(place(settings), nats("nats://env"));
    assert_eq!(place(&format!("{settings} --nats nats://flag")), nats("nats://flag"));
    assert_eq!(place(&format!("{settings} --dir /d")), Location::Dir(PathBuf::from("/d")));
}

#[test]
fn a_host_name_that_every_host_has_is_no_token() {
    for host in ["", "localhost", "(none)", "localhost.localdomain"] {
        let Err(refusal) = parse_at(BASE, None, host) else { panic!("{host} taken") };
        assert!(refusal.text.starts_with("--token: is missing"), "{}", refusal.text);
        assert!(parse_at(&format!("{BASE} --token mine"), None, host).is_ok());
    }
}

#[test]
fn times_have_units_and_bounds() {
    for (word, ms) in [("500", 500), ("500ms", 500), ("3s", 3000), ("1.5s", 1500), ("1m", 60_000)] {
        let args = agent(&format!("{BASE} -r {word}"));
        assert_eq!(args.guard.timing.renewal(), Duration::from_millis(ms), "{word}");
    }
    for word in ["3w", "s", "-5", "+5", "0x10", "99999999999999999999", "3sec", "4", "99", "1.5ms"]
    {
        let (text, status) = refused(&format!("{BASE} -r={word}"));
        assert_eq!(status, 64, "{word}");
        assert!(text.starts_with("-r: "), "{text}");
    }
    for (line, says) in [
        ("-r 5m", "-r: 300 s is longer"),
        ("-r 1h", "-r: 3600 s is longer"),
        ("-f 1", "-f: 1 is less"),
        ("-c 0", "-c: no time"),
        (
            "-r 10ms -c 1",
            "-c: no time is left to stop the service: C*R - drift - slack = 1 * 10 ms",
        ),
        ("-f 101 -c 101", "-f: 101 is more than the maximum of 100; -c: 101 is more"),
    ] {
        let (text, status) = refused(&format!("{BASE} {line}"));
        assert_eq!(status, 78, "{line}");
        assert!(text.starts_with(says), "{text}");
    }
}

#[test]
fn a_service_is_given_time_to_become_fit() {
    let args = agent(BASE);
    assert_eq!((args.config.start_grace, args.config.check_failures), (Duration::ZERO, 1));
    for (word, seconds) in
        [("0", 0), ("0s", 0), ("30s", 30), ("2m", 120), ("60m", 3600), ("1h", 3600)]
    {
        let args = agent(&format!("{BASE} --start-grace {word} --check-failures 100"));
        let grace = Duration::from_secs(seconds);
        assert_eq!((args.config.start_grace, args.config.check_failures), (grace, 100), "{word}");
    }
    for (line, says) in [
        ("--start-grace 3601", "3601: write 0 to 60m"),
        ("--start-grace 61m", "61m: write 0 to 60m"),
        ("--start-grace 3600001ms", "3600001ms: write 0 to 60m"),
        ("--start-grace 2h", "2h: write 0 to 60m"),
        ("--start-grace=-1s", "-1s: is not a time; write 30s, 5m or 1h"),
        ("--check-failures 0", "0: write 1 to 100"),
        ("--check-failures 101", "101: write 1 to 100"),
        ("--check-failures two", "two: write 1 to 100"),
        ("--check-failures 4294967296", "4294967296: write 1 to 100"),
    ] {
        let (text, status) = refused(&format!("{BASE} {line}"));
        assert_eq!(status, 64, "{line}");
        let option = line.split([' ', '=']).next().expect("an option");
        assert!(text.starts_with(&format!("{option}: {says}")), "{text}");
    }
}

#[test]
fn drift_is_a_percentage() {
    for (word, ppm) in [("1", 10_000), ("1%", 10_000), ("0.05%", 500), ("0", 0), ("8.3333", 83_333)]
    {
        assert_eq!(
            agent(&format!("{BASE} --drift {word}")).guard.timing.drift_ppm(),
            ppm,
            "{word}"
        );
    }
    for word in ["x", "1.23456", "%", "-1", "1e3", "1."] {
        let (_, status) = refused(&format!("{BASE} --drift={word}"));
        assert_eq!(status, 64, "{word}");
    }
}

#[test]
fn nonsense_is_refused_in_one_line_that_names_it() {
    for (line, says) in [
        (
            "--dir /d --start up --stop down",
            "--key: is missing; write --key KEY, or key = KEY in putex.conf(5)",
        ),
        ("--dir /d --key web --stop down", "--start: is missing"),
        ("--dir /d --key web --start up", "--stop: is missing"),
        ("--dir /d --key '' --start up --stop down", "--key: "),
        ("--dir /d --key a>b --start up --stop down", "--key: "),
        ("--dir /d --key putex.epoch --start up --stop down", "--key: "),
        ("--dir /d --key web --start '' --stop down", "--start: is empty; write --start COMMAND"),
        ("--dir /d --key web --start up --stop down --bucket a.b", "--bucket: "),
        (
            "--dir /d --key web --start up --stop down --token ''",
            "--token: is empty; write --token",
        ),
        ("--nats h --nats i", "--nats: is given twice; write it once: --nats URL[,URL]"),
        ("timing -r 1s --renewal 1s", "--renewal: is given twice; write it once: --renewal TIME"),
        ("lock --nats n1 -w 5 -w 3 db true", "-w: is given twice; write it once: -w SECONDS"),
        ("agent --nats h:x", "--nats: server 1: the port is not a number from 1 to 65535"),
        ("agent --nats ''", "--nats: is empty; write --nats URL[,URL]"),
        ("''", "'': no such command; see putex help"),
        ("agent ''", "'': unexpected argument; write options alone"),
        ("init ''", "'': unexpected argument; write --bucket NAME"),
        ("status --json=yes", "--json: takes no value; write --json alone"),
        ("LOCK db", "LOCK: no such command; the nearest is lock"),
        ("timing -r 99999999999s", "-r: 99999999999s: is too large; write 4294967295 at most"),
        ("--dir /d --key web --start up --stop down --nats h", "--dir: the lock is kept"),
        ("--dir /d --key web --start up --stop down --replicas 6", "--replicas: 6: "),
        ("--dir /d --key web --start up --stop down --bogus", "--bogus: no such option"),
        ("--dir /d --key lock.web --start up --stop down", "--key: key \"lock.web\": lease, lock,"),
        ("--dir d --key web --start up --stop down", "--dir: d: it is relative: from another"),
        ("--dir /d --key web --start up --stop down -v stray", "stray: unexpected argument"),
        ("-q check", "check: a command comes before its options"),
        ("timing -r 1.5x", "-r: 1.5x: is not a time; write 500ms"),
        ("timing -r ''", "-r: is empty"),
        ("timing --drift -1", "--drift: -1: is not a rate; write 1, 1%"),
        ("timing --key web", "--key: not an option of putex timing"),
        ("--key", "--key: its value is missing; write --key KEY"),
        ("pause --dir /d --for 1 h web", "web: unexpected argument; write putex pause"),
        ("--dir /d --start --stop true", "--start: --stop is an option and not its value; write"),
        (
            "--dir /d --key web --start systemctl start web --stop down -x",
            "start: unexpected argument; quote a command of several words, as in --start '",
        ),
        ("nightly rsync from to", "nightly: no such command; for a lock write putex lock nightly"),
        ("nightly", "nightly: no such command; see putex help"),
        (
            "-v nightly rsync from to",
            "a command is missing; write putex agent and options, or putex lock",
        ),
        ("--config /c nightly rsync from to", "a command is missing"),
        ("-v", "a command is missing"),
        ("lock -hold 5m db true", "-hold: no such option; write --hold"),
        ("lock -http-addr=h db true", "-http-addr=h: no such option; see putex lock --help"),
        ("lock -wait=5 db true", "-wait=5: no such option; write --wait"),
        ("--dir /d -healthcheck up", "-healthcheck: no such option; write --healthcheck"),
        ("timing -r 4", "-r: 4: a number alone is milliseconds; for seconds write 4s"),
    ] {
        let (text, status) = refused(line);
        assert_eq!(status, 64, "{line}");
        assert!(text.contains(says) && !text.contains('\n'), "{line}: {text}");
    }
}

#[test]
fn one_word_behind_a_watchdog_makes_it_required() {
    for (word, path, required) in [
        ("/dev/watchdog", "/dev/watchdog", false),
        ("/dev/watchdog:required", "/dev/watchdog", true),
        ("/dev/by:id/w", "/dev/by:id/w", false),
    ] {
        let args = agent(&format!("{BASE} --watchdog {word}"));
        assert_eq!(args.guard.device, Some((path.to_owned(), required)), "{word}");
    }
    for word in [
        "/dev/watchdog0:require",
        "/dev/watchdog:Required",
        "/dev/watchdog:",
        "/dev/watchdog:required:required",
        "/dev/watchdog:require:required",
    ] {
        let (text, status) = refused(&format!("{BASE} --watchdog {word}"));
        assert_eq!(status, 64, "{word}");
        let says = "has another word than required behind it; \
                    write /dev/watchdog or /dev/watchdog:required";
        assert_eq!(text, format!("--watchdog: {word}: {says}"));
    }
}

#[test]
fn a_command_that_is_given_is_not_blank() {
    for name in ["--start", "--stop", "--healthcheck", "--last-resort"] {
        let line = format!("{BASE} {name} ''");
        let line = line.replace(" --start up", if name == "--start" { "" } else { " --start up" });
        let line = line.replace(" --stop down", if name == "--stop" { "" } else { " --stop down" });
        assert_eq!(refused(&line), (format!("{name}: is empty; write {name} COMMAND"), 64));
    }
}

#[test]
fn a_refusal_shows_neither_a_password_nor_a_control_character() {
    for (line, says) in [
        (
            "agent nats://u:secret@h locks web --start up --stop down",
            "nats://...@h: unexpected argument; write options alone, as in --key KEY, or SERVER \
             BUCKET KEY TOKEN and options",
        ),
        ("nats://u:se@cret@h", "nats://...@h: no such command; see putex help"),
        ("nats://h?token=secret", "nats://h?...: no such command; see putex help"),
        ("nats://u:secret@h/?a?b=secret", "nats://...@h/?...: no such command; see putex help"),
        ("a?b", "a?b: no such command; see putex help"),
        ("secret@a=nats://u:p@h", "...@h: no such command; see putex help"),
        (
            "status web@1",
            "KEY: key \"...@1\": '@' is not allowed in a key; write a-z A-Z 0-9 - / _ = . only",
        ),
        ("--bogus\u{1b}[2J", "--bogus?[2J: no such option; see putex agent --help"),
        ("lock --bogus db true", "--bogus: no such option; see putex lock --help"),
        ("grab --bogus db", "--bogus: no such option; see putex grab --help"),
        ("timing --bogus", "--bogus: no such option; see putex timing --help"),
        (
            "timing -r \u{9b}",
            "-r: ?: is not a time; write 500ms, 3s or 1m, or a whole number of milliseconds",
        ),
    ] {
        let words = line.split(' ').map(OsString::from);
        let refusal = parse(words, &environment(&|_| None, "alpha")).expect_err("refused");
        assert_eq!(refusal.text, says);
    }
}

#[test]
fn timing_and_help_are_printed() {
    let printed = |line: &str| match parse_line(line) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    assert!(printed("timing -r 500 -c 1").contains("stop budget             470 ms"));
    assert!(printed("--help").contains("\n  timing "));
    assert!(printed("timing --help").starts_with("putex timing: show what"));
    assert!(printed("lock --nats n1 --help nightly ./report").starts_with("putex lock: "));
    assert_eq!(printed("-V"), format!("putex {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(refused("timing -c 0").1, 78);
}

#[test]
fn check_and_finish_read_what_an_agent_reads() {
    let of_agents = |subcommand| {
        let both = |flag: &&Flag| flag.name != Name::Connect;
        let flags = FLAGS.iter().filter(both);
        flags.filter(move |flag| flag.subcommands.contains(&subcommand))
    };
    let agents = || of_agents(Subcommand::Agent).map(|flag| flag.shown());
    for subcommand in [Subcommand::Check, Subcommand::Finish] {
        assert!(of_agents(subcommand).map(|flag| flag.shown()).eq(agents()));
    }
    let settings = "--key web --start up --stop down";
    let line = "--nats tls://h --creds c --tlsca ca --tlscert crt --tlskey key --tlsfirst \
                --inbox-prefix in --js-domain hub --syslog";
    let all = format!("{:?}", agent(&format!("agent {settings} {line}")));
    let Ok(Invocation::Check(check)) = parse_line(&format!("check {settings} {line}")) else {
        panic!("no check");
    };
    let Ok(Invocation::Finish(finish, _)) = parse_line(&format!("finish {settings} {line}")) else {
        panic!("no finish");
    };
    let check = check.resolved.args.expect("all is right");
    assert_eq!(format!("{check:?}"), all);
    assert_eq!(format!("{finish:?}"), all);
}

/// The service must be stopped, whatever is wrong with a setting that stop does not need.
#[test]
fn finish_reports_a_faulty_setting_and_goes_on() {
    for (line, exit) in [
        ("--check-failures 0", Exit::Usage),
        ("--start-grace x", Exit::Usage),
        ("--replicas 6", Exit::Usage),
        ("--notify-fd 1", Exit::Usage),
        ("--healthcheck ''", Exit::Usage),
        ("--watchdog /dev/w:required -r 100ms", Exit::Unsafe),
    ] {
        let Ok(Invocation::Finish(args, faults)) = parse_line(&format!("finish {BASE} {line}"))
        else {
            panic!("{line}: does not finish");
        };
        assert_eq!(
            (args.guard.commands.start.as_str(), args.bucket.replicas, args.config.check_failures),
            ("up", 1, 1)
        );
        assert_eq!(faults.iter().map(|fault| fault.exit).collect::<Vec<_>>(), [exit], "{line}");
    }
}

/// Each fits into the arguments of a process, and both not into the guard's first packet.
#[test]
fn commands_that_the_guard_cannot_be_sent_are_refused() {
    let long = "x".repeat(100 * 1024);
    let line = |start: &str| format!("agent --dir /lock --key web --start {start} --stop {long}");
    let refusal = parse_line(&line(&long)).expect_err("they are too long");
    assert_eq!(refusal.exit, Exit::Usage);
    let text = "--start: the commands together are too long for the guard; put them into scripts";
    assert_eq!(refusal.text, text);
    assert!(parse_line(&line("up")).is_ok());
}
