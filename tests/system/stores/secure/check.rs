//! `putex check --connect`: what it says of servers, and that it leaves no trace there.

use std::fs;
use std::path::Path;

use putex::nats::Outgoing;

use super::agent::Agent;
use super::{assert_says, client, nobody, open, soon};
use crate::support::folder::Folder;
use crate::support::programs::{nats_server, nats_servers};
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::{Server, free_port};

/// Checks an agent of the key `web` in the bucket locks; returns the status, stdout, and
/// stderr.
fn check(words: &[&str]) -> (Option<i32>, String, String) {
    let sandbox = Sandbox::new("check");
    let mut command = sandbox.putex();
    let usual = ["check", "--bucket", "locks", "--key", "web", "--token", "t"];
    let commands = ["--start", "false", "--stop", "false", "--connect"];
    // A password in --nats is warned of.
    let words = match words {
        ["--nats", url, others @ ..] => {
            command.env("NATS_URL", url);
            others
        }
        _ => words,
    };
    let run = sandbox.run(command.args(usual).args(commands).args(words));
    let Run { status, shown, said } = run;
    (status, shown, said)
}

/// Returns all streams of the server.
fn streams(server: &Server, user: &str) -> String {
    let mut client = client(&server.url("nats", user), nobody());
    client.connect(soon()).expect("connected");
    let names =
        client.request(&Outgoing { subject: "$JS.API.STREAM.LIST", ..Outgoing::default() }, soon());
    let names = names.expect("an answer").payload;
    let names: serde_json::Value = serde_json::from_slice(&names).expect("JSON");
    let mut streams = names["streams"].clone();
    for stream in streams.as_array_mut().into_iter().flatten() {
        stream["ts"] = serde_json::Value::Null;
    }
    streams.to_string()
}

#[test]
fn a_bucket_that_is_not_there_could_be_made_and_is_not() {
    for binary in nats_servers() {
        let server = Server::start(&binary, "");
        let url = server.url("nats", "127.0.0.1");
        let (status, shown, said) = check(&["--nats", &url]);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{shown}");
        assert_says(
            shown.lines().rev().nth(1).expect("a line"),
            &["bucket locks: does not exist; an agent would make it, with replicas: 1"],
        );
        assert!(shown.contains(&format!("server 127.0.0.1:{}: nats-server 2.", server.port())));
        assert_eq!(streams(&server, "127.0.0.1"), "[]", "{}", binary.display());
        // Copies that an agent could not have made, which ends it too.
        let (status, _, said) = check(&["--nats", &url, "--replicas", "3"]);
        assert_eq!(status, Some(78), "{said}");
        let alone = format!("num_replicas 3: server 127.0.0.1:{} is in no", server.port());
        assert!(said.contains(&alone), "{said}");
        assert_says(said.trim_end(), &["putex: bucket locks: num_replicas 3: "]);
        assert_eq!(streams(&server, "127.0.0.1"), "[]", "{}", binary.display());
        // A bucket that is there is taken as it is.
        open(&url, nobody()).expect("opened");
        let before = streams(&server, "127.0.0.1");
        let (status, shown, said) = check(&["--nats", &url, "--replicas", "3"]);
        assert_eq!(status, Some(0), "{said}");
        assert_says(
            said.trim_end(),
            &["warning: bucket locks: it has 1 of the 3 replicas that were asked for"],
        );
        assert!(shown.contains("\nbucket locks: exists and is fit for a lock\n"));
        assert_eq!(streams(&server, "127.0.0.1"), before, "{}", binary.display());
    }
}

/// Each of them would give its agents a lock, and there would be two services.
#[test]
fn servers_that_are_not_one_cluster_are_told() {
    let Some(binary) = nats_server() else { return };
    let (one, other) = (Server::start(&binary, ""), Server::start(&binary, ""));
    let [one, other] = [&one, &other].map(|server| server.url("nats", "127.0.0.1"));
    let dead = format!("127.0.0.1:{}", free_port());
    let both = format!("{one},{dead},{other}");
    let (status, _, said) = check(&["--nats", &both]);
    assert_eq!(status, Some(78), "{said}");
    assert_says(said.trim_end(), &["it is in no cluster, and there are other servers"]);
    let (status, shown, said) = check(&["--nats", &format!("{one},{one}")]);
    assert_eq!((status, said.as_str()), (Some(0), ""), "{shown}");
    assert_eq!(shown.matches("\nserver 127.0.0.1:").count(), 2, "{shown}");
}

/// In a JetStream domain that both name, only their buckets tell.
#[test]
fn servers_of_two_domains_of_one_name_are_told_by_their_buckets() {
    let Some(binary) = nats_server() else { return };
    let start = || Server::start(&binary, "jetstream { store_dir: \"FOLDER/js\", domain: here }\n");
    let (one, other) = (start(), start());
    let [one, other] = [&one, &other].map(|server| server.url("nats", "127.0.0.1"));
    let both = format!("{one},{other}");
    let words = ["--nats", &both, "--js-domain", "here"];
    // Nothing is known of servers without a bucket.
    let (status, _, said) = check(&words);
    assert_eq!(status, Some(0), "{said}");
    for url in [&one, &other] {
        open(url, nobody()).expect("opened");
        let (status, shown, said) = check(&words);
        assert_eq!(status, Some(78), "{said}{shown}");
        assert_says(said.trim_end(), &["are not of one cluster: bucket locks of one"]);
    }
}

/// A new user started three servers, and made no cluster of them: two hosts ran the service.
#[test]
fn a_server_in_no_cluster_is_refused_beside_others() {
    let Some(binary) = nats_server() else { return };
    let server = Server::start(&binary, "");
    let url = server.url("nats", "127.0.0.1");
    let list = format!("{url},127.0.0.1:{}", free_port());
    let sandbox = Sandbox::new("stray");
    let init = |urls: &str| sandbox.run(sandbox.putex().args(["init", "--nats", urls]));
    let refused = init(&list);
    assert_eq!(refused.status, Some(78));
    assert_says(refused.said.trim_end(), &["it is in no cluster, and there are other servers"]);
    assert_eq!(streams(&server, "127.0.0.1"), "[]", "no bucket is made");
    assert_eq!(init(&format!("{url},{url}")).status, Some(0), "one server, twice");
}

#[test]
fn the_holder_does_not_notice() {
    let Some(binary) = nats_server() else { return };
    let server = Server::start(&binary, "");
    let url = server.url("nats", "127.0.0.1");
    let agent = Agent::start("web", &["--nats", &url], &[]);
    agent.await_line("the service runs here");
    for _ in 0..3 {
        // By the holder's own token, too.
        let (status, shown, said) = check(&["--nats", &url]);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{shown}");
        assert!(shown.contains("\nbucket locks: exists and is fit for a lock\n"), "{shown}");
    }
    let heard = agent.heard();
    assert!(agent.runs() && !heard.contains("active -> "), "{heard}");
    assert!(!heard.contains("two live agents"), "{heard}");
}

#[test]
fn what_keeps_an_agent_out_is_told_with_its_status() {
    let Some(binary) = nats_server() else { return };
    let lines = "authorization { user: u, password: s3cr3t }\n";
    let server = Server::start(&binary, lines);
    let url = |login: &str| server.url("nats", &format!("{login}127.0.0.1"));
    let folder = Folder::new("secure");
    let password = folder.secret("password", "s3cr3t").display().to_string();
    let wrong = folder.secret("wrong", "hunter2").display().to_string();
    let nobody_there = format!("127.0.0.1:{}", free_port());
    let tls = server.url("tls", "127.0.0.1");
    let ca = format!("{}/tests/system/stores/secure.rs", env!("CARGO_MANIFEST_DIR"));
    for (words, status, says) in [
        (vec!["--nats", &nobody_there], 69, "connection refused"),
        (vec!["--nats", &*url("")], 77, "Authorization Violation"),
        (vec!["--nats", &*url("u:hunter2@")], 77, "Authorization Violation"),
        (
            vec!["--nats", &*url(""), "--user", "u", "--password-file", &wrong],
            77,
            "Authorization Violation",
        ),
        (vec!["--nats", &*url(""), "--user", "u", "--password-file", &password], 0, ""),
        (vec!["--nats", &tls, "--tlsca", &ca], 78, "no certificates in PEM are in it"),
        (vec!["--nats", &*url(""), "--creds", &password], 78, "not a creds file"),
        (
            vec!["--nats", &*url("u:s3cr3t@"), "--js-domain", "hub"],
            69,
            "no JetStream answers at $JS.hub.API",
        ),
        (
            vec!["--nats", &*url("u:s3cr3t@"), "-f", "1", "--replicas", "6"],
            64,
            "-f: 1 is less than 2",
        ),
    ] {
        let (found, shown, said) = check(&words);
        assert_eq!(found, Some(status), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert_eq!(said.is_empty(), status == 0, "{said}");
        let secret = format!("{shown}{said}");
        let shows = secret.contains("hunter2") || secret.contains("s3cr3t");
        assert!(!shows, "{words:?}: {secret}");
    }
    let mut maker = client(&url("u:s3cr3t@"), nobody());
    maker.connect(soon()).expect("connected");
    let aged = r#"{"name":"KV_locks","subjects":["$KV.locks.>"],"storage":"memory",
        "num_replicas":1,"max_msgs_per_subject":1,"max_age":10000000000}"#;
    let made = maker.request(
        &Outgoing {
            subject: "$JS.API.STREAM.CREATE.KV_locks",
            payload: aged.as_bytes(),
            ..Outgoing::default()
        },
        soon(),
    );
    made.expect("made");
    let (status, _, said) = check(&["--nats", &url("u:s3cr3t@")]);
    assert_eq!(status, Some(78));
    assert_says(said.trim_end(), &["bucket locks: storage memory", "; max_age 10000000000"]);
}

/// The permissions, as they are shipped.
fn shipped() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/nats/agent.conf");
    fs::read_to_string(path).expect("a file")
}

/// A user for each right that is taken away, beside one with all of them.
fn users(shipped: &str) -> (Vec<String>, String) {
    let rights = shipped.lines().map(str::trim);
    let rights: Vec<_> = rights.filter(|line| line.starts_with('"')).collect();
    let mut names = vec!["whole".to_owned()];
    let mut users = format!("{{ user: whole, password: p\n{shipped}\n}}\n");
    for (number, right) in rights.iter().enumerate() {
        let lines = shipped.lines().filter(|line| line.trim() != *right);
        let less = lines.collect::<Vec<_>>().join("\n");
        users += &format!("{{ user: u{number}, password: p\n{less}\n}}\n");
        names.push((*right).to_owned());
    }
    (names, users)
}

#[test]
fn a_right_that_is_missing_is_told() {
    let (names, users) = users(&shipped());
    for binary in nats_servers() {
        let lines = format!(
            "accounts {{ PUTEX {{ jetstream: enabled, users: [\n{users}\
             {{ user: admin, password: p }}] }} }}\n"
        );
        let server = Server::start(&binary, &lines);
        let tell = |user: usize| {
            let name = user.checked_sub(1).map_or("whole".to_owned(), |n| format!("u{n}"));
            let url = server.url("nats", &format!("{name}:p@127.0.0.1"));
            check(&["--nats", &url, "--inbox-prefix", "_INBOX.agent", "-q"])
        };
        let nothing = (Some(0), String::new(), String::new());
        assert_eq!(tell(0), nothing);
        let making = names.iter().position(|right| right.contains("CREATE"));
        let making = making.expect("one");
        let (status, _, said) = tell(making);
        assert_eq!(status, Some(77), "{said}");
        assert_says(said.trim_end(), &["$JS.API.STREAM.CREATE.KV_locks", "Permissions Violation"]);
        let admin = "admin:p@127.0.0.1";
        assert_eq!(streams(&server, admin), "[]");
        open(&server.url("nats", admin), nobody()).expect("made");
        let before = streams(&server, admin);
        for (user, right) in names.iter().enumerate() {
            let (status, _, said) = tell(user);
            let part = right.trim_matches('"').trim_end_matches('>');
            match right.as_str() {
                // No right to write is needed, nor tried.
                "whole" | "\"$KV.locks.>\"" => assert_eq!(said, "", "{right}"),
                right if right.contains("CREATE") => assert_eq!(said, "", "{right}"),
                // Without one of these less is heard.
                right if right.contains("putex.") || right.contains("$SRV") => {
                    assert_eq!(status, Some(0), "{right}: {said}");
                    assert_says(said.trim_end(), &["putex: warning: ", part]);
                }
                right => {
                    assert_eq!(status, Some(77), "{right}: {said}");
                    assert_says(said.trim_end(), &[part.trim_end_matches('.')]);
                }
            }
        }
        assert_eq!(streams(&server, admin), before);
    }
}

/// A missing right to write had the status 69 in some commands and 77 in others, after up to 15
/// seconds, and the lines did not say where to read about it.
#[test]
fn each_command_that_may_not_write_ends_with_the_status_of_a_missing_right() {
    let Some(binary) = nats_server() else { return };
    let asks = "\"$SRV.STATS.putex\"";
    let reads = shipped().replace("\"$KV.locks.>\"", asks);
    let users =
        format!("{{ user: reader, password: p\n{reads}\n}}\n{{ user: admin, password: p }}");
    let lines = format!("accounts {{ PUTEX {{ jetstream: enabled, users: [{users}] }} }}\n");
    let server = Server::start(&binary, &lines);
    let sandbox = Sandbox::new("rights");
    let admin = server.url("nats", "admin:p@127.0.0.1");
    let run = |user: &str, words: &[&str]| {
        let mut command = sandbox.putex();
        let (first, others) = words.split_first().expect("a command");
        command.args([*first, "--bucket", "locks", "--inbox-prefix", "_INBOX.agent"]).args(others);
        sandbox.run(command.env("NATS_URL", server.url("nats", &format!("{user}:p@127.0.0.1"))))
    };
    let refused = |words: &[&str], subject: &str| {
        let Run { status, shown, said } = run("reader", words);
        assert_eq!((status, &*shown), (Some(77), ""), "{words:?}: {said}");
        let right = format!("Permissions Violation for Publish to \"$KV.locks.{subject}");
        let last = said.lines().last().expect("a line");
        assert_says(last, &[&right, "; see Rights in NATS in putex help theory"]);
    };
    open(&admin, nobody()).expect("made");
    refused(&["init"], "putex.settled");
    assert_eq!(run("admin", &["init"]).status, Some(0));
    refused(&["lock", "web", "true"], "lock.web.");
    refused(&["lock", "-n", "web", "true"], "lock.web.");
    refused(&["lock", "-w", "1", "web", "true"], "lock.web.");
    refused(&["grab", "web"], "lock.web.");
    assert_eq!(run("admin", &["grab", "--as", "a", "web"]).status, Some(0));
    refused(&["grab", "--as", "a", "web"], "lock.web.");
    refused(&["release", "--as", "a", "web"], "lock.web.");
    refused(&["release", "--force", "--holder", "a", "web"], "lock.web.");
    refused(&["lease", "claim", "--for", "60", "web"], "lease.web.");
    let claim = ["lease", "claim", "--for", "60", "--as", "a", "web"];
    assert_eq!(run("admin", &claim).status, Some(0));
    refused(&["lease", "extend", "--for", "90", "--as", "a", "web"], "lease.web.");
    refused(&["put", "--lease", "web", "--as", "a", "key", "value"], "key");
    let agent = |token| Agent::start("web", &["--nats", &*admin, "--token", token], &[]);
    let active = agent("a");
    active.await_line("the service runs here");
    let standby = agent("b");
    standby.await_open();
    refused(&["pause", "--for", "60", "web"], "putex.pause.web");
    refused(&["resume", "web"], "putex.pause.web");
    refused(&["switchover", "web"], "putex.switchover.web");
}

/// With what is shipped an agent misses nothing: another of the same token is seen, and a release
/// is heard of.
#[test]
fn an_agent_needs_what_is_shipped_and_misses_nothing() {
    let Some(binary) = nats_server() else { return };
    let (_, users) = users(&shipped());
    let lines = format!("accounts {{ PUTEX {{ jetstream: enabled, users: [\n{users}] }} }}\n");
    let server = Server::start(&binary, &lines);
    let url = server.url("nats", "whole:p@127.0.0.1");
    let words = ["--nats", &url, "--token", "twin", "--inbox-prefix", "_INBOX.agent"];
    let first = Agent::start("web", &words, &[]);
    first.await_line("the service runs here");
    let twin = Agent::start("web", &words, &[]);
    twin.await_line("two live agents have the same token");
    drop(first);
    twin.await_line("the service runs here");
    let heard = twin.heard();
    assert!(!heard.contains("Permissions Violation"), "{heard}");
}
