//! The findings as text, as JSON, for Nagios and for Prometheus. Pure.

use super::finding::{Figure, Finding, Level, Measure, Report};
use crate::exit::{Exit, Refusal};

/// The columns of the level and the name in a text.
const LEVEL_WIDTH: usize = 8;
const NAME_WIDTH: usize = 9;

/// Returns a line for each finding, and below one that is not fit what to do.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    for Finding { name, key, level, ignored, text: found, advice, .. } in &report.findings {
        let key = key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
        let level = level.name();
        let key = if *ignored { format!("(ignored) {key}") } else { key };
        text.push_str(&format!("{level:<LEVEL_WIDTH$} {name:<NAME_WIDTH$} {key}{found}\n"));
        if let Some(advice) = advice {
            text.push_str(&format!("{:LEVEL_WIDTH$} -> {advice}\n", ""));
        }
    }
    let is_of = |it: &&Finding, level: Level| it.level == level && !it.ignored;
    let count = |level: Level| report.findings.iter().filter(|it| is_of(it, level)).count();
    let counts = [Level::Critical, Level::Warning, Level::Unknown].map(|level| {
        let (count, name) = (count(level), level.name());
        format!("{count} {name}")
    });
    let fit = if report.level == Level::Ok { "fit" } else { "not fit" };
    let ignored = report.findings.iter().filter(|it| it.level != Level::Ok && it.ignored).count();
    let ignored = if ignored == 0 { String::new() } else { format!(", {ignored} ignored") };
    text + &format!("{}: {fit}; {}{ignored}\n", report.bucket, counts.join(", "))
}

/// Returns an object of JSON.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn json(report: &Report) -> Result<String, Refusal> {
    serde_json::to_string(report)
        .map(|text| text + "\n")
        .map_err(|error| Refusal::new(Exit::System, format!("cannot print: {error}")))
}

/// Returns the line of a plugin of Nagios, and the exit status that belongs to it.
pub(super) fn nagios(report: &Report) -> (String, u8) {
    let unfit = report.findings.iter().filter(|finding| finding.is_unfit());
    let mut unfit: Vec<_> = unfit.collect();
    unfit.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let describe = |finding: &&Finding| {
        let key = finding.key.as_ref().map(|key| format!("{key} ")).unwrap_or_default();
        format!("{key}{}: {}", finding.name, finding.text)
    };
    let mut said: Vec<String> = unfit.iter().map(describe).collect();
    let is_unknown = |it: &&Finding| it.level == Level::Unknown && !it.ignored;
    let unknown = report.findings.iter().filter(is_unknown);
    let unknown: Vec<_> = unknown.map(|finding| finding.name).collect();
    if said.is_empty() {
        said.push(format!("bucket {} is fit", report.bucket));
    }
    if !unknown.is_empty() {
        said.push(format!("not known: {}", unknown.join(" ")));
    }
    let mut figures = Vec::new();
    for Finding { key, figures: measured, .. } in &report.findings {
        for Figure { measure: Measure { name, unit, .. }, value } in measured {
            let key = key.as_ref().map(|key| format!(" {key}")).unwrap_or_default();
            let unit = if *unit == "seconds" { "s" } else { "" };
            figures.push(format!("'{name}{key}'={}{unit}", number(*value)));
        }
    }
    let line = nagios_line(report.level, &said.join("; "));
    (format!("{line} | {}\n", figures.join(" ")), report.level.number())
}

/// Returns the line of a plugin of Nagios for what was not measured, and the exit status.
pub(super) fn nagios_refusal(refusal: &Refusal) -> (String, u8) {
    (nagios_line(Level::Unknown, &refusal.text) + "\n", Level::Unknown.number())
}

/// Returns the line without figures, which follow a bar.
fn nagios_line(level: Level, said: &str) -> String {
    format!("PUTEX {} - {}", level.name().to_uppercase(), said.replace('|', "/"))
}

/// Returns a text of Prometheus: the levels of the findings by the numbers of Nagios, and all
/// figures.
pub(super) fn prometheus(report: &Report) -> String {
    let Report { bucket, findings, .. } = report;
    let mut text = "# HELP putex_doctor_level How a finding of putex doctor is judged: 0 ok, \
                    1 warning, 2 critical, 3 unknown.\n\
                    # TYPE putex_doctor_level gauge\n"
        .to_owned();
    let labels = |finding: &Finding| {
        let key = finding.key.as_deref().unwrap_or_default();
        format!("bucket=\"{bucket}\",key=\"{key}\"")
    };
    for finding in findings {
        let (labels, name, level) = (labels(finding), finding.name, finding.level.number());
        text.push_str(&format!("putex_doctor_level{{{labels},finding=\"{name}\"}} {level}\n"));
    }
    let mut done: Vec<&Measure> = Vec::new();
    for Figure { measure, .. } in findings.iter().flat_map(|finding| &finding.figures) {
        if done.contains(measure) {
            continue;
        }
        done.push(measure);
        let unit = if measure.unit.is_empty() { "" } else { "_" };
        let name = format!("putex_doctor_{}{unit}{}", measure.name, measure.unit);
        text.push_str(&format!("# HELP {name} {}.\n# TYPE {name} gauge\n", measure.help));
        for finding in findings {
            for Figure { value, .. } in finding.figures.iter().filter(|it| it.measure == *measure) {
                text.push_str(&format!("{name}{{{}}} {}\n", labels(finding), number(*value)));
            }
        }
    }
    text
}

/// Formats a figure: times in whole microseconds.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
