//! A renewer that records an ID, and holds a lock on.

use super::*;

impl Rig {
    /// Returns a renewer that has the lock for an ID.
    fn once(name: &str, id: &str, hold: Duration) -> Rig {
        let base = std::env::temp_dir().join(format!("putex-once-{}-{name}", std::process::id()));
        let once = Some(id.to_owned());
        Rig::begin(base, &Request { hold, once, ..request(LONG) })
    }

    /// Takes steps until the front is told something.
    fn next(&mut self) -> ToFront {
        while !sys::is_ready(&self.front) {
            assert!(self.renewer.turn(), "it tells nothing");
        }
        let (packet, _) = receive(self.front.as_fd(), RecvFlags::DONTWAIT).expect("a packet");
        serde_json::from_slice(&packet).expect("a message")
    }

    fn expect_grant(&mut self) {
        let message = self.next();
        assert!(matches!(message, ToFront::Granted { .. }), "{message:?}");
    }

    /// Has the ticket ended.
    fn done(mut self) {
        self.tell(&ToRenewer::Done, None);
        while self.renewer.turn() {}
        assert_eq!(self.standing(), 0);
        // The directory is that of others too.
        self.base = PathBuf::new();
    }

    fn command_ends(&self, succeeded: bool) {
        self.tell(&ToRenewer::Ended { succeeded }, None);
    }
}

#[test]
fn an_id_that_was_recorded_is_told_before_the_next_grant() {
    for succeeded in [true, false] {
        let name = format!("id-{succeeded}");
        let mut first = Rig::once(&name, "monday", Duration::ZERO);
        first.expect_grant();
        assert_eq!(first.standing(), 1);
        first.command_ends(succeeded);
        if succeeded {
            assert_eq!(first.next(), ToFront::Recorded(Ok(())));
            assert_eq!(first.standing(), 1, "it is recorded before the release");
        }
        assert_eq!(first.next(), ToFront::Ended(End::Released));
        let mut same = Rig::once(&name, "monday", Duration::ZERO);
        if succeeded {
            assert_eq!(same.next(), ToFront::HasSucceeded);
        }
        same.expect_grant();
        same.done();
        let mut other = Rig::once(&name, "tuesday", Duration::ZERO);
        other.expect_grant();
        other.done();
    }
}

#[test]
fn nothing_is_recorded_without_the_lock() {
    let mut rig = Rig::once("lost", "monday", Duration::ZERO);
    rig.expect_grant();
    rig.renewer.owner.handle(Input::Unused, sys::now());
    rig.command_ends(true);
    let lost = rig.next();
    assert!(matches!(lost, ToFront::Lost(_)), "{lost:?}");
    rig.tell(&ToRenewer::Done, None);
    while rig.renewer.turn() {}
    let mut next = Rig::once("lost", "monday", Duration::ZERO);
    next.expect_grant();
    next.done();
}

/// The front may be stopped meanwhile.
#[test]
fn a_lock_that_is_held_on_is_released_in_time_without_the_front() {
    let hold = Duration::from_millis(400);
    let begun = sys::now();
    let mut rig = Rig::once("hold", "monday", hold);
    rig.expect_grant();
    rig.command_ends(true);
    assert_eq!(rig.next(), ToFront::Recorded(Ok(())));
    assert_eq!(rig.next(), ToFront::Ended(End::Released));
    assert!(sys::now().since(begun) >= hold);
    assert_eq!(rig.standing(), 0);
}

/// It was released at once, and the success not recorded.
#[test]
fn a_lock_is_held_on_and_its_id_recorded_though_the_front_is_killed_after_the_command() {
    let hold = Duration::from_millis(400);
    let begun = sys::now();
    let mut rig = Rig::once("killed", "monday", hold);
    rig.expect_grant();
    rig.command_ends(true);
    rig.front = File::open("/dev/null").expect("it is there").into();
    while rig.renewer.turn() {}
    assert!(sys::now().since(begun) >= hold, "{:?}", sys::now().since(begun));
    assert_eq!(rig.standing(), 0);
    let mut same = Rig::once("killed", "monday", Duration::ZERO);
    assert_eq!(same.next(), ToFront::HasSucceeded);
    same.expect_grant();
    same.done();
}

/// The front may have been killed after its command, and before it has told of that end.
#[test]
fn a_lock_is_held_on_though_the_front_is_killed_before_it_has_told_of_the_end() {
    let hold = Duration::from_millis(600);
    let begun = sys::now();
    let mut rig = Rig::once("untold", "monday", hold);
    rig.expect_grant();
    let (mut child, command) = group("sleep 1000");
    rig.tell(&ToRenewer::Started(command.group.as_raw_pid()), Some(command.leader.as_fd()));
    rig.renewer.hear_front();
    rig.front = File::open("/dev/null").expect("it is there").into();
    let reaper = std::thread::spawn(move || child.wait());
    while rig.renewer.turn() {}
    reaper.join().expect("it ends").expect("it was reaped");
    assert!(sys::now().since(begun) >= hold, "{:?}", sys::now().since(begun));
    assert_eq!(rig.standing(), 0);
}

#[test]
fn a_lock_that_is_held_on_is_released_at_once_when_the_front_says_so() {
    let mut rig = Rig::once("early", "monday", Duration::from_secs(1000));
    rig.expect_grant();
    rig.command_ends(false);
    rig.tell(&ToRenewer::Done, None);
    assert_eq!(rig.next(), ToFront::Ended(End::Released));
}
