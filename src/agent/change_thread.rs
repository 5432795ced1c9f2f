//! The change thread: runs the operator's command for each change of the agent's state. No other
//! thread waits for it: changes wait in a queue, which drops the oldest ones.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::inbox::{Inbox, InboxSender, inbox};
use super::task::Task;
use crate::command::{Change, Commands, OutputPipe, Process, not_run};
use crate::core::{Command, Instant, Outcome};
use crate::log::command_output;
use crate::sys;

/// Changes that may wait.
const CHANGES_MAX: usize = 16;

/// How long one run may take.
pub(super) const RUN_WITHIN: Duration = Duration::from_secs(30);

/// How long the present run may take once the agent ends, and then the run for the last change.
const LAST_RUN_WITHIN: Duration = Duration::from_secs(1);

/// Time for the kernel to end a command that was killed, at the end of the agent.
const KILLED_WITHIN: Duration = Duration::from_millis(100);

/// The pump's end of the thread.
pub(super) struct ChangeHandle {
    changes: InboxSender<Change>,
    /// The receiving end of the queue too, by which the oldest change is dropped.
    oldest: Receiver<Change>,
    /// The agent ends.
    ends: Arc<AtomicBool>,
    /// The thread, which is done when the agent ends and the last change was told.
    thread: Task<()>,
}

struct ChangeThread {
    commands: Commands,
    output: OutputPipe,
    changes: Inbox<Change>,
    /// The agent ends.
    ends: Arc<AtomicBool>,
    /// How long one run may take.
    within: Duration,
}

impl ChangeHandle {
    /// Starts the thread. One run may take the time `within`.
    ///
    /// # Errors
    ///
    /// When the system has no pipe, descriptor or thread to give.
    pub(super) fn start(commands: Commands, within: Duration) -> io::Result<ChangeHandle> {
        let (own, changes) = inbox(CHANGES_MAX)?;
        let oldest = changes.items.clone();
        let output = OutputPipe::new(Command::OnChange, None)?;
        let ends = Arc::new(AtomicBool::default());
        let own_ends = Arc::clone(&ends);
        let mut thread = ChangeThread { commands, output, changes, ends, within };
        let thread = Task::start("putex-change", move || thread.work())?;
        Ok(ChangeHandle { changes: own, oldest, ends: own_ends, thread })
    }

    /// Queues a change, without waiting.
    pub(super) fn tell(&self, change: Change) {
        let Some(refused) = self.changes.offer(change) else { return };
        // The thread may have made room meanwhile. No one else sends, so there is room now.
        if let Ok(Change { old, new, .. }) = self.oldest.try_recv() {
            log::warn!("on-change {old} -> {new}: it is not told: {CHANGES_MAX} later ones wait");
        }
        self.changes.offer(refused);
    }

    /// Has the command run for the last change, and waits a short time for its end: the service is
    /// down, so that nothing waits for this thread.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.changes.waker.wake();
        sys::is_ready_soon(&self.thread.done, 2 * LAST_RUN_WITHIN + KILLED_WITHIN);
    }
}

impl ChangeThread {
    /// Tells the changes until the agent ends and all changes are told.
    fn work(&mut self) {
        loop {
            let ends = self.ends.load(Ordering::Relaxed);
            match self.next(ends) {
                Some(change) => self.tell(change, ends),
                None if ends => return,
                None => self.wait(None, None),
            }
        }
    }

    /// Returns the change to tell next. When the agent ends, the next one is the last one.
    fn next(&self, ends: bool) -> Option<Change> {
        let mut change = self.changes.try_next()?;
        while ends && let Some(later) = self.changes.try_next() {
            change = later;
        }
        Some(change)
    }

    /// Waits for a change or the end of the agent, or for the end of a run, and passes output on.
    fn wait(&mut self, exit: Option<BorrowedFd<'_>>, until: Option<Instant>) {
        // If the kernel refuses to wait, the caller looks again at once.
        let _ = self.changes.wait([Some(self.output.as_fd()), exit], until);
        self.output.pass_on(&mut command_output);
    }

    /// Runs the command for a change. Only this thread waits if a disk delays the start of the
    /// shell.
    fn tell(&mut self, change: Change, ends: bool) {
        let (old, new) = (change.old.clone(), change.new.clone());
        let within = if ends { LAST_RUN_WITHIN } else { self.within };
        let until = sys::now().after(within);
        let prepared = self.commands.prepare_on_change(change, within);
        let outcome = match Process::spawn(prepared, &self.output.writer) {
            Ok(process) => self.wait_for_end(process, until),
            Err(error) => not_run(&error),
        };
        self.output.flush(&mut command_output);
        if outcome != Outcome::Succeeded {
            log::warn!("on-change {old} -> {new}: {outcome}");
        }
    }

    /// Waits for the end of a run, which is killed when its time is over; returns how it ended.
    fn wait_for_end(&mut self, mut process: Process, mut until: Instant) -> Outcome {
        while !process.has_ended() {
            if self.ends.load(Ordering::Relaxed) {
                until = until.min(sys::now().after(LAST_RUN_WITHIN));
            }
            if !process.killed && sys::now() >= until {
                process.kill();
            }
            self.wait(Some(process.as_fd()), (!process.killed).then_some(until));
        }
        process.reap()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::core::LockContext;
    use crate::sys::PATIENCE;

    /// No run of a test takes so long.
    const LONG: Duration = Duration::from_secs(1000);

    const NAMES: [&str; 24] = [
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
        "17", "18", "19", "20", "21", "22", "23",
    ];

    /// Starts a thread with this command, in which `$F` is a file of the test, empty at first. A
    /// run may take the time `within`.
    fn start(name: &str, within: Duration, script: &str) -> (ChangeHandle, PathBuf) {
        let file = std::env::temp_dir().join(format!("putex-{name}-{}", std::process::id()));
        fs::write(&file, "").expect("room");
        let on_change = Some(format!("F={}; {script}", file.display()));
        let commands = Commands { on_change, ..Commands::sample() };
        let handle = ChangeHandle::start(commands, within).expect("a thread");
        (handle, file)
    }

    fn tell(handle: &ChangeHandle, names: &[&str]) {
        for new in names {
            let context = LockContext::default();
            let (old, why) = ("old".to_owned(), "why".to_owned());
            handle.tell(Change { old, new: (*new).to_owned(), why, context });
        }
    }

    /// Waits until the file has this text, which is returned.
    fn wait_for(file: &PathBuf, until: impl Fn(&str) -> bool) -> String {
        let give_up = sys::now().after(PATIENCE);
        loop {
            let text = fs::read_to_string(file).expect("it is there");
            if until(&text) {
                return text;
            }
            assert!(sys::now() < give_up, "{text:?}");
            sys::pause(Duration::from_millis(2));
        }
    }

    #[test]
    fn changes_are_told_one_by_one_and_the_oldest_of_too_many_are_dropped() {
        let script = "echo \"$1\" >>$F; while test $1 = 0 && ! test -e $F.go; do sleep 0.01; done";
        let (handle, file) = start("told", LONG, script);
        tell(&handle, &NAMES[..1]);
        wait_for(&file, |text| text == "0\n");
        tell(&handle, &NAMES[1..]);
        let go = PathBuf::from(format!("{}.go", file.display()));
        fs::write(&go, "").expect("room");
        let expected: Vec<_> = [&NAMES[..1], &NAMES[NAMES.len() - CHANGES_MAX..]].concat();
        wait_for(&file, |told| told.lines().collect::<Vec<_>>() == expected);
        handle.end();
        for file in [file, go] {
            fs::remove_file(file).expect("it is there");
        }
    }

    #[test]
    fn a_run_that_takes_too_long_is_killed_and_the_next_one_begins() {
        let script = "test $1 = 1 || exec sleep 1000; echo $1 >>$F";
        let within = Duration::from_secs(1);
        let began = sys::now();
        let (handle, file) = start("killed", within, script);
        tell(&handle, &NAMES[..1]);
        // Even a shell may take too long on a busy host.
        (1..CHANGES_MAX).for_each(|_| tell(&handle, &NAMES[1..2]));
        wait_for(&file, |text| text.starts_with("1\n"));
        assert!(sys::now().since(began) >= within);
        handle.end();
        fs::remove_file(file).expect("it is there");
    }

    #[test]
    fn at_the_end_what_is_under_way_is_killed_with_its_group_and_the_last_change_is_told() {
        let script = "test $1 = 3 || sh -c 'echo $$ >>$0; exec sleep 1000' $F; echo $1 >>$F; \
                      exec sleep 1000";
        let (handle, file) = start("last", LONG, script);
        tell(&handle, &NAMES[..1]);
        let of_group = wait_for(&file, |text| text.ends_with('\n'));
        tell(&handle, &NAMES[1..4]);
        handle.end();
        wait_for(&file, |text| text == format!("{of_group}3\n"));
        let stat = PathBuf::from(format!("/proc/{}/stat", of_group.trim()));
        let runs = || fs::read_to_string(&stat).is_ok_and(|it| !it.contains(") Z "));
        let give_up = sys::now().after(PATIENCE);
        while runs() {
            assert!(sys::now() < give_up, "one of the group is left");
        }
        fs::remove_file(file).expect("it is there");
    }
}
