//! A host with one service, which is a file, and an agent on a directory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Longest that anything here may take, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host with one service: the file `up`.
pub(crate) struct Host {
    pub(crate) folder: PathBuf,
    pub(crate) key: String,
}

impl Host {
    pub(crate) fn new(name: &str) -> Host {
        let key = format!("host-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(format!("putex-{key}"));
        fs::create_dir(&folder).expect("a folder of this test's own");
        Host { folder, key }
    }

    /// Prepares a command of putex with the options of this host's agent.
    pub(crate) fn putex(&self, verb: &str, stop: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_putex"));
        command
            .args([verb, "--key", &self.key, "--token", "one"])
            .args(["-r", "200ms", "-c", "5"])
            .arg("--dir")
            .arg(self.folder.join("lock"))
            .args(["--start", START, "--stop", stop])
            .env("D", &self.folder);
        command
    }

    pub(crate) fn agent(&self) -> Agent {
        let mut command = self.putex("agent", STOP);
        command.stderr(Stdio::null());
        Agent(command.spawn().expect("the agent runs"))
    }

    /// Starts an agent whose log is kept; see [`Host::said`].
    pub(crate) fn logged_agent(&self) -> Agent {
        let mut command = self.putex("agent", STOP);
        command.stderr(File::create(self.log()).expect("a file"));
        Agent(command.spawn().expect("the agent runs"))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(crate) fn said(&self, text: &str) -> bool {
        let log = fs::read_to_string(self.log());
        log.expect("it is text").contains(text)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.folder.join("up").exists()
    }

    pub(crate) fn wait_until_up(&self) {
        until("the service", || self.is_up().then_some(()));
    }

    pub(crate) fn wait_until_down(&self) {
        until("end of the service", || (!self.is_up()).then_some(()));
    }
}

/// It does not end while the file `hold` is there.
const START: &str = "env >$D/env; echo >$D/up; test ! -e $D/hold || exec sleep 100";

pub(crate) const STOP: &str = "rm -f $D/up";

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An agent, which ends with the test.
pub(crate) struct Agent(pub(crate) Child);

impl Agent {
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Its guard stops the service then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of a guard; who reaps it is not asked.
pub(crate) fn wait_for_end(guard: Pid) {
    let exe = format!("/proc/{guard}/exe");
    until("end of the guard", || {
        fs::metadata(&exe).is_err().then_some(())
    });
}
