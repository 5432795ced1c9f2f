//! The world: hosts with their agents, guards and services, the key, and requests and messages on
//! their way. It is a value without pointers, and all its numbers count from now, so that two
//! worlds that go on alike are equal.

use std::hash::{Hash, Hasher};

use super::messages::{
    BACK_MAX, End, Grant, Instance, Job, Message, RecordKind, Report, Service, StoredRecord,
    TERM_BACK_MAX,
};

/// Hosts that a world has room for.
pub(crate) const HOSTS: usize = 3;

/// Copies of writes that may be on their way although their answer was given up.
const LATE: usize = 2;

/// A write on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    pub(crate) host: u8,
    pub(crate) expected: i16,
    pub(crate) record: StoredRecord,
    pub(crate) sent: i32,
}

/// An answer of the store; revisions count from the key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Shown(i16, StoredRecord),
    Stored(i16),
    Moved(i16),
}

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    /// The record to be written; `None` for a read.
    pub(crate) write: Option<Write>,
    pub(crate) deadline: i32,
    /// The request takes its time.
    pub(crate) slow: bool,
    /// The store has performed it; the answer is on its way.
    pub(crate) answer: Option<Reply>,
}

/// How far the process of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CommandRunner {
    /// The guard has asked for it.
    Spawning,
    /// The command waits for its release.
    Waiting,
    /// The command was released.
    Running,
    /// The command has ended; the guard, which is stopped, does not know.
    Ended(End),
}

/// The process of a command that a guard runs or ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) stage: CommandRunner,
    /// The command takes its time: to be spawned, or to end, and as a start to end when it is
    /// killed.
    pub(crate) slow: bool,
    pub(crate) killed: bool,
    /// Time by which a slow step has happened.
    pub(crate) left: i32,
    /// The term that a start is told, from the key's revision.
    pub(crate) term: i16,
}

impl Process {
    pub(crate) fn new(term: i16) -> Process {
        Process { stage: CommandRunner::Spawning, slow: false, killed: false, left: 0, term }
    }

    /// Kills it, if there is something to be killed. A start that takes its time has ended
    /// after `within` at the latest.
    pub(crate) fn kill(&mut self, within: i32) {
        if matches!(self.stage, CommandRunner::Waiting | CommandRunner::Running) && !self.killed {
            self.killed = true;
            self.left = if self.slow { within } else { 0 };
        }
    }
}

/// A guard that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GuardProcess {
    pub(crate) state: u32,
    /// The term that its inputs count from, from the key's revision.
    pub(crate) term: i16,
    /// The guard is stopped, for so long at most.
    pub(crate) frozen: Option<i32>,
}

/// Messages that wait in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue<M, const N: usize>([Option<M>; N]);

impl<M: Copy, const N: usize> Default for Queue<M, N> {
    fn default() -> Queue<M, N> {
        Queue([None; N])
    }
}

impl<M: Copy + Hash, const N: usize> Hash for Queue<M, N> {
    /// Empty places cost nothing.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let count = self.iter().map(|message| message.hash(hasher)).count();
        count.hash(hasher);
    }
}

impl<M: Copy, const N: usize> Queue<M, N> {
    /// Adds a message.
    ///
    /// # Errors
    ///
    /// When more wait than a history of this model was thought to bring about.
    pub(crate) fn push(&mut self, message: M) -> Result<(), String> {
        let free = self.0.iter_mut().find(|free| free.is_none());
        *free.ok_or_else(|| format!("more than {N} messages wait"))? = Some(message);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<M> {
        let first = self.0[0].take();
        self.0.rotate_left(1);
        first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &M> {
        self.0.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut M> {
        self.0.iter_mut().flatten()
    }
}

/// The connection between an agent and its guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    /// The agent has not been told that it is closed.
    pub(crate) open: bool,
    /// The guard is gone; that comes after the reports.
    pub(crate) lost: bool,
    /// Messages on their way take their time, so long at most.
    pub(crate) slow: Option<i32>,
    /// Messages that the agent has said and that the guard has not received.
    pub(crate) unheard: u8,
    pub(crate) messages: Queue<Message, 10>,
    pub(crate) reports: Queue<Report, 16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// Instances of the agent that have begun.
    pub(crate) instances: u8,
    /// The pump, while the agent lives.
    pub(crate) pump: Option<u32>,
    /// How far the key is ahead of what the pump knows.
    pub(crate) lag: i16,
    /// The agent is stopped, for so long at most.
    pub(crate) frozen: Option<i32>,
    /// The store is out of its reach, for so long at most.
    pub(crate) closed: Option<i32>,
    pub(crate) request: Option<Request>,
    pub(crate) link: Link,
    pub(crate) guard: Option<GuardProcess>,
    /// The commands, in the order of [`Job::ALL`].
    pub(crate) processes: [Option<Process>; 3],
    /// A guard has noted that the service is down, and none has run start since.
    pub(crate) noted_down: bool,
    /// The service may run.
    pub(crate) up: bool,
    /// When it must be down: V + C·R of the last write of this host that was stored.
    pub(crate) down_in: i32,
}

impl Host {
    pub(crate) fn process(&self, job: Job) -> Option<Process> {
        self.processes[job as usize]
    }

    /// Returns whether the guard runs.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.is_some_and(|guard| guard.frozen.is_none())
    }

    /// Returns whether the agent runs.
    pub(crate) fn is_attended(&self) -> bool {
        self.pump.is_some() && self.frozen.is_none()
    }

    /// Returns whether start was released and has not ended.
    pub(crate) fn start_runs(&self) -> bool {
        let start = self.process(Job::Start);
        start.is_some_and(|start| start.stage == CommandRunner::Running)
    }

    /// Returns whether start may still do something: not when it was killed, unless it takes
    /// its time to die.
    pub(crate) fn start_works(&self) -> bool {
        let start = self.process(Job::Start);
        self.start_runs() && start.is_some_and(|start| start.slow || !start.killed)
    }
}

/// Limits of the misfortunes of one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Faults of processes, of the network and of the store.
    pub(crate) faults: u8,
    /// Commands that take their time, or fail.
    pub(crate) hangs: u8,
    /// Signals of an operator to an agent: to end, to execute its program anew.
    pub(crate) signals: u8,
}

/// State that belongs to no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shared {
    /// The record under the key.
    pub(crate) record: StoredRecord,
    pub(crate) late: [Option<Write>; LATE],
    /// The misfortunes that may still happen.
    pub(crate) left: Budget,
    pub(crate) to_grid: i32,
    /// Term of the last start, from the key's revision, and its host.
    pub(crate) last: (i16, u8),
    /// The service of the agent that never comes back may run for so long.
    pub(crate) stray: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) hosts: [Host; HOSTS],
    pub(crate) shared: Shared,
}

/// Returns what is left of a time after `by`, not less than nothing.
fn count_down(time: &mut i32, by: i32) {
    *time = (*time - by).max(0);
}

/// Counts a revision from the key's next one.
fn back(at: &mut i16) {
    *at = (*at - 1).max(-BACK_MAX);
}

/// The same of a term.
fn term_back(term: &mut i16) {
    *term = (*term - 1).max(-TERM_BACK_MAX);
}

impl World {
    /// Nothing runs yet. The key was released by an agent that has gone; or it is
    /// held by one that went just now, whose service is up until V + C·R.
    pub(crate) fn new(left: Budget, grid: i32, stray: Option<i32>) -> World {
        let record = StoredRecord {
            by: Instance(0),
            kind: stray.map_or(RecordKind::Released, |_| RecordKind::Active),
            term_ago: Some(1),
            nonce_ago: 0,
        };
        World {
            hosts: [Host::default(); HOSTS],
            shared: Shared {
                record,
                late: [None; LATE],
                left,
                to_grid: grid,
                last: (-TERM_BACK_MAX, u8::MAX),
                stray: stray.unwrap_or(0),
            },
        }
    }

    /// Stores a record if the key stands where it was expected; returns the answer.
    /// `held` is T + C·R.
    pub(crate) fn commit(&mut self, write: Write, held: i32) -> Reply {
        if write.expected != 0 {
            return Reply::Moved(0);
        }
        for host in &mut self.hosts {
            host.lag += i16::from(host.pump.is_some());
            if let Some(request) = &mut host.request {
                if let Some(write) = &mut request.write {
                    back(&mut write.expected);
                }
                if let Some(Reply::Shown(at, _) | Reply::Stored(at) | Reply::Moved(at)) =
                    &mut request.answer
                {
                    back(at);
                }
            }
            host.grants(|grant| term_back(&mut grant.term));
            if let Some(guard) = &mut host.guard {
                term_back(&mut guard.term);
            }
            for process in host.processes.iter_mut().flatten() {
                term_back(&mut process.term);
            }
        }
        let shared = &mut self.shared;
        // Any other write on its way is refused when it arrives.
        shared.late = Default::default();
        term_back(&mut shared.last.0);
        shared.record = write.record;
        if write.record.kind != RecordKind::Released {
            let host = &mut self.hosts[usize::from(write.host)];
            host.down_in = host.down_in.max(write.sent + held);
        }
        Reply::Stored(0)
    }

    /// A write whose answer nobody waits for may still be stored.
    pub(crate) fn leave_behind(&mut self, write: Write) {
        let late = &mut self.shared.late;
        if write.expected == 0
            && !late.contains(&Some(write))
            && let Some(free) = late.iter_mut().find(|free| free.is_none())
        {
            *free = Some(write);
        }
    }

    /// Visits every record there is.
    fn records(&mut self, mut visit: impl FnMut(&mut StoredRecord)) {
        visit(&mut self.shared.record);
        for write in self.shared.late.iter_mut().flatten() {
            visit(&mut write.record);
        }
        let requests = self.hosts.iter_mut().filter_map(|host| host.request.as_mut());
        for request in requests {
            if let Some(write) = &mut request.write {
                visit(&mut write.record);
            }
            if let Some(Reply::Shown(_, record)) = &mut request.answer {
                visit(record);
            }
        }
    }

    /// An instance has made more attempts.
    pub(crate) fn attempted(&mut self, instance: Instance, attempts: u8) {
        if attempts > 0 {
            self.records(|record| {
                if record.by == instance {
                    record.nonce_ago = record.nonce_ago.checked_add(attempts).expect("a few");
                }
            });
        }
    }

    /// Nobody will look at the attempts of an instance any more, nor count a lock from
    /// them. `held` is T + C·R.
    pub(crate) fn forget_instance(&mut self, instance: Instance, held: i32) {
        for write in self.shared.late.iter_mut().flatten() {
            if write.record.by == instance {
                write.sent = -held;
            }
        }
        self.records(|record| {
            if record.by == instance {
                record.nonce_ago = 0;
            }
        });
    }

    /// Lets time pass, for all but the automata. `held` is T + C·R.
    pub(crate) fn pass(&mut self, by: i32, held: i32, grid: i32) {
        for host in &mut self.hosts {
            host.pass(by, held);
        }
        let shared = &mut self.shared;
        for write in shared.late.iter_mut().flatten() {
            write.sent = (write.sent - by).max(-held);
        }
        count_down(&mut shared.stray, by);
        count_down(&mut shared.to_grid, by);
        if shared.to_grid == 0 {
            shared.to_grid = grid;
        }
    }
}

impl Host {
    fn pass(&mut self, by: i32, held: i32) {
        count_down(&mut self.down_in, by);
        let times = self.frozen.iter_mut().chain(&mut self.closed);
        for time in times.chain(&mut self.link.slow) {
            count_down(time, by);
        }
        if let Some(guard) = &mut self.guard
            && let Some(time) = &mut guard.frozen
        {
            count_down(time, by);
        }
        if let Some(request) = &mut self.request {
            count_down(&mut request.deadline, by);
            if let Some(write) = &mut request.write {
                write.sent = (write.sent - by).max(-held);
            }
        }
        for process in self.processes.iter_mut().flatten() {
            count_down(&mut process.left, by);
        }
        let past = |time: i32| (time - by).max(-held);
        self.grants(|grant| {
            grant.valid_until = past(grant.valid_until);
            grant.dead_by = past(grant.dead_by);
        });
        for message in self.link.messages.iter_mut() {
            if let Message::Stop { dead_by, .. } = message {
                *dead_by = past(*dead_by);
            }
        }
    }

    /// Visits every grant that is on its way.
    fn grants(&mut self, mut visit: impl FnMut(&mut Grant)) {
        for message in self.link.messages.iter_mut() {
            if let Message::Grant(grant) = message {
                visit(grant);
            }
        }
        for report in self.link.reports.iter_mut() {
            if let Service::Up(grant, _) = &mut report.service {
                visit(grant);
            }
        }
    }
}
