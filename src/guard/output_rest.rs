//! How long the guard does not read the output of the commands after it has read some. The guard
//! has priority on its processor, so a command that writes without end would take the processor
//! from the agent. With the rests, reading takes a quarter of the processor at the most.

use std::time::Duration;

use crate::core::Instant;

/// How many times longer the output rests than reading it took.
const TIMES: u32 = 3;

/// The shortest rest: to wake for a single line takes longer than to read it.
const MIN: Duration = Duration::from_millis(2);

/// The longest rest: the host may have been suspended while output was read.
const MAX: Duration = Duration::from_millis(100);

/// Until when the output of all commands rests.
#[derive(Debug, Default)]
pub(super) struct OutputRest {
    /// The end of the rest; `None` while the guard waits for output.
    pub(super) until: Option<Instant>,
}

impl OutputRest {
    /// Returns whether output may be read.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Begins the rest, if output was read between `began` and `now`.
    pub(super) fn begin(&mut self, was_some: bool, began: Instant, now: Instant) {
        let rest = (now.since(began) * TIMES).clamp(MIN, MAX);
        self.until = was_some.then(|| now.after(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    /// Each line woke the guard: `while :; do echo; done` took nine tenths of a processor.
    #[test]
    fn a_line_that_was_read_in_no_time_has_the_next_one_wait() {
        let mut rest = OutputRest::default();
        assert!(rest.is_over(at(10)));
        rest.begin(true, at(10), at(10));
        assert!(!rest.is_over(at(11)) && rest.is_over(at(12)));
        assert_eq!(rest.until, Some(at(12)), "the guard looks again then, whatever happens");
        rest.begin(false, at(12), at(12));
        assert_eq!(rest.until, None, "without output the guard sleeps");
    }

    #[test]
    fn a_flood_rests_for_three_times_as_long_as_a_part_of_it_was_read() {
        let mut rest = OutputRest::default();
        rest.begin(true, at(10), at(20));
        assert!(!rest.is_over(at(49)) && rest.is_over(at(50)));
    }

    /// The service would wait for room in its pipe for hours.
    #[test]
    fn a_host_that_slept_while_output_was_read_does_not_have_it_rest_for_long() {
        let mut rest = OutputRest::default();
        rest.begin(true, at(0), at(3_600_000));
        assert!(rest.is_over(at(3_600_100)));
    }
}
