//! Seats: how many agents may be active at once, each under a lock of its own.
//!
//! A group of agents has K seats: K keys, numbered from 0. An agent has at most one seat. Each seat
//! is a lock with its own term, so the loss of a seat affects no other agent. The key of seat 0 is
//! the key of the group itself, so a group of one seat can get more while its agents are restarted
//! one after the other.

use displaydoc::Display;
use serde::{Deserialize, Serialize};

/// The largest number of seats: an agent on standby reads each of their keys every R.
pub const SEATS_MAX: u32 = 32;

/// The number of a seat, from 0.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[displaydoc("{0}")]
pub struct Seat(pub u32);

impl Seat {
    /// The only seat of a group of one seat.
    pub const FIRST: Seat = Seat(0);

    /// Returns all seats of a group with this number of seats.
    pub fn all(seats: u32) -> impl Iterator<Item = Seat> {
        (0..seats).map(Seat)
    }

    /// Returns the place of the seat in a list of all seats.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the key of this seat of the group with this `key`.
    pub fn key(self, key: &str) -> String {
        match self {
            Seat::FIRST => key.to_owned(),
            Seat(number) => format!("{key}.{number}"),
        }
    }
}
