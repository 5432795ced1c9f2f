//! What the agents of a bucket say of themselves.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use crate::core::{AgentStatus, Instant};
use crate::exit::Refusal;
use crate::guard::status_file;
use crate::store::message::{status_from_content, status_request};
use crate::store::{Bucket, Hint};
use crate::sys::{self, Alarm, Waker};

/// How long the answers of agents are waited for at least. It is no less than two requests of one
/// command, of which an agent answers the second if it has just answered somebody else.
const WAIT_MIN: Duration = Duration::from_millis(120);

/// And at most.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// So many answers are kept.
const ANSWERS_MAX: usize = 4096;

/// How often the files of a directory are looked at.
const POLL: Duration = Duration::from_millis(10);

/// Where the answers of agents are expected.
pub(super) enum Answers<'a> {
    /// They are messages.
    Messages,
    /// They are files below this directory, of the bucket in the location of this digest.
    Files { base: &'a Path, location: &'a str, bucket: &'a str },
}

/// Requests the status of the agents of these keys, and returns what they say until twice as long
/// as a read of the bucket has taken, each with its key. Best effort: agents of putex 0.2.0 say
/// nothing, nor do those that this user may not ask.
///
/// # Errors
///
/// When the system lacks what is needed.
pub(super) fn request(
    keys: &BTreeSet<String>,
    bucket: &mut dyn Bucket,
    answers: &Answers<'_>,
    read_took: Duration,
) -> Result<Vec<(String, AgentStatus)>, Refusal> {
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let (number, wait) = (format!("{number:032x}"), (2 * read_took).clamp(WAIT_MIN, WAIT_MAX));
    let began = sys::now();
    let (again_at, until) = (began.after(wait / 2), began.after(wait));
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    if bucket.subscribe(&all).is_err() {
        return Ok(Vec::new());
    }
    let mut said = Vec::new();
    for until in [again_at, until] {
        for key in keys {
            bucket.announce(key, &status_request(&number));
        }
        match answers {
            Answers::Messages => gather(keys, bucket, &number, until, &mut said)?,
            Answers::Files { base, location, bucket } => {
                let alarm = Alarm::new().map_err(Refusal::system("cannot wait: "))?;
                while sys::now() < until {
                    let next = sys::now().after(POLL).min(until);
                    alarm.wait([], Some(next)).map_err(Refusal::system("cannot wait: "))?;
                    // The answer to another command replaces the one to this.
                    let answers = status_file::read(base, location, bucket, &number);
                    said.extend(answers.into_iter().filter(|(key, _)| keys.contains(key)));
                }
            }
        }
    }
    Ok(said)
}

/// Gathers the answers to the request of this number until then.
fn gather(
    keys: &BTreeSet<String>,
    bucket: &mut dyn Bucket,
    number: &str,
    until: Instant,
    said: &mut Vec<(String, AgentStatus)>,
) -> Result<(), Refusal> {
    let wake = Waker::new().map_err(Refusal::system("cannot wait: "))?;
    // Messages that mean nothing must not extend the time.
    while sys::now() < until && said.len() < ANSWERS_MAX {
        match bucket.wait(wake.as_fd(), Some(until)) {
            Hint::Announced { key, content } if keys.contains(&key) => {
                said.extend(status_from_content(number, &content).map(|status| (key, status)));
            }
            Hint::Announced { .. } | Hint::Changed { .. } => {}
            Hint::StatusRequested | Hint::Woken => {}
            Hint::Elapsed | Hint::Gone(_) => break,
        }
    }
    Ok(())
}
