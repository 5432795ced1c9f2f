//! The outcome for a lock that is to go from one agent to another, and for the service. Pure.

use std::time::Duration;

use crate::core::timing::shortened;
use crate::core::{
    AgentStatus, DRIFT_PPM_DEFAULT, Instant, KeyState, KeyValue, RecordState, Revision,
    ServiceStatus, Timing, sanitize_field,
};

/// The entry under the key, as seen from the lock that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The holder has it still; the record stands at this revision.
    Held(Revision),
    /// Nobody has the lock. `by_holder`: the holder has stopped the service and released it.
    Released { by_holder: bool },
    /// The agent that is to have it has taken it, and does not run the service yet.
    Taken,
    /// The agent that is to have it has it, and runs the service; the number of its take.
    Done(Revision),
    /// Another agent has it: its token.
    Elsewhere(String),
    /// There is no record.
    Gone,
}

/// Returns what a key means for the lock of this term that is to go to `to`.
pub(super) fn judge(key_state: &KeyState, term: Revision, to: &str) -> Seen {
    let KeyValue::Record(record) = &key_state.value else { return Seen::Gone };
    let Some(lease) = &record.lease else {
        return match record.is_blank() {
            true => Seen::Released { by_holder: false },
            false => Seen::Elsewhere(sanitize_field(&record.token)),
        };
    };
    let of_term = lease.term.unwrap_or(key_state.revision);
    match lease.state {
        RecordState::Released => Seen::Released { by_holder: of_term == term },
        RecordState::Taking | RecordState::Active if of_term == term => {
            Seen::Held(key_state.revision)
        }
        RecordState::Taking if record.token == to => Seen::Taken,
        RecordState::Active if record.token == to => Seen::Done(of_term),
        RecordState::Taking | RecordState::Active => Seen::Elsewhere(sanitize_field(&record.token)),
    }
}

/// The renewals of a holder that were seen after the request was over. It begins nothing from then
/// on, and writes no renewal while it stops the service; one may have been under way.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    last: Option<Revision>,
    after_end: u32,
}

/// So many renewals show that the holder has not begun.
const PROOF: u32 = 2;

impl Renewals {
    /// Notes that the record of the holder stands at this revision; returns whether that shows that
    /// the holder has not followed the request, which was over at `until`.
    pub(super) fn show(&mut self, revision: Revision, until: Instant, now: Instant) -> bool {
        let is_new = self.last.replace(revision).is_none_or(|last| revision > last);
        if is_new && now >= until {
            self.after_end += 1;
        }
        // The first may be one that was seen late.
        self.after_end > PROOF
    }
}

/// The evidence that a holder has released its lock, rather than lost it: a record that was
/// released is replaced within milliseconds, as a rule before it is read.
#[derive(Debug)]
pub(super) struct Release {
    /// When a read was begun that showed the holder's record last.
    held_at: Instant,
    /// The released record was read.
    was_read: bool,
    /// The record was not the holder's, and not that of an agent that has taken the lock: what has
    /// become of the lock is not known.
    was_away: bool,
}

impl Release {
    /// Begins with a read at this instant, which showed the holder's record.
    pub(super) fn new(held_at: Instant) -> Release {
        Release { held_at, was_read: false, was_away: false }
    }

    /// Notes what a read shows that was begun at this instant.
    pub(super) fn note(&mut self, seen: &Seen, at: Instant) {
        match seen {
            Seen::Held(_) => *self = Release::new(at),
            Seen::Released { by_holder: true } => self.was_read = true,
            Seen::Released { by_holder: false } | Seen::Gone => self.was_away = true,
            Seen::Taken | Seen::Done(_) | Seen::Elsewhere(_) => {}
        }
    }

    /// Returns whether an agent that is active now has taken a lock that was released: one that
    /// takes a lock which has run out waits for the stop of the holder, C·R, before it is active.
    pub(super) fn is_proved(&self, now: Instant, timing: Timing) -> bool {
        // The clock of that agent may be as far off as the one here.
        let least = shortened(timing.confirmation(), 2 * DRIFT_PPM_DEFAULT);
        !self.was_away && (self.was_read || now.since(self.held_at) < least)
    }
}

/// The state of start, by the agent that has the lock now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StartSeen {
    /// Start has succeeded so long ago.
    Succeeded(Duration),
    /// Start runs, or is about to.
    Runs,
    /// Start is not waited for: why.
    Failed(String),
}

/// Returns what the agent `to` says of start under the lock of this term, if it answers.
pub(super) fn judge_start(agent: Option<&AgentStatus>, to: &str, term: Revision) -> StartSeen {
    let Some(agent) = agent else {
        return StartSeen::Failed(format!("{to} has the lock, and does not answer"));
    };
    let is_of_term = agent.term == Some(term.0);
    if is_of_term && agent.service == ServiceStatus::Up {
        StartSeen::Succeeded(Duration::from_secs_f64(agent.service_seconds))
    } else if is_of_term && agent.start_failure.is_none() {
        StartSeen::Runs
    } else {
        StartSeen::Failed(format!("{to} is {}: {}", agent.state, agent.remarks()))
    }
}

/// Returns what the agents of this token say of the service; `None` if none of them answers. It is
/// down when it is down at each of them: on two hosts of one token the other one may run it.
pub(super) fn service_at(agents: &[AgentStatus], token: &str) -> Option<ServiceStatus> {
    let of_token = agents.iter().filter(|agent| agent.token == token);
    let mut services = of_token.map(|agent| agent.service);
    let not_down = services.clone().find(|service| *service != ServiceStatus::Down);
    not_down.or_else(|| services.next())
}

/// Says where the service runs, by what the agents say.
pub(super) fn where_it_runs(agents: &[AgentStatus]) -> String {
    let tokens = |service: ServiceStatus| {
        let all = agents.iter().filter(|agent| agent.service == service);
        all.map(|agent| &*agent.token).collect::<Vec<_>>().join(" and ")
    };
    for (service, what) in [
        (ServiceStatus::Overdue, "THE SERVICE MAY STILL RUN at"),
        (ServiceStatus::Up, "the service runs at"),
        (ServiceStatus::Stopping, "the service is being stopped at"),
        (ServiceStatus::Starting, "start has not succeeded yet at"),
    ] {
        let tokens = tokens(service);
        if !tokens.is_empty() {
            return format!("{what} {tokens}");
        }
    }
    "no agent says that the service runs".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{AgentState, Incarnation, Lease, Priority, Record};

    #[test]
    fn the_agent_that_has_the_lock_says_what_becomes_of_start() {
        let active = AgentStatus {
            state: AgentState::Active,
            term: Some(7),
            service: ServiceStatus::Starting,
            ..AgentStatus::of_candidate("h2")
        };
        let seen = |agent: &AgentStatus| judge_start(Some(agent), "h2", Revision(7));
        let place = |agent: &AgentStatus| where_it_runs(std::slice::from_ref(agent));
        assert_eq!(seen(&active), StartSeen::Runs);
        assert_eq!(place(&active), "start has not succeeded yet at h2");
        let up = AgentStatus { service: ServiceStatus::Up, service_seconds: 2.5, ..active.clone() };
        assert_eq!(seen(&up), StartSeen::Succeeded(Duration::from_millis(2500)));
        assert_eq!(place(&up), "the service runs at h2");
        let start_failure = Some("exit status 7".to_owned());
        let failing = AgentStatus { start_failure, ..active.clone() };
        let says = |seen: StartSeen| {
            let StartSeen::Failed(why) = seen else { panic!("{seen:?}") };
            why
        };
        assert_eq!(says(seen(&failing)), "h2 is active: start fails: exit status 7; ");
        // The agent lost the lock again, or took it anew.
        let lost = AgentStatus { term: None, state: AgentState::Stopping, ..up.clone() };
        assert_eq!(says(seen(&lost)), "h2 is stopping: ");
        assert!(matches!(seen(&AgentStatus { term: Some(8), ..up }), StartSeen::Failed(_)));
        let silent = judge_start(None, "h2", Revision(7));
        assert_eq!(says(silent), "h2 has the lock, and does not answer");
        assert_eq!(where_it_runs(&[]), "no agent says that the service runs");
    }

    /// The service counted as down when a second agent of the token, on another host, said so.
    #[test]
    fn the_service_is_down_where_all_agents_of_the_token_say_so() {
        let agent = |token: &str, service: ServiceStatus| AgentStatus {
            service,
            ..AgentStatus::of_candidate(token)
        };
        let down = agent("h1", ServiceStatus::Down);
        let up = agent("h1", ServiceStatus::Up);
        let other = agent("h2", ServiceStatus::Up);
        let at_h1 = |agents: &[&AgentStatus]| {
            service_at(&agents.iter().copied().cloned().collect::<Vec<_>>(), "h1")
        };
        assert_eq!(at_h1(&[&down, &up]), Some(ServiceStatus::Up));
        assert_eq!(at_h1(&[&up, &down]), Some(ServiceStatus::Up));
        assert_eq!(at_h1(&[&down, &other]), Some(ServiceStatus::Down));
        assert_eq!(at_h1(&[&other]), None);
    }

    const TERM: Revision = Revision(4);

    fn key(revision: u64, token: &str, term: Option<u64>, state: RecordState) -> KeyState {
        let second = Duration::from_secs(1);
        let lease = Lease {
            incarnation: Incarnation(1),
            nonce: 1,
            host: "h".to_owned(),
            boot: String::new(),
            renewal: second,
            failures: 3,
            confirmations: 1,
            grace: second,
            term: term.map(Revision),
            state,
            priority: Priority::FIRST,
            released_to: None,
        };
        let record = Record { token: token.to_owned(), lease: Some(lease) };
        KeyState { revision: Revision(revision), value: KeyValue::Record(record) }
    }

    #[test]
    fn what_stands_under_the_key_says_how_far_it_is() {
        let plain = |token: &str| {
            let record = Record { token: token.to_owned(), lease: None };
            KeyState { revision: Revision(9), value: KeyValue::Record(record) }
        };
        let none = KeyState { revision: Revision(0), value: KeyValue::Absent };
        for (key_state, seen) in [
            (key(9, "h1", Some(4), RecordState::Active), Seen::Held(Revision(9))),
            (key(4, "h1", None, RecordState::Active), Seen::Held(TERM)),
            (key(9, "", Some(4), RecordState::Released), Seen::Released { by_holder: true }),
            (key(9, "", Some(7), RecordState::Released), Seen::Released { by_holder: false }),
            (key(9, "h2", None, RecordState::Taking), Seen::Taken),
            (key(9, "h2", Some(7), RecordState::Active), Seen::Done(Revision(7))),
            (key(9, "h2", None, RecordState::Active), Seen::Done(Revision(9))),
            (key(9, "h3", None, RecordState::Active), Seen::Elsewhere("h3".to_owned())),
            // The holder itself has it again.
            (key(9, "h1", None, RecordState::Active), Seen::Elsewhere("h1".to_owned())),
            (plain("h2"), Seen::Elsewhere("h2".to_owned())),
            (plain(""), Seen::Released { by_holder: false }),
            (none, Seen::Gone),
        ] {
            assert_eq!(judge(&key_state, TERM, "h2"), seen, "{key_state:?}");
        }
    }

    #[test]
    fn only_renewals_after_the_end_show_that_the_holder_has_not_begun() {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let mut renewals = Renewals::default();
        for (revision, now) in
            [(5, 0), (6, 500), (7, 999), (7, 1000), (8, 1001), (8, 1500), (9, 1501)]
        {
            assert!(!renewals.show(Revision(revision), at(1000), at(now)), "{revision}");
        }
        assert!(renewals.show(Revision(10), at(1000), at(2001)));
    }

    #[test]
    fn a_release_is_proved_by_its_record_or_by_a_take_without_c_times_r() {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let timing = Timing::new(Duration::from_secs(1), 3, 2, DRIFT_PPM_DEFAULT);
        let timing = timing.expect("a timing");
        let mut release = Release::new(at(0));
        assert!(release.is_proved(at(1959), timing) && !release.is_proved(at(1960), timing));
        release.note(&Seen::Held(TERM), at(500));
        release.note(&Seen::Taken, at(900));
        assert!(release.is_proved(at(2459), timing) && !release.is_proved(at(2460), timing));
        release.note(&Seen::Released { by_holder: true }, at(2480));
        assert!(release.is_proved(at(9000), timing));
        for away in [Seen::Gone, Seen::Released { by_holder: false }] {
            release.note(&away, at(9000));
            assert!(!release.is_proved(at(9001), timing), "{away:?}");
            release.note(&Seen::Held(TERM), at(9002));
            assert!(release.is_proved(at(9003), timing), "{away:?}");
        }
    }
}
