//! Resolves a name, and connects to an address, by a deadline.
//!
//! A lookup of a name has no deadline of its own, so another thread performs it and
//! keeps running when the deadline passes first. The next attempt for the same name
//! waits for the same thread: a dead name service costs one thread per name, not one
//! per attempt.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::io_error_text;
use super::task::Task;
use crate::core::Instant;
use crate::sys::{self, Alarm, PollFlags};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Most lookups at a time. Bounds the threads that a dead name service can occupy,
/// however many names a server advertises.
const LOOKUPS_MAX: usize = 16;

/// Greatest age of an answer, counted from the start of its lookup. An answer that was
/// too late for its attempt serves the next one, but not an attempt much later.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(60);

/// The lookups under way, at most one per name.
#[derive(Default)]
pub(super) struct Dialer {
    lookups: Vec<Lookup>,
}

struct Lookup {
    host: String,
    began_at: Instant,
    task: Task<io::Result<Vec<IpAddr>>>,
}

impl Dialer {
    /// Returns the addresses of a name, at least one and at most [`ADDRESSES_MAX`].
    pub(super) fn resolve(&mut self, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, String> {
        let index = self.begin(host)?;
        let done = (self.lookups[index].task.done(), PollFlags::IN);
        let waited = Alarm::new().and_then(|alarm| alarm.wait([done], Some(deadline)));
        if matches!(waited, Ok([false])) {
            return Err("its name was not looked up in time".to_owned());
        }
        let lookup = self.lookups.swap_remove(index);
        let answer = lookup.task.into_result().ok_or("the lookup of its name failed")?;
        match answer.map_err(|error| io_error_text(&error))? {
            none if none.is_empty() => Err("its name has no address".to_owned()),
            addresses => Ok(addresses),
        }
    }

    /// Starts the lookup of a name unless it is under way; returns its index.
    fn begin(&mut self, host: &str) -> Result<usize, String> {
        let began = sys::now();
        let old = |lookup: &Lookup| began.since(lookup.began_at) > ANSWER_AGE_MAX;
        self.lookups.retain(|lookup| !lookup.task.is_done() || !old(lookup));
        if let Some(known) = self.lookups.iter().position(|lookup| lookup.host == host) {
            return Ok(known);
        }
        if self.lookups.len() == LOOKUPS_MAX {
            return Err("too many names are being looked up".to_owned());
        }
        let name = host.to_owned();
        let task = Task::start("lookup", move || look_up(&name));
        let task = task.map_err(|error| format!("no lookup: {}", io_error_text(&error)))?;
        self.lookups.push(Lookup { host: host.to_owned(), began_at: began, task });
        Ok(self.lookups.len() - 1)
    }
}

fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(addresses)
}

/// Connects to an address.
///
/// # Errors
///
/// The reason, without the address.
pub(super) fn connect(
    address: SocketAddr,
    alarm: &Alarm,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let stream = start(address)?;
    let [ready] = alarm.wait([(stream.as_fd(), PollFlags::OUT)], Some(deadline))?;
    if !ready {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"));
    }
    sockopt::socket_error(&stream)??;
    // A socket can connect to itself when the port is in the kernel's own range.
    if stream.local_addr().is_ok_and(|local| local == address) {
        return Err(Errno::CONNREFUSED.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Starts to connect without waiting.
fn start(address: SocketAddr) -> io::Result<TcpStream> {
    let family = SocketAddrAny::from(address).address_family();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use crossbeam_channel::{Sender, bounded};

    use super::*;

    fn alarm() -> Alarm {
        Alarm::new().expect("a descriptor")
    }

    fn give_up() -> Instant {
        sys::now().after(sys::PATIENCE)
    }

    #[test]
    fn a_name_and_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let mut dialer = Dialer::default();
        let addresses = dialer.resolve("localhost", give_up()).expect("a name of each host");
        assert!(dialer.lookups.is_empty());
        let address = addresses.into_iter().find(IpAddr::is_ipv4).expect("127.0.0.1");
        let stream =
            connect(SocketAddr::new(address, port), &alarm(), give_up()).expect("accepted");
        assert!(stream.nodelay().expect("an option"));
        drop(listener);
        let refused = connect(SocketAddr::new(address, port), &alarm(), give_up());
        let refused = refused.expect_err("nobody listens");
        assert_eq!(io_error_text(&refused), "connection refused");
    }

    /// A lookup that ends when the test sends its answer.
    fn pending(host: &str) -> (Lookup, Sender<io::Result<Vec<IpAddr>>>) {
        let (sender, answer) = bounded(1);
        let died = || io::Error::other("the test is over");
        let wait = move || answer.recv().unwrap_or_else(|_| Err(died()));
        let task = Task::start("lookup", wait).expect("a thread");
        (Lookup { host: host.to_owned(), began_at: sys::now(), task }, sender)
    }

    #[test]
    fn a_lookup_that_hangs_is_waited_for_again_and_not_repeated() {
        let (lookup, sender) = pending("slow.example");
        let lookups = vec![lookup];
        let mut dialer = Dialer { lookups };
        for _ in 0..3 {
            let deadline = sys::now().after(Duration::from_millis(10));
            let late = dialer.resolve("slow.example", deadline).expect_err("hangs");
            assert_eq!(late, "its name was not looked up in time");
            assert_eq!(dialer.lookups.len(), 1);
        }
        sender.send(Ok(Vec::new())).expect("room");
        let none = dialer.resolve("slow.example", give_up());
        assert_eq!(none.expect_err("no address"), "its name has no address");
        assert!(dialer.lookups.is_empty());
    }

    #[test]
    fn hanging_lookups_are_counted_and_old_answers_dropped() {
        let hanging: Vec<_> = (0..LOOKUPS_MAX).map(|i| pending(&format!("h{i}.example"))).collect();
        let (lookups, senders): (Vec<_>, Vec<_>) = hanging.into_iter().unzip();
        let mut dialer = Dialer { lookups };
        let refused = dialer.resolve("localhost", give_up()).expect_err("no room");
        assert_eq!(refused, "too many names are being looked up");
        senders[3].send(Ok(Vec::new())).expect("room");
        let done = (dialer.lookups[3].task.done(), PollFlags::IN);
        assert_eq!(alarm().wait([done], Some(give_up())).expect("a timer"), [true]);
        dialer.lookups[3].began_at = Instant::from_boot(Duration::ZERO);
        if sys::now().since_boot() > ANSWER_AGE_MAX {
            assert!(dialer.resolve("localhost", give_up()).is_ok());
            assert_eq!(dialer.lookups.len(), LOOKUPS_MAX - 1);
        }
    }
}
