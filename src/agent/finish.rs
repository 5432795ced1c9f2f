//! `putex finish`: what a service manager runs when an agent has ended, however it
//! did. When its guard is gone too, nobody else would stop the service.

use std::fs::File;
use std::io;
use std::path::Path;

use super::life::{self, Identity};
use crate::command::{Commands, Stage};
use crate::core::command::{Command, LockContext, Outcome, Role, Run};
use crate::core::event::Level;
use crate::core::time::Instant;
use crate::core::timing::Timing;
use crate::exit::Exit;
use crate::guard::is_there;
use crate::log::DirectLog;
use crate::sys::{self, Alarm, Want};

/// Runs stop until it succeeds, for the stop budget at the longest, unless an agent
/// or a guard lives that will. An agent that begins meanwhile waits for this to end.
///
/// # Errors
///
/// When it cannot be known whether the agent lives, or the system has no descriptor or
/// process to give.
pub fn run(
    commands: &Commands,
    timing: Timing,
    base: &Path,
    name: &Identity,
    log: &mut DirectLog,
) -> io::Result<Exit> {
    let path = name.path(base);
    let dead = life::trace(&path)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    let Some(dead) = dead else {
        log.say(Level::Info, "finish: the agent lives: nothing to do");
        return Ok(Exit::Success);
    };
    let alarm = Alarm::new()?;
    let until = sys::now().after(timing.stop_budget());
    let mut stage = Stage::new(Command::Stop)?;
    loop {
        // One that was started last of all may come late.
        if dead.guard.as_deref().is_some_and(is_there) {
            log.say(Level::Info, "finish: the guard sees to the service");
            return Ok(Exit::Success);
        }
        let given_up = until.after(timing.renewal());
        let outcome = stop(commands, &mut stage, (until, given_up), &alarm, log)?;
        match outcome {
            Outcome::Succeeded => {
                log.say(Level::Info, "finish: stop succeeded");
                return Ok(Exit::Success);
            }
            Outcome::Failed(why) => log.say(Level::Error, &format!("finish: stop failed: {why}")),
            Outcome::Overran => {
                let text = "finish: stop did not end in time and was killed";
                log.say(Level::Error, text);
            }
        }
        let again = sys::now().after(timing.renewal() / 4);
        if again >= until {
            return Ok(Exit::NotStopped);
        }
        alarm.wait([], Some(again))?;
    }
}

/// Runs stop once, until the deadline. One that cannot even be killed is not waited for
/// after the second: an agent that begins waits with this.
fn stop(
    commands: &Commands,
    stage: &mut Stage,
    (deadline, given_up): (Instant, Instant),
    alarm: &Alarm,
    log: &mut DirectLog,
) -> io::Result<Outcome> {
    let run = Run {
        command: Command::Stop,
        role: Role::Standby,
        deadline,
        starting: false,
        under: LockContext::default(),
    };
    let mut prepared = commands.prepare(&run, None, sys::now());
    stage.spawn(&mut prepared, &File::open("/dev/null")?)?;
    stage.give_leave();
    let mut killed = false;
    loop {
        let output = (stage.output(), Want::Read);
        let exit = stage.exit().unwrap_or(stage.output());
        let until = if killed { given_up } else { deadline };
        let [says, _] = alarm.wait([output, (exit, Want::Read)], Some(until))?;
        if says {
            stage.pass_on(&mut |command, line| log.command_output(command, line, sys::now()));
        }
        if stage.has_ended() {
            return Ok(stage.reap(killed, &mut |command, line| {
                log.command_output(command, line, sys::now())
            }));
        }
        if killed && sys::now() >= given_up {
            return Ok(Outcome::Overran);
        }
        if !killed && sys::now() >= deadline {
            killed = true;
            stage.kill();
        }
    }
}
