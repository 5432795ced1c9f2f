//! Commands, started without a copy of the memory of this process, as by vfork(2). The library's
//! posix_spawn(3) would ask for the action of each signal, and take memory.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::{Pid, WaitOptions};

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
struct Copied {
    arguments: *const *const c_char,
    environment: *const *const c_char,
    parent: libc::pid_t,
    inherited: c_int,
    terminal: c_int,
    failure: c_int,
}

/// The stack of the copy: execvpe(3) puts a path there, and for a script all arguments.
const STACK_BYTES: usize = 64 * 1024;

/// Starts a program as [`spawn_held`](super::spawn_held) does, but at once, and waits until it is
/// executed: no memory is copied, as by vfork(2). Returns the process, and why the program could
/// not be executed; then the process ends with 126 or 127. The caller has blocked the signals that
/// it takes.
///
/// # Errors
///
/// When the system has no process or memory to give.
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<(Pid, Option<io::Error>)> {
    let (arguments, environment) = (pointers(spawn.arguments), pointers(spawn.environment));
    let number = |file: &BorrowedFd<'_>| file.as_raw_fd();
    let mut copied = Copied {
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        parent: rustix::process::getpid().as_raw_pid(),
        inherited: spawn.inherited.as_ref().map_or(-1, number),
        terminal: spawn.terminal.as_ref().map_or(-1, number),
        failure: 0,
    };
    // Not touched before it is used.
    let words = (STACK_BYTES + 2 * size_of_val(&arguments[..])) / size_of::<u128>();
    let mut stack = Vec::<u128>::with_capacity(words);
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: the texts end in a zero, the lists of them in null, and all live until then.
    let (process, _) = unsafe { copy(become_program, &raw mut copied, top.cast()) }?;
    // SAFETY: the copy has written it, behind the back of the compiler.
    let failure = unsafe { (&raw const copied.failure).read_volatile() };
    Ok((process, (failure != 0).then(|| io::Error::from_raw_os_error(failure))))
}

/// Runs a function in a copy of this process that shares its memory, on a stack that ends at
/// `top`, and waits until the copy is another program or has ended. Returns the process, and the
/// descriptor that becomes readable when it has ended.
///
/// # Errors
///
/// When the system has no process, descriptor or memory to give.
///
/// # Safety
///
/// The function makes only calls that a signal handler may make too, and touches only what lives
/// until it has ended. The end of the stack is aligned to 16 bytes.
unsafe fn copy<T>(
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut T,
    top: *mut c_void,
) -> io::Result<(Pid, OwnedFd)> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut exit: c_int = -1;
    // SAFETY: this thread waits meanwhile, so the stack lives as long as the copy uses it.
    let process = unsafe { libc::clone(function, top, flags, argument.cast(), &raw mut exit) };
    let process = if process == -1 { None } else { Pid::from_raw(process) };
    let process = process.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has made it for this process, closed on exec.
    Ok((process, unsafe { OwnedFd::from_raw_fd(exit) }))
}

/// Returns a list of texts as execve(2) reads it, which ends in null.
pub(super) fn pointers<'a>(texts: impl IntoIterator<Item = &'a CString>) -> Vec<*const c_char> {
    texts.into_iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
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
    let copied: *mut Copied = copied.cast();
    // SAFETY: only calls that a signal handler may make too, and none that writes to the memory
    // of the library but for the error number, which the waiting thread does not need.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != (*copied).parent {
            libc::_exit(125);
        }
        if (*copied).terminal != -1 {
            // SIGTTOU is blocked. A terminal that is gone is none.
            libc::tcsetpgrp((*copied).terminal, libc::getpid());
        }
        if (*copied).inherited != -1 {
            libc::fcntl((*copied).inherited, libc::F_SETFD, 0);
        }
        restore_signals();
        let arguments = (*copied).arguments;
        libc::execvpe(*arguments, arguments, (*copied).environment);
        let number = *libc::__errno_location();
        (&raw mut (*copied).failure).write_volatile(number);
        let is_missing = number == libc::ENOENT;
        let exit = if is_missing { LockExit::NotFound } else { LockExit::NotExecutable };
        libc::_exit(exit as i32)
    }
}

/// A command of the operator that is spawned at once.
pub struct SpawnCommand<'a> {
    /// Its words if it is a plain program, the program first, with its path.
    pub program: &'a [CString],
    /// The words of `/bin/sh` that run it if it is not, or that program cannot be executed.
    pub shell: &'a [CString],
    /// Its variables.
    pub environment: &'a [&'a CString],
    /// Its stdin, stdout and stderr.
    pub files: [BorrowedFd<'a>; 3],
    /// Whether it has a session of its own, and not only a process group.
    pub own_session: bool,
}

/// What the copy of this process reads before it is a command, and where it writes why it could
/// not become one.
struct CopiedCommand {
    program: *const *const c_char,
    shell: *const *const c_char,
    environment: *const *const c_char,
    files: [c_int; 3],
    own_session: bool,
    failure: c_int,
}

/// The stack of the copy, which calls little but the kernel.
const COMMAND_STACK_BYTES: usize = 8 * 1024;

/// Spawns a command with no signal blocked and SIGPIPE as it is by default, and waits until it is
/// executed. Returns the process, and the descriptor that becomes readable when it has ended.
///
/// # Errors
///
/// When the system has no process, descriptor or memory to give, or no such file.
pub fn spawn_command(spawn: &SpawnCommand<'_>) -> io::Result<(Pid, OwnedFd)> {
    let (program, shell) = (pointers(spawn.program), pointers(spawn.shell));
    let environment = pointers(spawn.environment.iter().copied());
    let mut copied = CopiedCommand {
        program: program.as_ptr(),
        shell: shell.as_ptr(),
        environment: environment.as_ptr(),
        files: spawn.files.map(|file| file.as_raw_fd()),
        own_session: spawn.own_session,
        failure: 0,
    };
    let mut stack = [MaybeUninit::<u128>::uninit(); COMMAND_STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) fills the set, which sigprocmask(2) reads, and that fills the other one
    // in, which is read later. The texts end in a zero, the lists of them in null, and all live
    // until then. No handler of this process runs in the copy, but after it has unblocked all.
    let (process, exit) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let process = copy(become_command, &raw mut copied, top.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        process
    }?;
    // SAFETY: the copy has written it, behind the back of the compiler.
    match unsafe { (&raw const copied.failure).read_volatile() } {
        0 => Ok((process, exit)),
        failure => {
            let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(failure))
        }
    }
}

/// What the copy of this process does. Its memory is that of this process.
extern "C" fn become_command(copied: *mut c_void) -> c_int {
    let copied: *mut CopiedCommand = copied.cast();
    // SAFETY: as in `become_program`.
    unsafe {
        let _ = if (*copied).own_session { libc::setsid() } else { libc::setpgid(0, 0) };
        let mut are_set = true;
        for (number, file) in (0..).zip((*copied).files) {
            are_set &= match file == number {
                true => libc::fcntl(file, libc::F_SETFD, 0),
                false => libc::dup2(file, number),
            } != -1;
        }
        if are_set {
            restore_signals();
            let (program, environment) = ((*copied).program, (*copied).environment);
            if !(*program).is_null() {
                libc::execve(*program, program, environment);
            }
            libc::execve(*(*copied).shell, (*copied).shell, environment);
        }
        (&raw mut (*copied).failure).write_volatile(*libc::__errno_location());
        libc::_exit(127)
    }
}
