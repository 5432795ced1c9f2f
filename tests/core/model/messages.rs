//! Messages between the world and the automata, as small numbers: times in microseconds from now,
//! revisions from one that the receiver knows.

use putex::core::command::Command;
use putex::core::record::RecordState;

/// An instance of an agent: its host and the number of the instance, from 1. 0 is an agent
/// of another host, which never comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Instance(pub(crate) u8);

/// Names of the hosts.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// More instances than any host has.
const INSTANCES: u8 = 16;

impl Instance {
    pub(crate) fn of(host: usize, number: u8) -> Instance {
        let host = u8::try_from(host).expect("a few hosts");
        Instance(host * INSTANCES + number)
    }

    /// Returns the host; `None` for the agent that never comes back.
    pub(crate) fn host(self) -> Option<usize> {
        (self.0 > 0).then_some(usize::from(self.0 / INSTANCES))
    }

    pub(crate) fn name(self) -> &'static str {
        self.host().map_or("z", |host| NAMES[host])
    }
}

/// [`RecordState`], to be a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RecordKind {
    Taking,
    Active,
    Released,
}

impl RecordKind {
    pub(crate) fn of(state: RecordState) -> RecordKind {
        match state {
            RecordState::Taking => RecordKind::Taking,
            RecordState::Active => RecordKind::Active,
            RecordState::Released => RecordKind::Released,
        }
    }

    pub(crate) fn state(self) -> RecordState {
        match self {
            RecordKind::Taking => RecordState::Taking,
            RecordKind::Active => RecordState::Active,
            RecordKind::Released => RecordState::Released,
        }
    }
}

/// A record under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoredRecord {
    pub(crate) by: Instance,
    pub(crate) kind: RecordKind,
    /// How many revisions before its own its term is; `None` in an acquiring write.
    pub(crate) term_ago: Option<u8>,
    /// How many attempts its writer has made since.
    pub(crate) nonce_ago: u8,
}

/// Revisions further back than this, from the key's, are equal.
pub(crate) const BACK_MAX: i16 = 7;

/// Terms further back than this, from the key's revision, are equal.
pub(crate) const TERM_BACK_MAX: i16 = 3;

/// [`StoredRecord::term_ago`] of a term that is too far back to be told from others.
pub(crate) const OLD: u8 = u8::MAX;

/// The same in [`Grant::term`], as a pump is told it.
pub(crate) const OLD_TERM: i16 = i16::MIN;

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) holder: Instance,
    /// Counted from the key's revision in the world, from the highest that the pump knows in
    /// its events, from the last term that the guard was told in its inputs.
    pub(crate) term: i16,
    pub(crate) valid_until: i32,
    pub(crate) dead_by: i32,
}

/// A message of the agent on its way to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Hello,
    Grant(Grant),
    AssertStart,
    Stop {
        dead_by: i32,
        /// [`putex::core::protocol::Stake`].
        lock_at_stake: bool,
    },
    AskReport,
    /// The agent has closed its end: what follows is said by the next instance.
    Gone,
}

/// A guard's knowledge of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    Unknown,
    Down,
    Up(Grant, Start),
    Stopping { overdue: bool },
}

/// [`putex::core::protocol::StartState`], to be a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    NotRun,
    FirstRuns,
    Ended,
}

/// A report of the guard on its way to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Report {
    /// Whether the guard had received all that the agent has said until now.
    pub(crate) complete: bool,
    pub(crate) service: Service,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Well,
    Failed,
    Overran,
}

/// A command that the guard runs: its place among the jobs of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    Start,
    Stop,
    LastResort,
}

impl Job {
    pub(crate) const ALL: [Job; 3] = [Job::Start, Job::Stop, Job::LastResort];

    /// Returns the job of a command that a guard runs.
    pub(crate) fn of(command: Command) -> Option<Job> {
        match command {
            Command::Check | Command::OnChange => None,
            Command::Start => Some(Job::Start),
            Command::Stop => Some(Job::Stop),
            Command::LastResort => Some(Job::LastResort),
        }
    }

    pub(crate) fn command(self) -> Command {
        match self {
            Job::Start => Command::Start,
            Job::Stop => Command::Stop,
            Job::LastResort => Command::LastResort,
        }
    }
}

/// An input of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PumpInput {
    /// So much time passes.
    Wait(i32),
    Tick,
    Opened {
        at: i16,
        record: StoredRecord,
    },
    Closed,
    Read {
        at: i16,
        record: StoredRecord,
    },
    ReadFailed,
    Stored(i16),
    Moved(i16),
    Unknown,
    Report(Report),
    GuardLost,
    Shutdown,
}

/// An output of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PumpOutput {
    Read {
        deadline: i32,
    },
    Write {
        expected: i16,
        kind: RecordKind,
        term_ago: Option<u8>,
        deadline: i32,
    },
    /// Connect to a guard, or start one. So many messages to it follow.
    ConnectGuard(u8),
    Tell(Message),
    KillGuard,
    KillCgroup,
    /// The pump reports that the store has rolled back.
    SayRollback,
    Exit,
}

/// An input of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GuardInput {
    /// So much time passes.
    Wait(i32),
    Tick,
    Message(Message),
    Spawned(Job),
    Ended(Job, End),
    CgroupEmptied,
}

/// An output of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardOutput {
    Run {
        job: Job,
        /// The lock that it runs under, counted as in [`Grant::term`].
        term: Option<i16>,
    },
    Release(Job),
    Kill(Job),
    KillCgroup,
    EmptyCgroup,
    Report {
        /// How many messages it has received that the report does not count.
        uncounted: i8,
        service: Service,
    },
    Exit,
}
