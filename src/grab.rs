//! `putex grab` and `putex release`: locks for scripts. No process stays; the ticket runs out
//! unless it is grabbed again.
//!
//! | file | part |
//! |---|---|
//! | this one | the request, its messages, and the tickets in NATS |
//! | `local` | the tickets in a directory |

mod local;

pub use self::local::run as run_local;

use std::os::fd::AsFd as _;
use std::time::Duration;

use log::Level;

use crate::core::tickets::grab::STEP_MAX;
use crate::core::tickets::{
    Asker, Broken, End, Input, LockTiming, Mode, Name, Released, Releaser, Step, Ticket,
    TicketOwner, ToFront, Whose,
};
use crate::core::{Incarnation, Instant, Written};
use crate::exit::{Ended, Exit, Refusal};
use crate::guard::digest;
use crate::lock::check_held;
use crate::log::Destination;
use crate::store::Bucket;
use crate::store::tickets::Tickets;
use crate::sys::{self, Waker};

/// Long enough that no two requesters ever have the same.
const DIGEST_BYTES: usize = 16;

/// The task of a command of `putex grab` or `putex release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// The name is asked for.
    Grab {
        /// Whether others may hold the name at the same time.
        mode: Mode,
        /// The times of the ticket.
        timing: LockTiming,
        /// How long the name is waited for.
        wait: Duration,
        /// The ticket is withdrawn if it is not granted.
        withdraws: bool,
        /// The exit status when the lock is not had.
        busy_status: u8,
    },
    /// The own ticket is ended.
    Release,
    /// The tickets of this holder are ended.
    Break(String),
}

/// A request of a command line of `putex grab` or `putex release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name that is locked.
    pub name: Name,
    /// The requester. Every process that asks under this name is the same requester.
    pub who: String,
    /// The task.
    pub task: Task,
    /// The lowest level that is logged: 1 errors, 2 warnings, and so on.
    pub level: u64,
}

impl Request {
    /// Returns whether the bucket has to exist: a lock that is released was had in it.
    pub fn needs_bucket(&self) -> bool {
        !matches!(self.task, Task::Grab { .. })
    }

    /// Returns how long a request to the store may take.
    pub fn answer_time(&self) -> Duration {
        match &self.task {
            Task::Grab { timing, .. } => timing.renewal().min(STEP_MAX),
            Task::Release | Task::Break(_) => STEP_MAX,
        }
    }
}

/// Serves a request, in NATS. A bucket that has to exist is open.
///
/// # Errors
///
/// Why the request was not served.
pub fn run(
    request: &Request,
    bucket: Box<dyn Bucket>,
    destination: Destination,
) -> Result<Ended, Refusal> {
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let ticket = ticket(request, number as u64);
    let clock = sys::host_clock::name();
    let tickets = Tickets::new(bucket, &ticket, &clock);
    let nothing = Waker::new().map_err(Refusal::system("cannot wait: "))?;
    let process = Process { speaker: Speaker { request, destination }, tickets, nothing };
    match &request.task {
        Task::Grab { timing, wait, withdraws, busy_status, .. } => {
            check_held(&ticket.name)?;
            let asker = Asker::Script { withdraws: *withdraws };
            let (wait, now) = (Some(*wait), sys::now());
            let owner = TicketOwner::new(*timing, ticket, number, asker, wait, now);
            process.grab(owner.with_notes(&clock), *busy_status)
        }
        Task::Release => process.release(ticket.name, Whose::Own(ticket.incarnation)),
        Task::Break(holder) => process.release(ticket.name, Whose::OfHolder(holder.clone())),
    }
}

/// Returns the ticket that is asked for: by its mode, earlier ones conflict with it or not.
fn ticket(request: &Request, attempt: u64) -> Ticket {
    let (mode, lifetime) = match &request.task {
        Task::Grab { mode, timing, .. } => (*mode, timing.lifetime()),
        Task::Release | Task::Break(_) => (Mode::Exclusive, Duration::ZERO),
    };
    // The number that stands in all tickets of a requester.
    let digest = digest(&format!("requester {}", request.who), DIGEST_BYTES);
    let incarnation = Incarnation(u128::from_str_radix(&digest, 16).unwrap_or_default());
    let new = Ticket::new(request.name.clone(), mode, request.who.clone());
    Ticket { lifetime, incarnation, attempt, ..new }
}

/// How a grab has ended.
struct Grabbed {
    /// The last message to the asker.
    last: ToFront,
    /// The number of a ticket that waits and keeps its place, and V.
    ticket: Option<(u64, Instant)>,
}

/// The writer of the result and of warnings.
struct Speaker<'a> {
    request: &'a Request,
    destination: Destination,
}

impl Speaker<'_> {
    fn grabbed(&self, grabbed: Grabbed, busy_status: u8) -> Result<Ended, Refusal> {
        let (why, line) = match (grabbed.last, grabbed.ticket) {
            (ToFront::Granted { term, valid_until, .. }, _) => {
                return Ok((line(term, 0, valid_until), 0));
            }
            // A bucket that is too young counts as one.
            (ToFront::Waiting { ahead, why }, Some((term, until))) => {
                (why, line(term, ahead.max(1), until))
            }
            (ToFront::Waiting { why, .. } | ToFront::Ended(End::NotHad(why)), _) => {
                (why, String::new())
            }
            (ToFront::Ended(End::Overlaps(other)), _) => {
                let name = &self.request.name;
                let text = format!("{name}: {other}: it would wait for itself; release that first");
                return Err(Refusal::new(Exit::Usage, text));
            }
            (ToFront::Ended(End::Refused(error)), _) => return Err(error.into()),
            // Only a command is told these messages.
            (ToFront::Ended(End::Released | End::Lost(_)) | ToFront::Lost(_), _) => {
                ("released".to_owned(), String::new())
            }
        };
        // With a status of success, a job of cron that is elsewhere has nothing to say.
        let level = if busy_status == 0 { Level::Info } else { Level::Warn };
        self.tell(level, &format!("not acquired: {why}"));
        Ok((line, busy_status))
    }

    fn released(&self, released: Released) -> Result<Ended, Refusal> {
        let (why, exit) = match released {
            Released::Ended => return Ok((String::new(), 0)),
            Released::Broken(broken) if !broken.is_empty() => {
                return Ok((broken.iter().map(|broken| self.broke(broken)).collect(), 0));
            }
            Released::Refused(error) => return Err(error.into()),
            Released::Absent(other) => {
                let who = match &self.request.task {
                    Task::Break(holder) => holder,
                    Task::Grab { .. } | Task::Release => &self.request.who,
                };
                // The store keeps nothing of a ticket that is gone.
                let why = match other {
                    None => "it had run out, was ended before, or was never had".to_owned(),
                    Some(other) => format!(
                        "{other}, which ends with its command if putex lock has it; putex release \
                         --force --holder takes a lock away"
                    ),
                };
                (format!("{who} has no ticket of putex grab: {why}"), Exit::Lost)
            }
            Released::Broken(_) => ("released meanwhile".to_owned(), Exit::Lost),
            Released::NotHeldBy(who) => {
                let why = format!("not broken: {who}; write --holder with the holder's name");
                (why, Exit::NotHad)
            }
        };
        self.tell(Level::Warn, &why);
        Ok((String::new(), exit as u8))
    }

    /// Returns the line for a ticket that was broken.
    fn broke(&self, Broken { term, holder, mode }: &Broken) -> String {
        let (name, mode) = (&self.request.name, mode.name());
        format!("broke {name} term={term} mode={mode} holder={holder}\n")
    }

    /// Says why the name is waited for, unless this was said last.
    fn show_wait(&self, why: &str, last: &mut String) {
        if last != why {
            why.clone_into(last);
            self.tell(Level::Info, &format!("waiting: {why}"));
        }
    }

    fn tell(&self, level: Level, text: &str) {
        let text = format!("{}: {text}", self.request.name);
        self.destination.tell_waiting(level, self.request.level, &text);
    }
}

struct Process<'a> {
    speaker: Speaker<'a>,
    tickets: Tickets,
    /// Never readable.
    nothing: Waker,
}

impl Process<'_> {
    fn grab(mut self, mut owner: TicketOwner, busy_status: u8) -> Result<Ended, Refusal> {
        let (mut shown, mut last) = (String::new(), ToFront::Ended(End::Released));
        loop {
            let step = owner.next(sys::now());
            let is_over = step == Step::Exit;
            for message in owner.take_messages() {
                if let (ToFront::Waiting { why, .. }, false) = (&message, is_over) {
                    self.speaker.show_wait(why, &mut shown);
                }
                last = message;
            }
            if is_over {
                let ticket = owner.term().zip(owner.valid_until());
                return self.speaker.grabbed(Grabbed { last, ticket }, busy_status);
            }
            let input = self.perform(step, &owner.key_element());
            owner.handle(input, sys::now());
        }
    }

    fn release(mut self, name: Name, whose: Whose) -> Result<Ended, Refusal> {
        let mut releaser = Releaser::new(name, whose, sys::now());
        loop {
            let input = self.perform(releaser.next(sys::now()), "");
            releaser.handle(input, sys::now());
            if let Some(released) = releaser.ended() {
                return self.speaker.released(released.clone());
            }
        }
    }

    fn perform(&mut self, step: Step, element: &str) -> Input {
        if let Step::Rest(until) = step {
            return self.tickets.rest(self.nothing.as_fd(), until);
        }
        let input = self.tickets.perform(&step, element, &self.speaker.request.who);
        if let (Step::Remove(other, _), Some(Input::Written(Written::Stored(_)))) = (&step, &input)
            && matches!(self.speaker.request.task, Task::Grab { .. })
        {
            let who = other.describe();
            let text = format!("{who} has not renewed its lock in time: it was removed");
            self.speaker.tell(Level::Warn, &text);
        }
        input.unwrap_or(Input::Rested)
    }
}

/// Returns the line for a ticket that stands. Scripts compare whole numbers.
fn line(term: u64, ahead: usize, valid_until: Instant) -> String {
    let valid: Duration = valid_until.since(sys::now());
    format!("term={term} place={ahead} valid={}\n", valid.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn the_store_knows_the_mode_that_is_asked_for() {
        let timing = crate::core::tickets::grab::timing(Duration::from_secs(60), 0);
        let (timing, wait, withdraws) = (timing.expect("a time"), Duration::ZERO, false);
        for mode in [Mode::Shared, Mode::Exclusive] {
            let task = Task::Grab { mode, timing, wait, withdraws, busy_status: 75 };
            let request = Request { name: name("a"), who: "h1".to_owned(), task, level: 2 };
            let ticket = ticket(&request, 7);
            assert_eq!((ticket.mode, ticket.lifetime), (mode, Duration::from_secs(60)));
        }
    }
}
