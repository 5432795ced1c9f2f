//! The configuration of a bucket's stream: the one that putex creates, and the checks
//! whether an existing one is safe for a lock. Pure.
//!
//! Servers before 2.12 silently ignore unknown fields, so the checks always read the
//! configuration that the server reports.

use serde_json::{Value, json};

use crate::core::text::sanitize;

/// First version whose replicated compare-and-set has exactly one winner. On older
/// versions six contenders have won the same revision.
const REPLICATED_CAS_SINCE: [u64; 3] = [2, 9, 21];

/// A pre-release up to this version may lack that fix.
const PRERELEASES_DOUBTED_TO: [u64; 3] = [2, 10, 0];

/// Smallest limit of the message size, in bytes, that every record fits in: about 600
/// bytes of headers and a short token. Below it the server refuses every write.
const MESSAGE_BYTES_MIN: i64 = 1024;

/// The republish option: the server publishes each stored message again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Republish {
    /// The subjects of the stored messages.
    pub src: String,
    /// The subject to publish to.
    pub dest: String,
}

/// The part of a stream's configuration that a lock depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the server's; `check` says what each means.
pub struct StreamConfig {
    pub name: String,
    pub subjects: Vec<String>,
    pub retention: String,
    pub storage: String,
    pub discard: String,
    pub discard_new_per_subject: bool,
    pub num_replicas: i64,
    /// Nanoseconds.
    pub max_age: i64,
    pub max_msgs_per_subject: i64,
    pub max_msgs: i64,
    pub max_bytes: i64,
    pub max_msg_size: i64,
    pub no_ack: bool,
    pub sealed: bool,
    pub deny_delete: bool,
    pub deny_purge: bool,
    pub allow_rollup_hdrs: bool,
    pub allow_msg_ttl: bool,
    pub allow_msg_counter: bool,
    /// Nanoseconds.
    pub subject_delete_marker_ttl: i64,
    pub persist_mode: String,
    pub mirror: bool,
    pub sources: bool,
    pub subject_transform: bool,
    /// Level of the API of the stream's leader; 0 before nats-server 2.11.
    pub level: u64,
    pub republish: Option<Republish>,
}

impl StreamConfig {
    /// Reads the `config` of an answer.
    ///
    /// # Errors
    ///
    /// Which field is missing or has an unexpected type: a configuration that is not
    /// understood cannot be trusted.
    pub fn parse(value: &Value) -> Result<StreamConfig, String> {
        if !value.is_object() {
            return Err("config is missing".to_owned());
        }
        let flag = |name: &str| read(&value[name], name, Some(false), Value::as_bool);
        let number = |name: &str, absent| read(&value[name], name, absent, Value::as_i64);
        let text = |name: &str, absent| read(&value[name], name, absent, sanitized);
        let texts = |items: &Value| items.as_array()?.iter().map(sanitized).collect();
        let level = |level: &Value| level.as_str()?.parse().ok();
        let (metadata, republish) = (&value["metadata"], &value["republish"]);
        let republish = match republish.is_null() {
            true => None,
            false => Some(Republish {
                src: read(&republish["src"], "republish.src", Some(">".to_owned()), sanitized)?,
                dest: read(&republish["dest"], "republish.dest", None, sanitized)?,
            }),
        };
        Ok(StreamConfig {
            name: text("name", None)?,
            subjects: read(&value["subjects"], "subjects", Some(Vec::new()), texts)?,
            retention: text("retention", None)?,
            storage: text("storage", None)?,
            discard: text("discard", None)?,
            discard_new_per_subject: flag("discard_new_per_subject")?,
            num_replicas: number("num_replicas", None)?,
            max_age: number("max_age", Some(0))?,
            max_msgs_per_subject: number("max_msgs_per_subject", Some(-1))?,
            max_msgs: number("max_msgs", Some(-1))?,
            max_bytes: number("max_bytes", Some(-1))?,
            max_msg_size: number("max_msg_size", Some(-1))?,
            no_ack: flag("no_ack")?,
            sealed: flag("sealed")?,
            deny_delete: flag("deny_delete")?,
            deny_purge: flag("deny_purge")?,
            allow_rollup_hdrs: flag("allow_rollup_hdrs")?,
            allow_msg_ttl: flag("allow_msg_ttl")?,
            allow_msg_counter: flag("allow_msg_counter")?,
            subject_delete_marker_ttl: number("subject_delete_marker_ttl", Some(0))?,
            persist_mode: text("persist_mode", Some("default".to_owned()))?,
            mirror: !value["mirror"].is_null(),
            sources: !value["sources"].is_null() && value["sources"] != json!([]),
            subject_transform: !value["subject_transform"].is_null(),
            level: read(&metadata["_nats.level"], "metadata._nats.level", Some(0), level)?,
            republish,
        })
    }
}

/// Reads a field that may be absent if `absent` is its value then, and that must not have
/// another type.
fn read<T>(
    field: &Value,
    name: &str,
    absent: Option<T>,
    typed: impl Fn(&Value) -> Option<T>,
) -> Result<T, String> {
    let value = if field.is_null() { absent } else { typed(field) };
    value.ok_or_else(|| format!("config.{name} is missing or of an unexpected kind"))
}

/// Reads a text as messages show it: it must not begin lines of its own. No text that it is
/// compared with has a control character or its replacement.
fn sanitized(value: &Value) -> Option<String> {
    value.as_str().map(sanitize)
}

/// Returns the body of the request to create `bucket`.
///
/// Servers from 2.9.10 to 2.15.1 know every field; from 2.12 on they refuse a request
/// with an unknown field.
pub fn create(bucket: &str, replicas: u32) -> String {
    json!({
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
        "republish": {
            "src": format!("$KV.{bucket}.>"),
            "dest": format!("putex.hint.{bucket}.>"),
        },
    })
    .to_string()
}

/// Checks the configuration of a bucket and the server's version. Returns the
/// shortcomings of a safe bucket, one line each.
///
/// # Errors
///
/// All reasons for which the bucket is not safe for a lock, on one line.
pub fn check(
    bucket: &str,
    config: &StreamConfig,
    version: &str,
    allow_memory: bool,
) -> Result<Vec<String>, String> {
    let mut faults = Findings(Vec::new());
    faults.add_origin(bucket, config);
    faults.add_keeping(config, allow_memory);
    faults.add_writing(config);
    let Findings(mut faults) = faults;
    faults.extend(check_replicas(config.num_replicas, version).err());
    if !faults.is_empty() {
        return Err(format!("bucket {bucket}: {}", faults.join("; ")));
    }
    let Findings(remarks) = remarks(bucket, config);
    Ok(remarks.iter().map(|text| format!("bucket {bucket}: {text}")).collect())
}

/// Checks that compare-and-set has one winner with this number of replicas on a server
/// of this version.
///
/// # Errors
///
/// The reason why it may have several.
pub fn check_replicas(replicas: i64, version: &str) -> Result<(), String> {
    if replicas <= 1 {
        return Ok(());
    }
    let Some((numbers, released)) = parse_version(version) else {
        return Err(format!(
            "num_replicas {replicas}: server version {version:?} is not understood, so nobody \
             knows whether a compare-and-set has one winner there"
        ));
    };
    let repaired = numbers >= REPLICATED_CAS_SINCE;
    if repaired && (released || numbers > PRERELEASES_DOUBTED_TO) {
        return Ok(());
    }
    let [major, minor, patch] = REPLICATED_CAS_SINCE;
    Err(format!(
        "num_replicas {replicas}: on nats-server {version}, older than {major}.{minor}.{patch}, \
         a replicated compare-and-set can have several winners"
    ))
}

/// Returns major, minor, patch, and whether it is a release.
fn parse_version(version: &str) -> Option<([u64; 3], bool)> {
    let version = version.strip_prefix('v').unwrap_or(version).split('+').next()?;
    let numbers = version.split('-').next()?;
    let parts: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    Some((parts?.try_into().ok()?, numbers == version))
}

/// The faults or the shortcomings of a configuration, one text each.
struct Findings(Vec<String>);

impl Findings {
    /// Adds the text of an option and of its effect, if the configuration has it.
    fn add(&mut self, has: bool, option: &str, effect: &str) {
        self.0.extend(has.then(|| format!("{option}: {effect}")));
    }

    /// Adds the options that store keys of the bucket in another stream, or take them from one.
    fn add_origin(&mut self, bucket: &str, config: &StreamConfig) {
        let StreamConfig { name, mirror, sources, subjects, subject_transform, .. } = config;
        let other_name = *name != format!("KV_{bucket}");
        self.add(other_name, &format!("name {name}"), "this is another stream");
        self.add(*mirror, "mirror", "it is a late copy of another stream");
        self.add(*sources, "sources", "messages come in without compare-and-set");
        let home = format!("$KV.{bucket}.>");
        let other_subjects = !mirror && *subjects != [&*home];
        let subjects = if subjects.is_empty() { "none".to_owned() } else { subjects.join(" ") };
        let effect =
            format!("exactly {home} is expected, or its keys are not all here or not alone");
        self.add(other_subjects, &format!("subjects {subjects}"), &effect);
        self.add(*subject_transform, "subject_transform", "a write may land on another key");
        let dest = config.republish.as_ref().map_or("", |republish| &*republish.dest);
        let first = dest.split('.').next().unwrap_or_default();
        let is_loop = ["$KV", "$JS", "*", ">"].contains(&first);
        let effect = "what is stored is written again, without compare-and-set";
        self.add(is_loop, &format!("republish to {dest}"), effect);
    }

    /// Adds the options that can remove a stored record.
    fn add_keeping(&mut self, config: &StreamConfig, allow_memory: bool) {
        let StreamConfig { storage, retention, discard, max_age, .. } = config;
        let is_memory = storage == "memory";
        let effect =
            "the lock is forgotten when the server stops (--allow-memory takes it nevertheless)";
        self.add(is_memory && !allow_memory, "storage memory", effect);
        let is_unknown = !is_memory && storage != "file";
        self.add(is_unknown, &format!("storage {storage}"), "not known to keep a record");
        let by_reading = retention != "limits";
        self.add(by_reading, &format!("retention {retention}"), "reading removes the record");
        let age = format!("max_age {} ms", max_age / 1_000_000);
        self.add(*max_age != 0, &age, "the server drops the lock of a live holder");
        let effect = "a record may be dropped by its server's clock";
        self.add(config.allow_msg_ttl, "allow_msg_ttl true", effect);
        let ttl = config.subject_delete_marker_ttl;
        let option = format!("subject_delete_marker_ttl {} ms", ttl / 1_000_000);
        self.add(ttl != 0, &option, "the server removes and writes keys by itself");
        for (name, limit) in [("max_msgs", config.max_msgs), ("max_bytes", config.max_bytes)] {
            let drops = limit > 0 && discard != "new";
            let option = format!("discard {discard} with {name} {limit}");
            self.add(drops, &option, "a write to any key may drop the lock");
        }
    }

    /// Adds the options that break writes or their acknowledgements.
    fn add_writing(&mut self, config: &StreamConfig) {
        let StreamConfig { persist_mode, no_ack, sealed, max_msg_size, .. } = config;
        let effect = "writes are acknowledged before they are kept";
        self.add(persist_mode != "default", &format!("persist_mode {persist_mode}"), effect);
        self.add(*no_ack, "no_ack true", "writes are not acknowledged");
        self.add(*sealed, "sealed true", "nothing can be written");
        let per_subject = config.discard_new_per_subject;
        self.add(per_subject, "discard_new_per_subject true", "a lock cannot be renewed");
        self.add(config.allow_msg_counter, "allow_msg_counter true", "it takes numbers only");
        let is_small = (1..MESSAGE_BYTES_MIN).contains(max_msg_size);
        let effect = format!("a record does not fit, {MESSAGE_BYTES_MIN} B are needed");
        self.add(is_small, &format!("max_msg_size {max_msg_size} B"), &effect);
    }
}

/// Returns the shortcomings of a safe bucket.
fn remarks(bucket: &str, config: &StreamConfig) -> Findings {
    let mut remarks = Findings(Vec::new());
    let effect = "the lock is forgotten when the server stops";
    remarks.add(config.storage == "memory", "storage memory", effect);
    let effect = "a client that may write one key can wipe the bucket";
    remarks.add(config.allow_rollup_hdrs, "allow_rollup_hdrs true", effect);
    let effect = "a client that may purge the stream can drop a held lock";
    remarks.add(!config.deny_purge, "deny_purge false", effect);
    let effect = "a client that may delete messages can drop a held lock";
    remarks.add(!config.deny_delete, "deny_delete false", effect);
    let hint = Republish { src: format!("$KV.{bucket}.>"), dest: format!("putex.hint.{bucket}.>") };
    let option = format!("no republish to {}", hint.dest);
    let effect = "changes are noticed by reading every R only";
    remarks.add(config.republish.as_ref() != Some(&hint), &option, effect);
    let history = config.max_msgs_per_subject;
    let option = match history {
        1.. => format!("max_msgs_per_subject {history}"),
        _ => "max_msgs_per_subject without limit".to_owned(),
    };
    remarks.add(history != 1, &option, "old records are kept for nothing");
    remarks
}

#[cfg(test)]
mod tests;
