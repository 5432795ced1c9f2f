//! Opening a link: INFO, TLS, CONNECT, PING and PONG. One deadline covers all steps.

use super::*;
use crate::nats::auth::Credentials;
use crate::nats::tls::{CERTIFICATE_WANTED, Tls, TlsError, Verdict};

/// Why a link was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nats) enum HandshakeError {
    /// When there was no connection, or no byte from the server.
    Unreachable(String),
    /// When the server answered and cannot be used.
    Unfit(String),
    /// When the server refused the credentials.
    Credentials(String),
    /// When the server did not prove its identity, or a local file that the check needs is
    /// unusable. Another attempt does not change that.
    Unsafe(String),
}

/// The input of a handshake.
pub(in crate::nats) struct Handshake<'a> {
    pub(in crate::nats) credentials: &'a Credentials,
    pub(in crate::nats) tls: &'a Tls,
    /// The name in the server's list of connections.
    pub(in crate::nats) name: &'a str,
    /// Frames to send directly after CONNECT: the server has processed them once the
    /// handshake succeeds.
    pub(in crate::nats) first: &'a [u8],
    pub(in crate::nats) ping_after: Duration,
}

/// The start and the deadline of a handshake.
#[derive(Clone, Copy)]
struct Limits {
    began: Instant,
    deadline: Instant,
}

impl Limits {
    fn took(self) -> Ms {
        Ms(sys::now().since(self.began))
    }
}

impl Link {
    /// Connects to a server and performs the handshake. Only the PONG after CONNECT
    /// proves success.
    pub(in crate::nats) fn open(
        dialer: &mut Dialer,
        server: &Server,
        options: &Handshake<'_>,
        deadline: Instant,
    ) -> Result<Link, HandshakeError> {
        let began = sys::now();
        let limits = Limits { began, deadline };
        let alarm = Alarm::new()
            .map_err(|error| HandshakeError::Unreachable(format!("no timer: {}", why(&error))))?;
        let tcp = dialer.dial(server, &alarm, deadline).map_err(HandshakeError::Unreachable)?;
        let mut link = Link {
            stream: Stream::new(tcp),
            alarm,
            decoder: Decoder::default(),
            chunk: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            info: ServerInfo { address: server.to_string(), ..ServerInfo::default() },
            ping_after: options.ping_after,
            received_at: began,
            pinged_at: None,
        };
        if options.tls.first {
            link.start_tls(server, options, limits)?;
        }
        link.receive_info(options, limits)?;
        let wanted = server.tls || options.tls.is_wanted();
        if !link.stream.is_tls() && (wanted || link.info.tls_required) {
            if !link.info.tls_available {
                let text = "it has no TLS, and is not talked to without".to_owned();
                return Err(HandshakeError::Unsafe(text));
            }
            link.start_tls(server, options, limits)?;
        }
        link.send_connect(options, limits)?;
        Ok(link)
    }

    /// Waits for INFO and checks that the server supports headers.
    fn receive_info(
        &mut self,
        options: &Handshake<'_>,
        limits: Limits,
    ) -> Result<(), HandshakeError> {
        let step = self.step(None, Some(limits.deadline));
        match step.map_err(|lost| self.fault(lost))? {
            Step::Op(ServerOp::Info(json)) => self.take_info(&json).map_err(unfit)?,
            Step::Op(ServerOp::Err(text)) => return Err(refusal(text, options.credentials)),
            Step::Op(_) => {
                let text = "it does not begin with INFO: not a NATS server".to_owned();
                return Err(HandshakeError::Unfit(text));
            }
            Step::Elapsed | Step::Woken => {
                let hint = match self.stream.is_tls() {
                    true => "",
                    false => "; one with handshake_first needs --tlsfirst",
                };
                return Err(HandshakeError::Unreachable(format!("it sent no INFO in time{hint}")));
            }
        }
        match self.info.headers {
            true => Ok(()),
            false => Err(HandshakeError::Unfit("it does not support headers".to_owned())),
        }
    }

    /// Starts TLS and verifies the server's certificate.
    fn start_tls(
        &mut self,
        server: &Server,
        options: &Handshake<'_>,
        limits: Limits,
    ) -> Result<(), HandshakeError> {
        // Bytes received before TLS must not be taken for bytes under TLS.
        if !self.decoder.is_blank() {
            let text = "it said more than INFO before TLS began".to_owned();
            return Err(HandshakeError::Unfit(text));
        }
        let session = options.tls.session(&server.tls_name);
        self.stream.begin_tls(session.map_err(HandshakeError::Unsafe)?);
        loop {
            let want = match self.stream.continue_handshake() {
                Ok(None) => return Ok(()),
                Ok(Some(want)) => want,
                Err(error) => return Err(self.handshake_error(&error)),
            };
            let socket = (self.stream.fd(), want);
            let ready = self.alarm.wait([socket], Some(limits.deadline));
            let [ready] = ready.map_err(|error| HandshakeError::Unreachable(why(&error)))?;
            // Bytes that arrive one by one must not extend the deadline.
            if !ready || sys::now() >= limits.deadline {
                let took = limits.took();
                let text = format!("TLS was not agreed upon within {took}");
                return Err(HandshakeError::Unreachable(text));
            }
        }
    }

    fn handshake_error(&self, error: &io::Error) -> HandshakeError {
        let text = match error.kind() == io::ErrorKind::UnexpectedEof {
            true => "the server closed the connection".to_owned(),
            false => why(error),
        };
        let text = match TlsError::of(error) {
            Some(_) => text,
            None => format!("TLS was not agreed upon: {text}"),
        };
        self.judged(TlsError::of(error).map(|fault| fault.verdict), text)
    }

    /// Returns the error for a link that was lost during the handshake.
    fn fault(&self, lost: Lost) -> HandshakeError {
        self.judged(lost.verdict, lost.reason)
    }

    fn judged(&self, verdict: Option<Verdict>, text: String) -> HandshakeError {
        if self.stream.lacks_client_certificate() && verdict != Some(Verdict::Unproven) {
            return HandshakeError::Credentials(CERTIFICATE_WANTED.to_owned());
        }
        match verdict {
            Some(Verdict::Unproven) => HandshakeError::Unsafe(text),
            Some(Verdict::Refused) => HandshakeError::Credentials(text),
            Some(Verdict::Broken) | None => HandshakeError::Unfit(text),
        }
    }

    /// Sends CONNECT, the first frames and PING, and waits for PONG.
    fn send_connect(
        &mut self,
        options: &Handshake<'_>,
        limits: Limits,
    ) -> Result<(), HandshakeError> {
        let Handshake { credentials, name, .. } = *options;
        let mut frame = Vec::new();
        let nonce = self.info.nonce.as_deref();
        encode::connect(&mut frame, name, self.stream.is_tls(), credentials, nonce)
            .map_err(|why| HandshakeError::Credentials(why.to_owned()))?;
        frame.extend_from_slice(options.first);
        encode::ping(&mut frame);
        let deadline = limits.deadline;
        if let Err(sent) = self.send(&frame, deadline) {
            return Err(match self.final_error() {
                Some(text) => refusal(text, credentials),
                None => self.fault(Lost::because(sent.reason)),
            });
        }
        loop {
            let step = self.step(None, Some(deadline));
            match step.map_err(|lost| self.fault(lost))? {
                Step::Op(ServerOp::Pong) => return Ok(()),
                Step::Op(ServerOp::Err(text)) => return Err(refusal(text, credentials)),
                Step::Op(ServerOp::Info(json)) => self.take_info(&json).map_err(unfit)?,
                Step::Op(ServerOp::Ping) => self.pong(Some(deadline)).map_err(unfit)?,
                Step::Op(ServerOp::Ok | ServerOp::Msg { .. }) => {}
                Step::Elapsed | Step::Woken => {}
            }
            if sys::now() >= deadline {
                let took = limits.took();
                return Err(HandshakeError::Unfit(format!("it did not answer within {took}")));
            }
        }
    }
}

fn unfit(lost: Lost) -> HandshakeError {
    HandshakeError::Unfit(lost.reason)
}

/// Returns the error for a `-ERR` during the handshake. The first subscription is the
/// inbox: a user without the right to it cannot make any request.
fn refusal(text: String, credentials: &Credentials) -> HandshakeError {
    let reason = server_says(&text);
    match ServerError::of(&text) {
        ServerError::Credentials => {
            HandshakeError::Credentials(reason + &credentials.refusal_hint())
        }
        ServerError::SubscribeDenied => HandshakeError::Credentials(reason),
        ServerError::PublishDenied | ServerError::Refused | ServerError::Closing => {
            HandshakeError::Unfit(reason)
        }
    }
}
