//! The arithmetic of leases, case by case; `simulation` plays histories.

mod counts;
mod simulation;

use self::counts::Counts;
use self::simulation::Simulation;
use super::*;
use crate::core::random::chosen_seeds;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_boot(Duration::from_secs(seconds))
}

/// Returns a time of day in seconds.
fn day(hours: u64, minutes: u64, seconds: u64) -> Instant {
    at(hours * 3600 + minutes * 60 + seconds)
}

/// The example in the documentation of juju's lease package: A writes at 01:00:00 for 30 s. B is
/// 20 s ahead and C 5 s behind.
#[test]
fn nobody_infers_an_earlier_end_than_the_writer_has_written_whatever_its_clock_shows() {
    let lease = LeaseTime { duration: 30 * SECOND, drift_ppm: 0 };
    let written = WriteBounds::of_own(day(1, 0, 0), day(1, 0, 0));
    assert_eq!(lease.run_out_at(written), day(1, 0, 30));
    assert_eq!(lease.guaranteed_until(day(1, 0, 0)), day(1, 0, 30));
    let by_b = WriteBounds::of_read(Some(day(1, 0, 23)), day(1, 0, 24));
    let by_c = WriteBounds::of_read(Some(day(0, 59, 57)), day(0, 59, 58));
    assert_eq!(lease.run_out_at(by_b), day(1, 0, 54));
    assert_eq!(lease.run_out_at(by_c), day(1, 0, 28));
    // In the time of A: 01:00:34 and 01:00:33.
    assert_eq!(lease.run_out_at(by_b).before(20 * SECOND), day(1, 0, 34));
    assert_eq!(lease.run_out_at(by_c).after(5 * SECOND), day(1, 0, 33));
    assert_eq!(lease.held_until(by_b), Some(day(1, 0, 53)));
    assert_eq!(lease.held_until(by_c), Some(day(1, 0, 27)));
}

#[test]
fn a_lease_is_held_then_unsure_then_run_out() {
    let lease = LeaseTime { duration: 100 * SECOND, drift_ppm: 10_000 };
    let read = WriteBounds::of_read(Some(at(10)), at(14));
    for (now, expected) in [
        (14, LeaseState::Held),
        (108, LeaseState::Held),
        (109, LeaseState::Unsure),
        (114, LeaseState::Unsure),
        (115, LeaseState::RunOut),
        (1_000, LeaseState::RunOut),
    ] {
        assert_eq!(lease.state(read, at(now)), expected, "{now}");
    }
    // A host that sees the lease for the first time does not know how long it has stood.
    let first = WriteBounds::of_read(None, at(14));
    assert_eq!(lease.held_until(first), None);
    assert_eq!(lease.state(first, at(14)), LeaseState::Unsure);
    assert_eq!(lease.state(first, at(115)), LeaseState::RunOut);
}

#[test]
fn of_two_notes_on_one_lease_the_closer_bounds_count() {
    let (early, late) =
        (WriteBounds::of_read(Some(at(1)), at(9)), WriteBounds::of_own(at(3), at(12)));
    let both = WriteBounds { not_before: Some(at(3)), not_after: at(9) };
    assert_eq!((early.and(late), late.and(early)), (both, both));
    let first = WriteBounds::of_read(None, at(8));
    assert_eq!(early.and(first), WriteBounds { not_before: Some(at(1)), not_after: at(8) });
}

#[test]
fn a_lease_guarantees_what_was_asked_for_and_hardly_more() {
    for drift_ppm in [0, 1, 100, 10_000, 83_333, 200_000] {
        for asked in [1u64, 2, 3, 999, 1_000, 15_000, 86_400_000, 31_536_000_000] {
            for asked in [Duration::from_millis(asked), Duration::from_nanos(asked)] {
                let lease = LeaseTime::guaranteeing(asked, drift_ppm);
                let has = lease.guaranteed_until(at(1)).since(at(1));
                assert!(has >= asked, "{asked:?} with {drift_ppm}: {has:?}");
                let more = asked.mul_f64(0.000_001) + Duration::from_millis(2);
                assert!(has <= asked + more, "{asked:?} with {drift_ppm}: {has:?}");
                assert_eq!(lease.duration.as_nanos() % 1_000_000, 0);
            }
        }
    }
}

#[test]
fn an_extension_guarantees_what_is_asked_for_never_shortens_and_does_not_grow_by_itself() {
    let lease = LeaseTime::guaranteeing(60 * SECOND, 10_000);
    let written = Some(WriteBounds::of_own(at(100), at(101)));
    // The holder has the lease for so long already.
    assert_eq!(lease.extended(written, 20 * SECOND, at(140)), None);
    // The holder has not: the time counts from the moment of the request.
    let longer = lease.extended(written, 21 * SECOND, at(140)).expect("a write");
    assert!(longer.guaranteed_until(at(140)) >= at(161));
    // Others count from the moment at which it was written, with clocks that may be fast: for
    // them it does not end earlier.
    let passed = shortened(39 * SECOND, 10_000);
    assert!(longer.duration >= lease.duration - passed, "{longer:?}");
    let longest = lease.duration - passed + Duration::from_millis(1);
    assert!(longer.duration <= longest, "{longer:?}");
    // Nobody knows when the present one was sent: it may have been just now.
    let seen = Some(WriteBounds::of_read(None, at(140)));
    for written in [None, seen] {
        assert_eq!(lease.extended(written, SECOND, at(140)), Some(lease));
        let mut again = lease;
        for _ in 0..1_000 {
            again = again.extended(written, 60 * SECOND, at(140)).expect("a write");
        }
        assert_eq!(again, lease);
    }
}

fn run_seeds(first: u64, count: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in first..first + count {
        let run = std::panic::AssertUnwindSafe(|| Simulation::new(seed).run());
        match std::panic::catch_unwind(run) {
            Ok(of_seed) => counts.add(&of_seed),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    counts
}

#[test]
fn no_lease_is_held_by_two_or_expired_before_its_guarantee_is_over() {
    let counts = run_seeds(0, 3_000);
    assert!(counts.are_all_above(300), "{counts:?}");
}

#[test]
#[ignore = "takes minutes"]
fn many_seeds_of_leases() {
    let (first, count) = chosen_seeds(1_000_000);
    let counts = run_seeds(first, count);
    println!("{count} seeds: {counts:?}");
}
