//! The fronts of the clients: the messages to them, and their commands.

use super::*;

impl Simulation {
    /// Takes the messages of the owner to its front.
    pub(super) fn listen(&mut self, client: usize) {
        for told in self.clients[client].owner.take_messages() {
            self.show(format_args!("{client} told {told:?}"));
            match told {
                ToFront::Granted { valid_until, term, epoch, slot } => {
                    assert_eq!(slot, self.clients[client].owner.ticket.slot);
                    self.granted(client, valid_until, term, &epoch);
                }
                ToFront::Lost(why) => {
                    self.check_end(client, &why);
                    let now = self.now;
                    match &mut self.clients[client].command {
                        // The command ends within the time after SIGTERM.
                        Some(command) => command.ends_at = command.ends_at.min(now + R / 4),
                        None => self.clients[client].heard.push(Input::Done),
                    }
                    self.command_times(client);
                }
                ToFront::Ended(end) => {
                    if let End::Refused(error) = &end {
                        self.check_end(client, &error.text);
                    }
                    self.clients[client].outcome = Some(end);
                }
                ToFront::Waiting { .. } => {}
            }
        }
    }

    /// A bucket that was not lost has not gone back, whatever answer was lost.
    fn check_end(&self, client: usize, why: &str) {
        let is_false = !self.is_wiped && why.contains("gone back");
        assert!(!is_false, "{}: {client} {why}", self.now);
    }

    fn granted(&mut self, client: usize, valid_until: Instant, term: u64, epoch: &str) {
        // The command is killed before that as a rule.
        let killed_at = self.clients[client].true_time(valid_until);
        let own = self.clients[client].owner.ticket.clone();
        if let Some(command) = &mut self.clients[client].command {
            command.killed_at = killed_at;
            return self.command_times(client);
        }
        let terminate_at = self.clients[client].timing.kill_times(valid_until).terminate_at;
        if self.clients[client].done || self.clients[client].local(self.now) >= terminate_at {
            return;
        }
        self.grants += 1;
        // Numbers of a bucket that is lost meanwhile tell nothing of the new one.
        let is_of_this = epoch == self.bucket.id.to_string();
        let (mut earlier, mut beside) = (0, 0);
        for (key, entry) in self.bucket.entries.iter().filter(|_| is_of_this) {
            let is_earlier = entry.number < term && !entry.is_restored;
            let Some(other) = entry.ticket.as_ref().filter(|_| is_earlier) else {
                continue;
            };
            let conflicts = other.conflicts(&own);
            assert!(!conflicts, "{}: granted {term} before {key} {}", self.now, entry.number);
            earlier += u32::from(other.shares_slots(&own));
        }
        for other in self.clients.iter().filter_map(|other| other.command.as_ref()) {
            let conflicts = other.ticket.conflicts(&own);
            assert!(!conflicts, "{}: {client} beside {}", self.now, other.ticket.token);
            if other.ticket.shares_slots(&own) {
                beside += 1;
                assert_ne!(other.ticket.slot, own.slot, "{}: one slot twice", self.now);
            }
        }
        if let Mode::Slots(count) = own.mode {
            let is_slot = own.slot.is_some_and(|slot| slot < count);
            assert!(is_slot && earlier < count && beside < count, "{}: {own:?}", self.now);
        }
        let lasts = self.random.below(3 * LIFE);
        let command = Command { ends_at: self.now + lasts, killed_at, round: 0, ticket: own };
        self.clients[client].command = Some(command);
        self.command_times(client);
    }

    fn command_times(&mut self, client: usize) {
        if let Some(command) = &mut self.clients[client].command {
            command.round += 1;
            let (round, at) = (command.round, command.ends_at.min(command.killed_at));
            self.at(at, Event::CommandOver(client, round));
        }
    }
}
