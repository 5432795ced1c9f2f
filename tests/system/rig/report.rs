//! Measurements and violations of a scenario.

use std::fmt;
use std::time::Duration;

use crate::support::clock::{ms, now};

/// The outcome of one scenario, or of several runs of it.
#[derive(Debug)]
pub(crate) struct Report {
    name: String,
    figures: Vec<Figure>,
    overlap: Duration,
    violations: Vec<String>,
    /// Measurements above their limit, and below twice that limit.
    slow: Vec<String>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    name: String,
    /// The whole of which the values are also shown as a share.
    whole: Option<Duration>,
    values: Vec<Duration>,
}

/// Runs `tell` and returns what it reported; an error ends it and is a violation.
pub(crate) fn story(name: &str, tell: impl FnOnce(&mut Report) -> Result<(), String>) -> Report {
    let mut report = Report {
        name: name.to_owned(),
        figures: Vec::new(),
        overlap: Duration::ZERO,
        violations: Vec::new(),
        slow: Vec::new(),
        notes: Vec::new(),
    };
    let began = now();
    if let Err(why) = tell(&mut report) {
        report.violations.push(why);
    }
    report.measure("whole scenario", now() - began);
    report
}

impl Report {
    /// Records one value of a figure.
    pub(crate) fn measure(&mut self, name: &str, value: Duration) {
        self.add(name, None, &[value]);
    }

    /// As [`Report::measure`], shown as a share of `whole` too.
    pub(crate) fn measure_of(&mut self, name: &str, whole: Duration, value: Duration) {
        self.add(name, Some(whole), &[value]);
    }

    /// Records that something must hold.
    pub(crate) fn check(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(otherwise());
        }
    }

    /// Records that `value` must not be more than `most`.
    pub(crate) fn check_at_most(&mut self, name: &str, value: Duration, most: Duration) {
        self.check(value <= most, || late(name, value, most));
    }

    /// Records that something took not more than `most`, which is no matter of safety.
    pub(crate) fn check_fast(&mut self, name: &str, value: Duration, most: Duration) {
        self.check(value <= 2 * most, || late(name, value, most));
        self.slow.extend((most < value && value <= 2 * most).then(|| late(name, value, most)));
    }

    /// Records that `value` must not be less than `least`.
    pub(crate) fn check_at_least(&mut self, name: &str, value: Duration, least: Duration) {
        self.check(value >= least, || {
            format!("{name}: {:.1} ms is less than {:.1} ms", ms(value), ms(least))
        });
    }

    /// Records how long more than one service ran: never.
    pub(crate) fn check_overlap(&mut self, overlap: Duration) {
        self.overlap += overlap;
        self.check(overlap.is_zero(), || {
            format!("more than one service ran for {:.1} ms", ms(overlap))
        });
    }

    /// Records something to be read by a person.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds the outcome of another run of the same scenario.
    pub(crate) fn merge(&mut self, other: Report) {
        for figure in other.figures {
            self.add(&figure.name, figure.whole, &figure.values);
        }
        self.overlap += other.overlap;
        self.violations.extend(other.violations);
        self.slow.extend(other.slow);
        self.notes.extend(other.notes);
    }

    /// Returns whether nothing was found wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.slow.is_empty()
    }

    fn add(&mut self, name: &str, whole: Option<Duration>, values: &[Duration]) {
        let known = self.figures.iter_mut().find(|figure| figure.name == name);
        if let Some(figure) = known {
            figure.values.extend(values);
            return;
        }
        self.figures.push(Figure { name: name.to_owned(), whole, values: values.to_vec() });
    }
}

fn late(name: &str, value: Duration, most: Duration) -> String {
    format!("{name}: {:.1} ms is more than {:.1} ms", ms(value), ms(most))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for figure in &self.figures {
            writeln!(f, "  {figure}")?;
        }
        writeln!(f, "  overlap: {:.1} ms", ms(self.overlap))?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        for violation in self.violations.iter().chain(&self.slow) {
            writeln!(f, "  VIOLATION: {violation}")?;
        }
        let verdict = if self.is_clean() { "holds" } else { "VIOLATED" };
        write!(f, "  verdict: {verdict}")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return write!(f, "{}: n 0", self.name);
        };
        let (n, median) = (sorted.len(), sorted[sorted.len() / 2]);
        write!(
            f,
            "{}: n {n} min {:.1} median {:.1} max {:.1} ms",
            self.name,
            ms(*min),
            ms(median),
            ms(*max)
        )?;
        if let Some(whole) = self.whole {
            let share = |value: Duration| value.as_secs_f64() / whole.as_secs_f64();
            let (min, median, max) = (share(*min), share(median), share(*max));
            write!(f, " = {min:.3} {median:.3} {max:.3} of {:.0} ms", ms(whole))?;
        }
        Ok(())
    }
}
