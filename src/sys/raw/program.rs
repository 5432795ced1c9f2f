//! A program that is found in PATH, and run by the shell where the kernel does not know the form
//! of its file: a script without a first line `#!`. So does execvpe(3) of glibc. That of musl does
//! not run such a script, which users of flock(1) have.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use super::call::execve;
use super::spawn::pointers;

/// What is searched where PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

const SHELL: &CStr = c"/bin/sh";

/// All that is needed to execute a program: a copy of a process takes no memory.
pub(super) struct Program<'a> {
    /// Where its file may be.
    paths: Vec<CString>,
    /// These are those of PATH.
    is_searched: bool,
    arguments: Vec<*const c_char>,
    /// The words of the shell, the second of which is the path.
    of_shell: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    texts: PhantomData<&'a [CString]>,
}

impl<'a> Program<'a> {
    /// Looks PATH up. The first of the arguments is the program.
    pub(super) fn new(arguments: &'a [CString], environment: &'a [CString]) -> Program<'a> {
        let of_shell = [SHELL.as_ptr(), ptr::null()].into_iter();
        Program {
            paths: arguments.first().map(|name| paths_of(name)).unwrap_or_default(),
            is_searched: arguments.first().is_some_and(|name| !name.to_bytes().contains(&b'/')),
            of_shell: of_shell.chain(pointers(arguments.iter().skip(1))).collect(),
            arguments: pointers(arguments),
            environment: pointers(environment),
            texts: PhantomData,
        }
    }

    /// Executes it in the place of this process. Returns only when that fails: the error number.
    ///
    /// # Safety
    ///
    /// This process is a copy that is about to be another program.
    pub(super) unsafe fn execute(&mut self) -> c_int {
        let environment = self.environment.as_ptr();
        let mut failure = libc::ENOENT;
        for path in &self.paths {
            let path = path.as_ptr();
            // SAFETY: the texts end in a zero, and the lists of them in null.
            match unsafe { execve(path, self.arguments.as_ptr(), environment) } {
                libc::ENOEXEC => {
                    self.of_shell[1] = path;
                    // SAFETY: as above. Without a shell the first error tells more.
                    unsafe { execve(SHELL.as_ptr(), self.of_shell.as_ptr(), environment) };
                    return libc::ENOEXEC;
                }
                libc::EACCES => failure = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT
                    if self.is_searched => {}
                number => return number,
            }
        }
        failure
    }
}

/// Returns where the file of a program may be. An empty part of PATH is the present directory.
fn paths_of(name: &CStr) -> Vec<CString> {
    let name = name.to_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return CString::new(name).into_iter().collect();
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let in_dir = |dir: &[u8]| match dir {
        [] => CString::new(name),
        dir => CString::new([dir, b"/", name].concat()),
    };
    path.as_bytes().split(|byte| *byte == b':').filter_map(|dir| in_dir(dir).ok()).collect()
}
