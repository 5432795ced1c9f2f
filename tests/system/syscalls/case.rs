//! A case: one system call of one thread that fails once, or hangs once.

use std::fmt;

use crate::Pace;

/// The activity of agent and guard when the fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The holder renews the lock; the fault is in the holder.
    Stroke,
    /// The holder is told to end; the fault is in the holder.
    Stop,
    /// The holder is told to end; the fault is in the challenger, which takes over.
    Takeover,
    /// The holder's guard is killed; the fault is in the holder's agent, which starts another.
    Replace,
}

impl Phase {
    pub(crate) const ALL: [Phase; 4] =
        [Phase::Stroke, Phase::Stop, Phase::Takeover, Phase::Replace];
}

/// A process of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Agent,
    Guard,
}

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The call is not executed and returns an error.
    Fail,
    /// The call is executed [`Pace::hang`] late, and nothing can kill the thread meanwhile.
    Hang,
}

/// A system call of a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    pub(crate) phase: Phase,
    pub(crate) role: Role,
    /// The name of the thread; [`MAIN`] for the first one.
    pub(crate) thread: String,
    pub(crate) call: String,
}

/// How the first thread of a process is called here.
pub(crate) const MAIN: &str = "main";

/// A fault at a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) site: Site,
    /// Which call of this name since the phase began, from 1.
    pub(crate) occurrence: u32,
    pub(crate) fault: Fault,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { phase, role, thread, call } = &self.site;
        let text =
            format!("{phase:?}/{role:?}/{thread}/{call}:{}/{:?}", self.occurrence, self.fault);
        f.write_str(&text.to_lowercase())
    }
}

impl Case {
    /// Returns the cases of a call: one for each fault that it can suffer.
    pub(crate) fn all_of(site: &Site, occurrence: u32) -> Vec<Case> {
        let can_fail = NEVER_FAIL.iter().all(|(name, _)| *name != site.call);
        let faults: &[Fault] = match can_fail {
            true => &[Fault::Fail, Fault::Hang],
            false => &[Fault::Hang],
        };
        let case = |fault: &Fault| Case { site: site.clone(), occurrence, fault: *fault };
        faults.iter().map(case).collect()
    }

    /// Returns what strace is told.
    pub(crate) fn injection(&self) -> String {
        let (call, occurrence) = (&self.site.call, self.occurrence);
        let fault = match self.fault {
            Fault::Fail => format!("error={}", error_of(call)),
            Fault::Hang => format!("delay_enter={}", Pace::new().hang().as_micros()),
        };
        format!("inject={call}:{fault}:when={occurrence}")
    }
}

/// The error that a call fails with: one that the kernel returns for want of something.
fn error_of(call: &str) -> &'static str {
    match call {
        "write" | "pwrite64" | "renameat" | "rename" | "mkdir" | "unlink" => "ENOSPC",
        "openat" | "pipe2" | "fcntl" | "socketpair" | "socket" | "pidfd_open" => "EMFILE",
        "accept4" | "eventfd2" | "timerfd_create" | "inotify_init1" => "EMFILE",
        "clone" | "clone3" | "vfork" | "fork" => "EAGAIN",
        "mmap" | "munmap" | "mprotect" | "madvise" | "brk" | "ppoll" | "mremap" => "ENOMEM",
        "sendmsg" | "sendto" | "recvmsg" | "recvfrom" => "ENOBUFS",
        "wait4" | "waitid" => "ECHILD",
        "flock" => "ENOLCK",
        "kill" | "pidfd_send_signal" => "EPERM",
        "timerfd_settime" | "rt_sigprocmask" | "sigaltstack" | "prlimit64" => "EINVAL",
        "setpriority" => "EACCES",
        _ => "EIO",
    }
}

/// Calls that have no fault, and why.
const NO_SITES: [(&str, &str); 6] = [
    ("execve", "it is made by a child"),
    ("exit", "the thread has done its work"),
    ("exit_group", "the process has done its work"),
    ("restart_syscall", "strace causes it"),
    ("rt_sigreturn", "it returns to what the signal has interrupted"),
    ("sched_yield", "it always succeeds"),
];

/// Calls that do not fail, and why.
const NEVER_FAIL: [(&str, &str); 2] = [
    ("close", "it closes also when it returns an error, but not under strace"),
    ("futex", "it does not refuse a wake-up"),
];

/// Returns whether faults are injected into a call of this name.
pub(crate) fn is_site(call: &str) -> bool {
    NO_SITES.iter().all(|(name, _)| *name != call)
}
