//! Exceptions: harm of faults that cannot be avoided.

use crate::case::{Case, Fault, MAIN, Phase, Role};

/// The harm of a fault to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// The service does not run anywhere, or stays where it should go away.
    Stays,
    /// The service outlives its lock.
    Outlives,
}

/// Cases that a fault may do harm in.
#[derive(Debug)]
pub(crate) struct Exception {
    pub(crate) harm: Harm,
    /// Whether it is one for hosts with a control group, too.
    with_cgroup: bool,
    fault: Fault,
    role: Role,
    /// The thread; any when it is blank.
    thread: &'static str,
    /// The phase; any when there is none.
    phase: Option<Phase>,
    /// Parts of the line that strace writes of the call.
    call: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// The list.
pub(crate) const EXCEPTIONS: [Exception; 6] = [
    Exception {
        harm: Harm::Stays,
        with_cgroup: true,
        fault: Fault::Fail,
        role: Role::Agent,
        thread: "",
        phase: None,
        call: &["write(", "eventfd]"],
        why: "a thread of the agent is not woken. eventfd(2) refuses a wake-up only when one is \
              there already. A health check that was asked for so is not run before the next \
              one, and an agent that waits for its end asks for no other: it is no candidate \
              until it is started again",
    },
    Exception {
        harm: Harm::Stays,
        with_cgroup: true,
        fault: Fault::Fail,
        role: Role::Guard,
        thread: "",
        phase: None,
        call: &["write(", "eventfd]"],
        why: "the guard is not woken when a start was spawned. eventfd(2) refuses a wake-up only \
              when one is there already. The start waits for its release, and the agent keeps \
              the lock as if that start took for ever",
    },
    Exception {
        harm: Harm::Stays,
        with_cgroup: true,
        fault: Fault::Fail,
        role: Role::Agent,
        thread: MAIN,
        phase: None,
        call: &["sendto("],
        why: "a signal handler wakes the signal thread by its socket. Without memory for that the \
              signal is lost, and the agent goes on: a second signal ends it",
    },
    Exception {
        harm: Harm::Stays,
        with_cgroup: true,
        fault: Fault::Fail,
        role: Role::Guard,
        thread: "putex-start",
        phase: None,
        call: &["recvfrom("],
        why: "the standard library does not learn whether execve(2) has succeeded, and waits for \
              the end of a process that waits for its release: a start that takes for ever. \
              Linux has no error for that socket",
    },
    Exception {
        harm: Harm::Outlives,
        with_cgroup: false,
        fault: Fault::Hang,
        role: Role::Guard,
        thread: MAIN,
        phase: Some(Phase::Stop),
        call: &[],
        why: "no control group, and a guard that cannot be killed: nobody ends the service. The \
              agent, told to end, gives up R after dead_by, and the guard, which it has killed, \
              has no successor: putex finish runs stop",
    },
    Exception {
        harm: Harm::Outlives,
        with_cgroup: true,
        fault: Fault::Hang,
        role: Role::Agent,
        thread: MAIN,
        phase: Some(Phase::Replace),
        call: &[],
        why: "the guard is dead and the agent hangs: both are lost together",
    },
];

/// Returns the exception that a case is of. `line` is what strace wrote of the call.
pub(crate) fn find(case: &Case, line: &str, cgroup: bool) -> Option<usize> {
    let site = &case.site;
    EXCEPTIONS.iter().position(|exception| {
        exception.fault == case.fault
            && exception.role == site.role
            && (exception.with_cgroup || !cgroup)
            && (exception.thread.is_empty() || exception.thread == site.thread)
            && exception.phase.is_none_or(|phase| phase == site.phase)
            && exception.call.iter().all(|part| line.contains(part))
    })
}
