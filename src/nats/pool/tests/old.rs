//! The policy before [`Candidates`](super::Candidates): two seconds for one opening, shared
//! between the servers and again between the addresses of a name.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::super::Failure;
use super::network::{Plan, Policy, at};
use crate::core::Instant;

const OPEN_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(750);
const ATTEMPT_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Each server with its addresses.
pub(super) struct Old {
    servers: Vec<Vec<SocketAddr>>,
    /// How many of the servers were tried, and of the addresses of the present one.
    tried: (usize, usize),
    open_by: Instant,
    wait: Duration,
    not_before: Instant,
    limit: Instant,
}

impl Old {
    pub(super) fn new(servers: &[&[&str]]) -> Old {
        let addresses = |server: &&[&str]| server.iter().map(|it| it.parse().unwrap()).collect();
        Old {
            servers: servers.iter().map(addresses).collect(),
            tried: (0, 0),
            open_by: at(0).after(OPEN_WITHIN),
            wait: BACKOFF_MIN,
            not_before: at(0),
            limit: at(0),
        }
    }

    fn back_off(&mut self, now: Instant, random: u64) {
        let half = self.wait / 2;
        let micros = u64::try_from(half.as_micros()).unwrap() + 1;
        self.not_before = now.after(half + Duration::from_micros(random % micros));
        self.wait = (self.wait * 2).min(BACKOFF_MAX);
    }
}

impl Policy for Old {
    fn next(&mut self, now: Instant) -> Plan {
        let mut begin = now.max(self.not_before);
        if begin >= self.open_by {
            begin = begin.max(self.open_by.after(PAUSE));
            self.open_by = begin.after(OPEN_WITHIN);
        }
        let count = self.servers.len();
        let (server, address) = (self.tried.0 % count, self.tried.1);
        if address == 0 {
            let left = u32::try_from(count - server).unwrap();
            let share = (self.open_by.since(begin) / left).clamp(ATTEMPT_MIN, OPEN_WITHIN);
            self.limit = begin.after(share).min(self.open_by);
        }
        let addresses = &self.servers[server];
        let within = self.limit.since(begin);
        let left = u32::try_from(addresses.len() - address).unwrap();
        Plan {
            id: 0,
            address: Some(addresses[address]),
            not_before: begin,
            info_within: if left > 1 { within / left } else { within },
            within,
        }
    }

    fn resolved(&mut self, _: u64, _: &[IpAddr], _: Instant) {}

    fn failed(&mut self, _: u64, _: Failure, accepted: bool, now: Instant, random: u64) {
        let (server, address) = self.tried;
        let addresses = self.servers[server % self.servers.len()].len();
        if !accepted && address + 1 < addresses {
            self.tried = (server, address + 1);
            return;
        }
        self.tried = (server + 1, 0);
        if self.tried.0.is_multiple_of(self.servers.len()) {
            self.back_off(now, random);
        }
    }

    fn connected(&mut self, _: u64, _: Duration, now: Instant) {
        self.tried = (self.tried.0 + 1, 0);
        self.open_by = now;
    }

    fn answered(&mut self, _: u64) {}

    /// Leaves only for another name.
    fn unanswered(&mut self, _: u64, _: Instant, now: Instant) -> bool {
        self.open_by = now.after(OPEN_WITHIN);
        self.servers.len() > 1
    }

    fn ended(&mut self, _: u64, age: Duration, now: Instant, random: u64) {
        match age < BACKOFF_MAX {
            true => self.back_off(now, random),
            false => self.wait = BACKOFF_MIN,
        }
        self.open_by = now.after(OPEN_WITHIN);
    }
}
