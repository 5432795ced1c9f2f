//! What passes between the world and the minds, as small numbers: times in
//! microseconds from now, revisions from the highest that the pump knows.

use putex::core::command::Command;
use putex::core::record::RecordState;

/// A life of an agent: its host and the number of the life, from 1. 0 is an agent
/// of another host, which never comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Life(pub(crate) u8);

/// What the hosts are called.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// More lives than any host has.
const LIVES: u8 = 16;

impl Life {
    pub(crate) fn of(host: usize, life: u8) -> Life {
        let host = u8::try_from(host).expect("a few hosts");
        Life(host * LIVES + life)
    }

    /// Returns the host; `None` for the agent that never comes back.
    pub(crate) fn host(self) -> Option<usize> {
        (self.0 > 0).then_some(usize::from(self.0 / LIVES))
    }

    pub(crate) fn number(self) -> u8 {
        self.0 % LIVES
    }

    pub(crate) fn name(self) -> &'static str {
        self.host().map_or("z", |host| NAMES[host])
    }
}

/// [`RecordState`], to be a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stand {
    Taking,
    Active,
    Released,
}

impl Stand {
    pub(crate) fn of(standing: RecordState) -> Stand {
        match standing {
            RecordState::Taking => Stand::Taking,
            RecordState::Active => Stand::Active,
            RecordState::Released => Stand::Released,
        }
    }

    pub(crate) fn standing(self) -> RecordState {
        match self {
            Stand::Taking => RecordState::Taking,
            Stand::Active => RecordState::Active,
            Stand::Released => RecordState::Released,
        }
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rec {
    pub(crate) by: Life,
    pub(crate) stand: Stand,
    /// How many revisions before its own its term is; `None` in an acquiring write.
    pub(crate) term_ago: Option<u8>,
    /// How many attempts its writer has made since.
    pub(crate) nonce_ago: u8,
}

/// A term that is too far back to be told from others.
pub(crate) const OLD: u8 = u8::MAX;

/// How long a service may run, as an agent tells its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Vigil {
    Down,
    MayRun {
        valid_until: i32,
        act_at: i32,
        stop_until: Option<i32>,
        dead_by: i32,
        resorted: bool,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Well,
    Failed,
    Overran,
}

/// What a pump is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cue {
    /// So much time passes.
    Wait(i32),
    Tick,
    Opened {
        at: i16,
        rec: Rec,
    },
    Closed,
    Read {
        at: i16,
        rec: Rec,
    },
    ReadFailed,
    Stored(i16),
    Moved(i16),
    Unknown,
    Ended(u8, End),
    GuardReady,
    GuardArmed,
    GuardLost,
    Shutdown,
}

/// What a pump wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Read {
        deadline: i32,
    },
    Write {
        expected: i16,
        stand: Stand,
        term_ago: Option<u8>,
        deadline: i32,
    },
    Guard(Vigil),
    Run {
        command: Command,
        deadline: i32,
        term: Option<i16>,
    },
    Extend(Command, i32),
    Kill(Command),
    ReplaceGuard,
    /// It says that the store has rolled back.
    CryRollback,
    Exit {
        given_up: bool,
    },
}

/// What a guard is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    /// So much time passes.
    Wait(i32),
    Tick,
    Told(Vigil),
    AgentGone,
    /// Another life of the agent is here, and sets the guard up again.
    AgentBack,
    GivenUp,
    /// The agent's stop command runs; it has ended.
    StopBegan,
    StopEnded,
    Ended(u8, End),
}

/// What a guard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    SayArmed,
    KillAgent,
    KillLeft,
    Run(Command, i32),
    Kill(Command),
    Leave,
}
