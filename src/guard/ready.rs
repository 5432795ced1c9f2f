//! What the main thread of the guard waits for, and what is ready then: only that is asked for.

use std::array;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};

use crate::core::Instant;
use crate::sys::Alarm;

/// What the guard waits for: `Option<BorrowedFd>`, and what is ready: `bool`.
#[derive(Clone, Copy)]
pub(super) struct Sources<T> {
    /// A command was spawned, or a start that does not succeed has ended.
    pub(super) waker: T,
    /// The agent has sent something, or is gone.
    pub(super) agent: T,
    /// An agent connects.
    pub(super) listener: T,
    /// Of each command: it has ended, and it has written something.
    pub(super) commands: [[T; 2]; 3],
}

/// What the guard waits for; `None` for what is not there.
pub(super) type Awaited<'a> = Sources<Option<BorrowedFd<'a>>>;

/// What is ready.
pub(super) type Ready = Sources<bool>;

impl Ready {
    /// It is not known: all is to be asked for.
    pub(super) const ALL: Ready =
        Sources { waker: true, agent: true, listener: true, commands: [[true; 2]; 3] };
}

impl Awaited<'_> {
    /// Waits until something is ready, also of `others`, or the deadline has come.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait.
    pub(super) fn wait<'a>(
        &'a self,
        alarm: &'a Alarm,
        others: impl Iterator<Item = PollFd<'a>>,
        deadline: Option<Instant>,
    ) -> io::Result<Ready> {
        let Sources { waker, agent, listener, commands } = self;
        let ones = [waker, agent, listener].into_iter();
        let all = ones.chain(commands.iter().flatten()).flatten();
        let mut fds: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).chain(others).collect();
        alarm.poll(&mut fds, deadline)?;
        let mut polled = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut is_ready =
            |fd: &Option<BorrowedFd<'_>>| fd.is_some() && polled.next() == Some(true);
        Ok(Sources {
            waker: is_ready(waker),
            agent: is_ready(agent),
            listener: is_ready(listener),
            commands: array::from_fn(|at| {
                let [ended, written] = &commands[at];
                [is_ready(ended), is_ready(written)]
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys;

    /// Returns which of the commands' descriptors are ready when those of these numbers are.
    fn commands_ready(written: &[usize], absent: &[usize]) -> ([bool; 3], [[bool; 2]; 3]) {
        let mut pipes: Vec<(PipeReader, PipeWriter)> =
            (0..9).map(|_| pipe().expect("a pipe")).collect();
        written.iter().for_each(|at| pipes[*at].1.write_all(b"x").expect("there is room"));
        let fd = |at: usize| (!absent.contains(&at)).then(|| pipes[at].0.as_fd());
        let awaited = Sources {
            waker: fd(0),
            agent: fd(1),
            listener: fd(2),
            commands: array::from_fn(|at| [fd(3 + 2 * at), fd(4 + 2 * at)]),
        };
        let alarm = Alarm::new().expect("a timer");
        let ready = awaited.wait(&alarm, std::iter::empty(), Some(sys::now())).expect("a wait");
        let Sources { waker, agent, listener, commands } = ready;
        ([waker, agent, listener], commands)
    }

    #[test]
    fn what_is_ready_is_told_also_where_others_are_absent() {
        let none = [[false; 2]; 3];
        assert_eq!(commands_ready(&[], &[]), ([false; 3], none));
        assert_eq!(commands_ready(&[1], &[]), ([false, true, false], none));
        assert_eq!(commands_ready(&[1], &[0, 2]), ([false, true, false], none));
        let second_ended = [[false; 2], [true, false], [false; 2]];
        assert_eq!(commands_ready(&[5], &[1, 2, 3]), ([false; 3], second_ended));
        let last_wrote = [[false; 2], [false; 2], [false, true]];
        assert_eq!(commands_ready(&[0, 8], &[3, 5, 7]), ([true, false, false], last_wrote));
    }
}
