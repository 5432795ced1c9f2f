//! Dozens of processes that claim, extend and expire one lease while servers are killed, and
//! writers that race its changes. Takes minutes, so these are ignored unless asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use putex::core::lease::{LeaseEntry, StoredLease};
use putex::core::tickets::Name;
use putex::core::{Revision, Written};
use putex::nats::{Client as NatsClient, ConnectOptions, Login, Server as Address};
use putex::store::leases::Leases;
use putex::store::nats::{API, NatsSettings, NatsStore};
use putex::store::{Content, Expected};

use super::{had, run_on};
use crate::rng::Rng;
use crate::site::Site;
use crate::support::clock::{At, now, until, until_true};
use crate::support::sandbox::Sandbox;
use crate::support::wire::Client;

/// How the subject of the lease begins.
const LEASE: &str = "$KV.putex.lease.db.x.";

const PROCESSES: usize = 32;
const HOSTS: usize = 4;
const TIME: Duration = Duration::from_secs(120);

/// The answer to a command: when it came, and until when the holder has the lease.
#[derive(Clone, Debug)]
struct Had {
    holder: String,
    term: u64,
    answered: At,
    until: At,
}

/// A lease that a command has expired, and when that has begun and ended.
#[derive(Clone, Debug)]
struct Expired {
    term: u64,
    began: At,
    ended: At,
}

/// Makes a bucket that keeps all entries, with a mark.
fn make_bucket(site: &Site, replicas: usize) {
    let config = format!(
        r#"{{"name":"KV_putex","subjects":["$KV.putex.>"],"retention":"limits","max_consumers":-1,
        "max_msgs_per_subject":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msg_size":-1,
        "storage":"file","discard":"new","num_replicas":{replicas},"deny_delete":true,
        "deny_purge":true,"allow_msg_ttl":true,"allow_direct":true}}"#
    );
    until("a bucket", || {
        let mut client = Client::connect(site.server().port()).ok()?;
        client.call("STREAM.CREATE.KV_putex", &config).ok()
    });
    site.believe();
}

/// Returns all entries of the lease `db/x` and of the key `leader`, in their order.
fn history(site: &Site) -> Vec<(u64, String, String, String)> {
    let mut client = until("a connection", || Client::connect(site.server().port()).ok());
    let info = until("a leader", || client.call("STREAM.INFO.KV_putex", "").ok());
    let last = info["state"]["last_seq"].as_u64().expect("a number");
    let mut all = Vec::new();
    for seq in 1..=last {
        let body = format!(r#"{{"seq":{seq}}}"#);
        let read = client.call("STREAM.MSG.GET.KV_putex", &body).expect("an entry");
        let field = |name: &str| {
            let text = read["message"][name].as_str().unwrap_or_default();
            String::from_utf8(Base64::decode_vec(text).expect("base64")).expect("a text")
        };
        let subject = read["message"]["subject"].as_str().expect("a subject").to_owned();
        all.push((seq, subject, field("hdrs"), field("data")));
    }
    all
}

/// Kills a server now and then, or starts it again, until this is over.
fn strike(site: &Site, servers: usize, is_over: &AtomicBool) -> u32 {
    let (mut rng, mut strikes) = (Rng::new(7, 1), 0);
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_secs(4));
        let number = rng.below(servers);
        site.server_of(number).kill();
        thread::sleep(Duration::from_millis(500 + rng.below(1500) as u64));
        site.server_of(number).spawn().expect("it starts");
        strikes += 1;
    }
    strikes
}

/// Plays one holder until the time is over.
fn play(
    site: &Site,
    host: &Sandbox,
    number: usize,
    until: At,
    (hads, expiries): (&Mutex<Vec<Had>>, &Mutex<Vec<Expired>>),
) {
    let (mut rng, holder) = (Rng::new(9, number as u64), format!("h{number}"));
    while now() < until {
        let began = now();
        let (millis, action) = (1000 + rng.below(2000) as u64, rng.below(5));
        let time = format!("{millis}ms");
        let words: &[&str] = match action {
            0 | 1 => &["lease", "claim", "-q", "--as", &holder, "--for", &time, "db/x"],
            2 => &["lease", "extend", "-q", "--as", &holder, "--for", &time, "db/x"],
            3 => &["lease", "expire", "-q", "db/x"],
            _ => &["lease", "expire", "-q", "-w", "5", "db/x"],
        };
        let run = run_on(host, site, words);
        match run.status {
            Some(0) if run.shown.starts_with("term=") => {
                let (term, _) = had(&run);
                let (answered, until) = (now(), began + Duration::from_millis(millis));
                let told = Had { holder: holder.clone(), term, answered, until };
                hads.lock().expect("no panic").push(told);
            }
            Some(0) => {
                let term = run.shown.split("term=").nth(1).and_then(|it| it.split(' ').next());
                if let Some(term) = term {
                    let term = term.parse().expect("a number");
                    let expired = Expired { term, began, ended: now() };
                    expiries.lock().expect("no panic").push(expired);
                }
            }
            Some(69 | 75 | 100) => {}
            _ => panic!("{words:?}: {run:?}"),
        }
        thread::sleep(Duration::from_millis(rng.below(300) as u64));
    }
}

fn race(site: &Site, servers: usize) {
    make_bucket(site, servers);
    let hosts: Vec<_> = (0..HOSTS).map(|_| Sandbox::new("lease-host")).collect();
    let (hads, expiries) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let (is_over, end) = (AtomicBool::new(false), now() + TIME);
    let strikes = thread::scope(|scope| {
        let striker = scope.spawn(|| strike(site, servers, &is_over));
        let (hads, expiries) = (&hads, &expiries);
        let players = (0..PROCESSES).map(|number| {
            let host = &hosts[number % HOSTS];
            scope.spawn(move || play(site, host, number, end, (hads, expiries)))
        });
        for player in players.collect::<Vec<_>>() {
            player.join().expect("it plays on");
        }
        is_over.store(true, Ordering::SeqCst);
        striker.join().expect("it strikes")
    });
    let (hads, expiries) = (hads.into_inner().expect("all"), expiries.into_inner().expect("all"));
    for one in &hads {
        for other in hads.iter().filter(|other| other.holder != one.holder) {
            let both = one.answered.max(other.answered)..one.until.min(other.until);
            assert!(both.is_empty(), "two have it: {one:?} {other:?}");
        }
        let expired = expiries.iter().filter(|it| it.term == one.term);
        for it in expired.filter(|it| one.answered < it.began) {
            assert!(it.ended >= one.until, "{it:?} was expired too early: {one:?}");
        }
    }
    let mut claims = BTreeMap::new();
    for (seq, subject, headers, payload) in history(site) {
        let is_claim = !headers.contains("Putex-Term") && !headers.contains("KV-Operation");
        if subject.starts_with(LEASE) && is_claim {
            claims.insert(seq, payload);
        }
    }
    for told in &hads {
        assert_eq!(claims.get(&told.term), Some(&told.holder), "it is not in the history");
    }
    let terms: BTreeSet<_> = hads.iter().map(|told| told.term).collect();
    println!(
        "{servers} servers, {strikes} killed: {} told that they have it, {} claims, {} expired",
        hads.len(),
        terms.len(),
        expiries.len()
    );
    assert!(terms.len() > 10 && expiries.len() > 10 && strikes > 5, "nothing was proved");
    super::expect_no_processes(site);
}

#[test]
#[ignore = "takes minutes"]
fn while_a_server_is_killed_again_and_again_one_holder_has_a_lease() {
    if let Some(site) = Site::on_new_bucket(&[]) {
        race(&site, 1);
    }
}

#[test]
#[ignore = "takes minutes"]
fn while_leaders_of_three_are_killed_one_holder_has_a_lease() {
    if let Some(site) = Site::on_cluster(&[]) {
        race(&site, 3);
    }
}

/// Writes that are sent under a lease, and changes of the lease.
const WRITES: u64 = 100_000;
const CHANGES: u64 = 1_000;

fn leases(site: &Site) -> Leases {
    let [_, urls] = site.store();
    let servers = Address::parse_list(&urls).expect("addresses");
    let options = ConnectOptions::new(Login::default(), "gate".to_owned(), Duration::from_secs(2));
    let settings = NatsSettings {
        bucket: "putex".to_owned(),
        replicas: 1,
        allow_memory: false,
        for_locks: true,
        api: API.to_owned(),
    };
    Leases::new(Box::new(NatsStore::new(NatsClient::new(servers, options), settings)))
}

fn soon() -> putex::core::Instant {
    putex::sys::now().after(Duration::from_secs(5))
}

/// Opens the bucket until it is open.
fn open(leases: &mut Leases, name: &Name) -> StoredLease {
    until("an open bucket", || {
        leases.open(soon()).ok()?;
        leases.read(name, soon()).ok()
    })
}

/// Changes the holder of the lease again and again: expires and claims it.
fn change(site: &Site, name: &Name, sent: &AtomicU64) {
    let mut leases = leases(site);
    let mut at = open(&mut leases, name).revision;
    for number in 0..CHANGES {
        let due = number * (WRITES / CHANGES);
        until_true("further writes", || sent.load(Ordering::SeqCst) >= due);
        let duration = Duration::from_secs(60);
        let holder = format!("h{}", number % 3);
        let lease = LeaseEntry { holder, duration, term: None };
        for lease in [None, Some(&lease)] {
            loop {
                match leases.write(name, at, lease, (number + 1, "gate"), soon()) {
                    Written::Stored(revision) => {
                        at = revision;
                        break;
                    }
                    Written::Moved(_) | Written::Denied(_) | Written::Unknown(_) => {
                        at = open(&mut leases, name).revision;
                    }
                }
            }
        }
    }
    until_true("all writes", || sent.load(Ordering::SeqCst) >= WRITES);
}

/// Writes under the lease whenever this holder has it, as far as the holder knows; returns how many
/// writes were acknowledged and refused.
fn write_under(site: &Site, name: &Name, number: u64, race: &GateRace) -> (u64, u64) {
    let (mut leases, holder) = (leases(site), format!("h{number}"));
    let mut shown = open(&mut leases, name);
    let (mut stored, mut refused) = (0, 0);
    while !race.is_over.load(Ordering::SeqCst) {
        let revision = shown.revision;
        if matches!(&shown.lease, Some(Ok(lease)) if lease.holder == holder) {
            race.sent.fetch_add(1, Ordering::SeqCst);
            let lease = leases.key(name);
            let content = Content {
                headers: vec![("X-Lease".to_owned(), revision.to_string())],
                payload: holder.clone().into_bytes(),
            };
            let expected = Expected::OtherKey(&lease, revision);
            match leases.bucket().write("leader", expected, &content, None, soon()) {
                Written::Stored(_) => {
                    stored += 1;
                    continue;
                }
                Written::Moved(_) => refused += 1,
                Written::Denied(_) | Written::Unknown(_) => {}
            }
        }
        // A connection that is lost is opened again.
        shown = leases.read(name, soon()).unwrap_or_else(|_| open(&mut leases, name));
    }
    (stored, refused)
}

/// The parts of the race run until the lease has changed often enough.
#[derive(Default)]
struct GateRace {
    sent: AtomicU64,
    is_over: AtomicBool,
}

fn race_the_gate(site: &Site, servers: usize) {
    make_bucket(site, servers);
    let name = Name::parse("db/x").expect("a name");
    let race = &GateRace::default();
    let (stored, refused) = thread::scope(|scope| {
        let striker = scope.spawn(|| strike(site, servers, &race.is_over));
        let name = &name;
        let writers: Vec<_> = (0..3)
            .map(|number| scope.spawn(move || write_under(site, name, number, race)))
            .collect();
        change(site, name, &race.sent);
        race.is_over.store(true, Ordering::SeqCst);
        let counts = writers.into_iter().map(|it| it.join().expect("it writes"));
        let sum = counts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        striker.join().expect("it strikes");
        sum
    });
    let (mut lease, mut writes, mut wrong) = (Revision(0), 0, 0);
    for (seq, subject, headers, _) in history(site) {
        if subject.starts_with(LEASE) {
            lease = Revision(seq);
        } else if subject == "$KV.putex.leader" {
            writes += 1;
            wrong += u64::from(!headers.contains(&format!("X-Lease: {lease}\r\n")));
        }
    }
    println!(
        "{servers} servers: {} sent, {stored} acknowledged, {refused} refused, {writes} in the \
         stream, {wrong} of them wrong",
        race.sent.load(Ordering::SeqCst)
    );
    assert_eq!(wrong, 0);
    assert!(writes >= stored && stored > 1_000 && refused > 100, "nothing was proved");
}

#[test]
#[ignore = "takes minutes"]
fn no_write_is_stored_after_its_lease_has_changed_through_restarts() {
    if let Some(site) = Site::on_new_bucket(&[]) {
        race_the_gate(&site, 1);
    }
}

#[test]
#[ignore = "takes minutes"]
fn no_write_is_stored_after_its_lease_has_changed_on_three_servers() {
    if let Some(site) = Site::on_cluster(&[]) {
        race_the_gate(&site, 3);
    }
}
