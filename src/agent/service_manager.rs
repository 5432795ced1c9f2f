//! The notifications to the service manager: ready, status, keepalive, stopping. s6 gets a
//! line on a descriptor; systemd, and managers with the same protocol, get datagrams.
//!
//! The main thread alone sends keepalives: it runs the turn loop, so a pump that hangs sends none.
//! Nothing here waits: a notification for which a manager has no room is sent with the next
//! keepalive or after the next turn, in its order. Only the newest keepalive and status count.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::core::{AgentStatus, Instant};
use crate::log::one_line;
use crate::sys;

/// Keepalives in the period after which the manager takes the agent for dead: one of them
/// may be lost.
const KEEPALIVES: u32 = 3;

/// The shortest interval between keepalives: the loop has other things to do.
const KEEPALIVE_MIN: Duration = Duration::from_millis(1);

/// Looks up a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The service manager, as the main thread notifies it.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// The socket, and the address of the manager, if the environment names one.
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The manager knows that the agent stands by.
    ready: bool,
    descriptor: Option<OwnedFd>,
    /// The interval of keepalives, and when the next is due.
    keepalive: Option<(Duration, Instant)>,
    /// The status that the manager has got last.
    status: String,
    /// The notifications for which the manager had no room, in their order, before all later ones:
    /// a manager that misses the end of a reload takes the agent for one that hangs.
    unsent: VecDeque<String>,
}

impl ServiceManager {
    /// Returns the manager of the environment. `notify_fd` is the descriptor of `--notify-fd`,
    /// which must be taken before this process opens one of that number.
    ///
    /// # Errors
    ///
    /// The descriptor, or a variable, that cannot be used, and why.
    pub fn of_environment(
        notify_fd: Option<i32>,
        variable: Variable<'_>,
    ) -> Result<ServiceManager, String> {
        let descriptor = notify_fd.map(|number| {
            sys::raw::inherited(number).map_err(|error| {
                format!(
                    "--notify-fd: {number}: {error}; the program that starts the agent opens it"
                )
            })
        });
        let name = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let connect = |name: OsString| {
            connect(&name).map_err(|why| format!("NOTIFY_SOCKET: {}: {why}", name.display()))
        };
        Ok(ServiceManager {
            socket: name.map(connect).transpose()?,
            descriptor: descriptor.transpose()?,
            keepalive: period(variable)
                .map(|period| ((period / KEEPALIVES).max(KEEPALIVE_MIN), sys::now())),
            ..ServiceManager::default()
        })
    }

    /// Returns whether the manager took the text, or there is no manager.
    fn send(&self, text: &str) -> bool {
        let Some((socket, address)) = &self.socket else { return true };
        socket.send_to_addr(text.as_bytes(), address).is_ok()
    }

    /// Sends the rest of earlier notifications; returns whether nothing is left.
    fn send_unsent(&mut self) -> bool {
        while self.unsent.front().is_some_and(|text| self.send(text)) {
            self.unsent.pop_front();
        }
        self.unsent.is_empty()
    }

    /// Sends a notification, or keeps it until the manager has room.
    fn send_or_keep(&mut self, text: String) {
        self.unsent.push_back(text);
        self.send_unsent();
    }

    /// Tells the manager that a reload is done. Nothing is sent before the agent stands by: the
    /// message says `READY=1` too.
    pub(super) fn send_reloaded(&mut self) {
        if !self.ready {
            return;
        }
        let since_boot = sys::monotonic().as_micros();
        self.send_or_keep(format!("RELOADING=1\nMONOTONIC_USEC={since_boot}"));
        self.send_or_keep("READY=1".to_owned());
    }

    /// Returns whether there is a manager for [`ServiceManager::notify`] to tell.
    pub(super) fn is_told(&self) -> bool {
        self.socket.is_some() || self.descriptor.is_some()
    }

    /// Sends `READY=1` when the agent stands by for the first time, and a status that is new.
    pub(super) fn notify(&mut self, status: &AgentStatus, is_ready: bool) {
        if !self.send_unsent() {
            return;
        }
        let ready = is_ready && !self.ready;
        if ready
            && let Some(descriptor) = self.descriptor.take()
            && let Err(error) = write_line(descriptor)
        {
            log::warn!("--notify-fd: {error}");
        }
        let mut message = if ready { "READY=1\n".to_owned() } else { String::new() };
        let status = one_line(&format!("{}: {}", status.state, status.remarks()));
        if self.status != status {
            message.push_str(&format!("STATUS={status}\n"));
        }
        if !message.is_empty() && self.send(&message) {
            self.status = status;
            self.ready |= ready;
        }
    }

    /// Tells that the agent is ending, and how long the end may take.
    pub(super) fn send_stopping(&mut self, at_most: Duration) {
        self.send_or_keep(format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", at_most.as_micros()));
    }

    /// Returns when the next keepalive is due.
    pub(super) fn keepalive_due(&self) -> Option<Instant> {
        self.keepalive.map(|(_, next)| next)
    }

    /// Sends a keepalive if it is due.
    pub(super) fn keepalive(&mut self, now: Instant) {
        if let Some((every, next)) = &mut self.keepalive
            && now >= *next
        {
            *next = now.after(*every);
            self.send_unsent();
            self.send("WATCHDOG=1");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        _ => Err(io::Error::other("is neither a path nor a name after @")),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Returns the longest time without a keepalive, if the variables are meant for this process.
fn period(variable: Variable<'_>) -> Option<Duration> {
    let own = std::process::id().to_string();
    if variable("WATCHDOG_PID").is_some_and(|pid| pid != *own) {
        return None;
    }
    let micros: u64 = variable("WATCHDOG_USEC")?.to_str()?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// Writes a blank line without waiting, and closes.
fn write_line(descriptor: OwnedFd) -> io::Result<()> {
    // A check for room would not help: another writer may take it first.
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    File::from(descriptor).write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::core::AgentState;

    /// Returns the manager of an environment with these variables.
    fn manager(
        variables: &[(&str, &str)],
        descriptor: Option<OwnedFd>,
    ) -> Result<ServiceManager, String> {
        ServiceManager::of_environment(
            descriptor.map(std::os::fd::IntoRawFd::into_raw_fd),
            &|name| {
                let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
                Some(value.into())
            },
        )
    }

    /// A service manager's end of an abstract socket, and `NOTIFY_SOCKET`.
    fn bind(name: &str) -> (UnixDatagram, String) {
        let name = format!("putex-notify-{}-{name}", std::process::id());
        let own = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&own).expect("nobody else has it");
        socket.set_nonblocking(true).expect("it can be asked");
        (socket, format!("@{name}"))
    }

    fn status(state: AgentState) -> AgentStatus {
        AgentStatus { state, why: "a reason".to_owned(), ..AgentStatus::of_candidate("h1") }
    }

    /// Returns the line about a status.
    fn line_of(status: &AgentStatus) -> String {
        format!("STATUS={}: {}\n", status.state, status.remarks())
    }

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut buffer = [0; 512];
        let count = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
    }

    #[test]
    fn ready_is_sent_once() {
        let (socket, name) = bind("ready");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut manager = manager(&[("NOTIFY_SOCKET", &name)], Some(writer.into()))
            .expect("the environment is right");
        let standby = AgentStatus::of_candidate("h1");
        manager.notify(&standby, false);
        let first = received(&socket).expect("the status");
        assert_eq!(first, line_of(&standby));
        manager.send_reloaded();
        assert_eq!(received(&socket), None, "it does not stand by yet");
        manager.notify(&standby, true);
        manager.notify(&standby, true);
        assert_eq!(received(&socket).as_deref(), Some("READY=1\n"));
        assert_eq!(received(&socket), None);
        let active = status(AgentState::Active);
        manager.notify(&active, true);
        assert_eq!(received(&socket), Some(line_of(&active)));
        let mut line = String::new();
        reader.read_to_string(&mut line).expect("it was closed");
        assert_eq!(line, "\n");
        manager.send_reloaded();
        let reloading = received(&socket).expect("it stands by");
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(received(&socket).as_deref(), Some("READY=1"));
    }

    #[test]
    fn a_notification_that_a_manager_had_no_room_for_is_repeated() {
        let (socket, name) = bind("full");
        let mut manager =
            manager(&[("NOTIFY_SOCKET", &name)], None).expect("the environment is right");
        let mut filler = 0;
        while manager.send("filler") {
            filler += 1;
        }
        let active = status(AgentState::Active);
        manager.notify(&active, true);
        for _ in 0..filler {
            assert_eq!(received(&socket).as_deref(), Some("filler"));
        }
        assert_eq!(received(&socket), None);
        manager.notify(&active, true);
        let message = received(&socket).expect("there is room now");
        assert_eq!(message, format!("READY=1\n{}", line_of(&active)));
        manager.notify(&active, true);
        assert_eq!(received(&socket), None);
    }

    #[test]
    fn the_end_of_a_reload_and_of_the_agent_reach_a_manager_that_had_no_room() {
        let (socket, name) = bind("late");
        let variables = [("NOTIFY_SOCKET", &*name), ("WATCHDOG_USEC", "3000000")];
        let mut manager = manager(&variables, None).expect("the environment is right");
        manager.notify(&status(AgentState::Active), true);
        assert!(received(&socket).is_some_and(|text| text.starts_with("READY=1\n")));
        let next = || received(&socket).filter(|text| text != "filler");
        let fill = |manager: &ServiceManager| while manager.send("filler") {};
        let drain = || while received(&socket).is_some() {};
        fill(&manager);
        // There is room for the first half of a reload.
        assert_eq!(received(&socket).as_deref(), Some("filler"));
        manager.send_reloaded();
        drain();
        manager.keepalive(manager.keepalive_due().expect("there is a watchdog"));
        assert_eq!(next().as_deref(), Some("READY=1"));
        assert_eq!(next().as_deref(), Some("WATCHDOG=1"));
        fill(&manager);
        manager.send_stopping(Duration::from_secs(1));
        manager.send_reloaded();
        let stopping = status(AgentState::Stopping);
        manager.notify(&stopping, true);
        drain();
        manager.notify(&stopping, true);
        assert_eq!(next().as_deref(), Some("STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000"));
        assert!(next().is_some_and(|text| text.starts_with("RELOADING=1\n")));
        assert_eq!(next().as_deref(), Some("READY=1"));
        assert_eq!(next(), Some(line_of(&stopping)));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_keepalive_is_sent_only_when_it_is_due() {
        let (socket, name) = bind("keepalive");
        let own = std::process::id().to_string();
        let watched = |pid: &str| {
            let variables =
                [("NOTIFY_SOCKET", &*name), ("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", pid)];
            manager(&variables, None).expect("the environment is right")
        };
        assert_eq!(watched("1").keepalive_due(), None, "it was meant for another process");
        let mut manager = watched(&own);
        let now = manager.keepalive_due().expect("there is a watchdog");
        manager.keepalive(now);
        assert_eq!(received(&socket).as_deref(), Some("WATCHDOG=1"));
        manager.keepalive(now);
        assert_eq!(received(&socket), None, "it is too early");
        assert_eq!(manager.keepalive_due(), Some(now.after(Duration::from_secs(1))));
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named() {
        let why = manager(&[("NOTIFY_SOCKET", "vsock:2:1234")], None).expect_err("no such address");
        assert!(why.starts_with("NOTIFY_SOCKET: vsock:2:1234: is "), "{why}");
    }
}
