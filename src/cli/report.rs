//! What `putex timing` prints: every term that follows from R, F, C and drift.

use std::fmt::Write as _;
use std::time::Duration;

use crate::core::timing::{ELECTION_T_MIN, Ms, Percent, SLACK, Timing};

/// Columns of the time line.
const LINE_COLUMNS: u128 = 60;

/// Returns the report.
#[must_use]
pub fn report(timing: Timing) -> String {
    let (r, t) = (timing.renewal(), timing.lock());
    let (f, c, e) = (
        timing.failures(),
        timing.confirmations(),
        Percent(timing.drift_ppm()),
    );
    let (wait, confirm) = (timing.patience(t), timing.confirmation());
    let best = wait + confirm;
    let rows = [
        (
            "R, renewal interval",
            Ms(r),
            "the holder renews, others read, this often".to_owned(),
        ),
        ("T = F*R", Ms(t), format!("F = {f} renewals missed")),
        (
            "validity V",
            Ms(timing.validity()),
            format!("T less {e}: the holder may act, from when its last renewal was sent"),
        ),
        (
            "takeover wait",
            Ms(wait),
            format!(
                "T and {e}: a revision must stand still this long, from when it was first seen"
            ),
        ),
        (
            "confirmation C*R",
            Ms(confirm),
            format!("C = {c}: from the takeover to the start"),
        ),
        (
            "stop budget",
            Ms(timing.stop_budget()),
            format!(
                "C*R less drift and {} slack: from V until the service must be down",
                Ms(SLACK)
            ),
        ),
        (
            "health check",
            Ms(r),
            format!(
                "longer is warned of; killed at V, {} after the renewal",
                Ms(timing.validity())
            ),
        ),
        (
            "clean stop",
            Ms(Duration::ZERO),
            "released after stop: the next agent starts at once".to_owned(),
        ),
        (
            "detection",
            Ms(wait),
            "a dead host's last renewal, to the takeover".to_owned(),
        ),
        (
            "failover, best",
            Ms(best),
            "a dead host's last renewal, to the start".to_owned(),
        ),
        (
            "failover, worst",
            Ms(best + r),
            "the same when hints are lost, so that a renewal is seen up to R late".to_owned(),
        ),
        (
            "out of service, worst",
            Ms(best + r),
            "a host dies just after a renewal, hints are lost; commands come on top".to_owned(),
        ),
    ];
    let mut text = String::new();
    for (term, value, meaning) in rows {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{term:<22} {:>9}  {meaning}", value.to_string());
    }
    text.push_str(&time_line(timing));
    if t < ELECTION_T_MIN {
        let _ = writeln!(
            text,
            "\nnote: T is below {}: in a bucket with several replicas a leader election (4 to 8 s) can cost the lock",
            Ms(ELECTION_T_MIN)
        );
    }
    text
}

/// The last renewal of a dead holder, and what others do after it, to scale.
fn time_line(timing: Timing) -> String {
    let total = timing.patience(timing.lock()) + timing.confirmation();
    let column = |at: Duration| {
        usize::try_from(at.as_nanos() * LINE_COLUMNS / total.as_nanos().max(1)).unwrap_or(0)
    };
    let width = column(total);
    let paint = |marks: &[(Duration, char)], fill: &[(Duration, Duration, char)]| {
        let mut line = vec![' '; width + 1];
        for (from, to, ink) in fill {
            line[column(*from)..=column(*to)].fill(*ink);
        }
        for (at, mark) in marks {
            line[column(*at)] = *mark;
        }
        line.into_iter().collect::<String>().trim_end().to_owned()
    };
    let (v, take) = (timing.validity(), timing.patience(timing.lock()));
    let (dead, zero) = (v + timing.stop_budget(), Duration::ZERO);
    let holder = paint(
        &[(zero, 'R'), (v, 'V'), (dead, 'X')],
        &[(zero, v, '='), (v, dead, '.')],
    );
    let other = paint(
        &[(zero, 'S'), (take, 'T'), (total, 'G')],
        &[(zero, take, '-'), (take, total, '+')],
    );
    format!(
        "\nholder     {holder}\nchallenger {other}\n\
         R last renewal sent, V lock runs out, X service down at the latest\n\
         S renewal first seen, T takeover, G start\n"
    )
}
