//! The environment of the operator's commands, and commands that hang or write too much:
//! one agent on a directory.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longest wait for any event, on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// An agent with a directory of its own. Dropping it ends and removes both.
struct Agent {
    folder: PathBuf,
    process: Child,
}

impl Agent {
    /// Starts an agent. In the commands, `$D` is its directory.
    fn start(name: &str, r: &str, start: &str, stop: &str) -> Agent {
        let pid = std::process::id();
        let folder = std::env::temp_dir().join(format!("putex-commands-{pid}-{name}"));
        fs::create_dir(&folder).expect("a folder of this test's own");
        let process = Command::new(env!("CARGO_BIN_EXE_putex"))
            .args([
                "agent", "--key", "web", "--token", "one", "-r", r, "-c", "1",
            ])
            .arg("--dir")
            .arg(folder.join("lock"))
            .args(["--start", start, "--stop", stop])
            .env("D", &folder)
            .env("NATS_PASSWORD", "hunter2")
            .env("NATS_TOKEN", "hunter2")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the agent runs");
        Agent { folder, process }
    }

    /// Waits for a file that a command writes; returns its content.
    fn file(&self, name: &str) -> String {
        let path = self.folder.join(name);
        until(name, || {
            fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Waits for the end of the agent; returns its exit status and its log.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.process.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut said).expect("it is text");
        (self.process.wait().expect("it has ended").code(), said)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: nothing within {WAIT_MAX:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn commands_get_their_variables_and_no_secret() {
    let start = "env >$D/new; echo \"$0 $1\" >>$D/new; mv $D/new $D/told; echo hello";
    let mut agent = Agent::start("told", "100ms", start, "true");
    let told = agent.file("told");
    for line in [
        "PUTEX_KEY=web",
        "PUTEX_TOKEN=one",
        "PUTEX_ROLE=active",
        "PUTEX_TERM=1",
    ] {
        assert!(
            told.lines().any(|have| have == line),
            "{line} is not in:\n{told}"
        );
    }
    assert!(told.contains("\nPUTEX_EPOCH="), "{told}");
    assert!(told.ends_with("start active\n"), "{told}");
    assert!(
        !told.contains("hunter2"),
        "a secret was handed to a command:\n{told}"
    );
    agent.signal(Signal::HUP);
    agent.signal(Signal::TERM);
    let (status, said) = agent.end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("putex: web: start: hello\n"), "{said}");
    assert!(said.contains("SIGHUP: nothing to reload"), "{said}");
    assert!(said.contains("the lock is released, revision"), "{said}");
}

#[test]
fn a_hanging_stop_is_killed_with_what_it_started_and_nothing_is_released() {
    let stop = "test -e $D/up || exit 0; sleep 600 & echo $! >$D/pid; wait";
    let mut agent = Agent::start("hang", "200ms", "echo up >$D/up", stop);
    agent.file("up");
    agent.signal(Signal::TERM);
    let (status, said) = agent.end();
    assert_eq!(status, Some(70), "{said}");
    assert!(said.contains("THE SERVICE MAY STILL RUN"), "{said}");
    assert!(!said.contains("the lock is released"), "{said}");
    let pid = agent.file("pid").trim().parse().expect("a process number");
    let pid = Pid::from_raw(pid).expect("a process number");
    until("the end of what stop started", || {
        test_kill_process(pid).is_err().then_some(())
    });
}

#[test]
fn a_log_that_is_not_read_loses_lines_and_stops_nothing() {
    let start = "echo x >>$D/starts; seq 20000";
    let mut agent = Agent::start("shout", "100ms", start, "true");
    let starts = agent.folder.join("starts");
    // Each start writes far more than a pipe and the queue hold. Strokes go on.
    until("ten starts", || {
        let count = fs::read_to_string(&starts).ok()?.lines().count();
        (count >= 10).then_some(())
    });
    agent.signal(Signal::TERM);
    let (status, said) = agent.end();
    assert_eq!(status, Some(0), "the lock was held and the service stopped");
    assert!(
        said.contains("log lines were dropped: the log was not read"),
        "no count was given"
    );
    assert!(
        !said.contains("no renewal was acknowledged"),
        "the log held the renewals up"
    );
}

#[test]
fn a_refused_agent_ends_although_its_log_is_not_read() {
    let (unread, full) = std::io::pipe().expect("a pipe can be made");
    let flags = rustix::fs::fcntl_getfl(&full).expect("it is open");
    rustix::fs::fcntl_setfl(&full, flags | OFlags::NONBLOCK).expect("it is open");
    while rustix::io::write(&full, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, flags).expect("it is open");
    let mut refused = Command::new(env!("CARGO_BIN_EXE_putex"));
    let refused = refused.args(["agent", "--no-such-flag"]).stderr(full);
    let mut refused = refused.spawn().expect("it can be run");
    let status = until("the end", || refused.try_wait().expect("it is a child"));
    assert_eq!(status.code(), Some(64));
    drop(unread);
}

#[test]
fn a_failed_write_to_standard_output_is_no_success() {
    for verb in ["timing", "help", "--version"] {
        let full = fs::File::options().write(true).open("/dev/full");
        let mut putex = Command::new(env!("CARGO_BIN_EXE_putex"));
        let putex = putex.arg(verb).stdout(full.expect("every host has it"));
        let status = putex.status().expect("it can be run");
        assert_eq!(status.code(), Some(71), "{verb}");
    }
}
