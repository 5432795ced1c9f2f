//! The INFO of a server.

use serde_json::Value;

use crate::core::sanitize;

/// Largest payload assumed for a server that names none: the server's default.
const PAYLOAD_BYTES_DEFAULT: usize = 1024 * 1024;

/// The fields of INFO that this client uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its address as this client reached it, `host:port`.
    pub address: String,
    /// Its name; its server id when it has no name.
    pub name: String,
    /// Its version, such as `2.15.1`. Other servers of its cluster may differ.
    pub version: String,
    /// Its cluster's name, when it is in one.
    pub cluster: Option<String>,
    /// Its JetStream domain, when it names one.
    pub domain: Option<String>,
    /// Whether JetStream is enabled.
    pub jetstream: bool,
    /// Largest size that it accepts for header block and payload together, in bytes.
    pub max_payload: usize,
    /// Other servers of its cluster, `host:port`.
    pub connect_urls: Vec<String>,
    /// Whether it is about to shut down and asks its clients to leave.
    pub lame_duck: bool,
    /// Whether it supports headers.
    pub headers: bool,
    /// Whether it refuses connections without TLS.
    pub tls_required: bool,
    /// Whether it supports TLS.
    pub tls_available: bool,
    /// The text that a client with an nkey must sign.
    pub nonce: Option<String>,
}

impl ServerInfo {
    /// Reads the JSON of an INFO. A field of another type counts as absent.
    ///
    /// # Errors
    ///
    /// When it is not a JSON object.
    pub(crate) fn parse(json: &str, address: &str) -> Result<ServerInfo, &'static str> {
        let value: Value =
            serde_json::from_slice(json.as_bytes()).map_err(|_| "INFO is not JSON")?;
        if !value.is_object() {
            return Err("INFO is not a JSON object");
        }
        // The texts of INFO are logged and must not begin lines of their own.
        let text = |name: &str| value[name].as_str().map(sanitize);
        let flag = |name: &str| value[name].as_bool().unwrap_or(false);
        let max_payload = value["max_payload"].as_u64().and_then(|bytes| bytes.try_into().ok());
        let urls = value["connect_urls"].as_array().into_iter().flatten();
        Ok(ServerInfo {
            address: address.to_owned(),
            name: text("server_name").or_else(|| text("server_id")).unwrap_or_default(),
            version: text("version").unwrap_or_default(),
            cluster: text("cluster"),
            domain: text("domain"),
            jetstream: flag("jetstream"),
            max_payload: max_payload.unwrap_or(PAYLOAD_BYTES_DEFAULT),
            connect_urls: urls.filter_map(Value::as_str).map(str::to_owned).collect(),
            lame_duck: flag("ldm"),
            headers: flag("headers"),
            tls_required: flag("tls_required"),
            tls_available: flag("tls_required") || flag("tls_available"),
            nonce: value["nonce"].as_str().map(str::to_owned),
        })
    }

    /// Returns the fault of this server if it keeps buckets and is in no cluster, where there are
    /// others beside it: each of them has a bucket of its own.
    pub fn not_one_cluster(&self) -> Option<&'static str> {
        (self.jetstream && self.cluster.is_none()).then_some(
            "it is in no cluster, and there are other servers: each has a bucket of its own, and \
             all agents would run; make them one cluster, or name one server, once, and start \
             all agents again",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_info() {
        let json = r#"{"server_id":"ND","server_name":"n1","version":"2.15.1","proto":1,
            "headers":true,"max_payload":65536,"jetstream":true,"api_lvl":5,"cluster":"C",
            "connect_urls":["127.0.0.1:15601",7,"127.0.0.1:15602"],"domain":"hub","ldm":true}"#;
        let info = ServerInfo::parse(json, "h:1").expect("an INFO");
        assert_eq!((info.name.as_str(), info.version.as_str()), ("n1", "2.15.1"));
        assert_eq!((info.cluster.as_deref(), info.domain.as_deref()), (Some("C"), Some("hub")));
        assert_eq!(info.max_payload, 65536);
        assert_eq!(info.connect_urls, ["127.0.0.1:15601", "127.0.0.1:15602"]);
        assert!(info.headers && info.jetstream && info.lame_duck);
        assert!(!info.tls_required);
    }

    #[test]
    fn little_or_no_info() {
        let info = ServerInfo::parse(r#"{"server_id":"ND","headers":"yes"}"#, "h:1").expect("one");
        assert_eq!((info.name.as_str(), info.address.as_str()), ("ND", "h:1"));
        assert_eq!(info.max_payload, PAYLOAD_BYTES_DEFAULT);
        assert!(!info.headers);
        let info = ServerInfo::parse(r#"{"version":"1\n2"}"#, "h:1").expect("one");
        assert_eq!(info.version, "1?2");
        for bad in ["", "[]", "1", "{", "{}{}", "\"x\""] {
            assert!(ServerInfo::parse(bad, "h:1").is_err(), "{bad:?}");
        }
        assert!(ServerInfo::parse(&"[".repeat(60_000), "h:1").is_err());
    }
}
