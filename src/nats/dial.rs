//! Gets a connection to one of the servers by a deadline: lookups and handshakes, each in a thread
//! of its own, begun as the pool says.
//!
//! What is under way when the deadline passes goes on, and the next call takes its result: a
//! dead name service costs one thread for each name, and a slow login is not begun again.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::connect_options::ConnectOptions;
use super::link::Link;
use super::pool::{Candidate, Candidates, Failure, HANDSHAKE_LIMIT, HandshakeStep, Next};
use super::task::Task;
use super::{io_error_text, no_timer, random};
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm, PollFlags};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Greatest age of a result, counted from the start of its attempt.
const RESULT_AGE_MAX: Duration = Duration::from_secs(60);

/// What the thread of a handshake and its owner tell each other.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The server has sent INFO.
    pub(super) is_greeted: AtomicBool,
    /// Its connection is not wanted any more.
    pub(super) is_given_up: AtomicBool,
}

/// A lookup or a handshake under way.
struct Attempt {
    id: u64,
    began: Instant,
    work: Work,
}

enum Work {
    Lookup(Task<io::Result<Vec<IpAddr>>>),
    Handshake {
        task: Task<Result<Link, (Failure, StoreError)>>,
        progress: Arc<Handshake>,
        has_password: bool,
    },
}

impl Attempt {
    /// Returns a descriptor that is readable when it has ended.
    fn done(&self) -> BorrowedFd<'_> {
        match &self.work {
            Work::Lookup(task) => task.done(),
            Work::Handshake { task, .. } => task.done(),
        }
    }

    fn is_done(&self) -> bool {
        match &self.work {
            Work::Lookup(task) => task.is_done(),
            Work::Handshake { task, .. } => task.is_done(),
        }
    }
}

/// The servers, and what is under way to reach them.
pub(super) struct Dialer {
    pub(super) pool: Candidates,
    options: Arc<ConnectOptions>,
    attempts: Vec<Attempt>,
}

impl Dialer {
    /// Returns a dialer under which nothing is under way.
    pub(super) fn new(pool: Candidates, options: Arc<ConnectOptions>) -> Dialer {
        Dialer { pool, options, attempts: Vec::new() }
    }

    /// Returns a connection: the first that is ready. Nothing else is under way then but lookups.
    ///
    /// # Errors
    ///
    /// At the deadline, or when all servers were tried in vain. The text has their reasons.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<Link, StoreError> {
        let (began, mut kind) = (sys::now(), Kind::Unreachable);
        self.drop_old_results(began);
        loop {
            let now = sys::now();
            if let Some(index) = self.attempts.iter().position(Attempt::is_done) {
                let attempt = self.attempts.swap_remove(index);
                match self.finish(attempt, now) {
                    Ok(Some(link)) => return Ok(link),
                    Ok(None) => {}
                    Err(failed) => kind = kind.max(failed),
                }
                continue;
            }
            self.note_steps();
            if now >= deadline {
                break;
            }
            match self.pool.next(began, now) {
                Next::Begin(candidate) => self.begin(*candidate, now, deadline),
                Next::Wait(until) => self.wait(until.map_or(deadline, |at| at.min(deadline)))?,
                Next::Over => break,
            }
        }
        let kind = if kind == Kind::Unfit { Kind::Unreachable } else { kind };
        Err(kind.error(self.pool.faults()))
    }

    /// Begins a lookup or a handshake.
    fn begin(&mut self, candidate: Candidate, now: Instant, deadline: Instant) {
        let id = candidate.id;
        let work = match candidate.address {
            Some(address) => self.handshake(candidate, address, now, deadline),
            None => {
                let task = Task::start("lookup", move || look_up(&candidate.server.host));
                task.map(Work::Lookup)
            }
        };
        match work {
            Ok(work) => self.attempts.push(Attempt { id, began: now, work }),
            Err(error) => {
                let why = io_error_text(&error);
                self.pool.failed(id, Failure::Unreached, why, now, random());
            }
        }
    }

    fn handshake(
        &self,
        candidate: Candidate,
        address: IpAddr,
        now: Instant,
        deadline: Instant,
    ) -> io::Result<Work> {
        let has_password = self.options.login_of(&candidate.server).has_password();
        let progress = Arc::new(Handshake::default());
        let (options, shared) = (Arc::clone(&self.options), Arc::clone(&progress));
        let make = move |by| Link::make(&candidate, address, &options, &shared, by);
        let by = now.after(HANDSHAKE_LIMIT);
        // A file with credentials may hang. Where the service has used up all threads, nothing is
        // tried beside.
        let task = Task::start("connect", {
            let make = make.clone();
            move || make(by)
        });
        let task = task.or_else(|_| Task::ended(make(by.min(deadline))))?;
        Ok(Work::Handshake { task, progress, has_password })
    }

    /// Tells the pool which servers have sent INFO.
    fn note_steps(&mut self) {
        for Attempt { id, work, .. } in &self.attempts {
            if let Work::Handshake { progress, has_password, .. } = work
                && progress.is_greeted.load(Ordering::Relaxed)
            {
                let step =
                    if *has_password { HandshakeStep::Hashing } else { HandshakeStep::Greeted };
                self.pool.reached(*id, step);
            }
        }
    }

    /// Waits until an attempt has ended.
    fn wait(&self, until: Instant) -> Result<(), StoreError> {
        let alarm = Alarm::new().map_err(no_timer)?;
        let done = self.attempts.iter().map(Attempt::done);
        let mut fds: Vec<_> = done.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        alarm.poll(&mut fds, Some(until)).map(drop).map_err(no_timer)
    }

    /// Takes the result of an attempt that has ended: its connection, or the kind of its failure.
    fn finish(&mut self, attempt: Attempt, now: Instant) -> Result<Option<Link>, Kind> {
        let Attempt { id, began, work } = attempt;
        let died = || Kind::Unreachable.error("its thread ended");
        let (failure, StoreError { kind, text }) = match work {
            Work::Lookup(task) => match task.into_result() {
                Some(Ok(addresses)) if !addresses.is_empty() => {
                    self.pool.resolved(id, &addresses, now);
                    return Ok(None);
                }
                Some(Ok(_)) => {
                    (Failure::Unreached, Kind::Unreachable.error("its name has no address"))
                }
                Some(Err(error)) => {
                    (Failure::Unreached, Kind::Unreachable.error(io_error_text(&error)))
                }
                None => (Failure::Unreached, died()),
            },
            Work::Handshake { task, .. } => match task.into_result() {
                Some(Ok(link)) => {
                    self.pool.connected(id, now.since(began), now);
                    self.give_up_handshakes(now);
                    return Ok(Some(link));
                }
                Some(Err(failed)) => failed,
                None => (Failure::Unreached, died()),
            },
        };
        self.pool.failed(id, failure, text, now, random());
        Err(kind)
    }

    fn give_up_handshakes(&mut self, now: Instant) {
        let is_handshake = |it: &mut Attempt| matches!(it.work, Work::Handshake { .. });
        for Attempt { id, work, .. } in self.attempts.extract_if(.., is_handshake) {
            if let Work::Handshake { progress, .. } = work {
                progress.is_given_up.store(true, Ordering::Relaxed);
            }
            self.pool.gave_up(id, now);
        }
    }

    /// Drops what an earlier call has begun and what has ended long ago.
    fn drop_old_results(&mut self, now: Instant) {
        let is_old = |it: &mut Attempt| it.is_done() && now.since(it.began) > RESULT_AGE_MAX;
        for Attempt { id, .. } in self.attempts.extract_if(.., is_old) {
            self.pool.gave_up(id, now);
        }
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
        let addresses = look_up("localhost").expect("a name of each host");
        let address = addresses.into_iter().find(IpAddr::is_ipv4).expect("127.0.0.1");
        let stream =
            connect(SocketAddr::new(address, port), &alarm(), give_up()).expect("accepted");
        assert!(stream.nodelay().expect("an option"));
        drop(listener);
        let refused = connect(SocketAddr::new(address, port), &alarm(), give_up());
        let refused = refused.expect_err("nobody listens");
        assert_eq!(io_error_text(&refused), "connection refused");
    }
}
