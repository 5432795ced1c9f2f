//! How what was measured is judged, and what is said of it.

use super::finding::Figures;
use super::sample::Samples;
use super::*;
use crate::cli::FINDINGS;
use crate::core::{AgentState, AgentStatus, DRIFT_PPM_DEFAULT, ServiceStatus};
use crate::exit::Exit;
use crate::status::{HolderState, PauseStatus};
use crate::store::StoreErrorKind;
use crate::store::nats::cluster::SyncMode;
use crate::sys::raw::ClockRate;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn timing(r_ms: u64) -> Timing {
    Timing::new(ms(r_ms), 3, 2, DRIFT_PPM_DEFAULT).expect("valid")
}

/// Samples of these times, so often each, in order.
fn samples(times: &[(u64, usize)], unanswered: u32) -> Samples {
    let times = times.iter().flat_map(|(time, count)| vec![ms(*time); *count]).collect();
    Samples { times, unanswered }
}

fn server(name: &str, version: &str, sync: Option<SyncMode>) -> ClusterServer {
    ClusterServer { name: name.to_owned(), version: version.to_owned(), sync }
}

fn agent(token: &str, incarnation: &str, candidate: bool) -> AgentStatus {
    AgentStatus {
        host: format!("host-{incarnation}"),
        incarnation: incarnation.to_owned(),
        not_candidate_why: (!candidate).then(|| "health check: exit 1".to_owned()),
        ..AgentStatus::of_candidate(token)
    }
}

fn judge(status: &KeyStatus, given: Option<TimingKey>) -> Vec<Finding> {
    agents::judge(status, false, given)
}

fn level_of(findings: &[Finding], name: &str) -> Level {
    findings.iter().find(|finding| finding.name == name).expect(name).level
}

#[test]
fn round_trips_are_judged_by_their_share_of_r() {
    for (samples, level, says) in [
        (samples(&[(1, 50)], 0), Level::Ok, "p50 1.00 ms, p99 1.00 ms"),
        (samples(&[(1, 40), (249, 10)], 0), Level::Ok, "max 249 ms"),
        (samples(&[(1, 40), (250, 10)], 0), Level::Warning, "max 250 ms"),
        (samples(&[(500, 10)], 0), Level::Critical, "R 1 s"),
        (samples(&[(1, 49)], 1), Level::Warning, "of 50, 1 not answered in time"),
        (samples(&[(1, 45)], 5), Level::Critical, "5 not answered in time"),
        (samples(&[], 10), Level::Critical, "none of 10 answered in time"),
    ] {
        let finding = store::round_trips("read", &samples, timing(1000));
        assert_eq!(finding.level, level, "{finding:?}");
        assert!(finding.text.contains(says), "{finding:?}");
        assert_eq!(finding.advice.is_none(), level == Level::Ok, "{finding:?}");
    }
    // The advice is enough.
    let writes = |r_ms| store::round_trips("write", &samples(&[(300, 20)], 1), timing(r_ms));
    let advice = store::round_trips("write", &samples(&[(300, 20)], 0), timing(1000)).advice;
    assert!(advice.as_ref().is_some_and(|advice| advice.contains("-r 1201ms")), "{advice:?}");
    let enough = store::round_trips("write", &samples(&[(300, 20)], 0), timing(1201));
    assert_eq!(enough.level, Level::Ok);
    let (p50_seconds, p99_seconds, max_seconds) = (0.3, 0.3, 0.3);
    let figures = Figures { p50_seconds, p99_seconds, max_seconds, unanswered: 1 };
    assert_eq!(writes(1000).figures.as_deref(), Some(&figures));
}

#[test]
fn a_percentile_is_the_nearest_rank() {
    let samples = samples(&[(1, 50), (2, 49), (3, 1)], 0);
    assert_eq!([50, 99, 100].map(|percent| samples.percentile(percent)), [ms(1), ms(2), ms(3)]);
    assert_eq!(Samples::default().percentile(99), Duration::ZERO);
}

#[test]
fn versions_with_known_defects_are_named() {
    for (version, replicas, level) in [
        ("2.15.1", 3, Level::Ok),
        ("2.12.4", 3, Level::Ok),
        ("2.11.12", 3, Level::Ok),
        ("2.12.3", 3, Level::Warning),
        ("2.12.3", 1, Level::Ok),
        ("2.11.11", 3, Level::Warning),
        ("2.10.26", 3, Level::Warning),
        ("2.11.0", 1, Level::Ok),
        ("2.10.26", 1, Level::Warning),
        ("2.10.22", 1, Level::Warning),
        ("2.9.10", 1, Level::Critical),
        ("2.9.10", 3, Level::Critical),
        ("new", 3, Level::Critical),
    ] {
        let finding = store::servers(&[server("n1", version, None)], replicas);
        assert_eq!(finding.level, level, "{version} {replicas}: {finding:?}");
    }
    let mixed = [server("n1", "2.15.1", None), server("n2", "2.9.10", None)];
    let finding = store::servers(&mixed, 3);
    assert_eq!(finding.level, Level::Critical);
    assert!(finding.text.starts_with("nats-server 2.15.1 (n1), 2.9.10 (n2): older than 2.10"));
}

#[test]
fn what_servers_write_to_their_disks_late_can_be_lost() {
    let every = Some(SyncMode::Every(Duration::from_secs(120)));
    let always = Some(SyncMode::Always);
    let met = |modes: &[Option<SyncMode>]| -> Vec<ClusterServer> {
        modes.iter().map(|sync| server("n1", "2.15.1", *sync)).collect()
    };
    for (modes, level) in [
        (&[always, always, always][..], Level::Ok),
        (&[always, every, always], Level::Warning),
        (&[every, None, None], Level::Warning),
        (&[always, None, None], Level::Unknown),
        (&[None, None, None], Level::Unknown),
        (&[], Level::Unknown),
    ] {
        assert_eq!(store::fsync(&met(modes), 3, false).level, level, "{modes:?}");
    }
    assert_eq!(store::fsync(&met(&[always]), 1, true).level, Level::Warning);
}

#[test]
fn copies_that_a_bucket_lacks_are_told() {
    let of = |replicas, late: &[&str]| {
        let late = late.iter().map(|name| (*name).to_owned()).collect();
        let found = Inspection { late, ..Inspection::default() };
        store::replicas("locks", replicas, &found)
    };
    for replicas in [1, 2] {
        let advice = "on three servers or more: nats stream edit KV_locks --replicas 3";
        assert_eq!(of(replicas, &[]).advice.as_deref(), Some(advice));
    }
    let of = |replicas, late: &[&str]| of(replicas, late).level;
    assert_eq!([of(1, &[]), of(2, &[]), of(3, &[])], [Level::Warning, Level::Warning, Level::Ok]);
    assert_eq!(of(3, &["n2"]), Level::Warning);
    let levels = [(1, 1000), (3, 3333), (3, 3334)].map(|(replicas, r_ms)| {
        let election = store::election(replicas, timing(r_ms));
        election.level
    });
    assert_eq!(levels, [Level::Ok, Level::Warning, Level::Ok]);
}

#[test]
fn agents_that_disagree_or_share_a_token_are_told() {
    let status = |agents| KeyStatus::of_agents(&[("h1", HolderState::Active)], agents);
    let fit = status(vec![agent("h1", "a", true), agent("h2", "b", true)]);
    let key = Some((1000, 3, 1));
    let findings = judge(&fit, key);
    assert!(findings.iter().all(|it| it.level == Level::Ok), "{findings:?}");
    assert!(findings.iter().all(|it| it.key.as_deref() == Some("web")));
    assert_eq!(level_of(&judge(&fit, Some((2000, 3, 1))), "agreement"), Level::Warning);

    let mut other = agent("h2", "b", true);
    other.failures = 4;
    let differ = status(vec![agent("h1", "a", true), other]);
    assert_eq!(level_of(&judge(&differ, None), "agreement"), Level::Warning);

    let twins = status(vec![agent("h1", "a", true), agent("h1", "b", true)]);
    let findings = judge(&twins, key);
    assert_eq!(level_of(&findings, "twins"), Level::Critical);
    let text = &findings.iter().find(|it| it.name == "twins").expect("it").text;
    assert_eq!(text, "2 agents have the token h1, on host-a host-b");
}

#[test]
fn agents_that_are_silent_or_would_not_take_over_are_told() {
    let of = |state, agents| judge(&KeyStatus::of_agents(&[("h1", state)], agents), None);
    let silent = of(HolderState::Active, vec![agent("h2", "b", true)]);
    assert_eq!(level_of(&silent, "agents"), Level::Warning);
    let advice = silent[0].advice.as_deref().expect("advice");
    assert!(advice.starts_with("look whether its agent and its host live"), "{advice}");
    let gone = of(HolderState::Overdue, vec![agent("h2", "b", true)]);
    assert!(gone[0].text.contains("does not renew its lock"), "{gone:?}");
    let alone = of(HolderState::Active, vec![agent("h1", "a", true)]);
    assert_eq!(level_of(&alone, "standby"), Level::Warning);
    let advice = |is_local| {
        let alone = [("h1", HolderState::Active)];
        let alone = KeyStatus::of_agents(&alone, vec![agent("h1", "a", true)]);
        agents::judge(&alone, is_local, None)[1].advice.clone().expect("advice")
    };
    assert!(advice(false).contains("on a second host"));
    assert!(advice(true).contains("have the bucket in NATS"));
    let sick = of(HolderState::Active, vec![agent("h1", "a", true), agent("h2", "b", false)]);
    assert_eq!(level_of(&sick, "standby"), Level::Warning);
    assert!(sick[1].text.contains("h2: health check: exit 1"), "{sick:?}");
    let mut unguarded = agent("h1", "a", true);
    unguarded.guard_up = false;
    let unguarded = of(HolderState::Active, vec![unguarded]);
    assert_eq!(level_of(&unguarded, "service"), Level::Critical);
    let mut late = agent("h1", "a", false);
    late.service = ServiceStatus::Overdue;
    let late = of(HolderState::Active, vec![late, agent("h2", "b", true)]);
    assert_eq!(level_of(&late, "service"), Level::Critical);
    let mut failing = agent("h1", "a", true);
    failing.start_failure = Some("exit status 7".to_owned());
    let mut unguarded = agent("h2", "b", true);
    unguarded.guard_up = false;
    let failing = of(HolderState::Active, vec![failing, unguarded]);
    assert_eq!(level_of(&failing, "service"), Level::Critical);
    let mut running = agent("h1", "a", true);
    for (seconds, level) in [(2.9, Level::Ok), (3.1, Level::Warning)] {
        (running.service, running.service_seconds) = (ServiceStatus::Starting, seconds);
        let running = of(HolderState::Active, vec![running.clone(), agent("h2", "b", true)]);
        assert_eq!(level_of(&running, "service"), level);
    }
    let mut waiting = agent("h1", "a", true);
    (waiting.state, waiting.service) = (AgentState::Active, ServiceStatus::Down);
    for (seconds, paused, level) in
        [(2.9, false, Level::Ok), (3.1, false, Level::Warning), (3.1, true, Level::Ok)]
    {
        (waiting.state_seconds, waiting.paused) = (seconds, paused);
        let waiting = of(HolderState::Active, vec![waiting.clone(), agent("h2", "b", true)]);
        assert_eq!(level_of(&waiting, "service"), level, "{seconds} {paused}");
    }
    let says = "start of h1 fails: exit status 7; the guard of h2 does not answer its agent";
    assert_eq!(failing.iter().find(|it| it.name == "service").expect("it").text, says);
}

#[test]
fn it_is_critical_that_nobody_runs_the_service_and_nobody_would() {
    let of = |holders: &[(&str, HolderState)], agents| {
        judge(&KeyStatus::of_agents(holders, agents), None)
    };
    let sick = of(&[], vec![agent("h1", "a", false), agent("h2", "b", false)]);
    assert_eq!(level_of(&sick, "standby"), Level::Critical);
    let says = "nobody has the lock, and no agent would take it: h1: health check: exit 1; h2: \
                health check: exit 1";
    assert_eq!(sick[1].text, says);
    let ended = of(&[], Vec::new());
    assert_eq!(level_of(&ended, "standby"), Level::Critical);
    assert_eq!(level_of(&ended, "service"), Level::Unknown);
    let dead = of(&[("h1", HolderState::Overdue)], vec![agent("h2", "b", false)]);
    assert_eq!(level_of(&dead, "standby"), Level::Critical);
    let advice = |findings: &[Finding]| findings[1].advice.clone().expect("advice");
    assert_eq!(advice(&sick), "see WHY in putex status, and the log of h1 h2");
    assert_eq!(advice(&ended), "start the agents of this key");
    let mut active = agent("h1", "a", true);
    active.term = Some(1);
    let active = of(&[], vec![active]);
    assert_eq!(level_of(&active, "standby"), Level::Critical);
    assert_eq!(advice(&active), "see WHY in putex status");
    // The agent takes the lock soon, unless it may not write.
    let fit = of(&[], vec![agent("h1", "a", true)]);
    assert_eq!(level_of(&fit, "standby"), Level::Warning);
    let due = "if nobody takes it, see WHY in putex status, and the log of h1";
    assert_eq!(advice(&fit), due);
    // Somebody wants it so.
    let mut paused = KeyStatus::of_agents(&[], vec![agent("h1", "a", false)]);
    paused.paused = Some(PauseStatus {
        until: "2026-11-25T14:00:00Z".to_owned(),
        expires_in_seconds: 60.0,
        by: "root@h1".to_owned(),
        reason: String::new(),
        serial: 4,
    });
    assert_eq!(level_of(&judge(&paused, None), "standby"), Level::Warning);
}

#[test]
fn a_clock_that_is_corrected_faster_than_drift_is_told() {
    for (correction_ppm, level) in
        [(0, Level::Ok), (5000, Level::Ok), (5001, Level::Warning), (10_001, Level::Critical)]
    {
        let rate = ClockRate { correction_ppm, is_synchronised: true };
        assert_eq!(host::clock(rate, 10_000).level, level, "{correction_ppm}");
    }
    let of = |device: Option<&str>, required, fault: Option<&str>| {
        let device = device.map(|path| (path.to_owned(), required));
        host::watchdog(device.as_ref(), fault.map(|why| (why.to_owned(), "get one"))).level
    };
    assert_eq!(of(None, false, None), Level::Warning);
    assert_eq!(of(Some("/dev/watchdog"), false, None), Level::Ok);
    assert_eq!(of(Some("/dev/x"), false, Some("it is not there")), Level::Warning);
    assert_eq!(of(Some("/dev/x"), true, Some("it is not there")), Level::Critical);
    let missing = host::judge(timing(1000), Some(&("/dev/no/such".to_owned(), true)));
    let missing = missing.iter().find(|it| it.name == "watchdog").expect("it");
    let due = "load the driver of the watchdog, or softdog, and name its device";
    assert_eq!((missing.level, missing.advice.as_deref()), (Level::Critical, Some(due)));
    assert_eq!(host::cgroups(Err("it is systemd's".to_owned())).level, Level::Warning);
}

fn report(findings: Vec<Finding>, ignored: &[&str]) -> Report {
    let timing = TimingUsed {
        timing: TimingStatus { renewal_seconds: 1.0, failures: 3, confirmations: 2 },
        drift_ppm: 10_000,
    };
    Report::new("locks", timing, findings, ignored, false)
}

#[test]
fn what_is_critical_is_unfit_and_a_warning_has_a_status_for_who_wants_it() {
    let unknown = || Finding::unknown("fsync", "not told", "ask");
    let bad = || Finding::new("watchdog", Level::Warning, "none", "get one");
    let key = || Some("web".to_owned());
    let twins = || Finding::new("twins", Level::Critical, "a|b", "no");
    let worse = || Finding { key: key(), ..twins() };
    let level = |findings, ignored: &[&str]| report(findings, ignored).level;
    assert_eq!(level(vec![unknown()], &[]), Level::Ok);
    assert_eq!(level(vec![unknown(), bad()], &[]), Level::Warning);
    assert_eq!(level(vec![unknown(), bad()], &["watchdog"]), Level::Ok);
    assert_eq!(level(vec![worse(), bad()], &[]), Level::Critical);

    let findings = || vec![unknown(), bad(), worse()];
    let first = |ignored: &[&str]| {
        let report = report(findings(), ignored);
        (report.text().lines().next().map(str::to_owned).expect("a line"), report.status())
    };
    let due = "PUTEX CRITICAL - web twins: a/b; watchdog: none; not known: fsync";
    assert_eq!(first(&[]), (due.to_owned(), 2));
    let due = "PUTEX OK - bucket locks is fit, 1 warning; watchdog: none; not known: fsync";
    assert_eq!(first(&["twins"]), (due.to_owned(), 0));
    let strict = Report { is_strict: true, ..report(findings(), &["twins"]) };
    assert_eq!(strict.status(), 1);
    assert!(strict.text().starts_with("PUTEX WARNING - watchdog: none; not known: fsync\n"));
    let all = ["twins", "watchdog", "fsync"];
    assert_eq!(first(&all), ("PUTEX OK - bucket locks is fit".to_owned(), 0));
    let refusal = Refusal::new(Exit::Unreachable, "no | server");
    assert_eq!(not_measured(&refusal), "PUTEX UNKNOWN - no / server\n");
    assert_eq!(
        report(findings(), &["watchdog"]).text(),
        "PUTEX CRITICAL - web twins: a/b; not known: fsync\n\
         unknown  fsync     not told\n         -> ask\n\
         warning  watchdog  (ignored) none\n         -> get one\n\
         critical twins     web: a/b\n         -> no\n"
    );
}

/// A user that may not ask the agents was told that no agent would take the lock.
#[test]
fn what_agents_would_say_is_not_known_to_a_user_that_may_not_ask_them() {
    let judged = |status: &KeyStatus| {
        let all = judge(status, None).into_iter();
        let keys = std::slice::from_ref(status);
        all.map(|it| agents::without_answers(it, keys, "no right")).collect::<Vec<_>>()
    };
    let held = judged(&KeyStatus::of_agents(&[("h1", HolderState::Active)], Vec::new()));
    for name in ["agents", "standby", "active", "twins", "service"] {
        let finding = held.iter().find(|it| it.name == name).expect(name);
        assert_eq!((finding.level, &*finding.text), (Level::Unknown, "not asked: no right"));
        assert_eq!(finding.key.as_deref(), Some("web"));
    }
    assert_eq!(level_of(&held, "pause"), Level::Ok, "the bucket says so");
    let dead = judged(&KeyStatus::of_agents(&[("h1", HolderState::Overdue)], Vec::new()));
    assert_eq!(level_of(&dead, "agents"), Level::Warning, "the bucket says so");
}

/// A bucket on a full disk was called fit, as if this user lacked the right to write.
#[test]
fn a_store_that_takes_no_write_is_unfit_unless_only_this_user_may_not_write() {
    for (kind, level) in [
        (StoreErrorKind::Unreachable, Level::Critical),
        (StoreErrorKind::Credentials, Level::Unknown),
    ] {
        assert_eq!(store::refused("write", &kind.error("no room")).level, level, "{kind:?}");
    }
}

/// A bucket of a misspelt name was called fit.
#[test]
fn a_bucket_that_does_not_exist_is_not_called_fit() {
    let report = report(vec![store::no_bucket("loks")], &[]);
    assert_eq!(report.status(), 0);
    let due = "PUTEX OK - nothing is critical, 1 warning; bucket: loks does not exist\n";
    assert!(report.text().starts_with(due), "{}", report.text());
}

/// A hub and a leaf without domains had two buckets of one name, and both agents ran.
#[test]
fn more_active_agents_than_seats_and_two_buckets_of_one_name_are_critical() {
    let active = |token: &str, seats| AgentStatus {
        state: AgentState::Active,
        seats,
        ..AgentStatus::of_candidate(token)
    };
    let holders = [("h1", HolderState::Active)];
    let level = |agents| level_of(&judge(&KeyStatus::of_agents(&holders, agents), None), "active");
    assert_eq!(level(vec![active("h1", 1), AgentStatus::of_candidate("h2")]), Level::Ok);
    assert_eq!(level(vec![active("h1", 2), active("h2", 2)]), Level::Ok);
    assert_eq!(level(vec![active("h1", 1), active("h2", 1)]), Level::Critical);
    let other = AgentStatus { epoch: "f".to_owned(), ..AgentStatus::of_candidate("h2") };
    assert_eq!(level(vec![active("h1", 1), other.clone()]), Level::Critical);
    // An agent that has not opened a bucket yet has no epoch.
    let none = AgentStatus { epoch: String::new(), ..other };
    assert_eq!(level(vec![active("h1", 1), none]), Level::Ok);
}

#[test]
fn no_two_findings_have_one_name() {
    for (at, name) in FINDINGS.iter().enumerate() {
        assert!(!FINDINGS[..at].contains(name), "{name}");
    }
    assert!(OF_SERVERS.iter().chain(OF_DIRECTORY).all(|name| FINDINGS.contains(name)));
    let of_agents = judge(&KeyStatus::of_agents(&[], Vec::new()), None);
    assert!(of_agents.iter().all(|finding| FINDINGS.contains(&finding.name)), "{of_agents:?}");
}
