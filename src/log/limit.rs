//! The limit on the output of commands: a command that writes without end neither fills the
//! disk nor displaces putex's own lines.

use std::time::Duration;

use crate::core::{Command, Instant};

/// Lines that are logged of each command in each second.
const LINES_PER_SECOND: u64 = 20;

/// Lines that are logged at once of a command that wrote little before.
const LINES_AT_ONCE: u64 = 100;

/// Bytes that are logged of each command in each second.
const BYTES_PER_SECOND: u64 = 8 * 1024;

/// Bytes that are logged at once of a command that wrote little before.
const BYTES_AT_ONCE: u64 = 16 * 1024;

const SECOND: Duration = Duration::from_secs(1);

/// Decides which lines of the commands' output are logged, and counts the others.
pub(super) struct OutputLimit([Allowance; Command::ALL.len()]);

/// The output that one command may still log. Once a line was left out, the rest of the same
/// second is left out too, so that the lines logged have no gaps.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// The second began here; `None` before the first line.
    since: Option<Instant>,
    lines: u64,
    bytes: u64,
    left_out: u64,
}

impl OutputLimit {
    /// Returns a limit of commands that have written nothing yet.
    pub(super) fn new() -> OutputLimit {
        let all =
            Allowance { since: None, lines: LINES_AT_ONCE, bytes: BYTES_AT_ONCE, left_out: 0 };
        OutputLimit([all; Command::ALL.len()])
    }

    /// Returns whether a line of so many bytes is logged.
    pub(super) fn admits(&mut self, command: Command, bytes: usize, now: Instant) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let allowance = &mut self.0[command as usize];
        let since = *allowance.since.get_or_insert(now);
        let seconds = now.since(since).as_secs();
        if seconds > 0 {
            allowance.since = Some(now);
            let earned = |per_second: u64| seconds.saturating_mul(per_second);
            allowance.lines += earned(LINES_PER_SECOND).min(LINES_AT_ONCE - allowance.lines);
            allowance.bytes += earned(BYTES_PER_SECOND).min(BYTES_AT_ONCE - allowance.bytes);
        }
        if allowance.lines == 0 || allowance.bytes < bytes {
            allowance.lines = 0;
            allowance.left_out += 1;
            return false;
        }
        allowance.lines -= 1;
        allowance.bytes -= bytes;
        true
    }

    /// Returns a command of which lines were left out, and how many since this was asked
    /// last: when the second in which that began is over, or `at_once`.
    pub(super) fn left_out(&mut self, now: Instant, at_once: bool) -> Option<(Command, u64)> {
        Command::ALL.into_iter().find_map(|command| {
            let allowance = &mut self.0[command as usize];
            let due = at_once || allowance.since.is_none_or(|since| now.since(since) >= SECOND);
            let count = if due { std::mem::take(&mut allowance.left_out) } else { 0 };
            (count > 0).then_some((command, count))
        })
    }
}

/// Returns the text of the line that counts the lines left out.
pub(super) fn text(left_out: u64) -> String {
    let kib = BYTES_PER_SECOND / 1024;
    format!(
        "{left_out} lines of output were left out: more than {LINES_PER_SECOND} lines or \
         {kib} KiB a second"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    /// Offers lines of a start until one is left out; returns how many were admitted.
    fn admitted(limit: &mut OutputLimit, bytes: usize, now: Instant) -> usize {
        let mut count = 0;
        while limit.admits(Command::Start, bytes, now) {
            count += 1;
        }
        count
    }

    #[test]
    fn a_command_may_write_much_at_once_and_little_for_long() {
        let mut limit = OutputLimit::new();
        assert_eq!(admitted(&mut limit, 10, at(5000)), 100);
        assert_eq!(admitted(&mut limit, 10, at(5999)), 0);
        assert_eq!(admitted(&mut limit, 10, at(6000)), 20);
        assert_eq!(admitted(&mut limit, 10, at(6999)), 0);
        assert_eq!(admitted(&mut limit, 10, at(8000)), 40);
        assert_eq!(admitted(&mut limit, 10, at(u64::MAX)), 100);
    }

    #[test]
    fn the_bytes_of_long_lines_count() {
        let mut limit = OutputLimit::new();
        assert_eq!(admitted(&mut limit, 4000, at(0)), 4);
        assert!(!limit.admits(Command::Start, 1, at(999)), "a gap");
        assert_eq!(admitted(&mut limit, 4000, at(1000)), 2);
        assert!(!limit.admits(Command::Start, 20_000, at(u64::MAX)));
    }

    #[test]
    fn lines_that_were_left_out_are_counted_once_and_when_the_second_is_over() {
        let mut limit = OutputLimit::new();
        for number in 0..130 {
            assert_eq!(limit.admits(Command::Stop, 10, at(number)), number < 100);
        }
        assert_eq!(limit.left_out(at(999), false), None);
        assert_eq!(limit.left_out(at(1000), false), Some((Command::Stop, 30)));
        assert_eq!(limit.left_out(at(1000), false), None);
        assert!(!limit.admits(Command::Stop, 20_000, at(1000)));
        let left_out = limit.left_out(at(1000), true);
        assert_eq!(left_out, Some((Command::Stop, 1)));
    }

    #[test]
    fn each_command_has_a_limit_of_its_own() {
        let mut limit = OutputLimit::new();
        admitted(&mut limit, 10, at(0));
        assert!(limit.admits(Command::Check, 10, at(0)));
    }
}
