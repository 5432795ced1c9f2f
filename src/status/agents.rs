//! What the agents of a bucket say of themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use super::answer_wait::{AnswerWait, Step};
use crate::core::{AgentStatus, Instant, StoreErrorKind};
use crate::exit::Refusal;
use crate::guard::status_file;
use crate::store::message::{status_from_content, status_request};
use crate::store::{Bucket, Hint};
use crate::sys::{self, Alarm, Waker};

/// So many agents are kept.
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

/// The last answer of each agent, by its key and its incarnation.
pub(super) type Said = BTreeMap<(String, String), AgentStatus>;

/// Requests the status of agents, and returns what they say until the end of the wait. Best effort:
/// agents of putex 0.2.0 say nothing, nor do those that this user may not ask. `lacking` returns
/// the keys of which the command would say that an agent is missing.
///
/// # Errors
///
/// When the bucket is lost meanwhile, or the system lacks what is needed.
pub(super) fn request(
    mut wait: AnswerWait,
    bucket: &mut dyn Bucket,
    answers: &Answers<'_>,
    lacking: impl Fn(&Said) -> BTreeSet<String>,
) -> Result<Said, Refusal> {
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let number = format!("{number:032x}");
    bucket.subscribe(&wait.keys().iter().map(String::as_str).collect::<Vec<_>>())?;
    let alarm = Alarm::new().map_err(Refusal::system("cannot wait: "))?;
    let wake = Waker::new().map_err(Refusal::system("cannot wait: "))?;
    let mut said = Said::new();
    loop {
        let until = match wait.next(sys::now(), || lacking(&said)) {
            Step::End => return Ok(said),
            Step::Request(of) => {
                of.iter().for_each(|key| bucket.announce(key, &status_request(&number)));
                continue;
            }
            Step::Wait(until) => until,
        };
        let heard: Vec<_> = match answers {
            Answers::Messages => receive(bucket, &wake, &number, until)?.into_iter().collect(),
            Answers::Files { base, location, bucket } => {
                let next = sys::now().after(POLL).min(until);
                alarm.wait([], Some(next)).map_err(Refusal::system("cannot wait: "))?;
                status_file::read(base, location, bucket, &number)
            }
        };
        for (key, status) in heard {
            if !wait.keys().contains(&key) {
                continue;
            }
            wait.note(&key, &status, sys::now());
            if said.len() < ANSWERS_MAX {
                said.insert((key, status.incarnation.clone()), status);
            }
        }
    }
}

/// Returns the next answer to the request of this number, if one comes until then. Nobody wakes
/// `wake`.
fn receive(
    bucket: &mut dyn Bucket,
    wake: &Waker,
    number: &str,
    until: Instant,
) -> Result<Option<(String, AgentStatus)>, Refusal> {
    // Messages that mean nothing must not extend the time.
    while sys::now() < until {
        match bucket.wait(wake.as_fd(), Some(until)) {
            Hint::Announced { key, content } => {
                if let Some(status) = status_from_content(number, &content) {
                    return Ok(Some((key, status)));
                }
            }
            Hint::Changed { .. } | Hint::StatusRequested | Hint::Woken => {}
            Hint::Elapsed => break,
            Hint::Gone(why) => return Err(StoreErrorKind::Unreachable.error(why).into()),
        }
    }
    Ok(None)
}
