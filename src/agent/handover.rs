//! Taking over from a life before: its guard, and the service that this watches.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, sockopt};
use rustix::process::{PidfdFlags, Signal};

use super::inbox::Inbox;
use super::sentinel::{ANSWER_MAX, Group};
use crate::core::guard::{Inherited, Watch};
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::guard::word::Answer;
use crate::guard::{call, receive};
use crate::sys::{self, Alarm, Want};

/// How long a guard takes to answer, at the longest: then it hangs. Not longer than R,
/// so that there is time to stop the service without it.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long a guard may take to see that the life before has ended, and how often
/// it is asked meanwhile. The kernel lets go of that life's files one by one.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
const ASKED_EVERY: Duration = Duration::from_millis(5);

/// What a life before left behind.
#[derive(Debug)]
pub(super) struct Handover {
    /// Leads to its guard.
    pub(super) socket: OwnedFd,
    /// The guard's process.
    pub(super) process: OwnedFd,
    /// The guard's name.
    pub(super) name: String,
    /// Its service, if that may run.
    pub(super) left: Option<Inherited>,
    /// Its start, if that was killed and has not ended.
    pub(super) start: Option<Group>,
}

/// Attaches to the guard of a life before. One that is ending the service already
/// is waited for, for as long as it does something: nothing else is done beside it. One
/// that hangs is killed, and what became of its service is not known then.
///
/// # Errors
///
/// The signal by which this agent was told to end while it waits: the guard goes on.
pub(super) fn take_over(
    name: &str,
    timing: Timing,
    alarm: &Alarm,
    inbox: &Inbox,
) -> Result<Option<Handover>, &'static str> {
    let until = sys::now().after(SEEN_WITHIN);
    loop {
        let Some((socket, process)) = find(name) else {
            return Ok(None);
        };
        match ask(&socket, timing, alarm, inbox) {
            Reply::Watching(left, start) => {
                return Ok(Some(Handover {
                    socket,
                    process,
                    name: name.to_owned(),
                    left,
                    start,
                }));
            }
            Reply::HungUp if sys::now() < until => {
                let again = sys::now().after(ASKED_EVERY);
                // A wait that fails is one that is short.
                let _ = alarm.wait([], Some(again));
            }
            Reply::HungUp => return Ok(None),
            Reply::ToldToEnd(signal) => return Err(signal),
            Reply::Nothing => {
                log::error!("the guard of this agent's previous life hangs: it is killed");
                end(&process, ANSWER_WITHIN, alarm);
                return Ok(None);
            }
        }
    }
}

/// Returns the way to a guard and its process, if it lives.
fn find(name: &str) -> Option<(OwnedFd, OwnedFd)> {
    let socket = call(name)?;
    let peer = sockopt::socket_peercred(&socket).ok()?;
    if peer.uid != rustix::process::geteuid() {
        // Anybody can take the name of a guard that is dead.
        return None;
    }
    let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok()?;
    Some((socket, process))
}

/// What a guard says to a new life.
enum Reply {
    Watching(Option<Inherited>, Option<Group>),
    /// It knows of a life that lives, or has ended.
    HungUp,
    Nothing,
    /// This agent has a signal to end.
    ToldToEnd(&'static str),
}

fn ask(socket: &OwnedFd, timing: Timing, alarm: &Alarm, inbox: &Inbox) -> Reply {
    let mut until = sys::now().after(timing.renewal().min(ANSWER_WITHIN));
    let mut buffer = [0; ANSWER_MAX];
    let mut acting = false;
    loop {
        // What takes less than a second is not interrupted.
        let told = if acting {
            inbox.as_fd()
        } else {
            socket.as_fd()
        };
        let fds = [(socket.as_fd(), Want::Read), (told, Want::Read)];
        let ready = alarm.wait(fds, Some(until));
        if acting
            && matches!(ready, Ok([_, true]))
            && let Some(signal) = inbox.told_to_end()
        {
            return Reply::ToldToEnd(signal);
        }
        if !matches!(ready, Ok([true, _])) {
            return Reply::Nothing;
        }
        let received = receive(socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT);
        let Ok((count, leader)) = received else {
            return Reply::HungUp;
        };
        match Answer::decode(&buffer[..count]) {
            // There was no descriptor to spare for it.
            Some(Answer::Ready(_, _, Some(_))) if leader.is_none() => return Reply::HungUp,
            Some(Answer::Ready(Watch::Down, ..)) => return Reply::Watching(None, None),
            Some(Answer::Ready(Watch::MayRun(fence), under, group)) => {
                let start = group.zip(leader);
                let start = start.map(|(number, leader)| Group { number, leader });
                let left = Inherited {
                    fence,
                    under,
                    start_dies: start.is_some(),
                };
                return Reply::Watching(Some(left), start);
            }
            // It is said again whenever the guard runs a command.
            Some(Answer::Acting(watch)) => {
                if !std::mem::replace(&mut acting, true) {
                    log::warn!("the guard of this agent's previous life is stopping the service");
                }
                until = done_by(watch, timing);
            }
            Some(Answer::Armed | Answer::Unfit(_) | Answer::Remark(..)) => {}
            None => return Reply::HungUp,
        }
    }
}

/// When a guard that ends the service has left or does something more, at the latest: after
/// stop, the last resort or another stop, and a pause.
fn done_by(watch: Watch, timing: Timing) -> Instant {
    let now = sys::now();
    let stopped = match watch {
        Watch::Down => now,
        Watch::MayRun(fence) => fence.dead_by.max(now),
    };
    let after = timing.stop_budget() + timing.renewal();
    stopped.after(after).after(ANSWER_WITHIN)
}

/// Kills a guard and waits for its end: until then it has the watchdog device. One that
/// does not die within that time is left to the kernel.
pub(super) fn end(process: &OwnedFd, within: Duration, alarm: &Alarm) {
    // It fails when the guard has ended already.
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    let until = sys::now().after(within);
    let _ = alarm.wait([(process.as_fd(), Want::Read)], Some(until));
}
