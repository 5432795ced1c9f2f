//! A real supervisor: runit's `runsv`, which starts an agent again as soon as it ends,
//! but not more than once a second.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `runsv` waits for so long after the last start before it starts again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// A service directory of runit.
#[derive(Debug)]
pub(crate) struct Supervisor {
    folder: PathBuf,
}

impl Supervisor {
    /// Makes `folder` the service directory of a program with these arguments.
    pub(crate) fn prepare(
        folder: PathBuf,
        program: &Path,
        arguments: &[String],
    ) -> Result<Supervisor, String> {
        let arguments = arguments.iter().map(|word| quoted(word));
        let words: Vec<String> =
            [quoted(&program.to_string_lossy())].into_iter().chain(arguments).collect();
        let script = format!("#!/bin/sh\nexec {}\n", words.join(" "));
        write_script(&folder.join("run"), &script)
            .map_err(|error| format!("the run script of runsv: {error}"))?;
        Ok(Supervisor { folder })
    }

    /// Returns the process that is supervised, if there is one at the moment.
    pub(crate) fn supervised(&self) -> Option<u32> {
        let text = fs::read_to_string(self.folder.join("supervise/pid")).ok()?;
        text.trim().parse().ok()
    }
}

fn write_script(path: &Path, script: &str) -> io::Result<()> {
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Returns `word` as the shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
