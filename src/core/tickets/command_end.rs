//! When a command is told to end, and when it is killed, because its lock is not held for ever.

use std::time::Duration;

use super::times::KillTimes;
use crate::core::time::Instant;

/// How long the end of a command is waited for after SIGKILL. The command may run on.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// A signal that a command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM, and SIGCONT, without which a stopped command would not get it.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// The last signal that the command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    Terminate,
    /// SIGKILL, at this instant.
    Kill(Instant),
}

/// The end of a command: its times, and what it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    times: KillTimes,
    sent: Sent,
}

impl CommandEnd {
    /// Returns the end of a command that has just been spawned.
    pub fn new(times: KillTimes) -> CommandEnd {
        CommandEnd { times, sent: Sent::Nothing }
    }

    /// The lock was renewed. A command that was told to end has to end all the same, and a
    /// renewal that is older than the last one changes nothing.
    pub fn renew(&mut self, times: KillTimes) {
        if self.sent == Sent::Nothing && times.kill_at > self.times.kill_at {
            self.times = times;
        }
    }

    /// The lock was lost: the command has to end by these times, if they are earlier.
    pub fn hasten(&mut self, times: KillTimes) {
        self.times.terminate_at = self.times.terminate_at.min(times.terminate_at);
        self.times.kill_at = self.times.kill_at.min(times.kill_at);
    }

    /// Returns the signal that is due now, each once.
    pub fn take_due(&mut self, now: Instant) -> Option<EndSignal> {
        match self.sent {
            Sent::Nothing | Sent::Terminate if now >= self.times.kill_at => {
                self.sent = Sent::Kill(now);
                Some(EndSignal::Kill)
            }
            Sent::Nothing if now >= self.times.terminate_at => {
                self.sent = Sent::Terminate;
                Some(EndSignal::Terminate)
            }
            Sent::Nothing | Sent::Terminate | Sent::Kill(_) => None,
        }
    }

    /// Returns when the next signal is due, or, after the last one, when the end of the command
    /// is not waited for any more.
    pub fn next_at(&self) -> Instant {
        match self.sent {
            Sent::Nothing => self.times.terminate_at.min(self.times.kill_at),
            Sent::Terminate => self.times.kill_at,
            Sent::Kill(at) => at.after(KILL_WAIT),
        }
    }

    /// Returns whether the command was told to end, or killed.
    pub fn has_begun(&self) -> bool {
        self.sent != Sent::Nothing
    }

    /// Returns whether the command was killed.
    pub fn is_killed(&self) -> bool {
        matches!(self.sent, Sent::Kill(_))
    }

    /// Returns whether the command was killed so long ago that its end is not waited for.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.is_killed() && now >= self.next_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(seconds))
    }

    fn times(terminate: u64, kill: u64) -> KillTimes {
        KillTimes { terminate_at: at(terminate), kill_at: at(kill) }
    }

    #[test]
    fn a_command_is_told_to_end_once_and_then_killed_once() {
        let mut end = CommandEnd::new(times(10, 12));
        assert_eq!((end.take_due(at(9)), end.next_at()), (None, at(10)));
        assert!(!end.has_begun());
        assert_eq!(end.take_due(at(10)), Some(EndSignal::Terminate));
        assert!(end.has_begun() && !end.is_killed());
        assert_eq!((end.take_due(at(11)), end.next_at()), (None, at(12)));
        assert_eq!(end.take_due(at(13)), Some(EndSignal::Kill));
        assert_eq!((end.take_due(at(14)), end.next_at()), (None, at(18)));
        assert!(end.is_killed() && !end.is_overdue(at(17)) && end.is_overdue(at(18)));
    }

    #[test]
    fn a_process_that_slept_through_both_times_kills_at_once() {
        let mut end = CommandEnd::new(times(10, 12));
        assert_eq!(end.take_due(at(20)), Some(EndSignal::Kill));
        assert_eq!(end.take_due(at(20)), None);
    }

    #[test]
    fn a_renewal_moves_the_times_until_the_command_was_told_to_end() {
        let mut end = CommandEnd::new(times(10, 12));
        end.renew(times(15, 17));
        end.renew(times(11, 13));
        assert_eq!((end.take_due(at(14)), end.next_at()), (None, at(15)));
        assert_eq!(end.take_due(at(15)), Some(EndSignal::Terminate));
        end.renew(times(20, 22));
        assert_eq!(end.next_at(), at(17));
    }

    #[test]
    fn a_loss_only_makes_the_times_earlier() {
        let mut end = CommandEnd::new(times(10, 12));
        end.hasten(times(5, 7));
        assert_eq!(end.take_due(at(5)), Some(EndSignal::Terminate));
        end.hasten(times(6, 20));
        assert_eq!(end.next_at(), at(7));
    }
}
