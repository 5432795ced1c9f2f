//! The messages between agent and guard: one packet of JSON a message.
//!
//! Both ends are the same program as a rule, but not after an upgrade: [`VERSION`] stands in the
//! first message of an agent and in every report. The message `Stop` and the reports of version 1
//! stay for ever: an agent tells a guard of another version to stop the service, and waits until it
//! is down. Packets contain the names of variants and fields, also of those in
//! [`crate::core::protocol`], unless serde renames them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::Commands;
use crate::core::{DeviceUse, GuardConfig, GuardReport, Instant, Timing, ToGuard};

/// Version of the messages, and of the notes of a guard, which the next guard has to read. A guard
/// of another version is only told to stop.
pub const VERSION: u64 = 7;

/// Largest packet. The socket of a usual host has room for it.
pub const PACKET_MAX: usize = 192 * 1024;

/// Room in the first packet for the path of the private directory, which is filled in later.
const DIR_MAX: usize = 8 * 1024;

/// The instant with the longest form in a packet.
const LATEST: Instant = Instant::from_boot(Duration::MAX);

/// The settings of an agent, as far as its guard has to know them: the first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The private directory of this agent and its guard.
    pub dir: String,
    /// R, F, C and drift.
    pub timing: Timing,
    /// The commands; the guard does not run the health check.
    pub commands: Commands,
    /// The watchdog device, if there is one, and whether it is required.
    pub device: Option<(String, bool)>,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
    /// The log goes to syslog.
    pub syslog: bool,
    /// The clock of the agent when the message was sent; filled in by [`encode`]. Instants are of
    /// one host, but each time namespace of the host has a clock of its own.
    pub clock: Instant,
}

/// A packet of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPacket {
    /// [`ToGuard::Hello`], with all the settings that the guard needs.
    Hello(Box<Settings>),
    /// The first message of an agent of another version.
    OtherVersion,
    /// Any other message.
    Message(ToGuard),
}

/// The JSON of [`AgentPacket`]. Settings of another version are not read.
#[derive(Serialize, Deserialize)]
enum AgentJson<S, M> {
    Hello(u64, S),
    // The name of the variant in version 1.
    #[serde(rename = "Word")]
    Message(M),
}

/// A packet of a guard.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardPacket {
    /// Version of the guard, and its report.
    Report(u64, GuardReport),
    /// Comes with the descriptor of `cgroup.kill`, for use where there is no guard that could use
    /// it.
    KillFile,
    /// Comes with the reading end of start's output, which the agent keeps for the next guard: a
    /// service that writes to it would end when the last reader ends.
    Output,
}

/// Returns a message that is sent now as a packet; the first message carries the settings.
pub fn encode(message: &ToGuard, settings: &Settings, now: Instant) -> Vec<u8> {
    let packet = match message {
        ToGuard::Hello(_) => AgentJson::Hello(VERSION, Settings { clock: now, ..settings.clone() }),
        ToGuard::Grant(_) | ToGuard::AssertStart | ToGuard::Stop(_) | ToGuard::AskReport => {
            AgentJson::Message(message)
        }
    };
    // Every value in a packet has a form in JSON.
    serde_json::to_vec(&packet).unwrap_or_default()
}

/// Returns the message of a packet; `None` when the packet is not one of an agent.
pub fn decode(packet: &[u8]) -> Option<AgentPacket> {
    Some(match serde_json::from_slice(packet).ok()? {
        AgentJson::Hello(VERSION, settings) => {
            AgentPacket::Hello(serde_json::from_value(settings).ok()?)
        }
        AgentJson::Hello(_, _) => AgentPacket::OtherVersion,
        AgentJson::Message(message) => AgentPacket::Message(message),
    })
}

impl Settings {
    /// Returns whether the guard can be sent these settings.
    pub fn fits_a_packet(&self) -> bool {
        encode(&ToGuard::Hello(self.config()), self, LATEST).len() + DIR_MAX <= PACKET_MAX
    }

    /// Returns the settings that the guard decides by.
    pub fn config(&self) -> GuardConfig {
        GuardConfig {
            timing: self.timing,
            last_resort: self.commands.last_resort.is_some(),
            device: match self.device {
                None => DeviceUse::None,
                Some((_, false)) => DeviceUse::Optional,
                Some((_, true)) => DeviceUse::Required,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        Grant, Incarnation, LockContext, Revision, ServiceState, Stake, StartState, StopOrder,
    };

    const NOW: Instant = Instant::from_boot(Duration::from_secs(7));

    fn settings() -> Settings {
        let timing = Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe");
        Settings {
            dir: "/run/putex/.agents/web-1".to_owned(),
            timing,
            commands: Commands {
                check: None,
                start: "svc start".to_owned(),
                stop: "svc stop".to_owned(),
                last_resort: Some("reboot -f".to_owned()),
                environment: Some(vec![("A".to_owned(), "b".to_owned())]),
                on_change: None,
                key: "web".to_owned(),
                token: "alpha".to_owned(),
            },
            device: Some(("/dev/watchdog".to_owned(), true)),
            level: 3,
            syslog: true,
            clock: NOW,
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
                seat: None,
            },
            valid_until: at(1500),
            dead_by: at(1970),
        }
    }

    fn messages() -> Vec<ToGuard> {
        let order = |stake| StopOrder { dead_by: grant().dead_by, stake, context: grant().context };
        vec![
            ToGuard::Hello(settings().config()),
            ToGuard::Grant(grant()),
            ToGuard::AssertStart,
            ToGuard::Stop(order(Stake::Lock)),
            ToGuard::Stop(order(Stake::Assurance)),
            ToGuard::AskReport,
        ]
    }

    #[test]
    fn the_guard_receives_what_the_agent_says() {
        for message in messages() {
            let received = decode(&encode(&message, &settings(), NOW));
            let expected = match message {
                ToGuard::Hello(_) => AgentPacket::Hello(Box::new(settings())),
                ToGuard::Grant(_)
                | ToGuard::AssertStart
                | ToGuard::Stop(_)
                | ToGuard::AskReport => AgentPacket::Message(message),
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
            for why in [None, Some("no device".to_owned())] {
                let (unfit, start_waits, start_failure) = (why.clone(), why.is_some(), why);
                let report = GuardReport {
                    heard: 7,
                    service: service.clone(),
                    unfit,
                    start_failure,
                    start_waits,
                };
                let said = GuardPacket::Report(VERSION, report);
                let packet = serde_json::to_vec(&said).expect("it has a form in JSON");
                assert_eq!(serde_json::from_slice(&packet).ok(), Some(said));
                for length in 0..packet.len() {
                    let read = serde_json::from_slice::<GuardPacket>(&packet[..length]);
                    assert!(read.is_err(), "{length}");
                }
            }
        }
    }

    /// Messages between agents and guards of version 1 and those of every later one.
    #[test]
    fn messages_that_stay_for_ever_are_sent_and_read_as_they_were() {
        let context = r#"{"term":8,"epoch":"e1","previous":null}"#;
        let dead_by = r#"{"secs":1,"nanos":970000000}"#;
        for (stake, name) in [(Stake::Lock, "Lock"), (Stake::Assurance, "Assurance")] {
            let Grant { dead_by: at, context: under, .. } = grant();
            let message = ToGuard::Stop(StopOrder { dead_by: at, stake, context: under });
            let order = format!(r#""dead_by":{dead_by},"stake":"{name}","context":{context}"#);
            let text = format!(r#"{{"Word":{{"Stop":{{{order}}}}}}}"#);
            assert_eq!(String::from_utf8(encode(&message, &settings(), NOW)), Ok(text.clone()));
            assert_eq!(decode(text.as_bytes()), Some(AgentPacket::Message(message)));
        }
        let holder = "340282366920938463463374607431768211448";
        let times = format!(r#""valid_until":{{"secs":1,"nanos":500000000}},"dead_by":{dead_by}"#);
        let granted = format!(r#"{{"holder":{holder},"context":{context},{times}}}"#);
        let up = |start: &str| format!(r#"{{"Up":[{granted},"{start}"]}}"#);
        for (service, name) in [
            (ServiceState::Unknown, r#""Unknown""#.to_owned()),
            (ServiceState::Down, r#""Down""#.to_owned()),
            (ServiceState::Up(grant(), StartState::NotRun), up("NotRun")),
            (ServiceState::Up(grant(), StartState::FirstRuns), up("FirstRuns")),
            (ServiceState::Up(grant(), StartState::Ended), up("Ended")),
            (ServiceState::Stopping { overdue: true }, r#"{"Stopping":{"overdue":true}}"#.into()),
        ] {
            let unfit = Some("why".to_owned());
            let report =
                GuardReport { heard: 7, service, unfit, start_failure: None, start_waits: false };
            let packet = GuardPacket::Report(1, report);
            let text = format!(r#"{{"Report":[1,{{"heard":7,"service":{name},"unfit":"why"}}]}}"#);
            assert_eq!(serde_json::to_string(&packet).ok().as_ref(), Some(&text));
            assert_eq!(serde_json::from_str(&text).ok(), Some(packet));
        }
    }

    #[test]
    fn a_packet_that_was_cut_short_is_no_message() {
        for message in messages() {
            let packet = encode(&message, &settings(), NOW);
            for length in 0..packet.len() {
                assert_eq!(decode(&packet[..length]), None, "{message:?} at {length}");
            }
        }
    }

    #[test]
    fn an_agent_of_another_version_is_known_as_one() {
        let packet = br#"{"Hello":[9,{"what":["nobody","knows"]}]}"#;
        assert_eq!(decode(packet), Some(AgentPacket::OtherVersion));
    }
}
