//! What agent and guard say to each other, as the bytes of one packet each.
//!
//! Numbers are little-endian; a text has its length before it. Both ends are the
//! same program as a rule, but not after an upgrade: [`VERSION`] says whether they
//! understand each other.

use std::time::Duration;

use crate::command::Commands;
use crate::core::command::{Command, LockContext};
use crate::core::guard::{Fence, Watch};
use crate::core::record::Revision;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// Version of these words. A guard of another version is not spoken to.
pub const VERSION: u64 = 2;

/// Largest packet: three commands of 128 KiB do not fit, and never did into the
/// arguments of the agent.
pub const PACKET_MAX: usize = 192 * 1024;

/// What an agent says to its guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Who the agent is and how it was set up. The first word.
    SetUp(Box<SetUp>),
    /// How long the service may run.
    Watch(Watch),
    /// What commands are told of the lock.
    LockContext(LockContext),
    /// A command of the agent runs in this process group.
    Group(Command, i32),
    /// The agent's stop command, whose group was told, has leave to begin.
    StopBegins,
    /// All that start ever left behind is to be killed.
    KillService,
    /// The agent ends although the service may run.
    GivenUp,
}

/// How an agent was set up, as far as its guard has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// Where another life of the agent finds the guard.
    pub name: String,
    /// R, F, C and drift.
    pub timing: Timing,
    /// The key.
    pub key: String,
    /// The agent's token.
    pub token: String,
    /// The stop command.
    pub stop: String,
    /// The last resort, if there is one.
    pub last_resort: Option<String>,
    /// The watchdog device, if there is one, and whether it is required.
    pub device: Option<(String, bool)>,
    /// Where the control group of start is, if it has one.
    pub cage: Option<String>,
    /// Run with real-time priority.
    pub realtime: bool,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
    /// What it says goes to syslog.
    pub syslog: bool,
}

/// What a guard says to its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It watches; so it was told last. A start of a life before that was killed and has
    /// not ended was in this process group, and its first process comes with the packet.
    Ready(Watch, LockContext, Option<i32>),
    /// It has begun to end the service, or runs another command for that.
    Acting(Watch),
    /// The service may be started.
    Armed,
    /// The service must not be started; why.
    Unfit(String),
    /// Something the operator should know; a warning if so.
    Remark(bool, String),
}

impl Word {
    /// Returns the word as a packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(64));
        match self {
            Word::SetUp(set_up) => {
                out.number(0);
                set_up.write(&mut out);
            }
            Word::Watch(watch) => {
                out.number(1);
                out.watch(*watch);
            }
            Word::LockContext(under) => {
                out.number(2);
                out.under(under);
            }
            Word::Group(command, group) => {
                out.number(3);
                out.number(*command as u64);
                out.group(*group);
            }
            Word::KillService => out.number(4),
            Word::GivenUp => out.number(5),
            Word::StopBegins => out.number(6),
        }
        out.0
    }

    /// Returns the word of a packet; `None` when it is none.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Word> {
        let mut input = Reader(packet);
        Some(match input.number()? {
            0 => Word::SetUp(Box::new(SetUp::read(&mut input)?)),
            1 => Word::Watch(input.watch()?),
            2 => Word::LockContext(input.under()?),
            3 => {
                let command = usize::try_from(input.number()?).ok()?;
                Word::Group(*Command::ALL.get(command)?, input.group()?)
            }
            4 => Word::KillService,
            5 => Word::GivenUp,
            6 => Word::StopBegins,
            _ => return None,
        })
    }
}

impl SetUp {
    /// What the guard runs: it never starts anything.
    pub(super) fn commands(&self) -> Commands {
        Commands {
            check: None,
            start: String::new(),
            stop: self.stop.clone(),
            last_resort: self.last_resort.clone(),
            key: self.key.clone(),
            token: self.token.clone(),
        }
    }

    fn write(&self, out: &mut Writer) {
        out.number(VERSION);
        let timing = self.timing;
        out.duration(timing.renewal());
        out.number(u64::from(timing.failures()));
        out.number(u64::from(timing.confirmations()));
        out.number(u64::from(timing.drift_ppm()));
        for text in [&self.name, &self.key, &self.token, &self.stop] {
            out.text(text);
        }
        out.optional(self.last_resort.as_deref());
        let device = self.device.as_ref();
        out.optional(device.map(|(path, _)| path.as_str()));
        out.number(u64::from(device.is_some_and(|(_, required)| *required)));
        out.optional(self.cage.as_deref());
        out.number(u64::from(self.realtime));
        out.number(self.level);
        out.number(u64::from(self.syslog));
    }

    fn read(input: &mut Reader<'_>) -> Option<SetUp> {
        if input.number()? != VERSION {
            return None;
        }
        let renewal = input.duration()?;
        let mut count = || u32::try_from(input.number()?).ok();
        let (failures, confirmations, drift_ppm) = (count()?, count()?, count()?);
        let timing = Timing::new(renewal, failures, confirmations, drift_ppm).ok()?;
        let (name, key) = (input.text()?, input.text()?);
        let (token, stop) = (input.text()?, input.text()?);
        let last_resort = input.optional()?;
        let (device, required) = (input.optional()?, input.number()? == 1);
        Some(SetUp {
            name,
            timing,
            key,
            token,
            stop,
            last_resort,
            device: device.map(|path| (path, required)),
            cage: input.optional()?,
            realtime: input.number()? == 1,
            level: input.number()?,
            syslog: input.number()? == 1,
        })
    }
}

impl Answer {
    /// Returns the answer as a packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(64));
        match self {
            Answer::Ready(watch, under, start) => {
                out.number(0);
                out.watch(*watch);
                out.under(under);
                if let Some(start) = start {
                    out.group(*start);
                }
            }
            Answer::Acting(watch) => {
                out.number(1);
                out.watch(*watch);
            }
            Answer::Armed => out.number(2),
            Answer::Unfit(why) => {
                out.number(3);
                out.text(why);
            }
            Answer::Remark(warning, text) => {
                out.number(4);
                out.number(u64::from(*warning));
                out.text(text);
            }
        }
        out.0
    }

    /// Returns the answer of a packet; `None` when it is none.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Answer> {
        let mut input = Reader(packet);
        Some(match input.number()? {
            0 => {
                let (watch, under) = (input.watch()?, input.under()?);
                // It comes last: before an upgrade guards said nothing of it.
                let dies = !input.0.is_empty();
                let start = if dies { Some(input.group()?) } else { None };
                Answer::Ready(watch, under, start)
            }
            1 => Answer::Acting(input.watch()?),
            2 => Answer::Armed,
            3 => Answer::Unfit(input.text()?),
            4 => Answer::Remark(input.number()? == 1, input.text()?),
            _ => return None,
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn group(&mut self, group: i32) {
        self.number(u64::try_from(group).unwrap_or(0));
    }

    fn duration(&mut self, duration: Duration) {
        self.number(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn instant(&mut self, at: Instant) {
        self.duration(at.since_boot());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn under(&mut self, under: &LockContext) {
        self.number(under.term.map_or(0, |term| term.0));
        self.optional(under.epoch.as_deref());
        self.optional(under.previous.as_deref());
    }

    fn watch(&mut self, watch: Watch) {
        let Watch::MayRun(fence) = watch else {
            return self.number(0);
        };
        self.number(1);
        self.instant(fence.valid_until);
        self.instant(fence.act_at);
        self.instant(fence.stop_until.unwrap_or(NEVER));
        self.instant(fence.dead_by);
        self.number(u64::from(fence.resorted));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// To signal "group 1" would be to signal every process there is.
    fn group(&mut self) -> Option<i32> {
        i32::try_from(self.number()?).ok().filter(|id| *id != 1)
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }

    fn instant(&mut self) -> Option<Instant> {
        self.duration().map(Instant::from_boot)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn optional(&mut self) -> Option<Option<String>> {
        let there = self.number()? == 1;
        let text = self.text()?;
        Some(there.then_some(text))
    }

    fn under(&mut self) -> Option<LockContext> {
        Some(LockContext {
            term: Some(self.number()?).filter(|term| *term > 0).map(Revision),
            epoch: self.optional()?,
            previous: self.optional()?,
        })
    }

    fn watch(&mut self) -> Option<Watch> {
        if self.number()? == 0 {
            return Some(Watch::Down);
        }
        Some(Watch::MayRun(Fence {
            valid_until: self.instant()?,
            act_at: self.instant()?,
            stop_until: Some(self.instant()?).filter(|at| *at < NEVER),
            dead_by: self.instant()?,
            resorted: self.number()? == 1,
        }))
    }
}

/// As late as a packet can say.
const NEVER: Instant = Instant::from_boot(Duration::from_nanos(u64::MAX));

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<Word> {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let fence = Fence {
            act_at: at(1700),
            resorted: true,
            ..Fence::of_lock(at(1500), timing)
        };
        vec![
            Word::SetUp(Box::new(SetUp {
                name: "putex-guard-1".to_owned(),
                timing,
                key: "web".to_owned(),
                token: "alpha".to_owned(),
                stop: "svc stop".to_owned(),
                last_resort: Some("reboot -f".to_owned()),
                device: Some(("/dev/watchdog".to_owned(), true)),
                cage: None,
                realtime: true,
                level: 3,
                syslog: true,
            })),
            Word::Watch(Watch::Down),
            Word::Watch(Watch::MayRun(Fence::of_lock(at(1500), timing))),
            Word::Watch(Watch::MayRun(fence)),
            Word::LockContext(LockContext {
                term: Some(Revision(8)),
                epoch: Some("e1".to_owned()),
                previous: None,
            }),
            Word::Group(Command::Stop, 4711),
            Word::StopBegins,
            Word::KillService,
            Word::GivenUp,
        ]
    }

    #[test]
    fn what_one_end_says_the_other_hears() {
        for word in words() {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        for answer in [
            Answer::Ready(
                Watch::Down,
                LockContext {
                    previous: Some("beta".to_owned()),
                    ..LockContext::default()
                },
                Some(4711),
            ),
            Answer::Ready(Watch::Down, LockContext::default(), None),
            Answer::Acting(Watch::Down),
            Answer::Armed,
            Answer::Unfit("no device".to_owned()),
            Answer::Remark(true, "late".to_owned()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn no_command_runs_in_the_group_that_is_every_process() {
        let group = |id| Word::decode(&Word::Group(Command::Start, id).encode());
        assert_eq!(group(1), None);
        for id in [0, 2, i32::MAX] {
            assert_eq!(group(id), Some(Word::Group(Command::Start, id)));
        }
    }

    #[test]
    fn a_packet_that_was_cut_short_is_no_word() {
        for word in words() {
            let packet = word.encode();
            for length in 0..packet.len() {
                assert_eq!(
                    Word::decode(&packet[..length]),
                    None,
                    "{word:?} at {length}"
                );
            }
        }
    }
}
