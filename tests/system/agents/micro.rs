//! Agents as NATS micro services: clients find them, and no client that may request that can do
//! harm.

mod client;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use client::Client;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::agent::Agent;
use crate::support::clock::{ms, now, until_true};
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;
use crate::support::wire::Frame;

/// R of the agent that is flooded with requests, long beside the delays of a busy host. T is three
/// times that.
const SLOW_R: Duration = Duration::from_secs(1);

/// A host with an agent of the key `web` in the bucket `locks`, which has a user of this name.
struct Host {
    sandbox: Sandbox,
    url: String,
    /// R of its agent.
    renewal: &'static str,
}

impl Host {
    fn new(server: &Server, user: &str) -> Host {
        let login = if user.is_empty() { String::new() } else { format!("{user}:p@") };
        let url = server.url("nats", &format!("{login}127.0.0.1"));
        Host { sandbox: Sandbox::new("micro"), url, renewal: "500ms" }
    }

    fn command(&self, subcommand: &str, token: &str) -> Command {
        let mut command = self.sandbox.putex();
        command.arg(subcommand).args(["--bucket", "locks", "--key", "web", "--token", token]);
        command.args(["--start", "true", "--stop", "true", "-r", self.renewal]);
        command.args(["-f", "3", "-c", "1"]);
        // A password in --nats is warned of.
        command.env("NATS_URL", &self.url).args(["--inbox-prefix", "_INBOX.agent"]);
        command
    }

    fn agent(&self, token: &str) -> Agent {
        Agent::start(&mut self.command("agent", token))
    }

    fn check(&self) -> Run {
        self.sandbox.run(self.command("check", "h1").arg("--connect"))
    }

    /// The status of the key, with the settings of this host.
    fn status(&self) -> Run {
        self.operate(&["status"])
    }

    /// Runs a command of an operator for the key.
    fn operate(&self, words: &[&str]) -> Run {
        let mut command = self.sandbox.putex();
        command.args(words).args(["--bucket", "locks", "--inbox-prefix", "_INBOX.agent", "web"]);
        self.sandbox.run(command.env("NATS_URL", &self.url))
    }
}

fn server() -> Option<Server> {
    programs::nats_server().map(|binary| Server::start(&binary, ""))
}

/// Returns the answers to a request, of so many agents.
fn answers(client: &mut Client, subject: &str, count: usize) -> Vec<Value> {
    let mut found = client.request(subject, count);
    assert_eq!(found.len(), count, "{subject}: {found:#?}");
    assert!(found.iter().all(|answer| answer["name"] == "putex"), "{found:#?}");
    found.sort_by_key(|answer| answer["metadata"]["token"].to_string());
    found
}

/// Returns the member of the metadata, or of the status, of each answer.
fn each<'a>(answers: &'a [Value], pointer: &str) -> Vec<&'a str> {
    let text = |answer: &'a Value| answer.pointer(pointer).and_then(Value::as_str);
    answers.iter().map(|answer| text(answer).expect("a text")).collect()
}

#[test]
fn agents_of_two_hosts_are_found_by_all_subjects_and_tell_what_they_do() {
    for binary in programs::nats_servers() {
        let server = Server::start(&binary, "");
        let hosts = [(); 2].map(|()| Host::new(&server, ""));
        let first = hosts[0].agent("h1");
        first.wait_for_any(&["the service runs here"]);
        let second = hosts[1].agent("h2");
        second.wait_for_any(&["the lock is held by h1"]);
        let mut client = Client::connect(&server, "");
        let pings = answers(&mut client, "$SRV.PING", 2);
        assert_eq!(each(&pings, "/metadata/token"), ["h1", "h2"]);
        assert_eq!(each(&pings, "/metadata/key"), ["web", "web"]);
        assert_eq!(each(&pings, "/metadata/bucket"), ["locks", "locks"]);
        let ids = each(&pings, "/id");
        assert_ne!(ids[0], ids[1]);
        for kind in ["PING", "INFO", "STATS"] {
            for subject in [format!("$SRV.{kind}"), format!("$SRV.{kind}.putex")] {
                assert_eq!(each(&answers(&mut client, &subject, 2), "/id"), ids, "{subject}");
            }
            let subject = format!("$SRV.{kind}.putex.{}", ids[1]);
            assert_eq!(each(&answers(&mut client, &subject, 1), "/id"), [ids[1]], "{subject}");
            assert_eq!(client.request(&format!("$SRV.{kind}.other"), 1), [Value::Null; 0]);
        }
        let infos = answers(&mut client, "$SRV.INFO.putex", 2);
        assert!(each(&infos, "/description")[0].starts_with("locks/web: agent h1 on host "));
        let of_status = |name: &str| format!("/endpoints/0/data/{name}");
        let stats = answers(&mut client, "$SRV.STATS.putex", 2);
        assert_eq!(each(&stats, &of_status("state")), ["active", "standby"]);
        assert_eq!(each(&stats, &of_status("incarnation")), ids);
        // The subject in the answer is an endpoint, and the endpoint counts its requests.
        let subject = each(&infos, "/endpoints/0/subject")[0];
        let before = stats[0]["endpoints"][0]["num_requests"].as_u64().expect("a number");
        let again = answers(&mut client, subject, 1);
        let endpoint = &again[0]["endpoints"][0];
        assert!(endpoint["num_requests"].as_u64() > Some(before), "{endpoint:#}");
        assert!(endpoint["average_processing_time"].as_u64() > Some(0), "{endpoint:#}");
        assert_eq!((&endpoint["num_errors"], &endpoint["last_error"]), (&0.into(), &"".into()));
    }
}

/// A client that shares nothing with putex, and checks each answer against ADR-32.
#[test]
fn a_client_of_another_program_finds_agents_as_micro_services() {
    let (Some(server), Some(python)) = (server(), programs::tool("python3")) else { return };
    let hosts = [(); 2].map(|()| Host::new(&server, ""));
    let first = hosts[0].agent("h1");
    first.wait_for_any(&["the service runs here"]);
    let second = hosts[1].agent("h2");
    second.wait_for_any(&["the lock is held by h1"]);
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/agents/micro/discover.py");
    for name in [&[][..], &["putex"]] {
        let mut command = Command::new(&python);
        command.arg(&script).args([&server.port().to_string(), "2"]).args(name);
        let run = hosts[0].sandbox.run(&mut command);
        assert_eq!(run.status, Some(0), "{run:?}");
        let answers = run.shown.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let stats = |answer: &Value| answer["type"] == "io.nats.micro.v1.stats_response";
        let (mut stats, others): (Vec<Value>, Vec<Value>) = answers.partition(stats);
        assert_eq!((stats.len(), others.len()), (2, 4), "{run:?}");
        stats.sort_by_key(|answer| answer["metadata"]["token"].to_string());
        assert_eq!(each(&stats, "/endpoints/0/data/state"), ["active", "standby"]);
    }
}

/// The agent is found again when its server is back.
#[test]
fn an_agent_is_found_on_its_next_connection_too() {
    let Some(mut server) = server() else { return };
    let host = Host::new(&server, "");
    let agent = host.agent("h1");
    agent.wait_for_any(&["the service runs here"]);
    let id = answers(&mut Client::connect(&server, ""), "$SRV.PING", 1)[0]["id"].clone();
    server.kill();
    server.restart().expect("the server comes back");
    agent.wait_for_any(&["store open again"]);
    assert_eq!(answers(&mut Client::connect(&server, ""), "$SRV.PING", 1)[0]["id"], id);
}

/// Sends requests to all services for so long, many at once.
fn flood(server: &Server, time: Duration, payload: usize) -> usize {
    let mut client = Client::connect(server, "");
    let body = "x".repeat(payload);
    let one = format!("PUB $SRV.STATS _INBOX.nobody {payload}\r\n{body}\r\n");
    let at_once = (1 << 20) / one.len().min(1 << 20);
    let batch = one.repeat(at_once);
    let (end, mut sent) = (now() + time, 0);
    while now() < end && client.try_send(batch.as_bytes()) {
        sent += at_once;
    }
    sent
}

/// The server would hold back what the agent has to hear of its lock, or end the connection.
#[test]
fn a_flood_of_requests_costs_no_lock() {
    let Some(server) = server() else { return };
    let host = Host { renewal: "1s", ..Host::new(&server, "") };
    let agent = host.agent("h1");
    agent.wait_for_any(&["the service runs here"]);
    for (what, payload) in [("small", 0), ("large", 1_000_000)] {
        let mut client = Client::connect(&server, "");
        answers(&mut client, "$SRV.PING", 1);
        client.subscribe("putex.hint.locks.web");
        let (began, time, mut longest) = (now(), SLOW_R * 3, Duration::ZERO);
        thread::scope(|scope| {
            let floods = [(); 2].map(|()| scope.spawn(|| flood(&server, time, payload)));
            let mut last = now();
            while now() < began + time + SLOW_R {
                let is_hint =
                    |frame: &Frame| frame.subject().starts_with("putex.hint.").then_some(());
                client.next(is_hint).expect("a renewal");
                longest = longest.max(now() - last);
                last = now();
            }
            let sent: usize = floods.map(|flood| flood.join().expect("a number")).iter().sum();
            println!("{what}: {sent} requests, {:.0} ms between two renewals", ms(longest));
        });
        agent.wait_for_any(&["more requests to $SRV than an agent answers"]);
        assert_eq!(client.request("$SRV.PING.putex", 1), [Value::Null; 0]);
        let log = agent.log.since(began).join("\n");
        // On a busy host the server may find the agent too slow, and end the connection.
        assert!(!log.contains("active -> "), "{log}");
        assert_eq!(log.matches("more requests to $SRV").count(), 1, "{log}");
        // The minute is over for the next instance.
        let adopted = || agent.log.text().matches("adopted as revision").count();
        let before = adopted();
        agent.signal(Signal::USR2);
        until_true("the next instance", || adopted() > before);
    }
}

/// The permissions, as they are shipped: without these two, with the first, and with both.
fn permissions() -> [String; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/nats/agent.conf");
    let whole = std::fs::read_to_string(path).expect("a file");
    let mute = whole.replace("allow_responses:", "#allow_responses:");
    let none = mute.replace("\"$SRV.>\"", "#\"$SRV.>\"");
    assert!(none != mute && mute != whole, "{whole}");
    [none, mute, whole]
}

/// A status says that such an agent does not answer, and what the bucket says of it.
#[test]
fn an_agent_without_the_rights_keeps_its_lock_and_says_once_what_is_missing() {
    for binary in programs::nats_servers() {
        let users = ["none", "mute", "whole"].into_iter().zip(permissions());
        let users: String =
            users.map(|(name, it)| format!("{{ user: {name}, password: p\n{it}\n}}\n")).collect();
        let ops = "{ user: ops, password: p }";
        let mut server = Server::start(
            &binary,
            &format!("accounts {{ PUTEX {{ jetstream: enabled, users: [\n{users}{ops}] }} }}\n"),
        );
        let [none, mute, whole] = ["none", "mute", "whole"].map(|user| Host::new(&server, user));
        let ops = Host::new(&server, "ops");
        let missing = "its user needs the right to subscribe to $SRV.>";
        let run = none.check();
        assert_eq!(run.status, Some(0), "{run:?}");
        assert_eq!(run.said.matches(missing).count(), 1, "{run:?}");
        assert_eq!(run.said.lines().count(), 1, "{run:?}");
        let run = whole.check();
        assert_eq!((run.status, &*run.said), (Some(0), ""), "{run:?}");

        let agent = none.agent("h1");
        agent.wait_for_any(&["the service runs here"]);
        agent.wait_for_any(&[missing]);
        server.kill();
        server.restart().expect("the server comes back");
        agent.wait_for_any(&["store open again"]);
        let mut client = Client::connect(&server, "ops");
        assert_eq!(client.request("$SRV.PING", 1), [Value::Null; 0]);
        let log = agent.log.text();
        assert_eq!(log.matches(missing).count(), 1, "{log}");
        assert!(!log.contains("active -> "), "{log}");
        let run = ops.status();
        assert!(run.status == Some(0) && run.shown.contains("held by h1"), "{run:?}");
        assert!(run.shown.contains("does not answer"), "{run:?}");

        // The agent h2 may be asked, and may not answer.
        let second = mute.agent("h2");
        second.wait_for_any(&["the lock is held by h1"]);
        for _ in 0..3 {
            let inbox = client.new_inbox();
            client.publish("$SRV.PING", &inbox);
        }
        second.wait_for_any(&["its user needs allow_responses"]);
        let third = whole.agent("h3");
        third.wait_for_any(&["the lock is held by h1"]);
        assert_eq!(each(&answers(&mut client, "$SRV.STATS", 1), "/metadata/token"), ["h3"]);
        let log = second.log.text();
        assert_eq!(log.matches("its user needs allow_responses").count(), 1, "{log}");
        assert!(!third.log.text().contains("its user needs"));

        // A user that may not ask is told so.
        let run = whole.status();
        assert!(run.status == Some(0) && !run.shown.contains("h3"), "{run:?}");
        let why = "the agents cannot be asked what they do: ";
        let line = run.shown.lines().find(|line| line.starts_with(why)).expect(&run.shown);
        assert!(line.contains("Publish to \"$SRV.STATS.putex\""), "{run:?}");
        // Where nobody held the lock, it was said that agents had acknowledged its pause.
        for mut agent in [agent, second, third] {
            agent.signal(Signal::TERM);
            until_true("the end of the agent", || !agent.runs());
        }
        let words = ["pause", "--for", "1h"];
        for words in [&words[..], &["resume"]] {
            let run = whole.operate(words);
            assert!(run.status == Some(77) && run.said.contains(why), "{run:?}");
            assert_eq!(ops.operate(&["status", "-e", "paused"]).status, Some(1), "{words:?}");
        }
    }
}
