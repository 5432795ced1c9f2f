//! The messages to the clients: the locks that they have and let go, and the ends of processes.

use super::*;

impl Simulation {
    /// Takes the messages of an owner to its front.
    pub(super) fn listen(&mut self, id: usize) {
        let told = match self.clients[id].process.as_mut() {
            Some(Process::Lock(owner) | Process::Grab(owner)) => owner.take_messages(),
            Some(Process::Release(_)) | None => Vec::new(),
        };
        for message in told {
            match message {
                ToFront::Granted { valid_until, term, epoch, .. } => {
                    if self.clients[id].holds.is_none() {
                        self.clients[id].command_until = self.now + self.random.below(2 * LIFE);
                    }
                    self.granted(id, (&epoch, term), valid_until);
                }
                ToFront::Lost(_) => {
                    self.let_go(id);
                    let now = self.clients[id].local(self.now);
                    self.handle(id, Input::Done, now);
                }
                ToFront::Ended(End::Overlaps(why)) => {
                    let is_known = self.clients[id].shares_name || self.rough.changes;
                    assert!(is_known, "{id}: {why}");
                }
                ToFront::Waiting { .. } | ToFront::Ended(_) => {}
            }
        }
    }

    /// A client has the lock by a ticket of the bucket of this epoch, which may be lost by now,
    /// until that instant.
    fn granted(&mut self, id: usize, (epoch, term): (&str, u64), valid_until: Instant) {
        let (to, now) = (self.clients[id].true_time(valid_until), self.now);
        let bucket = epoch.parse().expect("the number of a bucket");
        let requester = self.clients[id].requester;
        self.show(format_args!("{id} has {term} of {bucket} until {to}"));
        if to <= now {
            return;
        }
        if !self.is_unreleased(id, (bucket, term)) {
            return;
        }
        // The same term again: it had the lock all the time.
        let same =
            |held: &Held| (held.requester, held.bucket, held.term) == (requester, bucket, term);
        let is_here = bucket == self.bucket.id;
        let from = self.history.iter().filter(|held| same(held) && is_here).map(|it| it.from);
        let from = from.min().unwrap_or(now);
        let same = |held: &Held| same(held) && held.client == id;
        let known = self.history.iter().rposition(same).filter(|_| is_here);
        let held = match known {
            Some(held) => {
                self.history[held].to = self.history[held].to.max(to);
                held
            }
            None => {
                let ticket = self.clients[id].ticket.clone();
                self.history.push(Held { client: id, requester, bucket, term, from, to, ticket });
                self.history.len() - 1
            }
        };
        self.clients[id].holds = Some(held);
    }

    /// The client has the lock no longer than until now.
    pub(super) fn let_go(&mut self, id: usize) {
        if let Some(held) = self.clients[id].holds.take() {
            self.history[held].to = self.history[held].to.min(self.now);
        }
    }

    /// The process of a client has ended.
    pub(super) fn ended(&mut self, id: usize) {
        let Some(process) = self.clients[id].process.take() else { return };
        let is_calm = self.is_calm();
        let client = &mut self.clients[id];
        match process {
            Process::Lock(_) => client.is_done |= is_calm,
            Process::Release(releaser) => match releaser.ended() {
                Some(Released::Refused(..)) | None => {}
                Some(_) => client.is_done |= is_calm,
            },
            Process::Grab(owner) => {
                let had = matches!(owner.last_message, Some(ToFront::Granted { .. }));
                client.is_done |= had && is_calm && client.shares_name;
            }
        }
        let pause = if self.random.one_in(5) { 2 * LIFE } else { QUARTER };
        let later = self.now + self.random.below(pause);
        let later = self.near_expiry(id).unwrap_or(later);
        self.act_at(id, later);
    }
}
