//! NATS micro services (ADR-32 of NATS): the subjects at which clients look for services, and the
//! answers, as JSON.
//!
//! Only the discovery is here: a service of putex has one endpoint, whose requests are those for
//! its statistics.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

/// The beginning of all subjects at which clients look for services.
pub(crate) const PREFIX: &str = "$SRV.";

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Asks which services there are.
    Ping,
    /// Asks for the properties of the services.
    Info,
    /// Asks for the statistics of the services.
    Stats,
}

/// The name of the endpoint.
const ENDPOINT: &str = "status";

/// An instance of a service, as its clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    /// The name that all instances have: letters, digits, `-` and `_`.
    pub name: &'static str,
    /// The text that tells this instance from the others: characters as of the name.
    pub id: String,
    /// The version of the program, as of semver.org.
    pub version: &'static str,
    /// A line for people.
    #[serde(skip)]
    pub description: String,
    /// Properties for programs.
    pub metadata: BTreeMap<&'static str, String>,
    /// When it was started.
    #[serde(skip)]
    pub started: SystemTime,
}

/// The statistics of the endpoint of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// The number of requests that were answered, or will be. Others are not counted: they are no
    /// requests of a client that waits.
    pub requests: u64,
    /// The time from the requests to their answers.
    pub processing: Duration,
}

/// Returns the subject of the statistics of all instances of a service.
pub fn stats_subject(service: &str) -> String {
    format!("{PREFIX}STATS.{service}")
}

/// Returns the properties of the service that sends these statistics, and what is special to it;
/// `None` if they are none.
pub fn read_stats(payload: &[u8]) -> Option<(Value, Value)> {
    let mut stats: Value = serde_json::from_slice(payload).ok()?;
    let is_stats = stats["type"] == response_type("stats");
    let data = stats.pointer_mut("/endpoints/0/data").map(Value::take)?;
    is_stats.then(|| (stats["metadata"].take(), data))
}

impl Service {
    /// Returns the subjects of all requests that this instance answers. There are others below.
    pub fn subjects(&self) -> [String; 3] {
        let Service { name, id, .. } = self;
        let all = format!("{PREFIX}*");
        [all.clone(), format!("{all}.{name}"), format!("{all}.{name}.{id}")]
    }

    /// Returns what a message to this subject requests; `None` if nothing of this instance.
    pub fn requested(&self, subject: &str) -> Option<RequestKind> {
        let mut tokens = subject.strip_prefix(PREFIX)?.split('.');
        let kind = match tokens.next()? {
            "PING" => RequestKind::Ping,
            "INFO" => RequestKind::Info,
            "STATS" => RequestKind::Stats,
            _ => return None,
        };
        let receiver: Vec<&str> = tokens.collect();
        [self.name, &self.id].starts_with(&receiver).then_some(kind)
    }

    /// Returns the answer to a ping.
    pub fn ping(&self) -> String {
        self.response("ping").to_string()
    }

    /// Returns the answer to a request for information.
    pub fn info(&self) -> String {
        let mut endpoint = self.endpoint();
        endpoint["metadata"] = json!({});
        let mut info = self.response("info");
        info["description"] = json!(self.description);
        info["endpoints"] = json!([endpoint]);
        info.to_string()
    }

    /// Returns the answer to a request for statistics; `data` is what is special to the service.
    pub fn stats(&self, done: &EndpointStats, data: &impl Serialize) -> String {
        let nanoseconds = u64::try_from(done.processing.as_nanos()).unwrap_or(u64::MAX);
        let mut endpoint = self.endpoint();
        endpoint["num_requests"] = json!(done.requests);
        endpoint["num_errors"] = json!(0);
        endpoint["last_error"] = json!("");
        endpoint["processing_time"] = json!(nanoseconds);
        endpoint["average_processing_time"] = json!(nanoseconds / done.requests.max(1));
        endpoint["data"] = json!(data);
        let mut stats = self.response("stats");
        stats["started"] = json!(humantime::format_rfc3339_millis(self.started).to_string());
        stats["endpoints"] = json!([endpoint]);
        stats.to_string()
    }

    /// Returns the members of all answers.
    fn response(&self, kind: &str) -> Value {
        let mut response = json!(self);
        response["type"] = json!(response_type(kind));
        response
    }

    /// Returns the members of all endpoints. The subject is that of the statistics of this
    /// instance: no other right is needed to use it.
    fn endpoint(&self) -> Value {
        let subject = format!("{}.{}", stats_subject(self.name), self.id);
        json!({ "name": ENDPOINT, "subject": subject, "queue_group": "" })
    }
}

/// Returns the type of the answers to requests of this kind.
fn response_type(kind: &str) -> String {
    format!("io.nats.micro.v1.{kind}_response")
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
            metadata: [("key", "we\"b\u{7}".to_owned())].into(),
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
        }
    }

    #[test]
    fn its_own_requests_are_told_from_all_others() {
        let service = service();
        assert_eq!(service.subjects(), ["$SRV.*", "$SRV.*.putex", "$SRV.*.putex.0f"]);
        for (subject, kind) in [
            ("$SRV.PING", RequestKind::Ping),
            ("$SRV.INFO.putex", RequestKind::Info),
            ("$SRV.STATS.putex.0f", RequestKind::Stats),
        ] {
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
        let done = EndpointStats { requests: 2, processing };
        let stats = read(service.stats(&done, &json!({ "x": 1 })));
        assert_eq!(stats["started"], "1970-01-01T00:00:01.500Z");
        assert_eq!(
            stats["endpoints"],
            json!([{
                "name": "status", "subject": "$SRV.STATS.putex.0f", "queue_group": "",
                "num_requests": 2, "num_errors": 0, "last_error": "",
                "processing_time": 2001, "average_processing_time": 1000, "data": { "x": 1 },
            }])
        );
        let none = service.stats(&EndpointStats::default(), &json!({ "x": 1 }));
        let read_back = read_stats(none.as_bytes()).expect("statistics");
        assert_eq!(read_back, (json!({ "key": "we\"b\u{7}" }), json!({ "x": 1 })));
        assert_eq!(read_stats(service.info().as_bytes()), None);
        let none = read(none);
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
