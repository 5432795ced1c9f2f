//! The only way from an agent to its server: a TCP proxy that can misbehave, and
//! that keeps a journal of the writes that passed it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::clock::{At, now};
use super::wire::{Frame, Splitter};

/// The treatment of bytes that arrive at the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forwards the bytes.
    Pass,
    /// Keeps the bytes, both ways, with every connection open, until another mode is set.
    Freeze,
    /// Resets every connection, and each new one.
    Cut,
    /// Forwards the bytes this much later.
    Delay(Duration),
}

/// A write into a bucket that passed the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// When it was forwarded to the server: not before the agent sent it.
    pub(crate) at: At,
    pub(crate) value: String,
    /// The revision that the server acknowledged.
    pub(crate) revision: u64,
    /// Whether the acknowledgement was forwarded to the agent.
    pub(crate) delivered: bool,
}

/// Messages that an agent sent, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Published to a key of a bucket.
    pub(crate) writes: u64,
    /// Published to the JetStream API.
    pub(crate) reads: u64,
    /// PING and PONG.
    pub(crate) pings: u64,
    /// Everything else.
    pub(crate) others: u64,
}

impl Counts {
    /// Returns what came since `earlier`.
    pub(crate) fn since(self, earlier: Counts) -> Counts {
        Counts {
            writes: self.writes - earlier.writes,
            reads: self.reads - earlier.reads,
            pings: self.pings - earlier.pings,
            others: self.others - earlier.others,
        }
    }
}

/// A proxy of one agent. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server_port: u16,
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    ended: bool,
    swallow_ack: bool,
    swallowed_at: Option<At>,
    /// Grows at every cut: a connection of an older generation is reset.
    generation: u64,
    connections: Vec<Arc<TcpStream>>,
    counts: Counts,
    unanswered: HashMap<String, (At, String)>,
    passed: Vec<Passed>,
}

impl Proxy {
    /// Starts a proxy to the server on `server_port`.
    pub(crate) fn start(server_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("127.0.0.1 has a free port");
        let port = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            server_port,
            state: Mutex::new(State {
                mode: Mode::Pass,
                ended: false,
                swallow_ack: false,
                swallowed_at: None,
                generation: 0,
                connections: Vec::new(),
                counts: Counts::default(),
                unanswered: HashMap::new(),
                passed: Vec::new(),
            }),
            turned: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Proxy { port: port.port(), shared }
    }

    /// Returns the port that the agent connects to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the mode and returns when.
    pub(crate) fn turn(&self, mode: Mode) -> At {
        let mut state = self.shared.lock();
        state.mode = mode;
        if mode == Mode::Cut {
            state.reset_all();
        }
        self.shared.turned.notify_all();
        now()
    }

    /// Removes the next acknowledgement of a write on its way to the agent.
    pub(crate) fn swallow_next_ack(&self) {
        let mut state = self.shared.lock();
        state.swallow_ack = true;
        state.swallowed_at = None;
    }

    /// Returns when an acknowledgement was swallowed.
    pub(crate) fn swallowed_at(&self) -> Option<At> {
        self.shared.lock().swallowed_at
    }

    /// Returns how many messages the agent has sent so far.
    pub(crate) fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// Returns the last stored write of a value that is not blank.
    pub(crate) fn last_renewal(&self) -> Option<Passed> {
        self.find_last(|write| !write.value.is_empty())
    }

    /// Returns the last write of which the agent knows that it was stored.
    pub(crate) fn last_known_renewal(&self) -> Option<Passed> {
        self.find_last(|write| !write.value.is_empty() && write.delivered)
    }

    /// Returns the first stored blank value since `since`: the lock's release.
    pub(crate) fn release_since(&self, since: At) -> Option<Passed> {
        let state = self.shared.lock();
        let mut writes = state.passed.iter();
        writes.find(|write| write.at >= since && write.value.is_empty()).cloned()
    }

    fn find_last(&self, wanted: impl Fn(&Passed) -> bool) -> Option<Passed> {
        let state = self.shared.lock();
        state.passed.iter().rev().find(|write| wanted(write)).cloned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        state.mode = Mode::Cut;
        state.reset_all();
        self.shared.turned.notify_all();
        drop(state);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    /// Wakes every reader with an end of file; with nobody left to hold them, the
    /// sockets are closed, and a socket that must not linger is closed by a reset.
    fn reset_all(&mut self) {
        self.generation += 1;
        for stream in self.connections.drain(..) {
            let _ = set_socket_linger(&*stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of a proxy panics")
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let state = self.lock();
            if state.ended {
                return;
            }
            let (mode, generation) = (state.mode, state.generation);
            drop(state);
            let Ok(stream) = stream else { continue };
            if mode == Mode::Cut {
                let _ = set_socket_linger(&stream, Some(Duration::ZERO));
                continue;
            }
            let shared = Arc::clone(self);
            thread::spawn(move || shared.serve(stream, generation));
        }
    }

    /// Carries one connection in two threads, until either end closes it.
    fn serve(self: &Arc<Shared>, agent: TcpStream, generation: u64) {
        if !self.may_pass(generation) {
            let _ = set_socket_linger(&agent, Some(Duration::ZERO));
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server_port)) else {
            return;
        };
        let _ = (agent.set_nodelay(true), server.set_nodelay(true));
        let (agent, server) = (Arc::new(agent), Arc::new(server));
        let mut state = self.lock();
        if state.generation != generation {
            let _ = set_socket_linger(&*agent, Some(Duration::ZERO));
            return;
        }
        state.connections.push(Arc::clone(&agent));
        state.connections.push(Arc::clone(&server));
        drop(state);
        let (shared, from, to) = (Arc::clone(self), Arc::clone(&server), Arc::clone(&agent));
        let back = thread::spawn(move || {
            let _ = shared.carry(&from, &to, generation, Shared::passes_to_agent);
            shared.close(&from, &to, generation);
        });
        let _ = self.carry(&agent, &server, generation, Shared::passes_to_server);
        self.close(&agent, &server, generation);
        drop((agent, server));
        let _ = back.join();
    }

    fn carry(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        generation: u64,
        passes: fn(&Shared, &Frame) -> bool,
    ) -> io::Result<()> {
        let mut splitter = Splitter::default();
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let got = from.read(&mut bytes)?;
            if got == 0 {
                return Ok(());
            }
            splitter.push(&bytes[..got]);
            while let Some(frame) = splitter.next_frame() {
                if !self.may_pass(generation) {
                    return Ok(());
                }
                if passes(self, &frame) {
                    to.write_all(&frame.raw)?;
                }
            }
        }
    }

    /// Waits until the mode lets something pass; false when the connection was cut.
    fn may_pass(&self, generation: u64) -> bool {
        let mut state = self.lock();
        while state.mode == Mode::Freeze && state.generation == generation {
            state = self.turned.wait(state).expect("no thread of a proxy panics");
        }
        let current = state.generation == generation;
        if let Mode::Delay(delay) = state.mode {
            drop(state);
            thread::sleep(delay);
        }
        current
    }

    /// Ends a connection that one side closed; a cut one is closed by being dropped.
    fn close(&self, one: &TcpStream, other: &TcpStream, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            let _ = (one.shutdown(Shutdown::Both), other.shutdown(Shutdown::Both));
            let ended = |stream: &Arc<TcpStream>| {
                let stream: *const TcpStream = &raw const **stream;
                std::ptr::eq(stream, one) || std::ptr::eq(stream, other)
            };
            state.connections.retain(|stream| !ended(stream));
        }
    }

    fn passes_to_server(&self, frame: &Frame) -> bool {
        let mut state = self.lock();
        let verb = frame.verb();
        let published = verb == "PUB" || verb == "HPUB";
        if published && frame.subject().starts_with("$KV.") {
            state.counts.writes += 1;
            if let Some(inbox) = frame.reply_to() {
                let value = String::from_utf8_lossy(frame.payload()).into_owned();
                state.unanswered.insert(inbox.to_owned(), (now(), value));
            }
        } else if published && frame.subject().starts_with("$JS.API.") {
            state.counts.reads += 1;
        } else if verb == "PING" || verb == "PONG" {
            state.counts.pings += 1;
        } else {
            state.counts.others += 1;
        }
        true
    }

    fn passes_to_agent(&self, frame: &Frame) -> bool {
        if !frame.verb().ends_with("MSG") {
            return true;
        }
        let mut state = self.lock();
        let Some((at, value)) = state.unanswered.remove(frame.subject()) else {
            return true;
        };
        let Some(revision) = frame.stored_revision() else {
            return true;
        };
        let delivered = !state.swallow_ack;
        if !delivered {
            state.swallow_ack = false;
            state.swallowed_at = Some(now());
        }
        state.passed.push(Passed { at, value, revision, delivered });
        delivered
    }
}
