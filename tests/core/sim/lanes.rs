//! A run as text: faults above, one lane an agent with its state, and its service
//! below it.

use std::fmt::Write;

use super::clock::{MS, True};
use super::faults::Kind;
use super::scenario::Scenario;

const WIDTH: usize = 100;

/// How many of the last lines are shown in full.
const LINES: usize = 120;

pub struct Trace {
    lines: Vec<(True, Option<usize>, String)>,
    states: Vec<Vec<(True, &'static str)>>,
    services: Vec<Vec<(True, bool)>>,
    faults: Vec<(True, u64, Kind, usize)>,
    quiet_at: Option<True>,
    heads: Vec<String>,
}

impl Trace {
    pub fn new(sc: &Scenario) -> Trace {
        let head = |site: &super::scenario::Site| {
            let host = &sc.hosts[site.host];
            let timing = site.timing;
            let extras = [
                (site.check, "check"),
                (site.resort, "last resort"),
                (site.has_cgroup, "has_cgroup"),
                (site.device.is_some(), "watchdog device"),
                (site.device_use == putex::core::protocol::DeviceUse::Required, "required"),
                (site.plain, "putex 0.2.0"),
            ];
            let extras: Vec<_> = extras.iter().filter(|(has, _)| *has).collect();
            let extras: Vec<_> = extras.iter().map(|(_, name)| *name).collect();
            format!(
                "host {} token {} R {:?} F {} C {} clock {:+} ppm {}",
                site.host,
                site.token,
                timing.renewal(),
                timing.failures(),
                timing.confirmations(),
                host.off_ppm,
                extras.join(", ")
            )
        };
        Trace {
            lines: Vec::new(),
            states: vec![Vec::new(); sc.sites.len()],
            services: vec![Vec::new(); sc.sites.len()],
            faults: Vec::new(),
            quiet_at: None,
            heads: sc.sites.iter().map(head).collect(),
        }
    }

    pub fn say(&mut self, now: True, site: Option<usize>, text: String) {
        self.lines.push((now, site, text));
    }

    pub fn state(&mut self, now: True, site: usize, state: &'static str) {
        self.states[site].push((now, state));
        self.say(now, Some(site), format!("is {state}"));
    }

    pub fn service(&mut self, now: True, site: usize, up: bool) {
        self.services[site].push((now, up));
    }

    pub fn fault(&mut self, now: True, lasts: u64, kind: Kind, site: usize) {
        self.faults.push((now, lasts, kind, site));
        let lasts = lasts as f64 / 1e6;
        let text = format!("FAULT {} for {lasts:.1} ms", kind.name());
        self.say(now, Some(site), text);
    }

    pub fn quiet(&mut self, now: True) {
        self.quiet_at = Some(now);
        self.say(now, None, "nothing goes wrong any more".to_owned());
    }

    /// Draws the run up to `end`.
    pub fn draw(&self, end: True) -> String {
        let mut out = String::new();
        let end = end.max(MS);
        let column =
            |at: True| ((at.min(end) as u128 * WIDTH as u128) / (end as u128 + 1)) as usize;
        let per = end as f64 / 1e6 / WIDTH as f64;
        let _ = writeln!(out, "{:>10}one column is {per:.1} ms", "");
        for (at, lasts, kind, site) in &self.faults {
            let (from, to) = (column(*at), column(at + lasts));
            let bar = format!("{}{}", " ".repeat(from), "!".repeat(to - from + 1));
            let _ = writeln!(out, "{:>10}{bar:<WIDTH$} {} at {site}", "", kind.name());
        }
        if let Some(at) = self.quiet_at {
            let _ = writeln!(out, "{:>10}{}| quiet", "", " ".repeat(column(at)));
        }
        for (site, head) in self.heads.iter().enumerate() {
            let _ = writeln!(out, "agent {site}: {head}");
            let mut lane = vec!['-'; WIDTH];
            for (at, state) in &self.states[site] {
                lane[column(*at)..].fill(letter(state));
            }
            let _ = writeln!(out, "{:>10}{}", "", lane.iter().collect::<String>());
            let mut lane = vec![' '; WIDTH];
            for (at, up) in &self.services[site] {
                lane[column(*at)..].fill(if *up { '#' } else { ' ' });
            }
            let _ = writeln!(out, "{:>10}{}", "service ", lane.iter().collect::<String>());
        }
        let _ = writeln!(
            out,
            "L looking, s standby, t taking, c confirming, A active, x stopping, p paused, \
             z asleep, o starting, . dead, # service up"
        );
        out.push('\n');
        let skipped = self.lines.len().saturating_sub(LINES);
        if skipped > 0 {
            let _ = writeln!(out, "({skipped} lines before these)");
        }
        for (at, site, text) in &self.lines[skipped..] {
            let ms = *at as f64 / 1e6;
            let whom = site.map_or("world".to_owned(), |site| format!("agent {site}"));
            let _ = writeln!(out, "{ms:12.3} {whom:8} {text}");
        }
        out
    }
}

fn letter(state: &str) -> char {
    match state {
        "active" => 'A',
        "stopping" => 'x',
        "asleep" => 'z',
        "dead" => '.',
        "looking" => 'L',
        "starting" => 'o',
        _ => state.chars().next().unwrap_or('?'),
    }
}
