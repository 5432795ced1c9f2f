//! Gets a connection to one of the servers by a deadline: lookups and handshakes, each in a thread
//! of its own, begun as the pool says.
//!
//! What is under way when the deadline passes goes on, and the next call takes its result: a
//! dead name service costs one thread for each name, and a slow login is not begun again.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::connect_options::{ConnectOptions, RefuseAlone};
use super::link::Link;
use super::pool::{Candidate, Candidates, Failure, HANDSHAKE_LIMIT, Next};
use super::url::Server;
use super::{io_error_text, no_timer, random};
use crate::core::{Instant, StoreError, StoreErrorKind as Kind};
use crate::sys::{self, Alarm, PollFlags, Waker};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Greatest age of a result, counted from the start of its attempt.
const RESULT_AGE_MAX: Duration = Duration::from_secs(60);

/// State that the thread of a handshake and its owner share.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The server has sent INFO.
    pub(super) is_greeted: AtomicBool,
    /// Its connection is not wanted any more.
    pub(super) is_given_up: AtomicBool,
}

/// The result of an attempt that succeeded.
enum Reached {
    Addresses(Vec<IpAddr>),
    Link(Box<Link>),
}

/// The end of an attempt.
type Outcome = Result<Reached, (Failure, StoreError)>;

/// A lookup or a handshake under way.
struct Attempt {
    id: u64,
    began: Instant,
    is_lookup: bool,
    progress: Arc<Handshake>,
    /// Has something when it has ended.
    outcome: Receiver<Outcome>,
}

/// The servers, and what is under way to reach them.
pub(super) struct Dialer {
    pub(super) pool: Candidates,
    pub(super) options: Arc<ConnectOptions>,
    attempts: Vec<Attempt>,
    /// Becomes readable when an attempt has ended; made before the first.
    done: Option<Arc<Waker>>,
}

impl Dialer {
    /// Returns a dialer under which nothing is under way.
    pub(super) fn new(servers: Vec<Server>, options: ConnectOptions) -> Dialer {
        let pool = Candidates::new(servers, options.interval);
        Dialer { pool, options: Arc::new(options), attempts: Vec::new(), done: None }
    }

    /// Notes that a server was in a cluster.
    pub(super) fn note_cluster(&mut self) {
        if self.options.refuse_alone == RefuseAlone::AfterCluster {
            Arc::make_mut(&mut self.options).refuse_alone = RefuseAlone::Always;
        }
    }

    /// Returns a connection: the first that is ready. Nothing else is under way then but lookups.
    ///
    /// # Errors
    ///
    /// At the deadline, or when all servers were tried in vain. The text has their reasons.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<Link, StoreError> {
        let (began, mut kind) = (sys::now(), Kind::Unreachable);
        let alarm = Alarm::new().map_err(no_timer)?;
        let done = match self.done.take() {
            Some(done) => done,
            None => Arc::new(Waker::new().map_err(no_timer)?),
        };
        self.done = Some(Arc::clone(&done));
        self.drop_old_results(began);
        loop {
            let now = sys::now();
            let mut attempts = self.attempts.iter().enumerate();
            let ended = attempts.find_map(|(at, it)| Some((at, it.outcome.try_recv().ok()?)));
            if let Some((at, outcome)) = ended {
                let Attempt { id, began, .. } = self.attempts.swap_remove(at);
                match outcome {
                    Ok(Reached::Addresses(addresses)) => self.pool.resolved(id, &addresses, now),
                    Ok(Reached::Link(link)) => {
                        self.pool.connected(id, now.since(began), now);
                        self.give_up_handshakes(now);
                        return Ok(*link);
                    }
                    Err((failure, StoreError { kind: failed, text })) => {
                        self.pool.failed(id, failure, text, now, random());
                        kind = kind.max(failed);
                    }
                }
                continue;
            }
            self.note_greetings();
            if now >= deadline {
                break;
            }
            let until = match self.pool.next(began, now) {
                Next::Begin(candidate) => {
                    self.begin(*candidate, now, deadline, &done);
                    continue;
                }
                Next::Wait(until) => until.map_or(deadline, |at| at.min(deadline)),
                Next::Over => break,
            };
            alarm.wait([(done.as_fd(), PollFlags::IN)], Some(until)).map_err(no_timer)?;
            done.clear();
        }
        let kind = if kind == Kind::Unfit { Kind::Unreachable } else { kind };
        Err(kind.error(self.pool.faults()))
    }

    /// Begins a lookup or a handshake, which wakes `done` at its end.
    fn begin(&mut self, candidate: Candidate, now: Instant, deadline: Instant, done: &Arc<Waker>) {
        let (id, address) = (candidate.id, candidate.address);
        let progress = Arc::new(Handshake::default());
        let (options, shared) = (Arc::clone(&self.options), Arc::clone(&progress));
        let reach = move |by| match address {
            None => look_up(&candidate.server.host).map(Reached::Addresses),
            Some(address) => Link::make(&candidate, address, &options, &shared, by)
                .map(|link| Reached::Link(Box::new(link))),
        };
        let by = now.after(HANDSHAKE_LIMIT);
        let (sender, outcome) = bounded(1);
        let work = {
            let (reach, sender, done) = (reach.clone(), sender.clone(), Arc::clone(done));
            move || {
                let _ = sender.send(reach(by));
                done.wake();
            }
        };
        if let Err(error) = sys::start_thread("connect", work) {
            // Where the service has used up all threads, nothing is tried beside a connection, and
            // no lookup is waited for.
            let _ = sender.send(match address {
                Some(_) => reach(by.min(deadline)),
                None => Err(unreached(&error)),
            });
        }
        let is_lookup = address.is_none();
        self.attempts.push(Attempt { id, began: now, is_lookup, progress, outcome });
    }

    /// Tells the pool which servers have sent INFO.
    fn note_greetings(&mut self) {
        for Attempt { id, progress, .. } in &self.attempts {
            if progress.is_greeted.load(Ordering::Relaxed) {
                self.pool.greeted(*id);
            }
        }
    }

    fn give_up_handshakes(&mut self, now: Instant) {
        for Attempt { id, progress, .. } in self.attempts.extract_if(.., |it| !it.is_lookup) {
            progress.is_given_up.store(true, Ordering::Relaxed);
            self.pool.gave_up(id, now);
        }
    }

    /// Drops what an earlier call has begun and what has ended long ago.
    fn drop_old_results(&mut self, now: Instant) {
        let is_old =
            |it: &mut Attempt| !it.outcome.is_empty() && now.since(it.began) > RESULT_AGE_MAX;
        for Attempt { id, .. } in self.attempts.extract_if(.., is_old) {
            self.pool.gave_up(id, now);
        }
    }
}

/// Returns the failure of an attempt at which no server was reached.
fn unreached(error: &io::Error) -> (Failure, StoreError) {
    (Failure::Unreached, Kind::Unreachable.error(io_error_text(error)))
}

fn look_up(host: &str) -> Result<Vec<IpAddr>, (Failure, StoreError)> {
    let mut addresses = Vec::new();
    for address in (host, 0).to_socket_addrs().map_err(|error| unreached(&error))? {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    match addresses.is_empty() {
        true => Err((Failure::Unreached, Kind::Unreachable.error("its name has no address"))),
        false => Ok(addresses),
    }
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
    let family = SocketAddrAny::from(address).address_family();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
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
