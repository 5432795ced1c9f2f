//! The configuration of a bucket's stream: the one that putex creates, and the checks
//! whether an existing one is safe for a lock. Pure.
//!
//! Servers before 2.12 silently ignore unknown fields, so the checks always read the
//! configuration that the server reports.

use serde_json::{Value, json};

use super::HINT_PREFIX;
use crate::core::sanitize;

/// First version that putex works with: an older one tells no time, and its replicated
/// compare-and-set may have several winners.
pub const AGENTS_SINCE: [u64; 3] = [2, 10, 0];

/// First version with conditions on other keys and with entries that the server removes.
pub const LOCKS_SINCE: [u64; 3] = [2, 11, 0];

/// Level of JetStream's API since [`LOCKS_SINCE`].
pub const LOCKS_LEVEL: u64 = 1;

/// Smallest limit of the message size, in bytes, that every record fits in: about 600
/// bytes of headers and a short token. Below it the server refuses every write.
const MESSAGE_BYTES_MIN: i64 = 1024;

/// The name of a field, its harmless values as JSON, and the effect of any other value. The value
/// of an absent field is null.
type Rule = (&'static str, &'static str, &'static str);

/// The values that make a bucket unsafe for a lock. A configuration that is not understood cannot
/// be trusted.
const FAULTS: [Rule; 12] = [
    // Keys of the bucket are in another stream, or come from one.
    ("mirror", "null", "it is a late copy of another stream"),
    ("sources", "null, []", "messages come in without compare-and-set"),
    ("subject_transform", "null", "a write may land on another key"),
    // A stored record may be removed.
    ("storage", r#""file", "memory""#, "not known to keep a record"),
    ("retention", r#""limits""#, "reading removes the record"),
    ("max_age", "null, 0", "the server drops the lock of a live holder"),
    ("subject_delete_marker_ttl", "null, 0", "the server removes and writes keys by itself"),
    // Writes or their acknowledgements fail.
    ("persist_mode", r#"null, "default""#, "writes are acknowledged before they are kept"),
    ("no_ack", "null, false", "writes are not acknowledged"),
    ("sealed", "null, false", "nothing can be written"),
    ("discard_new_per_subject", "null, false", "a lock cannot be renewed"),
    ("allow_msg_counter", "null, false", "it takes numbers only"),
];

/// The shortcomings of a safe bucket.
const REMARKS: [Rule; 5] = [
    ("storage", r#""file""#, "the lock is forgotten when the server stops"),
    ("allow_rollup_hdrs", "null, false", "a client that may write one key can wipe the bucket"),
    ("deny_purge", "true", "a client that may purge the stream can drop a held lock"),
    ("deny_delete", "true", "a client that may delete messages can drop a held lock"),
    ("max_msgs_per_subject", "1", "old records are kept for nothing"),
];

/// A bucket that is safe for a lock.
#[derive(Debug, PartialEq, Eq)]
pub struct SafeBucket {
    /// The number of its copies.
    pub replicas: u32,
    /// Level of the API of the stream's leader; 0 before nats-server 2.11.
    pub level: u64,
    /// Whether the server removes an entry after the time in its header.
    pub has_ttl: bool,
    /// Its shortcomings, one line each.
    pub remarks: Vec<String>,
}

/// Returns the fault of a bucket with fewer replicas than were asked for.
pub fn too_few_replicas(bucket: &str, have: u32, wanted: u32) -> Option<String> {
    (have < wanted).then(|| {
        format!(
            "bucket {bucket}: it has {have} of the {wanted} replicas that were asked for, and is \
             not changed; to change that: nats stream edit KV_{bucket} --replicas {wanted}"
        )
    })
}

/// Returns the body of the request to create `bucket`. A server before [`LOCKS_SINCE`] does not
/// know `allow_msg_ttl`, and ignores it.
pub fn create(bucket: &str, replicas: u32) -> String {
    let config = json!({
        "name": format!("KV_{bucket}"),
        "subjects": [format!("$KV.{bucket}.>")],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "duplicate_window": 120_000_000_000u64,
        "allow_rollup_hdrs": false,
        "deny_delete": true,
        "deny_purge": true,
        "allow_direct": true,
        "allow_msg_ttl": true,
        "republish": {
            "src": format!("$KV.{bucket}.>"),
            "dest": format!("{HINT_PREFIX}{bucket}.>"),
        },
    });
    config.to_string()
}

/// Checks the configuration of a bucket, as the server reports it.
///
/// # Errors
///
/// All reasons for which the bucket is not safe for a lock, on one line.
pub fn check(bucket: &str, config: &Value, allow_memory: bool) -> Result<SafeBucket, String> {
    let mut faults = subject_faults(bucket, config);
    if config["storage"] == "memory" && !allow_memory {
        let why = "storage memory: the lock is forgotten when the server stops (--allow-memory \
                   takes it nevertheless)";
        faults.push(why.to_owned());
    }
    faults.extend(broken(&FAULTS, config));
    let size = &config["max_msg_size"];
    let is_room = |bytes| !(1..MESSAGE_BYTES_MIN).contains(&bytes);
    if !size.is_null() && !size.as_i64().is_some_and(is_room) {
        let size = show_field(config, "max_msg_size");
        faults.push(format!("{size}: a record does not fit, {MESSAGE_BYTES_MIN} B are needed"));
    }
    for limit in ["max_msgs", "max_bytes"] {
        let is_limited = config[limit].as_i64().map_or(!config[limit].is_null(), |count| count > 0);
        if config["discard"] != "new" && is_limited {
            let (discard, limit) = (show_field(config, "discard"), show_field(config, limit));
            faults.push(format!("{discard} with {limit}: a write to any key may drop the lock"));
        }
    }
    let replicas = config["num_replicas"].as_u64().and_then(|count| count.try_into().ok());
    if replicas.is_none() {
        faults.push("num_replicas: it is not a number".to_owned());
    }
    let level = &config["metadata"]["_nats.level"];
    let level = if level.is_null() { Some("0") } else { level.as_str() };
    let level = level.and_then(|level| level.parse().ok());
    if level.is_none() {
        faults.push("metadata._nats.level: it is not a number".to_owned());
    }
    let (Some(replicas), Some(level), []) = (replicas, level, &*faults) else {
        let faults = faults.join("; ");
        return Err(format!(
            "bucket {bucket}: {faults}; write another --bucket, or change this one"
        ));
    };
    let mut remarks: Vec<String> = broken(&REMARKS, config).collect();
    let (republish, hint) = (&config["republish"], format!("{HINT_PREFIX}{bucket}.>"));
    if republish["src"] != format!("$KV.{bucket}.>") || republish["dest"] != hint {
        remarks
            .push(format!("no republish to {hint}: changes are noticed by reading every R only"));
    }
    let remarks = remarks.iter().map(|text| format!("bucket {bucket}: {text}")).collect();
    Ok(SafeBucket { replicas, level, has_ttl: config["allow_msg_ttl"] == true, remarks })
}

/// Returns the reasons why the stream is not the one of the bucket, does not have its keys
/// alone, or stores messages that are not written to it.
fn subject_faults(bucket: &str, config: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if config["name"] != format!("KV_{bucket}") {
        faults.push(format!("{}: this is another stream", show_field(config, "name")));
    }
    let home = format!("$KV.{bucket}.>");
    // A mirror has no subjects of its own.
    if config["mirror"].is_null() && config["subjects"] != json!([home]) {
        let subjects = config["subjects"].as_array().into_iter().flatten();
        let subjects: Vec<&str> = subjects.filter_map(Value::as_str).collect();
        let subjects = if subjects.is_empty() { "none".to_owned() } else { subjects.join(" ") };
        faults.push(format!(
            "subjects {}: exactly {home} is expected, or its keys are not all here or not alone",
            sanitize(&subjects)
        ));
    }
    let dest = config["republish"]["dest"].as_str();
    let first = dest.and_then(|dest| dest.split('.').next());
    let is_loop = first.is_none_or(|first| ["$KV", "$JS", "*", ">"].contains(&first));
    if !config["republish"].is_null() && is_loop {
        faults.push(format!(
            "republish to {}: what is stored is written again, without compare-and-set",
            sanitize(dest.unwrap_or("an unknown subject"))
        ));
    }
    faults
}

/// Returns the fields that break a rule, and the effects.
fn broken<'a>(rules: &'a [Rule], config: &'a Value) -> impl Iterator<Item = String> {
    let broken = rules.iter().filter(|(field, harmless, _)| {
        let harmless: Result<Vec<Value>, _> = serde_json::from_str(&format!("[{harmless}]"));
        !harmless.is_ok_and(|harmless| harmless.contains(&config[field]))
    });
    broken.map(|(field, _, effect)| format!("{}: {effect}", show_field(config, field)))
}

/// Formats a field and its value, as the server reports it, for a message. A text of the server
/// must not begin lines of its own.
fn show_field(config: &Value, field: &str) -> String {
    match &config[field] {
        Value::Null | Value::Array(_) | Value::Object(_) => field.to_owned(),
        value @ (Value::Bool(_) | Value::Number(_)) => format!("{field} {value}"),
        Value::String(text) => format!("{field} {}", sanitize(text)),
    }
}

/// Returns whether a version is a release from `since` on, or a pre-release of a later one.
pub(crate) fn is_since(version: &str, since: [u64; 3]) -> bool {
    let parsed = parse_version(version);
    parsed.is_some_and(|(numbers, released)| numbers > since || numbers == since && released)
}

/// Returns major, minor, patch, and whether it is a release.
fn parse_version(version: &str) -> Option<([u64; 3], bool)> {
    let version = version.strip_prefix('v').unwrap_or(version).split('+').next()?;
    let numbers = version.split('-').next()?;
    let parts: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    Some((parts?.try_into().ok()?, numbers == version))
}

#[cfg(test)]
mod tests;
