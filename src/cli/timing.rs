//! The output of `putex timing`: every term that follows from R, F, C and drift.

use std::fmt::Write as _;
use std::time::Duration;

use crate::core::time::Ms;
use crate::core::timing::{ELECTION_T_MIN, Percent, SLACK, Timing};

/// Width of the time line, in columns.
const LINE_COLUMNS: u128 = 60;

/// Returns the report.
#[must_use]
pub fn report(timing: Timing) -> String {
    let mut text = String::new();
    for (term, value, meaning) in rows(timing) {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{term:<20} {:>9}  {meaning}", Ms(value).to_string());
    }
    text.push_str(&time_line(timing));
    if timing.lock_time() < ELECTION_T_MIN {
        let _ = writeln!(
            text,
            "\nnote: T is below {}: in a bucket with several replicas a leader election\n\
             (4 to 8 s) can cost the lock",
            Ms(ELECTION_T_MIN)
        );
    }
    text
}

/// Returns every term with its value and its meaning.
fn rows(timing: Timing) -> [(&'static str, Duration, String); 11] {
    let (r, t, v) = (timing.renewal(), timing.lock_time(), timing.validity());
    let (f, c, e) = (timing.failures(), timing.confirmations(), Percent(timing.drift_ppm()));
    let (wait, confirm) = (timing.takeover_wait(t), timing.confirmation());
    let best = wait + confirm;
    let slack = Ms(SLACK);
    [
        ("R, renewal interval", r, "the holder renews, the others read, this often".to_owned()),
        ("T = F*R", t, format!("F = {f} renewals missed")),
        ("validity V", v, format!("T less {e}, from when the last renewal was sent")),
        ("takeover wait", wait, format!("T and {e}, from when that renewal was first seen")),
        ("confirmation C*R", confirm, format!("C = {c}, from the takeover to the start")),
        (
            "stop budget",
            timing.stop_budget(),
            format!("C*R less drift and {slack} slack, from V until the service must be down"),
        ),
        ("health check, warned", r, "a check that takes longer is worth a warning".to_owned()),
        ("health check, killed", v, "and is killed after this long; the service stops".to_owned()),
        ("detection", wait, "from a dead host's last renewal to the takeover".to_owned()),
        ("failover, best", best, "from a dead host's last renewal to the start".to_owned()),
        (
            "failover, worst",
            best + r,
            "the same, when hints are lost; commands come on top".to_owned(),
        ),
    ]
}

/// Draws, to scale, the last renewal of a dead holder and the acts of a challenger after
/// it.
fn time_line(timing: Timing) -> String {
    let total = timing.takeover_wait(timing.lock_time()) + timing.confirmation();
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
    let (v, take) = (timing.validity(), timing.takeover_wait(timing.lock_time()));
    let (dead, zero) = (v + timing.stop_budget(), Duration::ZERO);
    let holder = paint(&[(zero, 'R'), (v, 'V'), (dead, 'X')], &[(zero, v, '='), (v, dead, '.')]);
    let other =
        paint(&[(zero, 'S'), (take, 'T'), (total, 'G')], &[(zero, take, '-'), (take, total, '+')]);
    format!(
        "\nholder     {holder}\nchallenger {other}\n\
         R last renewal sent, V lock runs out, X service down at the latest\n\
         S renewal first seen, T takeover, G start\n"
    )
}
