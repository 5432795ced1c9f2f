//! Pauses: what they keep still, what the lock promises all the same, and how each of them ends.

use std::time::Duration;

use rustix::process::Signal;

use super::group::{R, TAKEOVER};
use super::site::Site;
use crate::support::clock::{now, observe_for, until_true};
use crate::support::sandbox::Run;

impl Site {
    /// Pauses the agents once one of them says that the service runs: a service is up before its
    /// start has ended.
    #[track_caller]
    fn pause(&self, words: &[&str]) {
        until_true("an agent that says that the service runs", || {
            self.run(&["status", "--json", "web"]).shown.contains(r#""service":"up""#)
        });
        let paused = self.run(&[&["pause"], words, &["web"]].concat());
        assert_eq!((paused.status, &*paused.said), (Some(0), ""), "{paused:?}");
        assert!(paused.shown.starts_with("until=20"), "{paused:?}");
        assert_eq!(self.run(&["status", "-e", "paused", "web"]).status, Some(0));
    }

    /// Ends the pause.
    fn resume(&self) -> Run {
        self.run(&["resume", "web"])
    }
}

#[test]
fn in_a_pause_nothing_is_started_stopped_or_moved_and_all_goes_on_after_it() {
    let flags = ["--healthcheck", "! test -e $D/sick"];
    let Some(site) = Site::new(&["1", "2", "3"], &flags) else { return };
    let holder = site.holder();
    site.pause(&["--for", "1h", "--reason", "new kernel"]);
    let since = now();
    std::fs::write(site.group.hosts[holder].sandbox.join("sick"), "").expect("a file");
    let shown = site.run(&["status", "web"]).shown;
    assert!(shown.contains("PAUSED until 20") && shown.contains(": new kernel"), "{shown}");
    assert!(shown.contains("no candidate: paused"), "{shown}");
    let refused = site.run(&["switchover", "web"]);
    let says = "paused; putex resume web ends that";
    assert!(refused.status == Some(75) && refused.said.contains(says), "{refused:?}");
    // A shorter pause is refused: the operator who has asked for the longer one relies on it.
    let refused = site.run(&["pause", "--for", "1m", "web"]);
    assert!(refused.status == Some(75) && refused.said.contains("putex resume web"), "{refused:?}");
    site.pause(&["--for", "2h"]);
    observe_for(TAKEOVER + R);
    assert_eq!(site.group.observer.changes_since(since), 0, "nothing moves");
    // The operator stops the service by hand: nobody starts it.
    site.group.stop_by_hand(holder);
    until_true("the end of the service", || site.group.holder(0).is_none());
    observe_for(TAKEOVER + R);
    assert_eq!(site.group.holder(0), None, "nothing is started");
    let since = now();
    let resumed = site.resume();
    assert_eq!((resumed.status, &*resumed.shown), (Some(0), "agents=3\n"), "{resumed:?}");
    // Its host is not fit any more: another runs it.
    let (next, _) = site.group.next_holder(0, holder, since);
    assert_ne!(next, holder);
    site.check_end();
    let nothing = site.resume();
    assert_eq!((nothing.status, &*nothing.said), (Some(0), "putex: web: no pause stands\n"));
    // With a wrong name nothing is resumed, and another key stays paused.
    let wrong = site.run(&["resume", "wbe"]);
    assert!(
        wrong.status == Some(75) && wrong.said.contains("are key and bucket right?"),
        "{wrong:?}"
    );
}

#[test]
fn a_dead_holder_is_not_followed_before_the_end_of_the_pause() {
    let Some(mut site) = Site::new(&["1", "2", "3"], &[]) else { return };
    // Resumed, and over by itself.
    for lasts in ["1h", "6s"] {
        let holder = site.holder();
        site.pause(&["--for", lasts]);
        let begun = now();
        // The agent alone: its guard stops the service when the lock runs out.
        site.group.hosts[holder].agent.take().expect("it runs").kill();
        until_true("the end of the service", || site.group.holder(0).is_none());
        observe_for(TAKEOVER + R);
        assert_eq!(site.group.holder(0), None, "nobody takes over in a pause");
        if lasts == "1h" {
            assert_eq!(site.resume().status, Some(0));
        }
        let (_, up_at) = site.group.next_holder(0, holder, begun);
        assert!(lasts == "1h" || up_at >= begun + Duration::from_secs(5), "it is not over");
        site.check_end();
        site.start_again(holder);
    }
}

#[test]
fn an_agent_that_starts_in_a_pause_observes_it() {
    let Some(mut site) = Site::new(&["1", "2"], &[]) else { return };
    let holder = site.holder();
    site.pause(&["--for", "1h"]);
    // Within T: it goes on with the service.
    let since = now();
    site.group.hosts[holder].agent.take().expect("it runs").kill();
    site.group.start(holder);
    site.group.wait_for_line(holder, "adopted as revision", since);
    assert_eq!(site.group.observer.changes_since(since), 0, "the service goes on");
    // After a reboot nothing is there to go on with, and nothing is started.
    site.group.kill_host_without_lock(holder);
    let since = now();
    if !site.group.start_rebooted(holder) {
        return println!("skipped: no mount namespace can be made here");
    }
    site.group.wait_for_line(holder, "paused for", since);
    site.group.wait_for_line(holder, "-> standby", since);
    observe_for(TAKEOVER + R);
    assert_eq!(site.group.holder(0), None, "nothing is started");
    assert_eq!(site.resume().status, Some(0));
    site.check_end();
}

#[test]
fn a_pause_outlives_a_restart_of_the_server() {
    let Some(mut site) = Site::new(&["1", "2"], &[]) else { return };
    let holder = site.holder();
    site.pause(&["--for", "1h"]);
    let since = now();
    site.group.server.kill();
    site.group.server.restart().expect("the server comes back");
    for host in 0..2 {
        site.group.wait_for_line(host, "store open again", since);
    }
    site.group.kill_host_without_lock(holder);
    observe_for(TAKEOVER + R);
    assert_eq!(site.group.holder(0), None, "nobody takes over in a pause");
    assert_eq!(site.resume().status, Some(0));
    site.check_end();
}

/// The server was killed before the end of the pause was on its disk: the agents, which had
/// acknowledged that end, observed the pause again, and nobody ran the service.
#[test]
fn a_pause_that_has_ended_does_not_come_back_with_an_earlier_copy_of_the_bucket() {
    let Some(mut site) = Site::new(&["1", "2"], &[]) else { return };
    site.pause(&["--for", "1h"]);
    site.group.server.kill();
    let copy = site.group.server.copy_store().expect("there is room");
    site.group.server.restart().expect("the server comes back");
    assert_eq!(site.resume().status, Some(0));
    site.holder();
    let since = now();
    site.group.server.kill();
    site.group.server.restore_store(&copy).expect("there is room");
    site.group.server.restart().expect("the server comes back");
    (0..2).for_each(|host| site.group.wait_for_line(host, "store open again", since));
    site.check_end();
    // A new one may have the number of a lost one in the bucket.
    site.pause(&["--for", "2h"]);
    assert_eq!(site.resume().status, Some(0));
    site.check_end();
}

/// The second command said that there was nothing to end.
#[test]
fn an_end_that_not_all_have_acknowledged_is_waited_for_again() {
    let Some(site) = Site::new(&["1", "2"], &["-f", "100"]) else { return };
    let holder = site.holder();
    site.pause(&["--for", "1h"]);
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::STOP);
    for _ in 0..2 {
        let resumed = site.run(&["resume", "-w", "1", "web"]);
        let says = format!("host-{holder}: does not answer");
        assert!(resumed.status == Some(75) && resumed.said.contains(&says), "{resumed:?}");
    }
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::CONT);
    assert_eq!(site.resume().status, Some(0));
    site.check_end();
}

/// An agent that is cut off does not acknowledge, nor does one of putex 0.2.0.
#[test]
fn a_pause_that_not_all_acknowledge_is_withdrawn_or_refused() {
    // An overdue holder is as good as dead, and need not acknowledge: this one never is.
    let Some(site) = Site::new(&["1", "2"], &["-f", "100"]) else { return };
    let holder = site.holder();
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::STOP);
    let withdrawn = site.run(&["pause", "--for", "1h", "-w", "1", "web"]);
    assert_eq!((withdrawn.status, &*withdrawn.shown), (Some(75), ""), "{withdrawn:?}");
    let says = format!("host-{holder}: holds the lock and does not answer");
    assert!(withdrawn.said.contains(&says), "{withdrawn:?}");
    assert!(withdrawn.said.ends_with("the pause is withdrawn\n"), "{withdrawn:?}");
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::CONT);
    assert_eq!(site.run(&["status", "-e", "paused", "web"]).status, Some(1));
    // A longer pause stands all the same: an operator relies on the pause that it has replaced.
    // That one was written again, and stood after each command had said that none does.
    site.pause(&["--for", "1h", "--reason", "first"]);
    let since = now();
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::STOP);
    let longer = ["pause", "--for", "2h", "--reason", "second", "-w", "1", "web"];
    let longer = site.run(&longer);
    assert!(longer.status == Some(75) && longer.said.ends_with("putex resume web ends it\n"));
    site.group.wait_for_line(1 - holder, ": second", since);
    let log = site.group.hosts[1 - holder].log.since(since);
    assert!(!log.iter().any(|line| line.contains("the pause was ended")), "{log:?}");
    site.group.hosts[holder].agent.as_ref().expect("it runs").signal(Signal::CONT);
    let shown = site.run(&["status", "web"]).shown;
    assert!(shown.contains("for 1h") && shown.contains(": second"), "{shown}");
    assert_eq!(site.resume().status, Some(0));
    site.check_end();
}
