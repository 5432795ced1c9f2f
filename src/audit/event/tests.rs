use super::*;

fn event(text: &str) -> Option<LogEvent> {
    Forms::new().event(text)
}

fn moved(from: &'static str, to: &'static str, why: Reason) -> Option<(String, String, Cause)> {
    let text = Report::Moved { from, to, why, level: Level::Info }.to_string();
    match event(&text) {
        Some(LogEvent::Moved { from, to, cause, .. }) => Some((from, to, cause)),
        _ => None,
    }
}

fn ms(ms: u64) -> Ms {
    Ms(Duration::from_millis(ms))
}

fn name(text: &str) -> Holder {
    Holder::Somebody(text.to_owned())
}

#[test]
fn what_an_agent_says_of_its_settings_is_read_with_its_times() {
    let line = SettingsLine {
        version: "0.3.0",
        token: "h1, R 3 s",
        renewal: ms(500),
        failures: 3,
        confirmations: 1,
        stop_budget: ms(470),
    };
    let line = SettingsLine { token: "h1", ..line }.to_string();
    assert_eq!(line, "putex 0.3.0, agent h1, R 500 ms, F 3, C 1, stop budget 470 ms");
    let times = Times { lock_time: ms(1500).0, stop_budget: ms(470).0 };
    let known = LogEvent::Settings { token: "h1".to_owned(), times };
    assert_eq!(event(&line), Some(known));
    assert_eq!(event(&line.replace("F 3", "F x")), None);
    assert_eq!(event(&line.replace("500 ms", "500 years")), None);
}

#[test]
fn each_reason_to_take_a_lock_says_whether_its_service_was_down_and_who_had_it() {
    let take = |why| moved("standby", "taking", why).expect("a change").2;
    let kind = |holder: Option<&str>, released, stood: u64| Cause::Take {
        holder: holder.map(str::to_owned),
        released,
        stood: ms(stood).0,
    };
    let host = || "h1".to_owned();
    for (holder, of, released) in [
        (Holder::Released(host()), None, true),
        (Holder::ReleasedToThis(host()), None, true),
        (Holder::ReleasedTo("h2".to_owned(), host()), None, true),
        (Holder::ReleasedHere, None, true),
        (Holder::Deleted, None, false),
        (Holder::Gone, None, false),
        (Holder::Never, None, false),
        (Holder::Unwatched, None, false),
        (Holder::Blanked, None, false),
        (Holder::Predecessor, None, false),
        (Holder::Own, None, false),
        (Holder::OwnLate, None, false),
        (name("h1"), Some("h1"), false),
        (name("one on host h1"), Some("one"), false),
        (Holder::InRollback(host()), Some("h1"), false),
        (Holder::InOlder("nobody".to_owned()), None, false),
    ] {
        assert_eq!(take(Reason::Free(holder.clone())), kind(of, released, 0));
        for reason in [Reason::NotRenewed, Reason::WithoutHolder] {
            assert_eq!(take(reason(holder.clone(), ms(9090))), kind(of, released, 9090));
        }
    }
    assert_eq!(take(Reason::TriedAgain), Cause::Other);
    let adopt = moved("looking", "taking", Reason::Predecessor(Revision(7)));
    assert_eq!(adopt.expect("a change").2, Cause::Adopt(7));
}

#[test]
fn what_became_of_a_take_is_read_with_its_term() {
    for (to, why, cause) in [
        ("active", Reason::TakenFree(Revision(8)), Cause::Taken(8, Duration::ZERO)),
        ("confirming", Reason::Taken(Revision(8), ms(6000)), Cause::Taken(8, ms(6000).0)),
        ("active", Reason::Adopted(Revision(12)), Cause::Adopted),
        ("standby", Reason::TakeTooLate, Cause::Other),
    ] {
        let known = Some(("taking".to_owned(), to.to_owned(), cause));
        assert_eq!(moved("taking", to, why), known);
    }
    assert_eq!(event("standby: -> x"), None);
    assert_eq!(event("a/b -> c: d"), None);
}

#[test]
fn the_guard_and_the_other_lines_are_read_too() {
    for (text, known) in [
        (ServiceReport::Started(Revision(8)).to_string(), Some(LogEvent::Started(8))),
        (ServiceReport::DownInTime(ms(355)).to_string(), Some(LogEvent::Down)),
        (ServiceReport::DownLate.to_string(), Some(LogEvent::Down)),
        (ServiceReport::Down.to_string(), Some(LogEvent::Down)),
        (ServiceReport::MayStillRun.to_string(), Some(LogEvent::MayStillRun)),
        (ServiceReport::LastResortSucceeded.to_string(), Some(LogEvent::CutOff)),
        (ServiceReport::LastResortBesideStart.to_string(), None),
        (
            Report::Paused(ms(90_500), "root@h1: kernel".to_owned()).to_string(),
            Some(LogEvent::Paused(ms(90_500).0)),
        ),
        (Report::PauseOver.to_string(), None),
        (
            ServiceReport::LockOver.to_string(),
            Some(LogEvent::LockOver(ServiceReport::LockOver.to_string())),
        ),
        (
            ServiceReport::LockOverWithoutAgent.to_string(),
            Some(LogEvent::LockOver(ServiceReport::LockOverWithoutAgent.to_string())),
        ),
        (ServiceReport::GuardBeforeDead.to_string(), Some(LogEvent::GuardBeforeDead)),
        (ServiceReport::AgentGone(ms(355)).to_string(), None),
        (Report::Released(Revision(9)).to_string(), Some(LogEvent::Released(9))),
        (Report::TakesSeat(Seat(2)).to_string(), Some(LogEvent::Seat(2))),
        (format!("3{DROPPED}was not read"), Some(LogEvent::Dropped)),
        ("the service is down, they say".to_owned(), None),
        ("stop: the service is down".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(event(&text), known, "{text}");
    }
    let held = |lock, holder| {
        let report = Report::HeldBy { lock, holder, revision: Revision(7), again: false };
        event(&report.to_string())
    };
    let by_h2 = Some(LogEvent::HeldBy("h2".to_owned()));
    assert_eq!(held(LockName::Only, name("h2")), by_h2);
    assert_eq!(held(LockName::Seat(Seat(3)), name("h2 on host x")), by_h2);
    assert_eq!(held(LockName::Only, Holder::Released("h2".to_owned())), None);
}
