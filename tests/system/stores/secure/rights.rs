//! What an agent must be permitted to do: exactly what `contrib/nats/agent.conf`
//! says. With any of it taken away the agent says which.

use std::fs;
use std::path::Path;
use std::time::Duration;

use putex::nats::{ConnectOptions, Login, Secret};

use super::agent::Agent;
use super::{by, client, soon};
use crate::support::clock::{now, wait_until};
use crate::support::programs::nats_server;
use crate::support::server::Server;

/// Which of them is to publish to a twin: that is not missed before there is one.
const TO_TWIN: usize = 4;

/// The permissions, as they are shipped.
fn shipped() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/nats/agent.conf");
    fs::read_to_string(path).expect("a file")
}

/// The lines of the file that permit something, in order.
fn rights(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| line.starts_with('"')).collect()
}

/// A server with a user for each of `permissions`, called u0, u1 and so on.
fn server(binary: &Path, permissions: &[String]) -> Server {
    let users: String = permissions
        .iter()
        .enumerate()
        .map(|(number, text)| format!("{{ user: u{number}, password: p\n{text}\n}}\n"))
        .collect();
    let lines = format!("accounts {{ PUTEX {{ jetstream: enabled, users: [\n{users}] }} }}\n");
    Server::start(binary, &lines)
}

/// An agent that logs in as u0, u1 and so on; all of one server, user and key have one
/// token.
fn agent(server: &Server, user: usize, key: &str) -> Agent {
    let url = server.url("nats", &format!("u{user}:p@127.0.0.1"));
    let token = format!("{}-{}-{user}", std::process::id(), server.port());
    let inbox = "_INBOX.agent";
    let arguments = ["--nats", &url, "--token", &token, "--inbox-prefix", inbox];
    Agent::start(key, &arguments, &[])
}

#[test]
fn an_agent_needs_what_is_shipped_and_misses_nothing() {
    let Some(binary) = nats_server() else { return };
    let server = server(&binary, &[shipped()]);
    let first = agent(&server, 0, "web");
    first.await_line("the service runs here");
    // Another of the same token is told of, and a release is heard of at once.
    let twin = agent(&server, 0, "web");
    twin.await_line("two live agents have the same token");
    first.await_line("two live agents have the same token");
    drop(first);
    twin.await_line("the service runs here");
    let heard = twin.heard();
    assert!(!heard.contains("Permissions Violation"), "{heard}");
}

#[test]
fn a_right_that_is_missing_is_named() {
    let Some(binary) = nats_server() else { return };
    let whole = shipped();
    let rights = rights(&whole);
    assert_eq!(rights.len(), 8, "{rights:?}");
    let less: Vec<String> = rights
        .iter()
        .map(|right| {
            let quoted = |line: &str| line.trim() == *right;
            let mut gone = false;
            let left = whole.lines().filter(|line| {
                let this = !gone && quoted(line);
                gone |= this;
                !this
            });
            left.collect::<Vec<_>>().join("\n")
        })
        .collect();
    let mut less = less;
    // The twins' subject stands there twice: to publish, and to subscribe.
    let last = whole.rfind(rights[7]).expect("it stands there");
    less[7] = whole[..last].to_owned() + &whole[last + rights[7].len()..];
    let server = server(&binary, &less);
    let said = |right: &str| right.trim_matches('"').trim_end_matches('>').to_owned();
    // Nobody has made the bucket yet.
    let made = rights.iter().position(|right| right.contains("CREATE")).expect("one");
    let (status, text) = agent(&server, made, "web").await_end();
    assert_eq!(status, Some(77), "{text}");
    assert!(text.contains(&said(rights[made])), "{text}");
    // Somebody else makes it, and then that right is not missed.
    let maker = rights.iter().position(|right| right.contains("hint")).expect("one");
    let keys = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];
    let makes = agent(&server, maker, keys[maker]);
    makes.await_line("bucket locks: did not exist and was created");
    let agents: Vec<_> = (0..rights.len())
        .filter(|user| *user != maker)
        .map(|user| (user, agent(&server, user, keys[user])))
        .chain([(maker, makes)])
        .collect();
    let noisy =
        by(Login::User { name: format!("u{made}"), password: Secret::Given("p".to_owned()) });
    let mut noisy = client(
        &server.url("nats", "127.0.0.1"),
        ConnectOptions { inbox: "_INBOX.agent".to_owned(), ..noisy },
    );
    noisy.connect(soon()).expect("connected");
    for (user, agent) in agents {
        let what = said(rights[user]);
        match rights[user] {
            right if right.contains("CREATE") => agent.await_line("the service runs here"),
            // Nobody publishes there but to a twin.
            right if user == TO_TWIN => {
                let twin = self::agent(&server, user, keys[user]);
                agent.await_line("the service runs here");
                let agents = [&agent, &twin];
                let named = || agents.iter().any(|agent| agent.heard().contains(&what));
                let end = now() + Duration::from_secs(8);
                let seen = wait_until(end, || named().then_some(()));
                let heard = || format!("{}\n{}", agent.heard(), twin.heard());
                assert!(seen.is_some(), "{right}\n{}", heard());
            }
            _ => agent.await_line(&what),
        }
        let heard = agent.heard();
        if !rights[user].contains("CREATE") && user != TO_TWIN {
            assert!(heard.contains("Permissions Violation"), "{heard}");
        }
    }
}
