//! The service of one host and its commands, each a process of this program: what they
//! do beside their work, hanging and failing, is told by files in the host's folder.
//!
//! A running service holds the read end of a named pipe, which the observer sees, and
//! writes its first and its last moment into a file of its own, over and over: what it
//! did itself, for the checker to compare with what was observed.
//!
//! Nothing here depends on a disk that may be full, nor on a file that may be stale:
//! whether the service runs is asked of the pipe, and who it is of the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::clock::{At, now};
use crate::support::observer::is_held;
use crate::support::process::signal;

/// How often the service writes that it lives.
const BEAT: Duration = Duration::from_millis(2);

/// How often what waits looks again.
const LOOK: Duration = Duration::from_millis(1);

/// Lines of a health check that has much to say.
const CHATTER: usize = 1000;

/// The length of each: a pipe is full after some seconds.
const CHATTER_BYTES: usize = 400;

/// The beginning of a line of chatter.
pub(crate) const CHATTER_LINE: &str = "the health check has much to say";

/// The words that make this program a part of the service.
pub(crate) const ROLES: [&str; 5] = ["service", "start", "stop", "check", "last-resort"];

/// A flaw of a host's commands. A file of its name tells the commands to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flaw {
    CheckFails,
    CheckHangs,
    CheckChatters,
    StartFails,
    StartHangs,
    StopFails,
    StopHangs,
}

impl Flaw {
    /// Returns what is wrong in words, which are also the file that says so.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flaw::CheckFails => "check fails",
            Flaw::CheckHangs => "check hangs",
            Flaw::CheckChatters => "check chatters",
            Flaw::StartFails => "start fails",
            Flaw::StartHangs => "start hangs",
            Flaw::StopFails => "stop fails",
            Flaw::StopHangs => "stop hangs",
        }
    }
}

/// A run of the service: its first and its last moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) first: At,
    pub(crate) last: At,
}

/// The folder of one host's service.
#[derive(Clone, Debug)]
pub(crate) struct Service(PathBuf);

/// Does the part that `role` names, on the host of `folder`.
pub(crate) fn play(role: &str, folder: &str) -> ExitCode {
    let service = Service(folder.into());
    let well = match role {
        "service" => service.serve(),
        "start" => service.start(),
        "stop" => service.stop(),
        "last-resort" => service.end("last resort"),
        _ => service.check(),
    };
    ExitCode::from(u8::from(!well))
}

impl Service {
    /// Makes the folder of a service that does not run.
    pub(crate) fn make(folder: &Path) -> Result<Service, String> {
        let service = Service(folder.to_owned());
        let failed = |error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder.join("lives")).map_err(failed)?;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, service.pipe(), fifo, mode, 0)
            .map_err(|error| failed(error.into()))?;
        Ok(service)
    }

    /// Returns the named pipe that the running service holds.
    pub(crate) fn pipe(&self) -> PathBuf {
        self.0.join("alive")
    }

    /// Returns the command for `role`.
    pub(crate) fn command(&self, role: &str) -> String {
        let program = program();
        format!("exec {} {role} {}", program.display(), self.0.display())
    }

    /// Makes a command as bad as told, or good again.
    pub(crate) fn set(&self, flaw: Flaw, bad: bool) {
        let file = self.0.join(flaw.name());
        if bad {
            fs::write(file, "").expect("the host's folder can be written");
        } else {
            let _ = fs::remove_file(file);
        }
    }

    /// Returns every service that ever ran here, as it said itself.
    pub(crate) fn lives(&self) -> Vec<Life> {
        let entries = fs::read_dir(self.0.join("lives")).into_iter().flatten();
        let life = |path: PathBuf| {
            let bytes = fs::read(path).ok()?;
            let nanos =
                |from| Some(u64::from_le_bytes(bytes.get(from..from + 8)?.try_into().ok()?));
            Some(Life {
                first: Duration::from_nanos(nanos(0)?),
                last: Duration::from_nanos(nanos(8)?),
            })
        };
        entries.filter_map(|entry| life(entry.ok()?.path())).collect()
    }

    /// Returns what start and stop did, a line each.
    pub(crate) fn journal(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.0.join(flaw.name()).exists()
    }

    /// Hangs while told to; returns whether it did.
    fn hang(&self, flaw: Flaw) -> bool {
        let mut hung = false;
        while self.is(flaw) {
            if !hung {
                self.note(flaw.name());
            }
            hung = true;
            thread::sleep(LOOK * 10);
        }
        hung
    }

    fn note(&self, what: &str) {
        let journal = OpenOptions::new().append(true).create(true).open(self.0.join("journal"));
        let line = format!("{:.3} {what}\n", now().as_secs_f64() * 1000.0);
        let _ = journal.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn check(&self) -> bool {
        if self.is(Flaw::CheckChatters) {
            let mut out = std::io::stdout().lock();
            for _ in 0..CHATTER {
                let _ = writeln!(out, "{CHATTER_LINE:.<CHATTER_BYTES$}");
            }
        }
        !self.hang(Flaw::CheckHangs) && !self.is(Flaw::CheckFails)
    }

    fn start(&self) -> bool {
        if self.hang(Flaw::StartHangs) || self.is(Flaw::StartFails) {
            return false;
        }
        if is_held(&self.pipe()) {
            return true;
        }
        let began = now();
        let started = Command::new(program())
            .arg("service")
            .arg(&self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            return false;
        };
        while !is_held(&self.pipe()) {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            thread::sleep(LOOK);
        }
        let took = (now() - began).as_secs_f64() * 1000.0;
        self.note(&format!("started in {took:.1} ms"));
        true
    }

    fn stop(&self) -> bool {
        if self.hang(Flaw::StopHangs) || self.is(Flaw::StopFails) {
            self.note("stop failed as told");
            return false;
        }
        self.end("stop")
    }

    /// Kills what holds the pipe until nothing does.
    fn end(&self, why: &str) -> bool {
        let held = is_held(&self.pipe());
        while is_held(&self.pipe()) {
            for pid in self.running() {
                signal(pid, Signal::KILL);
            }
        }
        if held {
            self.note(&format!("ended by {why}"));
        }
        true
    }

    /// The service itself. It can be seen before it leaves the group of the command that started
    /// it: an early kill of that group kills the service too.
    fn serve(&self) -> bool {
        let pipe = OpenOptions::new().read(true).write(true).open(self.pipe());
        let first = nanos(now());
        let life = self.0.join("lives").join(first.to_string());
        let (Ok(_pipe), Ok(life)) = (pipe, File::create(life)) else {
            return false;
        };
        let _ = rustix::process::setsid();
        loop {
            let beat = [first, nanos(now())].map(u64::to_le_bytes).concat();
            if life.write_all_at(&beat, 0).is_err() {
                return false;
            }
            thread::sleep(BEAT);
        }
    }

    /// Returns the processes of this host's service.
    fn running(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        let wanted = [b"\0service\0", self.0.as_os_str().as_encoded_bytes(), b"\0"].concat();
        let pid = |name: &str| {
            let pid = name.parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            line.ends_with(&wanted).then_some(pid)
        };
        entries.filter_map(|entry| pid(entry.ok()?.file_name().to_str()?)).collect()
    }
}

fn nanos(at: At) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

fn program() -> PathBuf {
    std::env::current_exe().expect("this program has a name")
}
