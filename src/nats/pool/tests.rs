//! The choice of servers in a modelled network, in virtual time.

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use self::network::{Host, Network, State, at};
use super::{Candidates, Failure};
use crate::core::Instant;
use crate::nats::url::Server;

mod network;

const R: Duration = Duration::from_secs(3);

impl Candidates {
    /// Puts the first request without an answer so much earlier.
    pub(in crate::nats) fn age(&mut self, by: Duration) {
        self.unanswered_since = self.unanswered_since.map(|at| at.before(by));
    }
}

fn candidates(urls: &str) -> Candidates {
    Candidates::new(Server::parse_list(urls).expect("URLs"), R)
}

const ADDRESSES: [&str; 5] =
    ["10.0.0.1:4222", "10.0.0.2:4222", "10.0.0.3:4222", "10.0.0.4:4222", "10.0.0.5:4222"];

/// Returns the candidates of these addresses, as servers of their own.
fn servers(addresses: &[&str]) -> Candidates {
    candidates(&addresses.join(","))
}

fn hosts(count: usize, host: &Host) -> Vec<(&'static str, Host)> {
    ADDRESSES[..count].iter().map(|address| (*address, host.clone())).collect()
}

fn seconds(count: u64) -> Instant {
    at(1000 * count)
}

fn in_seconds(now: Instant, count: u64) -> Instant {
    now.after(Duration::from_secs(count))
}

#[test]
fn the_only_server_is_left_later_than_one_of_two() {
    let stays = |urls: &str| {
        let mut candidates = candidates(urls);
        let id = candidates.next(seconds(0)).expect("a server").id;
        (1..100).find(|now| candidates.unanswered(id, seconds(0), seconds(*now)))
    };
    assert_eq!((stays(ADDRESSES[0]), stays(&ADDRESSES[..2].join(","))), (Some(16), Some(2)));
    // An answer ends the time that counts.
    let mut candidates = servers(&ADDRESSES[..2]);
    assert!(!candidates.unanswered(1, seconds(0), seconds(1)));
    candidates.answered(1);
    assert!(!candidates.unanswered(1, seconds(2), seconds(3)));
    assert!(candidates.unanswered(1, seconds(3), seconds(4)));
}

/// A share of 2 s for each would be less than it takes.
#[test]
fn the_number_of_servers_takes_no_time_from_a_connection() {
    for (count, rtt_ms, tls) in [(5, 140, false), (3, 180, true), (5, 110, true)] {
        let host = Host { tls, ..Host::new(rtt_ms) };
        let mut network = Network::new(hosts(count, &host), [servers(&ADDRESSES[..count])]);
        let took = network.all_served_by(seconds(120)).expect("served");
        assert!(took < R / 2, "{count}, {rtt_ms} ms: {took:?}");
        assert_eq!(network.clients[0].attempts, 1);
    }
}

#[test]
fn one_named_server_of_five_connects_again_after_a_loss() {
    let host = Host { tls: true, ..Host::new(110) };
    let mut named = candidates("tls://10.0.0.1");
    let advertised: Vec<String> = ADDRESSES.iter().map(|&it| it.to_owned()).collect();
    let from = Server::parse_list("tls://10.0.0.1").expect("a URL").remove(0);
    named.learn(&from, &advertised);
    let mut network = Network::new(hosts(5, &host), [named]);
    network.all_served_by(seconds(2)).expect("served");
    for _ in 0..3 {
        network.run_until(in_seconds(network.now, 10));
        network.strike(ADDRESSES[0], State::Up);
        let took = network.all_served_by(in_seconds(network.now, 2)).expect("served again");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// The limit doubles until it is enough. A limit that is too short for the first attempts is
/// that of a caller with a short interval.
#[test]
fn a_limit_that_is_too_short_grows() {
    let servers = Server::parse_list(&ADDRESSES.join(",")).expect("URLs");
    let new = Candidates::new(servers, Duration::from_millis(500));
    let mut network = Network::new(hosts(5, &Host::new(600)), [new]);
    let took = network.all_served_by(seconds(30)).expect("served");
    assert!(took < Duration::from_secs(11), "{took:?}");
    network.run_until(in_seconds(network.now, 10));
    network.strike(ADDRESSES[0], State::Up);
    let again = network.all_served_by(in_seconds(network.now, 3)).expect("served again");
    assert!(again < Duration::from_millis(2500), "the last good one with its limit: {again:?}");
}

/// The first address of a name is of no use, each time in another way.
#[test]
fn an_address_of_no_use_does_not_hide_the_others() {
    let good = Host::new(10);
    for bad in [
        Host { state: State::Mute, ..good.clone() },
        Host { has_leader: false, ..good.clone() },
        Host { refuses_login: true, ..good.clone() },
        Host { state: State::Dark, ..good.clone() },
        Host { state: State::Down, ..good.clone() },
    ] {
        let hosts = [(ADDRESSES[0], bad.clone()), (ADDRESSES[1], good.clone())];
        let mut network = Network::new(hosts, [candidates("nats.example")]);
        let took = network.all_served_by(seconds(120)).expect("served");
        assert!(took < Duration::from_millis(2200), "{bad:?}: {took:?}");
        network.run_until(in_seconds(network.now, 10));
        network.strike(ADDRESSES[1], State::Up);
        let again = network.all_served_by(in_seconds(network.now, 2)).expect("served again");
        assert!(again < Duration::from_millis(100), "the last good one first: {again:?}");
    }
}

/// All clients lose their connections at once, and each login costs a server 107 ms.
#[test]
fn a_herd_with_hashed_passwords_comes_back() {
    let host = Host { hashing: Duration::from_millis(107), ..Host::new(1) };
    for (agents, count, limit) in
        [(60, 1, 8), (60, 3, 4), (140, 1, 16), (220, 1, 60), (240, 3, 60), (450, 3, 100)]
    {
        // Each client has an order of its own.
        let order = |client: usize| {
            let mut order = ADDRESSES[..count].to_vec();
            order.rotate_left(client % count);
            servers(&order)
        };
        let mut network = Network::new(hosts(count, &host), (0..agents).map(order));
        let took = network.all_served_by(seconds(120)).expect("all are served");
        assert!(took < Duration::from_secs(limit), "{agents}, {count}: {took:?}");
    }
}

/// The named server advertises three that cannot be reached.
#[test]
fn unreachable_servers_that_are_advertised_do_not_cost_the_lock() {
    let servers = Server::parse_list("10.0.0.1").expect("a URL");
    let mut new = Candidates::new(servers.clone(), Duration::from_secs(1));
    let advertised = ["10.9.0.1:4222", "10.9.0.2:4222", "10.9.0.3:4222"];
    new.learn(&servers[0], &advertised.map(str::to_owned));
    let mut network = Network::new(hosts(1, &Host::new(1)), [new]);
    network.all_served_by(seconds(1)).expect("served at once");
    for outage_ms in [0, 0, 0, 400, 400, 400, 900, 900, 900] {
        network.run_until(in_seconds(network.now, 10));
        network.strike(ADDRESSES[0], State::Down);
        network.run_until(network.now.after(Duration::from_millis(outage_ms)));
        network.strike(ADDRESSES[0], State::Up);
        let took = network.all_served_by(in_seconds(network.now, 30)).expect("served again");
        // At most one of the others is waited for.
        assert!(took <= Duration::from_millis(1100), "{outage_ms} ms: {took:?}");
    }
}

/// Five addresses of containers, say: each costs as long as a silent server. An agent that left its
/// server for one late answer lost the lock before it was back.
#[test]
fn a_server_that_was_left_is_back_after_one_advertised_address_that_nobody_serves() {
    let servers = Server::parse_list("10.0.0.1").expect("a URL");
    let mut new = Candidates::new(servers.clone(), Duration::from_secs(1));
    let first = new.next(at(0)).expect("a server").id;
    let advertised = (1..=5).map(|host| format!("10.9.0.{host}:4222"));
    new.learn(&servers[0], &advertised.collect::<Vec<_>>());
    new.connected(first, Duration::from_millis(1), at(1));
    new.answered(first);
    let mut now_ms = 5000;
    for round in 1..=5 {
        assert!(new.has_another(first), "{round}");
        new.left(first, at(now_ms));
        let other = new.next(at(now_ms)).expect("another").id;
        assert_ne!(other, first, "{round}");
        now_ms += 1000;
        new.failed(other, Failure::Silent, "no answer".to_owned(), at(now_ms), 0);
        assert_eq!(new.next(at(now_ms)).map(|next| next.id), Some(first), "{round}");
        new.connected(first, Duration::from_millis(1), at(now_ms));
        new.answered(first);
    }
    assert!(!new.has_another(first), "it was looked for in vain");
}

#[test]
fn a_server_that_advertises_ever_new_addresses_is_believed_some_of_them() {
    let servers = Server::parse_list("10.0.0.1").expect("a URL");
    let mut new = Candidates::new(servers.clone(), Duration::from_secs(1));
    for round in 0..20 {
        let advertised =
            (0..1000).map(|number| format!("10.{round}.{}.{}:4222", number / 250, number % 250));
        new.learn(&servers[0], &advertised.collect::<Vec<_>>());
        assert_eq!(new.list.len(), 65, "{round}");
    }
}

#[test]
fn a_server_that_is_cut_off_is_left() {
    let cut_off = Host { has_leader: false, ..Host::new(1) };
    let mut network = Network::new(
        [(ADDRESSES[0], cut_off.clone()), (ADDRESSES[1], Host::new(1))],
        [candidates("10.0.0.1,10.0.0.2")],
    );
    let took = network.all_served_by(seconds(60)).expect("served");
    assert!(took < R, "{took:?}");
    // One that is alone is left too: a new connection may lead to another one.
    let mut network = Network::new([(ADDRESSES[0], cut_off)], [candidates("10.0.0.1")]);
    network.run_until(seconds(60));
    let attempts = network.clients[0].attempts;
    assert!((4..=9).contains(&attempts), "{attempts} connections in a minute");
    network.hosts.values_mut().for_each(|host| host.has_leader = true);
    network.all_served_by(seconds(63)).expect("served with the next request");
}

#[test]
fn of_three_servers_without_a_leader_each_is_tried() {
    let cut_off = Host { has_leader: false, ..Host::new(1) };
    let mut network = Network::new(hosts(3, &cut_off), [candidates(&ADDRESSES[..3].join(","))]);
    network.run_until(seconds(3));
    network.hosts.last_entry().expect("three").get_mut().has_leader = true;
    let took = network.all_served_by(seconds(60)).expect("served");
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// A server that hangs behind TCP, and one that is started again.
#[test]
fn a_silent_server_does_not_keep_a_client_from_one_that_returns() {
    for state in [State::Dark, State::Mute] {
        let hosts = [(ADDRESSES[0], Host { state, ..Host::new(1) }), (ADDRESSES[1], Host::new(1))];
        let clients = (0..50).map(|_| candidates("10.0.0.1,10.0.0.2"));
        let mut network = Network::new(hosts, clients);
        network.all_served_by(seconds(10)).expect("served");
        network.run_until(seconds(20));
        network.strike(ADDRESSES[1], State::Down);
        network.run_until(seconds(23));
        network.strike(ADDRESSES[1], State::Up);
        let took = network.all_served_by(seconds(60)).expect("served again");
        assert!(took < R, "{state:?}: {took:?}");
    }
}

#[test]
fn pauses_are_short_for_a_refused_connection_and_long_for_a_slow_server() {
    let from = Server::parse_list("10.0.0.1").expect("a URL").remove(0);
    for (failure, is_advertised, first_ms, last_ms) in [
        (Failure::Unreached, false, 50, 1000),
        (Failure::Silent, false, 50, 1000),
        (Failure::Silent, true, 50, 16_000),
        (Failure::Refused, false, 50, 16_000),
        (Failure::Slow, false, 16_000, 16_000),
    ] {
        for (failures, max_ms) in [(1, first_ms), (12, last_ms)] {
            let pause = |random: u64| {
                let mut policy = candidates("10.0.0.1");
                policy.learn(&from, &["10.0.0.2:4222".to_owned()]);
                let (id, other) = if is_advertised { (2, 1) } else { (1, 2) };
                for _ in 0..failures {
                    policy.failed(id, failure, String::new(), at(0), random);
                }
                // The other one has to wait longer.
                policy.failed(other, failure, String::new(), at(100_000), random);
                policy.next(at(0)).expect("a server").not_before.since(at(0)).as_millis()
            };
            let pauses: Vec<_> = (0..400).map(|number| pause(number * 40_009)).collect();
            let (min, max) = (pauses.iter().min(), pauses.iter().max());
            let (min, max) = (min.expect("some"), max.expect("some"));
            let what = format!("{failure:?} {is_advertised} {failures}: {min} to {max} ms");
            assert!(*min * 5 <= max_ms && *max <= max_ms && *max * 5 >= max_ms * 4, "{what}");
        }
    }
}

#[test]
fn a_server_that_drops_its_clients_gets_pauses() {
    let mut policy = candidates("10.0.0.1");
    let mut pause_after = |age_ms: u64, answers: bool| {
        let (now, id) = (at(0), policy.next(at(0)).expect("a server").id);
        policy.connected(id, Duration::ZERO, now);
        if answers {
            policy.answered(id);
        }
        policy.ended(id, Duration::from_millis(age_ms), "closed", now, 15_000_000);
        policy.next(now).expect("a server").not_before.since(now)
    };
    let first = pause_after(1999, true);
    assert!(first > Duration::ZERO && first <= Duration::from_millis(50), "{first:?}");
    let mut last = first;
    for _ in 0..10 {
        last = pause_after(100, false);
    }
    assert_eq!(last, Duration::from_secs(15), "the random number itself");
    for _ in 0..10 {
        last = pause_after(100, true);
        assert!(last <= Duration::from_millis(800), "one that answers is needed: {last:?}");
    }
    assert!(last >= Duration::from_millis(500), "{last:?}");
    pause_after(2000, true);
    let again = pause_after(100, true);
    assert!(again <= Duration::from_millis(50), "a connection that lasts ends that: {again:?}");
}

/// The time that was wasted on it in one outage is not wasted again in the next.
#[test]
fn a_server_that_was_not_reached_has_its_first_limit_after_an_answer() {
    let servers = Server::parse_list("10.0.0.1,10.0.0.2").expect("URLs");
    let mut policy = Candidates::new(servers, Duration::from_millis(500));
    for _ in 0..3 {
        policy.failed(2, Failure::Silent, String::new(), at(0), 0);
    }
    policy.failed(1, Failure::Silent, String::new(), at(0), 0);
    policy.connected(1, Duration::from_millis(700), at(0));
    policy.answered(1);
    let limit = |policy: &Candidates| policy.next(at(1)).expect("a server").info_within();
    assert_eq!(limit(&policy), Duration::from_millis(700), "as long as it took");
    policy.failed(1, Failure::Unreached, String::new(), at(0), 0);
    assert_eq!(limit(&policy), Duration::from_millis(500));
}

/// Name servers change the order of the addresses of a name from one answer to the next.
#[test]
fn the_order_of_addresses_does_not_change_the_text() {
    let mut candidates = candidates("n.example:1,m.example:1");
    let mut addresses: Vec<IpAddr> =
        ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|text| text.parse().expect("an address")).to_vec();
    candidates.resolved(1, &addresses, at(0));
    for id in 2..6 {
        candidates.failed(id, Failure::Unreached, "failed".to_owned(), at(0), 0);
    }
    let before = candidates.faults();
    assert_eq!(before.matches("failed").count(), 4, "{before}");
    addresses.rotate_left(1);
    candidates.resolved(1, &addresses, at(6));
    assert_eq!(candidates.faults(), before);
}

#[test]
fn the_text_of_all_failures_does_not_depend_on_their_order() {
    let faults = |order: &[u64]| {
        let mut policy = candidates("nats.example,10.0.0.9");
        policy.resolved(1, &["10.0.0.1".parse().expect("an address")], at(0));
        for &id in order {
            policy.failed(id, Failure::Unreached, format!("fault {id}"), at(id), 0);
        }
        policy.faults()
    };
    let all = "10.0.0.9:4222: fault 2; nats.example:4222 (10.0.0.1): fault 3";
    assert_eq!(faults(&[2, 3]), all);
    assert_eq!(faults(&[3, 2]), all);
    assert_eq!(faults(&[]), "no server has answered yet");
}

#[test]
fn addresses_that_a_name_lost_are_dropped_and_others_keep_their_pauses() {
    let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().expect("one"));
    let mut policy = candidates("nats.example");
    let mut tried = Vec::new();
    policy.resolved(1, &[a, b], at(0));
    for _ in 0..2 {
        let attempt = policy.next(at(0)).expect("an address");
        tried.push(attempt.address.expect("an address"));
        policy.failed(attempt.id, Failure::Slow, String::new(), at(0), 7_000_000);
    }
    assert_eq!(tried, [a, b]);
    policy.resolved(1, &[b, c], at(1));
    let next = policy.next(at(2)).expect("the new one");
    assert_eq!(next.address.expect("an address"), c);
    policy.failed(next.id, Failure::Slow, String::new(), at(2), 7_990_000);
    let next = policy.next(at(6900)).expect("the lookup again");
    assert_eq!((next.address, next.not_before), (None, at(5001)));
    policy.resolved(1, &[b, c], at(6900));
    let next = policy.next(at(6900)).expect("the one with the shortest pause");
    assert_eq!((next.address.expect("an address"), next.not_before), (b, at(7000)));
    assert_eq!(next.within(), Duration::from_secs(32), "twice the first limit");
}

/// A hashed password, or a long way, makes every handshake long. A herd whose passwords are
/// hashed must not log in twice.
#[test]
fn another_server_is_tried_beside_a_handshake_that_takes_much_longer_than_the_last() {
    let after = |policy: &Candidates, has_password| {
        policy.beside_after(&policy.next(at(0)).expect("a server"), has_password).as_millis()
    };
    let alone = candidates("nats.example");
    assert_eq!(after(&alone, false), 16_000, "the limit: there is no other");
    let mut policy = candidates("10.0.0.1,nats.example");
    assert_eq!((after(&policy, false), after(&policy, true)), (2000, 16_000), "none was made");
    for (took_ms, after_ms) in [(5, (1000, 1000)), (400, (3200, 16_000)), (5, (1000, 1000))] {
        policy.connected(2, Duration::from_millis(took_ms), at(0));
        assert_eq!((after(&policy, false), after(&policy, true)), after_ms);
    }
}

#[test]
fn a_handshake_that_goes_on_is_not_begun_again() {
    let mut policy = candidates("10.0.0.1,10.0.0.2");
    policy.goes_on(1, at(9000));
    policy.failed(2, Failure::Refused, String::new(), at(0), 0);
    assert_eq!(policy.next(at(1)).expect("the other").id, 2);
    policy.failed(2, Failure::Slow, String::new(), at(0), 15_000_000);
    let next = policy.next(at(1)).expect("the first");
    assert_eq!((next.id, next.not_before), (1, at(9000)));
    policy.connected(1, Duration::from_secs(1), at(1000));
    assert_eq!(policy.next(at(1000)).expect("the first").not_before, at(1000));
}
