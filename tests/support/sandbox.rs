//! A host of a test: a folder, and the processes started in it. Both are gone when the sandbox is
//! dropped.
//!
//! An agent keeps files below a directory that depends on the user: `$XDG_RUNTIME_DIR/putex`,
//! and /run/putex for root, whatever the environment says. So where root may make mount
//! namespaces, each command of a sandbox sees a folder of the sandbox as /run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use rustix::process::Pid;

use super::clock::{PATIENCE, now};
use super::folder::Folder;
use super::{process, programs};

/// How the names of the variables begin that putex and its commands read.
const READ: [&str; 9] = [
    "JOURNAL_STREAM", "NATS_", "NOTIFY_SOCKET", "PUTEX_", "RUNTIME_DIRECTORY", "RUST_LOG", "SSL_",
    "WATCHDOG_", "XDG_",
];

/// Runs a command with `$0` as /run. The command still finds out whether the host has
/// systemd.
const OWN_RUN: &str = "test ! -d /run/systemd/system || mkdir -p \"$0/systemd/system\"
                       mount --bind \"$0\" /run && exec \"$@\"";

/// The options of unshare(1) for a mount namespace whose mounts the host does not see.
const NAMESPACE: [&str; 3] = ["--mount", "--propagation", "private"];

/// A folder, and the processes that were started in it. They are killed, and the folder
/// is removed, when this is dropped.
#[derive(Debug)]
pub(crate) struct Sandbox(Folder);

/// The result of a process that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit status; `None` when a signal ended the process, as after [`PATIENCE`].
    pub(crate) status: Option<i32>,
    /// All of its stdout.
    pub(crate) shown: String,
    /// All of its stderr.
    pub(crate) said: String,
}

impl Sandbox {
    /// Makes a sandbox whose folder's name contains `part`.
    pub(crate) fn new(part: &str) -> Sandbox {
        Sandbox(Folder::new(part))
    }

    /// Prepares a run of the putex under test, as [`Sandbox::command`] does.
    pub(crate) fn putex(&self) -> Command {
        self.command(programs::putex())
    }

    /// Prepares an agent of the key `web` whose lock is in a directory of this sandbox. In
    /// its commands, `$D` is the folder of the sandbox.
    pub(crate) fn agent(&self, start: &str, stop: &str) -> Command {
        self.agent_of("one", start, stop)
    }

    /// As [`Sandbox::agent`], an agent of this token.
    pub(crate) fn agent_of(&self, token: &str, start: &str, stop: &str) -> Command {
        let mut command = self.putex();
        command
            .args(["agent", "--key", "web", "--token", token])
            .args(["--start", start, "--stop", stop])
            .arg("--dir")
            .arg(self.join("lock"))
            .env("D", self.text());
        command
    }

    /// Prepares a run of `program`, in a process group of its own. A putex in it writes
    /// only below this sandbox, and gets no variable of these tests that it reads.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let run = self.subfolder("run");
        let mut command = if isolates() {
            let mut command = self.marked("unshare");
            command.args(NAMESPACE).args(["sh", "-c", OWN_RUN]);
            command.arg(&run).arg(program);
            command
        } else {
            self.marked(program)
        };
        let read = |name: &str| READ.iter().any(|begin| name.starts_with(begin));
        // The mark is none of them: it is set, not inherited.
        for (name, _) in env::vars_os() {
            if name != process::MARK && name.to_str().is_some_and(read) {
                command.env_remove(name);
            }
        }
        command
            .env("XDG_RUNTIME_DIR", run)
            .env("TMPDIR", self.subfolder("tmp"))
            .env("HOME", self.as_os_str());
        command
    }

    /// Prepares a run of a program that runs no putex, in a process group of its own. It is
    /// one of the processes of this sandbox.
    pub(crate) fn marked(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(process::MARK, self.mark()).stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs a command of this sandbox to its end. After [`PATIENCE`] every process of the
    /// sandbox is killed.
    pub(crate) fn run(&self, command: &mut Command) -> Run {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command can be run");
        let shown = read_all(child.stdout.take());
        let said = read_all(child.stderr.take());
        let status = process::wait_exit(&mut child, now() + PATIENCE);
        if status.is_none() {
            self.kill_all();
        }
        let _ = child.wait();
        let text = |reader: thread::JoinHandle<String>| reader.join().expect("it reads");
        Run {
            status: status.and_then(|status| status.code()),
            shown: text(shown),
            said: text(said),
        }
    }

    /// Returns the processes of this sandbox.
    pub(crate) fn processes(&self) -> Vec<u32> {
        process::find_marked(&self.mark())
    }

    /// Returns the processes of this sandbox that run the program of this name.
    pub(crate) fn processes_of(&self, program: &str) -> Vec<u32> {
        let mut processes = self.processes();
        let named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
        processes.retain(|pid| named(pid).is_ok_and(|name| name.trim_end() == program));
        processes
    }

    /// Returns the guards of agents of `key` in this sandbox.
    pub(crate) fn guards(&self, key: &str) -> Vec<u32> {
        let mut guards = self.processes();
        guards.retain(|pid| process::is_guard(*pid, key));
        guards
    }

    /// Returns the guard of the agent of `key` in this sandbox.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub(crate) fn guard(&self, key: &str) -> Pid {
        let guard = self.guards(key).first().copied();
        let guard = guard.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        guard.expect("there is a guard")
    }

    /// Kills every process of this sandbox.
    pub(crate) fn kill_all(&self) {
        process::kill_marked(&self.mark());
    }

    fn mark(&self) -> String {
        process::mark(self.name())
    }
}

impl Deref for Sandbox {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Returns a command in a mount namespace of its own: `sh -c script`, with these arguments, then
/// the words of `command`.
pub(crate) fn with_own_mounts(script: &str, arguments: &[&Path], command: &Command) -> Command {
    let mut own = Command::new("unshare");
    let options: &[&str] = match rustix::process::geteuid().is_root() {
        true => &["--mount"],
        false => &["--mount", "--user", "--map-root-user"],
    };
    own.args(options).args(["sh", "-c", script]).args(arguments);
    own.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| own.env(name, value));
    }
    own
}

/// Returns whether an agent writes nothing outside of its sandbox; prints why not.
pub(crate) fn is_tight() -> bool {
    let tight = isolates() || !rustix::process::geteuid().is_root();
    if !tight {
        println!("skipped: root may not make mount namespaces here");
    }
    tight
}

/// Returns whether commands get a /run of their own.
fn isolates() -> bool {
    static ISOLATES: OnceLock<bool> = OnceLock::new();
    *ISOLATES.get_or_init(|| {
        let tried = || Command::new("unshare").args(NAMESPACE).arg("true").output();
        rustix::process::geteuid().is_root() && tried().is_ok_and(|output| output.status.success())
    })
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
