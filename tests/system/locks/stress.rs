//! Many processes at once, some of which are killed: 12 for 8 s, or as many and as long as
//! `PUTEX_STRESS=CLIENTS,SECONDS` says.

use std::env;
use std::time::{Duration, SystemTime};

use crate::clients::Clients;
use crate::record::faults;
use crate::site::{QUICK, QUICK_T, Site};
use crate::support::clock::{PATIENCE, now};

fn play(site: &Site) {
    let text = env::var("PUTEX_STRESS").unwrap_or_else(|_| "12,8".to_owned());
    let numbers = text.split_once(',').map(|(clients, time)| (clients.parse(), time.parse()));
    let Some((Ok(count), Ok(seconds))) = numbers else { panic!("{text}: write CLIENTS,SECONDS") };
    let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos()));
    println!("seed {seed}");
    let (until, no_words) = (now() + Duration::from_secs(seconds), [""; 0]);
    let clients = Clients {
        lock: &|| site.putex(&no_words),
        name: String::new(),
        record: site.record(),
        is_local: site.is_local(),
        lifetime: QUICK_T,
        goes_on: &|| now() < until,
        // Each client may wait for all others, and for tickets of killed ones to run out.
        wait_limit: PATIENCE.max(QUICK_T * 2 * count as u32),
        seed,
    };
    let ends = clients.play(count);
    let held = site.held();
    println!("{} held, {ends:?}", held.len());
    assert_eq!(faults(&held), no_words);
    assert_eq!(ends.odd, no_words);
    assert!(ends.well > 20 && ends.killed > 2, "nothing was proved");
    // On a server, the ticket of a renewer that was killed is removed by the next who waits.
    for name in ["a", "e"] {
        let status = site.putex(&["-w", "30", name, "true"]).status().expect("it can be run");
        assert!(status.success(), "{name}: {status}");
    }
    site.assert_end();
}

#[test]
fn many_processes_that_are_killed_at_random_exclude_each_other_in_order_in_a_directory() {
    if let Some(site) = Site::in_directory(&QUICK) {
        play(&site);
    }
}

#[test]
fn many_processes_that_are_killed_at_random_exclude_each_other_in_order_on_a_server() {
    if let Some(site) = Site::on_server(&QUICK) {
        play(&site);
    }
}
