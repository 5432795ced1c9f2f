//! The status of a bucket as a table for people. Pure.

use super::model::{Bounds, Holder, HolderState, KeyState, KeyStatus, Kind, Status};

/// Blanks between two columns.
const GAP: usize = 2;

/// Returns the status, cut to this width if there is one.
pub(super) fn table(status: &Status, width: Option<usize>) -> String {
    if status.keys.is_empty() {
        let why = match status.epoch {
            Some(_) => "no such locks or leases",
            None => "does not exist yet",
        };
        return format!("bucket {}: {why}\n", status.bucket);
    }
    let mut lines = Vec::new();
    for key in &status.keys {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(headline(&status.bucket, key));
        lines.extend(columns(&rows(key)));
    }
    let cut = |line: String| match width {
        Some(width) => line.chars().take(width).collect(),
        None => line,
    };
    lines.into_iter().map(|line| cut(line).trim_end().to_owned() + "\n").collect()
}

/// Returns the line about a name.
fn headline(bucket: &str, KeyStatus { key, kind, state, holders, waiters }: &KeyStatus) -> String {
    let held = match (kind, state, &holders[..]) {
        (Kind::Lease, KeyState::Free, _) => "has run out".to_owned(),
        (_, KeyState::Free, _) => "free".to_owned(),
        (_, KeyState::Held, [Holder { state: HolderState::Unreadable, .. }]) => {
            "cannot be read".to_owned()
        }
        (_, KeyState::Held, [holder]) => format!("held by {}", holder.token),
        (_, KeyState::Held, several) => format!("held by {}", several.len()),
    };
    let timing = holders.iter().find_map(|holder| holder.timing).map(|timing| {
        let renewal = brief(timing.renewal_seconds);
        format!("    R {renewal} F {} C {}", timing.failures, timing.confirmations)
    });
    let waiting = match waiters.len() {
        0 => String::new(),
        count => format!(", {count} waiting"),
    };
    let timing = timing.unwrap_or_default();
    format!("{bucket}/{key}  {}: {held}{waiting}{timing}", kind.name())
}

/// Returns the rows of a name, the first of them with the names of the columns.
fn rows(status: &KeyStatus) -> Vec<Vec<String>> {
    if status.holders.is_empty() && status.waiters.is_empty() {
        return Vec::new();
    }
    let has_seats = status.holders.iter().any(|holder| holder.seat.is_some());
    let has_slots = status.holders.iter().any(|holder| holder.slot.is_some());
    let first = match status.kind {
        Kind::Agent if has_seats => vec!["SEAT", "PRIO"],
        Kind::Agent => vec!["PRIO"],
        Kind::Lock if has_slots => vec!["PLACE", "MODE", "SLOT"],
        Kind::Lock => vec!["PLACE", "MODE"],
        Kind::Lease => Vec::new(),
    };
    let names = first.into_iter().chain(["TOKEN", "STATE", "TERM", "WRITTEN", "WHY"]);
    let mut rows = vec![names.map(str::to_owned).collect()];
    for holder in &status.holders {
        let number = |number: Option<u32>| number.map_or("-".to_owned(), |it| it.to_string());
        let mut row = match status.kind {
            Kind::Agent if has_seats => vec![number(holder.seat), or_dash(&holder.priority)],
            Kind::Agent => vec![or_dash(&holder.priority)],
            Kind::Lock if has_slots => vec![dash(), mode(holder.mode), number(holder.slot)],
            Kind::Lock => vec![dash(), mode(holder.mode)],
            Kind::Lease => Vec::new(),
        };
        row.push(holder.token.clone());
        row.push(holder.state.name().to_owned());
        row.push(holder.term.map_or(dash(), |term| term.to_string()));
        row.push(ago(holder.renewed_age_seconds));
        row.push(why(status.kind, holder));
        rows.push(row);
    }
    for waiter in &status.waiters {
        let mut row = vec![waiter.ahead.to_string(), waiter.mode.to_owned()];
        row.extend(has_slots.then(dash));
        row.extend([waiter.token.clone(), "waiting".to_owned(), waiter.term.to_string()]);
        row.push(ago(waiter.renewed_age_seconds));
        rows.push(row);
    }
    rows
}

fn dash() -> String {
    "-".to_owned()
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(dash)
}

fn mode(mode: Option<&str>) -> String {
    mode.unwrap_or("-").to_owned()
}

fn ago(seconds: Option<f64>) -> String {
    seconds.map_or_else(dash, |seconds| format!("{} ago", brief(seconds)))
}

/// Returns what else is known of a holder.
fn why(kind: Kind, holder: &Holder) -> String {
    let mut texts = Vec::new();
    if let Some(host) = holder.host.as_ref().filter(|host| **host != holder.token) {
        texts.push(format!("on host {host}"));
    }
    match (kind, holder.state, holder.expires_in_seconds) {
        (Kind::Agent, HolderState::Overdue, _) => {
            texts.push("not renewed: others may take it over".to_owned());
        }
        (Kind::Agent, _, Some(Bounds { min, .. })) => {
            texts.push(format!("unless renewed, taken over in {}", brief(min)));
        }
        (_, HolderState::Overdue, _) => texts.push("others may have it".to_owned()),
        (_, _, Some(Bounds { min, .. })) => texts.push(format!("runs out in {}", brief(min))),
        (_, _, None) => {}
    }
    texts.extend(holder.remark.clone());
    texts.join("; ")
}

/// Returns a number of seconds as a person reads it: two units at the most.
pub(super) fn brief(seconds: f64) -> String {
    if seconds < 60.0 {
        let text = format!("{seconds:.1}");
        return format!("{}s", text.strip_suffix(".0").unwrap_or(&text));
    }
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    let shown = |units: [(u64, &str); 2]| {
        let units = units.into_iter().filter(|(count, _)| *count > 0);
        units.map(|(count, unit)| format!("{count}{unit}")).collect::<String>()
    };
    match (days, hours) {
        (1.., _) => shown([(days, "d"), (hours, "h")]),
        (0, 1..) => shown([(hours, "h"), (minutes, "m")]),
        (0, 0) => shown([(minutes, "m"), (whole % 60, "s")]),
    }
}

/// Returns rows with each column as wide as its widest value.
fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let blanks = width + GAP - cell.chars().count().min(*width);
            format!("{cell}{}", " ".repeat(blanks))
        });
        cells.collect::<String>()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_the_most() {
        for (seconds, text) in [
            (0.0, "0s"),
            (0.04, "0s"),
            (1.25, "1.2s"),
            (59.9, "59.9s"),
            (60.0, "1m"),
            (61.9, "1m1s"),
            (3600.0, "1h"),
            (3_660.0, "1h1m"),
            (273_600.0, "3d4h"),
        ] {
            assert_eq!(brief(seconds), text, "{seconds}");
        }
    }
}
