//! Every world that can come about, breadth first, so that the first one in which
//! something is broken is reached by a shortest path.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use super::calm::calm_down;
use super::messages::NAMES;
use super::quick::{Quick, fold};
use super::transition::{Choices, Transition};
use super::turn::Turn;
use super::world::{HOSTS, Host, Shared, World};
use super::{Model, Scope};

/// Of so many worlds one is followed until it is calm.
const CALM_SHARE: u32 = 128;

/// A search that takes long says after so many worlds how far it is.
const PROGRESS: u32 = 2_000_000;

/// A world that is to be looked at: worlds that differ by one host share the others.
struct Waiting {
    hosts: [Rc<Host>; HOSTS],
    /// The hash of each host.
    hashes: [u128; HOSTS],
    shared: Shared,
    number: u32,
}

/// How a world was first reached.
#[derive(Clone, Copy)]
struct Origin {
    from: u32,
    /// The index of the transition among all that could happen.
    index: u16,
}

/// The result of a search.
pub(crate) struct SearchResult {
    pub(crate) states: usize,
    pub(crate) transitions: u64,
    pub(crate) depth: u32,
    /// Whether every world was looked at.
    pub(crate) whole: bool,
    pub(crate) pump_states: usize,
    pub(crate) guard_states: usize,
    /// Worlds that were followed until they were calm, and the longest it took.
    pub(crate) calmed: u64,
    pub(crate) calm_longest: Duration,
    pub(crate) calm_within: Duration,
    /// The broken rule, and the shortest path to it.
    pub(crate) broken: Option<(String, String)>,
}

pub(crate) struct Search {
    model: Model,
    scope: Scope,
    seen: HashSet<u128, Quick>,
    origins: Vec<Origin>,
    waiting: VecDeque<Waiting>,
    begins: Vec<World>,
    found: SearchResult,
}

impl Search {
    pub(crate) fn new(scope: Scope) -> Search {
        let model = Model::new(scope);
        let begins = vec![
            World::new(scope.budget, model.grid, None),
            World::new(scope.budget, model.grid, Some(model.held)),
        ];
        let within = Duration::from_micros(model.calm_within.unsigned_abs().into());
        Search {
            model,
            scope,
            seen: HashSet::default(),
            origins: Vec::new(),
            waiting: VecDeque::new(),
            begins,
            found: SearchResult {
                states: 0,
                transitions: 0,
                depth: 0,
                whole: true,
                pump_states: 0,
                guard_states: 0,
                calmed: 0,
                calm_longest: Duration::ZERO,
                calm_within: within,
                broken: None,
            },
        }
    }

    /// Looks at every world, until one is broken or there are too many.
    pub(crate) fn run(mut self) -> SearchResult {
        for (index, world) in (0..).zip(self.begins.clone()) {
            let hosts = world.hosts.map(Rc::new);
            let hashes = world.hosts.each_ref().map(fold);
            let before = Waiting { hosts, hashes, shared: world.shared, number: u32::MAX };
            self.add(&world, &before, index);
        }
        let mut level_ends = self.origins.len();
        while let Some(next) = self.waiting.pop_front() {
            let number = next.number;
            if number as usize >= level_ends {
                level_ends = self.origins.len();
                self.found.depth += 1;
            }
            if number.is_multiple_of(PROGRESS) && number > 0 {
                let (found, waiting) = (self.origins.len(), self.waiting.len());
                println!("  {found} states, {waiting} wait, depth {}", self.found.depth);
            }
            if let Err((last, why)) = self.expand(&next) {
                self.found.broken = Some((why, self.path(number, last)));
                break;
            }
            if self.origins.len() >= self.scope.states_max {
                self.found.whole = self.waiting.is_empty();
                break;
            }
        }
        self.found.states = self.origins.len();
        self.found.pump_states = self.model.pumps.len();
        self.found.guard_states = self.model.guards.len();
        self.found
    }

    fn expand(&mut self, before: &Waiting) -> Result<(), (Option<Transition>, String)> {
        let hosts = before.hosts.each_ref().map(|host| **host);
        let world = &World { hosts, shared: before.shared };
        if before.number.is_multiple_of(CALM_SHARE) {
            let passed = calm_down(&mut self.model, world).map_err(|why| (None, why))?;
            if let Some(passed) = passed {
                self.found.calmed += 1;
                let passed = Duration::from_micros(passed.unsigned_abs().into());
                self.found.calm_longest = self.found.calm_longest.max(passed);
            }
        }
        let choices = Choices::of(&self.model, world);
        for (index, next) in (0..).zip(choices.due.iter().chain(&choices.free)) {
            let mut turn = Turn::of(&mut self.model, *world);
            turn.perform(*next).map_err(|why| (Some(*next), why))?;
            let after = turn.world;
            self.found.transitions += 1;
            self.add(&after, before, index);
        }
        Ok(())
    }

    /// Adds a world unless it was seen. It came from `before` by the transition of this index.
    fn add(&mut self, world: &World, before: &Waiting, index: u16) {
        let mut hashes = before.hashes;
        for ((hash, host), before) in hashes.iter_mut().zip(&world.hosts).zip(&before.hosts) {
            if *host != **before {
                *hash = fold(host);
            }
        }
        let shared = world.shared;
        if self.seen.insert(fold(&(hashes, shared))) {
            let mut hosts = before.hosts.clone();
            for (at, host) in hosts.iter_mut().enumerate() {
                if hashes[at] != before.hashes[at] {
                    *host = Rc::new(world.hosts[at]);
                }
            }
            let number = u32::try_from(self.origins.len()).expect("fewer than 4e9 worlds");
            self.origins.push(Origin { from: before.number, index });
            self.waiting.push_back(Waiting { hosts, hashes, shared, number });
        }
    }

    /// Tells the way to a world, and the transition that came after it, as a list of what
    /// happened with the time of each and what became of the agents.
    fn path(&mut self, number: u32, last: Option<Transition>) -> String {
        let mut indices = Vec::new();
        let mut at = number;
        while self.origins[at as usize].from != u32::MAX {
            let Origin { from, index } = self.origins[at as usize];
            indices.push(index);
            at = from;
        }
        let mut world = self.begins[at as usize];
        let mut now = 0;
        let mut text = match world.shared.stray {
            0 => "the key was released by z\n".to_owned(),
            _ => "z has just renewed and died; its service is up until V + C*R\n".to_owned(),
        };
        for index in indices.into_iter().rev() {
            let choices = Choices::of(&self.model, &world);
            let next = choices.due.iter().chain(&choices.free).nth(index.into());
            let next = *next.expect("what could happen once can happen again");
            let mut turn = Turn::of(&mut self.model, world);
            turn.perform(next).expect("this much was kept");
            world = turn.world;
            if let Transition::Pass(by) = next {
                now += by;
            } else {
                let what = next.to_string();
                let _ = writeln!(text, "{} {what:<60} {}", ms(now), self.show(&world));
            }
        }
        match last {
            Some(next) => {
                let _ = writeln!(text, "{} {next}", ms(now));
            }
            None => text.push_str("and from here on nothing goes wrong\n"),
        }
        text
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::new();
        for (name, host) in NAMES.iter().zip(&world.hosts[..self.scope.agents]) {
            let agent = match host.pump {
                Some(pump) => self.model.pumps.state(pump).to_string(),
                None => "gone".to_owned(),
            };
            let guard = match host.guard {
                Some(guard) => self.model.guards.state(guard.state),
                None => "none".to_owned(),
            };
            let up = if host.up { ", UP" } else { "" };
            let frozen = if host.frozen.is_some() { ", stopped" } else { "" };
            let _ = write!(text, "{name} {agent}{frozen}, guard {guard}{up}; ");
        }
        text
    }
}

/// Shows microseconds as milliseconds.
fn ms(micros: i32) -> String {
    format!("{:>5}.{:03} ms", micros / 1000, micros % 1000)
}
