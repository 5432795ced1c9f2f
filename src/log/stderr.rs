//! stderr, as the log thread writes it: a reader that does not read blocks that thread alone.

use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use super::lost::DROPPED;

/// The writer process. It ignores the signals that end other processes, as the guard does,
/// survives a full disk, and ends when the pipe is closed. It counts the lines that it could not
/// write, in a line that begins as the last one: with its time, the program and the key. Behind
/// such a line, of which a part may have been written, the next begins with a newline.
const WRITER: &str = r#"trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    count=0 newline=
    write_line() {
        if printf '%s%s\n' "$newline" "$1"; then newline=; return 0; fi
        newline='
'
        return 1
    }
    write_count() {
        rest=${last#*: } rest=${rest#*: }
        write_line "${last%"$rest"}warning: $count$DROPPED$CAUSE" && count=0
    }
    while IFS= read -r line; do
        last=$line
        if ! write_line "$line"; then count=$((count + 1))
        elif [ "$count" -gt 0 ]; then write_count
        fi
    done >&2 2>/dev/null
    [ "$count" -eq 0 ] || write_count >&2 2>/dev/null"#;

/// Why the writer process could not write: a shell does not get the error.
const CAUSE: &str = "could not be written: a write to stderr failed";

/// stderr, or a pipe to the process that writes it.
pub(super) struct Stderr {
    file: File,
    /// The process, which ends soon after this one.
    writer: Option<Child>,
    /// The file ends in a part of a line: there was no room for the rest.
    is_torn: bool,
}

impl Stderr {
    pub(super) fn new(file: File, writer: Option<Child>) -> Stderr {
        Stderr { file, writer, is_torn: false }
    }

    /// Writes a line. Behind a part of one it begins with a newline: it would be no line of its
    /// own.
    pub(super) fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let with_newline = self.is_torn.then(|| [b"\n", line].concat());
        let mut rest = with_newline.as_deref().unwrap_or(line);
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.is_torn = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on in another file.
    pub(super) fn replace_file(&mut self, file: File) {
        (self.file, self.is_torn) = (file, false);
    }

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
        return Ok(Stderr::new(File::from(OwnedFd::from(pipe)), Some(writer)));
    }
    // Better a file that may stall than none.
    Ok(Stderr::new(file, None))
}

/// Starts a process that copies lines from a pipe to this file.
fn start_writer_process(file: &File) -> io::Result<(PipeWriter, Child)> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    let shell = shell.env("DROPPED", DROPPED).env("CAUSE", CAUSE);
    let process = shell.stdout(Stdio::null()).stderr(file.try_clone()?).spawn()?;
    Ok((writer, process))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

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
        let deadline = sys::now().after(sys::PATIENCE);
        while fs::read_to_string(&path).expect("it is text") != lines {
            assert!(sys::now() < deadline, "the lines are not there");
        }
        fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_line_behind_a_part_of_one_begins_on_its_own() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a page");
        rustix::io::ioctl_fionbio(&writer, true).expect("it can be set");
        let mut stderr = Stderr::new(OwnedFd::from(writer).into(), None);
        let long = "x".repeat(5000);
        let error = stderr.write_line(format!("{long}\n").as_bytes()).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        stderr.write_line(b"lost\n").expect_err("no room");
        reader.read_exact(&mut [0; 4096]).expect("a part");
        for line in ["one\n", "two\n"] {
            stderr.write_line(line.as_bytes()).expect("there is room");
        }
        drop(stderr);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("it is text");
        assert_eq!(text, "\none\ntwo\n");
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
        Stderr::new(file, Some(writer)).open_again().expect("a descriptor");
        assert!(!fs::exists(&process).expect("a folder"), "{process}");
    }
}
