//! Reads a story, plays it to a pump and writes down what happens.
//!
//! Events, as a story writes them (times in milliseconds since boot):
//!
//! ```text
//! setup r=500 f=3 c=1 [check=no] [token=alpha] [last-resort=yes] [start-grace=2000]
//!       [check-failures=2] [device=required] [guard=told|down] [inherited=1485]
//!       [start=runs] [spawn=slow] [cgroup=busy] [pause=told]   begins a story
//! at 0 tick
//! at 0 opened KEY [last=9] [epoch=e2] [age=60000] [replicas=3]
//! at 0 closed WHY...          at 0 rejected WHY...
//! at 0 read KEY               at 0 read-fails WHY...
//! at 0 stored 8   moved [9]   denied WHY...   unknown WHY...
//! at 0 hint [9]
//! at 0 ended check|start|stop|last-resort ok|failed|overran
//! at 0 shutdown SIGTERM
//! at 0 agent freezes|thaws    at 0 agent restarts inc=c
//! at 0 guard lost WHY...      at 0 guard freezes|thaws
//! at 0 spawned start|stop     at 0 cgroup empty
//! KEY: absent | marker rev=5 | blank rev=5 | plain beta rev=5
//!    | held beta rev=5 [inc=b] [nonce=1] [state=taking] [r= f= c=] [grace=500]
//!    | released rev=5 [inc=b]
//! ```
//!
//! Incarnation `a` is the pump's own. The guard is the real one. It answers at once, and does
//! not know at first whether the service runs; `guard=down` is one that knows that it does not.
//! `inherited` is one that has run start under the lock of incarnation `b`: term 8, after beta,
//! valid until then; with `start=runs` that start has not ended.
//!
//! There is no pause, as a read of it shows at once, unless the story tells it: `pause=told`.
//!
//! A step is one event and all that follows from it at once; the guard looks at its deadlines
//! last. A process that freezes takes in nothing until it thaws.
//!
//! With `guard=told` there is no guard, and the story tells what one says:
//!
//! ```text
//! at 0 guard unknown|down|up|up-first-start|up-not-run|stopping|overdue
//!            [heard=2] [link=1] [inc=b] [until=1485] [unfit=WHY]
//! ```
//!
//! It has received all messages then, unless the story says otherwise; `up` has the grant that it
//! was told last, or that of `inc`, term 8, valid until `until`.

mod host;
mod parse;
mod show;

use std::fmt::Write as _;
use std::time::Duration;

use putex::core::AgentState;
use putex::core::event::{Effect, Event, GuardEvent};
use putex::core::pump::{AgentId, Config, Pump, Since, bounce};
use putex::core::record::Incarnation;
use putex::core::time::Instant;

use self::host::Host;
use self::parse::{Happening, Words};

/// Most turns that one event may cause.
const TURNS_MAX: usize = 64;

/// Plays the story and returns it as it really goes.
pub(crate) fn tell(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut story: Option<Story> = None;
    let mut skipping = false;
    for line in text.lines() {
        if skipping || line == "----" {
            skipping = !line.is_empty();
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let wrong = |why: &str| format!("{line}: {why}");
        if let Some(setup) = line.strip_prefix("setup ") {
            story = Some(Story::new(&Words::new(setup)).map_err(|why| wrong(&why))?);
            continue;
        }
        let rest = line.strip_prefix("at ").ok_or_else(|| wrong("not an event"))?;
        let (at, what) = rest.split_once(' ').ok_or_else(|| wrong("no event"))?;
        let now = at.parse().map(ms).map_err(|_| wrong("no time"))?;
        let story = story.as_mut().ok_or_else(|| wrong("no setup"))?;
        let lines = story.step(what, now).map_err(|why| wrong(&why))?;
        writeln!(out, "----\n{}\n", lines.join("\n")).unwrap();
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    Ok(out)
}

/// An agent and its guard.
struct Story {
    /// `None` only while it takes in an event.
    pump: Option<Pump>,
    config: Config,
    id: AgentId,
    agent_frozen: bool,
    host: Host,
}

impl Story {
    fn new(words: &Words<'_>) -> Result<Story, String> {
        let (config, id) = parse::agent(words)?;
        let host = Host::new(words, &config)?;
        let pump = Pump::new(config.clone(), id.clone(), None, ms(0));
        let mut story = Story { pump: Some(pump), config, id, agent_frozen: false, host };
        if !story.host.is_told() {
            story.host.events.push_back(Event::Tick);
            story.play(ms(0))?;
        }
        Ok(story)
    }

    /// Plays one event and returns what happens.
    fn step(&mut self, what: &str, now: Instant) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        match parse::happening(what)? {
            Happening::Event(event) => self.host.events.push_back(*event),
            Happening::AgentFreezes => self.agent_frozen = true,
            Happening::AgentThaws => {
                self.agent_frozen = false;
                self.host.events.push_back(Event::Tick);
            }
            Happening::AgentRestarts(incarnation) => lines = self.restart(incarnation, now)?,
            Happening::Guard(happening) => self.host.happen(happening)?,
        }
        lines.extend(self.play(now)?);
        lines.push(self.summary(now)?);
        Ok(lines)
    }

    /// Another instance of the agent takes the place of the one that was killed.
    /// Its guard finds that out before that instance connects.
    fn restart(&mut self, incarnation: Incarnation, now: Instant) -> Result<Vec<String>, String> {
        self.agent_frozen = false;
        self.host.disconnect();
        let lines = self.play(now)?;
        self.id.incarnation = incarnation;
        let pump = Pump::new(self.config.clone(), self.id.clone(), None, now);
        self.pump = Some(pump);
        self.host.events.push_back(Event::Tick);
        Ok(lines)
    }

    /// Lets agent and guard take in all that there is, and the guard look at its deadlines.
    fn play(&mut self, now: Instant) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for _ in 0..TURNS_MAX {
            let event = (!self.agent_frozen).then(|| self.host.events.pop_front());
            if let Some(event) = event.flatten() {
                for effect in self.bounce(&event, now) {
                    lines.push(show::effect(&effect));
                    self.host.perform(effect, now)?;
                }
            } else if !self.host.turn(now, &mut lines)? {
                return Ok(lines);
            }
        }
        Err("agent and guard do not come to rest".to_owned())
    }

    fn bounce(&mut self, event: &Event, now: Instant) -> Vec<Effect> {
        let before = self.pump.take().expect("a turn is over");
        let (after, effects) = bounce(before, event, now);
        // All timers of the state were asked for when the turn was over.
        let (again, nothing) = bounce(after.clone(), &Event::Tick, now);
        assert_eq!((again.deadline(), nothing), (after.deadline(), Vec::new()), "after {event:?}");
        self.pump = Some(after);
        effects
    }

    /// An agent that has ended does not stand by, nor one that has just started, unless its guard
    /// lets the service run; one that is active does; any other if it knows that the service is
    /// down.
    fn check_stands_by(&self, pump: &Pump) -> Result<(), String> {
        let expected = match pump.state() {
            AgentState::Looking => self.host.agent_knows_that_it_may_run(),
            AgentState::Ended => false,
            AgentState::Active => true,
            _ => self.config.observes || self.host.agent_knows_that_it_is_down(),
        };
        if pump.is_ready() != expected && !self.agent_frozen {
            return Err(format!("in {} it stands by: {}", pump.state(), !expected));
        }
        Ok(())
    }

    fn summary(&self, now: Instant) -> Result<String, String> {
        let pump = self.pump.as_ref().expect("a turn is over");
        let next = pump.deadline();
        if next.is_some_and(|next| next.at <= now) && !self.agent_frozen {
            return Err(format!("the next deadline, {next:?}, is not in the future"));
        }
        let next = next
            .map_or("never".to_owned(), |next| format!("{} {:?}", show::at(next.at), next.timer));
        self.check_stands_by(pump)?;
        let frozen = if self.agent_frozen { " (frozen)" } else { "" };
        let guard = self.host.summary(now)?;
        let since = Since { state: now, why: String::new(), service: (pump.service(), now) };
        let status = pump.status(&since, now);
        let paused = match status.paused && !status.start_pending {
            true => format!(" (paused, service {:?})", status.service).to_lowercase(),
            false => String::new(),
        };
        Ok(format!("{}{frozen}{paused}, next {next}{guard}", pump.state()))
    }
}

fn ms(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(ms))
}

/// The event of the pump for an event of the guard on a link.
fn guard_event(link: u64, event: GuardEvent) -> Event {
    Event::Guard(link, event)
}
