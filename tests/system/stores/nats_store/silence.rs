//! The only server says nothing.

use std::fs;
use std::time::Duration;

use putex::store::nats::NatsStore;
use putex::store::{Bucket as _, Opening, StoreResult, open_or_make};
use putex::sys;
use rustix::process::Signal;

use super::server::{on_servers, soon};
use crate::support::clock::until_true;
use crate::support::network::{self, in_own_network, ip};
use crate::support::process::signal;
use crate::support::server::Server;

/// Time for a request, for PING, and for the host of the server to acknowledge it.
const REQUEST: Duration = Duration::from_millis(700);

/// Stops all threads of the server.
fn stop(server: &Server) {
    signal(server.id(), Signal::STOP);
    let is_stopped = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    until_true("the stop of the server", || {
        let threads = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
        threads.flatten().all(is_stopped)
    });
}

/// A connection through which the host of the server acknowledges the data that is sent is kept:
/// thousands of clients that leave a slow server, and connect to it again, make it slower. Nobody
/// else tells the client of a connection that the network has lost.
#[test]
fn a_server_that_is_slow_is_not_left_and_one_that_the_network_has_lost_is() {
    if let Some(why) = network::missing() {
        println!("skipped: {why}");
        return;
    }
    on_servers(|binary| {
        for is_slow in [true, false] {
            in_own_network(|| {
                ip(&[], "link set lo up");
                let server = Server::start(binary, "");
                let mut store = server.bucket("locks");
                let get = |store: &mut NatsStore, within| -> StoreResult<()> {
                    store.get("web", sys::now().after(within)).map(drop)
                };
                open_or_make(&mut *store, Opening::make(&["web"]), soon())
                    .expect("the store opens");
                match is_slow {
                    true => stop(&server),
                    false => ip(&[], "link set lo down"),
                }
                get(&mut store, REQUEST).expect_err("an answer of nobody");
                match is_slow {
                    true => signal(server.id(), Signal::CONT),
                    false => ip(&[], "link set lo up"),
                }
                let again = get(&mut store, Duration::from_secs(5));
                match again.map_err(|error| error.text) {
                    Ok(()) => assert!(is_slow, "it was not left"),
                    Err(text) => {
                        let why = "nothing was heard during a request";
                        assert!(!is_slow && text.contains(why), "slow {is_slow}: {text}");
                    }
                }
            });
        }
    });
}
