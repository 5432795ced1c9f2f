//! `putex lease` and `putex put --lease`: leases, which outlive the process that has claimed them.
//!
//! | file | part |
//! |---|---|
//! | this one | the request, its messages, and its steps |
//! | `put` | a write that is refused unless a lease stands |

mod put;

use std::path::Path;
use std::time::Duration;

use log::Level;

use crate::core::lease::command::REQUEST_MAX;
use crate::core::lease::step::why_young;
use crate::core::lease::{
    LeaseCommand, LeaseEnd, LeaseInput, LeaseState, LeaseStep, LeaseTask, LeaseTurn, LeaseView,
    StoredLease,
};
use crate::core::tickets::Name;
use crate::core::{Instant, Ms, Observed, sanitize_field};
use crate::exit::{Ended, Exit, Refusal};
use crate::log::Destination;
use crate::store::leases::{Leases, NotesFolder};
use crate::store::pace::Pace;
use crate::store::{Bucket, mark};
use crate::sys::{self, Alarm};

pub use self::put::{Put, run as run_put};

/// The status of `putex lease check` when a lease is not held.
const NOT_HELD: u8 = 1;

/// A wait for so long is said.
const PAUSE_SAID: Duration = Duration::from_secs(1);

/// A request of a command line of `putex lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The task.
    pub task: Task,
    /// The requester: the holder of a lease that is claimed or extended, and for the tombstone of
    /// one that is expired.
    pub who: String,
    /// How many millionths the rate of a host's clock may be off.
    pub drift_ppm: u32,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
}

/// The task of a command of `putex lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A task with one lease.
    One(Name, LeaseTask),
    /// Leases are listed: all, or those of a name and below it.
    List(Option<Name>),
}

impl Request {
    /// Returns whether the bucket has to exist: all but a claim is about leases that are there.
    pub fn needs_bucket(&self) -> bool {
        !matches!(self.task, Task::One(_, LeaseTask::Claim { .. }))
    }

    /// Returns the name of the lease, or `list`, for people who look at the server.
    pub fn subject(&self) -> String {
        match &self.task {
            Task::One(name, _) => name.to_string(),
            Task::List(_) => "list".to_owned(),
        }
    }
}

/// Serves a request. `base` is the directory for files of this host.
///
/// # Errors
///
/// Why the request was not served.
pub fn run(
    request: &Request,
    bucket: Box<dyn Bucket>,
    base: &Path,
    destination: Destination,
) -> Result<Ended, Refusal> {
    let (leases, pace) = (Leases::new(bucket), Pace::new(REQUEST_MAX));
    let mut process = Process { request, leases, notes: None, destination, pace };
    match NotesFolder::open(base, sys::host_clock::name()) {
        Ok(notes) => process.notes = Some(notes),
        Err(error) => process.tell_no_notes(&error.text),
    }
    match &request.task {
        Task::One(name, task) => process.run_one(name, task),
        Task::List(prefix) => process.list(prefix.as_ref()),
    }
}

struct Process<'a> {
    request: &'a Request,
    leases: Leases,
    /// `None` if they cannot be kept.
    notes: Option<NotesFolder>,
    destination: Destination,
    pace: Pace,
}

impl Process<'_> {
    fn tell(&self, level: Level, text: &str) {
        self.destination.tell_waiting(level, self.request.level, text);
    }

    fn tell_no_notes(&self, why: &str) {
        let text = "what this host sees of leases is not noted for its next commands";
        self.tell(Level::Warn, &format!("{text}: {why}"));
    }

    fn run_one(&mut self, name: &Name, task: &LeaseTask) -> Result<Ended, Refusal> {
        let alarm = Alarm::new().map_err(Refusal::system("cannot wait: "))?;
        let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
        let drift_ppm = self.request.drift_ppm;
        let mut command = LeaseCommand::new(task.clone(), drift_ppm, number as u64, sys::now());
        loop {
            let turn = command.next(sys::now());
            if let LeaseStep::Exit(end) = turn.step {
                self.note(name, command.notes());
                return self.say(name, end);
            }
            if let LeaseStep::Rest(until) = turn.step {
                self.note(name, command.notes());
                let left = until.since(sys::now());
                if left > PAUSE_SAID {
                    let text = format!("{name}: waiting for {}, until it has run out", Ms(left));
                    self.tell(Level::Info, &text);
                }
                // A wait that fails is a short wait.
                let _ = alarm.wait([], Some(until));
            }
            let input = self.perform(name, turn);
            command.handle(input, sys::now());
        }
    }

    fn perform(&mut self, name: &Name, turn: LeaseTurn) -> LeaseInput {
        let LeaseTurn { step, at, attempt, by } = turn;
        if !matches!(step, LeaseStep::Rest(_) | LeaseStep::Exit(_)) {
            self.pace.wait();
        }
        match step {
            LeaseStep::Open => LeaseInput::Opened(self.leases.open(by).map(|(info, mark)| {
                let read = |notes: &NotesFolder| notes.read(&info.id.epoch, name, sys::now());
                let notes = self.notes.as_ref().map(read).unwrap_or_default();
                Box::new((info, mark, notes))
            })),
            LeaseStep::Read => {
                LeaseInput::Read(self.leases.read(name, by).map_err(|error| error.text))
            }
            LeaseStep::WriteMark(mark) => {
                LeaseInput::Written(mark::write(self.leases.bucket(), &mark, by))
            }
            LeaseStep::Write(lease) => {
                let by_whom = (attempt, &*self.request.who);
                LeaseInput::Written(self.leases.write(name, at, lease.as_ref(), by_whom, by))
            }
            LeaseStep::Confirm(_) => LeaseInput::Written(self.leases.confirm(name, at, by)),
            LeaseStep::Rest(_) | LeaseStep::Exit(_) => LeaseInput::Rested,
        }
    }

    /// Writes the notes of this host on a lease.
    fn note(&mut self, name: &Name, seen: &Observed) {
        let Some(notes) = &self.notes else { return };
        if let Err(error) = notes.write(name, seen) {
            self.tell_no_notes(&error.to_string());
            self.notes = None;
        }
    }

    fn say(&mut self, name: &Name, end: LeaseEnd) -> Result<Ended, Refusal> {
        let now = sys::now();
        let (not_had, lost) = (Exit::NotHad as u8, Exit::Lost as u8);
        let (why, status) = match end {
            LeaseEnd::Had { term, valid_until } => {
                let valid = valid_until.since(now).as_secs();
                return Ok((format!("term={term} valid={valid}\n"), 0));
            }
            LeaseEnd::Expired(LeaseView { holder, term, .. }) => {
                let holder = sanitize_field(&holder);
                return Ok((format!("expired {name} term={term} holder={holder}\n"), 0));
            }
            LeaseEnd::Taken(view) => {
                let next = match view.state {
                    LeaseState::RunOut => format!("; see putex lease expire {name}"),
                    LeaseState::Held | LeaseState::Unsure if view.holder == self.request.who => {
                        format!("; to keep it, write putex lease extend {name}")
                    }
                    LeaseState::Held | LeaseState::Unsure => String::new(),
                };
                (format!("not claimed: {}{next}", describe(&view, now)), not_had)
            }
            LeaseEnd::Over(term) => {
                (format!("term {term} has run out again: this process did not go on in time"), lost)
            }
            LeaseEnd::Young(left) => (format!("not claimed: {}", why_young(left)), not_had),
            LeaseEnd::NotHad(view) => {
                let others = view.map_or("nobody has it".to_owned(), |view| describe(&view, now));
                let who = sanitize_field(&self.request.who);
                (format!("not extended: {who} does not have it: {others}"), lost)
            }
            LeaseEnd::TooEarly(view) => {
                (format!("not expired: {}; write a longer -w", describe(&view, now)), not_had)
            }
            LeaseEnd::Absent => ("nobody has it".to_owned(), 0),
            LeaseEnd::Checked(state, view) => {
                let why = match (view, state) {
                    (Some(view), _) => describe(&view, now),
                    (None, LeaseState::Unsure) => {
                        "nobody has it, but the bucket is new, or was lost and made anew".to_owned()
                    }
                    (None, LeaseState::Held | LeaseState::RunOut) => "nobody has it".to_owned(),
                };
                let status = match state {
                    LeaseState::Held => 0,
                    LeaseState::RunOut => NOT_HELD,
                    LeaseState::Unsure => not_had,
                };
                (why, status)
            }
            LeaseEnd::Refused(error) => return Err(error.into()),
        };
        // The answer to a question is no warning.
        let level = if [0, NOT_HELD].contains(&status) { Level::Info } else { Level::Warn };
        self.tell(level, &format!("{name}: {why}"));
        Ok((String::new(), status))
    }

    fn list(&mut self, prefix: Option<&Name>) -> Result<Ended, Refusal> {
        let began = sys::now();
        let by = began.after(REQUEST_MAX * 2);
        let (info, all) = self.leases.list(prefix, by)?;
        let mut text = String::new();
        for (name, StoredLease { revision, attempt, lease }) in all {
            let now = sys::now();
            let lease = match lease {
                Some(Ok(lease)) => lease,
                Some(Err(why)) => {
                    self.tell(Level::Warn, &format!("{name}: {why}"));
                    continue;
                }
                None => continue,
            };
            let read = |notes: &NotesFolder| notes.read(&info.id.epoch, &name, now);
            let known = self.notes.as_ref().map(read).unwrap_or_default();
            let mut notes = known.clone();
            let is_exact = info.replicas == 1;
            if notes.read((revision, attempt), (began, now), is_exact) && notes != known {
                self.note(&name, &notes);
            }
            let view = LeaseView::of(&lease, revision, &notes, self.request.drift_ppm, now);
            text += &line(&name, &view, now);
        }
        if let Some(name) = prefix.filter(|_| text.is_empty()) {
            let why = "no lease has this name or is below it";
            self.tell(Level::Warn, &format!("{name}: {why}"));
        }
        Ok((text, 0))
    }
}

/// Describes a lease for people.
fn describe(view: &LeaseView, now: Instant) -> String {
    let LeaseView { holder, state, held_until, run_out_at, .. } = view;
    let holder = sanitize_field(holder);
    let most = Ms(run_out_at.since(now));
    match (state, held_until) {
        (LeaseState::Held, Some(until)) => {
            format!("{holder} has it, for {} at least and {most} at most", Ms(until.since(now)))
        }
        (LeaseState::Held | LeaseState::Unsure, _) => {
            format!("{holder} may have it; this host knows in {most} that it has run out")
        }
        (LeaseState::RunOut, _) if *run_out_at > now => format!("{holder} has it"),
        (LeaseState::RunOut, _) => format!("that of {holder} has run out"),
    }
}

/// Returns the line for a lease. Scripts compare whole numbers.
fn line(name: &Name, view: &LeaseView, now: Instant) -> String {
    let LeaseView { holder, term, state, held_until, run_out_at } = view;
    let state = match state {
        LeaseState::Held => "held",
        LeaseState::Unsure => "unsure",
        LeaseState::RunOut => "run-out",
    };
    let least = held_until.map_or(0, |until| until.since(now).as_secs());
    let most = run_out_at.since(now);
    let most = most.as_secs() + u64::from(most.subsec_nanos() > 0);
    let holder = sanitize_field(holder);
    format!("{name} term={term} state={state} least={least} most={most} holder={holder}\n")
}
