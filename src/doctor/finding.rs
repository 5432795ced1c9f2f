//! Findings: what was measured, how it is judged, and what to do. Pure.

use serde::{Serialize, Serializer};

/// How a finding is judged. Only what is critical makes a cluster unfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It is fit.
    Ok,
    /// It could not be measured.
    Unknown,
    /// It works, and will cost the service one day.
    Warning,
    /// It does not work, or the promise of one active agent is in danger.
    Critical,
}

impl Level {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Unknown => "unknown",
            Level::Warning => "warning",
            Level::Critical => "critical",
        }
    }

    /// Returns the exit status of a plugin of Nagios for it.
    pub(super) fn status(self) -> u8 {
        match self {
            Level::Ok => 0,
            Level::Warning => 1,
            Level::Critical => 2,
            Level::Unknown => 3,
        }
    }
}

/// What is measured: the name of a figure, and its unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measure {
    /// Its name.
    pub(super) name: &'static str,
    /// `seconds` or `ppm`; blank for a count.
    pub(super) unit: &'static str,
}

/// Makes a list of all measures, and a constant of each.
macro_rules! measures {
    ($($constant:ident $name:literal $unit:literal $meaning:literal;)*) => {
        $(#[doc = $meaning]
        pub(super) const $constant: Measure = Measure { name: $name, unit: $unit };)*

        /// All measures, in the order of the findings.
        #[cfg(test)]
        pub(super) const MEASURES: &[Measure] = &[$($constant),*];
    };
}

measures! {
    SERVERS "servers" "" "Servers that were met";
    REPLICAS "replicas" "" "Copies of the bucket";
    REPLICAS_LATE "replicas_late" "" "Copies of the bucket that lack entries or are out of reach";
    LOCK_TIME "lock_time" "seconds" "T, the time for which a renewal keeps the lock";
    SYNC_INTERVAL "sync_interval" "seconds"
        "How often a server has its files written to disk; 0 for before each answer";
    READ_P50 "read_p50" "seconds" "Half of the reads took no longer";
    READ_P99 "read_p99" "seconds" "99 of 100 reads took no longer";
    READ_MAX "read_max" "seconds" "The longest read";
    WRITE_P50 "write_p50" "seconds" "Half of the writes took no longer";
    WRITE_P99 "write_p99" "seconds" "99 of 100 writes took no longer";
    WRITE_MAX "write_max" "seconds" "The longest write";
    UNANSWERED "unanswered" "" "Requests without an answer within R";
    AGENTS "agents" "" "Agents that answer";
    CANDIDATES "candidates" "" "Agents that would take the lock over";
    TIMINGS "timings" "" "Different settings of R, F and C among agents and holders";
    TWINS "twin_tokens" "" "Tokens that several agents have";
    GUARDS_DOWN "guards_down" "" "Agents whose guard does not answer";
    STARTS_FAILING "starts_failing" "" "Agents whose start command fails";
    STOPS_OVERDUE "stops_overdue" "" "Agents whose service had to be down and may still run";
    PAUSE "pause" "seconds" "For how much longer a pause stands";
    CLOCK "clock_correction" "ppm" "By how much the kernel corrects the rate of its clock";
}

/// A measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    /// What was measured.
    #[serde(flatten)]
    pub(super) measure: &'static Measure,
    /// The value, in the unit of the measure.
    pub(super) value: f64,
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut object = serializer.serialize_struct("Measure", 2)?;
        object.serialize_field("name", self.name)?;
        object.serialize_field("unit", self.unit)?;
        object.end()
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// What was looked at: a name that stays.
    pub(super) name: &'static str,
    /// The key of the agents that it is about.
    pub(super) key: Option<String>,
    /// How it is judged.
    pub(super) level: Level,
    /// Whether it does not count, as the user wants it.
    pub(super) ignored: bool,
    /// What was measured.
    pub(super) figures: Vec<Figure>,
    /// What was found, in a line.
    pub(super) text: String,
    /// What to do, in a line, unless it is fit.
    pub(super) advice: Option<String>,
}

impl Finding {
    /// Returns a finding that is fit.
    pub(super) fn ok(name: &'static str, text: impl Into<String>) -> Finding {
        let (text, figures) = (text.into(), Vec::new());
        Finding { name, key: None, level: Level::Ok, ignored: false, figures, text, advice: None }
    }

    /// Returns a finding of this level, with what to do.
    pub(super) fn bad(
        name: &'static str,
        level: Level,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { level, advice: Some(advice.into()), ..Finding::ok(name, text) }
    }

    /// Returns a finding about what could not be measured.
    pub(super) fn unknown(
        name: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding::bad(name, Level::Unknown, text, advice)
    }

    /// Returns whether it is a warning or critical, and not ignored.
    pub(super) fn is_told(&self) -> bool {
        self.level >= Level::Warning && !self.ignored
    }

    /// Returns the finding with a figure.
    #[must_use]
    pub(super) fn with(mut self, measure: &'static Measure, value: impl Into<f64>) -> Finding {
        self.figures.push(Figure { measure, value: value.into() });
        self
    }

    /// Returns the finding about a key of agents.
    #[must_use]
    pub(super) fn of_key(self, key: &str) -> Finding {
        Finding { key: Some(key.to_owned()), ..self }
    }
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The version of this object.
    pub(super) schema: u32,
    /// The name of the bucket.
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
    /// R.
    pub(super) renewal_seconds: f64,
    /// F.
    pub(super) failures: u32,
    /// C.
    pub(super) confirmations: u32,
    /// The bound of clock rates, in parts per million.
    pub(super) drift_ppm: u32,
    /// Where R, F and C are from.
    pub(super) from: TimingOrigin,
}

/// Where R, F and C are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TimingOrigin {
    /// From the options or the configuration file.
    Settings,
    /// From the agents: those with the smallest R.
    Agents,
    /// Nobody says them: they are the defaults.
    Defaults,
}

impl Report {
    /// Returns the report with these findings. Those of the ignored names do not count.
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
