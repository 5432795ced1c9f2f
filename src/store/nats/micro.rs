//! The agent as a NATS micro service: which requests are answered, and to whom; and the questions
//! of commands to the agents of some keys, which are requests for statistics.
//!
//! A request of a command has a payload, an [`AgentQuestion`] as JSON: other agents do not answer.
//! A request without a payload is answered by all.
//!
//! A client that may publish below `$SRV` decides how many requests come, how large they are, and
//! where their answers go. The connection is that of the lock, so:
//!
//! 1. No more than one request each 5 ms is answered in the long run, and 50 at once.
//! 2. If many more come, or large ones, the subscriptions end for a minute: the server sends
//!    no more of them then.
//! 3. Answers go to subjects of replies only, and not to the agent's own.

use std::mem;
use std::time::Duration;

use super::NatsStore;
use crate::core::{AgentStatus, Instant, Ms};
use crate::nats::micro::{EndpointStats, PREFIX, RequestKind, Service, is_reply, read_stats};
use crate::nats::{Message, Outgoing};
use crate::store::pace::Pace;
use crate::store::question::AgentAnswer;
use crate::store::{AgentQuestion, Hint};
use crate::sys;

/// How often requests may come in the long run.
const EVERY: Duration = Duration::from_millis(5);

/// A request that comes too early by so many of these times, or more, is not answered.
const EARLY_MAX: u32 = 50;

/// The subscriptions end when a request comes too early by more of these times.
const FLOOD: u32 = 1000;

/// The time for which the subscriptions end.
const PAUSE: Duration = Duration::from_secs(60);

/// So many bytes of the payload of a request count as a further request.
const BYTES_OF_ONE: usize = 8 << 10;

/// How long a client waits for statistics at the longest.
const STATS_MAX: Duration = Duration::from_secs(1);

/// The name of the service that all agents are.
pub const SERVICE: &str = "putex";

/// The properties of an agent by which it is found.
pub const BUCKET: &str = "bucket";
/// See [`BUCKET`].
pub const KEY: &str = "key";

/// The service of an agent, and its requests.
pub(super) struct MicroService {
    service: Service,
    pace: Pace,
    /// The numbers of its subscriptions; none while there are none.
    subscriptions: Vec<u64>,
    /// The subscriptions are not made again before this instant.
    paused_until: Option<Instant>,
    stats: EndpointStats,
    /// The clients that wait for statistics, and since when.
    waiting: Vec<(String, Instant)>,
}

/// Counts a request of so many bytes; returns how much too early it comes for the long run.
fn count(pace: &mut Pace, bytes: usize, now: Instant) -> Duration {
    pace.count(u32::try_from(1 + bytes / BYTES_OF_ONE).unwrap_or(u32::MAX), now)
}

impl MicroService {
    /// Forgets the subscriptions and the waiting clients of a connection that is lost.
    pub(super) fn forget_connection(&mut self) {
        self.subscriptions.clear();
        self.waiting.clear();
    }

    /// Returns whether the agent is one of those that a question is for.
    fn is_asked(&self, question: &AgentQuestion) -> bool {
        let of = |name: &str| self.service.metadata.get(name).map(String::as_str);
        let key = of(KEY).unwrap_or_default();
        of(BUCKET) == Some(&*question.bucket) && question.keys.contains(key)
    }
}

/// Returns whether a message is for a micro service. Whatever its headers are, it is no hint.
pub(super) fn is_micro(message: &Message) -> bool {
    message.subject.starts_with(PREFIX)
}

impl NatsStore {
    /// Has clients of micro services find this service, from the next [`wait`] on.
    ///
    /// [`wait`]: crate::store::Bucket::wait
    #[must_use]
    pub fn with_service(self, service: Service) -> NatsStore {
        let micro = MicroService {
            service,
            pace: Pace::of(EVERY, sys::now()),
            subscriptions: Vec::new(),
            paused_until: None,
            stats: EndpointStats::default(),
            waiting: Vec::new(),
        };
        NatsStore { micro: Some(micro), ..self }
    }

    /// Subscribes to the requests to the service, unless that was done on this connection, or is
    /// not due yet.
    pub(super) fn subscribe_micro(&mut self) {
        let Some(micro) = self.micro.as_mut().filter(|it| it.subscriptions.is_empty()) else {
            return;
        };
        if micro.paused_until.is_some_and(|until| sys::now() < until) {
            return;
        }
        // A connection that fails is noticed when it is used next.
        micro.subscriptions =
            self.client.subscribe(&micro.service.subjects(), &[]).unwrap_or_default();
    }

    /// Answers a request to the service, or returns the hint that its status is needed for that. A
    /// message that is no such request is ignored.
    pub(super) fn receive_micro(&mut self, message: &Message) -> Option<Hint> {
        let micro = self.micro.as_mut()?;
        let kind = micro.service.requested(&message.subject)?;
        // The request was under way when the subscriptions ended.
        if micro.subscriptions.is_empty() {
            return None;
        }
        let now = sys::now();
        let early = count(&mut micro.pace, message.weight(), now);
        if early > EVERY * FLOOD {
            self.pause_micro(now);
            return None;
        }
        // A payload of another program means nothing.
        let question: Option<AgentQuestion> = serde_json::from_slice(&message.payload).ok();
        if question.as_ref().is_some_and(|question| !micro.is_asked(question)) {
            return None;
        }
        let reply = message.reply.as_ref().filter(|_| early < EVERY * EARLY_MAX);
        let reply = reply.filter(|it| is_reply(it) && !self.client.replies_come_to(it))?;
        let answer = match kind {
            RequestKind::Ping => micro.service.ping(),
            RequestKind::Info => micro.service.info(),
            RequestKind::Stats => {
                micro.stats.requests += 1;
                micro.waiting.retain(|(_, since)| now.since(*since) < STATS_MAX);
                let is_first = micro.waiting.is_empty();
                micro.waiting.push((reply.clone(), now));
                let reads_requests = question.is_some_and(|question| question.reads_requests);
                return (is_first || reads_requests)
                    .then_some(Hint::StatusRequested { reads_requests });
            }
        };
        self.send_answer(reply, &answer);
        None
    }

    /// Ends the subscriptions for a while.
    fn pause_micro(&mut self, now: Instant) {
        let Some(micro) = &mut self.micro else { return };
        micro.pace = Pace::of(EVERY, now);
        micro.paused_until = Some(now.after(PAUSE));
        let ended = mem::take(&mut micro.subscriptions);
        log::warn!(
            "more requests to $SRV than an agent answers: clients of micro services do not find \
             it for {}",
            Ms(PAUSE)
        );
        let _ = self.client.subscribe(&[], &ended);
    }

    /// Sends statistics with this status to all that wait for them.
    pub(super) fn send_stats(&mut self, status: &AgentStatus) {
        let Some(micro) = &mut self.micro else { return };
        let (now, waiting) = (sys::now(), mem::take(&mut micro.waiting));
        for (_, since) in &waiting {
            micro.stats.processing += now.since(*since);
        }
        let answer = micro.service.stats(&micro.stats, status);
        for (reply, _) in waiting {
            self.send_answer(&reply, &answer);
        }
    }

    /// Sends an answer. Best effort: the client asks again.
    fn send_answer(&mut self, reply: &str, text: &str) {
        let sent = Outgoing { subject: reply, payload: text.as_bytes(), ..Outgoing::default() };
        let _ = self.client.publish(&sent);
    }
}

/// Reads the answer of an agent of this bucket.
pub(super) fn answer_of(bucket: &str, payload: &[u8]) -> Option<Hint> {
    let (properties, data) = read_stats(payload).filter(|(of, _)| of[BUCKET] == bucket)?;
    let key = properties[KEY].as_str()?.to_owned();
    let status = AgentStatus::from_json(data)?;
    Some(Hint::Answered(Box::new(AgentAnswer { key, status })))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MicroService {
        /// Lets the time pass until the subscriptions are made again.
        pub(crate) fn end_pause(&mut self) {
            self.paused_until = Some(sys::now());
        }
    }

    #[test]
    fn a_burst_is_answered_and_a_flood_ends_the_subscriptions() {
        let start = Instant::from_boot(Duration::from_secs(9));
        let new = || Pace::of(EVERY, start);
        let mut pace = new();
        let early: Vec<_> = (0..2000).map(|_| count(&mut pace, 0, start)).collect();
        let answered = early.iter().filter(|early| **early < EVERY * EARLY_MAX).count();
        let borne = early.iter().filter(|early| **early <= EVERY * FLOOD).count();
        assert_eq!((answered, borne), (50, 1001));
        // As many as are answered in the long run, for ever.
        let mut pace = new();
        for number in 0..10_000 {
            let now = start.after(EVERY * number);
            assert_eq!(count(&mut pace, 100, now), Duration::ZERO, "{number}");
        }
        // A few of the largest.
        let mut pace = new();
        let floods = (0..10).filter(|_| count(&mut pace, 1 << 20, start) > EVERY * FLOOD);
        assert_eq!(floods.count(), 2);
    }
}
