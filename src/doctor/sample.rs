//! Round trips: how long reads and writes of a bucket take.

use std::time::Duration;

use super::progress::Progress;
use crate::core::{Instant, Ms, Revision, StoreErrorKind, Written};
use crate::store::{Bucket, Content, Expected, Stays, StoreError, StoreResult, name};
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

    /// Returns the longest time.
    pub(super) fn max(&self) -> Duration {
        self.times.last().copied().unwrap_or_default()
    }

    /// Returns how many requests there were.
    pub(super) fn count(&self) -> u32 {
        self.times.len() as u32 + self.unanswered
    }

    fn add(&mut self, began: Instant) {
        self.times.push(sys::now().since(began));
    }

    /// Adds a read that has failed, unless a right is lacking. Returns why if it has failed before
    /// its deadline `by`: then the bucket is opened again.
    fn add_failed(
        &mut self,
        bucket: &mut dyn Bucket,
        error: StoreError,
        by: Instant,
    ) -> Option<String> {
        self.unanswered += u32::from(error.kind != StoreErrorKind::Credentials);
        (sys::now() < by).then(|| {
            let _ = bucket.open_existing(sys::now().after(ONE_MAX));
            error.text
        })
    }

    /// Returns the samples in order, or why there are none.
    fn or_else(mut self, why: String) -> Result<Samples, String> {
        self.times.sort_unstable();
        if self.count() == 0 { Err(why) } else { Ok(self) }
    }
}

/// Returns how long one request is waited for: R, for then its answer comes too late.
fn patience_for(renewal: Duration) -> Duration {
    renewal.min(ONE_MAX)
}

/// Measures reads of the key that doctors write.
///
/// # Errors
///
/// When there was none: why.
pub(super) fn reads(
    bucket: &mut dyn Bucket,
    count: u32,
    renewal: Duration,
    progress: &Progress,
) -> Result<Samples, String> {
    let (mut samples, until) = (Samples::default(), sys::now().after(ALL_MAX));
    let (mut refusals, mut why) = (0, String::new());
    for number in 0..count {
        let began = sys::now();
        if began >= until || refusals == REFUSALS_MAX {
            break;
        }
        progress.tell(&format!("reads: {number} of {count}"));
        let by = began.after(patience_for(renewal)).min(until);
        match bucket.get(name::DOCTOR_KEY, by) {
            Ok(_) => {
                samples.add(began);
                refusals = 0;
            }
            Err(error) => {
                if let Some(text) = samples.add_failed(bucket, error, by) {
                    (refusals, why) = (refusals + 1, text);
                }
            }
        }
    }
    samples.or_else(why)
}

/// Measures writes of the key that doctors write, and ends that key.
///
/// # Errors
///
/// When there was none: why.
pub(super) fn writes(
    bucket: &mut dyn Bucket,
    count: u32,
    renewal: Duration,
    progress: &Progress,
) -> Result<Samples, String> {
    let (mut samples, until) = (Samples::default(), sys::now().after(ALL_MAX));
    let (mut at, mut refusals, mut why) = (None, 0, String::new());
    for number in 0..count {
        let began = sys::now();
        if began >= until || refusals == REFUSALS_MAX {
            break;
        }
        progress.tell(&format!("writes: {number} of {count}"));
        let by = began.after(patience_for(renewal)).min(until);
        let revision = at.map_or_else(|| revision_of(bucket, by), Ok);
        let revision = match revision {
            Ok(revision) => revision,
            Err(error) => {
                if let Some(text) = samples.add_failed(bucket, error, by) {
                    (refusals, why) = (refusals + 1, text);
                }
                continue;
            }
        };
        let (began, content) = (sys::now(), Content::new([], b"putex doctor"));
        let by = began.after(patience_for(renewal)).min(until);
        let expected = Expected::Key(revision);
        at = match bucket.compare_and_set(name::DOCTOR_KEY, expected, &content, by) {
            Written::Stored(stored) => {
                samples.add(began);
                refusals = 0;
                Some(stored)
            }
            Written::Denied(text) => {
                why = text;
                break;
            }
            // Another doctor measures too.
            Written::Moved(_) => {
                (refusals, why) = (refusals + 1, "another writes the key".to_owned());
                None
            }
            Written::Unknown(text) => {
                (refusals, why) = (refusals + 1, text);
                samples.unanswered += 1;
                None
            }
        };
    }
    end(bucket, at);
    samples.or_else(why)
}

/// Returns the revision of the key, 0 if it has no entry.
fn revision_of(bucket: &mut dyn Bucket, by: Instant) -> StoreResult<Revision> {
    let entry = bucket.get(name::DOCTOR_KEY, by)?;
    Ok(entry.map_or(Revision(0), |entry| entry.revision))
}

/// Has a tombstone follow the last write. Best effort: the next doctor goes on from what is there.
fn end(bucket: &mut dyn Bucket, at: Option<Revision>) {
    let by = sys::now().after(ONE_MAX);
    if let Some(at) = at {
        let content = Content::tombstone();
        let _ = bucket.write_for(Stays::Retired, name::DOCTOR_KEY, at, &content, by);
    }
}

/// Describes samples.
pub(super) fn describe(samples: &Samples) -> String {
    let (lost, count) = (samples.unanswered, samples.count());
    if samples.times.is_empty() {
        return format!("none of {count} answered in time");
    }
    let [p50, p99] = [50, 99].map(|percent| fine(samples.percentile(percent)));
    let late = if lost == 0 { String::new() } else { format!(", {lost} not answered in time") };
    format!("p50 {p50}, p99 {p99}, max {}, of {count}{late}", fine(samples.max()))
}

/// Formats a time; one below 10 ms in hundredths of a millisecond.
fn fine(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..10_000 => format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10),
        _ => Ms(Duration::from_millis(time.as_millis() as u64)).to_string(),
    }
}
