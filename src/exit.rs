//! The exit statuses of a failure, and its reason. A command that answers a question has 1, 2 or 3
//! for its answers.

use std::io;

use crate::core::{StoreError, StoreErrorKind};

/// How the process ends. The numbers are a promise, see EXIT STATUS in putex(8), and those of
/// sysexits(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process ended as asked, with the service down.
    Success = 0,
    /// The command line is wrong.
    Usage = 64,
    /// The store is out of reach, and the command does not go on trying.
    Unreachable = 69,
    /// The service, or a command under a lock, could not be stopped.
    NotStopped = 70,
    /// The system lacks a resource that every process needs: threads, descriptors.
    System = 71,
    /// The lock was not had in time, or the request was not carried out.
    NotHad = 75,
    /// The server refused the credentials.
    Credentials = 77,
    /// The configuration or the bucket is refused as unsafe, or the configuration file
    /// cannot be used.
    Unsafe = 78,
    /// The lock was lost while the command ran, which was ended.
    Lost = 100,
    /// The command was found and could not be executed, as env(1) says it.
    NotExecutable = 126,
    /// The command was not found, as env(1) says it.
    NotFound = 127,
}

/// The reason why a process ends with a failure, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The message, in one line.
    pub text: String,
    /// The exit status of the process.
    pub exit: Exit,
}

impl Refusal {
    /// Returns a refusal with a text of one line.
    pub fn new(exit: Exit, text: impl Into<String>) -> Refusal {
        Refusal { text: text.into(), exit }
    }

    /// Returns a function that makes the error of a system call a refusal whose message begins
    /// with `start`.
    pub fn system(start: &str) -> impl Fn(io::Error) -> Refusal {
        move |error| {
            let is_full = error.raw_os_error() == Some(libc::EMFILE);
            let hint = if is_full { "; raise ulimit -n or LimitNOFILE=" } else { "" };
            Refusal::new(Exit::System, format!("{start}{error}{hint}"))
        }
    }
}

/// The end of a command that answers: the text on stdout, and the exit status.
pub type Ended = (String, u8);

impl From<StoreError> for Refusal {
    fn from(StoreError { kind, text }: StoreError) -> Refusal {
        let exit = match kind {
            StoreErrorKind::Unreachable | StoreErrorKind::Unfit => Exit::Unreachable,
            StoreErrorKind::System => Exit::System,
            StoreErrorKind::Unsafe => Exit::Unsafe,
            StoreErrorKind::Credentials => Exit::Credentials,
        };
        Refusal { text, exit }
    }
}
