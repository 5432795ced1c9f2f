//! What an agent left running: the commands that the guard has to kill before it
//! runs its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::process::{Pid, Signal};

use crate::cgroup::Cage;
use crate::core::command::Command;
use crate::core::guard::News;
use crate::sys;

/// The last start, stop and so on that the agent said it runs.
#[derive(Debug)]
pub(super) struct Left {
    groups: [Option<(Pid, OwnedFd)>; Command::ALL.len()],
    /// The control group of the agent, and those of lives of it that were in another place
    /// and in which the service may be.
    cages: Vec<Cage>,
    dying: Dying,
}

/// What became of the start that was killed.
#[derive(Debug)]
enum Dying {
    /// There was none, which is still to be said.
    Nobody,
    /// The group that it was in, and how its end shows.
    Start(Pid, OwnedFd),
    /// The guard knows that there is none.
    Said,
}

impl Left {
    pub(super) fn new(cage: Option<&str>) -> Left {
        let mut left = Left {
            groups: [const { None }; Command::ALL.len()],
            cages: Vec::new(),
            dying: Dying::Said,
        };
        left.add_cage(cage);
        left
    }

    /// Notes where the control group of the agent is, if it has one.
    pub(super) fn add_cage(&mut self, dir: Option<&str>) {
        // Without one, process groups have to do.
        let dir = dir.map(Path::new);
        let opened = dir.and_then(|dir| Cage::open(dir).ok());
        // Of lives that come and go, only those count whose service runs on.
        self.cages.retain(|cage| {
            let again = opened.is_some() && Some(cage.dir()) == dir;
            !again && cage.is_populated().unwrap_or(true)
        });
        self.cages.extend(opened);
    }

    /// Kills all that start left behind.
    pub(super) fn kill_service(&self) {
        for cage in &self.cages {
            // One that is gone holds nothing.
            let _ = cage.kill();
        }
    }

    /// Notes the process group in which a command runs now; says whether it is known.
    pub(super) fn note(&mut self, command: Command, group: i32, leader: Option<OwnedFd>) -> bool {
        let noted = Pid::from_raw(group).zip(leader);
        let known = noted.is_some();
        self.groups[command as usize] = noted;
        known
    }

    /// Returns what becomes readable when the agent's stop command has ended.
    pub(super) fn agents_stop(&self) -> Option<BorrowedFd<'_>> {
        let stop = self.groups[Command::Stop as usize].as_ref();
        stop.map(|(_, leader)| leader.as_fd())
    }

    /// Returns, once, that it has.
    pub(super) fn agents_stop_ended(&mut self) -> bool {
        let stop = self.groups[Command::Stop as usize].take_if(|(_, leader)| sys::is_ready(leader));
        stop.is_some()
    }

    /// Kills the commands that have not ended: a group whose leader has ended is
    /// what a start left behind on purpose, and its number may be a stranger's.
    pub(super) fn kill(&mut self) {
        if let Dying::Said = self.dying {
            self.dying = Dying::Nobody;
        }
        for command in Command::ALL {
            if let Some((group, leader)) = self.groups[command as usize].take()
                && !sys::is_ready(&leader)
            {
                // It fails when the group has ended since.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                if command == Command::Start {
                    self.dying = Dying::Start(group, leader);
                }
            }
        }
    }

    /// Returns the group of a start that was killed and has not ended, and what becomes
    /// readable when it has.
    pub(super) fn dying_start(&self) -> Option<(i32, BorrowedFd<'_>)> {
        match &self.dying {
            Dying::Start(group, leader) => Some((group.as_raw_nonzero().get(), leader.as_fd())),
            Dying::Nobody | Dying::Said => None,
        }
    }

    /// Returns, once after [`Left::kill`], what became of the start that was there.
    pub(super) fn start_gone(&mut self) -> Option<News> {
        let news = match &self.dying {
            Dying::Start(_, leader) if sys::is_ready(leader) => News::StartGone,
            Dying::Nobody => News::NoStart,
            Dying::Start(..) | Dying::Said => return None,
        };
        self.dying = Dying::Said;
        Some(news)
    }
}
