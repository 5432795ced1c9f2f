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
    pub allow_direct: bool,
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
        let read = Reader(value);
        if !value.is_object() {
            return Err("config is missing".to_owned());
        }
        Ok(StreamConfig {
            name: read.text("name", None)?,
            subjects: read.texts("subjects")?,
            retention: read.text("retention", None)?,
            storage: read.text("storage", None)?,
            discard: read.text("discard", None)?,
            discard_new_per_subject: read.flag("discard_new_per_subject")?,
            num_replicas: read.number("num_replicas", None)?,
            max_age: read.number("max_age", Some(0))?,
            max_msgs_per_subject: read.number("max_msgs_per_subject", Some(-1))?,
            max_msgs: read.number("max_msgs", Some(-1))?,
            max_bytes: read.number("max_bytes", Some(-1))?,
            max_msg_size: read.number("max_msg_size", Some(-1))?,
            no_ack: read.flag("no_ack")?,
            sealed: read.flag("sealed")?,
            deny_delete: read.flag("deny_delete")?,
            deny_purge: read.flag("deny_purge")?,
            allow_rollup_hdrs: read.flag("allow_rollup_hdrs")?,
            allow_direct: read.flag("allow_direct")?,
            allow_msg_ttl: read.flag("allow_msg_ttl")?,
            allow_msg_counter: read.flag("allow_msg_counter")?,
            subject_delete_marker_ttl: read.number("subject_delete_marker_ttl", Some(0))?,
            persist_mode: read.text("persist_mode", Some("default"))?,
            mirror: !value["mirror"].is_null(),
            sources: !value["sources"].is_null() && value["sources"] != json!([]),
            subject_transform: !value["subject_transform"].is_null(),
            level: read.level()?,
            republish: read.republish()?,
        })
    }
}

/// Returns the body of the request to create `bucket`.
///
/// Servers from 2.9.10 to 2.15.1 know every field; from 2.12 on they refuse a request
/// with an unknown field.
#[must_use]
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
    let mut faults = origin_faults(bucket, config);
    faults.extend(keeping_faults(config, allow_memory));
    faults.extend(writing_faults(config));
    if let Err(fault) = check_replicas(config.num_replicas, version) {
        faults.push(fault);
    }
    if faults.is_empty() {
        return Ok(remarks(bucket, config));
    }
    Err(format!("bucket {bucket}: {}", faults.join("; ")))
}

/// Checks that compare-and-set has one winner with this number of replicas on a server
/// of this version.
///
/// # Errors
///
/// Why it may have several.
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
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split('+').next()?;
    let (numbers, released) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, false),
        None => (version, true),
    };
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some((numbers, released))
}

/// Returns the options that let keys of the bucket live elsewhere, or come from elsewhere.
fn origin_faults(bucket: &str, config: &StreamConfig) -> Vec<String> {
    let mut faults = Vec::new();
    let home = format!("$KV.{bucket}.>");
    if config.name != format!("KV_{bucket}") {
        faults.push(format!("name {}: this is another stream", config.name));
    }
    if config.mirror {
        faults.push("mirror: it is a late copy of another stream".to_owned());
    }
    if config.sources {
        faults.push("sources: messages come in without compare-and-set".to_owned());
    }
    if !config.mirror && config.subjects != [home] {
        let subjects = match config.subjects.as_slice() {
            [] => "none".to_owned(),
            some => some.join(" "),
        };
        faults.push(format!(
            "subjects {subjects}: exactly $KV.{bucket}.> is expected, or its keys are not all here \
             or not alone"
        ));
    }
    if config.subject_transform {
        faults.push("subject_transform: a write may land on another key".to_owned());
    }
    if let Some(Republish { dest, .. }) = &config.republish {
        let first = dest.split('.').next().unwrap_or_default();
        if ["$KV", "$JS", "*", ">"].contains(&first) {
            faults.push(format!(
                "republish to {dest}: what is stored is written again, without compare-and-set"
            ));
        }
    }
    faults
}

/// Returns the options that can remove a stored record.
fn keeping_faults(config: &StreamConfig, allow_memory: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if config.storage == "memory" && !allow_memory {
        faults.push(
            "storage memory: the lock is forgotten when the server stops \
             (--allow-memory takes it nevertheless)"
                .to_owned(),
        );
    } else if config.storage != "memory" && config.storage != "file" {
        faults.push(format!("storage {}: not known to keep a record", config.storage));
    }
    if config.retention != "limits" {
        faults.push(format!("retention {}: reading removes the record", config.retention));
    }
    if config.max_age != 0 {
        faults.push(format!(
            "max_age {} ms: the server drops the lock of a live holder",
            config.max_age / 1_000_000
        ));
    }
    if config.allow_msg_ttl {
        faults.push("allow_msg_ttl true: a record may be dropped by its server's clock".to_owned());
    }
    if config.subject_delete_marker_ttl != 0 {
        faults.push(format!(
            "subject_delete_marker_ttl {} ms: the server removes and writes keys by itself",
            config.subject_delete_marker_ttl / 1_000_000
        ));
    }
    for (name, limit) in [("max_msgs", config.max_msgs), ("max_bytes", config.max_bytes)] {
        if limit > 0 && config.discard != "new" {
            faults.push(format!(
                "discard {} with {name} {limit}: a write to any key may drop the lock",
                config.discard
            ));
        }
    }
    faults
}

/// Returns the options that break writes or their acknowledgements.
fn writing_faults(config: &StreamConfig) -> Vec<String> {
    let mut faults = Vec::new();
    if config.persist_mode != "default" {
        faults.push(format!(
            "persist_mode {}: writes are acknowledged before they are kept",
            config.persist_mode
        ));
    }
    if config.no_ack {
        faults.push("no_ack true: writes are not acknowledged".to_owned());
    }
    if config.sealed {
        faults.push("sealed true: nothing can be written".to_owned());
    }
    if config.discard_new_per_subject {
        faults.push("discard_new_per_subject true: a lock cannot be renewed".to_owned());
    }
    if config.allow_msg_counter {
        faults.push("allow_msg_counter true: it takes numbers only".to_owned());
    }
    if (1..MESSAGE_BYTES_MIN).contains(&config.max_msg_size) {
        faults.push(format!(
            "max_msg_size {} B: a record does not fit, {MESSAGE_BYTES_MIN} B are needed",
            config.max_msg_size
        ));
    }
    faults
}

/// Returns the shortcomings of a safe bucket.
fn remarks(bucket: &str, config: &StreamConfig) -> Vec<String> {
    let hint = Republish { src: format!("$KV.{bucket}.>"), dest: format!("putex.hint.{bucket}.>") };
    let history = config.max_msgs_per_subject;
    let history = if history > 0 { history.to_string() } else { "without limit".to_owned() };
    [
        (
            config.storage == "memory",
            "storage memory: the lock is forgotten when the server stops".to_owned(),
        ),
        (
            config.allow_rollup_hdrs,
            "allow_rollup_hdrs true: a client that may write one key can wipe the bucket"
                .to_owned(),
        ),
        (
            !config.deny_purge,
            "deny_purge false: a client that may purge the stream can drop a held lock".to_owned(),
        ),
        (
            !config.deny_delete,
            "deny_delete false: a client that may delete messages can drop a held lock".to_owned(),
        ),
        (
            config.republish.as_ref() != Some(&hint),
            format!(
                "no republish to putex.hint.{bucket}.>: changes are noticed by reading every R only"
            ),
        ),
        (
            !config.allow_direct,
            "allow_direct false: every read goes to the stream's leader".to_owned(),
        ),
        (
            config.max_msgs_per_subject != 1,
            format!("max_msgs_per_subject {history}: old records are kept for nothing"),
        ),
    ]
    .into_iter()
    .filter_map(|(lacks, text)| lacks.then(|| format!("bucket {bucket}: {text}")))
    .collect()
}

/// Reads fields that may be absent but must not have another type. Texts are shown to
/// people and must not begin lines of their own; no text that they are compared with
/// has a control character or its replacement.
struct Reader<'a>(&'a Value);

impl Reader<'_> {
    fn flag(&self, name: &str) -> Result<bool, String> {
        match (&self.0[name], self.0[name].as_bool()) {
            (Value::Null, _) => Ok(false),
            (_, Some(flag)) => Ok(flag),
            (_, None) => Err(unexpected(name)),
        }
    }

    fn number(&self, name: &str, absent: Option<i64>) -> Result<i64, String> {
        match (&self.0[name], absent) {
            (Value::Null, Some(absent)) => Ok(absent),
            (value, _) => value.as_i64().ok_or_else(|| unexpected(name)),
        }
    }

    fn text(&self, name: &str, absent: Option<&str>) -> Result<String, String> {
        match (&self.0[name], absent) {
            (Value::Null, Some(absent)) => Ok(absent.to_owned()),
            (value, _) => shown(value).ok_or_else(|| unexpected(name)),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        if self.0[name].is_null() {
            return Ok(Vec::new());
        }
        let items = self.0[name].as_array().ok_or_else(|| unexpected(name))?;
        let text = |item: &Value| shown(item).ok_or_else(|| unexpected(name));
        items.iter().map(text).collect()
    }

    /// Reads the level that the server adds to the metadata.
    fn level(&self) -> Result<u64, String> {
        let level = &self.0["metadata"]["_nats.level"];
        match (level, level.as_str().map(str::parse)) {
            (Value::Null, _) => Ok(0),
            (_, Some(Ok(level))) => Ok(level),
            (_, Some(Err(_)) | None) => Err(unexpected("metadata._nats.level")),
        }
    }

    fn republish(&self) -> Result<Option<Republish>, String> {
        let value = &self.0["republish"];
        if value.is_null() {
            return Ok(None);
        }
        let inner = Reader(value);
        Ok(Some(Republish {
            src: inner.text("src", Some(">")).map_err(|_| unexpected("republish.src"))?,
            dest: inner.text("dest", None).map_err(|_| unexpected("republish.dest"))?,
        }))
    }
}

fn shown(value: &Value) -> Option<String> {
    value.as_str().map(sanitize)
}

fn unexpected(name: &str) -> String {
    format!("config.{name} is missing or of an unexpected kind")
}

#[cfg(test)]
mod tests;
