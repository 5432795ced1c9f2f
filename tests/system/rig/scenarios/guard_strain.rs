//! 3h, 3i, 3j: a log that nobody reads, a machine with no time left, threads that panic.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::rig::host::{Host, plans};
use crate::rig::report::{Report, story};
use crate::rig::scenarios::guard::{check_takeover, kill_agent};
use crate::rig::scene::Scene;
use crate::rig::service::CHATTER_BYTES;
use crate::rig::setting::Setting;
use crate::support::clock::{ms, now, observe_for, wait_until};

/// The threads that every agent always has, the main one first.
pub(crate) const THREADS: [&str; 3] = ["putex", "putex-store", "putex-log"];

/// Many more lines a check than the queue of the log holds.
const CHATTER: usize = 3000;

/// The size of the pipe to a reader that does not read, in bytes.
const PIPE_BYTES: usize = 4096;

/// Nobody reads the log of the active agent, for 3T, while a command writes much: the pipe is
/// full, renewals go on and nothing moves. Then the agent is killed, with the pipe full: its
/// guard is not held up by that.
pub(crate) fn a_full_log_holds_nothing_up(setting: &Setting) -> Report {
    story("3h: nobody reads the log", |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            let active = scene.wait_for_active()?;
            let host = &scene.hosts[active];
            let pipe = small_pipe(host)?;
            let muted_at = now();
            host.set_reading(false);
            host.service.set_chatter(CHATTER);
            let window = scene.timing.lock_time() * 3;
            scene.check_nothing_moves(report, muted_at, window);
            let renewal = host.proxy.last_known_renewal();
            let renewed_at = renewal.map_or(muted_at, |renewal| renewal.at);
            let since = now().saturating_sub(renewed_at);
            report.check_fast("last renewal beside a full log", since, scene.timing.r * 2);
            report.check(is_full(&pipe), || "the pipe is not full".to_owned());
            let read_at = now();
            host.set_reading(true);
            let many = || Some(dropped(&host.said_since(muted_at))).filter(|lost| *lost >= CHATTER);
            let lost = wait_until(read_at + scene.timing.longest_wait(), many);
            report.check(lost.is_some(), || {
                let lost = dropped(&host.said_since(muted_at));
                format!("only {lost} lines that were dropped were counted")
            });
            report
                .note(format!("{} lines that were dropped were counted", lost.unwrap_or_default()));

            host.set_reading(false);
            scene.check_nothing_moves(report, read_at, window);
            report.check(is_full(&pipe), || "the pipe is not full again".to_owned());
            let killed_at = kill_agent(scene, active);
            let taken = check_takeover(scene, report, active, killed_at);
            scene.hosts[active].service.set_chatter(0);
            scene.hosts[active].set_reading(true);
            taken?;
            scene.comes_back(report, active)
        })
    })
}

/// `loops` busy loops leave the agents hardly any time for `window`. The service may
/// move; two never run.
pub(crate) fn a_busy_machine_never_runs_two(
    setting: &Setting,
    loops: usize,
    window: Duration,
) -> Report {
    story(&format!("3i: {loops} busy loops"), |report| {
        Scene::open(setting, 3)?.play(report, |scene, report| {
            scene.wait_for_active()?;
            let since = now();
            let busy = Busy::start(loops);
            observe_for(window);
            drop(busy);
            let changes = scene.observer.changes_since(since);
            report.note(format!("services started or stopped {changes} times"));
            for (number, host) in scene.hosts.iter().enumerate() {
                let lines = host.said_since(since);
                let late: Vec<Duration> = lines.iter().filter_map(|line| lateness(line)).collect();
                late.iter().for_each(|late| report.measure("late", *late));
                let longest = late.iter().max().copied().unwrap_or_default();
                report.note(format!(
                    "host {number} was late {} times, at most {:.0} ms",
                    late.len(),
                    ms(longest)
                ));
            }
            Ok(())
        })
    })
}

/// A thread of the active agent panics: the service is down before another may start, and
/// another takes over. `agent` is a debug build.
pub(crate) fn a_panicking_thread_ends_the_agent(
    setting: &Setting,
    agent: &Path,
    thread: &'static str,
) -> Report {
    story(&format!("3j: {thread} panics"), |report| {
        let mut plans = plans(agent, 2);
        for plan in &mut plans {
            plan.panic_thread = Some(thread);
        }
        Scene::set(setting, plans)?.play(report, |scene, report| {
            scene.start_all()?;
            let active = scene.wait_for_active()?;
            let panicked_at = now();
            scene.hosts[active].service.set_panic(true);
            // SIGHUP wakes the main thread, which has the log thread write a line.
            scene.hosts[active].signal_agent(Signal::HUP);
            check_takeover(scene, report, active, panicked_at)?;
            let host = &mut scene.hosts[active];
            let status = host.wait_exit(now() + scene.timing.longest_wait());
            let status = status.ok_or("an agent with a dead thread lives on")?;
            report.check(!status.success(), || {
                "an agent whose thread panicked ended well".to_owned()
            });
            report.note(format!("after {thread} panicked the agent ended: {status}"));
            host.service.set_panic(false);
            host.start()?;
            scene.wait_taking_part(active)
        })
    })
}

/// Threads that do nothing as fast as they can, until this is dropped.
struct Busy {
    ended: Arc<AtomicBool>,
}

impl Busy {
    fn start(loops: usize) -> Busy {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..loops {
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Busy { ended }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Returns the stderr of a host's agent, as a pipe of few bytes.
fn small_pipe(host: &Host) -> Result<File, String> {
    let path = format!("/proc/{}/fd/2", host.pid().ok_or("the agent has ended")?);
    let pipe = File::options().write(true).open(path);
    let pipe = pipe.map_err(|error| format!("no stderr: {error}"))?;
    rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES).map_err(|error| error.to_string())?;
    Ok(pipe)
}

/// Returns whether no line of the chatter, with what stands before it, fits into a pipe.
fn is_full(pipe: &File) -> bool {
    let unread = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
    unread + CHATTER_BYTES as u64 + 100 > PIPE_BYTES as u64
}

/// Returns how many lines the agent counts that were dropped.
fn dropped(lines: &[String]) -> usize {
    let counts = lines.iter().filter_map(|line| {
        let (before, _) = line.split_once(" log lines were dropped")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

/// Returns the longest time that a line with `late` in it names.
fn lateness(line: &str) -> Option<Duration> {
    if !line.contains("late") {
        return None;
    }
    let words: Vec<&str> = line.split(|c: char| " ,:;()".contains(c)).collect();
    let time = |two: &[&str]| {
        let number: f64 = two[0].parse().ok()?;
        let scale = match two[1] {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(number * scale).ok()
    };
    words.windows(2).filter_map(time).max()
}
