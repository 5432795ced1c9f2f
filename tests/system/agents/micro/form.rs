//! The form of the answers of a micro service, by ADR-32 of NATS: every member is there, and of
//! its type. `nats micro` shows nothing of an answer that has another form.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns what is wrong with an answer to a request of this kind.
pub(crate) fn faults(kind: &str, answer: &Value) -> Vec<String> {
    let mut found = Faults(Vec::new());
    let all = ["type", "name", "id", "version", "metadata"];
    let more: &[&str] = match kind {
        "PING" => &[],
        "INFO" => &["description", "endpoints"],
        "STATS" => &["started", "endpoints"],
        other => panic!("{other}"),
    };
    found.members("", answer, &[&all, more].concat());
    let name = format!("io.nats.micro.v1.{}_response", kind.to_lowercase());
    found.check("type", answer["type"] == name.as_str(), &answer["type"]);
    found.check("name", is_name(&answer["name"]), &answer["name"]);
    found.check("id", is_name(&answer["id"]), &answer["id"]);
    found.check("version", is_semver(&answer["version"]), &answer["version"]);
    found.check("metadata", is_of_strings(&answer["metadata"]), &answer["metadata"]);
    if kind == "INFO" {
        found.check("description", answer["description"].is_string(), &answer["description"]);
        for endpoint in endpoints(answer) {
            found.endpoint(endpoint, &["metadata"]);
            found.check("metadata", is_of_strings(&endpoint["metadata"]), endpoint);
        }
    }
    if kind == "STATS" {
        found.check("started", is_time(&answer["started"]), &answer["started"]);
        for endpoint in endpoints(answer) {
            found.statistics(endpoint);
        }
    }
    found.0
}

/// Returns the endpoints of an answer.
pub(crate) fn endpoints(answer: &Value) -> &[Value] {
    answer["endpoints"].as_array().map_or(&[], Vec::as_slice)
}

struct Faults(Vec<String>);

impl Faults {
    fn check(&mut self, what: &str, is_right: bool, value: &Value) {
        if !is_right {
            self.0.push(format!("{what}: {value}"));
        }
    }

    /// Checks that an object has these members, and no others.
    fn members(&mut self, what: &str, value: &Value, members: &[&str]) {
        let present: BTreeSet<&str> =
            value.as_object().into_iter().flatten().map(|it| it.0.as_str()).collect();
        let wanted: BTreeSet<&str> = members.iter().copied().collect();
        self.check(&format!("{what} {wanted:?}"), present == wanted, value);
    }

    fn endpoint(&mut self, value: &Value, more: &[&str]) {
        self.members("endpoint", value, &[&["name", "subject", "queue_group"], more].concat());
        self.check("name", is_name(&value["name"]), value);
        let subject = value["subject"].as_str();
        self.check("subject", subject.is_some_and(|it| !it.is_empty()), value);
        self.check("queue_group", value["queue_group"].is_string(), value);
    }

    fn statistics(&mut self, value: &Value) {
        let numbers = ["num_requests", "num_errors", "processing_time", "average_processing_time"];
        self.endpoint(value, &[&numbers[..], &["last_error", "data"]].concat());
        for name in numbers {
            // Clients read 64 bits with a sign.
            self.check(name, value[name].as_i64().is_some_and(|it| it >= 0), value);
        }
        self.check("last_error", value["last_error"].is_string(), value);
        self.check("data", value["data"].is_object(), value);
        // A client that divides by the number of requests does not divide by zero.
        let is_counted = value["processing_time"] == 0 || value["num_requests"].as_u64() > Some(0);
        self.check("num_requests", is_counted, value);
    }
}

fn is_name(value: &Value) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    value.as_str().is_some_and(|text| !text.is_empty() && text.chars().all(is_of_name))
}

/// A version without anything behind the three numbers is all that putex has.
fn is_semver(value: &Value) -> bool {
    let numbers: Vec<&str> = value.as_str().unwrap_or_default().split('.').collect();
    let is_number = |text: &&str| text.parse::<u32>().is_ok_and(|it| it.to_string() == **text);
    numbers.len() == 3 && numbers.iter().all(is_number)
}

fn is_of_strings(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.values().all(Value::is_string))
}

/// RFC 3339, in UTC.
fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let digits: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    digits == "0000-00-00T00:00:00.000Z" && humantime::parse_rfc3339(text).is_ok()
}
