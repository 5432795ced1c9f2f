use super::*;
use crate::core::Priority;
use crate::core::command::LockContext;
use crate::core::protocol::{DeviceUse, Stake};

const OWN: Incarnation = Incarnation(1);

fn view() -> GuardView {
    let timing = Timing::new(Duration::from_secs(1), 3, 2, 10_000).expect("safe");
    let config = Config {
        timing,
        check: false,
        start_grace: Duration::ZERO,
        check_failures: 1,
        priority: Priority::FIRST,
        failback: None,
        seats: 1,
        observes: false,
        last_resort: false,
        device: DeviceUse::None,
    };
    GuardView::new(&config, now())
}

fn now() -> Instant {
    Instant::from_boot(Duration::from_secs(1000))
}

/// Has the guard report, and returns that event.
fn report(view: &mut GuardView, heard: u64, service: ServiceState) -> Event {
    let report =
        GuardReport { heard, service, unfit: None, start_failure: None, start_waits: false };
    let event = GuardEvent::Report(report);
    view.receive(view.number, &event, OWN, &mut Effects::default(), now());
    Event::Guard(view.number, event)
}

/// A guard that hung was given the whole time of an answer by the next instance, which renewed
/// nothing meanwhile: another host started the service.
#[test]
fn the_next_instance_follows_a_sign_of_life_of_the_guard_unless_the_service_is_down() {
    let mut view = view();
    assert!(view.lets_next_instance(&Event::Tick), "there is no guard that could hang");
    view.advance(None, &mut Effects::default(), now());
    assert!(!view.lets_next_instance(&Event::Tick), "it has not answered");
    let stopping = ServiceState::Stopping { overdue: false };
    let reported = report(&mut view, 1, stopping.clone());
    assert!(view.lets_next_instance(&reported));
    assert!(!view.lets_next_instance(&Event::Tick), "it may hang since");
    let order = StopOrder { dead_by: now(), stake: Stake::Lock, context: LockContext::default() };
    view.tell(ToGuard::Stop(order), &mut Effects::default(), now());
    let older = report(&mut view, 1, stopping);
    assert!(!view.lets_next_instance(&older), "the last message is not answered");
    report(&mut view, 2, ServiceState::Down);
    assert!(view.lets_next_instance(&Event::Tick), "nothing has to be stopped");
}
