//! The service that must run at most once, as three small shell commands, and how
//! to see from outside whether it runs.
//!
//! A running service is a process that holds the read end of a named pipe. Whether
//! anybody does is answered by the kernel when the pipe is opened for writing
//! without blocking: no pid file can be stale in that, and nothing is disturbed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use super::process::Folder;

/// One host's service.
#[derive(Debug)]
pub(crate) struct Service {
    folder: Folder,
    idle: bool,
}

impl Service {
    /// Makes a service that does not run yet.
    pub(crate) fn new() -> Service {
        let folder = Folder::new("host");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, folder.join("alive"), FileType::Fifo, mode, 0)
            .expect("a named pipe can be made");
        Service {
            folder,
            idle: false,
        }
    }

    /// Makes all three commands of the next agent do nothing.
    pub(crate) fn do_nothing(&mut self) {
        self.idle = true;
    }

    /// Returns a name that no other service of this rig has.
    pub(crate) fn name(&self) -> &str {
        self.folder.name()
    }

    /// Returns the named pipe that the running service holds.
    pub(crate) fn pipe(&self) -> PathBuf {
        self.folder.join("alive")
    }

    /// Returns the health check: as slow as told, and well unless told otherwise.
    pub(crate) fn check_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.folder.text();
        format!("if test -e {d}/slow; then read s <{d}/slow; sleep \"$s\"; fi; test ! -e {d}/sick")
    }

    /// Returns the start command. The service runs when it ends.
    ///
    /// The service has a session of its own, so that it does not belong to the
    /// start command's process group.
    pub(crate) fn start_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.folder.text();
        format!(
            "test -e {d}/pid && read p <{d}/pid && test {d}/alive -ef /proc/$p/fd/0 && exit 0; \
             setsid sleep 86400 <>{d}/alive >/dev/null 2>&1 & p=$!; echo $p >{d}/pid; \
             until test {d}/alive -ef /proc/$p/fd/0; do kill -0 $p || exit 1; done"
        )
    }

    /// Returns the stop command. The service does not run when it ends.
    pub(crate) fn stop_command(&self) -> String {
        if self.idle {
            return "true".to_owned();
        }
        let d = self.folder.text();
        format!(
            "test -e {d}/pid || exit 0; read p <{d}/pid; kill -9 $p 2>/dev/null; \
             while test {d}/alive -ef /proc/$p/fd/0; do :; done; rm -f {d}/pid"
        )
    }

    /// Makes the health check fail, or succeed again.
    pub(crate) fn set_sick(&self, sick: bool) {
        let file = self.folder.join("sick");
        if sick {
            fs::write(file, "").expect("the host's folder can be written");
        } else {
            let _ = fs::remove_file(file);
        }
    }

    /// Makes the health check last at least `time`.
    pub(crate) fn set_slow(&self, time: Duration) {
        let file = self.folder.join("slow");
        if time.is_zero() {
            let _ = fs::remove_file(file);
            return;
        }
        let new = self.folder.join("slow.new");
        fs::write(&new, format!("{:.3}\n", time.as_secs_f64()))
            .and_then(|()| fs::rename(&new, file))
            .expect("the host's folder can be written");
    }

    /// Forgets what a reboot forgets.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(self.folder.join("pid"));
    }
}

/// Returns whether somebody holds the read end of `pipe`.
pub(crate) fn is_held(pipe: &Path) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(pipe, flags, Mode::empty()).is_ok()
}
