//! Parser of the lines of a story.

use std::collections::BTreeMap;
use std::time::Duration;

use putex::core::command::{Command, Outcome};
use putex::core::event::{
    BucketInfo, Event, Opened, Pause, PauseEntry, StoreErrorKind, SwitchoverRequest, Written,
};
use putex::core::priority::Priority;
use putex::core::protocol::{DeviceUse, ServiceState, StartState};
use putex::core::pump::{AgentId, Config};
use putex::core::record::{
    BucketId, Incarnation, KeyState, KeyValue, Lease, Record, RecordState, Revision,
};
use putex::core::seat::Seat;
use putex::core::time::Instant;
use putex::core::timing::Timing;

use super::ms;

/// A step of a story.
pub(super) enum Happening {
    /// The pump is told something.
    Event(Box<Event>),
    AgentFreezes,
    AgentThaws,
    /// The agent is killed, and another instance of it started.
    AgentRestarts(Incarnation),
    Guard(GuardHappening),
}

/// An event of the guard, of commands, or of the connection.
pub(super) enum GuardHappening {
    Lost(String),
    Freezes,
    Thaws,
    Says(Box<Said>),
    Spawned(Command),
    Ended(Command, Outcome),
    CgroupEmptied,
}

/// A guard's report, as a story writes it.
pub(super) struct Said {
    pub(super) heard: Option<u64>,
    pub(super) link: Option<u64>,
    /// The guard's knowledge of the service, unless that is up.
    pub(super) service: ServiceState,
    pub(super) start: Option<StartState>,
    /// Whose grant it has and until when, if not the one that it was told last.
    pub(super) grant: Option<(Incarnation, Instant)>,
    pub(super) unfit: Option<String>,
}

/// Plain words, and `name=value` pairs, of one line.
pub(super) struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Words<'a> {
        let (mut plain, mut named) = (Vec::new(), BTreeMap::new());
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => drop(named.insert(name, value)),
                None => plain.push(word),
            }
        }
        Words { plain, named }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).copied()
    }

    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        self.get(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name} is no number")))
    }

    fn count(&self, name: &str, default: u64) -> Result<u32, String> {
        u32::try_from(self.number(name, default)?).map_err(|_| format!("{name} is too large"))
    }

    fn duration(&self, name: &str, default: u64) -> Result<Duration, String> {
        self.number(name, default).map(Duration::from_millis)
    }

    fn word(&self, at: usize) -> Result<&'a str, String> {
        let word = self.plain.get(at).copied();
        word.ok_or_else(|| "a word is missing".to_owned())
    }

    fn priority(&self) -> Result<Priority, String> {
        let number = self.get("priority").map_or(Ok(Priority::FIRST), str::parse);
        number.map_err(|()| "no such priority".to_owned())
    }

    fn incarnation(&self) -> Incarnation {
        let letter = self.get("inc").unwrap_or("b");
        Incarnation(u128::from(letter.as_bytes()[0]))
    }
}

/// Reads how an agent is set up.
pub(super) fn agent(words: &Words<'_>) -> Result<(Config, AgentId), String> {
    let renewal = words.duration("r", 500)?;
    let (f, c) = (words.count("f", 3)?, words.count("c", 1)?);
    let drift = words.count("drift", 10_000)?;
    let timing = Timing::new(renewal, f, c, drift).map_err(|refused| refused.0)?;
    let failback = words.get("failback").map(|_| words.duration("failback", 0)).transpose()?;
    let config = Config {
        timing,
        check: words.get("check") != Some("no"),
        start_grace: words.duration("start-grace", 0)?,
        check_failures: words.count("check-failures", 1)?,
        priority: words.priority()?,
        failback,
        seats: words.count("seats", 1)?,
        observes: words.get("observe") == Some("yes"),
        agents: None,
        last_resort: words.get("last-resort").is_some(),
        device: match words.get("device") {
            None => DeviceUse::None,
            Some("optional") => DeviceUse::Optional,
            Some("required") => DeviceUse::Required,
            Some(other) => return Err(format!("unknown use {other} of the device")),
        },
    };
    let id = AgentId {
        token: words.get("token").unwrap_or("alpha").to_owned(),
        incarnation: Incarnation(u128::from(b'a')),
        host: "alpha".to_owned(),
        boot: "boot-1".to_owned(),
    };
    Ok((config, id))
}

/// Reads one step.
pub(super) fn happening(text: &str) -> Result<Happening, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words = Words::new(rest);
    let revision = || -> Result<Option<Revision>, String> {
        let text = words.plain.first();
        let number = text.map(|text| text.parse().map_err(|_| "no revision"));
        Ok(number.transpose()?.map(Revision))
    };
    let why = rest.to_owned();
    let event = match verb {
        "tick" => Event::Tick,
        "opened" => opened(rest)?,
        "closed" => Event::Closed(why),
        "rejected" => Event::Rejected(StoreErrorKind::Unsafe.error(why)),
        "read" => Event::Read(Ok(key_state(&words)?)),
        "read-fails" => Event::Read(Err(why)),
        "stored" => Event::Written(Written::Stored(revision()?.ok_or("no revision")?)),
        "moved" => Event::Written(Written::Moved(revision()?)),
        "denied" => Event::Written(Written::Denied(StoreErrorKind::Unreachable.error(why))),
        "unknown" => Event::Written(Written::Unknown(why)),
        "hint" => Event::Hint(Seat(words.count("seat", 0)?), revision()?),
        "switchover" => Event::SwitchoverRequested(SwitchoverRequest {
            seat: Seat(words.count("seat", 0)?),
            term: Revision(words.number("term", 0)?),
            to: words.word(0)?.to_owned(),
            until: Instant::from_boot(words.duration("until", 0)?),
        }),
        "paused" => {
            let Revision(serial) = revision()?.ok_or("no serial number")?;
            Event::PauseRead(PauseEntry { serial, pause: Some(pause(&words)?) })
        }
        "resumed" => {
            let Revision(serial) = revision()?.unwrap_or_default();
            Event::PauseRead(PauseEntry { serial, pause: None })
        }
        "shutdown" if rest == "SIGTERM" => Event::Shutdown("SIGTERM"),
        "agent" => return agent_happening(&words),
        other => return guard_happening(other, rest).map(Happening::Guard),
    };
    Ok(Happening::Event(Box::new(event)))
}

fn agent_happening(words: &Words<'_>) -> Result<Happening, String> {
    match words.word(0)? {
        "freezes" => Ok(Happening::AgentFreezes),
        "thaws" => Ok(Happening::AgentThaws),
        "restarts" => Ok(Happening::AgentRestarts(words.incarnation())),
        other => Err(format!("the agent {other}: unknown")),
    }
}

fn guard_happening(verb: &str, rest: &str) -> Result<GuardHappening, String> {
    let words = Words::new(rest);
    match verb {
        "spawned" => Ok(GuardHappening::Spawned(command(words.word(0)?)?)),
        "ended" => {
            let (command, outcome) = (command(words.word(0)?)?, outcome(words.word(1)?)?);
            Ok(GuardHappening::Ended(command, outcome))
        }
        "cgroup" if rest == "empty" => Ok(GuardHappening::CgroupEmptied),
        "guard" => match words.word(0)? {
            "lost" => Ok(GuardHappening::Lost(rest["lost".len()..].trim().to_owned())),
            "freezes" => Ok(GuardHappening::Freezes),
            "thaws" => Ok(GuardHappening::Thaws),
            report => said(report, &words).map(|said| GuardHappening::Says(Box::new(said))),
        },
        other => Err(format!("unknown event {other}")),
    }
}

fn said(report: &str, words: &Words<'_>) -> Result<Said, String> {
    let number = |name: &str| -> Result<Option<u64>, String> {
        let given = words.get(name).is_some();
        given.then(|| words.number(name, 0)).transpose()
    };
    let (service, start) = match report {
        "unknown" => (ServiceState::Unknown, None),
        "down" => (ServiceState::Down, None),
        "stopping" => (ServiceState::Stopping { overdue: false }, None),
        "overdue" => (ServiceState::Stopping { overdue: true }, None),
        "up" => (ServiceState::Unknown, Some(StartState::Ended)),
        "up-first-start" => (ServiceState::Unknown, Some(StartState::FirstRuns)),
        "up-not-run" => (ServiceState::Unknown, Some(StartState::NotRun)),
        other => return Err(format!("unknown word {other} of the guard")),
    };
    Ok(Said {
        heard: number("heard")?,
        link: number("link")?,
        service,
        start,
        grant: number("until")?.map(|until| (words.incarnation(), ms(until))),
        unfit: words.get("unfit").map(str::to_owned),
    })
}

fn pause(words: &Words<'_>) -> Result<Pause, String> {
    let until = Instant::from_boot(words.duration("until", 0)?);
    Ok(Pause { until, by: "root@gamma".to_owned(), reason: "kernel".to_owned() })
}

fn opened(text: &str) -> Result<Event, String> {
    // The records under the keys of further seats follow, each behind a bar.
    let keys = text.split('|').map(Words::new);
    let key_states: Vec<_> = keys.map(|key| key_state(&key)).collect::<Result<_, _>>()?;
    let words = Words::new(text.split('|').next().unwrap_or_default());
    let last = key_states.iter().map(|key| key.revision.0).max().unwrap_or(0).max(1);
    let age = words.get("age").map(|_| words.duration("age", 0));
    let id = BucketId {
        epoch: words.get("epoch").unwrap_or("e1").to_owned(),
        created: "yesterday".to_owned(),
    };
    let bucket = BucketInfo {
        id,
        last: Revision(words.number("last", last)?),
        age: age.transpose()?,
        may_be_lost: true,
        replicas: words.count("replicas", 1)?,
        remarks: Vec::new(),
        retires: Ok(()),
    };
    let pause = PauseEntry {
        serial: words.number("pause", 0)?,
        pause: words.get("until").map(|_| pause(&words)).transpose()?,
    };
    Ok(Event::Opened(Opened { bucket, key_states, pause }))
}

fn key_state(words: &Words<'_>) -> Result<KeyState, String> {
    let token = words.plain.get(1).copied().unwrap_or("").to_owned();
    let record = |token, lease| KeyValue::Record(Record { token, lease });
    let value = match words.word(0)? {
        "absent" => KeyValue::Absent,
        "marker" => KeyValue::Marker,
        "blank" => record(String::new(), None),
        "plain" => record(token, None),
        "released" => {
            let lease = lease(words, "beta", RecordState::Released)?;
            record(String::new(), Some(lease))
        }
        "held" => {
            let state = if words.get("state") == Some("taking") {
                RecordState::Taking
            } else {
                RecordState::Active
            };
            let lease = lease(words, &token, state)?;
            record(token, Some(lease))
        }
        other => return Err(format!("unknown key {other}")),
    };
    let revision = Revision(words.number("rev", 0)?);
    Ok(KeyState { revision, value })
}

fn lease(words: &Words<'_>, host: &str, state: RecordState) -> Result<Lease, String> {
    let (renewal, confirmations) = (words.duration("r", 500)?, words.count("c", 1)?);
    let grace = u64::try_from((renewal * confirmations).as_millis()).unwrap();
    let failures = words.count("f", 3)?;
    Ok(Lease {
        incarnation: words.incarnation(),
        nonce: words.number("nonce", 1)?,
        host: host.to_owned(),
        boot: words.get("boot").unwrap_or("boot-9").to_owned(),
        renewal,
        failures,
        confirmations,
        grace: words.duration("grace", grace)?,
        term: match words.number("term", 0)? {
            0 => None,
            term => Some(Revision(term)),
        },
        state,
        priority: words.priority()?,
        released_to: words.get("to").map(str::to_owned),
    })
}

fn command(name: &str) -> Result<Command, String> {
    match name {
        "check" => Ok(Command::Check),
        "start" => Ok(Command::Start),
        "stop" => Ok(Command::Stop),
        "last-resort" => Ok(Command::LastResort),
        other => Err(format!("unknown command {other}")),
    }
}

fn outcome(name: &str) -> Result<Outcome, String> {
    match name {
        "ok" => Ok(Outcome::Succeeded),
        "failed" => Ok(Outcome::Failed("exit status 1".to_owned())),
        "overran" => Ok(Outcome::Overran),
        other => Err(format!("unknown outcome {other}")),
    }
}
