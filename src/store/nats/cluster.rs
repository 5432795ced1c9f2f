//! The reports of the servers of a cluster on themselves, and the state of the connection, for
//! `putex doctor`.

use std::os::fd::AsFd as _;
use std::time::Duration;

use serde_json::Value;

use super::NatsStore;
use crate::core::{Instant, sanitize_field};
use crate::nats::{ClientEvent, Outgoing};
use crate::sys::{self, Waker};

/// Each server answers this request of any account, with its version.
const OF_ACCOUNT: &str = "$SYS.REQ.ACCOUNT.PING.STATZ";

/// Each server with JetStream answers this request of the system account, and of accounts that
/// import it.
const OF_JETSTREAM: &str = "$SYS.REQ.SERVER.PING.JSZ";

/// So many servers are listed.
const SERVERS_MAX: usize = 256;

/// When a server has the writes that it acknowledges written to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before it acknowledges.
    Always,
    /// So often.
    Every(Duration),
}

/// The report of a server on itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterServer {
    /// The name of the server.
    pub name: String,
    /// The version of the server.
    pub version: String,
    /// When it has files written, if it tells.
    pub sync: Option<SyncMode>,
}

impl NatsStore {
    /// Returns the reports of the servers of the connected server's cluster on themselves, in the
    /// order of their names: of the servers that answer within `wait`, which is waited twice. None
    /// if the user may not ask them.
    pub fn cluster_servers(&mut self, wait: Duration) -> Vec<ClusterServer> {
        let cluster = self.client.server().and_then(|server| server.cluster.clone());
        let mut servers: Vec<ClusterServer> = Vec::new();
        for subject in [OF_ACCOUNT, OF_JETSTREAM] {
            for reply in self.replies_to(subject, sys::now().after(wait)) {
                let Some(found) = server_of(&reply, cluster.as_deref()) else { continue };
                match servers.iter_mut().find(|known| known.name == found.name) {
                    Some(known) => known.sync = known.sync.or(found.sync),
                    None => servers.push(found),
                }
            }
        }
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        servers
    }

    /// Sends a blank message, and returns the payloads of the replies of all that answer until this
    /// instant. A request that this user may not make has no reply; one that no server takes has a
    /// reply with a status.
    fn replies_to(&mut self, subject: &str, until: Instant) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        let (Ok(number), Ok(wake)) = (sys::random(), Waker::new()) else { return replies };
        let request = Outgoing { subject, ..Outgoing::default() };
        if self.client.publish_to_all(&request, &format!("{number:032x}")).is_err() {
            return replies;
        }
        while sys::now() < until && replies.len() < SERVERS_MAX {
            match self.client.wait(wake.as_fd(), Some(until)) {
                ClientEvent::Reply(reply) if reply.headers.status().is_none() => {
                    replies.push(reply.payload);
                }
                ClientEvent::Message(_) => {}
                // Nobody answers such a request.
                ClientEvent::Reply(_) | ClientEvent::NotAsked(_) => break,
                ClientEvent::Woken | ClientEvent::Elapsed | ClientEvent::Gone(_) => break,
            }
        }
        replies
    }
}

/// Reads the answer of a server; `None` if it is none, or of a server of another cluster.
fn server_of(payload: &[u8], cluster: Option<&str>) -> Option<ClusterServer> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    let text = |name: &str| value["server"][name].as_str().map(sanitize_field);
    if value["server"]["cluster"].as_str() != cluster {
        return None;
    }
    let config = &value["data"]["config"];
    let every = config["sync_interval"].as_u64().map(Duration::from_nanos);
    let sync = match config["sync_always"].as_bool() {
        Some(true) => Some(SyncMode::Always),
        _ => every.map(SyncMode::Every),
    };
    Some(ClusterServer { name: text("name")?, version: text("ver")?, sync })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(server: &str, data: &str) -> String {
        format!("{{\"server\":{{{server}}},\"data\":{data}}}")
    }

    #[test]
    fn a_server_tells_its_version_and_when_it_writes_to_disk() {
        let of = |data: &str| {
            let reply = reply("\"name\":\"n1\",\"ver\":\"2.15.1\",\"cluster\":\"c\"", data);
            server_of(reply.as_bytes(), Some("c")).expect("a server")
        };
        assert_eq!(of("{}").version, "2.15.1");
        let minutes = SyncMode::Every(Duration::from_secs(120));
        for (data, sync) in [
            ("{}", None),
            (r#"{"disabled":true}"#, None),
            (
                r#"{"config":{"sync_interval":120000000000,"sync_always":true}}"#,
                Some(SyncMode::Always),
            ),
            (r#"{"config":{"sync_interval":120000000000}}"#, Some(minutes)),
            (r#"{"config":{"max_memory":1}}"#, None),
        ] {
            assert_eq!(of(data).sync, sync, "{data}");
        }
    }

    #[test]
    fn servers_of_other_clusters_and_other_messages_do_not_count() {
        let of_other = reply("\"name\":\"n1\",\"ver\":\"2.9.10\",\"cluster\":\"d\"", "{}");
        for payload in [&*of_other, "", "{}", "[]", "7", r#"{"server":{"name":"n1"}}"#] {
            assert_eq!(server_of(payload.as_bytes(), Some("c")), None, "{payload}");
        }
        assert_eq!(server_of(reply("\"name\":\"n1\"", "{}").as_bytes(), None), None);
    }
}
