//! A terminal with a shell on it, which a test types at.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Child;

use rustix::pty::OpenptFlags;

use crate::site::Site;
use crate::support::clock::{PATIENCE, now};
use crate::support::programs;

pub(crate) const CONTROL_C: &str = "\x03";
pub(crate) const CONTROL_Z: &str = "\x1a";

/// A terminal, and an interactive shell that leads its session.
pub(crate) struct Terminal {
    keyboard: File,
    shell: Child,
    /// Output that was shown and not waited for yet.
    unread: String,
}

impl Terminal {
    /// Starts the shell that is there everywhere. At it, `$P lock $S` is a putex lock with the
    /// store of the site, and `$D` the folder of its sandbox.
    pub(crate) fn begin(site: &Site) -> Terminal {
        Terminal::with(site, &["sh", "-i"])
    }

    /// Starts bash.
    pub(crate) fn with_bash(site: &Site) -> Terminal {
        Terminal::with(site, &["bash", "--norc", "--noprofile", "--noediting", "-i"])
    }

    /// Starts this program in the place of a shell, and waits for its prompt.
    pub(crate) fn with(site: &Site, shell: &[&str]) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::grantpt(&keyboard).expect("a terminal");
        rustix::pty::unlockpt(&keyboard).expect("a terminal");
        let name = rustix::pty::ptsname(&keyboard, Vec::new()).expect("a name");
        let name = name.into_string().expect("a path");
        let no_tty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).expect("a flag");
        let mut open = File::options();
        let open = open.read(true).write(true).custom_flags(no_tty);
        let screen = || open.open(&name).expect("a terminal");
        let shell = site
            .sandbox
            .command("setsid")
            .args(["--ctty", "--wait"])
            .args(shell)
            .env("HISTFILE", "")
            .env("P", programs::putex())
            .env("S", site.options().join(" "))
            .env("D", site.sandbox.text())
            .env("PS1", "> ")
            .env_remove("ENV")
            .stdin(screen())
            .stdout(screen())
            .stderr(screen())
            .spawn()
            .expect("a shell");
        let mut terminal = Terminal { keyboard: keyboard.into(), shell, unread: String::new() };
        terminal.wait_for("> ");
        terminal
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Types a line. The terminal shows it, so it must not have what is waited for.
    pub(crate) fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until this is shown; returns what was shown before.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = now() + PATIENCE;
        loop {
            if let Some((before, after)) = self.unread.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.unread = after;
                return before;
            }
            let mut fds =
                [rustix::event::PollFd::new(&self.keyboard, rustix::event::PollFlags::IN)];
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&second)).expect("it waits");
            assert!(now() < until, "{text:?} is not in {:?}", self.unread);
            if !fds[0].revents().is_empty() {
                let mut part = [0; 1024];
                let length = self.keyboard.read(&mut part).expect("a terminal");
                self.unread.push_str(&String::from_utf8_lossy(&part[..length]));
            }
        }
    }

    /// Returns whether it is that of this process group.
    pub(crate) fn is_of(&self, group: u32) -> bool {
        let owner = rustix::termios::tcgetpgrp(&self.keyboard).expect("a group");
        owner.as_raw_nonzero().get().cast_unsigned() == group
    }

    /// Expects this status of the last command.
    pub(crate) fn expect_status(&mut self, status: i32) {
        self.enter("echo status''=$?.");
        self.wait_for("status=");
        assert_eq!(self.wait_for("."), status.to_string());
        self.wait_for("> ");
    }

    /// Has the shell end.
    pub(crate) fn end(mut self) {
        self.enter("exit 0");
        self.ended();
    }

    /// Waits for the end of the shell; returns its status.
    pub(crate) fn ended(mut self) -> Option<i32> {
        let ended = crate::support::process::wait_exit(&mut self.shell, now() + PATIENCE);
        let ended = ended.unwrap_or_else(|| panic!("the shell does not end: {}", self.unread));
        ended.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
