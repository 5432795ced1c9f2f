//! Every exit status of putex.

use std::process::ExitCode;

/// How the process ends. The numbers are a promise: see EXIT STATUS in putex(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Ended as asked, with the service down.
    Success,
    /// The command line is wrong.
    Usage,
    /// The store is out of reach, and the command does not go on trying.
    Unreachable,
    /// The service could not be stopped.
    NotStopped,
    /// The system lacks a resource that every agent needs: threads, descriptors.
    System,
    /// The server refused the credentials.
    Credentials,
    /// The configuration or the bucket is refused as unsafe, or the configuration file
    /// cannot be used.
    Unsafe,
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Exit; 7] = [
        Exit::Success,
        Exit::Usage,
        Exit::Unreachable,
        Exit::NotStopped,
        Exit::System,
        Exit::Credentials,
        Exit::Unsafe,
    ];

    /// Returns the number that the parent process sees, as in sysexits(3).
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Usage => 64,
            Exit::Unreachable => 69,
            Exit::NotStopped => 70,
            Exit::System => 71,
            Exit::Credentials => 77,
            Exit::Unsafe => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.status())
    }
}
