//! Dates as text, for messages only: no decision depends on the wall clock.

use crate::sys;

const DAY_SECONDS: u64 = 86_400;

/// Writes seconds since 1970 as `2026-11-21 15:04:05 UTC`.
pub(super) fn utc(seconds: u64) -> String {
    let second = seconds % DAY_SECONDS;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", day(seconds))
}

/// Writes the day of seconds since 1970 as `2026-11-21`.
pub(super) fn day(seconds: u64) -> String {
    let (year, month, day) = sys::date((seconds / DAY_SECONDS).cast_signed());
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        assert!(utc(u64::MAX).ends_with(" UTC"));
    }
}
