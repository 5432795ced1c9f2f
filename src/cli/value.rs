//! Parsers of the values of options.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::core::Priority;

/// Longest wait for a failback.
const FAILBACK_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The shortest R that is a number alone: the longest one has 60 s.
const BARE_MIN: Duration = Duration::from_millis(100);

const NO_TIME: &str = "is not a time; write 500ms, 3s or 1m, or a whole number of milliseconds";

const NO_RATE: &str = "is not a rate; write 1, 1% or 0.05%";

/// Parses `/dev/watchdog` and `/dev/watchdog:required`.
pub(super) fn device(text: &str) -> Result<(String, bool), &'static str> {
    let required = text.strip_suffix(":required");
    let path = required.unwrap_or(text);
    if !path.starts_with('/') {
        return Err("is not the path of a device; write /dev/watchdog or /dev/watchdog:required");
    }
    // As a part of the path, a misspelt `:required` would leave the host without a
    // watchdog that it requires.
    if path.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        return Err("has another word than required behind it; \
                    write /dev/watchdog or /dev/watchdog:required");
    }
    Ok((path.to_owned(), required.is_some()))
}

/// Parses the path of a file, which names the same file from every working directory.
pub(super) fn file(text: &str) -> Result<String, String> {
    let path = Path::new(text);
    if path.is_relative() {
        return Err(format!("is relative; write {}", crate::sys::absolute(path).display()));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match text.ends_with(&format!("/{name}")) && !name.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("names no file".to_owned()),
    }
}

/// Parses `500ms`, `3s`, `1.5m`, `2h`, `7d`. A part of a nanosecond is left out. A number alone has
/// the unit of `bare_ms` milliseconds. `not` is the fault of a text that is no time.
fn time(text: &str, bare_ms: u64, not: &'static str) -> Result<Duration, &'static str> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match &text[number.len()..] {
        "" => bare_ms,
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(not),
    };
    let (ones, parts) = number.split_once('.').unwrap_or((number, ""));
    if !is_number(&[ones, parts].concat()) {
        return Err(not);
    }
    let ones: u32 = whole(&format!("0{ones}"), not)?;
    let billionths: u64 = whole(&format!("{parts:0<9}")[..9], not)?;
    let parts = Duration::from_nanos(billionths * unit_ms / 1000);
    Ok(Duration::from_millis(u64::from(ones) * unit_ms) + parts)
}

/// Parses R, from one renewal to the next. A number alone is milliseconds; a small one is refused:
/// a user means seconds, as behind `-w`.
pub(super) fn renewal(text: &str) -> Result<Duration, String> {
    match time(text, 1, NO_TIME)? {
        time if is_number(text) && time < BARE_MIN && !time.is_zero() => {
            Err(format!("a number alone is milliseconds; for seconds write {text}s"))
        }
        // Records have whole milliseconds.
        time if time.subsec_nanos() % 1_000_000 > 0 => Err(NO_TIME.to_owned()),
        time => Ok(time),
    }
}

/// Parses how long something lasts, or is waited for. A number alone is seconds, as in flock(1) and
/// timeout(1).
pub(super) fn seconds(text: &str) -> Result<Duration, &'static str> {
    time(text, 1000, "is not a time; write 30s, 5m or 1h, or a number of seconds")
}

/// Returns a parser of how long something lasts. `bounds` is the fault of a time outside a range.
pub(super) fn time_within(
    range: RangeInclusive<Duration>,
    bounds: &'static str,
) -> impl FnOnce(&str) -> Result<Duration, &'static str> {
    move |text| Some(seconds(text)?).filter(|time| range.contains(time)).ok_or(bounds)
}

/// Parses for how long agents are waited for. A number alone is seconds.
pub(super) fn wait(text: &str) -> Result<Duration, &'static str> {
    time_within(Duration::from_secs(1)..=Duration::from_secs(3600), "write 1s to 60m")(text)
}

/// Parses the time in which failing health checks only warn; a longer one protects nothing. A
/// number alone is seconds.
pub(super) fn grace(text: &str) -> Result<Duration, &'static str> {
    time_within(Duration::ZERO..=Duration::from_secs(3600), "write 0 to 60m")(text)
}

/// Parses `1` to `15`, and `never`.
pub(super) fn priority(text: &str) -> Result<Priority, &'static str> {
    text.parse().map_err(|()| "write 1, which goes first, to 15, or never")
}

/// Parses `never`, and a time as [`grace`] does; `None` for `never`.
pub(super) fn failback(text: &str) -> Result<Option<Duration>, &'static str> {
    if text == "never" {
        return Ok(None);
    }
    let after = time(text, 1000, "is neither never nor a time; write never, 30s, 5m, 2h or 1d")?;
    Some(Some(after)).filter(|_| after <= FAILBACK_MAX).ok_or("write never, or 0 to 7d")
}

/// Parses the number of a descriptor that the parent process has opened.
pub(super) fn descriptor(text: &str) -> Result<i32, &'static str> {
    let number = count(text).ok().filter(|number| *number > 2);
    number.ok_or("is input, output or errors; write 3 or more")
}

/// Parses `1`, `1%`, `0.05%` as parts per million; more digits are refused.
pub(super) fn drift_ppm(text: &str) -> Result<u32, &'static str> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (ones, parts) = number.split_once('.').unwrap_or((number, "0"));
    if parts.len() > 4 {
        return Err("has more than four digits after the point");
    }
    if ones.is_empty() || parts.is_empty() {
        return Err(NO_RATE);
    }
    whole(&format!("{ones}{parts:0<4}"), NO_RATE)
}

/// Parses a whole number.
pub(super) fn count<T: FromStr>(text: &str) -> Result<T, &'static str> {
    whole(text, "write a whole number")
}

/// Returns a parser of a whole number in a range.
pub(super) fn within<T: FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl FnOnce(&str) -> Result<T, String> {
    let outside = format!("write {} to {}", range.start(), range.end());
    move |text| count(text).ok().filter(|number| range.contains(number)).ok_or(outside)
}

/// Parses a number of ASCII digits, without a sign; `not` is the fault if it is none.
fn whole<T: FromStr>(digits: &str, not: &'static str) -> Result<T, &'static str> {
    if !is_number(digits) {
        return Err(not);
    }
    digits.parse().map_err(|_| "is too large; write 4294967295 at most")
}

/// Returns whether a text is a number of ASCII digits.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
