//! The metrics of an agent, as text for Prometheus: text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::core::agent_status::{AgentState, AgentStatus, seconds};
use crate::core::event::{Effect, Event, GuardEvent, Written};
use crate::core::protocol::ServiceState;
use crate::core::record::{Record, RecordState};
use crate::core::report::{Reason, Report};
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// The outcomes of a renewal: stored; refused, since another revision stands there; denied, as by a
/// full disk; unknown.
const RESULTS: [&str; 4] = ["stored", "refused", "denied", "unknown"];

/// A metric that is 1 if a status has a property, else 0: its name, its help, and the property.
type FlagMetric = (&'static str, &'static str, fn(&AgentStatus) -> bool);

const FLAGS: [FlagMetric; 5] = [
    (
        "putex_candidate",
        "1 if the agent holds the lock or takes it when it is free.",
        AgentStatus::is_candidate,
    ),
    ("putex_paused", "1 if the agent knows of a pause of the service.", |it| it.paused),
    ("putex_store_up", "1 if the agent has the bucket open.", |it| it.store_up),
    ("putex_guard_up", "1 if the guard of the agent answers.", |it| it.guard_up),
    (
        "putex_start_failing",
        "1 if the last start that has ended under the lock has failed.",
        |it| it.start_failure.is_some(),
    ),
];

/// The metrics of one agent. Counters begin at zero with each instance of it.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The labels of every sample.
    labels: String,
    status: Option<AgentStatus>,
    /// For how much longer the lock is valid.
    valid: Duration,
    stop_margin_min: Option<f64>,
    /// The guard has said, since the last move, that the service had to be down before.
    is_overdue: bool,
    /// Counts by the outcomes in [`RESULTS`].
    renewals: [u64; RESULTS.len()],
    /// The time of the stored renewals, summed up.
    renewal_time: Duration,
    /// Counts by the state before and the new one.
    transitions: BTreeMap<(AgentState, AgentState), u64>,
    last_renewal: Option<Duration>,
    /// The write that is under way: when it was sent, and whether it is a renewal.
    sent: Option<(Instant, bool)>,
}

impl Metrics {
    /// Returns the metrics of an agent that starts now.
    pub fn new(bucket: &str, key: &str, token: &str) -> Metrics {
        let [bucket, key, token] = [bucket, key, token].map(escaped);
        Metrics {
            labels: format!(r#"bucket="{bucket}",key="{key}",token="{token}""#),
            ..Metrics::default()
        }
    }

    /// Takes in an event for the pump. `unix_time` is the time since 1970.
    pub fn handle_event(&mut self, event: &Event, now: Instant, unix_time: Duration) {
        if let Event::Guard(_, GuardEvent::Report(report)) = event {
            self.is_overdue |= report.service == ServiceState::Stopping { overdue: true };
        }
        let result = if let Event::Written(written) = event {
            match written {
                Written::Stored(_) => 0,
                Written::Moved(_) => 1,
                Written::Denied(_) => 2,
                Written::Unknown(_) => 3,
            }
        } else if let Event::Closed(_) = event {
            3
        } else {
            return;
        };
        let Some((sent_at, is_renewal)) = self.sent.take() else { return };
        if result == 0 {
            self.last_renewal = Some(unix_time);
        }
        if is_renewal {
            self.renewals[result] += 1;
            if result == 0 {
                self.renewal_time += now.since(sent_at);
            }
        }
    }

    /// Takes in an effect of the pump.
    pub fn handle_effect(&mut self, effect: &Effect, now: Instant) {
        if let Effect::Write { record: Record { lease: Some(lease), .. }, .. } = effect {
            let holds = lease.state != RecordState::Released;
            self.sent = holds.then_some((now, lease.term.is_some()));
        } else if let Effect::Report(Report::Moved { from, to, why, .. }) = effect
            // This reason repeats, for the log, a change of state that was counted before.
            && *why != Reason::TriedAgain
        {
            *self.transitions.entry((*from, *to)).or_default() += 1;
            if let Reason::Down(left) = why {
                self.note_margin(seconds(left.0));
            } else if let Reason::DownLate(late) = why
                // Otherwise the agent has only heard late that the service was down in time.
                && self.is_overdue
            {
                self.note_margin(-seconds(late.0));
            }
            self.is_overdue = false;
        }
    }

    fn note_margin(&mut self, margin: f64) {
        let least = self.stop_margin_min.map_or(margin, |least| least.min(margin));
        self.stop_margin_min = Some(least);
    }

    /// Takes in the present status of the agent, and for how much longer its lock is valid; returns
    /// whether the status has changed apart from its times.
    pub fn update(&mut self, status: AgentStatus, valid: Duration) -> bool {
        self.valid = valid;
        let shown =
            |it: &AgentStatus| (it.state, it.term, it.seat, FLAGS.map(|(_, _, is_set)| is_set(it)));
        let new = shown(&status);
        self.status.replace(status).as_ref().map(shown) != Some(new)
    }

    /// Returns the text of the file.
    pub fn render(&self) -> String {
        let mut file = MetricsText { text: String::new(), labels: &self.labels, name: "" };
        self.add_state(&mut file);
        self.add_times_and_counts(&mut file);
        file.text
    }

    fn add_state(&self, file: &mut MetricsText<'_>) {
        let status = self.status.as_ref();
        file.begin("putex_info", "gauge", "Version of putex, and token of the agent.");
        file.add("", &label("version", env!("CARGO_PKG_VERSION")), 1);
        let help = "1 for the state that the agent is in, 0 for the others.";
        file.begin("putex_state", "gauge", help);
        for state in AgentState::ALL {
            let is_in = status.is_some_and(|status| status.state == state);
            file.add("", &label("state", state), u8::from(is_in));
        }
        let help = "1 if the agent holds the lock, confirmed or not.";
        file.begin("putex_holding", "gauge", help);
        let holder = status.filter(|status| status.term.is_some());
        let held = holder.map(|status| status.seat.map_or(Seat::FIRST, Seat));
        let seats = status.map_or(1, |status| status.seats);
        for seat in Seat::all(seats) {
            let label = if seats > 1 { label("seat", seat) } else { String::new() };
            file.add("", &label, u8::from(held == Some(seat)));
        }
        for (name, help, is_set) in FLAGS {
            file.begin(name, "gauge", help);
            file.add("", "", u8::from(status.is_some_and(is_set)));
        }
    }

    fn add_times_and_counts(&self, file: &mut MetricsText<'_>) {
        let help = "Time until the lock runs out without a renewal, 0 without the lock.";
        file.begin("putex_valid_seconds", "gauge", help);
        file.add("", "", seconds(self.valid));
        let help = "Least time from the end of a stop to when the service had to be down.";
        file.begin("putex_stop_margin_min_seconds", "gauge", help);
        self.stop_margin_min.iter().for_each(|least| file.add("", "", least));
        let help = "Renewals that were sent, by what became of them.";
        file.begin("putex_renewals_total", "counter", help);
        for (result, count) in RESULTS.iter().zip(self.renewals) {
            file.add("", &label("result", result), count);
        }
        let help = "Time from a renewal to its acknowledgement.";
        file.begin("putex_renewal_duration_seconds", "summary", help);
        file.add("_sum", "", self.renewal_time.as_secs_f64());
        file.add("_count", "", self.renewals[0]);
        file.begin("putex_transitions_total", "counter", "Changes of state.");
        for ((from, new), count) in &self.transitions {
            file.add("", &format!("{}{}", label("from", from), label("to", new)), count);
        }
        let help = "Unix time of the last acknowledged take or renewal.";
        file.begin("putex_last_renewal_timestamp_seconds", "gauge", help);
        self.last_renewal.iter().for_each(|at| file.add("", "", seconds(*at)));
    }
}

/// The text of the file as it is written, metric by metric.
struct MetricsText<'a> {
    text: String,
    /// The labels of every sample.
    labels: &'a str,
    /// The metric that is written.
    name: &'static str,
}

impl MetricsText<'_> {
    /// Begins a metric of this type. Its help is the same in the files of all agents.
    fn begin(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a text does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn add(&mut self, suffix: &str, more: &str, value: impl fmt::Display) {
        let MetricsText { text, labels, name } = self;
        let _ = writeln!(text, "{name}{suffix}{{{labels}{more}}} {value}");
    }
}

/// Returns a label that follows others.
fn label(name: &str, value: impl fmt::Display) -> String {
    format!(r#",{name}="{value}""#)
}

/// Returns a value of a label as it is written.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::StoreErrorKind;
    use crate::core::{GuardReport, Incarnation, Lease, Ms, Priority, Revision};

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    fn write(state: RecordState, term: Option<u64>) -> Effect {
        let lease = Lease {
            incarnation: Incarnation(1),
            nonce: 1,
            host: "h".to_owned(),
            boot: "b".to_owned(),
            renewal: Duration::from_secs(1),
            failures: 3,
            confirmations: 2,
            grace: Duration::ZERO,
            term: term.map(Revision),
            state,
            priority: Priority::FIRST,
            released_to: None,
        };
        let record = Record { token: "one".to_owned(), lease: Some(lease) };
        Effect::Write { seat: Seat::FIRST, expected: Revision(1), record, deadline: at(0) }
    }

    fn moved(from: AgentState, to: AgentState, why: Reason) -> Effect {
        let level = log::Level::Info;
        Effect::Report(Report::Moved { from, to, why, level })
    }

    fn samples(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.render();
        let of_name = text.lines().filter_map(|line| line.strip_prefix(name));
        of_name.map(str::to_owned).collect()
    }

    fn metrics(seats: u32, held: Option<Seat>) -> Metrics {
        let status = AgentStatus {
            state: AgentState::Active,
            term: held.map(|_| 7),
            seat: held.map(|seat| seat.0),
            seats,
            ..AgentStatus::of_candidate("a")
        };
        Metrics { status: Some(status), ..Metrics::new("b", "web", "a\"\\\n") }
    }

    #[test]
    fn renewals_are_counted_by_their_results_and_takes_and_releases_are_none() {
        let mut metrics = metrics(1, None);
        let mut run = |effect: &Effect, result: Event, ms: u64| {
            metrics.handle_effect(effect, at(1000));
            metrics.handle_event(&result, at(1000 + ms), Duration::from_millis(1_700_000_000_000));
            // The closing of the store ends no write of this agent.
            metrics.handle_event(&Event::Closed("gone".to_owned()), at(9000), Duration::ZERO);
            (metrics.renewals, metrics.last_renewal.is_some())
        };
        let stored = || Event::Written(Written::Stored(Revision(2)));
        let renewal = write(RecordState::Active, Some(1));
        let released = write(RecordState::Released, Some(1));
        assert_eq!(run(&released, stored(), 9), ([0; 4], false));
        let refused = Event::Written(Written::Moved(None));
        assert_eq!(run(&write(RecordState::Taking, None), refused.clone(), 9), ([0; 4], false));
        assert_eq!(run(&write(RecordState::Taking, None), stored(), 9), ([0; 4], true));
        assert_eq!(run(&renewal, stored(), 250).0, [1, 0, 0, 0]);
        assert_eq!(run(&renewal, stored(), 500).0, [2, 0, 0, 0]);
        assert_eq!(run(&renewal, refused, 9).0, [2, 1, 0, 0]);
        let denied = Event::Written(Written::Denied(StoreErrorKind::Unreachable.error("full")));
        assert_eq!(run(&renewal, denied, 9).0, [2, 1, 1, 0]);
        let unknown = Event::Written(Written::Unknown("late".to_owned()));
        assert_eq!(run(&renewal, unknown, 9).0, [2, 1, 1, 1]);
        assert_eq!(run(&renewal, Event::Closed("gone".to_owned()), 9).0, [2, 1, 1, 2]);
        let labels = r#"{bucket="b",key="web",token="a\"\\\n"}"#;
        let durations = samples(&metrics, "putex_renewal_duration_seconds_");
        assert_eq!(durations, [format!("sum{labels} 0.75"), format!("count{labels} 2")]);
        let last = samples(&metrics, "putex_last_renewal_timestamp_seconds");
        assert_eq!(last, [format!("{labels} 1700000000")]);
    }

    #[test]
    fn transitions_are_counted_and_the_least_margin_of_a_stop_is_kept() {
        let mut metrics = metrics(1, None);
        let margin = |metrics: &Metrics| samples(metrics, "putex_stop_margin_min_seconds");
        assert_eq!(margin(&metrics), Vec::<String>::new());
        let down = |ms| Reason::Down(Ms(Duration::from_millis(ms)));
        for (why, least) in [(down(1500), " 1.5"), (down(700), " 0.7"), (down(900), " 0.7")] {
            metrics.handle_effect(&moved(AgentState::Stopping, AgentState::Standby, why), at(0));
            assert!(margin(&metrics)[0].ends_with(least), "{least}: {:?}", margin(&metrics));
        }
        metrics.handle_effect(
            &moved(AgentState::Standby, AgentState::Taking, Reason::TriedAgain),
            at(0),
        );
        metrics.handle_effect(&moved(AgentState::Standby, AgentState::Taking, Reason::Open), at(0));
        let counted = samples(&metrics, "putex_transitions_total");
        let ends = [r#"from="standby",to="taking"} 1"#, r#"from="stopping",to="standby"} 3"#];
        assert_eq!(counted.len(), 2);
        assert!(counted.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{counted:?}");
    }

    /// Or the alert on the sum would have to know how many seats there are.
    #[test]
    fn each_seat_of_several_has_a_sample_of_its_own() {
        let held = |seats, held| {
            let lines = samples(&metrics(seats, held), "putex_holding{");
            let end = |line: &String| line.rsplit_once("\\n\"").map(|(_, end)| end.to_owned());
            lines.iter().filter_map(end).collect::<Vec<_>>()
        };
        assert_eq!(held(1, Some(Seat::FIRST)), ["} 1"]);
        assert_eq!(held(1, None), ["} 0"]);
        assert_eq!(held(2, Some(Seat(1))), [r#",seat="0"} 0"#, r#",seat="1"} 1"#]);
        assert_eq!(held(2, None), [r#",seat="0"} 0"#, r#",seat="1"} 0"#]);
    }

    #[test]
    fn one_state_is_1_and_each_metric_has_its_help_and_type() {
        let mut metrics = metrics(1, None);
        metrics.last_renewal = Some(Duration::ZERO);
        metrics.note_margin(0.0);
        metrics.transitions.insert((AgentState::Looking, AgentState::Standby), 1);
        let states = samples(&metrics, "putex_state{");
        let is = |line: &&String| line.ends_with("1");
        let is_one: Vec<_> = states.iter().filter(is).collect();
        assert_eq!(states.len(), 7);
        assert!(is_one.len() == 1 && is_one[0].contains("state=\"active\""), "{is_one:?}");
        let text = metrics.render();
        let of_metrics: Vec<_> = text.split("# HELP ").skip(1).collect();
        assert_eq!(of_metrics.len(), 14, "{text}");
        for text in of_metrics {
            let (name, _) = text.split_once(' ').expect("a name");
            let samples = text.split_once(&format!("\n# TYPE {name} ")).expect("a type").1;
            assert!(samples.contains(&format!("\n{name}")), "{text}");
        }
    }

    #[test]
    fn a_stop_was_late_if_the_guard_says_so_and_not_if_the_agent_was_frozen() {
        let mut metrics = metrics(1, None);
        let late = || Reason::DownLate(Ms(Duration::from_millis(20)));
        metrics.handle_effect(&moved(AgentState::Stopping, AgentState::Standby, late()), at(0));
        assert_eq!(metrics.stop_margin_min, None);
        let service = ServiceState::Stopping { overdue: true };
        let overdue =
            GuardReport { heard: 1, service, unfit: None, start_failure: None, start_waits: false };
        let overdue = Event::Guard(1, GuardEvent::Report(overdue));
        metrics.handle_event(&overdue, at(0), Duration::ZERO);
        metrics.handle_effect(&moved(AgentState::Stopping, AgentState::Standby, late()), at(0));
        assert_eq!(metrics.stop_margin_min, Some(-0.02));
    }
}
