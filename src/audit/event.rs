//! The lines of an agent's log that tell when its service may have run.
//!
//! No text stands here twice: a report is formatted once, with marks in place of its fields, and
//! lines are compared with the parts between the marks.

use std::fmt::Display;
use std::time::Duration;

use crate::core::report::{Holder, LockName, Reason, Report, SettingsLine};
use crate::core::service_report::ServiceReport;
use crate::core::{Level, Ms, Revision, Seat};
use crate::log::DROPPED;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogEvent {
    /// An instance of an agent has opened the store.
    Settings {
        /// The agent's token.
        token: String,
        /// F·R and the stop budget.
        times: Times,
    },
    /// The state of the agent has changed.
    Moved {
        /// Name of the state before.
        from: String,
        /// Name of the new state.
        to: String,
        /// What the audit makes of the reason.
        cause: Cause,
        /// The reason.
        why: String,
    },
    /// The agent takes this seat.
    Seat(u32),
    /// The lock is released, by this revision.
    Released(u64),
    /// Somebody else holds the lock.
    HeldBy(String),
    /// The service runs, in this term.
    Started(u64),
    /// A pause is known, which lasts for so long.
    Paused(Duration),
    /// The service is down.
    Down,
    /// The last resort has succeeded: it has cut the service off.
    CutOff,
    /// The service is not known to be down although it has to be.
    MayStillRun,
    /// The lock has run out: the guard stops the service, and says so.
    LockOver(String),
    /// The guard before this one is dead: nobody has stopped the service until now.
    GuardBeforeDead,
    /// Lines were lost.
    Dropped,
}

/// How long a lock is valid after its last renewal, and how long its service may take to stop then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// T = F·R, which is not less than the validity.
    pub(super) lock_time: Duration,
    /// The stop budget.
    pub(super) stop_budget: Duration,
}

impl Times {
    /// Returns the longest time from a renewal that was the last one until the service is down.
    pub(super) fn sum(self) -> Duration {
        self.lock_time.saturating_add(self.stop_budget)
    }
}

/// Why a state has changed, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A lock is taken.
    Take {
        /// Its holder, if that is another agent.
        holder: Option<String>,
        /// Its last record says that the service is down.
        released: bool,
        /// How long that record has stood still.
        stood: Duration,
    },
    /// The lock of the previous instance of this agent is taken, of this term.
    Adopt(u64),
    /// The previous instance's service goes on.
    Adopted,
    /// A lock was taken as this revision; the service starts after so long.
    Taken(u64, Duration),
    /// Anything else.
    Other,
}

/// The form of a text with fields: the parts around them.
struct Form {
    start: String,
    /// What follows each field.
    after: Vec<String>,
}

impl Form {
    /// Returns the form of a text in which these marks, in their order, are the fields.
    fn of(sample: &dyn Display, marks: &[&str]) -> Form {
        let sample = sample.to_string();
        let (mut rest, mut parts) = (&*sample, Vec::new());
        for mark in marks {
            if let Some((before, after)) = rest.split_once(mark) {
                parts.push(before.to_owned());
                rest = after;
            }
        }
        parts.push(rest.to_owned());
        let start = parts.remove(0);
        Form { start, after: parts }
    }

    /// Returns the fields of a text, blank those that the form lacks; `None` if the text has
    /// another form.
    fn fields<'a, const N: usize>(&self, text: &'a str) -> Option<[&'a str; N]> {
        let mut rest = text.strip_prefix(&*self.start)?;
        let mut fields = [""; N];
        let last = self.after.len().checked_sub(1);
        for (at, after) in self.after.iter().enumerate() {
            (fields[at], rest) = match Some(at) == last {
                true => (rest.strip_suffix(&**after)?, ""),
                false => rest.split_once(&**after)?,
            };
        }
        rest.is_empty().then_some(fields)
    }
}

const ONE: &str = "\u{1}";
const TWO: &str = "\u{2}";
const NUMBER: Revision = Revision(u64::MAX);
const NUMBER_MARK: &str = "18446744073709551615";
const TIME: Ms = Ms(Duration::from_secs(987_654_321));
const TIME_MARK: &str = "987654321 s";
const SEAT: Seat = Seat(u32::MAX);
const SEAT_MARK: &str = "4294967295";

/// All forms, made once.
pub(super) struct Forms {
    settings: Form,
    moved: Form,
    seat: Form,
    released: Form,
    held: Form,
    seat_held: Form,
    started: Form,
    down_in_time: Form,
    down: [String; 2],
    paused: Form,
    cut_off: String,
    may_still_run: String,
    lock_over: [String; 2],
    guard_before_dead: String,
    reasons: ReasonForms,
}

struct ReasonForms {
    free: Form,
    not_renewed: Form,
    without_holder: Form,
    predecessor: Form,
    adopted: Form,
    taken_free: Form,
    taken: Form,
    holders: HolderForms,
}

struct HolderForms {
    /// Those of a record that says that the service is down.
    released: [Form; 4],
    /// Those of a record that another agent has written.
    named: [Form; 2],
    nobody: [String; 6],
    own: [String; 4],
}

impl Forms {
    pub(super) fn new() -> Forms {
        let one = || ONE.to_owned();
        let why = Reason::Open.to_string();
        let moved = Report::Moved { from: ONE, to: TWO, why: Reason::Open, level: Level::Info };
        let held = |lock| Report::HeldBy {
            lock,
            holder: Holder::Somebody(one()),
            revision: NUMBER,
            again: false,
        };
        let settings = SettingsLine {
            version: ONE,
            token: TWO,
            renewal: TIME,
            failures: u32::MAX,
            confirmations: u32::MAX,
            stop_budget: TIME,
        };
        let marks = [ONE, TWO, TIME_MARK, SEAT_MARK, SEAT_MARK, TIME_MARK];
        Forms {
            settings: Form::of(&settings, &marks),
            moved: Form::of(&moved, &[ONE, TWO, &why]),
            seat: Form::of(&Report::TakesSeat(SEAT), &[SEAT_MARK]),
            released: Form::of(&Report::Released(NUMBER), &[NUMBER_MARK]),
            held: Form::of(&held(LockName::Only), &[ONE, NUMBER_MARK]),
            seat_held: Form::of(&held(LockName::Seat(SEAT)), &[SEAT_MARK, ONE, NUMBER_MARK]),
            started: Form::of(&ServiceReport::Started(NUMBER), &[NUMBER_MARK]),
            down_in_time: Form::of(&ServiceReport::DownInTime(TIME), &[TIME_MARK]),
            down: [ServiceReport::DownLate, ServiceReport::Down].map(|report| report.to_string()),
            paused: Form::of(&Report::Paused(TIME, one()), &[TIME_MARK, ONE]),
            cut_off: ServiceReport::LastResortSucceeded.to_string(),
            may_still_run: ServiceReport::MayStillRun.to_string(),
            lock_over: [ServiceReport::LockOver, ServiceReport::LockOverWithoutAgent]
                .map(|report| report.to_string()),
            guard_before_dead: ServiceReport::GuardBeforeDead.to_string(),
            reasons: ReasonForms::new(),
        }
    }

    /// Returns what a line says that matters for an audit; `None` if nothing.
    pub(super) fn event(&self, text: &str) -> Option<LogEvent> {
        if let Some(fields) = self.settings.fields(text) {
            return settings(fields);
        }
        if let Some([from, to, why]) = self.moved.fields(text) {
            let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
            let cause = self.reasons.cause(why).filter(|_| is_name(from) && is_name(to))?;
            let [from, to, why] = [from, to, why].map(str::to_owned);
            return Some(LogEvent::Moved { from, to, cause, why });
        }
        if let Some([seat]) = self.seat.fields(text) {
            return seat.parse().ok().map(LogEvent::Seat);
        }
        if let Some([revision]) = self.released.fields(text) {
            return revision.parse().ok().map(LogEvent::Released);
        }
        let held = self.held.fields(text).map(|[holder, _]| holder);
        if let Some(holder) = held.or_else(|| Some(self.seat_held.fields::<3>(text)?[1])) {
            return self.reasons.holders.other_agent(holder).map(LogEvent::HeldBy);
        }
        if let Some([term]) = self.started.fields(text) {
            return term.parse().ok().map(LogEvent::Started);
        }
        if self.down_in_time.fields::<1>(text).is_some()
            || self.down.iter().any(|down| down == text)
        {
            return Some(LogEvent::Down);
        }
        if let Some([lasts, _]) = self.paused.fields(text) {
            return Ms::parse(lasts).map(|Ms(lasts)| LogEvent::Paused(lasts));
        }
        if text == self.cut_off {
            return Some(LogEvent::CutOff);
        }
        if text == self.may_still_run {
            return Some(LogEvent::MayStillRun);
        }
        if self.lock_over.iter().any(|over| over == text) {
            return Some(LogEvent::LockOver(text.to_owned()));
        }
        if text == self.guard_before_dead {
            return Some(LogEvent::GuardBeforeDead);
        }
        text.contains(DROPPED).then_some(LogEvent::Dropped)
    }
}

fn settings([_, token, r, f, _, budget]: [&str; 6]) -> Option<LogEvent> {
    let failures: u32 = f.parse().ok()?;
    let lock_time = Ms::parse(r)?.0.checked_mul(failures)?;
    let times = Times { lock_time, stop_budget: Ms::parse(budget)?.0 };
    Some(LogEvent::Settings { token: token.to_owned(), times })
}

impl ReasonForms {
    fn new() -> ReasonForms {
        let holder = || Holder::Somebody(ONE.to_owned());
        ReasonForms {
            free: Form::of(&Reason::Free(holder()), &[ONE]),
            not_renewed: Form::of(&Reason::NotRenewed(holder(), TIME), &[ONE, TIME_MARK]),
            without_holder: Form::of(&Reason::WithoutHolder(holder(), TIME), &[ONE, TIME_MARK]),
            predecessor: Form::of(&Reason::Predecessor(NUMBER), &[NUMBER_MARK]),
            adopted: Form::of(&Reason::Adopted(NUMBER), &[NUMBER_MARK]),
            taken_free: Form::of(&Reason::TakenFree(NUMBER), &[NUMBER_MARK]),
            taken: Form::of(&Reason::Taken(NUMBER, TIME), &[NUMBER_MARK, TIME_MARK]),
            holders: HolderForms::new(),
        }
    }

    /// Returns what the audit makes of a reason; `None` if it has a number that is none.
    fn cause(&self, why: &str) -> Option<Cause> {
        // Before those with a name, which would have it as a part of the name.
        if let Some([term]) = self.predecessor.fields(why) {
            return term.parse().ok().map(Cause::Adopt);
        }
        let seen_for = [&self.not_renewed, &self.without_holder];
        if let Some([holder, stood]) = seen_for.iter().find_map(|form| form.fields(why)) {
            let stood = Ms::parse(stood)?.0;
            return Some(self.holders.taken_from(holder, stood));
        }
        if let Some([holder]) = self.free.fields(why) {
            return Some(self.holders.taken_from(holder, Duration::ZERO));
        }
        if self.adopted.fields::<1>(why).is_some() {
            return Some(Cause::Adopted);
        }
        if let Some([revision, wait]) = self.taken.fields(why) {
            return Some(Cause::Taken(revision.parse().ok()?, Ms::parse(wait)?.0));
        }
        if let Some([revision]) = self.taken_free.fields(why) {
            return Some(Cause::Taken(revision.parse().ok()?, Duration::ZERO));
        }
        Some(Cause::Other)
    }
}

impl HolderForms {
    fn new() -> HolderForms {
        let (one, two) = (|| ONE.to_owned(), || TWO.to_owned());
        let released = [
            Holder::Released(one()),
            Holder::ReleasedToThis(one()),
            Holder::ReleasedTo(two(), one()),
            Holder::ReleasedHere,
        ];
        let nobody = [
            Holder::Deleted,
            Holder::Gone,
            Holder::Never,
            Holder::Unwatched,
            Holder::Blanked,
            Holder::KeptRunning,
        ];
        let own = [Holder::Predecessor, Holder::Own, Holder::OwnUnconfirmed, Holder::OwnLate];
        HolderForms {
            released: released.map(|holder| Form::of(&holder, &[ONE, TWO])),
            named: [Holder::InRollback(one()), Holder::InOlder(one())]
                .map(|holder| Form::of(&holder, &[ONE])),
            nobody: nobody.map(|holder| holder.to_string()),
            own: own.map(|holder| holder.to_string()),
        }
    }

    fn taken_from(&self, holder: &str, stood: Duration) -> Cause {
        let released = self.is_released(holder);
        Cause::Take { holder: self.other_agent(holder), released, stood }
    }

    fn is_released(&self, holder: &str) -> bool {
        self.released.iter().any(|form| form.fields::<2>(holder).is_some())
    }

    /// Returns the token of a holder that is another agent.
    fn other_agent(&self, holder: &str) -> Option<String> {
        let in_text = self.named.iter().find_map(|form| form.fields(holder));
        let name = in_text.map_or(holder, |[name]| name);
        let is_other = self.nobody.iter().chain(&self.own).all(|known| known != name);
        let token = name.split_once(" on host ").map_or(name, |(token, _)| token);
        (is_other && name != "nobody" && !self.is_released(name)).then(|| token.to_owned())
    }
}

#[cfg(test)]
mod tests;
