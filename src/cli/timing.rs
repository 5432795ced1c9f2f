//! The output of `putex timing`: every term that follows from R, F, C and drift.

use std::time::Duration;

use crate::core::{ELECTION_T_MIN, Ms, Percent, SLACK, Timing};

fn row(term: &str, value: Duration, meaning: &str) -> String {
    format!("{term:<20} {:>9}  {meaning}\n", Ms(value).to_string())
}

/// Returns the report: every term with its value and its meaning.
pub fn report(timing: Timing) -> String {
    let (r, t, v) = (timing.renewal(), timing.lock_time(), timing.validity());
    let (f, c, e) = (timing.failures(), timing.confirmations(), Percent(timing.drift_ppm()));
    let (wait, confirm, slack) = (timing.takeover_wait(t), timing.confirmation(), Ms(SLACK));
    let best = wait + confirm;
    let budget = format!("C*R less drift and {slack} slack, from V until the service must be down");
    let mut text = [
        row("R, renewal interval", r, "the holder renews, the others read, this often"),
        row("T = F*R", t, &format!("F = {f} renewals missed")),
        row("validity V", v, &format!("T less {e}, from when the last renewal was sent")),
        row("takeover wait", wait, &format!("T and {e}, from when that renewal was first seen")),
        row("confirmation C*R", confirm, &format!("C = {c}, from the takeover to the start")),
        row("stop budget", timing.stop_budget(), &budget),
        row("health check, warned", r, "a check that takes longer is worth a warning"),
        row("health check, killed", v, "and is killed after this long; the service stops"),
        row("detection", wait, "from a dead host's last renewal to the takeover"),
        row("failover, best", best, "from a dead host's last renewal to the start"),
        row("failover, worst", best + r, "the same, when hints are lost; commands come on top"),
    ]
    .concat();
    if t < ELECTION_T_MIN {
        text.push_str(&format!(
            "\nnote: T is below {}: in a bucket with several replicas a leader election\n\
             (4 to 8 s) can cost the lock\n",
            Ms(ELECTION_T_MIN)
        ));
    }
    text
}
