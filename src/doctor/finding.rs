//! Findings: what was measured, how it is judged, and what to do. Pure.

use serde::Serialize;

use crate::core::text::display_as_json;
use crate::status::TimingStatus;

/// How a finding is judged. Only what is critical makes a cluster unfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The subject of the finding is fit.
    Ok,
    /// The subject could not be measured.
    Unknown,
    /// The subject works, and will cost the service one day.
    Warning,
    /// The subject does not work, or the promise of one active agent is in danger.
    Critical,
}

display_as_json! { Level }

/// How long requests took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Half of those that were answered took no longer.
    pub(super) p50_seconds: f64,
    /// 99 of 100 of them took no longer.
    pub(super) p99_seconds: f64,
    /// The longest of them.
    pub(super) max_seconds: f64,
    /// The number of requests without an answer within R.
    pub(super) unanswered: u32,
}

/// The judgement of one subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// The name of the subject, which stays the same in all versions.
    pub(super) name: &'static str,
    /// The key of the agents that it is about.
    pub(super) key: Option<String>,
    /// How it is judged.
    pub(super) level: Level,
    /// Whether it does not count, as the user wants it.
    pub(super) ignored: bool,
    /// How long it took, of requests.
    pub(super) figures: Option<Box<Figures>>,
    /// The finding, in a line.
    pub(super) text: String,
    /// The advice to the user, in a line; `None` if the subject is fit.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(name: &'static str, text: impl Into<String>) -> Finding {
        let (text, figures) = (text.into(), None);
        Finding { name, key: None, level: Level::Ok, ignored: false, figures, text, advice: None }
    }

    /// Returns a finding of this level, with what to do unless the subject is fit.
    pub(super) fn new(
        name: &'static str,
        level: Level,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let advice = Some(advice.into()).filter(|_| level > Level::Ok);
        Finding { level, advice, ..Finding::ok(name, text) }
    }

    /// Returns a finding about what could not be measured.
    pub(super) fn unknown(
        name: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding::new(name, Level::Unknown, text, advice)
    }

    /// Returns whether it is a warning or critical, and not ignored.
    pub(super) fn is_told(&self) -> bool {
        self.level >= Level::Warning && !self.ignored
    }
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The version of this object.
    pub(super) schema: u32,
    pub(super) bucket: String,
    /// The worst level of a warning or of what is critical, or ok.
    pub(super) level: Level,
    /// R, F and C by which it is judged.
    pub(super) timing: TimingUsed,
    /// The findings, those of the servers first.
    pub(super) findings: Vec<Finding>,
    /// Whether a warning makes it unfit.
    #[serde(skip)]
    pub(super) is_strict: bool,
}

/// R, F and C by which all is judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TimingUsed {
    /// R, F and C.
    #[serde(flatten)]
    pub(super) timing: TimingStatus,
    /// The bound of clock rates, in parts per million.
    pub(super) drift_ppm: u32,
}

impl Report {
    /// Returns the report with these findings. Findings of the ignored names do not count.
    pub(super) fn new(
        bucket: &str,
        timing: TimingUsed,
        mut findings: Vec<Finding>,
        ignored: &[&str],
        is_strict: bool,
    ) -> Report {
        for finding in &mut findings {
            finding.ignored = ignored.contains(&finding.name);
        }
        let told = findings.iter().filter(|finding| finding.is_told());
        let level = told.map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Report { schema: 1, bucket: bucket.to_owned(), level, timing, findings, is_strict }
    }
}
