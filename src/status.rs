//! `putex status`: who holds what, as the leader of the bucket has it.
//!
//! | file | content |
//! |---|---|
//! | `agents` | what the agents say of themselves |
//! | `assemble` | the status, from the entries of the bucket |
//! | `model` | the status as an object of JSON |
//! | `text` | the status as a table |
//! | `answer` | questions about one name, answered by the exit status, and single values |
//!
//! Nothing is made or written, and nothing is guessed: what the leader does not show is not known.

mod agents;
mod answer;
mod assemble;
mod model;
mod text;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::termios::tcgetwinsize;

use self::agents::Answers;
pub use self::answer::{Field, Question};
use self::assemble::Aged;
#[cfg(test)]
pub(crate) use self::model::Bounds;
use self::model::Status;
pub(crate) use self::model::{Holder, HolderState, KeyStatus, Kind, PauseStatus};
use crate::core::tickets::StoredTicket;
use crate::core::{Instant, SEATS_MAX, Seat};
use crate::exit::{Exit, Refusal};
use crate::store::lock_file::LockFile;
use crate::store::{Bucket, Entry, Selection, mark, name, pause, switchover};
use crate::sys::{self, Alarm, PollFlags};

/// How long a server is waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The exit status of a question whose answer is no.
const NO: u8 = 1;

/// Where a bucket is that is only looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the bucket.
    pub bucket: String,
    /// The directory in which it is, if it is in one, and the digest of that location.
    pub dir: Option<(PathBuf, String)>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the bucket is.
    pub source: Source,
    /// The names; all if there are none.
    pub keys: Vec<String>,
    /// The form of the answer.
    pub form: Form,
    /// How often it is repeated.
    pub every: Option<Duration>,
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Table,
    /// An object of JSON.
    Json,
    /// A value of the first key.
    Print(Field),
    /// The exit status, about the first key.
    Exit(Question),
}

/// Prints what is asked for; returns the exit status. `base` is the directory for files of this
/// host. `print` returns whether standard output has a reader; without one nothing is repeated.
///
/// # Errors
///
/// Why the bucket was not read.
pub fn run(
    request: &Request,
    mut bucket: Box<dyn Bucket>,
    base: &Path,
    print: impl Fn(&str) -> Result<bool, Refusal>,
) -> Result<u8, Refusal> {
    let cannot_wait = Refusal::system("cannot wait: ");
    let alarm = Alarm::new().map_err(&cannot_wait)?;
    let asks_agents = matches!(request.form, Form::Table | Form::Json);
    loop {
        let status = read(&request.source, &request.keys, asks_agents, &mut *bucket, base)?;
        let of_first = || request.keys.first().and_then(|key| find(&status, key));
        let text = match &request.form {
            Form::Table => text::table(&status, &request.keys, width()),
            Form::Json => json(&status)? + "\n",
            Form::Print(field) => field.text(of_first()),
            Form::Exit(question) => {
                return Ok(if question.answer(of_first()) { 0 } else { NO });
            }
        };
        let Some(every) = request.every else {
            let nothing = text.is_empty();
            return print(&text).map(|_| if nothing { NO } else { 0 });
        };
        let clear = if width().is_some() { CLEAR } else { "" };
        let has_reader = print(&format!("{clear}{text}"))?;
        if !has_reader || wait(&alarm, sys::now().after(every)).map_err(&cannot_wait)? {
            return Ok(0);
        }
    }
}

/// Waits until then, or until standard output has no reader any more; returns whether that has
/// come. There may be nothing to write from which it could be seen.
fn wait(alarm: &Alarm, until: Instant) -> io::Result<bool> {
    let stdout = io::stdout();
    while sys::now() < until {
        // poll(2) tells of the end of the reader whatever it waits for.
        if alarm.wait([(stdout.as_fd(), PollFlags::empty())], Some(until))? == [true] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What makes a terminal empty.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Returns the width of the terminal, if standard output is one.
fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

fn json(status: &Status) -> Result<String, Refusal> {
    serde_json::to_string(status)
        .map_err(|error| Refusal::new(Exit::System, format!("cannot print: {error}")))
}

/// Returns what stands under a name: the key of agents, else the lock, else the lease.
fn find<'a>(status: &'a Status, key: &str) -> Option<&'a KeyStatus> {
    let named = status.keys.iter().filter(|status| status.key == key);
    named.min_by_key(|status| status.kind)
}

/// Reads what stands under the wanted names, or all if there are none, and asks the agents what
/// they do if `asks_agents`. `base` is the directory for files of this host.
///
/// # Errors
///
/// Why the bucket was not read.
pub(crate) fn read(
    source: &Source,
    wanted: &[String],
    asks_agents: bool,
    bucket: &mut dyn Bucket,
    base: &Path,
) -> Result<Status, Refusal> {
    let Source { bucket: bucket_name, dir } = source;
    let by = sys::now().after(ANSWER_MAX);
    let began = sys::now();
    let (mut tickets, mut agents, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let mut requests = Vec::new();
    if let Some((base, _)) = dir
        && LockFile::exists(base, bucket_name)?
    {
        tickets = local_tickets(base, bucket_name, by)?;
    }
    // Nothing is lost with the processes of a host that ends.
    let mut settled = Duration::MAX;
    let epoch = bucket.open_existing(by)?.map(|info| info.id.epoch);
    if let Some(epoch) = epoch.as_ref().filter(|_| dir.is_none()) {
        let mark = mark::read(bucket, by)?;
        settled = Some(mark.lifetime).filter(|_| mark.epoch == *epoch).unwrap_or_default();
    }
    if epoch.is_some() {
        let mut of_locks = Vec::new();
        for entry in entries(wanted, bucket, by)? {
            match root(&entry.0.key) {
                "lock" => of_locks.push(entry),
                "lease" => leases.push(entry),
                "putex" => requests.push(entry),
                _ => agents.push(entry),
            }
        }
        tickets.extend(assemble::tickets_of(of_locks));
    }
    let mut keys = assemble::agents(agents, wanted);
    let is_pause = |entry: &Aged<Entry>| entry.0.key.starts_with(pause::PREFIX);
    let (pauses, switchovers) = requests.into_iter().partition(is_pause);
    assemble::add_switchovers(&mut keys, switchovers);
    assemble::add_pauses(&mut keys, pauses, SystemTime::now());
    keys.extend(assemble::locks(&tickets, settled, wanted));
    keys.extend(assemble::leases(leases, epoch.as_deref().unwrap_or_default()));
    keys.retain(|status| wanted.is_empty() || wanted.contains(&status.key));
    if epoch.is_some() && asks_agents {
        let of_agents = keys.iter().filter(|status| status.kind == Kind::Agent);
        let may_be = |key: &&String| name::valid_key(key).is_ok() && !name::is_own(key);
        let of_agents = of_agents.map(|status| &status.key).chain(wanted.iter().filter(may_be));
        let of_agents: BTreeSet<String> = of_agents.cloned().collect();
        let answers = match dir {
            None => Answers::Messages,
            Some((_, location)) => Answers::Files { base, location, bucket: bucket_name },
        };
        let read_took = sys::now().since(began);
        let said = agents::request(&of_agents, bucket, &answers, read_took)?;
        assemble::add_agents(&mut keys, said);
    }
    Ok(Status::new(bucket_name, epoch, keys))
}

/// Reads who holds the lock of the agents of a key, and what they say of themselves; `None` if
/// nothing is known of such agents. `base` is the directory for files of this host.
///
/// # Errors
///
/// Why the bucket was not read.
pub(crate) fn read_agents(
    source: &Source,
    key: &String,
    bucket: &mut dyn Bucket,
    base: &Path,
) -> Result<Option<KeyStatus>, Refusal> {
    let status = read(source, std::slice::from_ref(key), true, bucket, base)?;
    Ok(status.keys.into_iter().find(|status| status.kind == Kind::Agent))
}

/// Returns the entries that are asked for, with their ages. Tickets for other names may block those
/// for the ones that are asked for.
fn entries(
    keys: &[String],
    bucket: &mut dyn Bucket,
    by: Instant,
) -> Result<Vec<Aged<Entry>>, Refusal> {
    let is_of = |key: &str| {
        let is_seat = |name: &String| Seat::all(SEATS_MAX).any(|seat| seat.key(name) == key);
        keys.is_empty() || keys.iter().any(is_seat)
    };
    let is_wanted = |key: &str| match root(key) {
        "lock" | "lease" => true,
        "putex" => key.starts_with(switchover::PREFIX) || key.starts_with(pause::PREFIX),
        _ => !name::is_own(key) && is_of(key),
    };
    let all = [String::new()];
    let selection = Selection { wanted: &is_wanted, ..Selection::all(&all) };
    let entries = bucket.list(selection, by)?.entries;
    let ages = bucket.ages(&entries, by)?;
    Ok(entries.into_iter().zip(ages).collect())
}

/// Returns the first element of a key.
fn root(key: &str) -> &str {
    key.split('.').next().unwrap_or_default()
}

/// Returns the tickets in a directory. They say no age: they end with their processes.
fn local_tickets(
    base: &Path,
    bucket: &str,
    by: Instant,
) -> Result<Vec<Aged<StoredTicket>>, Refusal> {
    let tickets = LockFile::open(base, bucket)?.list(by)?;
    Ok(tickets.into_iter().map(|ticket| (ticket, None)).collect())
}
