//! The calls of a child of this process between fork(2) and execve(2), beside those of the standard
//! library. The child has a copy of the memory: a signal handler in it changes nothing here.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{self, Command};

use rustix::io::FdFlags;
use rustix::process::Signal;

use super::borrowed;
use super::signals::discard_pending;

/// How a child differs from this process.
#[derive(Clone, Debug, Default)]
pub struct Child {
    /// The child leads a session, and not only a process group.
    pub own_session: bool,
    /// The kernel kills it when the thread that has spawned it ends.
    pub ends_with_thread: bool,
}

impl Child {
    /// Has a command spawned as such a child, in a process group of its own, with no signal blocked
    /// or pending.
    pub fn set_up(self, command: &mut Command) {
        let parent = process::id();
        if !self.own_session {
            command.process_group(0);
        }
        let before_exec = move || {
            if self.own_session {
                rustix::process::setsid()?;
            }
            if self.ends_with_thread {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if parent_id() != parent {
                    // The parent has ended before.
                    return Err(rustix::io::Errno::SRCH.into());
                }
            }
            discard_pending();
            Ok(())
        };
        // SAFETY: the function makes system calls only, and takes no memory.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// Has a program spawned in a process group of its own, which ends with this thread and has no
/// signal blocked. The program is given the terminal before it begins, and inherits a descriptor.
pub fn set_up_on_terminal(
    command: &mut Command,
    inherited: Option<BorrowedFd<'_>>,
    terminal: Option<BorrowedFd<'_>>,
) {
    let number = |file: BorrowedFd<'_>| file.as_raw_fd();
    let (inherited, terminal) = (inherited.map(number), terminal.map(number));
    let before_exec = move || {
        // A terminal that is gone is none. SIGTTOU is blocked.
        let own = rustix::process::getpid();
        let _ = terminal.map(|file| rustix::termios::tcsetpgrp(borrowed(file), own));
        if let Some(file) = inherited {
            rustix::io::fcntl_setfd(borrowed(file), FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the function makes system calls only, and takes no memory.
    unsafe { command.pre_exec(before_exec) };
    Child { ends_with_thread: true, ..Child::default() }.set_up(command);
}
