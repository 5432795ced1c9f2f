//! NATS micro services (ADR-32 of NATS): the subjects at which clients look for services, and the
//! answers, as JSON.
//!
//! Only the discovery is here: a service of putex has one endpoint, whose requests are those for
//! its statistics.

use std::time::{Duration, SystemTime};

use serde_json::Value;

/// The beginning of all subjects at which clients look for services.
pub(crate) const PREFIX: &str = "$SRV.";

/// The kinds of requests. They are in the order of `KINDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Which services there are.
    Ping,
    /// What they are.
    Info,
    /// What they have done so far.
    Stats,
}

/// The names of the kinds, in subjects and in the types of the answers.
const KINDS: [(RequestKind, &str, &str); 3] = [
    (RequestKind::Ping, "PING", "io.nats.micro.v1.ping_response"),
    (RequestKind::Info, "INFO", "io.nats.micro.v1.info_response"),
    (RequestKind::Stats, "STATS", "io.nats.micro.v1.stats_response"),
];

/// The name of the endpoint.
const ENDPOINT: &str = "status";

/// An instance of a service, as its clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The name that all instances have: letters, digits, `-` and `_`.
    pub name: &'static str,
    /// What tells it from the other instances: characters as of the name.
    pub id: String,
    /// The version of the program, as of semver.org.
    pub version: &'static str,
    /// A line for people.
    pub description: String,
    /// Properties for programs.
    pub metadata: Vec<(&'static str, String)>,
    /// When it was started.
    pub started: SystemTime,
}

/// What the endpoint of a service has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// The number of requests.
    pub requests: u64,
    /// How many of them were not answered.
    pub errors: u64,
    /// Why the last one was not; blank if all were.
    pub last_error: &'static str,
    /// The time from the requests to their answers.
    pub processing: Duration,
}

impl Service {
    /// Returns the subjects of all requests that this instance answers.
    pub fn subjects(&self) -> Vec<String> {
        let Service { name, id, .. } = self;
        let of_kind = |kind: &str| {
            let all = format!("{PREFIX}{kind}");
            [all.clone(), format!("{all}.{name}"), format!("{all}.{name}.{id}")]
        };
        KINDS.iter().flat_map(|(_, kind, _)| of_kind(kind)).collect()
    }

    /// Returns what a message to this subject requests; `None` if nothing of this instance.
    pub fn requested(&self, subject: &str) -> Option<RequestKind> {
        let mut tokens = subject.strip_prefix(PREFIX)?.split('.');
        let kind = tokens.next()?;
        let (kind, ..) = KINDS.iter().find(|(_, name, _)| *name == kind)?;
        let is_own = match [tokens.next(), tokens.next(), tokens.next()] {
            [None, ..] => true,
            [Some(name), None, _] => name == self.name,
            [Some(name), Some(id), None] => name == self.name && id == self.id,
            [Some(_), Some(_), Some(_)] => false,
        };
        is_own.then_some(*kind)
    }

    /// Returns the answer to a ping.
    pub fn ping(&self) -> String {
        self.response(RequestKind::Ping, Vec::new())
    }

    /// Returns the answer to a request for information.
    pub fn info(&self) -> String {
        let endpoint = self.endpoint(vec![("metadata", object(&[]))]);
        let description = quoted(&self.description);
        let more = vec![("description", description), ("endpoints", format!("[{endpoint}]"))];
        self.response(RequestKind::Info, more)
    }

    /// Returns the answer to a request for statistics; `data` is the JSON of what is special to the
    /// service.
    pub fn stats(&self, stats: &EndpointStats, data: String) -> String {
        let EndpointStats { requests, errors, last_error, processing } = stats;
        let nanoseconds = u64::try_from(processing.as_nanos()).unwrap_or(u64::MAX);
        let average = nanoseconds / (*requests).max(1);
        let endpoint = self.endpoint(vec![
            ("num_requests", requests.to_string()),
            ("num_errors", errors.to_string()),
            ("last_error", quoted(last_error)),
            ("processing_time", nanoseconds.to_string()),
            ("average_processing_time", average.to_string()),
            ("data", data),
        ]);
        let started = humantime::format_rfc3339_millis(self.started).to_string();
        let more = vec![("started", quoted(&started)), ("endpoints", format!("[{endpoint}]"))];
        self.response(RequestKind::Stats, more)
    }

    /// Returns an answer: the members of all of them, and more.
    fn response(&self, kind: RequestKind, more: Vec<Member>) -> String {
        let Service { name, id, version, metadata, .. } = self;
        let (_, _, kind) = KINDS[kind as usize];
        let metadata: Vec<Member> =
            metadata.iter().map(|(name, value)| (*name, quoted(value))).collect();
        let mut members = vec![
            ("type", quoted(kind)),
            ("name", quoted(name)),
            ("id", quoted(id)),
            ("version", quoted(version)),
            ("metadata", object(&metadata)),
        ];
        members.extend(more);
        object(&members)
    }

    /// Returns the endpoint, with more members. Its subject is that of the statistics of this
    /// instance: no other right is needed to use it.
    fn endpoint(&self, more: Vec<Member>) -> String {
        let subject = format!("{PREFIX}STATS.{}.{}", self.name, self.id);
        let mut members = vec![
            ("name", quoted(ENDPOINT)),
            ("subject", quoted(&subject)),
            ("queue_group", quoted("")),
        ];
        members.extend(more);
        object(&members)
    }
}

/// A name, and a value as JSON.
type Member = (&'static str, String);

/// Returns an object as JSON. The names need no escapes.
fn object(members: &[Member]) -> String {
    let members = members.iter().map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Returns a text as JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns whether a subject has the form of those that clients and servers make for replies:
/// nothing else may be published to because a message names it.
///
/// | subject | made by |
/// |---|---|
/// | `_INBOX.…`, `_INBOX_….…` | a client |
/// | `_R_.…` | a server, for a client of another account |
/// | `_GR_.….….` before one of these | a server, for a client of another cluster |
pub fn is_reply(subject: &str) -> bool {
    let routed = subject.strip_prefix("_GR_.").and_then(|route| route.splitn(3, '.').nth(2));
    let subject = routed.unwrap_or(subject);
    ["_INBOX.", "_INBOX_", "_R_."].into_iter().any(|start| subject.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        Service {
            name: "putex",
            id: "0f".to_owned(),
            version: "1.2.3",
            description: "web".to_owned(),
            metadata: vec![("key", "we\"b\u{7}".to_owned())],
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
        }
    }

    #[test]
    fn its_own_requests_are_told_from_all_others() {
        let service = service();
        let subjects = service.subjects();
        assert_eq!(subjects.len(), 9);
        for subject in &subjects {
            let kind = service.requested(subject).expect("its own");
            let (_, name, _) = KINDS[kind as usize];
            assert_eq!(subject.split('.').nth(1), Some(name), "{subject}");
        }
        for (subject, kind) in [
            ("$SRV.PING", RequestKind::Ping),
            ("$SRV.INFO.putex", RequestKind::Info),
            ("$SRV.STATS.putex.0f", RequestKind::Stats),
        ] {
            assert!(subjects.iter().any(|own| own == subject));
            assert_eq!(service.requested(subject), Some(kind));
        }
        for other in [
            "",
            "$SRV",
            "$SRV.",
            "$SRV.ping",
            "$SRV.SCHEMA",
            "$SRV.PING.",
            "$SRV.PING.other",
            "$SRV.PING.putex.",
            "$SRV.PING.putex.0e",
            "$SRV.PING.putex.0f.1",
            "SRV.PING",
            "x.$SRV.PING",
        ] {
            assert_eq!(service.requested(other), None, "{other}");
        }
    }

    #[test]
    fn the_answers_are_those_of_the_specification() {
        let service = service();
        let read = |text: String| -> Value { serde_json::from_str(&text).expect("JSON") };
        assert_eq!(
            read(service.ping()),
            json!({
                "type": "io.nats.micro.v1.ping_response", "name": "putex", "id": "0f",
                "version": "1.2.3", "metadata": { "key": "we\"b\u{7}" },
            })
        );
        let endpoint = json!({
            "name": "status", "subject": "$SRV.STATS.putex.0f", "queue_group": "", "metadata": {},
        });
        let info = read(service.info());
        assert_eq!(info["type"], "io.nats.micro.v1.info_response");
        assert_eq!(info["description"], "web");
        assert_eq!(info["endpoints"], json!([endpoint]));
        let processing = Duration::from_nanos(2001);
        let done = EndpointStats { requests: 2, errors: 1, last_error: "why", processing };
        let stats = read(service.stats(&done, r#"{"x":1}"#.to_owned()));
        assert_eq!(stats["started"], "1970-01-01T00:00:01.500Z");
        assert_eq!(
            stats["endpoints"],
            json!([{
                "name": "status", "subject": "$SRV.STATS.putex.0f", "queue_group": "",
                "num_requests": 2, "num_errors": 1, "last_error": "why",
                "processing_time": 2001, "average_processing_time": 1000, "data": { "x": 1 },
            }])
        );
        let none = read(service.stats(&EndpointStats::default(), "{}".to_owned()));
        assert_eq!(none["endpoints"][0]["last_error"], "");
        assert_eq!(none["endpoints"][0]["average_processing_time"], 0);
    }

    /// An agent may publish where the sender of the request may not.
    #[test]
    fn replies_go_to_subjects_of_replies_only() {
        for reply in
            ["_INBOX.a", "_INBOX.agent.b.1", "_INBOX_ops.a", "_R_.Xy.1", "_GR_.ab12.cd34._INBOX.a"]
        {
            assert!(is_reply(reply), "{reply}");
        }
        for other in [
            "",
            "$KV.locks.web",
            "$JS.API.STREAM.DELETE.KV_locks",
            "$SRV.PING",
            "$SYS.REQ.ACCOUNT.PING",
            "putex.twin.locks.web",
            "putex.hint.locks.web",
            "orders.new",
            "_INBOX",
            "_INBOXES.a",
            "_inbox.a",
            "_R_",
            "_GR_",
            "_GR_.ab12.cd34",
            "_GR_.ab12._INBOX.a",
            "_GR_.ab12.cd34.$KV.locks.web",
            "_GR_.ab12.cd34._GR_.ab12.cd34._INBOX.a",
            "$GR.ab12._INBOX.a",
        ] {
            assert!(!is_reply(other), "{other}");
        }
    }
}
