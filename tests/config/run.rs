//! A run of putex with a clean environment, and a folder for its files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for any event, on a loaded machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let pid = std::process::id();
        let path = std::env::temp_dir().join(format!("putex-config-{pid}-{name}"));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// Writes a file of this mode.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The result of a run of putex.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) shown: String,
    pub(crate) said: String,
}

impl Run {
    /// Runs putex. Of the variables that it reads, only `variables` are set.
    pub(crate) fn of(words: &[&str], variables: &[(&str, &str)]) -> Run {
        let mut command = command(words, variables);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + WAIT_MAX;
        // An agent that is not refused runs on.
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        Run {
            status: output.status.code(),
            shown: String::from_utf8(output.stdout).unwrap(),
            said: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the value and the origin of a setting, as `check` shows them.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        let mut lines = self.shown.lines();
        let line = lines.find(|line| line.split(' ').next() == Some(name))?;
        Some(line[name.len()..].trim_start())
    }

    #[track_caller]
    pub(crate) fn shows(&self, rows: &[(&str, &str)]) {
        for (name, expected) in rows {
            assert_eq!(self.setting(name), Some(*expected), "{name}: {self:?}");
        }
    }
}

pub(crate) fn command(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_putex"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let read = ["NATS_", "XDG_", "PUTEX_", "SSL_"];
        if read.iter().any(|begin| name.starts_with(begin)) {
            command.env_remove(&*name);
        }
    }
    command.args(words).envs(variables.iter().copied());
    command
}
