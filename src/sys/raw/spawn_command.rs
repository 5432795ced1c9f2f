//! The operator's commands, spawned without a copy of the memory of this process. Whoever has
//! deadlines does not wait meanwhile until the kernel has read the program, which a disk that
//! hangs prevents.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::io::FdFlags;
use rustix::process::{Pid, WaitOptions};

use super::call::{self, close_range, execve};
use super::spawn::{copy, end_with_parent, pointers, restore_signals};
use crate::sys;

/// A command of the operator that is spawned at once.
pub struct SpawnCommand<'a> {
    /// Its words if it is a plain program, the program first, with its path.
    pub program: Vec<CString>,
    /// The words of `/bin/sh` that run it if it is not, or that program cannot be executed.
    pub shell: Vec<CString>,
    /// Its own variables.
    pub variables: Vec<CString>,
    /// Its other variables.
    pub inherited: Arc<[CString]>,
    /// Its stdin, stdout and stderr.
    pub files: [BorrowedFd<'a>; 3],
    /// Whether it has a session of its own, and not only a process group.
    pub own_session: bool,
    /// Whether the kernel kills it when the thread that has spawned it ends.
    pub ends_with_thread: bool,
    /// Whether to wait until it is executed. Until then its memory is that of this process: what
    /// is said to the kernel of the memory of one holds for both.
    pub waits: bool,
}

/// A command that was spawned.
pub struct SpawnedCommand {
    /// Its process.
    pub process: Pid,
    /// Becomes readable when the process has ended.
    exit: OwnedFd,
    /// What the process reads until it is executed, unless that was waited for.
    copied: Option<NonNull<Copied>>,
}

// SAFETY: what it points to is its own, and points into what that owns or what lives for ever.
unsafe impl Send for SpawnedCommand {}

/// What the copy of this process reads before it is a command, and where it writes why it could
/// not become one.
struct Copied {
    program: Vec<*const c_char>,
    shell: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    files: [c_int; 3],
    closed: &'static [(u32, u32)],
    own_session: bool,
    ends_with_thread: bool,
    parent: Pid,
    failure: AtomicI32,
    /// What the lists point into.
    _texts: [Vec<CString>; 3],
    _inherited: Arc<[CString]>,
    _stack: Vec<u128>,
}

/// The stack of the copy, which calls little but the kernel.
const STACK_BYTES: usize = 8 * 1024;

/// Spawns a command with no signal blocked and SIGPIPE as it is by default.
///
/// # Errors
///
/// When the system has no process, descriptor or memory to give; if it waits also when the command
/// cannot be executed.
pub fn spawn_command(spawn: SpawnCommand<'_>) -> io::Result<SpawnedCommand> {
    let SpawnCommand { program, shell, variables, inherited, files, .. } = spawn;
    let waits = spawn.waits || call::SETS_ERRNO;
    // Not touched before it is used.
    let mut stack = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let copied = NonNull::from(Box::leak(Box::new(Copied {
        program: pointers(&program),
        shell: pointers(&shell),
        environment: pointers(inherited.iter().chain(&variables)),
        files: files.map(|file| file.as_raw_fd()),
        closed: not_inherited(),
        own_session: spawn.own_session,
        ends_with_thread: spawn.ends_with_thread,
        parent: rustix::process::getpid(),
        failure: AtomicI32::new(0),
        _texts: [program, shell, variables],
        _inherited: inherited,
        _stack: stack,
    })));
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) fills the set, which sigprocmask(2) reads, and that fills the other one
    // in, which is read later. The texts end in a zero, the lists of them in null, and all live
    // until the process has ended. No handler of this process runs in the copy, but after it has
    // unblocked all.
    let copy = |flags, exit| unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let process = copy(become_command, copied.as_ptr(), top.cast(), flags, exit);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        process
    };
    let (process, exit) = open_copy(waits, copy).inspect_err(|_| free(copied))?;
    let mut spawned = SpawnedCommand { process, exit, copied: Some(copied) };
    if waits {
        let failure = spawned.failure();
        spawned.copied.take().into_iter().for_each(free);
        if let Some(error) = failure {
            let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
            return Err(error);
        }
    }
    Ok(spawned)
}

/// Makes the copy of this process by `copy`, which takes flags and where to write a descriptor.
/// Returns the process, and what becomes readable when it has ended.
///
/// # Errors
///
/// When the system has no process, descriptor or memory to give.
fn open_copy(
    waits: bool,
    mut copy: impl FnMut(c_int, *mut c_int) -> io::Result<Pid>,
) -> io::Result<(Pid, OwnedFd)> {
    let mut exit: c_int = -1;
    let flag = if waits { libc::CLONE_VFORK } else { 0 };
    let process = match copy(libc::CLONE_PIDFD | flag, &raw mut exit) {
        // As an emulator of another processor says that knows only the flags of vfork(2).
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            copy(libc::CLONE_VFORK, ptr::null_mut())
        }
        copied => copied,
    }?;
    let exit = match exit {
        // That is also how a kernel before 5.2 takes the flag that it does not know.
        -1 => sys::open_spawned(process)?,
        // SAFETY: the kernel has made it for this process, closed on exec.
        _ => unsafe { OwnedFd::from_raw_fd(exit) },
    };
    Ok((process, exit))
}

/// Returns the ranges of descriptors, but for the first three, that no command inherits: all but
/// those with which this process was started, and which it leaves to all. Looked for once: what
/// this process opens is closed on exec.
fn not_inherited() -> &'static [(u32, u32)] {
    static RANGES: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
        let Ok(open) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
        let numbers = open.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
        let mut inherited: Vec<u32> = numbers.filter(|number| is_inherited(*number)).collect();
        inherited.sort_unstable();
        let mut ranges = Vec::new();
        let mut first = 3;
        for number in inherited.into_iter().filter(|number| *number >= 3) {
            if first < number {
                ranges.push((first, number - 1));
            }
            first = number + 1;
        }
        ranges.push((first, u32::MAX));
        ranges
    });
    &RANGES
}

/// Returns whether a program that this process executes inherits a descriptor of this number.
fn is_inherited(number: u32) -> bool {
    // SAFETY: the call fails on what is not open.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number.cast_signed()) });
    flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Frees what no process reads any more.
fn free(copied: NonNull<Copied>) {
    // SAFETY: it was leaked when it was made, and its owner gives it up.
    drop(unsafe { Box::from_raw(copied.as_ptr()) });
}

impl SpawnedCommand {
    /// Returns why the process could not be executed. It has ended, or was waited for.
    pub fn failure(&self) -> Option<io::Error> {
        // SAFETY: it lives as long as this, and only the failure is written to.
        let failure = unsafe { self.copied?.as_ref() }.failure.load(Ordering::Acquire);
        (failure != 0).then(|| io::Error::from_raw_os_error(failure))
    }
}

impl AsFd for SpawnedCommand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }
}

impl Drop for SpawnedCommand {
    fn drop(&mut self) {
        // A process that runs may still read it.
        if sys::is_ready(&self.exit) {
            self.copied.take().into_iter().for_each(free);
        }
    }
}

/// What the copy of this process does. Its memory is that of this process, whose threads go on.
extern "C" fn become_command(copied: *mut c_void) -> c_int {
    let copied: *const Copied = copied.cast_const().cast();
    // SAFETY: only calls that a signal handler may make too. Of the library only what cannot fail.
    unsafe {
        let copied = &*copied;
        let _ = match copied.own_session {
            true => rustix::process::setsid().map(drop),
            false => rustix::process::setpgid(None, None),
        };
        if copied.ends_with_thread {
            end_with_parent(copied.parent);
        }
        let mut failure = set_files(copied.files);
        if failure == 0 {
            // A disk that hangs would have this process keep locks and sockets of a dead agent.
            for (first, last) in copied.closed {
                close_range(*first, *last);
            }
            restore_signals();
            let environment = copied.environment.as_ptr();
            let (program, shell) = (copied.program.as_ptr(), copied.shell.as_ptr());
            if !(*program).is_null() {
                execve(*program, program, environment);
            }
            failure = execve(*shell, shell, environment);
        }
        copied.failure.store(failure, Ordering::Release);
        libc::_exit(127)
    }
}

/// Makes these the stdin, stdout and stderr; returns an error number, or 0.
///
/// # Safety
///
/// The files are open.
unsafe fn set_files(files: [c_int; 3]) -> c_int {
    // SAFETY: the caller has them open.
    let files = files.map(|file| unsafe { BorrowedFd::borrow_raw(file) });
    let mut set = Ok(());
    for (number, file) in (0..).zip(files) {
        set = set.and_then(|()| match number {
            _ if file.as_raw_fd() == number => rustix::io::fcntl_setfd(file, FdFlags::empty()),
            0 => rustix::stdio::dup2_stdin(file),
            1 => rustix::stdio::dup2_stdout(file),
            _ => rustix::stdio::dup2_stderr(file),
        });
    }
    set.map_or_else(|error| error.raw_os_error(), |()| 0)
}
