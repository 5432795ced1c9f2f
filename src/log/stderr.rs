//! stderr, as the log thread writes it: a reader that does not read blocks that thread alone.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

/// The writer process. It ignores the signals that end other processes, as the guard does,
/// survives a full disk, and ends when the pipe is closed.
const WRITER: &str = "trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    while IFS= read -r line; do printf '%s\\n' \"$line\"; done >&2";

/// Returns this process's stderr, or, for a `killable` process, the pipe of a process that writes
/// it if it is a file: a process cannot end while the disk holds one of its threads up.
///
/// # Errors
///
/// When the process has no descriptor left.
pub(super) fn open(killable: bool) -> io::Result<File> {
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    if !killable || !stderr.metadata()?.is_file() {
        return Ok(stderr);
    }
    // Better a file that may stall than none.
    Ok(start_writer_process(&stderr).map_or(stderr, |pipe| File::from(OwnedFd::from(pipe))))
}

/// Starts a process that copies lines from a pipe to this file.
fn start_writer_process(file: &File) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    // Nobody waits for it: it ends soon after the guard.
    shell.stdout(Stdio::null()).stderr(file.try_clone()?).spawn()?;
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::sys;

    #[test]
    fn the_writer_process_writes_lines_as_they_are() {
        let path = std::env::temp_dir().join(format!("putex-log-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        let mut pipe = start_writer_process(&file).expect("a process");
        let lines = "putex: web:   written \\again\nputex: web: -n\n";
        pipe.write_all(lines.as_bytes()).expect("there is room");
        drop(pipe);
        let deadline = sys::now().after(std::time::Duration::from_secs(20));
        while fs::read_to_string(&path).expect("it is text") != lines {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        fs::remove_file(&path).expect("it is there");
    }
}
