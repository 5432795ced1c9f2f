//! The answers of the agents of a bucket about themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::Source;
use super::answer_wait::{AnswerWait, Known, Step};
use crate::core::{AgentStatus, StoreErrorKind};
use crate::exit::Refusal;
use crate::guard::status_file;
use crate::store::{AgentAnswer, AgentQuestion, Bucket, Hint};
use crate::sys::{self, Waker};

/// So many agents are kept.
const ANSWERS_MAX: usize = 4096;

/// How often the files of a directory are looked at.
const POLL: Duration = Duration::from_millis(10);

/// The last answer of each agent, which is named by its incarnation.
pub(super) type Said = BTreeMap<Known, AgentStatus>;

/// Requests the status of agents, and returns what they say until the end of the wait, or why this
/// user may not ask. Best effort: agents of putex 0.2.0 say nothing. `reads_requests`: they read
/// what operators have requested. `lacking` returns the keys of which the command would say that an
/// agent is missing.
///
/// # Errors
///
/// When the bucket is lost meanwhile, or the system lacks what is needed.
pub(super) fn request(
    mut wait: AnswerWait,
    bucket: &mut dyn Bucket,
    source: &Source,
    reads_requests: bool,
    lacking: impl Fn(&Said) -> BTreeSet<String>,
) -> Result<(Said, Option<String>), Refusal> {
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let wake = Waker::new().map_err(Refusal::system("cannot wait: "))?;
    let (mut said, asked_at) = (Said::new(), sys::now());
    loop {
        let until = match wait.next(sys::now(), || lacking(&said)) {
            Step::End => return Ok((said, None)),
            Step::Request(keys) => {
                let question = AgentQuestion::new(number, keys, reads_requests);
                bucket.ask_agents(&question);
                continue;
            }
            Step::Wait(until) => until,
        };
        let heard: Vec<_> = match &source.location {
            // Nobody wakes it. A message that means nothing does not extend the time.
            None => match bucket.wait(wake.as_fd(), Some(until)) {
                Hint::Answered(answer) => vec![*answer],
                Hint::NotAsked(why) => return Ok((said, Some(why))),
                Hint::Gone(why) => return Err(StoreErrorKind::Unreachable.error(why).into()),
                Hint::Changed { .. } | Hint::StatusRequested { .. } => continue,
                Hint::Woken | Hint::Elapsed => continue,
            },
            Some(location) => {
                sys::pause(until.since(sys::now()).min(POLL));
                status_file::read(&source.base, location, &source.bucket, asked_at)
            }
        };
        for AgentAnswer { key, status } in heard {
            if !wait.keys.contains(&key) {
                continue;
            }
            wait.note(&key, &status, sys::now());
            if said.len() < ANSWERS_MAX {
                said.insert(Known { key, name: status.incarnation.clone() }, status);
            }
        }
    }
}
