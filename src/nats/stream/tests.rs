use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::net::sockopt;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::nats::tls::Tls;
use crate::sys;

/// So little that a record never goes out at once.
const BUFFER: usize = 4096;

/// Our end of a connection, and the end of a server that proves to be localhost.
struct Ends {
    stream: Stream,
    tls: ServerConnection,
    tcp: TcpStream,
}

impl Ends {
    fn new() -> Ends {
        let mut ends = Ends::connect(sessions(IsCa::NoCa));
        while ends.stream.continue_handshake().expect("agreed").is_some() {
            ends.serve();
        }
        // The last message of the handshake: unread bytes would make its close a reset.
        ends.serve();
        ends
    }

    /// Connects both ends; the handshake has not begun.
    fn connect((session, server): (Session, ServerConnection)) -> Ends {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // An accepted socket inherits this size, and the kernel leaves it as it is.
        sockopt::set_socket_recv_buffer_size(&listener, BUFFER).expect("an option");
        let place = listener.local_addr().expect("bound");
        let near = TcpStream::connect(place).expect("a connection");
        sockopt::set_socket_send_buffer_size(&near, BUFFER).expect("an option");
        near.set_nonblocking(true).expect("an option");
        let (far, _) = listener.accept().expect("a connection");
        far.set_nonblocking(true).expect("an option");
        let stream = Stream { tcp: near, tls: Some(session.into()) };
        Ends { stream, tls: server, tcp: far }
    }

    /// Lets the server read and write what it can, and returns what it received.
    fn serve(&mut self) -> Vec<u8> {
        while matches!(self.tls.read_tls(&mut self.tcp), Ok(1..)) {
            self.tls.process_new_packets().expect("well formed");
        }
        while self.tls.wants_write() && self.tls.write_tls(&mut self.tcp).is_ok() {}
        let mut received = Vec::new();
        let _ = self.tls.reader().read_to_end(&mut received);
        received
    }

    /// Writes all of a frame as a link does, and returns what the server received.
    fn carry(&mut self, frame: &[u8]) -> (Vec<u8>, usize) {
        let (mut sent, mut received, mut waits) = (0, Vec::new(), 0);
        loop {
            let outcome = match &frame[sent..] {
                [] => self.stream.flush().map(|()| 0),
                rest => self.stream.write(rest),
            };
            match outcome {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(error) if would_block(&error) => {
                    waits += 1;
                    received.extend(self.serve());
                }
                Err(error) => panic!("{error}"),
            }
        }
        // Bytes that have left the stream are on their way.
        let end = sys::now().after(sys::PATIENCE);
        while received.len() < frame.len() && sys::now() < end {
            received.extend(self.serve());
        }
        (received, waits)
    }
}

fn sessions(is_ca: IsCa) -> (Session, ServerConnection) {
    let names = vec!["localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("a name");
    params.is_ca = is_ca;
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("putex-stream-{pid}-{next}.pem"));
    fs::write(&path, issuer.pem()).expect("written");
    let wanted = Tls { ca: Some(path.clone()), ..Tls::default() };
    let session = wanted.session("localhost").expect("a session");
    fs::remove_file(path).expect("removed");
    let key = PrivateKeyDer::try_from(issuer.key().serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![issuer.der().clone()], key)
        .expect("a certificate");
    let server = ServerConnection::new(Arc::new(config)).expect("a server");
    (session, server)
}

#[test]
fn a_frame_has_left_when_it_is_flushed_and_not_before() {
    let mut ends = Ends::new();
    // A record of TLS has 16 KiB at most.
    let small = [1, 16 * 1024, 16 * 1024 + 1];
    // Some of these end where the kernel takes no more.
    let large = (280_000..300_000).step_by(1000);
    for size in small.into_iter().chain(large) {
        let frame: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let (received, waits) = ends.carry(&frame);
        assert!(received == frame, "{} of {size} bytes came", received.len());
        assert!(waits > 0 || size < 280_000, "{size} bytes went out at once");
    }
}

#[test]
fn what_is_decrypted_is_held_until_it_is_read() {
    let mut ends = Ends::new();
    ends.tls.writer().write_all(b"INFO {}\r\n").expect("room");
    ends.serve();
    let mut byte = [0];
    let mut received = Vec::new();
    while received.len() < 9 {
        assert_eq!(ends.stream.holds(), !received.is_empty());
        match ends.stream.read(&mut byte) {
            Ok(count) => received.extend_from_slice(&byte[..count]),
            Err(error) => assert!(would_block(&error), "{error}"),
        }
    }
    assert_eq!(received, b"INFO {}\r\n");
    assert!(!ends.stream.holds());
}

#[test]
fn the_end_is_an_end_with_or_without_a_goodbye() {
    for goodbye in [true, false] {
        let mut ends = Ends::new();
        if goodbye {
            ends.tls.send_close_notify();
            ends.serve();
        }
        let Ends { mut stream, tcp, .. } = ends;
        drop(tcp);
        let end = loop {
            match stream.read(&mut [0; 8]) {
                Err(error) if would_block(&error) => {}
                outcome => break outcome.expect("an end"),
            }
        };
        assert_eq!(end, 0, "goodbye {goodbye}");
    }
}

#[test]
fn bytes_that_are_not_tls_are_a_failure_of_it() {
    let mut ends = Ends::new();
    ends.tcp.write_all(b"-ERR 'no'\r\n").expect("room");
    let error = loop {
        match ends.stream.read(&mut [0; 64]) {
            Err(error) if would_block(&error) => {}
            outcome => break outcome.expect_err("not TLS"),
        }
    };
    assert_eq!(stream_error(error).kind, Kind::Unsafe);
}

/// The certificate of `openssl req -x509` is one; the text was a word of the TLS library.
#[test]
fn the_certificate_of_an_authority_is_refused_with_what_to_do() {
    let mut ends = Ends::connect(sessions(IsCa::Ca(BasicConstraints::Unconstrained)));
    let error = loop {
        match ends.stream.continue_handshake() {
            Ok(Some(_)) => ends.serve(),
            outcome => break outcome.expect_err("refused"),
        };
    };
    let error = stream_error(error);
    assert_eq!(error.kind, Kind::Unsafe);
    assert!(error.text.contains("that of an authority (CA:TRUE): give the server"), "{error:?}");
}
