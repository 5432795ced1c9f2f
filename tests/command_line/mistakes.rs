//! Mistakes of a user: the agent answers with one line and one status. Every mistake in a line of
//! options is in the tests of `src/cli`; here are those of each kind, and those that only a server
//! shows.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::config::run::Run;
use crate::support::programs;
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;
use crate::support::wire::Client;

/// The options of an agent that makes no mistake.
const RIGHT: [(&str, &str); 6] = [
    ("--nats", "nats://127.0.0.1:1"),
    ("--bucket", "locks"),
    ("--key", "web"),
    ("--token", "a"),
    ("--start", "true"),
    ("--stop", "true"),
];

/// Runs an agent without some of the options, and with others instead: it must end with this
/// status and one line that contains `says`.
#[track_caller]
fn assert_refused(without: &[&str], with: &[&str], status: i32, says: &str) {
    let kept = RIGHT.iter().filter(|(option, _)| !without.contains(option));
    let kept = kept.flat_map(|(option, value)| [*option, *value]);
    let words: Vec<&str> = kept.chain(with.iter().copied()).collect();
    let run = Run::of(&words, &[]);
    assert_eq!(run.status, Some(status), "{words:?}: {run:?}");
    let line = run.said.strip_suffix('\n').unwrap_or_default();
    assert!(line.starts_with("putex: ") && line.contains(says), "{words:?}: {run:?}");
    assert!(!line.contains('\n') && run.shown.is_empty(), "{words:?}: {run:?}");
}

#[test]
fn mistakes_are_answered_by_one_line_and_their_status() {
    for (without, with, status, says) in [
        (&[][..], &["--frobnicate"][..], 64, "--frobnicate: no such option"),
        (&[], &["-v", "stray"], 64, "stray: unexpected argument"),
        (&["--stop"], &[], 64, "--stop: is missing"),
        (&[], &["-r"], 64, "-r: its value is missing; write -r TIME"),
        (&[], &["-r", "5parsecs"], 64, "-r: 5parsecs: is not a time"),
        (&["--bucket"], &["--bucket", "a.b"], 64, "--bucket: "),
        (&[], &["-f", "1"], 78, "-f: 1 is less than 2"),
        (&["--nats"], &[], 78, "--nats: is missing; write --nats URL"),
    ] {
        assert_refused(without, with, status, says);
    }
}

#[test]
fn a_wrong_password_and_an_unfit_bucket_are_told_in_one_line() {
    let Some(binary) = programs::nats_server() else { return };
    let asks = Server::start(&binary, "authorization { user: putex, password: right }\n");
    let wrong = asks.url("nats", "putex:wrong@127.0.0.1");
    for url in [wrong, asks.url("nats", "127.0.0.1")] {
        assert_refused(&["--nats"], &["--nats", &url], 77, "");
    }
    let server = Server::start(&binary, "");
    let mut client = Client::connect(server.port()).expect("it listens");
    client.create_bucket("source", "file").expect("there is room");
    let url = server.url("nats", "127.0.0.1");
    for (bucket, config, says) in [
        ("foreign", r#""subjects":["orders.>"],"storage":"file""#, "foreign"),
        ("aged", r#""subjects":["$KV.aged.>"],"storage":"file","max_age":10000000000"#, "age"),
        ("mirror", r#""mirror":{"name":"KV_source"},"storage":"file""#, "mirror"),
        ("memory", r#""subjects":["$KV.memory.>"],"storage":"memory""#, "memory"),
    ] {
        let config = format!(
            r#"{{"name":"KV_{bucket}","num_replicas":1,"max_msgs_per_subject":1,{config}}}"#
        );
        client.call(&format!("STREAM.CREATE.KV_{bucket}"), &config).expect(bucket);
        let with = ["--nats", &url, "--bucket", bucket];
        assert_refused(&["--nats", "--bucket"], &with, 78, says);
    }
}

/// A user who had started the first of three servers was told neither which one, nor why.
#[test]
fn a_server_of_a_cluster_without_a_leader_is_named_with_what_it_lacks() {
    let Some(binary) = programs::nats_server() else { return };
    let lines = "server_name: first\n\
                 cluster { name: c, listen: \"127.0.0.1:-1\", routes: [\"nats://127.0.0.1:1\"] }\n";
    let server = Server::start(&binary, lines);
    let url = server.url("nats", "127.0.0.1");
    let words = RIGHT.iter().filter(|(option, _)| *option != "--nats");
    let words = words.flat_map(|(option, value)| [*option, *value]);
    let words: Vec<&str> =
        ["check", "--connect", "-q", "--nats", &url].into_iter().chain(words).collect();
    let run = Run::of(&words, &[]);
    assert_eq!(run.status, Some(69), "{run:?}");
    let says =
        format!("putex: 127.0.0.1:{}: JetStream does not answer, as in a cluster", server.port());
    assert!(run.said.starts_with(&says), "{run:?}");
}

#[test]
fn a_lock_in_a_directory_is_not_made_below_a_mistyped_path() {
    let sandbox = Sandbox::new("mistyped");
    let dir = sandbox.join("none/locks").display().to_string();
    let run = Run::of(&["lock", "--dir", &dir, "db", "true"], &[]);
    assert_eq!(run.status, Some(78), "{run:?}");
    let says = format!("{} does not exist; make it first", sandbox.join("none").display());
    assert!(run.said.contains(&says) && !sandbox.join("none").exists(), "{run:?}");
}

/// The check said that all is right, and the agent was refused.
#[test]
fn a_check_refuses_a_directory_that_an_agent_would_refuse() {
    let sandbox = Sandbox::new("place");
    let shared = sandbox.join("shared");
    fs::create_dir(&shared).expect("it is new");
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).expect("to change it");
    for (dir, says) in [
        (shared.clone(), "is writable by others (mode 0777)"),
        (shared.join("locks"), "is writable by others (mode 0777)"),
        (sandbox.join("none/locks"), "does not exist; make it first"),
    ] {
        let dir = dir.display().to_string();
        let of_agent = ["--key", "web", "--start", "true", "--stop", "true"];
        let words = ["check", "--connect", "-q", "--dir", &dir].into_iter().chain(of_agent);
        let run = Run::of(&words.collect::<Vec<_>>(), &[]);
        assert_eq!(run.status, Some(78), "{run:?}");
        assert!(run.said.contains(says), "{run:?}");
    }
    assert_eq!(fs::read_dir(&shared).expect("it is there").count(), 0);
}

#[test]
fn a_program_of_a_lock_that_is_not_found_is_told_with_what_is_meant() {
    let sandbox = Sandbox::new("program");
    let dir = sandbox.join("locks").display().to_string();
    let script = sandbox.file("script", "#!/no/such/shell\n", 0o700).display().to_string();
    for (word, says) in [
        ("echo hi", "; a line for the shell is written behind -c: -c 'echo hi'\n"),
        (&*script, "in its first line, behind #!, is not, or that line ends in CR LF\n"),
        ("no-such", "(os error 2); it is not in PATH; a line for the shell is written behind -c\n"),
    ] {
        let run = Run::of(&["lock", "--dir", &dir, "db", word], &[]);
        assert_eq!(run.status, Some(127), "{run:?}");
        assert!(run.said.starts_with(&format!("putex: {word}: ")), "{run:?}");
        assert!(run.said.ends_with(says), "{run:?}");
    }
}
