//! The hosts of the clients: their boots and clocks.

use super::*;

/// A host, as each of its clients knows it.
#[derive(Clone, Debug)]
pub(super) struct Host {
    number: usize,
    boot: u64,
    ppm: i64,
    offset: Time,
    /// The clock has a name.
    is_named: bool,
}

impl Host {
    pub(super) fn new(number: usize, random: &mut Random) -> Host {
        let ppm = match random.below(4) {
            0 => DRIFT_PPM as i64,
            1 => -(DRIFT_PPM as i64),
            _ => random.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64,
        };
        let (boot, offset) = (random.below(1 << 40), random.below(1_000 * QUARTER));
        Host { number, boot, ppm, offset, is_named: !random.one_in(8) }
    }

    /// Returns the name of the clock, blank for one without a name.
    pub(super) fn clock(&self) -> String {
        let name = format!("{}.{}", self.number, self.boot);
        if self.is_named { name } else { String::new() }
    }
}

impl Client {
    pub(super) fn local(&self, at: Time) -> Instant {
        let at = i128::from(at + self.host.offset);
        let micros = at + at * i128::from(self.host.ppm) / 1_000_000;
        Instant::from_boot(Duration::from_micros(micros as u64))
    }

    /// The true time at which the clock shows that instant, not before.
    pub(super) fn true_time(&self, at: Instant) -> Time {
        let local = at.since_boot().as_micros() as i128;
        let at = local * 1_000_000 / i128::from(1_000_000 + self.host.ppm) + 1;
        (at as u64).saturating_sub(self.host.offset)
    }
}

/// Draws which clients are on the host of an earlier one.
pub(super) fn share(clients: &mut [Client], random: &mut Random) {
    for id in 1..clients.len() {
        if random.one_in(3) {
            clients[id].host = clients[random.below(id as u64) as usize].host.clone();
        }
    }
}

impl Simulation {
    /// The host of a client is killed, and boots again later.
    pub(super) fn reboot(&mut self, id: usize) {
        let (number, offset) = (self.clients[id].host.number, self.random.below(1_000 * QUARTER));
        for other in 0..self.clients.len() {
            if self.clients[other].host.number != number {
                continue;
            }
            self.let_go(other);
            let client = &mut self.clients[other];
            (client.host.boot, client.host.offset) = (client.host.boot + 1, offset);
            client.process = None;
            if other != id && !client.is_done {
                let later = self.now + self.random.below(LIFE);
                self.act_at(other, later);
            }
        }
    }
}
