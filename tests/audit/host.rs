//! A host with an agent whose log is a file, and the lines of such logs.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::sandbox::Sandbox;

/// A host whose agent has R 500 ms and T 1.5 s, and a service that is nothing.
pub(crate) struct Host {
    sandbox: Sandbox,
    token: &'static str,
    store: [String; 2],
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
        Host { sandbox: Sandbox::new(token), token, store, agent: None }
    }

    /// Starts the agent, which appends to its log.
    pub(crate) fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.join("log"));
        let mut command = self.sandbox.putex();
        command.args(["agent", "--key", "db", "--token", self.token]).args(&self.store);
        command.args(["-r", "500ms", "-f", "3", "-c", "1", "--start", "true", "--stop", "true"]);
        let agent = Agent::start_with_stderr(&mut command, log.expect("a log"));
        self.agent = Some(agent.expect("it can be run"));
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

    /// Kills all processes of the host, as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.sandbox.kill_all();
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
