use super::*;
use crate::core::Priority;
use crate::core::command::LockContext;
use crate::core::protocol::{DeviceUse, Stake, StopOrder};

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
        agents: None,
        last_resort: false,
        device: DeviceUse::None,
    };
    GuardView::new(&config, None, now())
}

fn now() -> Instant {
    Instant::from_boot(Duration::from_secs(1000))
}

/// Has the guard report, and returns that event.
fn report(view: &mut GuardView, heard: u64, service: ServiceState) -> Event {
    let report =
        GuardReport { heard, service, unfit: None, start_failure: None, start_waits: false };
    let event = GuardEvent::Report(report);
    view.receive(view.number, &event, OWN, &mut Vec::new(), now());
    Event::Guard(view.number, event)
}

fn grant(valid_for: Duration) -> Grant {
    let valid_until = now().after(valid_for);
    Grant { holder: OWN, context: LockContext::default(), valid_until, dead_by: valid_until }
}

/// A guard that hung was given the whole time of an answer by the next instance, which renewed
/// nothing meanwhile: another host started the service.
#[test]
fn the_next_instance_follows_a_sign_of_life_of_the_guard_unless_the_service_is_down() {
    let mut view = view();
    assert!(view.lets_next_instance(&Event::Tick, now()), "there is no guard that could hang");
    view.advance(None, &mut Vec::new(), now());
    assert!(!view.lets_next_instance(&Event::Tick, now()), "it has not answered");
    let granted = grant(Duration::from_secs(2));
    let up = ServiceState::Up(granted.clone(), StartState::Ended);
    let adopted = report(&mut view, 1, up.clone());
    assert!(!view.lets_next_instance(&adopted, now()), "this instance has renewed nothing");
    view.tell(ToGuard::Grant(granted), &mut Vec::new(), now());
    let older = report(&mut view, 1, up.clone());
    assert!(!view.lets_next_instance(&older, now()), "the last message is not answered");
    let answer = report(&mut view, 2, up);
    assert!(view.lets_next_instance(&answer, now()));
    assert!(!view.lets_next_instance(&Event::Tick, now()), "it may hang since");
    report(&mut view, 2, ServiceState::Down);
    assert!(view.lets_next_instance(&Event::Tick, now()), "nothing has to be stopped");
}

/// A guard that hung just after its report was replaced after V, and the service outlived its lock.
#[test]
fn the_next_instance_has_the_time_to_replace_a_guard_before_v() {
    let mut view = view();
    view.advance(None, &mut Vec::new(), now());
    let needed = view.config.timing.upgrade_time();
    assert_eq!(needed, Duration::from_millis(1100), "R, and the begin of a guard");
    for (left, is_let) in [(needed, true), (needed - Duration::from_millis(1), false)] {
        let granted = grant(left);
        view.tell(ToGuard::Grant(granted.clone()), &mut Vec::new(), now());
        let sent = view.present.as_ref().expect("a guard").sent_count;
        let answer = report(&mut view, sent, ServiceState::Up(granted, StartState::Ended));
        assert_eq!(view.lets_next_instance(&answer, now()), is_let, "{left:?}");
    }
    let order = StopOrder { dead_by: now(), stake: Stake::Lock, context: LockContext::default() };
    view.tell(ToGuard::Stop(order), &mut Vec::new(), now());
    let sent = view.present.as_ref().expect("a guard").sent_count;
    for overdue in [false, true] {
        let stopping = report(&mut view, sent, ServiceState::Stopping { overdue });
        assert_eq!(view.lets_next_instance(&stopping, now()), overdue, "it has to end by V + B");
    }
}
