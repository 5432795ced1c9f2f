//! A front on a terminal, started by a process that acts as a shell does for a job.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;

use libc::SIGTSTP;
use rustix::process::{Pid, WaitOptions};
use rustix::pty::OpenptFlags;

use super::rig::{Line, front, request, state_of};
use super::*;
use crate::lock::LockLocation;
use crate::log::Destination;

/// The shell reports that its child was stopped.
const STOPPED: u8 = b's';

/// A terminal, and the shell on it.
struct Terminal {
    run: Run,
    keyboard: File,
    /// The reports of the shell: `STOPPED` and the signal.
    reports: PipeReader,
    /// A byte makes the shell do what `fg` does.
    foreground: PipeWriter,
}

impl Terminal {
    fn begin(command: &[&str], piped: bool) -> Terminal {
        Terminal::with(front, command, piped)
    }

    fn with(plays: impl Fn(Line, &[&str]) -> u8, command: &[&str], piped: bool) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::grantpt(&keyboard).expect("a terminal");
        rustix::pty::unlockpt(&keyboard).expect("a terminal");
        let name = rustix::pty::ptsname(&keyboard, Vec::new()).expect("a name");
        let name = name.into_string().expect("a path");
        let (reports, report) = pipe().expect("a pipe");
        let (wish, foreground) = pipe().expect("a pipe");
        // The shell keeps these although it closes all descriptors above.
        let numbers = [report.as_raw_fd(), wish.as_raw_fd()];
        let run = Run::fork_keeping(&numbers, |line| {
            let front = || plays(line, command);
            shell(front, &name, piped, report, wish)
        });
        Terminal { run, keyboard: keyboard.into(), reports, foreground }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("a terminal");
    }

    /// Waits until this was shown.
    fn wait_for(&mut self, text: &str) {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains(text) {
            rig::wait_for(self.keyboard.as_fd(), text);
            let mut part = [0; 256];
            let length = self.keyboard.read(&mut part).expect("a terminal");
            shown.extend_from_slice(&part[..length]);
        }
    }

    /// Waits until the shell has seen the front stopped; returns the signal.
    fn wait_for_stop(&mut self) -> i32 {
        rig::wait_for(self.reports.as_fd(), "a stop");
        let mut report = [0; 2];
        self.reports.read_exact(&mut report).expect("a report");
        assert_eq!(report[0], STOPPED);
        report[1].into()
    }

    /// Waits until this group has the terminal. A key that is pressed before reaches the front
    /// only.
    fn wait_until_it_is_of(&self, group: Pid) {
        rig::wait_until_so("the terminal of the command", || {
            rustix::termios::tcgetpgrp(&self.keyboard) == Ok(group)
        });
    }

    /// Returns the group that has the terminal.
    fn owner(&self) -> Pid {
        rustix::termios::tcgetpgrp(&self.keyboard).expect("a group")
    }

    fn put_in_foreground(&mut self) {
        self.foreground.write_all(b"f").expect("a shell");
    }
}

/// The shell: runs the front as a job in the foreground; returns its status.
fn shell(
    front: impl FnOnce() -> u8,
    terminal: &str,
    piped: bool,
    mut report: PipeWriter,
    mut wish: PipeReader,
) -> u8 {
    rustix::process::setsid().expect("a session");
    let terminal = File::options().read(true).write(true).open(terminal).expect("a terminal");
    rustix::process::ioctl_tiocsctty(&terminal).expect("a terminal");
    rustix::stdio::dup2_stdin(&terminal).expect("a descriptor");
    rustix::stdio::dup2_stdout(&terminal).expect("a descriptor");
    drop(raw::take_signals(&[libc::SIGTTOU]));
    let Some(job) = raw::fork().expect("a process") else {
        let own = rustix::process::getpid();
        rustix::process::setpgid(None, None).expect("a group");
        rig::wait_until_so("the terminal", || rustix::termios::tcgetpgrp(&terminal) == Ok(own));
        if piped {
            let (_, writer) = pipe().expect("a pipe");
            rustix::stdio::dup2_stdout(&writer).expect("a descriptor");
        }
        drop((report, wish));
        return front();
    };
    drop(front);
    let _ = rustix::process::setpgid(Some(job), Some(job));
    rustix::termios::tcsetpgrp(&terminal, job).expect("a terminal");
    loop {
        let (_, status) = rustix::process::waitpid(Some(job), WaitOptions::UNTRACED)
            .expect("a child")
            .expect("it waits");
        let Some(signal) = status.stopping_signal() else {
            let has_terminal_back = rustix::termios::tcgetpgrp(&terminal) == Ok(job);
            let by_signal = status.terminating_signal().map(|signal| 128 + signal);
            let status = status.exit_status().or(by_signal).and_then(|it| u8::try_from(it).ok());
            return if has_terminal_back { status.unwrap_or(250) } else { 251 };
        };
        assert!(rustix::termios::tcgetpgrp(&terminal) == Ok(job), "who has the terminal?");
        let own = rustix::process::getpid();
        rustix::termios::tcsetpgrp(&terminal, own).expect("a terminal");
        let signal = u8::try_from(signal).expect("a signal");
        report.write_all(&[STOPPED, signal]).expect("a pipe");
        wish.read_exact(&mut [0]).expect("a wish");
        rustix::termios::tcsetpgrp(&terminal, job).expect("a terminal");
        rustix::process::kill_process_group(job, Signal::CONT).expect("a job");
    }
}

const READS: [&str; 3] = ["sh", "-c", "echo ready; read status; exit $status"];

#[test]
fn the_command_reads_the_terminal_and_is_interrupted_by_it() {
    for (keys, status) in [(&b"5\n"[..], 5), (b"\x03", 130)] {
        let mut terminal = Terminal::begin(&READS, false);
        terminal.run.grant(LONG);
        terminal.run.started();
        terminal.wait_for("ready");
        terminal.press(keys);
        assert_eq!(terminal.run.expect_done(), status);
    }
}

#[test]
fn control_z_stops_command_and_front_but_does_not_release_the_lock() {
    let mut terminal = Terminal::begin(&READS, false);
    terminal.run.grant(LONG);
    let group = terminal.run.started();
    terminal.wait_for("ready");
    terminal.press(b"\x1a");
    assert_eq!(terminal.wait_for_stop(), SIGTSTP);
    assert_eq!(state_of(group), "T");
    assert!(terminal.run.is_silent());
    terminal.put_in_foreground();
    terminal.press(b"6\n");
    assert_eq!(terminal.run.expect_done(), 6);
}

#[test]
fn a_stopped_command_goes_on_if_its_lock_was_renewed_and_is_ended_if_not() {
    let stopped = |is_renewed| {
        let mut terminal = Terminal::begin(&READS, false);
        let valid_until = terminal.run.grant(SHORT);
        terminal.run.started();
        terminal.wait_for("ready");
        terminal.press(b"\x1a6\n");
        terminal.wait_for_stop();
        if is_renewed {
            terminal.run.renew(LONG);
        }
        (terminal, valid_until)
    };
    let [(mut renewed, _), (mut lost, valid_until)] = [true, false].map(stopped);
    rig::wait_until(valid_until);
    for terminal in [&mut renewed, &mut lost] {
        terminal.put_in_foreground();
    }
    assert_eq!(renewed.run.expect_done(), 6);
    assert_eq!(lost.run.status(), Exit::Lost as u8);
}

#[test]
fn a_stopped_command_whose_lock_was_lost_is_ended_and_not_let_go_on() {
    let mut terminal = Terminal::begin(&READS, false);
    terminal.run.grant(LONG);
    terminal.run.started();
    terminal.wait_for("ready");
    terminal.press(b"\x1a6\n");
    terminal.wait_for_stop();
    terminal.run.tell(&ToFront::Lost("removed".to_owned()));
    terminal.put_in_foreground();
    assert_eq!(terminal.run.status_after_loss(), Exit::Lost as u8);
}

#[test]
fn a_command_before_a_pager_has_the_terminal_when_it_reads_it() {
    let reads = ["sh", "-c", "echo ready >/dev/tty; read status; exit $status"];
    let mut terminal = Terminal::begin(&reads, true);
    terminal.run.grant(LONG);
    let group = terminal.run.started();
    terminal.wait_for("ready");
    terminal.wait_until_it_is_of(group);
    terminal.press(b"\x1a");
    assert_eq!(terminal.wait_for_stop(), SIGTSTP);
    assert_eq!(state_of(group), "T");
    terminal.put_in_foreground();
    terminal.press(b"7\n");
    assert_eq!(terminal.run.expect_done(), 7);
}

/// A front without a renewer, whose lock is in this directory.
fn local(base: &Path, command: &[&str]) -> u8 {
    let location = LockLocation::Dir { base, bucket: "b" };
    let status = crate::lock::run(&request(command), location, Destination::Pipe);
    status.unwrap_or_else(|refusal| Destination::Pipe.refuse(&refusal) as u8)
}

#[test]
fn with_a_lock_in_a_directory_the_command_has_the_terminal_and_stops_and_goes_on_with_it() {
    for (keys, status) in [(&b"5\n"[..], 5), (b"\x03", 130)] {
        let base = file("directory");
        let mut terminal = Terminal::with(|_, command| local(&base, command), &READS, false);
        terminal.wait_for("ready");
        let group = terminal.owner();
        for _ in 0..2 {
            terminal.press(b"\x1a");
            assert_eq!(terminal.wait_for_stop(), SIGTSTP);
            assert_eq!(state_of(group), "T");
            terminal.put_in_foreground();
            terminal.wait_until_it_is_of(group);
            // SIGCONT, which comes after the terminal, drops a stop that is pending.
            rig::wait_until_so("the command to go on", || state_of(group) != "T");
        }
        terminal.press(keys);
        assert_eq!(terminal.run.status(), status);
        fs::remove_dir_all(base).expect("it is there");
    }
}

#[test]
fn with_a_lock_in_a_directory_a_command_before_a_pager_has_the_terminal_when_it_reads_it() {
    let reads = ["sh", "-c", "echo ready >/dev/tty; read status; exit $status"];
    let base = file("directory");
    let mut terminal = Terminal::with(|_, command| local(&base, command), &reads, true);
    terminal.wait_for("ready");
    let program = |group: Pid| fs::read_to_string(format!("/proc/{group}/comm"));
    rig::wait_until_so("the terminal of the command", || {
        program(terminal.owner()).is_ok_and(|name| name == "sh\n")
    });
    terminal.press(b"7\n");
    assert_eq!(terminal.run.status(), 7);
    fs::remove_dir_all(base).expect("it is there");
}
