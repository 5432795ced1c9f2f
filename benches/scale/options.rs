//! The options.

use std::fmt;
use std::time::Duration;

use putex::core::{DRIFT_PPM_DEFAULT, Timing};

use crate::event::Event;

pub(crate) const HELP: &str = "\
options, each with its default:
  --agents 100      the agents
  --keys 50         the keys; agent n is of key n modulo this; half of the agents
  --servers 1       1, or a cluster of 3 with a bucket of 3 copies
  --renewal 3s      R
  --failures 3      F
  --confirmations 1 C
  --rate 500        how many agents are started in a second, at most
  --window 21s      for how long the load is measured
  --events          restart, cut, leader: a list with commas
  --cut 1000        how many agents lose their connection in `cut`; a tenth at most
  --sync            the servers sync each write to the disk
";

/// The options of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) agents: usize,
    pub(crate) keys: usize,
    pub(crate) servers: usize,
    pub(crate) timing: Timing,
    pub(crate) rate: usize,
    pub(crate) window: Duration,
    pub(crate) events: Vec<Event>,
    /// Every so many agents one loses its connection.
    pub(crate) cut_every: usize,
    pub(crate) syncs_always: bool,
}

impl Options {
    /// Returns the options; `None` if help is wanted.
    pub(crate) fn parse(
        mut words: impl Iterator<Item = String>,
    ) -> Result<Option<Options>, String> {
        let (mut agents, mut keys, mut servers, mut rate, mut cut) = (100, None, 1, 500, 1000);
        let (mut failures, mut confirmations, mut syncs_always) = (3, 1, false);
        let (mut renewal, mut window) = (Duration::from_secs(3), Duration::from_secs(21));
        let mut events = Vec::new();
        while let Some(word) = words.next() {
            // Cargo says so to each benchmark.
            if word == "--bench" {
                continue;
            }
            if word == "--sync" {
                syncs_always = true;
                continue;
            }
            if word == "--help" {
                return Ok(None);
            }
            let value = words.next().ok_or_else(|| format!("{word}: it has no value"))?;
            match &*word {
                "--agents" => agents = number(&word, &value)?,
                "--keys" => keys = Some(number(&word, &value)?),
                "--servers" => servers = number(&word, &value)?,
                "--rate" => rate = number(&word, &value)?,
                "--cut" => cut = number(&word, &value)?,
                "--failures" => failures = number(&word, &value)?,
                "--confirmations" => confirmations = number(&word, &value)?,
                "--renewal" => renewal = time(&word, &value)?,
                "--window" => window = time(&word, &value)?,
                "--events" => {
                    events = value.split(',').map(Event::parse).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("{word}: no such option")),
            }
        }
        let keys = keys.unwrap_or(agents / 2).clamp(1, agents.max(1));
        let few = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let timing = Timing::new(renewal, few(failures), few(confirmations), DRIFT_PPM_DEFAULT);
        let timing = timing.map_err(|why| why.to_string())?;
        if ![1, 3].contains(&servers) {
            return Err(format!("--servers: {servers} is neither 1 nor 3"));
        }
        if servers != 3 && events.contains(&Event::Leader) {
            return Err("--events: a leader is elected where there are 3 servers".to_owned());
        }
        if servers != 1 && events.contains(&Event::Cut) {
            return Err("--events: agents that are cut off go to the other servers".to_owned());
        }
        let (rate, cut_every) = (rate.max(1), (agents / cut.max(1)).max(10));
        let options = Options {
            agents,
            keys,
            servers,
            timing,
            rate,
            window,
            events,
            cut_every,
            syncs_always,
        };
        Ok(Some(options))
    }

    /// Returns over how long the starts of the agents are spread: one R at least, so that their
    /// strokes are.
    pub(crate) fn start_time(&self) -> Duration {
        let by_rate = Duration::from_secs_f64(self.agents as f64 / self.rate as f64);
        by_rate.max(self.timing.renewal())
    }

    /// Returns whether an agent is one of those that lose their connection.
    pub(crate) fn is_cut(&self, agent: usize) -> bool {
        self.events.contains(&Event::Cut) && agent.is_multiple_of(self.cut_every)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { agents, keys, servers, timing, syncs_always, .. } = self;
        let (r, failures) = (timing.renewal(), timing.failures());
        let (c, sync) = (timing.confirmations(), if *syncs_always { ", sync always" } else { "" });
        write!(f, "{agents} agents, {keys} keys, {servers} servers{sync}, ")?;
        write!(f, "R {r:?}, F {failures}, C {c}")
    }
}

fn number(word: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{word}: {value} is no number"))
}

fn time(word: &str, value: &str) -> Result<Duration, String> {
    humantime::parse_duration(value).map_err(|why| format!("{word}: {value}: {why}"))
}
