//! The signals of an agent: SIGTERM and SIGINT end it, SIGUSR2 and SIGHUP have it execute its
//! program anew. SIGHUP ends it when its terminal is gone. SIGUSR1, which would end it without a
//! stop, does nothing.
//!
//! The signals are blocked, and the main thread reads them from a descriptor. So a signal that is
//! not read yet waits for the next instance where the program is executed anew.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;

use libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::sys::{self, raw};

/// The order that a signal gives the agent.
pub(super) enum Order {
    /// The order to end; the name of the signal.
    End(&'static str),
    /// The order to execute the agent's program anew.
    Upgrade,
}

/// The signals that an agent takes.
pub struct Signals {
    /// Becomes readable when there is a signal.
    pub(super) fd: OwnedFd,
    on_terminal: bool,
}

impl Signals {
    /// Takes the signals over. Called before any thread is started: all threads block them. A
    /// SIGINT or SIGHUP that is ignored stays ignored: the agent was detached from its terminal.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor to give.
    pub fn open() -> io::Result<Signals> {
        let mut taken = vec![SIGTERM, SIGUSR1, SIGUSR2];
        taken.extend([SIGINT, SIGHUP].into_iter().filter(|signal| !raw::is_ignored(*signal)));
        let fd = raw::take_signals(&taken)?;
        Ok(Signals { fd, on_terminal: io::stdin().is_terminal() })
    }

    /// Reads the next signal; returns its order, if there is one.
    pub(super) fn next(&self) -> Option<Order> {
        match sys::next_signal(&self.fd)? {
            SIGUSR2 => Some(Order::Upgrade),
            SIGTERM => Some(Order::End("SIGTERM")),
            SIGINT => Some(Order::End("SIGINT")),
            SIGUSR1 => None,
            // The terminal is gone, and with it Control-C.
            _ if self.on_terminal => Some(Order::End("SIGHUP")),
            _ => Some(Order::Upgrade),
        }
    }
}
