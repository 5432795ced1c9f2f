//! j. The cost of an agent: processor time, memory, messages.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::host::plans;
use super::scene::Scene;
use super::setting::Setting;
use crate::support::clock::{ms, observe_for};
use crate::support::process::{proc_sum, processor_time};
use crate::support::proxy::Counts;

/// The cost of an agent over a window of observation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    strokes: f64,
    ticks: Duration,
    scheduled: Duration,
    resident_kib: u64,
    private_kib: u64,
    counts: Counts,
}

/// A reading of an agent's counters.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: Duration,
    scheduled: Duration,
    counts: Counts,
}

/// Runs `agents` agents of `binary` with commands that do nothing, and measures the
/// first, which is active, and the last.
pub(crate) fn measure(
    setting: &Setting,
    binary: &Path,
    agents: usize,
    window: Duration,
) -> Result<(Cost, Cost), String> {
    let mut plans = plans(binary, agents);
    for plan in &mut plans {
        plan.agent = binary.to_owned();
    }
    let mut scene = Scene::set(setting, plans)?;
    for host in &mut scene.hosts {
        host.service.do_nothing();
    }
    let timing = setting.timing;
    for number in 0..agents {
        scene.hosts[number].start()?;
        scene.wait_taking_part(number)?;
        observe_for(timing.takeover() * 2);
    }
    let read = |number: usize| reading(&scene, number);
    let (first, last) = (read(0)?, read(agents - 1)?);
    observe_for(window);
    let strokes = window.as_secs_f64() / timing.r.as_secs_f64();
    Ok((cost(&scene, 0, first, strokes)?, cost(&scene, agents - 1, last, strokes)?))
}

fn cost(scene: &Scene, number: usize, before: Reading, strokes: f64) -> Result<Cost, String> {
    let after = reading(scene, number)?;
    let pid = scene.hosts[number].pid().ok_or("the agent has ended")?;
    Ok(Cost {
        strokes,
        ticks: after.ticks - before.ticks,
        scheduled: after.scheduled - before.scheduled,
        resident_kib: proc_sum(pid, "status", &["VmRSS:"])?,
        private_kib: proc_sum(pid, "smaps_rollup", &["Private_Clean:", "Private_Dirty:"])?,
        counts: after.counts.since(before.counts),
    })
}

fn reading(scene: &Scene, number: usize) -> Result<Reading, String> {
    let host = &scene.hosts[number];
    let pid = host.pid().ok_or("the agent has ended")?;
    Ok(Reading {
        ticks: processor_time(pid)?,
        scheduled: scheduled(pid)?,
        counts: host.proxy.counts(),
    })
}

/// Time on a processor of all threads that live, in nanoseconds.
fn scheduled(pid: u32) -> Result<Duration, String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())?;
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Ok(Duration::from_nanos(nanos.sum()))
}

impl Cost {
    /// Returns what this costs as shares of `other`: time, private memory, messages.
    pub(crate) fn ratios(&self, other: &Cost) -> String {
        #[expect(clippy::cast_precision_loss, reason = "memory and messages are few")]
        let share = |one: u64, other: u64| one as f64 / other as f64;
        let time = self.scheduled.as_secs_f64() / other.scheduled.as_secs_f64();
        format!(
            "time {time:.3}, private memory {:.3}, messages {:.3}",
            share(self.private_kib, other.private_kib),
            share(self.messages(), other.messages())
        )
    }

    fn messages(&self) -> u64 {
        self.counts.writes + self.counts.reads + self.counts.pings + self.counts.others
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "messages are few")]
        let per_stroke = |count: u64| count as f64 / self.strokes;
        let counts = self.counts;
        write!(
            f,
            "per stroke: {:.3} ms scheduled, {:.3} ms by ticks; messages: {:.2} writes, \
             {:.2} reads, {:.2} pings, {:.2} others; memory: {} KiB resident, {} KiB private",
            ms(self.scheduled) / self.strokes,
            ms(self.ticks) / self.strokes,
            per_stroke(counts.writes),
            per_stroke(counts.reads),
            per_stroke(counts.pings),
            per_stroke(counts.others),
            self.resident_kib,
            self.private_kib
        )
    }
}
