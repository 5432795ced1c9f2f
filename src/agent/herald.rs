//! What the service manager is told: that this agent stands by, what it does, that
//! it lives, that it ends. s6 is told by a line on a descriptor, systemd and those
//! who do as it does by datagrams.
//!
//! The main thread alone says that the agent lives: it is the turn loop, so a pump
//! that hangs is silent. Nothing here waits: what a manager has no room for is said
//! again after the next turn.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::core::event::Level;
use crate::core::time::Instant;
use crate::sys;

/// The agent says that it lives so many times in the period after which it would be
/// taken for dead: one word may be lost.
const PULSES: u32 = 3;

/// But not more often than this: the loop has other things to do.
const PULSE_MIN: Duration = Duration::from_millis(1);

/// What a service manager offers in the environment.
#[derive(Debug, Default)]
pub struct Offer {
    /// `NOTIFY_SOCKET`: a path, or a name after `@`.
    pub socket: Option<OsString>,
    /// `WATCHDOG_USEC`: after so many microseconds of silence the agent is killed.
    pub watchdog: Option<String>,
    /// `WATCHDOG_PID`: whom that is meant for.
    pub watchdog_pid: Option<String>,
}

/// Who takes datagrams, if anybody does. All threads may use it.
#[derive(Debug)]
pub(super) struct Ear {
    way: Option<(UnixDatagram, SocketAddr)>,
    /// It was told that the agent stands by.
    ready: AtomicBool,
}

impl Ear {
    fn new(address: Option<SocketAddr>) -> io::Result<Ear> {
        let way = match address {
            Some(address) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                Some((socket, address))
            }
            None => None,
        };
        let ready = AtomicBool::new(false);
        Ok(Ear { way, ready })
    }

    /// Says whether it was taken, or nobody is there to take it.
    fn tell(&self, text: &str) -> bool {
        match &self.way {
            Some((socket, address)) => socket.send_to_addr(text.as_bytes(), address).is_ok(),
            None => true,
        }
    }

    /// Says that what could be read anew was. Before the agent stands by that would
    /// say too much.
    pub(super) fn reloaded(&self) {
        if self.ready.load(SeqCst) {
            let since_boot = sys::monotonic().as_micros();
            self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={since_boot}"));
            self.tell("READY=1");
        }
    }
}

/// The main thread's way to the service manager.
#[derive(Debug)]
pub struct Herald {
    ear: Arc<Ear>,
    descriptor: Option<OwnedFd>,
    /// How often it is told that this agent lives, and when next.
    pulse: Option<(Duration, Instant)>,
    /// The last thing that was said, and whether the manager knows.
    status: String,
    said: bool,
}

impl Herald {
    /// Prepares; nothing is said yet. `descriptor` is what `--notify-fd` named.
    ///
    /// # Errors
    ///
    /// In words: an offer that cannot be used.
    pub fn new(offer: &Offer, descriptor: Option<OwnedFd>) -> Result<Herald, String> {
        let address = match offer.socket.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(address(name).map_err(|why| {
                let name = name.display();
                format!("NOTIFY_SOCKET: {name}: {why}")
            })?),
            None => None,
        };
        let ear = Ear::new(address).map_err(|error| format!("NOTIFY_SOCKET: {error}"))?;
        Ok(Herald {
            ear: Arc::new(ear),
            descriptor,
            pulse: period(offer).map(|period| ((period / PULSES).max(PULSE_MIN), sys::now())),
            status: String::new(),
            said: true,
        })
    }

    /// Returns what other threads speak into.
    pub(super) fn ear(&self) -> Arc<Ear> {
        Arc::clone(&self.ear)
    }

    /// Notes what the log was told.
    pub(super) fn note(&mut self, level: Level, text: &str) {
        if self.ear.way.is_some() && level != Level::Debug {
            // A change of state stands in the status already.
            let said = match text.split_once(": ") {
                Some((states, why)) if states.contains(" -> ") => why,
                _ => text,
            };
            self.status = said.replace('\n', " ");
            self.said = false;
        }
    }

    /// Tells what is new after a turn.
    pub(super) fn tell(&mut self, state: &str, stands_by: bool) {
        if !stands_by && self.said {
            return;
        }
        let ready = stands_by && !self.ear.ready.load(SeqCst);
        if ready
            && let Some(descriptor) = self.descriptor.take()
            && let Err(error) = write_line(descriptor)
        {
            log::warn!("--notify-fd: {error}");
        }
        let mut news = String::new();
        if ready {
            news.push_str("READY=1\n");
        }
        if !self.said {
            news.push_str(&format!("STATUS={state}: {}\n", self.status));
        }
        if !news.is_empty() && self.ear.tell(&news) {
            self.said = true;
            self.ear.ready.fetch_or(ready, SeqCst);
        }
    }

    /// Says that the agent has been told to end, and how long that may take.
    pub(super) fn ending(&self, at_most: Duration) {
        let at_most = at_most.as_micros();
        self.ear
            .tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={at_most}"));
    }

    /// Returns when [`Herald::pulse`] has something to say.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pulse.map(|(_, next)| next)
    }

    /// Says that the turn loop turns, if it is time.
    pub(super) fn pulse(&mut self, now: Instant) {
        if let Some((every, next)) = &mut self.pulse
            && now >= *next
        {
            *next = now.after(*every);
            self.ear.tell("WATCHDOG=1");
        }
    }
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        _ => Err(io::Error::other("is neither a path nor a name after @")),
    }
}

/// After how long a silent agent is taken for dead, if that was meant for this one.
fn period(offer: &Offer) -> Option<Duration> {
    let own = std::process::id().to_string();
    if offer.watchdog_pid.as_ref().is_some_and(|pid| *pid != own) {
        return None;
    }
    let micros: u64 = offer.watchdog.as_ref()?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// Writes a blank line without waiting, and closes.
fn write_line(descriptor: OwnedFd) -> io::Result<()> {
    // Where there is room now, another writer may take it first.
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    File::from(descriptor).write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A service manager's end of an abstract socket, and the offer of it.
    fn manager(name: &str) -> (UnixDatagram, Offer) {
        let name = format!("putex-herald-{}-{name}", std::process::id());
        let own = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&own).expect("nobody else has it");
        socket.set_nonblocking(true).expect("it can be asked");
        let offer = Offer {
            socket: Some(format!("@{name}").into()),
            ..Offer::default()
        };
        (socket, offer)
    }

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut buffer = [0; 512];
        let count = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
    }

    #[test]
    fn it_says_once_that_the_agent_stands_by() {
        let (socket, offer) = manager("ready");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut herald = Herald::new(&offer, Some(writer.into())).expect("the offer is fine");
        herald.note(Level::Info, "looking -> standby: the bucket is open");
        herald.tell("standby", false);
        let first = heard(&socket).expect("the status");
        assert_eq!(first, "STATUS=standby: the bucket is open\n");
        herald.ear().reloaded();
        assert_eq!(heard(&socket), None, "it does not stand by yet");
        herald.tell("standby", true);
        herald.tell("active", true);
        assert_eq!(heard(&socket).as_deref(), Some("READY=1\n"));
        assert_eq!(heard(&socket), None);
        let mut line = String::new();
        reader.read_to_string(&mut line).expect("it was closed");
        assert_eq!(line, "\n");
        herald.ear().reloaded();
        let reloading = heard(&socket).expect("it stands by");
        assert!(
            reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reloading}"
        );
        assert_eq!(heard(&socket).as_deref(), Some("READY=1"));
    }

    #[test]
    fn what_a_manager_had_no_room_for_is_said_again() {
        let (socket, offer) = manager("full");
        let mut herald = Herald::new(&offer, None).expect("the offer is fine");
        let mut filler = 0;
        while herald.ear.tell("filler") {
            filler += 1;
        }
        herald.note(Level::Info, "the service runs here");
        herald.tell("active", true);
        for _ in 0..filler {
            assert_eq!(heard(&socket).as_deref(), Some("filler"));
        }
        assert_eq!(heard(&socket), None);
        herald.tell("active", true);
        let said = heard(&socket).expect("there is room now");
        assert_eq!(said, "READY=1\nSTATUS=active: the service runs here\n");
        herald.tell("active", true);
        assert_eq!(heard(&socket), None);
    }

    #[test]
    fn it_says_that_the_loop_turns_only_when_it_is_told_so() {
        let (socket, offer) = manager("pulse");
        let own = std::process::id().to_string();
        let watchdog = |pid: &str| Offer {
            socket: offer.socket.clone(),
            watchdog: Some("3000000".to_owned()),
            watchdog_pid: Some(pid.to_owned()),
        };
        let other = Herald::new(&watchdog("1"), None).expect("the offer is fine");
        assert_eq!(other.due(), None, "it was meant for another process");
        let mut herald = Herald::new(&watchdog(&own), None).expect("the offer is fine");
        let now = herald.due().expect("there is a watchdog");
        herald.pulse(now);
        assert_eq!(heard(&socket).as_deref(), Some("WATCHDOG=1"));
        herald.pulse(now);
        assert_eq!(heard(&socket), None, "it is too early");
        assert_eq!(herald.due(), Some(now.after(Duration::from_secs(1))));
    }

    #[test]
    fn an_offer_that_cannot_be_used_is_named() {
        let offer = Offer {
            socket: Some("vsock:2:1234".into()),
            ..Offer::default()
        };
        let why = Herald::new(&offer, None).expect_err("no such way");
        assert!(why.starts_with("NOTIFY_SOCKET: vsock:2:1234: is "), "{why}");
    }
}
