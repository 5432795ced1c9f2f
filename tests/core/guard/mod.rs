//! Decisions of the guard, under a clock that the test holds: R is 500 ms, F 3, C 1; so V is
//! 1485 ms after a renewal, and the stop budget is 470.099 ms.

mod bench;
mod device;
mod grant;
mod last_resort;
mod report;
mod start;
mod stop;

use std::time::Duration;

use putex::core::time::Instant;
use putex::core::timing::Timing;

/// Least time that there is between two instants.
const TICK: Duration = Duration::from_nanos(1);

fn timing() -> Timing {
    Timing::new(Duration::from_millis(500), 3, 1, 10_000).expect("it is safe")
}

fn ms(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(ms))
}

/// V of the grant that a bench gives at 0.
fn v() -> Instant {
    ms(1485)
}

/// When the service of that grant must be down.
fn dead_by() -> Instant {
    v().after(timing().stop_budget())
}
