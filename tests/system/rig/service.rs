//! The service that must run at most once, as three small shell commands. A running
//! service is a process that holds the read end of a named pipe.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::clock::{At, now};
use crate::support::sandbox::Sandbox;

/// The length of a line that the health check writes without need, in bytes.
pub(crate) const CHATTER_BYTES: usize = 400;

/// The service of a host.
#[derive(Debug)]
pub(crate) struct Service {
    /// The host's folder, and all of its processes.
    pub(crate) sandbox: Sandbox,
    idle: bool,
}

impl Service {
    /// Makes a service that does not run yet.
    pub(crate) fn new() -> Service {
        let sandbox = Sandbox::new("host");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, sandbox.join("alive"), FileType::Fifo, mode, 0)
            .expect("a named pipe can be made");
        Service { sandbox, idle: false }
    }

    /// Makes all three commands of the next agent do nothing.
    pub(crate) fn do_nothing(&mut self) {
        self.idle = true;
    }

    /// Returns the named pipe that the running service holds.
    pub(crate) fn pipe(&self) -> PathBuf {
        self.sandbox.join("alive")
    }

    /// Returns the health check: as slow and as talkative as told, and well unless told
    /// otherwise. It notes the term and the starting service that it was told of.
    pub(crate) fn check_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.sandbox.text();
        format!(
            "echo >>{d}/checks; if test -e {d}/slow; then read s <{d}/slow; sleep \"$s\"; fi; \
             if test -e {d}/chatter; then cat {d}/chatter; fi; \
             if test \"$1\" = active; then echo \"$PUTEX_TERM\" >{d}/term; fi; \
             if test \"$PUTEX_STARTING\"; then echo \"$PUTEX_STARTING\" >{d}/starting; fi; \
             test ! -e {d}/sick"
        )
    }

    /// Returns the start command. The service runs when it ends, or before when it was
    /// made slow.
    ///
    /// The service has a session of its own, so that it does not belong to the
    /// start command's process group.
    pub(crate) fn start_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.sandbox.text();
        format!(
            "test -e {d}/pid && read p <{d}/pid && test {d}/alive -ef /proc/$p/fd/0 && exit 0; \
             if test -e {d}/before; then echo $$ >{d}/starter; read s <{d}/before; sleep $s; fi; \
             setsid sleep 86400 <>{d}/alive >/dev/null 2>&1 & p=$!; echo $p >{d}/pid; \
             until test {d}/alive -ef /proc/$p/fd/0; do kill -0 $p || exit 1; done; \
             if test -e {d}/after; then read s <{d}/after; sleep $s; fi"
        )
    }

    /// Returns the stop command. The service does not run when it ends well, also one
    /// whose start was killed before it could note the number. It hangs or fails when told
    /// to, and notes what ran it.
    pub(crate) fn stop_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.sandbox.text();
        format!(
            "echo $$ >>{d}/stops; if test -e {d}/hang; then exec sleep 86400; fi; \
             if test -s {d}/fail; then read n <{d}/fail; \
             if test $n = 1; then rm {d}/fail; else echo $((n - 1)) >{d}/fail; fi; exit 1; fi; \
             for f in /proc/[0-9]*/fd/0; do test {d}/alive -ef $f || continue; \
             p=${{f#/proc/}}; kill -9 ${{p%%/*}} 2>/dev/null; \
             while test {d}/alive -ef $f; do :; done; done; rm -f {d}/pid"
        )
    }

    /// Returns what kills the service for certain, as a power switch would.
    pub(crate) fn last_resort_command(&self) -> String {
        let d = self.sandbox.text();
        format!(": >{d}/resorted; read p <{d}/pid && kill -9 $p")
    }

    /// Makes the health check fail, or succeed again.
    pub(crate) fn set_sick(&self, sick: bool) {
        self.put("sick", sick.then(String::new));
    }

    /// Makes the health check last at least `time`.
    pub(crate) fn set_slow(&self, time: Duration) {
        self.put_time("slow", time);
    }

    /// Makes the health check print so many lines, or none.
    pub(crate) fn set_chatter(&self, lines: usize) {
        let line = format!("{:.<CHATTER_BYTES$}\n", "the health check has much to say ");
        self.put("chatter", (lines > 0).then(|| line.repeat(lines)));
    }

    /// Makes the next start last `before` until the service runs, and then `after`.
    pub(crate) fn set_start_slow(&self, before: Duration, after: Duration) {
        self.put_time("before", before);
        self.put_time("after", after);
    }

    /// Makes stop hang for ever, or work again.
    pub(crate) fn set_stop_hang(&self, hang: bool) {
        self.put("hang", hang.then(String::new));
    }

    /// Makes stop fail so many times before it works again.
    pub(crate) fn set_stop_failures(&self, count: usize) {
        self.put("fail", (count > 0).then(|| format!("{count}\n")));
    }

    /// Returns how many health checks have begun.
    pub(crate) fn checks(&self) -> usize {
        let text = fs::read_to_string(self.sandbox.join("checks")).unwrap_or_default();
        text.lines().count()
    }

    /// Returns the process number of the service that was started last and not stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.numbers("pid").first().copied()
    }

    /// Returns the process number of the last slow start.
    pub(crate) fn starter(&self) -> Option<u32> {
        self.numbers("starter").first().copied()
    }

    /// Returns the process number of every stop command so far.
    pub(crate) fn stops(&self) -> Vec<u32> {
        self.numbers("stops")
    }

    /// Returns the term that the last check on an active host was told.
    pub(crate) fn term(&self) -> Option<String> {
        self.get("term")
    }

    /// Returns what the last check beside a running start was told of that.
    pub(crate) fn starting(&self) -> Option<String> {
        self.get("starting")
    }

    /// Returns when the last resort has begun, if it has.
    pub(crate) fn resorted_at(&self) -> Option<At> {
        let file = fs::metadata(self.sandbox.join("resorted")).ok()?;
        let ago = file.modified().ok()?.elapsed().unwrap_or_default();
        Some(now().saturating_sub(ago))
    }

    /// Returns the file whose existence makes a thread of a debug build panic.
    pub(crate) fn panic_file(&self) -> PathBuf {
        self.sandbox.join("panic")
    }

    /// Makes the thread panic, or lets the next agent live.
    pub(crate) fn set_panic(&self, panic: bool) {
        self.put("panic", panic.then(String::new));
    }

    fn put_time(&self, name: &str, time: Duration) {
        let text = (!time.is_zero()).then(|| format!("{:.3}\n", time.as_secs_f64()));
        self.put(name, text);
    }

    /// Replaces a file at once, or removes it.
    fn put(&self, name: &str, text: Option<String>) {
        let file = self.sandbox.join(name);
        let Some(text) = text else {
            let _ = fs::remove_file(file);
            return;
        };
        let new = self.sandbox.join("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, file))
            .expect("the host's folder can be written");
    }

    fn get(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.sandbox.join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        let text = self.get(name).unwrap_or_default();
        let numbers = text.split_ascii_whitespace();
        numbers.filter_map(|word| word.parse().ok()).collect()
    }

    /// Forgets what a reboot forgets.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(self.sandbox.join("pid"));
    }
}
