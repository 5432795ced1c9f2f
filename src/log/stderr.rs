//! stderr, as the log thread writes it: a reader that does not read blocks that thread alone.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// The writer process. It ignores the signals that end other processes, as the guard does,
/// survives a full disk, and ends when the pipe is closed.
const WRITER: &str = "trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    while IFS= read -r line; do printf '%s\\n' \"$line\"; done >&2";

/// stderr, or a pipe to the process that writes it.
pub(super) struct Stderr {
    pub(super) file: File,
    /// The process, which ends soon after this one.
    pub(super) writer: Option<Child>,
}

impl Stderr {
    /// Opens stderr again for a process whose writer process has ended.
    pub(super) fn open_again(&mut self) -> io::Result<()> {
        // Its end is near: it closes the pipe when it ends.
        self.writer.iter_mut().for_each(|writer| drop(writer.wait()));
        *self = open(true)?;
        Ok(())
    }
}

/// Returns this process's stderr, or, for a `killable` process, the pipe of a process that writes
/// it if it is a file: a process cannot end while the disk holds one of its threads up.
///
/// # Errors
///
/// When the process has no descriptor left.
pub(super) fn open(killable: bool) -> io::Result<Stderr> {
    let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    if killable
        && file.metadata()?.is_file()
        && let Ok((pipe, writer)) = start_writer_process(&file)
    {
        return Ok(Stderr { file: File::from(OwnedFd::from(pipe)), writer: Some(writer) });
    }
    // Better a file that may stall than none.
    Ok(Stderr { file, writer: None })
}

/// Starts a process that copies lines from a pipe to this file.
fn start_writer_process(file: &File) -> io::Result<(PipeWriter, Child)> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    let process = shell.stdout(Stdio::null()).stderr(file.try_clone()?).spawn()?;
    Ok((writer, process))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use rustix::event::{PollFd, PollFlags};

    use super::*;
    use crate::sys;

    #[test]
    fn the_writer_process_writes_lines_as_they_are() {
        let path = std::env::temp_dir().join(format!("putex-log-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        let (mut pipe, _process) = start_writer_process(&file).expect("a process");
        let lines = "putex: web:   written \\again\nputex: web: -n\n";
        pipe.write_all(lines.as_bytes()).expect("there is room");
        drop(pipe);
        let deadline = sys::now().after(std::time::Duration::from_secs(20));
        while fs::read_to_string(&path).expect("it is text") != lines {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        fs::remove_file(&path).expect("it is there");
    }

    /// A guard lives for years, and its processes are counted.
    #[test]
    fn a_writer_process_that_was_killed_is_no_zombie() {
        let path = std::env::temp_dir().join(format!("putex-zombie-{}", std::process::id()));
        let (pipe, mut writer) =
            start_writer_process(&File::create(&path).expect("a file")).expect("a process");
        fs::remove_file(&path).expect("it is there");
        let process = format!("/proc/{}", writer.id());
        writer.kill().expect("it runs");
        let file = File::from(OwnedFd::from(pipe));
        sys::poll(&mut [PollFd::new(&file, PollFlags::empty())]).expect("it has no reader");
        Stderr { file, writer: Some(writer) }.open_again().expect("a descriptor");
        assert!(!fs::exists(&process).expect("a folder"), "{process}");
    }
}
