//! All agents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use putex::sys::{self, Waker};

use crate::agent::{Agent, Shared};
use crate::counters::Counters;
use crate::event::Urls;
use crate::host::{Side, run_as, separate_descriptors};
use crate::options::Options;
use crate::support::clock::{At, now, observe_for, wait_until};
use crate::support::server::Server;
use crate::window::{Reading, Window};

/// Enough for the pump, and for the client without TLS.
const STACK_BYTES: usize = 128 * 1024;

/// How long all may take to be active, or to be connected again.
const HERD_MAX: Duration = Duration::from_secs(60);

/// Agents that run, until this is dropped.
pub(crate) struct Herd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    options: Options,
}

impl Herd {
    /// Starts all agents, spread over some time; returns when the last one was started.
    ///
    /// # Errors
    ///
    /// When the system has no thread for each.
    pub(crate) fn start(options: &Options, urls: Urls) -> Result<Herd, String> {
        let shared = Arc::new(Shared {
            counters: Counters::new(),
            timing: options.timing,
            replicas: if options.servers == 3 { 3 } else { 1 },
            end: Waker::new().map_err(|error| error.to_string())?,
            is_over: AtomicBool::new(false),
        });
        let (own, given) = (Arc::clone(&shared), options.clone());
        let start = move || {
            let mut threads = Vec::new();
            run_as(Side::Agents);
            // Descriptors that other threads open from now on are in the table of no agent.
            let started = separate_descriptors().map_err(|error| error.to_string());
            let started = started.and_then(|()| start_all(&own, &given, &urls, &mut threads));
            (started, threads)
        };
        let started = thread::spawn(start).join();
        let (started, threads) = started.map_err(|_| "the start of the agents failed")?;
        let herd = Herd { shared, threads, options: options.clone() };
        started.map(|()| herd)
    }

    /// Waits until each key has an active agent; returns how long that took.
    ///
    /// # Errors
    ///
    /// If it takes too long.
    pub(crate) fn wait_active(&self) -> Result<Duration, String> {
        let begin = now();
        let Options { agents, keys, .. } = self.options;
        let counts = || {
            let Counters { open, active, .. } = self.counters();
            (open.load(Relaxed), active.load(Relaxed))
        };
        let all = wait_until(begin + HERD_MAX, || (counts() == (agents, keys)).then_some(()));
        all.map(|()| now() - begin).ok_or_else(|| {
            let (open, active) = counts();
            let why = self.reasons();
            format!("{open} of {agents} are connected, {active} of {keys} are active: {why:?}")
        })
    }

    /// Waits until all agents are connected; returns when the last one was.
    ///
    /// # Errors
    ///
    /// If it takes too long.
    pub(crate) fn wait_connected(&self) -> Result<At, String> {
        let open = || self.counters().open.load(Relaxed);
        let all = || (open() == self.options.agents).then(|| self.counters().last_open());
        let connected = wait_until(now() + HERD_MAX, all);
        connected.ok_or_else(|| {
            format!("{} of {} are connected: {:?}", open(), self.options.agents, self.reasons())
        })
    }

    /// Lets one R pass, then the window, and returns what was measured in that.
    ///
    /// # Errors
    ///
    /// When a server has ended.
    pub(crate) fn observe(&self, name: &str, servers: &[Server]) -> Result<Window, String> {
        observe_for(self.options.timing.renewal());
        let before = Reading::take(servers)?;
        self.counters().renewal_times.clear();
        self.counters().delays.clear();
        let since = sys::now();
        observe_for(self.options.window);
        let after = Reading::take(servers)?;
        Ok(Window::new(name, self.counters(), since, &before, &after))
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns what seldom happened, and how often.
    pub(crate) fn reasons(&self) -> BTreeMap<String, u64> {
        self.counters().reasons()
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        self.shared.end.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts all agents one after the other, those of the first tokens first.
fn start_all(
    shared: &Arc<Shared>,
    options: &Options,
    urls: &Urls,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), String> {
    let (begin, start_time) = (now(), options.start_time());
    for number in 0..options.agents {
        let at = begin + start_time.mul_f64(number as f64 / options.agents as f64);
        observe_for(at.saturating_sub(now()));
        let (key, token) =
            (format!("k{}", number % options.keys), format!("t{}", number / options.keys));
        let url = if options.is_cut(number) { &urls.cut } else { &urls.direct };
        let (agent, pump) = Agent::new(Arc::clone(shared), url, &key, &token)?;
        let run = move || match separate_descriptors() {
            Ok(()) => agent.run(pump),
            Err(error) => agent.shared.counters.note("agent not started", &error.to_string()),
        };
        let thread = thread::Builder::new().name("agent".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(run).map_err(|error| format!("agent {number}: {error}"))?;
        threads.push(thread);
    }
    Ok(())
}
