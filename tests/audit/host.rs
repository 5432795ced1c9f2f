//! A host with an agent whose log is a file, and the lines of such logs.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::ops::Deref;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::sandbox::Sandbox;

/// Starts a process that outlives whoever starts it, once.
const START: &str = "test -e \"$D/up\" || { sleep 1000 >/dev/null 2>&1 & echo $! >\"$D/up\"; }";

/// Ends that.
const STOP: &str = "test ! -e \"$D/up\" || { kill $(cat \"$D/up\"); rm \"$D/up\"; }";

/// A host whose agent has R 500 ms and T 1.5 s.
pub(crate) struct Host {
    sandbox: Sandbox,
    token: &'static str,
    store: [String; 2],
    /// Start and stop: a service that is nothing unless [`Host::with_process`] says otherwise.
    service: [&'static str; 2],
    agent: Option<Agent>,
}

impl Deref for Host {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl Host {
    pub(crate) fn new(token: &'static str, url: &str) -> Host {
        Host::with_store(token, ["--nats".to_owned(), url.to_owned()])
    }

    pub(crate) fn in_dir(token: &'static str, dir: &str) -> Host {
        Host::with_store(token, ["--dir".to_owned(), dir.to_owned()])
    }

    fn with_store(token: &'static str, store: [String; 2]) -> Host {
        Host { sandbox: Sandbox::new(token), token, store, service: ["true"; 2], agent: None }
    }

    /// Makes the service a process.
    pub(crate) fn with_process(self) -> Host {
        Host { service: [START, STOP], ..self }
    }

    /// Returns whether the process of the service is there.
    pub(crate) fn has_process(&self) -> bool {
        !self.processes_of("sleep").is_empty()
    }

    /// Starts the agent, which appends to its log.
    pub(crate) fn start(&mut self) {
        let (mut command, log) = self.command("agent");
        let agent = Agent::start_with_stderr(&mut command, log);
        self.agent = Some(agent.expect("it can be run"));
    }

    /// Runs `putex finish`, as a service manager does; it has the same log.
    pub(crate) fn finish(&self) {
        let (mut command, log) = self.command("finish");
        let status = command.stderr(log).status();
        assert_eq!(status.expect("it can be run").code(), Some(0));
    }

    fn command(&self, subcommand: &str) -> (Command, File) {
        let log = OpenOptions::new().create(true).append(true).open(self.join("log"));
        let mut command = self.sandbox.putex();
        command.args([subcommand, "--key", "db", "--token", self.token]).args(&self.store);
        command.args(["-r", "500ms", "-f", "3", "-c", "1"]).env("D", self.text());
        command.args(["--start", self.service[0], "--stop", self.service[1]]);
        (command, log.expect("a log"))
    }

    /// Waits until so many lines of the log contain `part`.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str, count: usize) {
        let text = || fs::read_to_string(self.join("log")).unwrap_or_default();
        until_true(part, || text().matches(part).count() >= count);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.agent.as_ref().expect("an agent").signal(signal);
    }

    /// Kills all processes of the host, as a power cut does, which /run does not outlive either.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.sandbox.kill_all();
        fs::remove_dir_all(self.join("run")).expect("it can be removed");
        self.agent = None;
    }

    /// Kills the guard, and nothing else.
    pub(crate) fn kill_guard(&self) {
        let guard = self.sandbox.guard("db");
        rustix::process::kill_process(guard, Signal::KILL).expect("it is there");
    }

    /// Kills the agent and its guard, and nothing else.
    pub(crate) fn kill_agent_and_guard(&mut self) {
        self.signal(Signal::KILL);
        self.kill_guard();
        self.agent = None;
    }

    /// Has the agent end, and waits for that.
    pub(crate) fn end(&mut self) {
        self.signal(Signal::TERM);
        let mut agent = self.agent.take().expect("an agent");
        let status = agent.wait_exit(now() + PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(0));
    }

    /// Returns the lines of the log.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.join("log")).expect("a log");
        text.lines().map(Line::parse).collect()
    }
}

/// A line of a log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Milliseconds since the beginning of 1970.
    pub(crate) at: u64,
    /// What stands behind the time.
    pub(crate) text: String,
}

impl Line {
    fn parse(line: &str) -> Line {
        let (time, text) = line.split_once(' ').expect("a time");
        let at = humantime::parse_rfc3339(time).expect("a time of RFC 3339");
        let at = at.duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        Line { at: at.as_millis() as u64, text: text.to_owned() }
    }

    pub(crate) fn time(&self) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(self.at);
        humantime::format_rfc3339_millis(at).to_string()
    }

    /// Returns the line as `journalctl -o short-iso-precise` shows it.
    pub(crate) fn of_journal(&self, host: &str) -> String {
        let message = self.text.strip_prefix("putex: ").expect("the program");
        format!("{}000+0000 {host} putex[77]: {message}", self.time().trim_end_matches('Z'))
    }

    /// Returns the line as a syslog daemon of a host an hour east of Greenwich writes it.
    pub(crate) fn of_syslog(&self, host: &str) -> String {
        let message = self.text.strip_prefix("putex: ").expect("the program");
        let local = Line { at: self.at + 3_600_000, text: String::new() }.time();
        format!("{}000+01:00 {host} putex[77]: {message}", local.trim_end_matches('Z'))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.time(), self.text)
    }
}
