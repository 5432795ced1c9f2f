//! The servers, and what happens to them.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use putex::core::Instant;
use putex::sys;
use rustix::process::Signal;

use crate::agent::BUCKET;
use crate::herd::Herd;
use crate::host::{Side, permit_descriptors, run_as};
use crate::options::Options;
use crate::support::clock::{At, ms, now, observe_for};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::wire::Client;

/// How long a killed server is down, and a connection cut.
const DOWN: Duration = Duration::from_secs(1);
const CUT: Duration = Duration::from_secs(2);

/// An event that disturbs the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// All servers are killed, and started again.
    Restart,
    /// Some agents lose their connection, and get none for a while.
    Cut,
    /// The leader of the bucket is killed, and started again at the end.
    Leader,
}

impl Event {
    pub(crate) fn parse(name: &str) -> Result<Event, String> {
        let all = [Event::Restart, Event::Cut, Event::Leader];
        let found = all.into_iter().find(|event| event.to_string() == name);
        found.ok_or_else(|| format!("--events: there is no {name}"))
    }

    /// Has this happen, waits until all agents are back, and returns what became of them.
    ///
    /// # Errors
    ///
    /// When a server does not start, or the agents do not come back.
    pub(crate) fn happen(self, site: &mut Site, herd: &Herd) -> Result<Outcome, String> {
        let (begin, since) = (now(), sys::now());
        herd.counters().renewal_times.clear();
        let mut killed = None;
        let possible = match self {
            Event::Restart => {
                site.servers.iter_mut().for_each(Server::kill);
                observe_for(DOWN);
                site.servers.iter_mut().try_for_each(Server::spawn)?;
                for server in &mut site.servers {
                    server.wait_ready()?;
                }
                now()
            }
            Event::Cut => {
                let proxy = site.proxy.as_ref().ok_or("there is no proxy")?;
                proxy.turn(Mode::Cut);
                observe_for(CUT);
                proxy.turn(Mode::Pass)
            }
            Event::Leader => {
                let leader = site.leader()?;
                let at = site.servers[leader].stop(Signal::KILL);
                killed = Some(leader);
                // Until each agent of that server has noticed it.
                observe_for(DOWN);
                at
            }
        };
        let back = herd.wait_connected()?;
        let connected = herd.counters().opens.peaks(since);
        // A lock that ran out is given up by then.
        observe_for((begin + herd.options().timing.lock_time() + DOWN).saturating_sub(now()));
        let outcome = Outcome::new(self, herd, since, back.saturating_sub(possible), connected);
        herd.wait_active()?;
        if let Some(killed) = killed {
            site.servers[killed].restart()?;
            herd.wait_connected()?;
        }
        Ok(outcome)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Event::Restart => "restart",
            Event::Cut => "cut",
            Event::Leader => "leader",
        })
    }
}

/// The outcome of an event for the agents.
pub(crate) struct Outcome {
    event: Event,
    /// From when a connection was possible again until all agents had one.
    back: Duration,
    opens: u32,
    failed: u32,
    /// The most within a second, and within 100 ms.
    peaks: (u32, u32),
    longest: Duration,
    unanswered: u32,
    lost: u32,
    takes: u32,
}

impl Outcome {
    fn new(event: Event, herd: &Herd, since: Instant, back: At, peaks: (u32, u32)) -> Outcome {
        let counters = herd.counters();
        Outcome {
            event,
            back,
            opens: counters.opens.total(since),
            failed: counters.failed_opens.total(since),
            peaks,
            longest: counters.renewal_times.max(),
            unanswered: counters.unanswered.total(since),
            lost: counters.losses.total(since),
            takes: counters.takes.total(since),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of_second, of_step) = self.peaks;
        write!(
            f,
            "{}: {} locks lost, {} takes; all connected {:.0} ms after that was possible; {} \
             connects, {of_second} in a second and {of_step} in 100 ms at most, {} attempts \
             failed; longest renewal {:.0} ms, {} requests without an answer",
            self.event,
            self.lost,
            self.takes,
            ms(self.back),
            self.opens,
            self.failed,
            ms(self.longest),
            self.unanswered
        )
    }
}

/// The URLs of the servers: those of agents that can be cut off, and those of the others.
#[derive(Clone)]
pub(crate) struct Urls {
    pub(crate) direct: String,
    pub(crate) cut: String,
}

/// The servers, and the way to them that can be cut.
pub(crate) struct Site {
    pub(crate) servers: Vec<Server>,
    proxy: Option<Proxy>,
}

impl Site {
    /// Starts the servers.
    ///
    /// # Errors
    ///
    /// When one does not start, or has no descriptor for each client.
    pub(crate) fn start(options: &Options, binary: &Path) -> Result<Site, String> {
        permit_descriptors(options.agents)?;
        run_as(Side::Servers);
        let lines = match options.syncs_always {
            true => "jetstream { store_dir: \"FOLDER/js\", sync_interval: always }\n",
            false => "",
        };
        let servers = match options.servers {
            1 => vec![Server::try_start(binary, lines)?],
            _ => Server::start_cluster(binary, lines)?,
        };
        let has_proxy = options.events.contains(&Event::Cut);
        let proxy = has_proxy.then(|| Proxy::start(servers[0].port()));
        Ok(Site { servers, proxy })
    }

    /// Returns the URLs for the agents.
    pub(crate) fn urls(&self) -> Urls {
        let direct: Vec<_> = self.servers.iter().map(|it| it.url("nats", "127.0.0.1")).collect();
        let cut = self.proxy.as_ref().map(|proxy| format!("nats://127.0.0.1:{}", proxy.port()));
        Urls { direct: direct.join(","), cut: cut.unwrap_or_default() }
    }

    /// Returns the server that leads the bucket.
    fn leader(&self) -> Result<usize, String> {
        let info = Client::connect(self.servers[0].port())?
            .call(&format!("STREAM.INFO.KV_{BUCKET}"), "")?;
        let leader = info["cluster"]["leader"].as_str().and_then(|name| name.strip_prefix('n'));
        leader.and_then(|number| number.parse().ok()).ok_or_else(|| "no leader".to_owned())
    }
}
