//! Parsers of the values of options.

use std::time::Duration;

/// Parses `/dev/watchdog` and `/dev/watchdog:required`.
pub(super) fn device(text: &str) -> Result<(String, bool), &'static str> {
    let (path, required) = match text.strip_suffix(":required") {
        Some(path) => (path, true),
        None => (text, false),
    };
    if !path.starts_with('/') {
        return Err("is no path of a device; write /dev/watchdog or /dev/watchdog:required");
    }
    // As a part of the path, a misspelt `:required` would leave the host without a
    // watchdog that it requires.
    if path.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        return Err("has another word than required behind it; \
                    write /dev/watchdog or /dev/watchdog:required");
    }
    Ok((path.to_owned(), required))
}

/// Parses `3000`, `3000ms`, `3s`, `1m`.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match &text[digits.len()..] {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(NO_TIME),
    };
    let number = part(digits, NO_TIME)?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or(TOO_LARGE)
}

/// Parses `0`, `500ms`, `30s`, `5m`. A number alone is refused: a user means seconds,
/// `duration` milliseconds.
pub(super) fn grace(text: &str) -> Result<Duration, &'static str> {
    let grace = duration(text).map_err(|why| if why == NO_TIME { NO_GRACE } else { why })?;
    if grace > Duration::ZERO && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NO_GRACE);
    }
    match grace <= GRACE_MAX {
        true => Ok(grace),
        false => Err("is longer than 60m"),
    }
}

pub(super) fn check_failures(text: &str) -> Result<u32, &'static str> {
    match count(text)? {
        failures @ 1..=CHECK_FAILURES_MAX => Ok(failures),
        _ => Err("write 1 to 100"),
    }
}

pub(super) fn count(text: &str) -> Result<u32, &'static str> {
    u32::try_from(whole(text)?).map_err(|_| TOO_LARGE)
}

pub(super) fn replicas(text: &str) -> Result<u32, &'static str> {
    match count(text)? {
        copies @ 1..=5 => Ok(copies),
        _ => Err("a bucket has 1 to 5 replicas"),
    }
}

pub(super) fn descriptor(text: &str) -> Result<i32, &'static str> {
    match i32::try_from(count(text)?) {
        Ok(number @ 3..) => Ok(number),
        Ok(_) => Err("is input, output or errors; write 3 or more"),
        Err(_) => Err(TOO_LARGE),
    }
}

/// A health check that may fail for longer than this protects nothing.
const GRACE_MAX: Duration = Duration::from_secs(3600);

const CHECK_FAILURES_MAX: u32 = 100;

const TOO_LARGE: &str = "is too large";

const NO_TIME: &str = "is no time; write 500ms, 3s or 1m, or a whole number of milliseconds";

const NO_GRACE: &str = "is no time with a unit; write 500ms, 30s or 5m";

const NO_RATE: &str = "is no rate; write 1, 1% or 0.05%";

/// Parses a whole number of ASCII digits, without a sign.
fn whole(digits: &str) -> Result<u64, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is no whole number of 0 or more");
    }
    digits.parse().map_err(|_| TOO_LARGE)
}

/// Parses a whole number that is a part of a value. `not` is the fault if it is no number.
fn part(digits: &str, not: &'static str) -> Result<u64, &'static str> {
    whole(digits).map_err(|why| if why == TOO_LARGE { why } else { not })
}

/// Parses `1`, `1%`, `0.05%` as parts per million; more digits are refused.
pub(super) fn drift_ppm(text: &str) -> Result<u32, &'static str> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (ones, parts) = number.split_once('.').unwrap_or((number, "0"));
    if parts.len() > 4 {
        return Err("has more than four digits after the point");
    }
    let ppm = part(parts, NO_RATE)? * 10u64.pow(4 - u32::try_from(parts.len()).unwrap_or(4));
    let ppm = part(ones, NO_RATE)?.checked_mul(10_000).and_then(|ones| ones.checked_add(ppm));
    ppm.and_then(|ppm| u32::try_from(ppm).ok()).ok_or(TOO_LARGE)
}
