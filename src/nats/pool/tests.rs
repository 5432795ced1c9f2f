//! The choice of servers in a modelled network, in virtual time.

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use self::network::{Host, Network, State, at};
use super::{Candidate, Candidates, Failure, HANDSHAKES_MAX, LOOKUPS_MAX, Next};
use crate::core::Instant;
use crate::nats::url::Server;

mod network;

const R: Duration = Duration::from_secs(3);

/// The network looks so often whether all are served.
const PRECISION: Duration = Duration::from_millis(10);

impl Candidates {
    /// Puts the first request without an answer so much earlier.
    pub(in crate::nats) fn age(&mut self, by: Duration) {
        self.unanswered_since = self.unanswered_since.map(|at| at.before(by));
    }
}

fn candidates(urls: &str) -> Candidates {
    Candidates::new(Server::parse_list(urls).expect("URLs"), R)
}

/// Begins what is due, which there must be.
fn begin(policy: &mut Candidates, now: Instant) -> Candidate {
    let next = policy.next(now, now);
    let Next::Begin(candidate) = next else { panic!("not begun but {next:?}") };
    *candidate
}

/// Returns until when nothing is to be begun; `None` for as long as all that is under way goes on.
fn waits_until(policy: &mut Candidates, now: Instant) -> Option<Instant> {
    let next = policy.next(now, now);
    let Next::Wait(until) = next else { panic!("no wait but {next:?}") };
    until
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
        let id = begin(&mut candidates, seconds(0)).id;
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

/// The number of servers takes no time from a connection, and a long way costs no more than its
/// round trips.
#[test]
fn a_handshake_goes_on_beside_those_at_other_servers() {
    for (count, rtt_ms, tls) in [(5, 140, false), (3, 180, true), (5, 110, true), (5, 600, false)] {
        let host = Host { tls, ..Host::new(rtt_ms) };
        let mut network = Network::new(hosts(count, &host), [servers(&ADDRESSES[..count])]);
        let took = network.all_served_by(seconds(120)).expect("served");
        let round_trips = Duration::from_millis(rtt_ms) * if tls { 5 } else { 4 };
        assert!(took < round_trips + PRECISION, "{count}, {rtt_ms} ms: {took:?}");
    }
}

/// With one server of three off, every third job of cron with `-n` was skipped.
#[test]
fn a_server_that_is_off_hangs_or_refuses_delays_nobody_for_longer_than_the_next_takes() {
    for state in [State::Dark, State::Mute, State::Down] {
        for has_name in [false, true] {
            let bad = Host { state, ..Host::new(1) };
            let all =
                [(ADDRESSES[0], bad), (ADDRESSES[1], Host::new(1)), (ADDRESSES[2], Host::new(1))];
            let client = match has_name {
                true => candidates("nats.example"),
                false => servers(&ADDRESSES[..3]),
            };
            let mut network = Network::new(all, [client]);
            let took = network.all_served_by(seconds(60)).expect("served");
            let next_after = if state == State::Down { 0 } else { 250 };
            let most = Duration::from_millis(next_after + 5) + PRECISION;
            assert!(took < most, "{state:?}, by name: {has_name}: {took:?}");
            let attempts = network.clients[0].attempts;
            assert_eq!(attempts, 2, "{state:?}");
        }
    }
}

/// The resolver asks the second name server after 5 s. Every command that waited for less found no
/// server.
#[test]
fn names_are_looked_up_beside_each_other_and_beside_connections() {
    let addresses: Vec<IpAddr> =
        ADDRESSES[..3].iter().map(|it| it.split(':').next().unwrap().parse().unwrap()).collect();
    let [slow, quick] = [5000, 3].map(Duration::from_millis);
    let cases = [
        ([slow, slow, slow], State::Up, 5000),
        ([slow, quick, slow], State::Up, 3),
        ([slow, quick, quick], State::Dark, 253),
    ];
    for (takes, second, expected_ms) in cases {
        let all = [Host::new(1), Host { state: second, ..Host::new(1) }, Host::new(1)];
        let client = candidates("a.example,b.example,c.example");
        let mut network = Network::new(ADDRESSES.into_iter().zip(all), [client]);
        let names = ["a.example", "b.example", "c.example"].into_iter();
        network.lookups = names.zip(takes.into_iter().zip(addresses.clone())).collect();
        let took = network.all_served_by(seconds(60)).expect("served");
        let most = Duration::from_millis(expected_ms + 5) + PRECISION;
        assert!(took < most, "{takes:?}, {second:?}: {took:?}");
    }
}

/// A dead name service keeps a thread for each, and a dark network a socket.
#[test]
fn only_so_many_attempts_are_under_way_at_a_time() {
    let urls = |of: &dyn Fn(usize) -> String| (0..40).map(of).collect::<Vec<_>>().join(",");
    let mut names = candidates(&urls(&|number| format!("n{number}.example")));
    let mut addresses = candidates(&urls(&|number| format!("10.0.0.{number}")));
    for (policy, most) in [(&mut names, LOOKUPS_MAX), (&mut addresses, HANDSHAKES_MAX)] {
        let mut begun = 0;
        for now in 0..100 {
            while matches!(policy.next(at(0), seconds(now)), Next::Begin(_)) {
                begun += 1;
            }
        }
        assert_eq!(begun, most);
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
        let most = if bad.has_leader { Duration::from_millis(300) } else { R };
        assert!(took < most, "{bad:?}: {took:?}");
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
        assert!(took <= Duration::from_millis(1100), "{outage_ms} ms: {took:?}");
    }
}

/// Five addresses of containers, say: each costs as long as a silent server. An agent that left its
/// server for one late answer lost the lock before it was back.
#[test]
fn a_server_that_was_left_is_back_after_one_advertised_address_that_nobody_serves() {
    let servers = Server::parse_list("10.0.0.1").expect("a URL");
    let mut new = Candidates::new(servers.clone(), Duration::from_secs(1));
    let first = begin(&mut new, at(0)).id;
    let advertised = (1..=5).map(|host| format!("10.9.0.{host}:4222"));
    new.learn(&servers[0], &advertised.collect::<Vec<_>>());
    new.connected(first, Duration::from_millis(1), at(1));
    new.answered(first);
    let mut now_ms = 5000;
    for round in 1..=5 {
        assert!(new.has_another(first), "{round}");
        new.left(first, at(now_ms));
        let other = begin(&mut new, at(now_ms)).id;
        assert_ne!(other, first, "{round}");
        assert_eq!(waits_until(&mut new, at(now_ms)), Some(at(now_ms + 250)), "{round}");
        now_ms += 250;
        assert_eq!(begin(&mut new, at(now_ms)).id, first, "{round}");
        new.failed(other, Failure::Silent, "no answer".to_owned(), at(now_ms), 0);
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
    // A server that is alone is left too: a new connection may lead to another one.
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
                policy.next_idle(at(0)).expect("a server").not_before.since(at(0)).as_millis()
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
        let (now, id) = (at(0), policy.next_idle(at(0)).expect("a server").id);
        policy.connected(id, Duration::ZERO, now);
        if answers {
            policy.answered(id);
        }
        policy.ended(id, Duration::from_millis(age_ms), "closed", now, 15_000_000);
        policy.next_idle(now).expect("a server").not_before.since(now)
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

/// Name servers change the order of the addresses of a name from one answer to the next.
#[test]
fn the_order_of_addresses_does_not_change_the_text() {
    let mut candidates = candidates("n.example:1,m.example:1");
    let mut addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().expect("one"));
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
    assert_eq!(begin(&mut policy, at(0)).address, None);
    policy.resolved(1, &[a, b], at(0));
    for address in [a, b] {
        let attempt = begin(&mut policy, at(0));
        assert_eq!(attempt.address, Some(address));
        policy.failed(attempt.id, Failure::Slow, String::new(), at(0), 7_000_000);
    }
    policy.resolved(1, &[b, c], at(1));
    let next = begin(&mut policy, at(2));
    assert_eq!(next.address, Some(c));
    policy.failed(next.id, Failure::Slow, String::new(), at(2), 7_990_000);
    assert_eq!(begin(&mut policy, at(6900)).address, None, "the lookup again");
    assert_eq!(waits_until(&mut policy, at(6900)), Some(at(7000)));
    policy.resolved(1, &[b, c], at(6900));
    assert_eq!(begin(&mut policy, at(7000)).address, Some(b), "the one with the shortest pause");
}

#[test]
fn a_server_that_is_configured_twice_is_one_candidate() {
    assert_eq!(candidates("n.example,n.example,10.0.0.9").list.len(), 2, "it panicked");
}

#[test]
fn the_attempt_at_an_address_that_a_name_has_lost_goes_on() {
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().expect("one"));
    let mut policy = candidates("nats://u:p@nats.example");
    policy.resolved(1, &[a], at(0));
    let attempt = begin(&mut policy, at(0));
    policy.resolved(1, &[b], at(6000));
    // The attempt still holds up the next one.
    policy.greeted(attempt.id);
    assert_eq!(waits_until(&mut policy, at(6000)), None);
    policy.failed(attempt.id, Failure::Slow, String::new(), at(6000), 0);
    policy.resolved(1, &[b], at(12_000));
    assert_eq!(policy.list.len(), 2, "the name and its address");
}

/// Of a herd whose passwords are hashed each client would make two servers work.
#[test]
fn no_other_server_is_begun_beside_one_that_may_hash_a_password() {
    for (took_ms, greetings, user, waits) in [
        (None, 0, "u:p@", false),
        (None, 1, "", false),
        (None, 1, "u:p@", true),
        (Some(100), 1, "u:p@", true),
        (Some(100), 1, "", false),
        (Some(5), 1, "u:p@", false),
    ] {
        let mut policy = candidates(&format!("nats://{user}10.0.0.1,nats://{user}10.0.0.2"));
        if let Some(took_ms) = took_ms {
            policy.connected(1, Duration::from_millis(took_ms), at(0));
            policy.answered(1);
        }
        let first = begin(&mut policy, seconds(1)).id;
        (0..greetings).for_each(|_| policy.greeted(first));
        let until = waits_until(&mut policy, seconds(1));
        assert_eq!(until.is_none(), waits, "{took_ms:?} {greetings} {user}");
        // Its failure ends the wait.
        policy.failed(first, Failure::Slow, String::new(), seconds(1), 0);
        assert_ne!(begin(&mut policy, seconds(1)).id, first);
    }
}

#[test]
fn a_server_that_was_given_up_gets_as_long_a_pause_as_it_was_waited_for() {
    let mut policy = candidates("10.0.0.1");
    let id = begin(&mut policy, at(0)).id;
    policy.gave_up(id, at(700));
    assert!(matches!(policy.next(at(701), at(701)), Next::Wait(Some(until)) if until == at(1400)));
    // The server has not failed.
    assert_eq!(policy.faults(), "no server has answered yet");
}

/// The attempts under way at the deadline are in the text.
#[test]
fn the_text_names_what_has_not_answered() {
    let mut policy = candidates("nats.example,10.0.0.1,10.0.0.2");
    let begun = [0, 0, 250].map(|ms| begin(&mut policy, at(ms)).id);
    policy.greeted(begun[2]);
    assert_eq!(
        policy.faults(),
        "10.0.0.1:4222: it does not answer: it sent no INFO in time; 10.0.0.2:4222: it did not \
         answer CONNECT in time; nats.example:4222: its name was not looked up in time"
    );
}
