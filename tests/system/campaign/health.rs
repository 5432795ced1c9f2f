//! Whether the cluster is well, as a client of every server sees it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::host::BUCKET;
use super::nodes::{Node, SERVERS};
use super::server::PORT;
use crate::support::clock::{At, now, wait_until};
use crate::support::wire::Client;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);

/// A cluster that is looked at all the time.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    /// When the last inspection that found nothing wrong began.
    well_at: Option<At>,
    wrong: String,
}

impl Health {
    /// Looks until the process ends.
    pub(crate) fn monitor() -> Health {
        let seen = Seen { well_at: None, wrong: "nobody has looked yet".to_owned() };
        let health = Health(Arc::new(Mutex::new(seen)));
        let writer = health.clone();
        thread::spawn(move || {
            loop {
                let began = now();
                let looked = inspect();
                let mut seen = writer.0.lock().expect("nobody panics with it");
                match looked {
                    Ok(()) => seen.well_at = Some(began),
                    Err(why) => seen.wrong = why,
                }
                drop(seen);
                thread::sleep(LOOK);
            }
        });
        health
    }

    /// Returns whether nothing was wrong in an inspection that began after `since`.
    pub(crate) fn is_well_since(&self, since: At) -> bool {
        let seen = self.0.lock().expect("nobody panics with it");
        seen.well_at.is_some_and(|at| at > since)
    }

    /// Returns what was wrong last.
    pub(crate) fn wrong(&self) -> String {
        self.0.lock().expect("nobody panics with it").wrong.clone()
    }
}

/// Returns the address of a server for clients.
fn address(number: usize) -> SocketAddr {
    let text = format!("{}:{PORT}", Node::server(number).address());
    text.parse().expect("it is an address")
}

/// Asks for the bucket by way of each server: it has a leader and two that follow.
fn inspect() -> Result<(), String> {
    for number in 0..SERVERS {
        let mut client = Client::connect_to(address(number))?;
        let info = client.call(&format!("STREAM.INFO.KV_{BUCKET}"), "")?;
        let cluster = &info["cluster"];
        if !cluster["leader"].is_string() {
            return Err("the bucket has no leader".to_owned());
        }
        let replicas = cluster["replicas"].as_array().map_or(&[][..], Vec::as_slice);
        let follows =
            |replica: &&serde_json::Value| replica["current"] == true && replica["offline"] != true;
        let current = replicas.iter().filter(follows).count();
        if current != SERVERS - 1 {
            return Err(format!("{current} replicas follow the leader"));
        }
    }
    Ok(())
}

/// Makes the bucket that the agents share, as any client does, as soon as there are
/// enough servers for it.
pub(crate) fn make_bucket(longest_wait: Duration) -> Result<(), String> {
    let mut why = String::new();
    let made = wait_until(now() + longest_wait, || {
        let mut client = Client::connect_to(address(0)).map_err(|error| why = error).ok()?;
        let made = client.create_bucket_of(BUCKET, "file", SERVERS);
        made.map_err(|error| why = error).ok()
    });
    made.ok_or(format!("the cluster makes no bucket: {why}"))
}
