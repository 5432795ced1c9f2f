//! A renewer that holds a lock on.

use super::*;

impl Rig {
    /// Returns a renewer that has the lock, and holds it for so long.
    fn holding(name: &str, hold: Duration) -> Rig {
        let base = std::env::temp_dir().join(format!("putex-hold-{}-{name}", std::process::id()));
        Rig::begin(base, Request { hold, ..request(LONG) })
    }

    /// Takes steps until the front is told something.
    fn next(&mut self) -> ToFront {
        loop {
            while !sys::is_ready(&self.front) {
                assert!(self.renewer.turn(), "it tells nothing");
            }
            let (packet, _) = next_packet(self.front.as_fd()).expect("a packet");
            match serde_json::from_slice(&packet).expect("a message") {
                FromRenewer::Ticket(message) => return message,
                FromRenewer::Command(_) => {}
            }
        }
    }

    fn expect_grant(&mut self) {
        let message = self.next();
        assert!(matches!(message, ToFront::Granted { .. }), "{message:?}");
    }

    /// Has a command run that ends at once.
    fn run_command(&mut self) {
        self.start();
        sys::until("its end", || {
            self.renewer.hear_children();
            self.renewer.children.are_none.then_some(())
        });
        self.tell(&ToRenewer::Ended);
    }
}

/// The front may be stopped meanwhile.
#[test]
fn a_lock_that_is_held_on_is_released_in_time_without_the_front() {
    apart(|| {
        let hold = Duration::from_millis(400);
        let begun = sys::now();
        let mut rig = Rig::holding("hold", hold);
        rig.expect_grant();
        rig.run_command();
        assert_eq!(rig.next(), ToFront::Ended(End::Released));
        assert!(sys::now().since(begun) >= hold);
        assert_eq!(rig.standing(), 0);
    });
}

/// The lock was released at once.
#[test]
fn a_lock_is_held_on_though_the_front_is_killed_after_the_command() {
    apart(|| {
        let hold = Duration::from_millis(400);
        let begun = sys::now();
        let mut rig = Rig::holding("killed", hold);
        rig.expect_grant();
        rig.run_command();
        rig.kill_front();
        while rig.renewer.turn() {}
        assert!(sys::now().since(begun) >= hold, "{:?}", sys::now().since(begun));
        assert_eq!(rig.standing(), 0);
    });
}

/// The front may have been killed after its command, and before it has told of that end.
#[test]
fn a_lock_is_held_on_though_the_front_is_killed_before_it_has_told_of_the_end() {
    apart(|| {
        let hold = Duration::from_millis(600);
        let mut rig = Rig::holding("untold", hold);
        let begun = sys::now();
        rig.start();
        rig.kill_front();
        while rig.renewer.turn() {}
        assert!(sys::now().since(begun) >= hold, "{:?}", sys::now().since(begun));
        assert_eq!(rig.standing(), 0);
    });
}

/// The process stayed until the end of `--hold`, with a lock that somebody had taken away.
#[test]
fn a_renewer_without_its_front_ends_when_the_lock_that_it_holds_on_is_lost() {
    apart(|| {
        let base = std::env::temp_dir().join(format!("putex-hold-{}-lost", std::process::id()));
        let hold = Duration::from_secs(1000);
        let renewal = Duration::from_millis(500);
        let mut rig = Rig::begin(base, Request { hold, ..request(renewal) });
        rig.expect_grant();
        rig.run_command();
        rig.kill_front();
        let tickets = fs::read_dir(rig.base.join(BUCKET)).expect("the bucket");
        let paths = tickets.map(|entry| entry.expect("a file").path());
        let is_ticket = |path: &PathBuf| path.to_string_lossy().contains("/lock.db.");
        paths.filter(is_ticket).for_each(|path| fs::remove_file(path).expect("it is there"));
        sys::until("its end", || (!rig.renewer.turn()).then_some(()));
    });
}

#[test]
fn a_lock_that_is_held_on_is_released_at_once_when_the_front_says_so() {
    apart(|| {
        let mut rig = Rig::holding("early", Duration::from_secs(1000));
        rig.expect_grant();
        rig.run_command();
        rig.tell(&ToRenewer::Done);
        assert_eq!(rig.next(), ToFront::Ended(End::Released));
    });
}
