//! Locks while one or two of three servers are killed: which `putex lock` waits, which loses its
//! lock, and which goes on. Takes minutes, so these are ignored unless asked for.

use std::time::Duration;

use rustix::process::Signal;

use crate::site::{Lock, Site};
use crate::support::clock::{At, now, until, until_true};
use crate::support::process::lives;
use crate::support::wire::Client;

/// T is 12 s: longer than an election, of 8 s at the most.
pub(crate) const SLOW: [&str; 6] = ["-r", "2s", "-f", "6", "-k", "500ms"];
const SLOW_T: At = At::from_secs(12);

/// The exit status of a lost lock, and of a store that is not reached.
const LOST: i32 = 100;
const UNREACHABLE: Option<i32> = Some(69);

/// Returns the leader of the bucket once two others follow it.
pub(crate) fn leading_server(site: &Site) -> usize {
    until("two servers that follow a leader", || {
        let mut client = Client::connect(site.server().port()).ok()?;
        let info = client.call("STREAM.INFO.KV_putex", "").ok()?;
        let replicas = info["cluster"]["replicas"].as_array()?;
        let follows =
            |replica: &&serde_json::Value| replica["current"] == true && replica["offline"] != true;
        let name = info["cluster"]["leader"].as_str()?;
        (replicas.iter().filter(follows).count() == 2).then(|| name[1..].parse().ok())?
    })
}

fn kill(site: &Site, servers: &[usize]) -> At {
    let at = now();
    servers.iter().for_each(|number| site.server_of(*number).kill());
    at
}

fn restart(site: &Site, servers: &[usize]) {
    servers.iter().for_each(|number| site.server_of(*number).spawn().expect("it starts"));
}

/// Expects that the command of this lock runs on for this time, and that no other begins.
fn goes_on(site: &Site, holder: &Lock<'_>, time: Duration) {
    let (since, before) = (now(), site.held().len());
    let beats = || holder.held().is_some_and(|held| held.last_at > since + time);
    until_true("that the command runs on", beats);
    assert_eq!(site.held().len(), before, "another has begun");
}

/// A front that is asked for SIGTERM passes that on; its worker is stubborn.
fn stubborn<'a>(site: &'a Site, id: &str) -> Lock<'a> {
    site.lock_with(id, &["x"], &["stubborn"])
}

#[test]
#[ignore = "takes minutes"]
fn while_one_of_three_servers_is_gone_all_goes_on() {
    let Some(site) = Site::on_cluster(&SLOW) else { return };
    // In a new bucket, where the first waits for T.
    let first = stubborn(&site, "first");
    first.says("waiting");
    let one = leading_server(&site);
    kill(&site, &[one]);
    first.begun();
    restart(&site, &[one]);
    leading_server(&site);
    // While a lock is held and another is waited for.
    let second = site.lock("second", &["x"]);
    second.waits_behind(1);
    for _ in 0..2 {
        let one = leading_server(&site);
        kill(&site, &[one]);
        goes_on(&site, &first, SLOW_T.mul_f64(1.2));
        assert_eq!(site.run(&["-w", "30", "other", "true"]).status, Some(0));
        restart(&site, &[one]);
    }
    // While a lock is released, and handed over.
    let one = leading_server(&site);
    kill(&site, &[one]);
    first.end();
    second.begun();
    restart(&site, &[one]);
    second.end();
    site.assert_end();
}

#[test]
#[ignore = "takes minutes"]
fn while_two_of_three_servers_are_gone_nobody_is_granted_anything_and_holders_end_by_v() {
    let Some(site) = Site::on_cluster(&SLOW) else { return };
    // In a new bucket.
    let mut first = stubborn(&site, "first");
    first.says("waiting");
    let leading = leading_server(&site);
    let two = [leading, (leading + 1) % 3];
    let cut = kill(&site, &two);
    until_true("T", || now() > cut + SLOW_T * 2);
    assert!(first.held().is_none(), "granted by a minority");
    restart(&site, &two);
    first.begun();
    // While it is held, and waited for.
    let second = stubborn(&site, "second");
    second.waits_behind(1);
    let leading = leading_server(&site);
    let two = [(leading + 2) % 3, (leading + 1) % 3];
    let cut = kill(&site, &two);
    assert_eq!(first.status(), LOST, "{}", first.said());
    let last = first.held().expect("it has begun");
    assert!(last.last_at < cut + SLOW_T && !lives(last.pid), "{last:?} {cut:?}");
    println!("two were killed: its command was dead after {:?}", last.last_at.saturating_sub(cut));
    let unreachable = site.run(&["-w", "1", "other", "true"]);
    assert_eq!(unreachable.status, UNREACHABLE, "{}", unreachable.said);
    until_true("T", || now() > cut + SLOW_T * 2);
    assert!(second.held().is_none(), "granted by a minority");
    restart(&site, &two);
    assert!(second.begun().begun_at > last.last_at);
    // While it is released: that cannot be told, and the lock runs out.
    let third = site.lock("third", &["x"]);
    third.waits_behind(1);
    let leading = leading_server(&site);
    let two = [leading, (leading + 2) % 3];
    kill(&site, &two);
    second.end();
    assert!(third.held().is_none(), "granted by a minority");
    // A command that waits is interrupted.
    let mut fourth = site.lock("fourth", &["x"]);
    fourth.says("waiting");
    fourth.signal_front(Signal::TERM);
    assert_eq!(fourth.status(), -15, "{}", fourth.said());
    restart(&site, &two);
    third.begun();
    third.end();
    site.assert_end();
}
