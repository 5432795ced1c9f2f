//! The time of a ticket that no process has. Pure.

use std::time::Duration;

use crate::core::Instant;
use crate::core::tickets::RunsOut;

/// Returns whether a ticket of this lifetime is of an earlier boot for certain: by its name, if
/// both are known, or because a clock never goes back. `now` is `None` for a process with another
/// clock.
pub(super) fn is_of_earlier_boot(
    time: &RunsOut,
    lifetime: Duration,
    boot: &str,
    now: Option<Instant>,
) -> bool {
    let are_known = !boot.is_empty() && !time.clock.is_empty();
    // The ticket was written one lifetime before it runs out, which is rounded up.
    let was_written_by = |now: Instant| time.at <= now.after(lifetime).after(ROUNDED_BY);
    are_known && time.clock != boot || now.is_some_and(|now| !was_written_by(now))
}

/// How much too late a ticket may say that it runs out.
const ROUNDED_BY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn a_ticket_without_a_process_ends_with_the_boot_if_it_is_another_one_for_certain() {
        for (before, boot, now, ends) in [
            ("one", "one", Some(100), false),
            ("one", "one", None, false),
            ("one", "two", Some(200), true),
            ("one", "two", None, true),
            ("one", "", Some(99), false),
            ("one", "", Some(98), true),
            ("one", "one", Some(98), true),
            ("one", "", None, false),
            ("", "two", Some(99), false),
            ("", "two", Some(98), true),
            ("", "", Some(99), false),
        ] {
            let time = RunsOut { clock: before.to_owned(), at: at(500) };
            let found = is_of_earlier_boot(&time, Duration::from_millis(400), boot, now.map(at));
            assert_eq!(found, ends, "{before} {boot} {now:?}");
        }
    }
}
