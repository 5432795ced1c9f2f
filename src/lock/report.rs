//! `--report`: how a `putex lock` has ended, as one line of JSON. Statuses collide: that of the
//! command may be any number.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use serde::Serialize;

use super::account::{Account, Outcome};
use crate::core::Instant;
use crate::core::agent_status::seconds;
use crate::exit::{Exit, Refusal};
use crate::sys::{self, PollFlags, raw};

/// The line. A reader finds each field in each line.
#[derive(Serialize)]
struct Line<'a> {
    schema: u8,
    name: &'a str,
    mode: &'a str,
    token: &'a str,
    outcome: Outcome,
    status: u8,
    command_status: Option<u8>,
    term: Option<u64>,
    epoch: Option<&'a str>,
    slot: Option<u32>,
    waited_seconds: f64,
    waited_for: Option<&'a str>,
    held_seconds: Option<f64>,
    why: Option<&'a str>,
}

/// Opens the file of the reports, and makes it if there is none.
///
/// # Errors
///
/// Why it cannot be written.
pub(super) fn open(path: &str) -> Result<File, Refusal> {
    let opened = match descriptor(path) {
        Some(number) => open_copy(number),
        None => {
            // A pipe without a reader is refused, and a full one holds nobody up.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            File::options().append(true).create(true).custom_flags(flags).open(path)
        }
    };
    opened.map_err(|error| {
        let write = match descriptor(path) {
            Some(number) => format!("open it, as by {number}>FILE behind the command"),
            None => "write the path of a file, or /dev/fd/3".to_owned(),
        };
        Refusal::new(Exit::Usage, format!("--report: {path}: {error}; {write}"))
    })
}

/// Writes the line of this lock. A failure changes nothing else: the status is that of the lock.
pub(super) fn write(file: &File, account: &Account, status: u8) {
    let line = line(account, status, sys::now());
    // A copy may block, and a full one holds nobody up: a pipe that poll(2) calls writable has
    // room for a page.
    let written = match sys::is_ready_for(file, PollFlags::OUT, Duration::ZERO) {
        true => rustix::io::write(file, &line),
        false => Err(Errno::AGAIN),
    };
    let why = match written {
        Ok(count) if count == line.len() => return,
        Ok(count) => {
            cut_off(file, count);
            "there was room for a part of the line".to_owned()
        }
        Err(error) => io::Error::from(error).to_string(),
    };
    let path = account.request.report.as_deref().unwrap_or_default();
    account.destination.warn(&format!("--report: {path}: {why}"));
}

/// Takes a part of a line that was written just now out of the file: the next line would not be
/// readable behind it. Nothing is taken from a file in which others have written since.
fn cut_off(file: &File, count: usize) {
    let Ok(stat) = rustix::fs::fstat(file) else { return };
    // A pipe or a socket has no such place.
    let Ok(end) = rustix::fs::tell(file) else { return };
    let begin = end.checked_sub(count as u64);
    let is_last = u64::try_from(stat.st_size) == Ok(end);
    if let Some(begin) = begin.filter(|_| is_last) {
        // A failure leaves the part, of which the warning tells.
        let _ = rustix::fs::ftruncate(file, begin);
        // Another process with the same open file writes there next.
        let _ = rustix::fs::seek(file, SeekFrom::Start(begin));
    }
}

/// Returns a copy of a descriptor of this process's caller.
fn open_copy(number: RawFd) -> io::Result<File> {
    let copy = raw::copied(number)?;
    let mode = rustix::fs::fcntl_getfl(&copy)? & OFlags::RWMODE;
    if mode == OFlags::RDONLY {
        return Err(Errno::BADF.into());
    }
    Ok(copy.into())
}

/// Returns the number of the descriptor that a path means. To open that path opens the file
/// anew, which fails for a socket and for a file of another user, and writes at another place.
fn descriptor(path: &str) -> Option<RawFd> {
    match path {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => path.strip_prefix("/dev/fd/").or(path.strip_prefix("/proc/self/fd/"))?.parse().ok(),
    }
}

/// Returns the line, with its end.
fn line(account: &Account, status: u8, now: Instant) -> Vec<u8> {
    let (request, grant) = (&account.request, account.grant.as_ref());
    let line = Line {
        schema: 1,
        name: &request.name.to_string(),
        mode: request.mode.name(),
        token: &request.token,
        outcome: account.outcome,
        status,
        command_status: account.command_status,
        term: grant.map(|grant| grant.term),
        epoch: grant.map(|grant| &*grant.epoch),
        slot: grant.and_then(|grant| grant.slot),
        waited_seconds: seconds(account.waited(now)),
        waited_for: account.waited_for.as_deref(),
        held_seconds: account.held(now).map(seconds),
        why: account.why.as_deref(),
    };
    // Everything in a line has a form in JSON.
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    text
}
