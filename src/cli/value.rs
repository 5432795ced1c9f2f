//! Parsers of the values of options.

use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::core::tickets::SLOTS_MAX;
use crate::core::{Priority, SEATS_MAX};

/// Longest grace of health checks: one that may fail for longer protects nothing.
const GRACE_MAX: Duration = Duration::from_secs(3600);

/// Longest wait for a failback.
const FAILBACK_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The shortest R that is a number alone: the longest one has 60 s.
const BARE_MIN: Duration = Duration::from_millis(100);

const TOO_LARGE: &str = "is too large";

const NO_TIME: &str = "is not a time; write 500ms, 3s or 1m, or a whole number of milliseconds";

const NO_GRACE: &str = "is not a time with a unit; write 500ms, 30s, 5m or 1h";

const NO_FAILBACK: &str = "is neither never nor a time with a unit; write never, 30s, 5m, 2h or 1d";

const NO_SECONDS: &str = "is not a time; write 3s or 1m, or a number of seconds";

const NO_LONG_TIME: &str = "is not a time; write 30s, 5m or 1h, or a number of seconds";

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

/// Parses `3000`, `3000ms`, `3s`, `1m`, `1h`, `1d`.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match &text[digits.len()..] {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(NO_TIME),
    };
    let ms: u64 = whole(digits, NO_TIME)?;
    ms.checked_mul(unit_ms).map(Duration::from_millis).ok_or(TOO_LARGE)
}

/// Parses R, from one renewal to the next. A small number alone is refused: a user means seconds,
/// as behind `-w`.
pub(super) fn renewal(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match duration(text)? {
        time if is_number && time < BARE_MIN => {
            Err(format!("a number alone is milliseconds; for seconds write {text}s"))
        }
        time => Ok(time),
    }
}

/// Parses `5`, `0.5`, `500ms`, `3s`, `1.5m`. A number alone is seconds, as in flock(1) and
/// timeout(1). What is finer than a nanosecond is left out.
pub(super) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match &text[number.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        _ => return Err(NO_SECONDS),
    };
    let (ones, parts) = number.split_once('.').unwrap_or((number, ""));
    let digits = [ones, parts].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NO_SECONDS);
    }
    let ones: u32 = whole(&format!("0{ones}"), NO_SECONDS)?;
    let billionths: u64 = whole(&format!("{parts:0<9}")[..9], NO_SECONDS)?;
    let parts = Duration::from_nanos(billionths * unit_ms / 1000);
    Ok(Duration::from_millis(u64::from(ones) * unit_ms) + parts)
}

/// Parses the same, and `2h` and `7d`.
pub(super) fn long_time(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 24 * 3600),
        _ => return seconds(text).map_err(|_| NO_LONG_TIME),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| b"0123456789.".contains(&byte));
    let time = seconds(number).map_err(|_| NO_LONG_TIME).map(|time| time.checked_mul(unit));
    if is_number { time?.ok_or(TOO_LARGE) } else { Err(NO_LONG_TIME) }
}

/// Parses for how long agents are waited for.
pub(super) fn wait(text: &str) -> Result<Duration, &'static str> {
    let bounds = Duration::from_secs(1)..=Duration::from_secs(3600);
    Some(seconds(text)?).filter(|wait| bounds.contains(wait)).ok_or("write 1s to 60m")
}

/// Parses an exit status.
pub(super) fn status(text: &str) -> Result<u8, &'static str> {
    let status: u32 = within(text, 0..=u32::from(u8::MAX), "write 0 to 255")?;
    Ok(status as u8)
}

/// Parses the time in which failing health checks only warn.
pub(super) fn grace(text: &str) -> Result<Duration, &'static str> {
    Some(unambiguous(text)?).filter(|grace| *grace <= GRACE_MAX).ok_or("is longer than 60m")
}

/// Parses `0`, `500ms`, `30s`, `5m`. A number alone is refused: a user means seconds,
/// `duration` milliseconds.
fn unambiguous(text: &str) -> Result<Duration, &'static str> {
    let time = duration(text).map_err(|why| if why == NO_TIME { NO_GRACE } else { why })?;
    let has_unit = !text.ends_with(|last: char| last.is_ascii_digit());
    if time > Duration::ZERO && !has_unit {
        return Err(NO_GRACE);
    }
    Ok(time)
}

/// Parses a number of failing health checks.
pub(super) fn check_failures(text: &str) -> Result<u32, &'static str> {
    within(text, 1..=100, "write 1 to 100")
}

/// Parses `1` to `15`, and `never`.
pub(super) fn priority(text: &str) -> Result<Priority, &'static str> {
    text.parse().map_err(|()| "write 1, which goes first, to 15, or never")
}

/// Parses `never`, and `0`, `500ms`, `30s`, `5m`; `None` for `never`. A number alone is refused, as
/// by [`grace`].
pub(super) fn failback(text: &str) -> Result<Option<Duration>, &'static str> {
    if text == "never" {
        return Ok(None);
    }
    let after = unambiguous(text).map_err(|why| if why == NO_GRACE { NO_FAILBACK } else { why })?;
    Some(Some(after)).filter(|_| after <= FAILBACK_MAX).ok_or("write never, or 0 to 7d")
}

/// Parses a number of seats.
pub(super) fn seats(text: &str) -> Result<u32, &'static str> {
    within(text, 1..=SEATS_MAX, "write 1 to 32")
}

/// Parses a number of agents.
pub(super) fn agents(text: &str) -> Result<u32, &'static str> {
    within(text, 1..=1000, "write 1 to 1000")
}

/// Parses a number of slots.
pub(super) fn slots(text: &str) -> Result<u32, &'static str> {
    within(text, 1..=SLOTS_MAX, "write 1 to 1000")
}

/// Parses a number of replicas.
pub(super) fn replicas(text: &str) -> Result<u32, &'static str> {
    within(text, 1..=5, "write 1 to 5")
}

/// Parses a number of requests that are measured.
pub(super) fn samples(text: &str) -> Result<u32, &'static str> {
    within(text, 10..=10_000, "write 10 to 10000")
}

/// Parses the number of a descriptor that the parent process has opened.
pub(super) fn descriptor(text: &str) -> Result<i32, &'static str> {
    within(text, 3..=i32::MAX, "is input, output or errors; write 3 or more")
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

/// Parses a whole number in a range; `outside` is the fault if it is not in it.
fn within<T: FromStr + PartialOrd>(
    text: &str,
    range: RangeInclusive<T>,
    outside: &'static str,
) -> Result<T, &'static str> {
    count(text).ok().filter(|number| range.contains(number)).ok_or(outside)
}

/// Parses a number of ASCII digits, without a sign; `not` is the fault if it is none.
fn whole<T: FromStr>(digits: &str, not: &'static str) -> Result<T, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not);
    }
    digits.parse().map_err(|_| TOO_LARGE)
}
