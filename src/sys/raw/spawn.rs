//! Commands, started without a copy of the memory of this process, as by vfork(2). The library's
//! posix_spawn(3) would ask for the action of each signal, and take memory.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::process::{Pid, Signal};

use super::program::Program;
use crate::exit::LockExit;

/// A program that is spawned at once.
pub struct Spawn<'a> {
    /// Its words, the program first.
    pub arguments: &'a [CString],
    /// Its variables.
    pub environment: &'a [CString],
    /// A descriptor that it inherits, besides those that this process leaves to all.
    pub inherited: Option<BorrowedFd<'a>>,
    /// The terminal, which its process group is given before it begins.
    pub terminal: Option<BorrowedFd<'a>>,
}

/// What the copy of this process reads before it is the program, and where it writes why it
/// could not become that.
struct Copied<'a> {
    program: Program<'a>,
    parent: Pid,
    inherited: c_int,
    terminal: c_int,
    failure: c_int,
}

/// The stack of the copy, which calls little but the kernel.
const STACK_BYTES: usize = 16 * 1024;

/// Starts a program as [`spawn_held`](super::spawn_held) does, but at once, and waits until it is
/// executed: no memory is copied, as by vfork(2). Returns the process, and why the program could
/// not be executed; then the process ends with 126 or 127. The caller has blocked the signals that
/// it takes.
///
/// # Errors
///
/// When the system has no process or memory to give.
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<(Pid, Option<io::Error>)> {
    let number = |file: &BorrowedFd<'_>| file.as_raw_fd();
    let mut copied = Copied {
        program: Program::new(spawn.arguments, spawn.environment),
        parent: rustix::process::getpid(),
        inherited: spawn.inherited.as_ref().map_or(-1, number),
        terminal: spawn.terminal.as_ref().map_or(-1, number),
        failure: 0,
    };
    // Not touched before it is used.
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: the texts end in a zero, the lists of them in null, and all live until then.
    let process = unsafe {
        copy(become_program, &raw mut copied, top.cast(), libc::CLONE_VFORK, ptr::null_mut())
    }?;
    // SAFETY: the copy has written it, behind the back of the compiler.
    let failure = unsafe { (&raw const copied.failure).read_volatile() };
    Ok((process, (failure != 0).then(|| io::Error::from_raw_os_error(failure))))
}

/// Runs a function in a copy of this process that shares its memory, on a stack that ends at
/// `top`. With the flag `CLONE_VFORK` it waits until the copy is another program or has ended; with
/// `CLONE_PIDFD` it sets `exit` to a descriptor that becomes readable when the copy has ended.
///
/// # Errors
///
/// When the system has no process, descriptor or memory to give, or does not take these flags.
///
/// # Safety
///
/// The function makes only calls that a signal handler may make too. What it touches and its stack
/// live until it has executed another program or ended. Without `CLONE_VFORK` it calls nothing of
/// the library that can fail: the error number is that of this thread. The end of the stack is
/// aligned as `u128` is. `exit` may be written to if `CLONE_PIDFD` is among the flags.
pub(super) unsafe fn copy<T>(
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut T,
    top: *mut c_void,
    flags: c_int,
    exit: *mut c_int,
) -> io::Result<Pid> {
    let flags = libc::CLONE_VM | libc::SIGCHLD | flags;
    // SAFETY: the caller keeps what the copy uses.
    let process = unsafe { libc::clone(function, top, flags, argument.cast(), exit) };
    let process = if process == -1 { None } else { Pid::from_raw(process) };
    process.ok_or_else(io::Error::last_os_error)
}

/// Returns a list of texts as execve(2) reads it, which ends in null.
pub(super) fn pointers<'a>(texts: impl IntoIterator<Item = &'a CString>) -> Vec<*const c_char> {
    texts.into_iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Has the kernel kill this process when the thread that has made it ends, and ends it if that
/// thread has ended before.
///
/// # Safety
///
/// This process, a child of `parent`, is about to be another program.
pub(super) unsafe fn end_with_parent(parent: Pid) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        // SAFETY: it ends the process as it is.
        unsafe { libc::_exit(125) }
    }
}

/// Gives SIGPIPE its default action, and unblocks all signals.
///
/// # Safety
///
/// This process is about to be another program.
pub(super) unsafe fn restore_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set, which sigprocmask(2) reads.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// What the copy of this process does. Its memory is that of this process.
extern "C" fn become_program(copied: *mut c_void) -> c_int {
    let copied: *mut Copied<'_> = copied.cast();
    // SAFETY: only calls that a signal handler may make too, and none that writes to the memory
    // of the library but for the error number, which the waiting thread does not need.
    unsafe {
        libc::setpgid(0, 0);
        end_with_parent((*copied).parent);
        if (*copied).terminal != -1 {
            // SIGTTOU is blocked. A terminal that is gone is none.
            libc::tcsetpgrp((*copied).terminal, libc::getpid());
        }
        if (*copied).inherited != -1 {
            libc::fcntl((*copied).inherited, libc::F_SETFD, 0);
        }
        restore_signals();
        let program = &mut (*copied).program;
        let number = program.execute();
        (&raw mut (*copied).failure).write_volatile(number);
        let is_missing = number == libc::ENOENT;
        let exit = if is_missing { LockExit::NotFound } else { LockExit::NotExecutable };
        libc::_exit(exit as i32)
    }
}
