use super::super::inbox::{Inbox, inbox};
use super::*;
use crate::core::{LockContext, Role};
use crate::sys::PATIENCE;

/// A script that leaves its process group, says so and stays.
const LEAVER: &str = "exec perl -e '
    setpgrp(0, getpgrp(getppid())) or die; open(F, \">\", $ARGV[0]); close(F); sleep 1000'";

fn run(deadline: Instant) -> Run {
    let (command, context) = (Command::Check, LockContext::default());
    Run { command, role: Role::Standby, deadline, starting: false, context }
}

/// Makes this health check.
fn check(script: &str) -> (HealthCheck, Inbox<Event>) {
    let commands = Commands { check: Some(script.to_owned()), ..Commands::sample() };
    let (events, inbox) = inbox(4).expect("a descriptor");
    (HealthCheck::new(commands, events).expect("a thread"), inbox)
}

/// Waits until the check has ended; returns the outcome.
fn end(check: &mut HealthCheck, inbox: &Inbox<Event>) -> Option<Event> {
    let until = in_patience();
    while sys::now() < until {
        if let Some(ended) = inbox.try_next() {
            check.note(&ended);
            return Some(ended);
        }
        inbox.wait([], Some(until)).expect("it waits");
    }
    None
}

fn in_patience() -> Instant {
    sys::now().after(PATIENCE)
}

fn in_ms(ms: u64) -> Instant {
    sys::now().after(Duration::from_millis(ms))
}

#[test]
fn a_check_that_left_its_process_group_is_killed_at_its_deadline() {
    if !std::path::Path::new("/usr/bin/perl").exists() {
        println!("skipped: no perl");
        return;
    }
    let name = format!("putex-left-{}", std::process::id());
    let left = std::env::temp_dir().join(name);
    let (mut check, inbox) = check(&format!("{LEAVER} {}", left.display()));
    assert_eq!(check.run(run(in_ms(1_000_000))), None);
    let patience = in_patience();
    while !left.exists() {
        assert!(sys::now() < patience, "it does not leave");
    }
    std::fs::remove_file(&left).expect("it is there");
    check.extend(sys::now());
    assert_eq!(end(&mut check, &inbox), Some(Event::CheckEnded(Outcome::Overran)));
}

#[test]
fn a_check_has_until_its_last_deadline() {
    let (mut check, inbox) = check("sleep 0.2");
    assert_eq!(check.run(run(in_ms(100))), None);
    check.extend(in_ms(1_000_000));
    assert_eq!(end(&mut check, &inbox), Some(Event::CheckEnded(Outcome::Succeeded)));
    let ended = check.run(run(sys::now()));
    assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it is not begun");
    assert_eq!(check.run(run(in_ms(1_000_000))), None);
    check.kill();
    let ended = end(&mut check, &inbox);
    assert_eq!(ended, Some(Event::CheckEnded(Outcome::Overran)), "it was killed");
}

/// A service manager, or `putex finish`, counts on it that an agent leaves no process.
#[test]
fn the_end_of_an_agent_waits_until_its_check_was_killed_with_its_group() {
    let (mut check, inbox) = check("sleep 1000 & echo $!; wait");
    assert_eq!(check.run(run(in_ms(1_000_000))), None);
    let alarm = Alarm::new().expect("a descriptor");
    let written = alarm.wait([(check.output.as_fd(), PollFlags::IN)], Some(in_patience()));
    assert_eq!(written.expect("it waits"), [true]);
    let mut number = None;
    check.output.flush(&mut |_, line| {
        number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    });
    let sleep = rustix::process::Pid::from_raw(number.expect("a number")).expect("a process");
    let exit = rustix::process::pidfd_open(sleep, rustix::process::PidfdFlags::empty());
    let exit = exit.expect("it runs");
    check.end();
    let ended = alarm.wait([(exit.as_fd(), PollFlags::IN)], Some(in_patience()));
    assert_eq!(ended.expect("it waits"), [true]);
    assert_eq!(end(&mut check, &inbox), Some(Event::CheckEnded(Outcome::Overran)));
}
