//! Hints, which tell an agent that a key has changed. They may be lost, late, or come twice.

use putex::core::event::Event;
use putex::core::record::Revision;
use putex::core::seat::Seat;

use super::agent::AgentEvent;
use super::clock::nanos;
use super::faults::Kind;
use super::world::{Happening, World};

impl World<'_> {
    /// Tells all who listen that the key of a seat has changed.
    pub fn hint_all(&mut self, seat: Seat, revision: u64) {
        for agent in 0..self.agents.len() {
            let other = &self.agents[agent];
            if !other.alive || !other.link.open || self.sites[other.site].cut_in > 0 {
                continue;
            }
            let (site, link) = (other.site, other.link.link);
            if seat.0 >= self.sites[site].seats {
                continue;
            }
            if self.strikes(Kind::HintLost) {
                continue;
            }
            let mut wait = self.travel();
            if self.strikes(Kind::HintLate) {
                let t = nanos(self.sites[site].timing.lock_time());
                wait += self.rng(Kind::HintLate).below(t);
            }
            let times = 1 + u64::from(self.strikes(Kind::HintTwice));
            for again in 0..times {
                let event = AgentEvent::Hint(link, seat, revision);
                self.after(wait * (1 + again), Happening::Agent(agent, event));
            }
        }
    }

    pub fn hint(&mut self, id: usize, number: u64, seat: Seat, revision: u64) {
        let link = &mut self.agents[id].link;
        if !link.open || link.link != number || revision <= link.seen[seat.index()] {
            return;
        }
        if link.waiting.is_some() {
            let hinted = &mut link.hinted[seat.index()];
            *hinted = revision.max(*hinted);
            return;
        }
        self.tell_hint(id, seat, revision);
    }

    fn tell_hint(&mut self, id: usize, seat: Seat, revision: u64) {
        self.tell(id, Event::Hint(seat, Some(Revision(revision))));
    }

    /// Follows the hints that came while a request was under way.
    pub fn follow_hints(&mut self, id: usize) {
        let link = &mut self.agents[id].link;
        let (hinted, seen) = (std::mem::take(&mut link.hinted), link.seen);
        for seat in Seat::all(self.sc.seats).filter(|it| hinted[it.index()] > seen[it.index()]) {
            if self.agents[id].link.waiting.is_some() {
                self.agents[id].link.hinted[seat.index()] = hinted[seat.index()];
            } else {
                self.tell_hint(id, seat, hinted[seat.index()]);
            }
        }
    }
}
