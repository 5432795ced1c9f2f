//! Faults, by kind. A run draws its kinds.

listed! {
    /// A kind of fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// The agent is killed; its supervisor starts it again, soon or late.
        CrashAgent,
        /// The guard is killed.
        CrashGuard,
        /// Both are killed at once: outside of the promise without a watchdog device.
        CrashBoth,
        /// Both are killed, and the supervisor runs `putex finish`.
        Finish,
        /// The agent is stopped by SIGSTOP and goes on later.
        PauseAgent,
        /// The guard is stopped by SIGSTOP and goes on later, or never.
        PauseGuard,
        /// Both are: outside of the promise without a watchdog device.
        PauseBoth,
        /// The host sleeps; its clock goes on.
        Suspend,
        /// The host loses power and boots again.
        PowerLoss,
        /// The agent is told to end, and started again.
        Sigterm,
        /// An operator wants another agent to have the lock: perhaps one that does not exist, or
        /// the lock of another term.
        Switchover,
        /// Agents learn of a pause, or of the end of one. The agents may know of different pauses:
        /// nothing may depend on them.
        Pause,
        /// The agent is told to execute its program anew.
        Upgrade,
        /// A second agent of the same identity is started on the host.
        SecondAgent,
        /// Nothing passes between an agent and the store.
        Cut,
        /// Messages of the agent are lost.
        CutOut,
        /// Answers of the store are lost.
        CutIn,
        /// The server is out of reach of all.
        ServerDown,
        /// The server forgets its last writes: outside of the promise.
        Rollback,
        /// The server forgets the bucket: outside of the promise.
        Wipe,
        /// Somebody deletes the record, and leaves a marker.
        Delete,
        /// Somebody purges the key, which leaves nothing: a take over revision 0 is stored again.
        Purge,
        /// Somebody blanks the record.
        Blank,
        /// Somebody writes another token.
        Typed,
        /// The server refuses the credentials for a while.
        Rejected,
        /// No guard can be started for a while.
        NoGuard,
        /// The health check fails for a while.
        Unfit,
        /// A request is lost.
        LostRequest,
        /// An answer is lost.
        LostReply,
        /// A request is applied long after it was sent.
        LateRequest,
        /// The server does not know what became of a write.
        Busy,
        /// The server says that it does not store a write, which may be stored all the same.
        Denied,
        /// A read is answered by a leader that was replaced and has older entries.
        StaleRead,
        /// So is the reading of the key when the bucket is opened.
        StaleOpen,
        /// Requests and answers are slow.
        SlowNet,
        HintLost,
        HintLate,
        HintTwice,
        CheckSlow,
        CheckHang,
        StartSlow,
        StartHang,
        StartFail,
        /// A start that is killed takes its time to die, and may yet do its work.
        StartStuck,
        /// A process of start leaves its process group and brings the service up later.
        StartEscape,
        /// Stop uses its budget up.
        StopEdge,
        /// Stop fails: outside of the promise unless something else ends the service.
        StopFail,
        /// Stop hangs: the same.
        StopHang,
        /// Stop says that it succeeded and did not: outside of the promise without a
        /// control group.
        StopLie,
        /// The last resort fails or hangs.
        ResortFail,
        /// A process cannot be started.
        SpawnFail,
        /// A process takes long to be started.
        SpawnHang,
        /// A guard takes long to begin.
        GuardSlow,
        /// Messages between agent and guard take long.
        MessageLate,
        /// The watchdog device cannot be opened.
        DeviceFail,
        /// The agents have R, F and C of their own.
        Mixed,
        /// Two agents on two hosts have one token.
        Twins,
        /// An agent of putex 0.2.0 competes.
        Plain,
        /// Threads wake late, within the slack.
        Late,
        /// Clocks run at the ends of the bound on their rate.
        Drift,
        /// An agent is started with another R, F and C.
        Retimed,
        /// The agents have several seats.
        Seated,
    }
}

use Kind::*;

impl Kind {
    /// Returns the name under which it is printed and asked for.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether a fault of this kind happens at an instant, and not request by request.
    pub fn is_event(self) -> bool {
        (self as u32) <= Unfit as u32
    }

    /// Returns how many runs in a thousand have it.
    pub fn share(self) -> u64 {
        match self {
            CrashBoth | Finish | PauseBoth | StopLie | Rejected | PowerLoss | SecondAgent => 60,
            Rollback | Wipe | Delete | Purge | Blank | Typed | ResortFail | Twins | StaleOpen
            | DeviceFail | GuardSlow | NoGuard => 120,
            Plain => 70,
            CrashAgent | CrashGuard | PauseAgent | Cut | LostReply | Drift | StopEdge | Late => 400,
            PauseGuard | Suspend | Sigterm | Switchover | Pause | Upgrade | CutOut | CutIn
            | ServerDown | Unfit | LostRequest | LateRequest | Busy | Denied | StaleRead
            | SlowNet | HintLost | HintLate | HintTwice | CheckSlow | CheckHang | StartSlow
            | StartHang | StartFail | StartStuck | StartEscape | StopFail | StopHang
            | SpawnFail | SpawnHang | MessageLate | Mixed | Retimed => 220,
            Seated => 100,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    pub fn of(kinds: &[Kind]) -> Kinds {
        kinds.iter().fold(Kinds::default(), |all, kind| all.with(*kind))
    }

    pub fn has(self, kind: Kind) -> bool {
        self.0 >> (kind as u64) & 1 == 1
    }

    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << (kind as u64))
    }

    pub fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }

    pub fn names(self) -> String {
        let names: Vec<_> = self.iter().map(Kind::name).collect();
        names.join(",")
    }
}
