//! The time of a ticket that no process has. Pure.

use std::time::Duration;

use crate::core::Instant;

/// The header with it: the instants at which the ticket was written and at which it ends, in
/// nanoseconds of the host's clock, and the name of the boot.
pub(crate) const UNTIL: &str = "Putex-Until";

/// The time of a ticket that no process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TicketTime {
    pub(super) written: Instant,
    pub(super) until: Instant,
    /// Blank if it was not known.
    pub(super) boot: String,
}

impl TicketTime {
    /// Returns the value of the header.
    pub(crate) fn to_text(&self) -> String {
        let [written, until] = [self.written, self.until].map(|it| it.since_boot().as_nanos());
        format!("{written} {until} {}", self.boot)
    }

    /// Reads a value of [`TicketTime::to_text`]; `None` for another one.
    pub(crate) fn from_text(text: &str) -> Option<TicketTime> {
        let instant =
            |nanos: &str| Some(Instant::from_boot(Duration::from_nanos(nanos.parse().ok()?)));
        let mut parts = text.splitn(3, ' ');
        let (written, until) = (instant(parts.next()?)?, instant(parts.next()?)?);
        Some(TicketTime { written, until, boot: parts.next().unwrap_or_default().to_owned() })
    }

    /// Returns whether it is of an earlier boot for certain: by its name, if both are known, or
    /// because a clock never goes back. `now` is `None` for a process with another clock.
    pub(super) fn is_of_earlier_boot(&self, boot: &str, now: Option<Instant>) -> bool {
        let are_known = !boot.is_empty() && !self.boot.is_empty();
        are_known && self.boot != boot || now.is_some_and(|now| now < self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_boot(Duration::from_nanos(nanos))
    }

    fn time(boot: &str) -> TicketTime {
        TicketTime { written: at(100), until: at(500), boot: boot.to_owned() }
    }

    #[test]
    fn a_ticket_without_a_process_ends_with_the_boot_if_it_is_another_one_for_certain() {
        for (before, boot, now, ends) in [
            ("one", "one", Some(100), false),
            ("one", "one", None, false),
            ("one", "two", Some(200), true),
            ("one", "two", None, true),
            ("one", "", Some(100), false),
            ("one", "", Some(99), true),
            ("one", "one", Some(99), true),
            ("one", "", None, false),
            ("", "two", Some(100), false),
            ("", "two", Some(99), true),
            ("", "", Some(100), false),
        ] {
            let time = time(before);
            assert_eq!(TicketTime::from_text(&time.to_text()).as_ref(), Some(&time));
            assert_eq!(time.is_of_earlier_boot(boot, now.map(at)), ends, "{before} {boot} {now:?}");
        }
    }
}
