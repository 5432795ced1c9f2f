//! Hints of changes, and processes that are stopped during a request.

use super::*;

impl Simulation {
    /// Tells the processes that watch a key of its change. Some hints are lost, late, or repeated.
    pub(super) fn send_hints(&mut self, changed: Option<(String, Input)>) {
        let Some((key, hint)) = changed else { return };
        for id in 0..self.clients.len() {
            if !self.clients[id].watched.contains(&key) || self.random.one_in(5) {
                continue;
            }
            let process = self.clients[id].process_number;
            for _ in 0..if self.random.one_in(10) { 2 } else { 1 } {
                let late = if self.random.one_in(10) { LIFE } else { QUARTER / 10 };
                let at = self.now + self.random.below(late);
                self.at(at, Event::Hint(id, process, hint.clone()));
            }
        }
    }

    /// A process reads hints while it rests.
    pub(super) fn take_hint(&mut self, id: usize, process: u64, hint: Input) {
        let client = &mut self.clients[id];
        if client.process.is_none() || client.process_number != process {
            return;
        }
        if !client.is_resting {
            return client.heard.push_back(hint);
        }
        let now = client.local(self.now);
        self.handle(id, hint, now);
        self.listen(id);
        self.act(id);
    }

    /// Another server leads, whose clock differs: by less than half of the shortest lifetime.
    pub(super) fn change_clock(&mut self) {
        if self.random.one_in(2) {
            self.bucket.ahead = self.random.below((LIFE + self.rough.margin) / 2);
        }
    }

    /// Draws whether the process is stopped while its request is on the way.
    pub(super) fn stop_during_request(&mut self, id: usize) {
        if !self.is_calm() && self.random.one_in(if self.rough.is_rough { 15 } else { 40 }) {
            self.clients[id].stopped_until = self.now + self.random.below(2 * LIFE);
        }
    }

    /// Returns an event, unless it is for a process that is stopped: then it comes later.
    pub(super) fn unless_stopped(&mut self, event: Event) -> Option<Event> {
        let (Event::Reply(id, ..) | Event::Cut(id, ..) | Event::Hint(id, ..)) = &event else {
            return Some(event);
        };
        let until = self.clients[*id].stopped_until;
        if self.now >= until {
            return Some(event);
        }
        let at = until + self.random.below(3);
        self.at(at, event);
        None
    }
}
