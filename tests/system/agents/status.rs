//! `putex status`, as its users see it: the real program beside agents, locks and leases.

mod agents;
mod pause;
pub(crate) mod schema;
mod switchover;

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;
use crate::support::wire::Client;

/// A host, and the options for its store.
struct Site {
    sandbox: Sandbox,
    store: [String; 2],
}

impl Site {
    fn on(server: &Server) -> Site {
        let url = server.url("nats", "127.0.0.1");
        Site { sandbox: Sandbox::new("status"), store: ["--nats".to_owned(), url] }
    }

    fn in_directory() -> Site {
        let sandbox = Sandbox::new("status");
        let dir = sandbox.subfolder("locks").display().to_string();
        Site { sandbox, store: ["--dir".to_owned(), dir] }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.putex();
        command.arg(words[0]).args(&self.store).args(&words[1..]);
        command
    }

    fn run(&self, words: &[&str]) -> Run {
        self.sandbox.run(&mut self.command(words))
    }

    /// Starts a command; returns it with the lines that it says.
    fn begin(&self, words: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
        let mut child = self.command(words).stderr(Stdio::piped()).spawn().expect("it can be run");
        let said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        (child, said)
    }

    /// Starts an agent whose service is nothing, with R 500 ms and T 1.5 s.
    fn agent(&self, token: &str, more: &[&str]) -> Agent {
        self.agent_of_service("true", token, more)
    }

    /// As [`Site::agent`]; waits until it is active.
    fn active_agent(&self, token: &str, more: &[&str]) -> Agent {
        let agent = self.agent(token, more);
        agent.wait_for_any(&["the service runs here"]);
        agent
    }

    /// Starts an agent whose service is started so.
    fn agent_of_service(&self, start: &str, token: &str, more: &[&str]) -> Agent {
        self.agent_of_commands([start, "true"], token, more)
    }

    /// Starts an agent with these commands for start and stop.
    fn agent_of_commands(&self, commands: [&str; 2], token: &str, more: &[&str]) -> Agent {
        self.agent_of_r("500ms", commands, token, more)
    }

    /// Starts an agent with this R.
    fn agent_of_r(&self, r: &str, commands: [&str; 2], token: &str, more: &[&str]) -> Agent {
        let ([start, stop], timing) = (commands, ["-r", r, "-f", "3", "-c", "1"]);
        let of_service = ["--start", start, "--stop", stop, "--token", token];
        let words = [&["agent"][..], &timing, &of_service, more].concat();
        Agent::start(&mut self.command(&words))
    }

    /// Returns the status as JSON, which is as the schema says.
    fn json(&self, words: &[&str]) -> Value {
        let run = self.run(&[&["status", "--json"][..], words].concat());
        let value = serde_json::from_str(&run.shown).expect("an object");
        let text = std::fs::read_to_string("contrib/status.schema.json").expect("a schema");
        let schema = serde_json::from_str(&text).expect("a schema");
        assert_eq!(schema::faults(&schema, &value, "status"), Vec::<String>::new(), "{value:#}");
        value
    }

    fn answer(&self, words: &[&str]) -> Option<i32> {
        let run = self.run(&[&["status", "-e"][..], words].concat());
        assert_eq!((&*run.shown, &*run.said), ("", ""));
        run.status
    }
}

/// Returns the token and the state of each holder of a key.
fn holders(status: &Value, key: &str) -> Vec<(String, String)> {
    let keys = status["keys"].as_array().expect("keys");
    let found = keys.iter().find(|found| found["key"] == key);
    let holders = found.and_then(|found| found["holders"].as_array());
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let holders = holders.into_iter().flatten();
    holders.map(|holder| (text(&holder["token"]), text(&holder["state"]))).collect()
}

/// Returns the token, the state and the candidacy of each agent of a key that says something.
fn agents(status: &Value, key: &str) -> Vec<(String, String, bool)> {
    let keys = status["keys"].as_array().expect("keys");
    let found = keys.iter().find(|found| found["key"] == key);
    let agents = found.and_then(|found| found["agents"].as_array());
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let agents = agents.into_iter().flatten();
    let one = |agent: &Value| {
        (text(&agent["token"]), text(&agent["state"]), agent["not_candidate_why"].is_null())
    };
    agents.map(one).collect()
}

fn server() -> Option<Server> {
    programs::nats_server().map(|binary| Server::start(&binary, ""))
}

fn of(token: &str, state: &str) -> Vec<(String, String)> {
    vec![(token.to_owned(), state.to_owned())]
}

#[test]
fn an_agent_is_shown_until_another_has_its_lock_and_free_when_it_has_ended() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let empty = site.json(&[]);
    assert_eq!((&empty["epoch"], &empty["keys"]), (&Value::Null, &Value::Array(Vec::new())));
    assert_eq!(site.answer(&["held", "web"]), Some(1));
    let run = site.run(&["status"]);
    assert_eq!((run.status, &*run.shown), (Some(1), "bucket putex: does not exist yet\n"));
    // Nothing was made by looking at it.
    let mut client = Client::connect(server.port()).expect("a connection");
    let info = client.call("STREAM.INFO.KV_putex", "");
    assert!(info.expect_err("there is no bucket").contains("stream not found"));

    let first = site.active_agent("h1", &["--key", "web", "--priority", "3"]);
    assert_eq!(holders(&site.json(&[]), "web"), of("h1", "active"));
    let holder = &site.json(&["web"])["keys"][0]["holders"][0];
    assert_eq!((&holder["priority"], &holder["seat"]), (&Value::from("3"), &Value::Null));
    assert_eq!(holder["timing"]["renewal_seconds"], 0.5);
    assert!(holder["expires_in_seconds"]["max"].as_f64().expect("a number") < 1.52);
    for (question, status) in
        [("held", 0), ("free", 1), ("holder=h1", 0), ("holder=h2", 1), ("mine", 1), ("active", 1)]
    {
        assert_eq!(site.answer(&[question, "web"]), Some(status), "{question}");
    }
    for question in ["mine", "active"] {
        assert_eq!(site.answer(&[question, "--as", "h1", "web"]), Some(0));
    }
    let run = site.run(&["status", "--print", "holder", "wbe"]);
    assert_eq!((run.status, &*run.shown), (Some(1), ""));
    let run = site.run(&["status", "wbe"]);
    let nothing = "bucket putex\nwbe  no lock, no lease and no agent\n";
    assert_eq!((run.status, &*run.shown), (Some(1), nothing));
    assert_eq!(site.run(&["status", "web"]).status, Some(0));
    assert_eq!(site.run(&["status", "--print", "holder", "web"]).shown, "h1\n");

    // The lock is held until another agent takes it.
    first.kill();
    until_true("a holder that is gone", || holders(&site.json(&[]), "web") == of("h1", "overdue"));
    assert_eq!(site.answer(&["held", "web"]), Some(0));
    let mut second = site.active_agent("h2", &["--key", "web"]);
    assert_eq!(holders(&site.json(&[]), "web"), of("h2", "active"));
    second.signal(Signal::TERM);
    second.wait_end();
    assert_eq!(site.answer(&["free", "web"]), Some(0));
    let run = site.run(&["status", "web"]);
    assert_eq!(run.shown, "bucket putex\n\nweb  agent: free, no agent answers\n");
}

#[test]
fn in_a_directory_locks_have_holders_and_a_queue() {
    let site = Site::in_directory();
    let words = ["lock", "--token", "h1", "db/x", "sleep", "3600"];
    let mut holder = site.command(&words).spawn().expect("it can be run");
    until_true("a lock", || holders(&site.json(&[]), "db/x") == of("h1", "active"));
    let run = site.run(&["grab", "--as", "h2", "db"]);
    assert_eq!(run.status, Some(75));
    let status = site.json(&["db"]);
    assert_eq!(status["keys"][0]["waiters"][0]["token"], "h2");
    assert_eq!(site.run(&["lease", "claim", "--for", "60", "--as", "h3", "night"]).status, Some(0));
    assert_eq!(holders(&site.json(&[]), "night"), of("h3", "active"));
    assert_eq!(site.answer(&["held", "db/x"]), Some(0));
    crate::support::process::signal(holder.id(), Signal::TERM);
    holder.wait().expect("it ends");
    assert_eq!(site.answer(&["held", "db/x"]), Some(1));
}

/// Another user of the host must not take it for free.
#[test]
fn a_bucket_that_may_not_be_seen_is_not_shown_as_one_that_does_not_exist() {
    let site = Site::in_directory();
    let _agent = site.active_agent("h1", &["--key", "web"]);
    assert_eq!(holders(&site.json(&[]), "web"), of("h1", "active"));
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let mut command = site.sandbox.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(programs::putex());
    command.args(["status", "-e", "free", &site.store[0], &site.store[1], "web"]);
    let run = site.sandbox.run(&mut command);
    let is_refused = run.status == Some(69) && run.said.contains("ermission denied");
    // The folders of this test may not be open to that user at all.
    assert!(is_refused || run.status == Some(127) || run.status == Some(126), "{run:?}");
}

/// A lock that cannot be seen is not shown as free.
#[test]
fn without_an_answer_of_the_leader_nothing_is_shown() {
    let Some(binary) = programs::nats_server() else { return };
    let Ok(mut servers) = Server::start_cluster(&binary, "") else { panic!("no cluster") };
    let site = Site::on(&servers[0]);
    let agent = site.active_agent("h1", &["--key", "web", "--replicas", "3"]);
    assert_eq!(site.run(&["status", "--print", "holder", "web"]).shown, "h1\n");
    servers[1].signal(Signal::STOP);
    servers[2].signal(Signal::STOP);
    // The leader remembers for some seconds that it is one.
    until_true("a minority", || {
        let run = site.run(&["status", "web"]);
        let is_refused = run.status == Some(69) && run.shown.is_empty();
        assert!(is_refused || run.status == Some(0), "{run:?}");
        is_refused
    });
    assert_eq!(site.run(&["status", "-e", "free", "web"]).status, Some(69));
    drop(agent);
    servers.iter_mut().for_each(Server::kill);
    let run = site.run(&["status", "--json"]);
    assert_eq!((run.status, &*run.shown), (Some(69), ""));
}

#[test]
fn a_user_without_rights_is_told_so() {
    let Some(binary) = programs::nats_server() else { return };
    let users = "authorization { users = [
        { user: all, password: p }
        { user: none, password: p, permissions: { publish: [\"x\"], subscribe: [\"_INBOX.>\"] } }
        { user: reader, password: p, permissions: {
            publish: [\"$JS.API.STREAM.INFO.KV_putex\", \"$JS.API.STREAM.MSG.GET.KV_putex\"]
            subscribe: [\"_INBOX.>\"] } }
    ] }";
    let server = Server::start(&binary, users);
    let site = |user: &str| {
        let url = server.url("nats", &format!("{user}:p@127.0.0.1"));
        Site { sandbox: Sandbox::new("status"), store: ["--nats".to_owned(), url] }
    };
    let all = site("all");
    let _agent = all.active_agent("h1", &["--key", "web"]);
    assert_eq!(holders(&all.json(&[]), "web"), of("h1", "active"));
    let run = site("none").run(&["status", "web"]);
    assert_eq!((run.status, &*run.shown), (Some(77), ""), "{run:?}");
    // A user needs another right to ask the agents.
    let status = site("reader").json(&["web"]);
    assert_eq!(holders(&status, "web"), of("h1", "active"));
    assert_eq!(agents(&status, "web"), []);
    let shown = site("reader").run(&["status", "web"]).shown;
    assert!(shown.contains("does not answer"), "{shown}");
}

/// Agents are asked by messages; in a directory they answer by files.
#[test]
fn agents_say_what_they_are_doing_and_why() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let _active = site.active_agent("h1", &["--key", "web"]);
        let due = |token: &str, state: &str, is: bool| (token.to_owned(), state.to_owned(), is);
        assert_eq!(agents(&site.json(&[]), "web"), [due("h1", "active", true)]);
        let sick = ["--key", "web", "--healthcheck", "false", "--priority", "never"];
        let _others = [site.agent("h2", &["--key", "web"]), site.agent("h3", &sick)];
        // An agent that stands by and is late is shown the next time: putex-status(1) says so.
        until_true("three agents", || {
            agents(&site.json(&["web"]), "web")
                == [
                    due("h1", "active", true),
                    due("h2", "standby", true),
                    due("h3", "standby", false),
                ]
        });
        let shown = site.run(&["status", "web"]).shown;
        assert!(shown.contains("h1     active   ") && shown.contains("taken: free ("), "{shown}");
        assert!(shown.contains("no candidate: priority never"), "{shown}");
        // Of a key that nobody has held, agents are shown if it is named.
        let _waiting = site.agent("h4", &["--key", "new", "--healthcheck", "false"]);
        until_true("an agent of a new key", || {
            agents(&site.json(&["new"]), "new") == [due("h4", "standby", false)]
        });
    }
}

/// An agent whose start fails has its lock and is active all the same, and a health check may pass
/// without a service.
#[test]
fn an_active_agent_whose_start_fails_says_so_until_a_start_succeeds() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let broken = site.sandbox.file("broken", "", 0o600);
        let start = format!("test ! -e {} || exit 7", broken.display());
        let _agent = site.agent_of_service(&start, "h1", &["--key", "web"]);
        let failure = || {
            let status = site.json(&["web"]);
            let agent = &status["keys"][0]["agents"][0];
            assert!(agent.is_null() || agent.get("start_failure").is_some(), "{agent}");
            (agent["state"] == "active").then(|| agent["start_failure"].clone())
        };
        until_true("a start that fails", || failure() == Some(Value::from("exit status 7")));
        until_true("its line", || {
            let shown = site.run(&["status", "web"]).shown;
            shown.contains("  start fails: exit status 7; taken: free (")
        });
        std::fs::remove_file(&broken).expect("it is there");
        until_true("a start that succeeds", || failure() == Some(Value::Null));
        assert!(!site.run(&["status", "web"]).shown.contains("start fails"));
    }
}

#[test]
fn a_request_to_move_the_service_is_shown_and_followed_in_a_directory_too() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        // Both commands wait for a holder that is silent for R, and it loses its lock after T.
        let agent = |token| site.agent_of_r("2s", ["true"; 2], token, &["--key", "web"]);
        let first = agent("h1");
        first.wait_for_any(&["the service runs here"]);
        let second = agent("h2");
        second.wait_for_any(&["the lock is held by h1"]);
        // A holder that does not go on follows nothing.
        first.signal(Signal::STOP);
        let words = ["switchover", "--to", "h2", "-w", "60", "web"];
        let mut command = site.command(&words).spawn().expect("it can be run");
        until_true("a request", || {
            let status = site.json(&["web"]);
            let request = &status["keys"][0]["switchover"];
            request["from"] == "h1" && request["to"] == "h2"
        });
        first.signal(Signal::CONT);
        assert_eq!(command.wait().expect("it ends").code(), Some(0));
        assert_eq!(holders(&site.json(&[]), "web"), of("h2", "active"));
        assert_eq!(site.json(&["web"])["keys"][0]["switchover"], Value::Null);
        let back = site.run(&["switchover", "web"]);
        assert!(back.shown.starts_with("from=h2 to=h1 term="), "{back:?}");
        assert_eq!(back.status, Some(0), "{back:?}");
    }
}

/// The command has said that the service is at the other agent, while it ran at both.
#[test]
fn a_switchover_whose_holder_cannot_stop_its_service_does_not_succeed() {
    let Some(server) = server() else { return };
    for (is_frozen, says) in [
        (false, "THE SERVICE MAY STILL RUN at h1"),
        (true, "h1 does not say whether its service is down"),
    ] {
        let site = Site::on(&server);
        let key = if is_frozen { "frozen" } else { "stuck" };
        let hang = site.sandbox.join("hang");
        let stop = format!("test -e {} || exit 0; sleep 600", hang.display());
        let first = site.agent_of_commands(["true", &stop], "h1", &["--key", key]);
        first.wait_for_any(&["the service runs here"]);
        let second = site.agent("h2", &["--key", key]);
        second.wait_for_any(&["the lock is held by h1"]);
        std::fs::write(&hang, "").expect("a file");
        let mut command = site.command(&["switchover", "--to", "h2", key]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        first.wait_for_any(&["active -> stopping: switchover to h2"]);
        if is_frozen {
            first.signal(Signal::STOP);
        }
        let run = command.and_then(|it| it.wait_with_output()).expect("it can be run");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!((run.status.code(), &*run.stdout), (Some(75), &b""[..]), "{said}");
        let lost = "h2 has the lock, which h1 has not released before it ran out: ";
        let first = said.lines().next().expect("a line");
        assert_eq!(first, format!("putex: {key}: {lost}{says}"));
        assert_eq!(holders(&site.json(&[key]), key), of("h2", "active"));
    }
}

#[test]
fn a_pause_is_shown_and_observed_in_a_directory_too() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let _first = site.active_agent("h1", &["--key", "web"]);
        assert_eq!(holders(&site.json(&[]), "web"), of("h1", "active"));
        assert_eq!(site.json(&["web"])["keys"][0]["paused"], Value::Null);
        let words = ["pause", "--for", "1h", "--reason", "a\u{fc}b", "web"];
        let paused = site.run(&words);
        assert!(paused.status == Some(0) && paused.shown.ends_with(" agents=1\n"), "{paused:?}");
        let status = site.json(&["web"]);
        let pause = &status["keys"][0]["paused"];
        let said = |name: &str| pause[name].as_str().unwrap_or_default().to_owned();
        assert!(said("by").contains('@') && said("until").ends_with('Z'), "{pause}");
        assert_eq!(&*said("reason"), "a\u{fc}b");
        assert_eq!(status["keys"][0]["agents"][0]["pause"], pause["serial"]);
        assert_eq!(site.run(&["status", "-e", "paused", "web"]).status, Some(0));
        assert_eq!(site.run(&["resume", "web"]).status, Some(0));
        assert_eq!(site.run(&["status", "-e", "paused", "web"]).status, Some(1));
    }
}

#[test]
fn an_agent_that_only_observes_says_what_it_would_do_and_does_nothing() {
    let Some(server) = server() else { return };
    for site in [Site::on(&server), Site::in_directory()] {
        let first = site.active_agent("h1", &["--key", "web"]);
        assert_eq!(holders(&site.json(&[]), "web"), of("h1", "active"));
        let observer = site.agent("h2", &["--key", "web", "--observe"]);
        until_true("an observer", || {
            let status = site.json(&["web"]);
            status["keys"][0]["agents"][1]["not_candidate_why"] == "it only observes"
        });
        first.kill();
        observer.wait_for_any(&["would take the lock now, from h1"]);
        let status = site.json(&["web"]);
        assert_eq!(holders(&status, "web"), of("h1", "overdue"), "it takes nothing");
        until_true("the end of the only guard", || site.sandbox.guards("web").is_empty());
    }
}
