//! How a unit test waits for an event.

use std::time::Duration;

use super::{Alarm, now};

/// How long a test waits for an event. An event that should come later is due after it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Looks now and then until there is something to see, and returns it.
///
/// # Panics
///
/// When nothing is seen within [`PATIENCE`]; `what` names the event.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    const LOOK_AGAIN: Duration = Duration::from_millis(2);
    let (alarm, give_up) = (Alarm::new().expect("a descriptor"), now().after(PATIENCE));
    loop {
        if let Some(seen) = probe() {
            return seen;
        }
        assert!(now() < give_up, "{what}: not within {PATIENCE:?}");
        alarm.wait([], Some(now().after(LOOK_AGAIN))).expect("it waits");
    }
}
