//! What an agent left running: the commands that the guard has to kill before it
//! runs its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::process::{Pid, Signal};

use crate::cgroup::Cages;
use crate::core::event::Command;
use crate::sys;

/// The last start, stop and so on that the agent said it runs.
#[derive(Debug)]
pub(super) struct Left {
    groups: [Option<(Pid, OwnedFd)>; Command::ALL.len()],
    /// The control groups of this life of the agent, last, and of those before in
    /// which the service may be.
    cages: Vec<Cages>,
}

impl Left {
    pub(super) fn new(cages: Option<&str>) -> Left {
        let mut left = Left {
            groups: [const { None }; Command::ALL.len()],
            cages: Vec::new(),
        };
        left.add_cages(cages);
        left
    }

    /// Notes where the control groups of the agent are, if it has some.
    pub(super) fn add_cages(&mut self, dir: Option<&str>) {
        // Of lives that come and go, only those count whose service runs on.
        self.cages
            .retain(|cages| cages.is_populated(Command::Start).unwrap_or(true));
        // Without them, process groups have to do.
        let opened = dir.and_then(|dir| Cages::open(Path::new(dir)).ok());
        self.cages.extend(opened);
    }

    /// Returns the script that enters the control group of a command.
    pub(super) fn door(&self, command: Command) -> Option<&str> {
        self.cages.last().map(|cages| cages.door(command))
    }

    /// Kills what is in the control group of a command.
    pub(super) fn kill_caged(&self, command: Command) {
        for cages in &self.cages {
            // One that is gone holds nothing.
            let _ = cages.kill(command);
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
        for slot in &mut self.groups {
            if let Some((group, leader)) = slot.take()
                && !sys::is_ready(&leader)
            {
                // It fails when the group has ended since.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
    }
}
