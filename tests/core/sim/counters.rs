//! Events that must happen sometimes: a campaign in which one never does proves less than it seems
//! to, and fails.

listed! {
    /// Something that is counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Sometimes {
        Takeover,
        /// Of a seat that is not the first.
        OtherSeat,
        Confirmed,
        TakenFree,
        NotTaken,
        TakeUnanswered,
        Expired,
        Release,
        NotReleased,
        ReleaseHandover,
        Failback,
        FailbackTaken,
        ResolvedHeld,
        ResolvedLost,
        RollbackSeen,
        MarkerSeen,
        PurgeSeen,
        Adoption,
        AdoptedTooLate,
        OwnTokenSeen,
        TwinsSeen,
        LastResort,
        TooLate,
        EndedNotStopped,
        OldEpoch,
        GuardUnanswering,
        HungReplaced,
        GuardLost,
        GuardMet,
        NoGuard,
        GuardBackLate,
        GrantTooLate,
        AgentKillsCgroup,
        CgroupEmptied,
        SecondRefused,
        Upgraded,
        Finished,
        DeviceBit,
        DeviceFailed,
        StartKilled,
        Escaped,
        PlainSeen,
        PlainBlankSeen,
        LateRequest,
        SleptOverV,
        UnfitSeen,
        Sigterm,
        Switchover,
        Pause,
        OutlivedStopFailed,
        OutlivedLied,
        OutlivedAway,
        OutlivedBack,
        ExcusedOverlap,
    }
}

use Sometimes::*;

const COUNT: usize = Sometimes::ALL.len();

impl Sometimes {
    /// Whether it is too rare to be asked for, or a hole that may be mended one day.
    pub fn may_lack(self) -> bool {
        matches!(self, OldEpoch)
    }
}

/// How often each of them happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters([u64; COUNT]);

impl Default for Counters {
    fn default() -> Counters {
        Counters([0; COUNT])
    }
}

impl Counters {
    pub fn add(&mut self, what: Sometimes) {
        self.0[what as usize] += 1;
    }

    pub fn merge(&mut self, other: &Counters) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub fn of(&self, what: Sometimes) -> u64 {
        self.0[what as usize]
    }
}
