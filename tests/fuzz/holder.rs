//! A record of anybody, and what an agent that meets it wants of the world.

use std::ffi::OsStr;
use std::time::Duration;

use super::{Noise, assert_one_line};
use crate::command::Commands;
use crate::core::command::{Command, Outcome, Run};
use crate::core::event::{Effect, Event, Notice, Opened, Sentry, Written};
use crate::core::pump::{AgentId, Config, Pump, bounce};
use crate::core::record::{BucketId, Incarnation, KeyState, KeyValue, Record, Revision};
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::guard::word::{PACKET_MAX, Word};
use crate::nats::Headers;
use crate::store::lease;

/// Longest value of a variable that a command is given here. The kernel's limit is
/// 128 KiB, and no name of anything is near it.
const VARIABLE_BYTES_MAX: usize = 1024;

/// A header block with the value behind it: an agent that finds it under its key, in
/// a bucket with the value as its epoch, wants nothing that cannot be done. Every
/// command can be run, the guard takes every word in, every line is one line; and the
/// agent always has something to wait for.
pub fn holder(data: &[u8]) -> bool {
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    let (block, value) = data.split_at(end.map_or(0, |at| at + 4));
    let headers = Headers::parse(block);
    let token = String::from_utf8_lossy(value).into_owned();
    let lease = lease::from_headers(|name| headers.get(name));
    let ours = lease.is_some();
    let mut world = World::new(token, Noise::of(data));
    let record = Record {
        token: world.value.clone(),
        lease,
    };
    world.key_state.found = KeyValue::Record(record);
    world.meet();
    ours
}

/// All that an agent sees, and what it waits for.
struct World {
    value: String,
    noise: Noise,
    key_state: KeyState,
    now: Instant,
    reading: bool,
    writing: Option<Record>,
    running: Vec<Command>,
}

impl World {
    fn new(value: String, noise: Noise) -> World {
        World {
            value,
            noise,
            key_state: KeyState {
                revision: Revision(5),
                found: KeyValue::Absent,
            },
            now: Instant::from_boot(Duration::from_secs(100)),
            reading: false,
            writing: None,
            running: Vec::new(),
        }
    }

    fn meet(&mut self) {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        let config = Config {
            timing,
            check: true,
            last_resort: true,
        };
        let me = AgentId {
            token: "alpha".to_owned(),
            incarnation: Incarnation(1),
            host: "node1".to_owned(),
            boot: "b1".to_owned(),
            dead: Vec::new(),
        };
        let mut pump = Pump::new(config, me, None, self.now);
        let mut event = Event::Guard(Sentry::Ready);
        for step in 0..48 {
            let (next, effects) = bounce(pump, &event, self.now);
            pump = next;
            if !effects.into_iter().all(|effect| self.can(effect)) {
                return;
            }
            let waits = self.reading || self.writing.is_some() || !self.running.is_empty();
            assert!(waits || pump.deadline().is_some(), "nothing to wait for");
            event = if step == 0 {
                Event::Opened(self.opened())
            } else {
                self.next(&pump)
            };
        }
    }

    fn opened(&self) -> Opened {
        let epoch = self.value.clone();
        Opened {
            bucket: BucketId {
                epoch,
                created: self.value.clone(),
            },
            last: self.key_state.revision,
            age: Some(Duration::MAX),
            key_state: self.key_state.clone(),
            replicas: 1,
            remarks: Vec::new(),
        }
    }

    /// Returns what happens next: mostly what is waited for.
    fn next(&mut self, pump: &Pump) -> Event {
        self.now = self.now.after(Duration::from_millis(1));
        if self.reading {
            self.reading = false;
            return Event::Read(Ok(self.key_state.clone()));
        }
        if let Some(record) = self.writing.take() {
            return Event::Written(match self.noise.below(8) {
                0 => Written::Unknown("no answer".to_owned()),
                1 => Written::Denied("no room".to_owned()),
                2 => Written::Moved(None),
                _ => {
                    self.key_state.revision = Revision(self.key_state.revision.0 + 1);
                    self.key_state.found = KeyValue::Record(record);
                    Written::Stored(self.key_state.revision)
                }
            });
        }
        match self.noise.below(12) {
            0 => return Event::Twin(self.twin()),
            1 => return Event::Guard(Sentry::Armed),
            2 => {
                let bucket = self.opened();
                return Event::Opened(bucket);
            }
            _ => {}
        }
        if let Some(command) = self.running.pop() {
            let failed = self.noise.below(8) == 0;
            let failed = failed.then(|| Outcome::Failed("status 1".to_owned()));
            return Event::Ended(command, failed.unwrap_or(Outcome::Succeeded));
        }
        self.now = pump.deadline().unwrap_or(self.now).max(self.now);
        Event::Tick
    }

    fn twin(&self) -> Notice {
        Notice {
            token: "alpha".to_owned(),
            incarnation: self.value.clone(),
            host: self.value.clone(),
        }
    }

    /// Checks that an effect can be done, and notes it; false at the end.
    fn can(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Read { .. } => self.reading = true,
            Effect::Write { record, .. } => self.writing = Some(record),
            Effect::Run(run) => {
                runs(&run, self.now);
                self.running.push(run.command);
            }
            Effect::Say(_, text) => assert_one_line(&text),
            Effect::Guard(watch, under) => {
                for word in [Word::Watch(watch), Word::LockContext(under)] {
                    let packet = word.encode();
                    assert!(packet.len() <= PACKET_MAX, "{} bytes", packet.len());
                    assert_eq!(Word::decode(&packet), Some(word));
                }
            }
            Effect::Exit(_) => return false,
            Effect::Announce
            | Effect::Extend(..)
            | Effect::Kill(_)
            | Effect::ReplaceGuard
            | Effect::KillService => {}
        }
        true
    }
}

/// Checks that the kernel would take the environment of a command.
fn runs(run: &Run, now: Instant) {
    let commands = Commands {
        check: Some("true".to_owned()),
        start: "true".to_owned(),
        stop: "true".to_owned(),
        last_resort: Some("true".to_owned()),
        key: "web".to_owned(),
        token: "alpha".to_owned(),
    };
    let command = commands.prepare(run, None, now);
    for (name, value) in command.get_envs() {
        let value = value.map(OsStr::as_encoded_bytes).unwrap_or_default();
        let name = name.display();
        assert!(!value.contains(&0), "{name} has a zero byte");
        assert!(
            value.len() <= VARIABLE_BYTES_MAX,
            "{name} has {} bytes",
            value.len()
        );
    }
}
