//! Writing to stderr without blocking.
//!
//! stderr is inherited, and may be a pipe that nobody reads any more. A pipe that is opened
//! again can be written without blocking, while the service that writes into the same pipe
//! still blocks as it expects to. A pipe of another user cannot be opened again, but splice(2)
//! fills it without blocking; send(2) does for a socket. A file blocks its writer for as long
//! as its disk or its server stalls: for the guard another process writes it, which reads the
//! lines from a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use crate::sys;

/// How stderr is written.
#[derive(Debug)]
pub(super) enum Stderr {
    /// It was opened again, without blocking.
    Reopened(File),
    /// A socket.
    Socket(OwnedFd),
    /// A pipe, filled from a pipe of our own.
    Pipe {
        /// stderr.
        stderr: File,
        /// The own pipe, which is empty between two lines.
        own: (PipeReader, PipeWriter),
    },
    /// A file or terminal.
    MayBlock(File),
    /// The pipe of a process that writes the file.
    WriterProcess(PipeWriter),
    /// It is closed, or cannot be written without blocking.
    None,
}

impl Stderr {
    /// Finds out how to write this process's stderr.
    pub(super) fn open() -> Stderr {
        let Ok(stderr) = io::stderr().as_fd().try_clone_to_owned() else {
            return Stderr::None;
        };
        let stderr = File::from(stderr);
        // All that inherited this file share its offset. Opened again, it would have another
        // offset, and others would overwrite our lines.
        if stderr.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Stderr::MayBlock(stderr);
        }
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let reopened = OpenOptions::new()
            .append(true)
            .custom_flags(flags)
            .open("/proc/self/fd/2");
        match reopened {
            Ok(file) => Stderr::Reopened(file),
            Err(_) => Stderr::not_reopened(stderr),
        }
    }

    /// Returns how to write a stderr that cannot be opened again.
    pub(super) fn not_reopened(stderr: File) -> Stderr {
        let Ok(kind) = stderr.metadata().map(|metadata| metadata.file_type()) else {
            return Stderr::None;
        };
        if kind.is_socket() {
            return Stderr::Socket(OwnedFd::from(stderr));
        }
        if !kind.is_fifo() {
            return Stderr::MayBlock(stderr);
        }
        match io::pipe() {
            Ok(own) => Stderr::Pipe { stderr, own },
            Err(_) => Stderr::None,
        }
    }

    /// Starts a writer process if stderr is a file.
    pub(super) fn with_writer_process(self) -> Stderr {
        if let Stderr::MayBlock(file) = &self
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
            && let Ok(pipe) = start_writer_process(file)
        {
            return Stderr::WriterProcess(pipe);
        }
        // Better a file that may stall than none.
        self
    }

    /// Returns whether the whole line was written.
    pub(super) fn write(&mut self, line: &[u8]) -> bool {
        match self {
            Stderr::Reopened(file) => file.write(line).is_ok_and(|count| count == line.len()),
            // A pipe takes a line of this length as a whole or not at all.
            Stderr::WriterProcess(pipe) => pipe.write(line).is_ok(),
            Stderr::Socket(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(socket, line, flags).is_ok()
            }
            Stderr::Pipe { stderr, own } => splice_line(stderr, own, line),
            Stderr::MayBlock(file) => sys::has_room(&*file) && file.write_all(line).is_ok(),
            Stderr::None => false,
        }
    }
}

/// The writer process. It ignores what ends other processes, as the guard does, survives a
/// full disk, and ends when the pipe is closed.
const WRITER: &str = "trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    while IFS= read -r line; do printf '%s\\n' \"$line\"; done >&2";

/// Starts a process that copies lines from a pipe to this file.
fn start_writer_process(file: &File) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    // Nobody waits for it: it ends soon after the guard.
    shell
        .stdout(Stdio::null())
        .stderr(file.try_clone()?)
        .spawn()?;
    Ok(writer)
}

/// Moves the line through our own pipe into stderr.
fn splice_line(stderr: &File, own: &mut (PipeReader, PipeWriter), line: &[u8]) -> bool {
    let (reader, writer) = own;
    if writer.write_all(line).is_err() {
        return false;
    }
    let flags = SpliceFlags::NONBLOCK;
    let moved = rustix::pipe::splice(&*reader, None, stderr, None, line.len(), flags);
    let moved = moved.unwrap_or(0);
    // The own pipe is emptied again.
    let mut rest = vec![0; line.len() - moved];
    reader.read_exact(&mut rest).is_ok() && rest.is_empty()
}
