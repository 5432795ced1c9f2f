//! Three servers and a bucket of three copies: what an agent sees while a leader
//! is elected. Takes minutes, so these are ignored unless asked for.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use putex::core::event::{Opened, Written};
use putex::core::record::Revision;
use putex::core::seat::Seat;
use putex::nats::{self, Client, ConnectOptions, Login};
use putex::store::nats::{NatsSettings, NatsStore};
use putex::store::{
    Bucket, Content, Expected, LockKey, Opening, StoreError, StoreErrorKind, open_or_make,
};

use super::server::{self, on_servers, soon};
use super::{plain, write};
use crate::contract::entries::list;
use crate::support::clock::{PATIENCE, READ_MAX, observe_for, until_true};
use crate::support::programs;
use crate::support::server::{Server, free_port};

/// How often it is tried whether a cluster has a leader.
const TRY_EVERY: Duration = Duration::from_millis(100);

const ABSENT: Expected<'_> = Expected::Key(Revision(0));

struct Cluster(Vec<Server>);

impl Cluster {
    fn start(binary: &Path) -> Cluster {
        Cluster(Server::start_cluster(binary, "").expect("the cluster has a leader"))
    }

    fn client(&self) -> Client {
        let urls: Vec<_> = self.0.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        let servers = nats::Server::parse_list(&urls.join(",")).expect("URLs");
        let interval = Duration::from_millis(500);
        Client::new(servers, ConnectOptions::new(Login::None, "test".to_owned(), interval))
    }

    fn store(&self, bucket: &str, key: &str) -> LockKey {
        LockKey::new(self.bucket(bucket), key, 1, READ_MAX)
    }

    fn bucket(&self, bucket: &str) -> Box<NatsStore> {
        Box::new(NatsStore::new(self.client(), settings(bucket)))
    }
}

/// Returns settings of a bucket in a file with three copies.
fn settings(bucket: &str) -> NatsSettings {
    NatsSettings { replicas: 3, ..server::settings(bucket) }
}

/// Opens a bucket as an agent does, which tries all servers again and again: putex(8) says so.
fn open(store: &mut LockKey) -> Opened {
    let begin = Instant::now();
    loop {
        match store.open(soon()) {
            Ok(opened) => return opened,
            Err(StoreError { kind: StoreErrorKind::Unreachable, text }) => {
                assert!(begin.elapsed() < PATIENCE, "{text}");
                observe_for(TRY_EVERY);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Of six writes over the same revision at most one may be acknowledged. The others may be
/// answered that the key is busy.
fn race(cluster: &Cluster) {
    const RACERS: usize = 6;
    const ROUNDS: usize = 100;
    let mut stores: Vec<_> = (0..RACERS).map(|_| cluster.store("locks", "race")).collect();
    let mut expected = stores.iter_mut().map(open).last().expect("stores").key_states[0].revision;
    let mut busy = 0;
    for round in 0..ROUNDS {
        let written: Vec<_> = thread::scope(|scope| {
            let racers: Vec<_> = stores
                .iter_mut()
                .map(|store| {
                    scope.spawn(move || store.write(Seat::FIRST, expected, &plain("a"), soon()))
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().expect("joined")).collect()
        });
        busy += written.iter().filter(|one| matches!(one, Written::Unknown(_))).count();
        let stored = written.iter().filter_map(|one| match one {
            Written::Stored(revision) => Some(*revision),
            Written::Moved(_) | Written::Denied(_) | Written::Unknown(_) => None,
        });
        let stored: Vec<_> = stored.collect();
        assert_eq!(stored.len(), 1, "round {round}: {written:?}");
        expected = stored[0];
    }
    println!("{busy} of {} answers were busy", RACERS * ROUNDS);
}

fn put(store: &mut NatsStore, key: &str, expected: Expected<'_>) -> Written {
    store.write(key, expected, &Content::default(), None, soon())
}

/// Reads what was just written through another server.
fn listings(cluster: &Cluster) {
    const KEYS: u64 = 50;
    let mut writer = cluster.bucket("locks");
    let mut readers: Vec<_> = (0..3).map(|_| cluster.bucket("locks")).collect();
    for store in readers.iter_mut().chain([&mut writer]) {
        open_or_make(&mut **store, Opening::make(&["lock.a"]), soon())
            .expect("the cluster has a leader");
    }
    for number in 1..=KEYS {
        let written = put(&mut writer, &format!("k.{number:02}"), ABSENT);
        let Written::Stored(revision) = written else {
            panic!("{written:?}");
        };
        for reader in &mut readers {
            let listing = list(&mut **reader, "k", soon()).expect("a listing");
            assert_eq!(listing.entries.len() as u64, number);
            assert!(listing.last >= revision, "{} < {revision}", listing.last);
        }
    }
}

/// Writes through two servers under the condition that another key stands where it stood.
fn conditions(cluster: &Cluster) {
    let [mut writer, mut holder] = [(); 2].map(|()| {
        let mut settings = settings("leases");
        settings.for_locks = true;
        Box::new(NatsStore::new(cluster.client(), settings))
    });
    for store in [&mut writer, &mut holder] {
        until_true("the bucket has a leader", || {
            match open_or_make(&mut **store, Opening::make(&["lease"]), soon()) {
                Err(StoreError { kind: StoreErrorKind::Unreachable, .. }) => false,
                opened => opened.map(|_| true).expect("a bucket for leases"),
            }
        });
    }
    let Written::Stored(lease) = put(&mut writer, "lease", ABSENT) else {
        panic!("no lease");
    };
    let held = Expected::OtherKey("lease", lease);
    let by_holder = put(&mut holder, "data", held);
    assert!(matches!(by_holder, Written::Stored(_)), "{by_holder:?}");
    let Written::Stored(renewed) = put(&mut writer, "lease", Expected::Key(lease)) else {
        panic!("not renewed");
    };
    let late = put(&mut holder, "data", held);
    assert_eq!(late, Written::Moved(Some(renewed)));
}

#[test]
#[ignore = "takes minutes"]
fn a_bucket_of_three_copies_survives_its_leader() {
    on_servers(|binary| {
        let mut cluster = Cluster::start(binary);
        let mut store = cluster.store("locks", "web");
        let before = open(&mut store);
        race(&cluster);
        listings(&cluster);
        // Before 2.11 a server ignores the name of another key.
        if programs::nats_server().is_some_and(|new| new == binary) {
            conditions(&cluster);
        }
        let mut revision = write(&mut store, Revision(0), "a");
        let info = cluster.0[0].admin().stream("INFO", "locks", "");
        assert_eq!(info["config"]["num_replicas"], 3);
        let leader = info["cluster"]["leader"].as_str().expect("a leader").to_owned();
        let number: usize = leader[1..].parse().expect("a number");
        cluster.0[number].kill();
        let begin = Instant::now();
        let mut unknown = 0;
        // Until V the lock is written again, says putex(8).
        loop {
            match store.write(Seat::FIRST, revision, &plain("a"), soon()) {
                Written::Stored(next) => {
                    revision = next;
                    break;
                }
                Written::Unknown(text) => {
                    assert!(!text.contains("does not exist"), "{text}");
                    unknown += 1;
                }
                written @ (Written::Moved(_) | Written::Denied(_)) => panic!("{written:?}"),
            }
            assert!(begin.elapsed() < PATIENCE, "no leader");
            observe_for(TRY_EVERY);
            // The link may have led to the server that was killed.
            if store.read(Seat::FIRST, soon()).is_err_and(|text| text.contains("not connected")) {
                open(&mut store);
            }
        }
        println!("stored again after {:?} and {unknown} unknown", begin.elapsed());
        let after = open(&mut store);
        assert_eq!((after.bucket.id, after.key_states[0].revision), (before.bucket.id, revision));
    });
}

/// The connected server is new and keeps nothing: what it is says nothing of those that do.
#[test]
#[ignore = "takes minutes"]
fn a_leafnode_does_not_vouch_for_the_servers_of_its_hub() {
    let (Some(new), Some(old)) = (programs::nats_server(), programs::old_nats_server()) else {
        return;
    };
    for (hub, is_refused) in [(&new, false), (&old, true)] {
        let mut cluster = Cluster::start(hub);
        let mut config = server::old_config("locks");
        config["num_replicas"] = 3.into();
        let port = free_port();
        let leafnodes = format!("leafnodes {{ listen: \"127.0.0.1:{port}\" }}\n");
        // Servers of two domains are no cluster.
        cluster.0.iter_mut().for_each(Server::kill);
        for (server, lines) in cluster.0.iter_mut().zip([&*leafnodes, "", ""]) {
            server.reconfigure("jetstream {", &format!("{lines}jetstream {{ domain: hub,"));
        }
        // There may be no leader yet, or one that does not know the two other servers.
        let mut admin = cluster.0[0].admin();
        until_true("three servers for the copies", || {
            let create = "$JS.API.STREAM.CREATE.KV_locks";
            let made = admin.request_if_there(create, &config.to_string());
            made.is_some_and(|made| made["error"].is_null())
        });
        let mut leaf = Server::start_without_jetstream(&new);
        let url = format!("nats://127.0.0.1:{port}");
        let remotes = format!("leafnodes {{ remotes: [{{ url: \"{url}\" }}] }}\nlisten: ");
        leaf.reconfigure("listen: ", &remotes);
        let mut settings = server::settings("locks");
        settings.api = "$JS.hub.API".to_owned();
        settings.for_locks = true;
        let begin = Instant::now();
        let opened = loop {
            let bucket = NatsStore::new(leaf.client(None), settings.clone());
            match LockKey::new(Box::new(bucket), "web", 1, READ_MAX).open(soon()) {
                Err(StoreError { kind: StoreErrorKind::Unreachable, text }) => {
                    assert!(begin.elapsed() < PATIENCE, "{text}");
                    observe_for(TRY_EVERY);
                }
                opened => break opened,
            }
        };
        match opened {
            Err(StoreError { kind: StoreErrorKind::Unsafe, text }) if is_refused => {
                assert!(text.contains("is older than nats-server 2.11"), "{text}");
            }
            opened => assert!(opened.is_ok() && !is_refused, "{opened:?}"),
        }
    }
}
