//! Writing to stderr without blocking.
//!
//! stderr is inherited, and may be a pipe that nobody reads any more. A pipe that is opened
//! again can be written without blocking, while the service that writes into the same pipe
//! still blocks as it expects to. A pipe of another user cannot be opened again, but splice(2)
//! fills it without blocking; send(2) does for a socket. A file blocks its writer for as long
//! as its disk or its server stalls: for the guard another process writes it, which reads the
//! lines from a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::net::{SendFlags, sockopt};
use rustix::pipe::SpliceFlags;

use crate::sys::{self, raw};

/// Pages of a pipe, unless its size was changed.
const PIPE_PAGES: u32 = 16;

/// How stderr is written.
#[derive(Debug, Default)]
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
        /// Lines since the pipe was empty. Each takes a page of it, however short.
        lines: u32,
    },
    /// A file or terminal.
    MayBlock(File),
    /// The pipe of a process that writes the file.
    WriterProcess(PipeWriter),
    /// It is closed, or cannot be written without blocking.
    #[default]
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
        let reopened = OpenOptions::new().append(true).custom_flags(flags).open("/proc/self/fd/2");
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
            Ok(own) => Stderr::Pipe { stderr, own, lines: 0 },
            Err(_) => Stderr::None,
        }
    }

    /// Starts a writer process if stderr is a file, or a pipe that cannot be opened again.
    pub(super) fn with_writer_process(self) -> Stderr {
        let file = match &self {
            Stderr::MayBlock(file) if file.metadata().is_ok_and(|file| file.is_file()) => file,
            Stderr::Pipe { stderr, .. } => stderr,
            Stderr::MayBlock(_)
            | Stderr::Reopened(_)
            | Stderr::Socket(_)
            | Stderr::WriterProcess(_)
            | Stderr::None => return self,
        };
        match start_writer_process(file) {
            Ok(pipe) => Stderr::WriterProcess(pipe),
            // Better a file that may stall than none.
            Err(_) => self,
        }
    }

    /// Writes a whole line. The error is [`ErrorKind::WouldBlock`] if there is no room.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let written = match self {
            Stderr::Reopened(file) => file.write(line)?,
            // A pipe takes a line of this length as a whole or not at all.
            Stderr::WriterProcess(pipe) => pipe.write(line)?,
            Stderr::Socket(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(socket, line, flags)?
            }
            Stderr::Pipe { stderr, own, lines } => {
                *lines = if unread(&*stderr) == 0 { 1 } else { *lines + 1 };
                splice_line(stderr, own, line)?
            }
            Stderr::MayBlock(file) if sys::has_room(&*file) => {
                return file.write_all(line);
            }
            Stderr::MayBlock(_) => 0,
            Stderr::None => return Err(ErrorKind::NotConnected.into()),
        };
        if written == line.len() {
            return Ok(());
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Returns whether half of the room for lines that are not read yet is taken.
    pub(super) fn is_half_full(&self) -> bool {
        match self {
            Stderr::Reopened(file) => is_half_full(file),
            Stderr::WriterProcess(pipe) => is_half_full(pipe),
            Stderr::Pipe { stderr, lines, .. } => *lines >= PIPE_PAGES / 2 && unread(stderr) > 0,
            Stderr::Socket(socket) => {
                let room = sockopt::socket_send_buffer_size(socket).unwrap_or(0);
                raw::unsent(socket).is_ok_and(|unsent| unsent > room / 2)
            }
            Stderr::MayBlock(_) | Stderr::None => false,
        }
    }
}

/// Returns how many bytes in a pipe are not read yet.
fn unread(pipe: impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or(0)
}

fn is_half_full(pipe: impl AsFd) -> bool {
    // A terminal has no size.
    let size = rustix::pipe::fcntl_getpipe_size(&pipe);
    size.is_ok_and(|size| unread(&pipe) > size as u64 / 2)
}

/// The writer process. It ignores the signals that end other processes, as the guard does,
/// survives a full disk, and ends when the pipe is closed.
const WRITER: &str = "trap '' HUP INT QUIT TERM USR1 USR2 XFSZ
    while IFS= read -r line; do printf '%s\\n' \"$line\"; done >&2";

/// Starts a process that copies lines from a pipe to this file.
fn start_writer_process(file: &File) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", WRITER, "putex-log"]).stdin(reader);
    // Nobody waits for it: it ends soon after the guard.
    shell.stdout(Stdio::null()).stderr(file.try_clone()?).spawn()?;
    Ok(writer)
}

/// Moves the line through our own pipe into stderr; returns how many bytes.
fn splice_line(
    stderr: &File,
    (reader, writer): &mut (PipeReader, PipeWriter),
    line: &[u8],
) -> io::Result<usize> {
    writer.write_all(line)?;
    let flags = SpliceFlags::NONBLOCK;
    let moved = rustix::pipe::splice(&*reader, None, stderr, None, line.len(), flags);
    // The own pipe is emptied again.
    let mut rest = vec![0; line.len() - moved.unwrap_or(0)];
    reader.read_exact(&mut rest)?;
    Ok(moved?)
}
