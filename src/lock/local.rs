//! The lock of one host: one process, which waits for the lock, runs the command and waits for
//! its end. The command inherits the open file whose lock is the ticket.
//!
//! The system call that waits for the end of another ticket has no deadline: where there is one,
//! a thread calls it. A signal ends a process that waits, and its ticket; nothing has to be done.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::Level;
use rustix::event::PollFd;

use super::held::{self, HELD};
use super::job::{Inspection, Job};
use super::process::Process;
use super::signals::Signals;
use super::terminal::Terminal;
use super::{Request, Wait};
use crate::core::tickets::decision::{circle, describe};
use crate::core::tickets::{Decision, Mode, Ticket};
use crate::core::{Incarnation, Instant, Revision, StoreError, StoreErrorKind};
use crate::exit::{Exit, LockExit, Refusal};
use crate::log::Destination;
use crate::store::StoreResult;
use crate::store::lock_file::{Added, LockFile};
use crate::sys::{self, Alarm, PollFlags, Waker, raw};

/// How long a process without patience waits for others that take a ticket at the same moment.
const ENTERED_WITHIN: Duration = Duration::from_secs(2);

/// How often a ticket is inspected whose end nobody tells of.
const INSPECT: Duration = Duration::from_millis(250);

/// Buffer for what the kernel tells of a file: many events.
const EVENT_BYTES: usize = 4096;

/// Memory for the stack of the thread, which calls the system.
const STACK_BYTES: usize = 64 * 1024;

/// The process that was started by the user.
struct Local<'a> {
    request: &'a Request,
    destination: Destination,
    /// The names, for people.
    names: String,
    began: Instant,
    /// When the lock is not waited for any longer.
    limit: Option<Instant>,
}

/// A ticket that was granted.
struct Granted {
    file: Arc<LockFile>,
    term: u64,
    slot: Option<u32>,
    epoch: String,
}

/// What a process listens to that waits: threads that wait for the ends of tickets, and changes of
/// the file.
struct Listener {
    file: Arc<LockFile>,
    /// Woken at the end of one of the tickets.
    waker: Arc<Waker>,
    /// The tickets for which there is a thread.
    heard: BTreeSet<Revision>,
    changes: Option<OwnedFd>,
    /// Changes matter.
    inspects: bool,
}

/// Why the wait for a ticket has not ended with it.
enum NotGranted {
    /// The process ends with this status.
    Over(u8),
    /// The file was removed or replaced: the ticket in it is worth nothing.
    Replaced,
    /// The lock cannot be had.
    Refused(Refusal),
}

impl From<StoreError> for NotGranted {
    fn from(error: StoreError) -> NotGranted {
        NotGranted::Refused(error.into())
    }
}

/// See [`super::run_local`].
pub(super) fn run(
    request: &Request,
    (base, bucket): (&Path, &str),
    destination: Destination,
) -> Result<u8, Refusal> {
    held::check(&request.names, env::var_os(HELD).as_deref())?;
    // While it waits, a signal ends or stops this process by itself, and its ticket with it.
    raw::unblock_signals().map_err(Refusal::system("cannot take signals: "))?;
    let names: Vec<_> = request.names.iter().map(ToString::to_string).collect();
    let began = sys::now();
    let local = Local {
        request,
        destination,
        names: names.join(","),
        began,
        limit: match request.wait {
            Wait::Forever => None,
            Wait::For(time) => Some(began.after(time)),
        },
    };
    loop {
        match local.get(base, bucket) {
            Ok(granted) => return local.run(&granted),
            Err(NotGranted::Over(status)) => return Ok(status),
            Err(NotGranted::Refused(refusal)) => return Err(refusal),
            Err(NotGranted::Replaced) => {}
        }
    }
}

impl Local<'_> {
    /// Adds a ticket and waits until it is granted.
    fn get(&self, base: &Path, bucket: &str) -> Result<Granted, NotGranted> {
        let file = Arc::new(LockFile::open(base, bucket)?);
        let ticket = Ticket {
            names: self.request.names.clone(),
            mode: self.request.mode,
            slot: None,
            held: held::of_environment(),
            lifetime: Duration::ZERO,
            token: self.request.token.clone(),
            incarnation: Incarnation(0),
            attempt: 0,
        };
        let mut last_shown = String::new();
        let added = match self.get_softly(&file, &ticket, &mut last_shown)? {
            Some(added) => added,
            None => {
                self.enter(&file)?;
                file.add(&ticket, self.request.wait == Wait::For(Duration::ZERO))?
            }
        };
        let waits = matches!(added.decision, Decision::Wait { .. });
        let added = match waits {
            true => self.wait_for_turn(&file, &ticket, added, &mut last_shown)?,
            false => added,
        };
        if let Decision::OtherCount(count) = added.decision {
            let why = format!("others use {count} slots of this name; write -j {count}");
            return Err(StoreErrorKind::Unsafe.error(why).into());
        }
        if waits && !file.is_current()? {
            return Err(NotGranted::Replaced);
        }
        let Added { number, slot, epoch, .. } = added;
        Ok(Granted { file, term: number.unwrap_or_default(), slot, epoch })
    }

    /// Waits, without a ticket, until the names are free, and were for long enough. `None` if the
    /// request queues as any other.
    fn get_softly(
        &self,
        file: &Arc<LockFile>,
        ticket: &Ticket,
        last_shown: &mut String,
    ) -> Result<Option<Added>, NotGranted> {
        let Some(soft) = self.request.soft else { return Ok(None) };
        let hard_at = soft.hard_after.map(|after| self.began.after(after));
        let mut listener = Listener::new(file, true)?;
        let mut quiet_since = None;
        loop {
            let now = sys::now();
            if hard_at.is_some_and(|at| now >= at) {
                return Ok(None);
            }
            self.enter(file)?;
            let seen = file.inspect(ticket)?;
            let (why, wake_at) = match &seen.decision {
                Decision::Wait { blockers, .. } => {
                    quiet_since = None;
                    let latest: Vec<_> = blockers.last().map(|it| it.number).into_iter().collect();
                    (describe(blockers), listener.watch_for(&latest, &seen.timed)?)
                }
                Decision::Granted | Decision::Slot(_) | Decision::OtherCount(_) => {
                    let quiet_at = quiet_since.get_or_insert(now).after(soft.quiet_for);
                    if now >= quiet_at {
                        self.enter(file)?;
                        let added = file.add(ticket, true)?;
                        if added.number.is_some() {
                            return Ok(Some(added));
                        }
                        // Somebody was faster.
                        continue;
                    }
                    ("free, but not for long enough yet".to_owned(), Some(quiet_at))
                }
            };
            if self.limit.is_some_and(|limit| now >= limit) {
                return Err(self.not_had(&why));
            }
            self.show_wait("", &why, last_shown);
            listener.wait([self.limit, hard_at, wake_at].into_iter().flatten().min())?;
        }
    }

    /// Enters by the door of the file that the path names. Others stay in it for some microseconds,
    /// or, stopped, for ever.
    fn enter(&self, file: &Arc<LockFile>) -> Result<(), NotGranted> {
        if !file.try_to_enter()? {
            self.wait_for_door(file)?;
        }
        if file.is_current()? { Ok(()) } else { Err(NotGranted::Replaced) }
    }

    fn wait_for_door(&self, file: &Arc<LockFile>) -> Result<(), NotGranted> {
        let Some(limit) = self.limit else { return Ok(file.enter()?) };
        let waker = Arc::new(Waker::new().map_err(cannot_wait)?);
        run_in_thread(file, &waker, LockFile::enter)?;
        let until = limit.max(sys::now().after(ENTERED_WITHIN));
        wait_for([waker.as_fd()], Some(until))?;
        // Who has it enters again.
        if file.try_to_enter()? {
            return Ok(());
        }
        let text = "another process does not go on with the lock file: it is stopped, or the disk";
        Err(StoreErrorKind::Unreachable.error(format!("{}: {text}", self.names)).into())
    }

    /// Waits until a ticket is granted, or cannot be.
    fn wait_for_turn(
        &self,
        file: &Arc<LockFile>,
        ticket: &Ticket,
        mut added: Added,
        last_shown: &mut String,
    ) -> Result<Added, NotGranted> {
        let own = added.number.map(Revision);
        if let Some(first) = own.and_then(|own| circle(ticket, own, &added.standing)) {
            let first = first.describe();
            let why =
                format!("it would wait for itself: {first} waits for a lock that is held here");
            return Err(self.not_had(&why));
        }
        let mut listener: Option<Listener> = None;
        while let Decision::Wait { blockers, watched } = &added.decision {
            let why = describe(blockers);
            let is_over = self.limit.is_some_and(|limit| sys::now() >= limit);
            if is_over || added.number.is_none() {
                return Err(self.not_had(&why));
            }
            self.show_wait(&format!(", {} ahead", blockers.len()), &why, last_shown);
            let watched = blockers.iter().filter(|it| watched.contains(&it.key));
            let watched: Vec<_> = watched.map(|it| it.number).collect();
            // A slot is got, and a timed ticket ends, by a write into the file.
            let hears_changes = matches!(ticket.mode, Mode::Slots(_)) || !added.timed.is_empty();
            match (&watched[..], self.limit, &mut listener) {
                ([latest], None, _) if !hears_changes => file.wait_for_end_of(*latest)?,
                (_, _, Some(listener)) => {
                    let ends_at = listener.watch_for(&watched, &added.timed)?;
                    listener.wait(ends_at.into_iter().chain(self.limit).min())?;
                }
                // From here on no change is missed.
                (_, _, none) => *none = Some(Listener::new(file, hears_changes)?),
            }
            added = if hears_changes {
                self.enter(file)?;
                file.decide_again(ticket, added)?
            } else {
                file.decide_without(ticket, added)?
            };
        }
        Ok(added)
    }

    fn show_wait(&self, position: &str, why: &str, last: &mut String) {
        let text = format!("{}: waiting{position}: {why}", self.names);
        if *last != text && (self.is_verbose() || io::stderr().is_terminal()) {
            self.destination.tell(&text);
        }
        *last = text;
    }

    /// Says that the lock was not had.
    fn not_had(&self, why: &str) -> NotGranted {
        if self.request.level >= Level::Warn as u64 {
            let text = format!("{}: not had: {why}", self.names);
            self.destination.refuse(&Refusal::new(Exit::System, text));
        }
        NotGranted::Over(self.request.busy_status)
    }

    /// Returns whether what goes well is said too.
    fn is_verbose(&self) -> bool {
        self.request.level >= Level::Info as u64
    }

    /// Runs the command; returns the exit status.
    fn run(&self, granted: &Granted) -> Result<u8, Refusal> {
        let Request { command, closes, .. } = self.request;
        let Granted { file, term, slot, epoch } = granted;
        let signals = Signals::open().map_err(Refusal::system("cannot take signals: "))?;
        let variables = held::variables(self.request, &self.names, (*term, *slot), epoch);
        let inherited = (!closes).then(|| file.as_fd());
        let terminal = Terminal::open();
        let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_for_command);
        let given = terminal.as_ref().filter(|_| wants_terminal).map(AsFd::as_fd);
        let spawned = Process::spawn(command, &variables, inherited, given);
        let (process, failure) = spawned.map_err(Refusal::system("cannot start the command: "))?;
        if let Some(error) = failure {
            let text = format!("{}: {error}", command[0].display());
            self.destination.refuse(&Refusal::new(Exit::System, text));
        }
        let mut job = Job::new(process, terminal, wants_terminal);
        let mut inspection = Inspection::default();
        loop {
            if let Err(error) = wait_for_signal(&signals, inspection.at()) {
                job.process.send(libc::SIGKILL);
                return Err(Refusal::system("cannot wait for the command: ")(error));
            }
            while let Some(signal) = signals.next() {
                job.pass_on(signal);
            }
            job.process.reap();
            if let Some(signal) = job.process.take_stop() {
                job.stop(signal);
            }
            if job.process.has_ended() {
                job.take_terminal_back();
                return Ok(job.process.status.unwrap_or(LockExit::Lost as u8));
            }
            if job.process.status.is_some() && inspection.is_due(sys::now()) {
                if inspection.is_first() && self.is_verbose() {
                    self.destination.tell(&job.say_left(&self.names));
                }
                inspection.repeat(sys::now());
            }
        }
    }
}

impl Listener {
    fn new(file: &Arc<LockFile>, hears_changes: bool) -> Result<Listener, NotGranted> {
        Ok(Listener {
            file: Arc::clone(file),
            waker: Arc::new(Waker::new().map_err(cannot_wait)?),
            heard: BTreeSet::new(),
            changes: if hears_changes { file.changes() } else { None },
            inspects: hears_changes,
        })
    }

    /// Listens to the ends of these tickets from now on. Returns when the first of them ends by
    /// itself.
    fn watch_for(
        &mut self,
        numbers: &[Revision],
        timed: &BTreeMap<Revision, Instant>,
    ) -> Result<Option<Instant>, NotGranted> {
        for number in numbers.iter().copied() {
            if !timed.contains_key(&number) && self.heard.insert(number) {
                run_in_thread(&self.file, &self.waker, move |file| file.wait_for_end_of(number))?;
            }
        }
        Ok(numbers.iter().filter_map(|number| timed.get(number).copied()).min())
    }

    /// Waits for an end, a change, or this instant.
    fn wait(&self, until: Option<Instant>) -> Result<(), NotGranted> {
        let woken = self.waker.as_fd();
        match &self.changes {
            Some(changes) => {
                let [_, is_changed] = wait_for([woken, changes.as_fd()], until)?;
                if is_changed {
                    // One read empties it, or the next wait ends at once.
                    let _ = rustix::io::read(changes, &mut [0; EVENT_BYTES]);
                }
            }
            // Nothing tells of changes: the file is inspected now and then.
            None if self.inspects => {
                let soon = sys::now().after(INSPECT);
                wait_for([woken], Some(until.map_or(soon, |until| until.min(soon))))?;
            }
            None => drop(wait_for([woken], until)?),
        }
        self.waker.clear();
        Ok(())
    }
}

/// Has a thread do something with the file, and wakes the caller then.
fn run_in_thread(
    file: &Arc<LockFile>,
    waker: &Arc<Waker>,
    work: impl FnOnce(&LockFile) -> StoreResult<()> + Send + 'static,
) -> Result<(), NotGranted> {
    let (file, waker) = (Arc::clone(file), Arc::clone(waker));
    let run = move || {
        // Whoever is woken sees what came of it.
        let _ = work(&file);
        drop(file);
        waker.wake();
    };
    // It may live on while the command runs, and would get signals in the place of this thread.
    raw::block_signals().map_err(cannot_wait)?;
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    raw::unblock_signals().map_err(cannot_wait)?;
    thread.map(drop).map_err(cannot_wait)
}

/// Waits until one of these is readable, or until this instant.
fn wait_for<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    until: Option<Instant>,
) -> Result<[bool; N], NotGranted> {
    let fds = fds.map(|fd| (fd, PollFlags::IN));
    Alarm::new().and_then(|alarm| alarm.wait(fds, until)).map_err(cannot_wait)
}

/// Waits for a signal, or until this instant.
fn wait_for_signal(signals: &Signals, until: Option<Instant>) -> io::Result<()> {
    match until {
        None => sys::poll(&mut [PollFd::new(signals, PollFlags::IN)]),
        Some(_) => Alarm::new()?.wait([(signals.as_fd(), PollFlags::IN)], until).map(drop),
    }
}

fn cannot_wait(error: io::Error) -> NotGranted {
    NotGranted::Refused(Refusal::system("cannot wait: ")(error))
}
