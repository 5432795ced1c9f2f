//! What agent and guard tell each other, as the bytes of one packet each.
//!
//! Numbers are little-endian; a text has its length before it. Both ends are the same program
//! as a rule, but not after an upgrade: [`VERSION`] stands in the first word of an agent and in
//! every report. The words `Stop` and `Report` of version 1 stay for ever: an agent tells a
//! guard of another version to stop the service, and waits until it is down.

use std::time::Duration;

use crate::command::Commands;
use crate::core::command::LockContext;
use crate::core::level::Level;
use crate::core::protocol::{
    DeviceUse, Grant, GuardConfig, GuardReport, ServiceState, StartState, StopOrder, ToGuard,
};
use crate::core::record::{Incarnation, Revision};
use crate::core::stop::Stake;
use crate::core::time::Instant;
use crate::core::timing::Timing;

/// Version of the words. A guard of another version is only told to stop.
pub const VERSION: u64 = 1;

/// Largest packet: commands of 128 KiB do not fit, and never did into the arguments of the
/// agent.
pub const PACKET_MAX: usize = 192 * 1024;

/// How an agent was set up, as far as its guard has to know: the first word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The private directory of this agent and its guard.
    pub dir: String,
    /// R, F, C and drift.
    pub timing: Timing,
    /// The key.
    pub key: String,
    /// The agent's token.
    pub token: String,
    /// The start command.
    pub start: String,
    /// The stop command.
    pub stop: String,
    /// The last resort, if there is one.
    pub last_resort: Option<String>,
    /// The watchdog device, if there is one, and whether it is required.
    pub device: Option<(String, bool)>,
    /// Run with real-time priority.
    pub realtime: bool,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
    /// The log goes to syslog.
    pub syslog: bool,
}

/// A packet of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPacket {
    /// [`ToGuard::Hello`], with all that the guard has to know.
    Hello(Box<Settings>),
    /// The first word of an agent of another version.
    OtherVersion,
    /// Any other word.
    Word(ToGuard),
}

/// Returns a word as a packet; the first word carries the settings.
#[must_use]
pub fn encode(word: &ToGuard, settings: &Settings) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(128));
    match word {
        ToGuard::Hello(_) => {
            out.number(0);
            settings.write(&mut out);
        }
        ToGuard::Stop(order) => {
            out.number(1);
            out.instant(order.dead_by);
            out.number(u64::from(order.stake == Stake::Lock));
            out.lock_context(&order.context);
        }
        ToGuard::Grant(grant) => {
            out.number(2);
            out.grant(grant);
        }
        ToGuard::AssertStart => out.number(3),
    }
    out.0
}

/// Returns the word of a packet; `None` when it is none.
#[must_use]
pub fn decode(packet: &[u8]) -> Option<AgentPacket> {
    let mut input = Reader(packet);
    let word = match input.number()? {
        0 if input.number()? != VERSION => return Some(AgentPacket::OtherVersion),
        0 => {
            return Settings::read(&mut input).map(Box::new).map(AgentPacket::Hello);
        }
        1 => ToGuard::Stop(StopOrder {
            dead_by: input.instant()?,
            stake: match input.number()? {
                1 => Stake::Lock,
                _ => Stake::Assurance,
            },
            context: input.lock_context()?,
        }),
        2 => ToGuard::Grant(input.grant()?),
        3 => ToGuard::AssertStart,
        _ => return None,
    };
    Some(AgentPacket::Word(word))
}

/// Begins a packet that is a line of the guard's log, where a report has the version.
const LINE: u64 = 0;

/// Returns a line that the guard has logged as a packet; the agent shows the last one to the
/// service manager.
#[must_use]
pub fn encode_line(level: Level, text: &str) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(16 + text.len()));
    out.number(LINE);
    out.number(level as u64);
    out.0.extend_from_slice(text.as_bytes());
    out.0
}

/// Returns the line of a packet; `None` when it is none.
#[must_use]
pub fn decode_line(packet: &[u8]) -> Option<(Level, String)> {
    let mut input = Reader(packet);
    if input.number()? != LINE {
        return None;
    }
    let level = input.number()?;
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug];
    let level = levels.into_iter().find(|known| *known as u64 == level)?;
    Some((level, String::from_utf8(input.0.to_vec()).ok()?))
}

/// Returns a report as a packet.
#[must_use]
pub fn encode_report(report: &GuardReport) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(128));
    out.number(VERSION);
    out.number(report.heard);
    match &report.service {
        ServiceState::Unknown => out.number(0),
        ServiceState::Down => out.number(1),
        ServiceState::Up(grant, start) => {
            out.number(2);
            out.grant(grant);
            out.number(match start {
                StartState::NotRun => 0,
                StartState::FirstRuns => 1,
                StartState::Ended => 2,
            });
        }
        ServiceState::Stopping { overdue } => {
            out.number(3);
            out.number(u64::from(*overdue));
        }
    }
    out.optional(report.unfit.as_deref());
    out.0
}

/// Returns the report of a packet and the version of the guard; `None` when it is none.
#[must_use]
pub fn decode_report(packet: &[u8]) -> Option<(GuardReport, u64)> {
    let mut input = Reader(packet);
    let version = input.number().filter(|version| *version != LINE)?;
    let heard = input.number()?;
    let service = match input.number()? {
        0 => ServiceState::Unknown,
        1 => ServiceState::Down,
        2 => {
            let grant = input.grant()?;
            let start = match input.number()? {
                0 => StartState::NotRun,
                1 => StartState::FirstRuns,
                2 => StartState::Ended,
                _ => return None,
            };
            ServiceState::Up(grant, start)
        }
        3 => ServiceState::Stopping { overdue: input.number()? == 1 },
        _ => return None,
    };
    let unfit = input.optional()?;
    let report = GuardReport { heard, service, unfit };
    Some((report, version))
}

impl Settings {
    /// Returns what the guard decides by.
    #[must_use]
    pub fn config(&self) -> GuardConfig {
        GuardConfig {
            timing: self.timing,
            last_resort: self.last_resort.is_some(),
            device: device_use(self.device.as_ref()),
        }
    }

    /// Returns the commands that the guard runs.
    #[must_use]
    pub fn commands(&self) -> Commands {
        Commands {
            check: None,
            start: self.start.clone(),
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
        for text in [&self.dir, &self.key, &self.token, &self.start, &self.stop] {
            out.text(text);
        }
        out.optional(self.last_resort.as_deref());
        let device = self.device.as_ref();
        out.optional(device.map(|(path, _)| path.as_str()));
        out.number(u64::from(device.is_some_and(|(_, required)| *required)));
        out.number(u64::from(self.realtime));
        out.number(self.level);
        out.number(u64::from(self.syslog));
    }

    /// The version was read before.
    fn read(input: &mut Reader<'_>) -> Option<Settings> {
        let renewal = input.duration()?;
        let mut count = || u32::try_from(input.number()?).ok();
        let (failures, confirmations, drift_ppm) = (count()?, count()?, count()?);
        let timing = Timing::new(renewal, failures, confirmations, drift_ppm).ok()?;
        let (dir, key, token) = (input.text()?, input.text()?, input.text()?);
        let (start, stop) = (input.text()?, input.text()?);
        let last_resort = input.optional()?;
        let (device, required) = (input.optional()?, input.number()? == 1);
        Some(Settings {
            dir,
            timing,
            key,
            token,
            start,
            stop,
            last_resort,
            device: device.map(|path| (path, required)),
            realtime: input.number()? == 1,
            level: input.number()?,
            syslog: input.number()? == 1,
        })
    }
}

/// Returns how a watchdog device is used.
#[must_use]
pub fn device_use(device: Option<&(String, bool)>) -> DeviceUse {
    match device {
        None => DeviceUse::None,
        Some((_, false)) => DeviceUse::Optional,
        Some((_, true)) => DeviceUse::Required,
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
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

    fn lock_context(&mut self, context: &LockContext) {
        self.number(context.term.map_or(0, |term| term.0));
        self.optional(context.epoch.as_deref());
        self.optional(context.previous.as_deref());
    }

    fn grant(&mut self, grant: &Grant) {
        self.0.extend_from_slice(&grant.holder.0.to_le_bytes());
        self.lock_context(&grant.context);
        self.instant(grant.valid_until);
        self.instant(grant.dead_by);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
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

    fn lock_context(&mut self) -> Option<LockContext> {
        Some(LockContext {
            term: Some(self.number()?).filter(|term| *term > 0).map(Revision),
            epoch: self.optional()?,
            previous: self.optional()?,
        })
    }

    fn grant(&mut self) -> Option<Grant> {
        let (holder, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(Grant {
            holder: Incarnation(u128::from_le_bytes(*holder)),
            context: self.lock_context()?,
            valid_until: self.instant()?,
            dead_by: self.instant()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        Settings {
            dir: "/run/putex/.agents/web-1".to_owned(),
            timing,
            key: "web".to_owned(),
            token: "alpha".to_owned(),
            start: "svc start".to_owned(),
            stop: "svc stop".to_owned(),
            last_resort: Some("reboot -f".to_owned()),
            device: Some(("/dev/watchdog".to_owned(), true)),
            realtime: true,
            level: 3,
            syslog: true,
        }
    }

    fn grant() -> Grant {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        Grant {
            holder: Incarnation(u128::MAX - 7),
            context: LockContext {
                term: Some(Revision(8)),
                epoch: Some("e1".to_owned()),
                previous: None,
            },
            valid_until: at(1500),
            dead_by: at(1970),
        }
    }

    fn words() -> Vec<ToGuard> {
        let order = |stake| StopOrder { dead_by: grant().dead_by, stake, context: grant().context };
        vec![
            ToGuard::Hello(settings().config()),
            ToGuard::Grant(grant()),
            ToGuard::AssertStart,
            ToGuard::Stop(order(Stake::Lock)),
            ToGuard::Stop(order(Stake::Assurance)),
        ]
    }

    #[test]
    fn the_guard_receives_what_the_agent_says() {
        for word in words() {
            let received = decode(&encode(&word, &settings()));
            let expected = match word {
                ToGuard::Hello(_) => AgentPacket::Hello(Box::new(settings())),
                ToGuard::Grant(_) | ToGuard::AssertStart | ToGuard::Stop(_) => {
                    AgentPacket::Word(word)
                }
            };
            assert_eq!(received, Some(expected));
        }
    }

    #[test]
    fn the_agent_receives_what_the_guard_reports() {
        let services = [
            ServiceState::Unknown,
            ServiceState::Down,
            ServiceState::Up(grant(), StartState::NotRun),
            ServiceState::Up(grant(), StartState::FirstRuns),
            ServiceState::Up(grant(), StartState::Ended),
            ServiceState::Stopping { overdue: false },
            ServiceState::Stopping { overdue: true },
        ];
        for service in services {
            for unfit in [None, Some("no device".to_owned())] {
                let report = GuardReport { heard: 7, service: service.clone(), unfit };
                let packet = encode_report(&report);
                assert_eq!(decode_report(&packet), Some((report, VERSION)));
                for length in 0..packet.len() {
                    assert_eq!(decode_report(&packet[..length]), None, "{length}");
                }
            }
        }
    }

    #[test]
    fn a_line_of_the_log_is_no_report() {
        for level in [Level::Error, Level::Warn, Level::Info, Level::Debug] {
            let packet = encode_line(level, "stop failed");
            assert_eq!(decode_line(&packet), Some((level, "stop failed".to_owned())));
            assert_eq!(decode_report(&packet), None);
        }
        let report = GuardReport { heard: 0, service: ServiceState::Down, unfit: None };
        assert_eq!(decode_line(&encode_report(&report)), None);
    }

    #[test]
    fn a_packet_that_was_cut_short_is_no_word() {
        for word in words() {
            let packet = encode(&word, &settings());
            for length in 0..packet.len() {
                assert_eq!(decode(&packet[..length]), None, "{word:?} at {length}");
            }
        }
    }

    #[test]
    fn an_agent_of_another_version_is_known_as_one() {
        let mut packet = encode(&words()[0], &settings());
        packet[8] = 9;
        assert_eq!(decode(&packet), Some(AgentPacket::OtherVersion));
    }
}
