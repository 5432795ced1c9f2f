//! What a child of this process does between fork(2) and execve(2), beside what the standard
//! library does. It has a copy of the memory: a signal handler in it changes nothing here.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::Signal;

/// How a child differs from this process.
#[derive(Clone, Debug, Default)]
pub struct Child {
    /// It leads a session, and not only a process group.
    pub own_session: bool,
    /// The kernel kills it when the thread that has spawned it ends.
    pub ends_with_thread: bool,
    /// Files that it closes at once: a disk that hangs may keep it from its program, and a lock of
    /// a dead process would be held as long. They stay open as long as commands are spawned.
    pub closed: Vec<RawFd>,
}

impl Child {
    /// Has a command spawned so, in a process group of its own, with no signal blocked or pending.
    pub fn set_up(self, command: &mut Command) {
        let parent = rustix::process::getpid();
        if !self.own_session {
            command.process_group(0);
        }
        let before_exec = move || {
            if self.own_session {
                rustix::process::setsid()?;
            }
            if self.ends_with_thread {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if rustix::process::getppid() != Some(parent) {
                    // It has ended before.
                    return Err(rustix::io::Errno::SRCH.into());
                }
            }
            self.closed.iter().for_each(|file| close(*file));
            forget_signals();
            Ok(())
        };
        // SAFETY: it makes system calls only, and takes no memory.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// Has a program spawned in a process group of its own, which ends with this thread and has no
/// signal blocked. It is given the terminal before it begins, and inherits a descriptor.
pub fn set_up_on_terminal(
    command: &mut Command,
    inherited: Option<BorrowedFd<'_>>,
    terminal: Option<BorrowedFd<'_>>,
) {
    let number = |file: BorrowedFd<'_>| file.as_raw_fd();
    let (inherited, terminal) = (inherited.map(number), terminal.map(number));
    let before_exec = move || {
        // SAFETY: both are open until the command was spawned. A terminal that is gone is none; the
        // signal that this would send is blocked.
        unsafe {
            terminal.map(|file| libc::tcsetpgrp(file, libc::getpid()));
            inherited.map(|file| libc::fcntl(file, libc::F_SETFD, 0));
        }
        Ok(())
    };
    // SAFETY: it makes system calls only, and takes no memory.
    unsafe { command.pre_exec(before_exec) };
    Child { ends_with_thread: true, ..Child::default() }.set_up(command);
}

fn close(file: RawFd) {
    // SAFETY: this process is about to execute a program, and does not use the file before.
    unsafe { libc::close(file) };
}

/// Forgets the signals that have come since this process was made, which were sent to the group of
/// its parent, and blocks none any more.
fn forget_signals() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigpending(2) and sigemptyset(3) fill the set, which the other calls read; the
    // default is no function of ours. To ignore a signal discards the one that waits.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        for signal in 1..=libc::SIGRTMAX() {
            if libc::sigismember(set.as_ptr(), signal) == 1
                && libc::signal(signal, libc::SIG_IGN) != libc::SIG_IGN
            {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
    }
}
