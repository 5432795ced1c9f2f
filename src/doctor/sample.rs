//! Round trips: how long reads and writes of a bucket take.

use std::time::Duration;

use crate::core::{Instant, Ms, Revision, StoreErrorKind, Written};
use crate::store::{Bucket, Content, Expected, LASTS_MIN, StoreResult, name, open_existing};
use crate::sys;

/// The longest time for all reads, and for all writes.
const ALL_MAX: Duration = Duration::from_secs(10);

/// The longest time for one of them.
const ONE_MAX: Duration = Duration::from_secs(2);

/// So many requests in a row that have failed end the measurement.
const REFUSALS_MAX: u32 = 5;

/// How long requests took, in order, and how many had no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    /// The times of those that were answered, the shortest first.
    pub(super) times: Vec<Duration>,
    /// The number of those that were not.
    pub(super) unanswered: u32,
}

impl Samples {
    /// Returns the time that this share of the answered requests, in percent, did not exceed: the
    /// nearest rank. Zero if there are none.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied().unwrap_or_default()
    }

    /// Returns how many requests there were.
    pub(super) fn count(&self) -> u32 {
        self.times.len() as u32 + self.unanswered
    }
}

/// Measures `count` requests, for `ALL_MAX` at most. A request has R to be answered: a later answer
/// to an agent comes too late. `request` returns when it was sent.
///
/// # Errors
///
/// When the store refused all that were sent: why.
fn measure(
    bucket: &mut dyn Bucket,
    count: u32,
    renewal: Duration,
    mut request: impl FnMut(&mut dyn Bucket, Instant) -> StoreResult<Instant>,
) -> StoreResult<Samples> {
    let (mut samples, until) = (Samples::default(), sys::now().after(ALL_MAX));
    let mut refusals = 0;
    for _ in 0..count {
        let began = sys::now();
        if began >= until || refusals == REFUSALS_MAX {
            break;
        }
        let by = began.after(renewal.min(ONE_MAX)).min(until);
        match request(bucket, by) {
            Ok(sent) => {
                samples.times.push(sys::now().since(sent));
                refusals = 0;
            }
            Err(error) if error.kind == StoreErrorKind::Credentials => return Err(error),
            Err(error) => {
                samples.unanswered += 1;
                if sys::now() < by {
                    refusals += 1;
                    if refusals == REFUSALS_MAX && samples.times.is_empty() {
                        return Err(error);
                    }
                    let _ = open_existing(bucket, sys::now().after(ONE_MAX));
                }
            }
        }
    }
    samples.times.sort_unstable();
    Ok(samples)
}

/// Measures reads of the key that doctors write.
///
/// # Errors
///
/// When the store refused all that were sent: why.
pub(super) fn reads(
    bucket: &mut dyn Bucket,
    count: u32,
    renewal: Duration,
) -> StoreResult<Samples> {
    measure(bucket, count, renewal, |bucket, by| {
        let sent = sys::now();
        bucket.get(name::DOCTOR_KEY, by)?;
        Ok(sent)
    })
}

/// Measures writes of the key that doctors write, and ends that key.
///
/// # Errors
///
/// When the store refused all that were sent: why.
pub(super) fn writes(
    bucket: &mut dyn Bucket,
    count: u32,
    renewal: Duration,
) -> StoreResult<Samples> {
    let mut at = None;
    let content = Content::new([], b"putex doctor");
    let samples = measure(bucket, count, renewal, |bucket, by| {
        loop {
            let revision = match at.take() {
                Some(revision) => revision,
                None => {
                    let entry = bucket.get(name::DOCTOR_KEY, by)?;
                    entry.map_or(Revision(0), |entry| entry.revision)
                }
            };
            let (sent, expected) = (sys::now(), Expected::Key(revision));
            return match bucket.write(name::DOCTOR_KEY, expected, &content, None, by) {
                Written::Stored(stored) => {
                    at = Some(stored);
                    Ok(sent)
                }
                // Another doctor writes the key.
                Written::Moved(_) => continue,
                Written::Denied(error) => Err(error),
                Written::Unknown(why) => Err(StoreErrorKind::Unreachable.error(why)),
            };
        }
    });
    if let Some(at) = at {
        let (end, by) = (Content::tombstone(), sys::now().after(ONE_MAX));
        // Best effort: the next doctor goes on from what is there.
        let _ = bucket.write(name::DOCTOR_KEY, Expected::Key(at), &end, Some(LASTS_MIN), by);
    }
    samples
}

pub(super) fn describe(samples: &Samples) -> String {
    let (lost, count) = (samples.unanswered, samples.count());
    if samples.times.is_empty() {
        return format!("none of {count} answered in time");
    }
    let [p50, p99, max] = [50, 99, 100].map(|percent| fine(samples.percentile(percent)));
    let late = if lost == 0 { String::new() } else { format!(", {lost} not answered in time") };
    format!("p50 {p50}, p99 {p99}, max {max}, of {count}{late}")
}

/// Formats a time; one below 10 ms in hundredths of a millisecond.
fn fine(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..10_000 => format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10),
        _ => Ms(Duration::from_millis(time.as_millis() as u64)).to_string(),
    }
}
