//! Runs of putex, and the files of their configuration.

use std::process::Command;

use crate::support::folder::Folder;
pub(crate) use crate::support::sandbox::Run;
use crate::support::sandbox::Sandbox;

impl Folder {
    /// Writes a file of this mode; returns its path for the command line.
    pub(crate) fn put(&self, name: &str, text: &str, mode: u32) -> String {
        self.file(name, text, mode).display().to_string()
    }
}

impl Run {
    /// Runs putex. Of the variables that it reads, only `variables` are set.
    pub(crate) fn of(words: &[&str], variables: &[(&str, &str)]) -> Run {
        let sandbox = Sandbox::new("run");
        sandbox.run(&mut command(&sandbox, words, variables))
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

/// Prepares a run of putex in a sandbox.
pub(crate) fn command(sandbox: &Sandbox, words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = sandbox.putex();
    command.args(words).envs(variables.iter().copied());
    command
}
