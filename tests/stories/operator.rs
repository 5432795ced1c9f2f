//! The operator's commands: what they show of agents, and how they move the service or keep it
//! still.

use rustix::process::Signal;

use crate::hosts::{Pair, Store, turn};
use crate::support::clock::now;

/// The service goes to the agent that is named. In a pause nobody starts, stops or moves the
/// service, also if its health check fails; afterwards the other host has it.
#[test]
fn an_operator_moves_the_service_and_keeps_it_still() {
    let _turn = turn();
    let Some(store) = Store::server() else { return };
    let mut pair = Pair::running(store);
    let moved = pair.operate(&["switchover", "--to", "two", "web"]);
    assert_eq!(moved.status, Some(0), "{moved:?}");
    assert!(moved.shown.starts_with("from=one to=two "), "{moved:?}");
    pair.wait_active(1);
    let holder = pair.operate(&["status", "--print", "holder", "web"]);
    assert_eq!((holder.status, &*holder.shown), (Some(0), "two\n"), "{holder:?}");
    let refused = pair.operate(&["switchover", "--to", "three", "web"]);
    assert_eq!(refused.status, Some(75), "{refused:?}");

    let paused = pair.operate(&["pause", "--for", "1h", "--reason", "new kernel", "web"]);
    assert_eq!(paused.status, Some(0), "{paused:?}");
    let since = now();
    pair.hosts[1].service.set_sick(true);
    let refused = pair.operate(&["switchover", "web"]);
    assert_eq!(refused.status, Some(75), "{refused:?}");
    let shown = pair.operate(&["status", "web"]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    for part in ["new kernel", " one ", " two "] {
        assert!(shown.shown.contains(part), "{part}: {shown:?}");
    }
    assert_eq!(pair.observer.changes_since(since), 0, "{}", pair.hosts[1].log.text());
    let resumed = pair.operate(&["resume", "web"]);
    assert_eq!(resumed.status, Some(0), "{resumed:?}");
    pair.wait_active(0);

    let held = |pair: &Pair| pair.operate(&["status", "-e", "held", "web"]).status;
    assert_eq!(held(&pair), Some(0));
    for host in [1, 0] {
        pair.hosts[host].signal(Signal::TERM);
        assert_eq!(pair.hosts[host].wait_end(), Some(0));
    }
    assert_eq!(held(&pair), Some(1));
    pair.end();
}
