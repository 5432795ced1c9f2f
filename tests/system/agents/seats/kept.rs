//! Services that a pause keeps running, and whose record is lost: nobody follows too early.

use std::time::Duration;

use super::group::{T, TAKEOVER};
use super::site::Site;
use crate::support::clock::{At, now, observe_for};
use crate::support::proxy::Mode;
use crate::support::wire::Client;

/// How long a pause lasts here: long enough for all that happens in it.
const LASTS: Duration = Duration::from_secs(14);

impl Site {
    /// Pauses the agents so that the service runs on; returns a time before the pause begins.
    #[track_caller]
    fn keep_running(&self) -> At {
        let before = now();
        let paused = self.run(&["pause", "--for", "14s", "--keep-running", "web"]);
        assert_eq!((paused.status, &*paused.said), (Some(0), ""), "{paused:?}");
        before
    }

    fn client(&self) -> Client {
        Client::connect(self.group.server.port()).expect("a connection")
    }

    /// Pauses the agents so that the service runs on, and cuts the holder off; returns the holder,
    /// the others, and a time before the pause begins.
    #[track_caller]
    fn cut_off_kept_holder(&self) -> (usize, Vec<usize>, At) {
        let holder = self.holder();
        let others = (0..3).filter(|host| *host != holder).collect();
        let paused_at = self.keep_running();
        self.group.hosts[holder].proxy.turn(Mode::Freeze);
        (holder, others, paused_at)
    }

    /// Checks that the holder, which is cut off, ran for as long as the pause lasted, and that
    /// nobody took the lock in the meantime.
    #[track_caller]
    fn check_nobody_is_early(&self, holder: usize, paused_at: At) {
        let (_, up_at) = self.group.next_holder(0, holder, paused_at);
        assert!(up_at >= paused_at + LASTS + T, "the holder had so long");
        let down_at = self.group.observer.down_since(holder, paused_at).expect("it was stopped");
        assert!(down_at >= paused_at + LASTS, "it ran until the pause was over");
        self.group.hosts[holder].proxy.turn(Mode::Pass);
        self.check_end();
    }
}

/// The entry of the pause tells what the record does not tell any more: also to an agent that is
/// started after that, and after the end of the pause.
#[test]
fn a_record_that_is_deleted_by_hand_is_waited_for_as_long_as_the_pause_would_have_lasted() {
    let Some(mut site) = Site::new(&["1", "2", "3"], &[]) else { return };
    let (holder, others, paused_at) = site.cut_off_kept_holder();
    site.group.kill_host_without_lock(others[0]);
    site.client().request("$KV.putex.web", "KV-Operation: DEL\r\n", "").expect("it is deleted");
    for _ in 0..2 {
        let resumed = site.run(&["resume", "-w", "1", "web"]);
        assert_eq!(resumed.status, Some(75), "{resumed:?}");
        let says = "web: no record says any more how long its holder may run the service";
        assert!(resumed.said.contains(says), "{resumed:?}");
    }
    if !site.group.start_rebooted(others[0]) {
        return println!("skipped: no mount namespace can be made here");
    }
    site.check_nobody_is_early(holder, paused_at);
}

/// The servers have lost the pause too: each agent has a note of it on its host.
#[test]
fn agents_that_are_started_on_servers_that_have_lost_all_know_the_pause() {
    let Some(mut site) = Site::new(&["1", "2", "3"], &[]) else { return };
    let (holder, others, paused_at) = site.cut_off_kept_holder();
    others.iter().for_each(|host| site.group.kill_host_without_lock(*host));
    site.client().call("STREAM.DELETE.KV_putex", "").expect("it is deleted");
    let since = now();
    others.iter().for_each(|host| site.group.start(*host));
    site.group.wait_for_line(others[0], "a pause may keep a service running", since);
    site.check_nobody_is_early(holder, paused_at);
}

#[test]
fn a_key_that_nobody_has_ever_held_is_not_paused() {
    let Some(site) = Site::new(&["1", "2"], &[]) else { return };
    let refused = site.run(&["pause", "--for", "1h", "wbe"]);
    let says = "putex: wbe: no agent has ever held this key, and none answers: are key and \
                bucket right?\n";
    assert_eq!((refused.status, &*refused.said), (Some(75), says));
    observe_for(TAKEOVER);
    site.check_end();
}
