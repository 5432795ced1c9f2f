//! `putex doctor` on a fit cluster, and on unfit ones, each with one thing that is wrong: what it
//! says of them.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::programs;
use crate::support::proxy::Proxy;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::{Server, free_port};
use crate::support::wire::Client;

/// R, F and C of agents that are fit beside a leader election: T is 10.5 s.
const SLOW: [&str; 6] = ["-r", "3500ms", "-f", "3", "-c", "1"];

/// R, F and C of agents that do not wait long for a new bucket.
const FAST: [&str; 6] = ["-r", "500ms", "-f", "3", "-c", "1"];

/// A host, and the options for its store.
pub(crate) struct Host {
    sandbox: Sandbox,
    store: [String; 2],
}

impl Host {
    pub(crate) fn on(url: String) -> Host {
        Host { sandbox: Sandbox::new("doctor"), store: ["--nats".to_owned(), url] }
    }

    fn beside(server: &Server) -> Host {
        Host::on(server.url("nats", "127.0.0.1"))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.putex();
        command.arg(words[0]).args(&self.store).args(&words[1..]);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Run {
        self.sandbox.run(&mut self.command(words))
    }

    /// Starts an agent of the key `web` whose service is nothing.
    fn agent(&self, token: &str, timing: &[&str], more: &[&str]) -> Agent {
        let of_service = ["--key", "web", "--start", "true", "--stop", "true", "--token", token];
        let words = [&["agent"][..], &of_service, timing, more].concat();
        Agent::start(&mut self.command(&words))
    }

    /// Has a bucket made: a lease is not had in a new one.
    pub(crate) fn make_bucket(&self) {
        let run = self.run(&["lease", "claim", "--for", "60", "x"]);
        assert_eq!(run.status, Some(75), "{run:?}");
    }

    /// Returns what the doctor says, as the schema has it, and the exit status.
    pub(crate) fn doctor(&self, words: &[&str]) -> (Report, Option<i32>) {
        let run = self.run(&[&["doctor", "--json"][..], words].concat());
        let value: Value = serde_json::from_str(&run.shown).unwrap_or_else(|_| panic!("{run:?}"));
        let text = fs::read_to_string("contrib/doctor.schema.json").expect("a schema");
        let schema = serde_json::from_str(&text).expect("a schema");
        assert_eq!(
            crate::status::schema::faults(&schema, &value, "doctor"),
            Vec::<String>::new(),
            "{value:#}"
        );
        assert_eq!(run.said, "", "nothing is said of the progress without a terminal");
        (Report(value), run.status)
    }

    /// Waits until the doctor says this of something; returns all that it says.
    fn until(&self, words: &[&str], name: &str, level: &str) -> Report {
        let mut last = None;
        until_true(&format!("{name} {level}"), || {
            let (report, _) = self.doctor(words);
            let is_so = report.has(name) && report.level(name) == level;
            last = Some(report);
            is_so
        });
        last.expect("it was run")
    }
}

/// The report of a doctor.
#[derive(Debug)]
pub(crate) struct Report(Value);

impl Report {
    fn findings(&self) -> &[Value] {
        self.0["findings"].as_array().expect("findings")
    }

    fn has(&self, name: &str) -> bool {
        self.findings().iter().any(|finding| finding["name"] == name)
    }

    fn find(&self, name: &str) -> &Value {
        let found = self.findings().iter().find(|finding| finding["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {self:#?}"))
    }

    pub(crate) fn level(&self, name: &str) -> &str {
        self.find(name)["level"].as_str().expect("a text")
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.find(name)["text"].as_str().expect("a text")
    }

    pub(crate) fn figure(&self, name: &str, figure: &str) -> f64 {
        self.find(name)["figures"][figure].as_f64().expect(figure)
    }

    /// Asserts that something is found, with what to do, and that the text says this.
    #[track_caller]
    pub(crate) fn assert(&self, name: &str, level: &str, says: &str) {
        assert_eq!(self.level(name), level, "{name}: {self:#?}");
        assert!(self.text(name).contains(says), "{name}: {}", self.text(name));
        assert_eq!(self.find(name)["advice"].is_null(), level == "ok", "{self:#?}");
    }

    /// Asserts that all else is fit, but for what the machine of the test has or has not.
    #[track_caller]
    fn assert_others_fit(&self, but: &[&str]) {
        let of_machine = ["watchdog", "cgroup", "clock"];
        for finding in self.findings() {
            let name = finding["name"].as_str().expect("a text");
            if !but.contains(&name) && !of_machine.contains(&name) {
                assert_eq!(finding["level"], "ok", "{name}: {self:#?}");
            }
        }
    }
}

/// Accounts, one of which may ask when servers write to their disks. A client that does not log in
/// is of that account.
fn accounts(sync: &str) -> String {
    let jsz = "$SYS.REQ.SERVER.PING.JSZ";
    format!(
        "jetstream {{ store_dir: \"FOLDER/js\", {sync} }}\n\
         accounts {{\n\
         SYS {{ users: [{{ user: sys, password: p }}]\n\
         exports: [{{ service: \"{jsz}\", response_type: Stream }}] }}\n\
         A {{ jetstream: enabled, users: [{{ user: a, password: p }}]\n\
         imports: [{{ service: {{ account: SYS, subject: \"{jsz}\" }} }}] }}\n\
         }}\nsystem_account: SYS\nno_auth_user: a\n"
    )
}

fn server(lines: &str) -> Option<Server> {
    programs::nats_server().map(|binary| Server::start(&binary, lines))
}

/// Three copies on disks that are written at once, two agents, a device.
#[test]
fn a_fit_cluster_is_said_to_be_fit() {
    let Some(binary) = programs::nats_server() else { return };
    let servers = Server::start_cluster(&binary, &accounts("sync_interval: always"));
    let mut servers = servers.expect("a cluster");
    let urls: Vec<_> = servers.iter().map(|it| it.url("nats", "127.0.0.1")).collect();
    let hosts = [Host::on(urls.join(",")), Host::on(urls.join(","))];
    let agent = |at: usize, token| hosts[at].agent(token, &SLOW, &["--replicas", "3"]);
    // An agent that is started while the bucket has no leader yet waits before it looks again.
    let first = agent(0, "h1");
    first.wait_for_any(&["the bucket is open"]);
    let second = agent(1, "h2");
    first.wait_for_any(&["the service runs here"]);
    second.wait_for_any(&["the lock is held by h1"]);
    // This machine may have neither a watchdog nor a group.
    let fit = ["--watchdog", "/dev/null", "--ignore", "watchdog,cgroup", "web"];
    let host = &hosts[0];
    let (report, _) = host.doctor(&fit);
    report.assert_others_fit(&[]);
    report.assert("watchdog", "warning", "/dev/null: it is not a watchdog device");
    report.assert("reachable", "ok", "3 of 3 servers answer");
    report.assert("server", "ok", "(n0 n1 n2)");
    report.assert("fsync", "ok", "written to disk before each answer");
    report.assert("replicas", "ok", "3 copies, all current");
    report.assert("agreement", "ok", "all have R 3500 ms F 3 C 1");
    assert_eq!(report.0["timing"]["renewal_seconds"], 3.5, "that of the agents");
    assert_eq!(
        (&report.0["level"], &report.find("agents")["figures"]),
        (&json!("ok"), &json!(null))
    );
    report.assert("agents", "ok", "2 answer: ");
    assert!(report.text("write").contains("of 50"), "{report:#?}");
    for name in ["p50_seconds", "p99_seconds", "max_seconds"] {
        let seconds = report.figure("read", name);
        assert!((1e-6..0.5).contains(&seconds), "{name} {seconds}");
    }
    let text = host.run(&[&["doctor"][..], &fit].concat());
    assert_eq!(text.status, Some(0), "{text:?}");
    assert!(text.shown.starts_with("PUTEX OK - bucket putex is fit\n"), "{}", text.shown);
    let lines = text.shown.lines().filter(|line| !line.starts_with(' '));
    assert_eq!(lines.count(), 1 + report.findings().len(), "a line each: {}", text.shown);
    // The key of the doctor has no value any more, and stands in the way of nobody.
    let mut client = Client::connect(servers[0].port()).expect("a connection");
    let last =
        client.call("STREAM.MSG.GET.KV_putex", r#"{"last_by_subj":"$KV.putex.putex.doctor"}"#);
    let is_over = last.map_or_else(
        |gone| gone.contains("no message found"),
        |last| last["message"]["data"].is_null() && !last["message"]["hdrs"].is_null(),
    );
    assert!(is_over, "the key of the doctor has a value");

    // A server of the three ends.
    drop(servers.pop());
    let report = host.until(&fit, "replicas", "warning");
    report.assert("replicas", "warning", "1 of 3 copies behind: n2");
    report.assert("reachable", "warning", "1 of 3 do not");
    // Another goes: there is no majority, which the last one notices after some seconds.
    drop(servers.pop());
    let report = host.until(&fit, "bucket", "critical");
    report.assert("bucket", "critical", "no answer, and without one no lock is renewed");
    report.assert("write", "unknown", "not measured");
}

#[test]
fn a_server_without_jetstream_is_told_how_to_get_it() {
    let Some(binary) = programs::nats_server() else { return };
    let server = Server::start_without_jetstream(&binary);
    let (report, _) = Host::beside(&server).doctor(&[]);
    report.assert("bucket", "critical", "JetStream is not enabled there");
    let advice = report.find("bucket")["advice"].as_str().expect("a text");
    assert!(advice.starts_with("enable JetStream there: "), "{advice}");
}

/// As on a disk that takes 40 ms to write its cache.
#[test]
fn a_slow_disk_is_told_by_the_writes() {
    let (Some(binary), Some(strace)) = (programs::nats_server(), programs::tool("strace")) else {
        return;
    };
    let sandbox = Sandbox::new("disk");
    let (port, home) = (free_port(), sandbox.subfolder("server"));
    let conf = format!(
        "listen: \"127.0.0.1:{port}\"\n\
         jetstream {{ store_dir: \"{}/js\", sync_interval: always }}\n",
        home.display()
    );
    let strace = strace.display().to_string();
    // The tracer is the grandchild, and ends with the server.
    let late = ["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"];
    let late = [&[&*strace], &late[..], &["-e", "inject=fsync,fdatasync:delay_enter=40000"]];
    let server = Server::prepare_in(&home, &conf, &late.concat(), &binary, port);
    let mut server = server.expect("the folder can be written");
    server.restart().expect("nats-server starts");
    let host = Host::beside(&server);
    host.make_bucket();
    let (report, _) = host.doctor(&["--samples", "20"]);
    assert!(report.figure("write", "p50_seconds") >= 0.04, "{report:#?}");
    report.assert("read", "ok", "R 3 s");
    // R is too short for this disk.
    host.until(&["--samples", "10", "-r", "140ms"], "write", "warning");
    let (report, _) = host.doctor(&["--samples", "10", "-r", "60ms"]);
    report.assert("write", "critical", "R 60 ms");
}

#[test]
fn a_server_that_dies_while_it_is_measured_is_not_fit() {
    let Some(mut server) = server("") else { return };
    Host::beside(&server).make_bucket();
    let proxy = Proxy::start(server.port());
    let host = Host::on(format!("nats://127.0.0.1:{}", proxy.port()));
    let (report, status) = std::thread::scope(|scope| {
        let doctor = scope.spawn(|| host.doctor(&["--samples", "10000"]));
        until_true("reads", || proxy.counts().reads > 100);
        server.kill();
        doctor.join().expect("a report")
    });
    report.assert("read", "warning", "not answered in time");
    report.assert("write", "critical", "none was done: the store is not open");
    assert_eq!(status, Some(2));
}

#[test]
fn agents_that_differ_or_have_one_token_or_no_standby_are_told() {
    let Some(server) = server("") else { return };
    let hosts = [(); 3].map(|()| Host::beside(&server));
    let key = ["web"];
    let (report, status) = hosts[0].doctor(&[]);
    report.assert("bucket", "warning", "putex does not exist");
    assert_eq!(status, Some(0), "a warning, there is no watchdog device: {report:#?}");
    let (_, status) = hosts[0].doctor(&["--strict"]);
    assert_eq!(status, Some(1));
    let (report, status) = hosts[0].doctor(&key);
    report.assert("standby", "critical", "nobody has the lock, and no agent would take it");
    assert_eq!(status, Some(2));
    let first = hosts[0].agent("h1", &FAST, &[]);
    first.wait_for_any(&["the service runs here"]);
    let (report, _) = hosts[2].doctor(&key);
    report.assert("agents", "ok", "1 answer: h1");
    report.assert("standby", "warning", "no other agent");
    report.assert("watchdog", "warning", "no device is set");
    let second = hosts[1].agent("h2", &FAST, &[]);
    second.wait_for_any(&["the lock is held by h1"]);
    // How long reads and writes take is up to this machine, and R is short.
    let but = ["fsync", "replicas", "read", "write", "link", "disk"];
    hosts[2].doctor(&key).0.assert_others_fit(&but);
    let paused = hosts[2].run(&["pause", "--for", "5m", "--reason", "kernel", "web"]);
    assert_eq!(paused.status, Some(0), "{paused:?}");
    let (report, _) = hosts[2].doctor(&key);
    report.assert("pause", "warning", ": kernel: nobody takes over");
    assert_eq!(hosts[2].run(&["resume", "web"]).status, Some(0));
    hosts[2].doctor(&key).0.assert("pause", "ok", "no pause stands");
    // The options of this host are others.
    let (report, _) = hosts[2].doctor(&["-r", "3s", "web"]);
    report.assert("agreement", "warning", "the settings here R 3000 ms F 3 C 2");
    second.kill();

    let third = hosts[1].agent("h2", &["-r", "500ms", "-f", "4", "-c", "1"], &[]);
    third.wait_for_any(&["the lock is held by h1"]);
    let (report, _) = hosts[2].doctor(&key);
    report.assert("agreement", "warning", "agents have R 500 ms F 3 C 1, R 500 ms F 4 C 1");
    third.kill();

    let _twin = hosts[1].agent("h1", &FAST, &[]);
    let report = hosts[2].until(&key, "twins", "critical");
    report.assert("twins", "critical", "2 agents have the token h1, on ");
    let text = hosts[2].run(&["doctor", "web"]);
    assert_eq!(text.status, Some(2), "{text:?}");
    let first = text.shown.lines().next().expect("a line");
    assert!(first.contains("web twins: 2 agents have the token h1"), "{text:?}");
}

#[test]
fn in_a_directory_the_agents_and_the_host_are_measured() {
    let sandbox = Sandbox::new("doctor");
    let dir = sandbox.subfolder("locks").display().to_string();
    let host = Host { sandbox, store: ["--dir".to_owned(), dir] };
    let first = host.agent("h1", &FAST, &[]);
    first.wait_for_any(&["the service runs here"]);
    let second = host.agent("h2", &FAST, &[]);
    second.wait_for_any(&["the lock is held by h1"]);
    let (report, _) = host.doctor(&["web"]);
    report.assert("bucket", "ok", "for agents of this host only");
    let (misspelt, _) = host.doctor(&["wbe"]);
    misspelt.assert("agents", "warning", "no agent answers, and nobody has the lock");
    misspelt.assert("standby", "critical", "nobody has the lock, and no agent would take it");
    report.assert_others_fit(&["read", "write"]);
    assert!(!report.has("replicas") && !report.has("server"), "{report:#?}");
}

/// No agent can have such a lock, so the service runs nowhere.
#[test]
fn a_damaged_lock_is_critical() {
    let sandbox = Sandbox::new("doctor");
    let dir = sandbox.subfolder("locks");
    let store = ["--dir".to_owned(), dir.display().to_string()];
    let host = Host { sandbox, store };
    let agent = host.agent("h1", &FAST, &[]);
    agent.wait_for_any(&["the service runs here"]);
    drop(agent);
    fs::write(dir.join("putex/web.key"), "garbage").expect("the file of the lock");
    let (report, status) = host.doctor(&["web"]);
    report.assert("agents", "critical", "is cut off");
    assert_eq!(status, Some(2));
}

#[test]
fn where_nothing_can_be_measured_it_is_said_and_what_is_forbidden_is_unknown() {
    let host = Host::on("nats://127.0.0.1:1".to_owned());
    let run = host.run(&["doctor", "--json"]);
    assert_eq!((run.status, &*run.shown), (Some(3), ""), "{run:?}");
    assert!(run.said.contains("127.0.0.1:1: "), "{run:?}");
    let run = host.run(&["doctor"]);
    assert_eq!((run.status, &*run.said), (Some(3), ""), "{run:?}");
    assert!(run.shown.starts_with("PUTEX UNKNOWN - 127.0.0.1:1: "), "{run:?}");
    let run = host.run(&["doctor", "-f", "1"]);
    assert_eq!((run.status, run.shown.starts_with("PUTEX UNKNOWN - -f: ")), (Some(3), true));

    let users = "authorization { users = [
        { user: all, password: p }
        { user: none, password: p, permissions: { publish: [\"x\"], subscribe: [\"_INBOX.>\"] } }
        { user: reader, password: p, permissions: {
            publish: [\"$JS.API.STREAM.INFO.KV_putex\", \"$JS.API.STREAM.MSG.GET.KV_putex\"]
            subscribe: [\"_INBOX.>\", \"putex.>\"] } }
    ] }";
    let Some(server) = server(users) else { return };
    let of = |user: &str| Host::on(server.url("nats", &format!("{user}:p@127.0.0.1")));
    let all = of("all");
    all.make_bucket();
    let run = of("none").run(&["doctor"]);
    assert_eq!((run.status, run.shown.starts_with("PUTEX UNKNOWN - ")), (Some(3), true), "{run:?}");
    let (report, _) = of("reader").doctor(&[]);
    report.assert("write", "unknown", "; see Rights in NATS in putex help theory");
    report.assert("read", "ok", "of 50");
    report.assert("server", "ok", &server.version());
    let (report, status) = of("reader").doctor(&["web"]);
    for name in ["agents", "standby"] {
        report.assert(name, "unknown", "not asked: ");
    }
    assert_eq!(status, Some(0));
}
