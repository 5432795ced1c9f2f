//! A herd of agents whose servers are started again: all of them come back at once, and a
//! server that hashes passwords takes a processor's time for each. Takes minutes, and wants
//! a machine with nothing else to do:
//!
//! ```text
//! cargo test --release --test stores herd -- --ignored --nocapture --test-threads 1
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use putex::sys;

use crate::support::agent::Agent;
use crate::support::clock::{At, now, observe_for};
use crate::support::log::Log;
use crate::support::programs;
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;

/// R of the agents: with F = 3 the lock runs out after 12 s.
const R: &str = "4s";
const T: Duration = Duration::from_secs(12);

/// How long the servers are down.
const OUTAGE: Duration = Duration::from_secs(1);

/// How long a herd may take to start its services, or to come back.
const HERD_MAX: Duration = Duration::from_secs(180);

/// So many agents are started at once. Each lot waits for the one before it.
const LOT: usize = 20;

/// How often a herd is looked at: there are many lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const PASSWORD: &str = "pw";

/// [`PASSWORD`] hashed at the cost that the tools of NATS choose. The tests' own client
/// needs no password.
const HASHED: &str = "authorization { users: [\
    {user: agent, password: \"$2a$11$abcdefghijklmnopqrstuuqJ5WcbJn6VrSBjKHA6dmnncoKTHmT5C\"},\
    {user: other, password: other}] }\n\
    no_auth_user: other\n";

/// Configuration that makes a server note each connection.
const NOTED: &str = "debug: true\n";

/// Agents of a key each, all active.
struct Herd {
    servers: Vec<Server>,
    log: Log,
    agents: Vec<Agent>,
    sandbox: Sandbox,
}

/// The return of a herd after its servers were started again.
struct Return {
    /// From the moment at which every server answered.
    took: Duration,
    back: usize,
    all: bool,
    connections: usize,
    lost: usize,
}

impl Herd {
    fn start(binary: &Path, servers: usize, lines: &str, agents: usize) -> Herd {
        let servers = match servers {
            1 => vec![Server::start(binary, lines)],
            _ => Server::start_cluster(binary, lines).expect("the cluster has a leader"),
        };
        let urls: Vec<_> = servers.iter().map(|one| one.url("nats", "127.0.0.1")).collect();
        let (sandbox, log) = (Sandbox::new("herd"), Log::new());
        let secret = sandbox.join("password");
        fs::write(&secret, PASSWORD).expect("the folder can be written");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&secret, private).expect("it is ours");
        let mut herd = Herd { servers, log, agents: Vec::new(), sandbox };
        let begin = now();
        for number in 0..agents {
            let mut command = herd.sandbox.putex();
            command
                .args(["agent", "--key", &format!("k{number}"), "--token", "one", "-r", R])
                .args(["--start", ":", "--stop", ":", "--nats", &urls.join(",")])
                .args(["--replicas", &herd.servers.len().to_string()]);
            if lines.contains(HASHED) {
                command.args(["--user", "agent", "--password-file"]).arg(&secret);
            }
            let agent = Agent::start_into(&mut command, &herd.log);
            herd.agents.push(agent.expect("the agent can be run"));
            if herd.agents.len().is_multiple_of(LOT) {
                herd.wait_for_all(": nats-server ", begin);
            }
        }
        let active = herd.wait_for_all("the service runs here", begin);
        assert_eq!(active.len(), agents, "are active");
        herd
    }

    /// Waits until all agents have said this since `since`, but not for ever; returns when
    /// each has said it first.
    fn wait_for_all(&self, what: &str, since: At) -> BTreeMap<String, At> {
        loop {
            let said = self.said(what, since);
            if said.len() == self.agents.len() || now() > since + HERD_MAX {
                return said;
            }
            observe_for(LOOK_EVERY);
        }
    }

    fn said(&self, what: &str, since: At) -> BTreeMap<String, At> {
        let mut said = BTreeMap::new();
        for (at, line) in self.log.lines() {
            let key = line.strip_prefix("putex: ").and_then(|line| line.split(':').next());
            if let Some(key) = key.filter(|_| at >= since && line.contains(what)) {
                said.entry(key.to_owned()).or_insert(at);
            }
        }
        said
    }

    fn restart_servers(&mut self) -> Return {
        let begin = now();
        self.servers.iter_mut().for_each(Server::kill);
        observe_for(OUTAGE);
        let answering = thread::scope(|scope| {
            let restarts: Vec<_> = self
                .servers
                .iter_mut()
                .map(|server| scope.spawn(|| server.restart().expect("nats-server starts")))
                .collect();
            restarts.into_iter().map(|one| one.join().expect("it ends")).max().expect("a server")
        });
        let back = self.wait_for_all("store open again", begin);
        let last = back.values().max().copied().unwrap_or(begin);
        let connections = self.servers.iter().map(Server::connections).sum();
        // A lock that ran out is given up by then.
        observe_for((begin + T).saturating_sub(now()) + Duration::from_secs(1));
        let lost = self.said(": active -> ", begin).len();
        let all = back.len() == self.agents.len();
        Return { back: back.len(), all, took: last.saturating_sub(answering), connections, lost }
    }
}

/// Returns how long a server needs for so many logins whatever the clients do: some are
/// always waiting, and none gives up.
fn time_of_hashes(binary: &Path, logins: usize) -> Duration {
    const CLIENTS: usize = 10;
    let server = Server::start(binary, HASHED);
    let begin = now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..logins / CLIENTS {
                    let late = sys::now().after(HERD_MAX);
                    server.client(Some(("agent", PASSWORD))).connect(late).expect("connected");
                }
            });
        }
    });
    now() - begin
}

#[test]
#[ignore = "takes minutes"]
fn a_herd_with_hashed_passwords_needs_the_time_of_the_hashes() {
    let Some(binary) = programs::nats_server() else { return };
    let mut late = Vec::new();
    for (agents, servers) in [(60, 1), (60, 3), (150, 1), (150, 3)] {
        let mut herd = Herd::start(&binary, servers, &format!("{NOTED}{HASHED}"), agents);
        let hashing = time_of_hashes(&binary, agents);
        let back = herd.restart_servers();
        report(&back, agents, servers);
        let ratio = back.took.as_secs_f64() / hashing.as_secs_f64();
        println!("  all hashes {hashing:.1?}: {ratio:.2} times that");
        // Three servers elect a leader meanwhile.
        if !back.all || ratio > 1.5 {
            late.push((agents, servers));
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

#[test]
#[ignore = "takes minutes"]
fn a_large_herd_loses_no_lock() {
    let Some(binary) = programs::nats_server() else { return };
    for agents in [300, 1000] {
        let back = Herd::start(&binary, 1, NOTED, agents).restart_servers();
        report(&back, agents, 1);
        assert!(back.all && back.lost == 0);
    }
}

fn report(back: &Return, agents: usize, servers: usize) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{agents} agents, {servers} servers: {} back after {:.2?}, {} connections, {:.1} in a \
         second, {} locks lost; load {}",
        back.back,
        back.took,
        back.connections,
        back.connections as f64 / back.took.as_secs_f64(),
        back.lost,
        load.trim_end()
    );
}
