//! strace, which follows threads and has their system calls fail or hang.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::case::{Case, MAIN, is_site};
use crate::support::clock::{now, wait_until};
use crate::support::sandbox::Sandbox;
use crate::support::{process, programs};

/// How long strace may take to begin, and to end, on a loaded machine.
const WITHIN: Duration = Duration::from_secs(10);

/// Follows a process that is no child of strace.
///
/// # Errors
///
/// Why that is not permitted.
pub(crate) fn try_out() -> Result<(), String> {
    let sandbox = Sandbox::new("strace");
    let sleep = sandbox.marked("sleep").arg("60").spawn();
    let mut sleep = sleep.map_err(|error| format!("sleep: {error}"))?;
    let traced = Strace::attach(&sandbox, &[sleep.id()], &[]);
    let _ = sleep.kill();
    let _ = sleep.wait();
    traced.map(drop)
}

/// Returns the threads of a process by their numbers.
pub(crate) fn threads_of(pid: u32) -> BTreeMap<u32, String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let numbers =
        entries.flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let name = |thread: u32| {
        if thread == pid {
            return Some(MAIN.to_owned());
        }
        let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).ok()?;
        Some(name.trim().to_owned())
    };
    numbers.filter_map(|thread| Some((thread, name(thread)?))).collect()
}

/// A strace that follows threads.
#[derive(Debug)]
pub(crate) struct Strace {
    process: Child,
    output: PathBuf,
}

impl Strace {
    /// Attaches to threads, and returns when all of them are followed.
    ///
    /// # Errors
    ///
    /// What strace says of it.
    pub(crate) fn attach(
        sandbox: &Sandbox,
        threads: &[u32],
        options: &[String],
    ) -> Result<Strace, String> {
        let program = programs::tool("strace").ok_or("there is no strace")?;
        let output = sandbox.join("strace");
        let mut command = sandbox.marked(program);
        command.args(["-qq", "-o"]).arg(&output).args(options);
        for thread in threads {
            command.args(["-p", &thread.to_string()]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let process = command.spawn();
        let process = process.map_err(|error| format!("strace: {error}"))?;
        let mut strace = Strace { process, output };
        let attached = || {
            let followed = threads.iter().all(|thread| process::is_traced(*thread));
            let ended = matches!(strace.process.try_wait(), Ok(Some(_)));
            (followed || ended).then_some(followed)
        };
        match wait_until(now() + WITHIN, attached) {
            Some(true) => Ok(strace),
            // The fault has come, and has ended the process.
            Some(false) if !threads.iter().any(|thread| process::lives(*thread)) => Ok(strace),
            Some(false) => Err(strace.stderr()),
            None => Err("strace does not attach".to_owned()),
        }
    }

    /// Returns what strace, which has ended, has said.
    fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text.trim().to_owned()
    }

    /// Returns the line of the call that has the fault, once it was made.
    pub(crate) fn injected(&self, case: &Case) -> Option<String> {
        let begin = format!("{}(", case.site.call);
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        let mut calls = text.lines().filter(|line| line.starts_with(&begin));
        let line = calls.nth(usize::try_from(case.occurrence).ok()?.checked_sub(1)?)?;
        Some(line.to_owned())
    }

    /// Returns how often each thread has made each call, when more than one is followed.
    pub(crate) fn calls(&self) -> BTreeMap<(u32, String), u32> {
        count(&self.output)
    }

    /// Lets the threads go on without strace.
    pub(crate) fn detach(&mut self) {
        process::signal(self.process.id(), Signal::TERM);
        if process::wait_exit(&mut self.process, now() + WITHIN).is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads the lines `THREAD CALL(...`.
fn count(output: &Path) -> BTreeMap<(u32, String), u32> {
    let text = fs::read_to_string(output).unwrap_or_default();
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((call, _)) = rest.trim_start().split_once('(') else {
            continue;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if let Ok(thread) = thread.parse()
            && !call.is_empty()
            && call.chars().all(is_name)
            && is_site(call)
        {
            *calls.entry((thread, call.to_owned())).or_insert(0) += 1;
        }
    }
    calls
}
