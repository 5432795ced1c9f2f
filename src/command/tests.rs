//! How commands are run.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::Stdio;

use rustix::event::PollFd;
use rustix::process::{Pid, PidfdFlags};

use super::*;
use crate::core::Role;
use crate::sys::{self, Alarm, PollFlags};

impl Commands {
    /// Returns a start and a stop that succeed, of the agent one for the key web.
    pub(crate) fn sample() -> Commands {
        Commands {
            check: None,
            start: "true".to_owned(),
            stop: "true".to_owned(),
            last_resort: None,
            environment: None,
            on_change: None,
            key: "web".to_owned(),
            token: "one".to_owned(),
        }
    }
}

/// Returns the session of a process, 0 where its leader is outside of the PID namespace.
fn session_of(process: Pid) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    after_name.split_whitespace().nth(3).expect("a session").to_owned()
}

fn commands(script: &str) -> Commands {
    let [check, start, stop] = [script; 3].map(str::to_owned);
    Commands { check: Some(check), start, stop, ..Commands::sample() }
}

/// Runs a command that shows its lines in `/proc`; returns whether it leads a session, its
/// process group, its number, and which of the first 31 signals are blocked or ignored.
fn state_of(command: Command) -> (bool, Pid, Pid, u32) {
    let commands = commands("exec cat /proc/self/status");
    let (deadline, context) = (sys::now(), LockContext::default());
    let run = Run { command, role: Role::Active, deadline, starting: false, context };
    let mut output = OutputPipe::new(command, None).expect("a descriptor");
    let prepared = commands.prepare(&run, None, deadline);
    let mut process = Process::spawn(prepared, &output.writer).expect("it can be run");
    process.release();
    sys::poll(&mut [PollFd::new(&process, PollFlags::IN)]).expect("it waits");
    let leads = session_of(process.group) == process.group.to_string();
    let group = rustix::process::getpgid(Some(process.group)).expect("it is not reaped");
    let own = process.group;
    assert_eq!(process.reap(), Outcome::Succeeded);
    let mut signals = 0;
    output.flush(&mut |_, line| signals |= held_back(&String::from_utf8_lossy(line)));
    (leads, group, own, signals)
}

/// Returns which of the first 31 signals are blocked or ignored, by a line of `/proc/PID/status`.
fn held_back(line: &str) -> u32 {
    let set = line.strip_prefix("SigBlk:").or(line.strip_prefix("SigIgn:"));
    let set = set.map(|set| u32::from_str_radix(&set.trim()[8..], 16).expect("a number"));
    // The C library has two of the highest for itself.
    set.unwrap_or_default() & 0x7fff_ffff
}

#[test]
fn start_has_a_session_of_its_own_and_every_command_its_group_and_all_signals() {
    // A shell that runs this test in the background has it ignore two signals. SIGPIPE is ignored
    // by this process alone.
    // Another thread blocks all signals for the moment in which it starts one.
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("it lives");
    let held = status.lines().map(held_back).fold(0, |all, held| all | held);
    let ignored = held & !(1 << (libc::SIGPIPE - 1));
    for command in Command::ALL {
        if matches!(command, Command::LastResort | Command::OnChange) {
            continue;
        }
        let (leads, group, own, signals) = state_of(command);
        assert_eq!(group, own, "{command:?}");
        assert_eq!(leads, command == Command::Start, "{command:?}");
        assert_eq!(signals, ignored, "{command:?}");
    }
}

/// No stop could be run on a host that had lost /dev/null.
#[test]
fn a_command_begins_with_an_empty_stdin_although_dev_null_is_missing() {
    for nothing in ["/dev/null", "/nonexistent"] {
        let script = WAIT_FOR_RELEASE.replace("/dev/null", nothing) + "cat; echo begun";
        let mut shell = process::Command::new("/bin/sh");
        let shell = shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.stderr(Stdio::null()).spawn().expect("it can be run");
        let mut stdin = shell.stdin.take().expect("a pipe");
        stdin.write_all(b"\n").expect("it is read");
        drop(stdin);
        let output = shell.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "begun\n", "{nothing}");
    }
}

/// timeout(1) makes a group, and so the service came up after its stop had counted.
#[test]
fn start_is_killed_with_the_groups_that_it_has_made() {
    let (command, context) = (Command::Start, LockContext::default());
    let commands = commands("timeout 1000 sh -c 'echo $$; exec sleep 1000'; true");
    let now = sys::now();
    let run = Run { command, role: Role::Active, deadline: now, starting: true, context };
    let mut output = OutputPipe::new(command, None).expect("a descriptor");
    let prepared = commands.prepare(&run, None, now);
    let mut process = Process::spawn(prepared, &output.writer).expect("it can be run");
    process.release();
    let (alarm, until) = (Alarm::new().expect("a descriptor"), Some(now.after(sys::PATIENCE)));
    assert_eq!(alarm.wait([(output.as_fd(), PollFlags::IN)], until).expect("it waits"), [true]);
    let mut number = None;
    output.flush(&mut |_, line| {
        number = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
    });
    let sleep = number.and_then(Pid::from_raw).expect("its number");
    assert_ne!(rustix::process::getpgid(Some(sleep)), Ok(process.group), "of coreutils?");
    let exit = rustix::process::pidfd_open(sleep, PidfdFlags::empty()).expect("it lives");
    process.end();
    assert_eq!(alarm.wait([(exit.as_fd(), PollFlags::IN)], until).expect("it waits"), [true]);
}
