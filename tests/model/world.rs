//! Everything there is: hosts with their agents, guards and services, the key, and
//! what is on its way. A value without pointers, all of it counted from now, so
//! that two worlds that go on alike are equal.

use super::cue::{Life, Rec, Stand};

/// Hosts that a world has room for.
pub(crate) const HOSTS: usize = 3;

/// Copies of writes that may be on their way although their answer was given up.
const LATE: usize = 2;

/// Revisions further back than this, from the key's, are equal.
pub(crate) const BACK_MAX: i16 = 7;

/// A write on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Put {
    pub(crate) host: u8,
    pub(crate) expected: i16,
    pub(crate) rec: Rec,
    pub(crate) sent: i32,
}

/// What the store answers, revisions counted from the key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Shown(i16, Rec),
    Stored(i16),
    Moved(i16),
}

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ask {
    /// What is to be written; `None` for a read.
    pub(crate) put: Option<Put>,
    pub(crate) deadline: i32,
    /// It takes its time.
    pub(crate) slow: bool,
    /// The store has performed it; the answer is on its way.
    pub(crate) answer: Option<Answer>,
}

/// A command that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) deadline: i32,
    /// It takes its time, or fails.
    pub(crate) slow: bool,
    /// It does nothing any more; that it has ended is not known yet.
    pub(crate) killed: bool,
}

impl Job {
    /// Returns a command that is run now.
    pub(crate) fn until(deadline: i32) -> Job {
        Job {
            deadline,
            slow: false,
            killed: false,
        }
    }

    pub(crate) fn kill(&mut self) {
        self.deadline = 0;
        self.killed = true;
    }
}

/// A guard, and its commands: stop and the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Post {
    pub(crate) mind: u32,
    pub(crate) jobs: [Option<Job>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// Lives of the agent that have begun.
    pub(crate) lives: u8,
    /// The pump, while the agent lives.
    pub(crate) mind: Option<u32>,
    /// How far the key is ahead of what the pump knows.
    pub(crate) lag: i16,
    /// The agent is stopped, for so long at most.
    pub(crate) frozen: Option<i32>,
    /// The store is out of its reach, for so long at most.
    pub(crate) closed: Option<i32>,
    pub(crate) ask: Option<Ask>,
    pub(crate) jobs: [Option<Job>; 4],
    /// The agent's guard, and that of a life before which nobody has adopted.
    pub(crate) posts: [Option<Post>; 2],
    /// The service may run.
    pub(crate) up: bool,
    /// When it must be down: V + C·R of the last write of this host that was stored.
    pub(crate) bound: i32,
}

/// What is not a host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Common {
    /// What stands under the key.
    pub(crate) rec: Rec,
    pub(crate) late: [Option<Put>; LATE],
    /// Faults that may still happen.
    pub(crate) faults: u8,
    pub(crate) to_grid: i32,
    /// Term of the last start, from the key's revision, and its host.
    pub(crate) last: (i16, u8),
    /// The service of the agent that never comes back may run for so long.
    pub(crate) stray: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) hosts: [Host; HOSTS],
    pub(crate) common: Common,
}

/// Returns what is left of a time after `by`, not less than nothing.
fn left(time: &mut i32, by: i32) {
    *time = (*time - by).max(0);
}

impl World {
    /// Nothing runs yet. The key was released by an agent that has gone; or it is
    /// held by one that went just now, whose service is up until V + C·R.
    pub(crate) fn new(faults: u8, grid: i32, stray: Option<i32>) -> World {
        let rec = Rec {
            by: Life(0),
            stand: stray.map_or(Stand::Released, |_| Stand::Active),
            term_ago: Some(1),
            nonce_ago: 0,
        };
        World {
            hosts: [Host::default(); HOSTS],
            common: Common {
                rec,
                late: [None; LATE],
                faults,
                to_grid: grid,
                last: (-BACK_MAX, u8::MAX),
                stray: stray.unwrap_or(0),
            },
        }
    }

    /// Stores a record if the key stands where it was expected; returns the answer.
    /// `held` is T + C·R.
    pub(crate) fn commit(&mut self, put: Put, held: i32) -> Answer {
        if put.expected != 0 {
            return Answer::Moved(0);
        }
        let back = |at: &mut i16| *at = (*at - 1).max(-BACK_MAX);
        for host in &mut self.hosts {
            host.lag += i16::from(host.mind.is_some());
            if let Some(ask) = &mut host.ask {
                if let Some(put) = &mut ask.put {
                    back(&mut put.expected);
                }
                if let Some(Answer::Shown(at, _) | Answer::Stored(at) | Answer::Moved(at)) =
                    &mut ask.answer
                {
                    back(at);
                }
            }
        }
        let common = &mut self.common;
        // Whatever else is on its way is refused when it comes.
        common.late = Default::default();
        back(&mut common.last.0);
        common.rec = put.rec;
        if put.rec.stand != Stand::Released {
            let host = &mut self.hosts[usize::from(put.host)];
            host.bound = host.bound.max(put.sent + held);
        }
        Answer::Stored(0)
    }

    /// A write whose answer nobody waits for may still be stored.
    pub(crate) fn leave_behind(&mut self, put: Put) {
        let late = &mut self.common.late;
        if put.expected == 0
            && !late.contains(&Some(put))
            && let Some(free) = late.iter_mut().find(|free| free.is_none())
        {
            *free = Some(put);
        }
    }

    /// Visits every record there is.
    fn records(&mut self, mut visit: impl FnMut(&mut Rec)) {
        visit(&mut self.common.rec);
        for put in self.common.late.iter_mut().flatten() {
            visit(&mut put.rec);
        }
        for ask in self.hosts.iter_mut().filter_map(|host| host.ask.as_mut()) {
            if let Some(put) = &mut ask.put {
                visit(&mut put.rec);
            }
            if let Some(Answer::Shown(_, rec)) = &mut ask.answer {
                visit(rec);
            }
        }
    }

    /// A life has made more attempts.
    pub(crate) fn attempted(&mut self, life: Life, attempts: u8) {
        if attempts > 0 {
            self.records(|rec| {
                if rec.by == life {
                    rec.nonce_ago = rec.nonce_ago.checked_add(attempts).expect("a few");
                }
            });
        }
    }

    /// Nobody will look at the attempts of a life any more, nor count a lock from
    /// them. `held` is T + C·R.
    pub(crate) fn forget_life(&mut self, life: Life, held: i32) {
        for put in self.common.late.iter_mut().flatten() {
            if put.rec.by == life {
                put.sent = -held;
            }
        }
        self.records(|rec| {
            if rec.by == life {
                rec.nonce_ago = 0;
            }
        });
    }

    /// Lets time pass, for all but the minds. `held` is T + C·R.
    pub(crate) fn pass(&mut self, by: i32, held: i32, grid: i32) {
        for host in &mut self.hosts {
            left(&mut host.bound, by);
            for time in host.frozen.iter_mut().chain(&mut host.closed) {
                left(time, by);
            }
            if let Some(ask) = &mut host.ask {
                left(&mut ask.deadline, by);
                if let Some(put) = &mut ask.put {
                    put.sent = (put.sent - by).max(-held);
                }
            }
            let posts = host.posts.iter_mut().flatten();
            let jobs = posts.flat_map(|post| &mut post.jobs).chain(&mut host.jobs);
            for job in jobs.flatten() {
                left(&mut job.deadline, by);
            }
        }
        let common = &mut self.common;
        for put in common.late.iter_mut().flatten() {
            put.sent = (put.sent - by).max(-held);
        }
        left(&mut common.stray, by);
        left(&mut common.to_grid, by);
        if common.to_grid == 0 {
            common.to_grid = grid;
        }
    }
}
