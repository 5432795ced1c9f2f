//! The guard client of an agent: it connects to a guard or starts one, and sends it the messages
//! of the pump, in order.

use std::collections::VecDeque;

use putex::core::event::{Event, GuardEvent};
use putex::core::protocol::{GuardReport, ToGuard};
use putex::core::time::Instant;

use super::agent::AgentEvent;
use super::clock::{MS, True, nanos};
use super::counters::Sometimes;
use super::faults::Kind;
use super::world::{Happening, World};

/// So many guards may be started in a second.
const STARTS_MAX: u32 = 60;

/// An order of the pump to the guard client.
#[derive(Clone, Debug)]
pub enum ClientOrder {
    Start(u64, Vec<ToGuard>),
    Tell(ToGuard),
    Kill,
    /// The agent ends.
    Exit,
}

/// The agent's knowledge of its guard, for the oracles.
#[derive(Clone, Debug, Default)]
pub struct GuardView {
    pub number: u64,
    pub said: u64,
    pub report: Option<GuardReport>,
    /// When the guard reported first.
    pub met_at: True,
    /// Since when there is no report that answers all messages.
    pub unguarded_since: Option<True>,
    /// When the service has to be down by the last order.
    pub dead_by: Option<Instant>,
    /// When start was asserted first since the agent became active.
    pub asserted_at: Option<Instant>,
    /// The agent went on with the service of the previous instance.
    pub adopted: bool,
    /// Guards that were started since then.
    starts_since: True,
    starts: u32,
}

/// A socket between an agent and a guard.
#[derive(Debug)]
pub struct Connection {
    agent: usize,
    number: u64,
    pub guard: usize,
    /// Messages that were written and not read.
    pub messages: VecDeque<ToGuard>,
    /// The agent has closed its end.
    pub closed: bool,
    /// The guard has not closed its end.
    open: bool,
    /// Reports that the guard has written and the agent has not read; `None` where the guard has
    /// closed its end.
    reports: VecDeque<Option<GuardReport>>,
}

impl World<'_> {
    pub fn order(&mut self, id: usize, order: ClientOrder) {
        let wait = match order {
            ClientOrder::Exit => self.late(),
            _ => self.message_time(self.agents[id].site),
        };
        self.agents[id].orders.push_back(order);
        self.after(wait, Happening::Agent(id, AgentEvent::Client));
    }

    /// Carries out the orders of an agent that ends or executes the program anew: by then it has
    /// sent its messages and killed its guard, and waits for neither. An attempt to connect ends
    /// with it.
    pub fn finish_orders(&mut self, id: usize) {
        let orders = std::mem::take(&mut self.agents[id].orders);
        let is_done = |order: &ClientOrder| !matches!(order, ClientOrder::Start(..));
        orders.into_iter().take_while(is_done).for_each(|order| self.carry_out(id, order));
    }

    /// Returns how long a message is under way.
    fn message_time(&mut self, site: usize) -> u64 {
        let wait = self.late();
        if self.strikes(Kind::MessageLate) {
            return wait + self.message_delay(site);
        }
        wait
    }

    fn message_delay(&mut self, site: usize) -> u64 {
        let r = nanos(self.sites[site].timing.renewal());
        let rng = self.rng(Kind::MessageLate);
        let most = rng.pick(&[r / 8, r / 2, 2 * r]);
        rng.below(most)
    }

    pub fn carry_out(&mut self, id: usize, order: ClientOrder) {
        match order {
            ClientOrder::Start(number, messages) => self.connect(id, number, messages),
            ClientOrder::Tell(message) => {
                if let Some(line) = self.agents[id].line
                    && self.connections[line].open
                {
                    self.connections[line].messages.push_back(message);
                    self.wake_guard_soon(self.connections[line].guard);
                }
            }
            ClientOrder::Kill => {
                let Some(line) = self.agents[id].line.take() else {
                    return;
                };
                self.connections[line].closed = true;
                let guard = self.connections[line].guard;
                // A guard that waits for the lock does not answer either: the guard that has
                // it is in the way.
                let holder = self.sites[self.agents[id].site].guard_lock;
                self.kill_guard(guard);
                if let Some(holder) = holder {
                    self.kill_guard(holder);
                }
            }
            ClientOrder::Exit => self.end_agent(id),
        }
    }

    /// Connects to the guard that lives, or starts one.
    fn connect(&mut self, id: usize, number: u64, messages: Vec<ToGuard>) {
        self.hang_up(id);
        self.judge_starts(id);
        let site = self.agents[id].site;
        let holder = self.sites[site].guard_lock;
        let guard = match holder.filter(|holder| self.guards[*holder].listens()) {
            Some(guard) => {
                self.count(Sometimes::GuardMet);
                guard
            }
            None if self.sites[site].no_guard > 0 => {
                self.count(Sometimes::NoGuard);
                let lost = GuardEvent::Lost("no process".to_owned());
                return self.tell(id, Event::Guard(number, lost));
            }
            None => self.spawn_guard(site, false),
        };
        let line = self.connections.len();
        self.connections.push(Connection {
            agent: id,
            number,
            guard,
            messages: messages.into(),
            closed: false,
            open: true,
            reports: VecDeque::new(),
        });
        self.agents[id].line = Some(line);
        self.guards[guard].backlog.push_back(line);
        self.wake_guard_soon(guard);
    }

    /// Guards that cannot be had are not asked for without a pause.
    fn judge_starts(&mut self, id: usize) {
        let view = &mut self.agents[id].view;
        if self.now > view.starts_since + 1000 * MS {
            (view.starts_since, view.starts) = (self.now, 0);
        }
        view.starts += 1;
        if view.starts > STARTS_MAX {
            let site = self.agents[id].site;
            self.fail("loop", format!("{site} starts guards without a pause"));
        }
    }

    /// The agent closes its end.
    pub fn hang_up(&mut self, id: usize) {
        if let Some(line) = self.agents[id].line.take() {
            self.connections[line].closed = true;
            self.wake_guard_soon(self.connections[line].guard);
        }
    }

    /// The guard writes a report, or closes its end.
    pub fn write_to_agent(&mut self, line: usize, report: Option<GuardReport>) {
        let Connection { agent, open, .. } = self.connections[line];
        if !open {
            return;
        }
        let connection = &mut self.connections[line];
        connection.open = report.is_some();
        connection.reports.push_back(report);
        let wait = self.message_time(self.agents[agent].site);
        self.after(wait, Happening::Agent(agent, AgentEvent::Heard(line)));
    }

    pub fn read_guard(&mut self, id: usize, line: usize) {
        let connection = &mut self.connections[line];
        let number = connection.number;
        let Some(report) = connection.reports.pop_front() else {
            return;
        };
        if self.agents[id].line != Some(line) {
            return;
        }
        let event = match report {
            Some(report) => GuardEvent::Report(report),
            None => {
                self.connections[line].closed = true;
                self.agents[id].line = None;
                self.count(Sometimes::GuardLost);
                GuardEvent::Lost("closed".to_owned())
            }
        };
        self.tell(id, Event::Guard(number, event));
    }
}
