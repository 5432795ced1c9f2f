//! Opening a link: INFO, TLS, CONNECT, and the PONG by which all is known to be
//! well. Every step is under the one deadline.

use super::*;
use crate::nats::auth::Credentials;
use crate::nats::tls::{Tls, TlsFault, Verdict, WANTS_BADGE};

/// Why no link came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nats) enum OpenFault {
    /// When there was no connection, or no word from the server.
    Unreachable(String),
    /// When the server spoke and is of no use.
    Unfit(String),
    /// When the server refused who we are.
    Credentials(String),
    /// When the server has not proved who it is, or we have not what it takes to
    /// find out, and only a change here or there mends that.
    Unsafe(String),
}

/// What goes into the handshake.
pub(in crate::nats) struct Hello<'a> {
    pub(in crate::nats) credentials: &'a Credentials,
    pub(in crate::nats) tls: &'a Tls,
    /// Shown in the server's list of connections.
    pub(in crate::nats) name: &'a str,
    /// Frames to send right behind CONNECT: the server has taken them once the
    /// handshake succeeds.
    pub(in crate::nats) first: &'a [u8],
    pub(in crate::nats) ping_after: Duration,
}

/// By when a link must be open, and since when it is tried.
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
    /// Connects to a server and introduces ourselves. Success is known from the
    /// PONG that follows CONNECT, and from nothing earlier.
    pub(in crate::nats) fn open(
        dialer: &mut Dialer,
        server: &Server,
        hello: &Hello<'_>,
        deadline: Instant,
    ) -> Result<Link, OpenFault> {
        let began = sys::now();
        let limits = Limits { began, deadline };
        let alarm = Alarm::new()
            .map_err(|error| OpenFault::Unreachable(format!("no timer: {}", why(&error))))?;
        let tcp = dialer
            .dial(server, &alarm, deadline)
            .map_err(OpenFault::Unreachable)?;
        let mut link = Link {
            stream: Stream::new(tcp),
            alarm,
            decoder: Decoder::default(),
            chunk: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            info: ServerInfo {
                address: server.to_string(),
                ..ServerInfo::default()
            },
            ping_after: hello.ping_after,
            heard_at: began,
            pinged_at: None,
        };
        if hello.tls.first {
            link.secure(server, hello, limits)?;
        }
        link.greet(hello, limits)?;
        let wanted = server.tls || hello.tls.is_wanted();
        if !link.stream.is_tls() && (wanted || link.info.tls_required) {
            if !link.info.tls_available {
                let text = "it has no TLS, and is not talked to without".to_owned();
                return Err(OpenFault::Unsafe(text));
            }
            link.secure(server, hello, limits)?;
        }
        link.introduce(hello, limits)?;
        Ok(link)
    }

    /// Waits for INFO and checks that this server will do.
    fn greet(&mut self, hello: &Hello<'_>, limits: Limits) -> Result<(), OpenFault> {
        let step = self.step(None, Some(limits.deadline));
        match step.map_err(|lost| self.fault(lost))? {
            Step::Op(ServerOp::Info(json)) => self.take_info(&json).map_err(unfit)?,
            Step::Op(ServerOp::Err(text)) => return Err(refusal(text, hello.credentials)),
            Step::Op(_) => {
                let text = "it does not begin with INFO: not a NATS server".to_owned();
                return Err(OpenFault::Unfit(text));
            }
            Step::Elapsed | Step::Woken => {
                let hint = match self.stream.is_tls() {
                    true => "",
                    false => "; one with handshake_first needs --tlsfirst",
                };
                return Err(OpenFault::Unreachable(format!(
                    "it sent no INFO in time{hint}"
                )));
            }
        }
        match self.info.headers {
            true => Ok(()),
            false => Err(OpenFault::Unfit("it does not support headers".to_owned())),
        }
    }

    /// Puts TLS around the connection, and checks who the server is.
    fn secure(
        &mut self,
        server: &Server,
        hello: &Hello<'_>,
        limits: Limits,
    ) -> Result<(), OpenFault> {
        // What came in the clear must not be taken for what comes under TLS.
        if !self.decoder.is_blank() {
            let text = "it said more than INFO before TLS began".to_owned();
            return Err(OpenFault::Unfit(text));
        }
        let session = hello.tls.session(&server.tls_name);
        self.stream.begin_tls(session.map_err(OpenFault::Unsafe)?);
        loop {
            let want = match self.stream.shake_hands() {
                Ok(None) => return Ok(()),
                Ok(Some(want)) => want,
                Err(error) => return Err(self.shaking_fault(&error)),
            };
            let socket = (self.stream.fd(), want);
            let ready = self.alarm.wait([socket], Some(limits.deadline));
            let [ready] = ready.map_err(|error| OpenFault::Unreachable(why(&error)))?;
            // Bytes that trickle in must not go on for ever.
            if !ready || sys::now() >= limits.deadline {
                let took = limits.took();
                let text = format!("TLS was not agreed upon within {took}");
                return Err(OpenFault::Unreachable(text));
            }
        }
    }

    fn shaking_fault(&self, error: &io::Error) -> OpenFault {
        let text = match error.kind() == io::ErrorKind::UnexpectedEof {
            true => "the server closed the connection".to_owned(),
            false => why(error),
        };
        let text = match TlsFault::of(error) {
            Some(_) => text,
            None => format!("TLS was not agreed upon: {text}"),
        };
        self.judged(TlsFault::of(error).map(|fault| fault.verdict), text)
    }

    /// Tells what the loss of a link that was about to open means.
    fn fault(&self, lost: Lost) -> OpenFault {
        self.judged(lost.verdict, lost.reason)
    }

    fn judged(&self, verdict: Option<Verdict>, text: String) -> OpenFault {
        if self.stream.lacks_badge() && verdict != Some(Verdict::Unproven) {
            return OpenFault::Credentials(WANTS_BADGE.to_owned());
        }
        match verdict {
            Some(Verdict::Unproven) => OpenFault::Unsafe(text),
            Some(Verdict::Refused) => OpenFault::Credentials(text),
            Some(Verdict::Broken) | None => OpenFault::Unfit(text),
        }
    }

    /// Sends CONNECT, what comes first, and PING, and waits for PONG.
    fn introduce(&mut self, hello: &Hello<'_>, limits: Limits) -> Result<(), OpenFault> {
        let Hello {
            credentials, name, ..
        } = *hello;
        let mut frame = Vec::new();
        let nonce = self.info.nonce.as_deref();
        encode::connect(&mut frame, name, self.stream.is_tls(), credentials, nonce)
            .map_err(|why| OpenFault::Credentials(why.to_owned()))?;
        frame.extend_from_slice(hello.first);
        encode::ping(&mut frame);
        let deadline = limits.deadline;
        if let Err(sent) = self.send(&frame, deadline) {
            return Err(match self.last_words() {
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
                Step::Op(ServerOp::Ok | ServerOp::Msg { .. } | ServerOp::Hmsg { .. }) => {}
                Step::Elapsed | Step::Woken => {}
            }
            if sys::now() >= deadline {
                let took = limits.took();
                return Err(OpenFault::Unfit(format!("it did not answer within {took}")));
            }
        }
    }
}

fn unfit(lost: Lost) -> OpenFault {
    OpenFault::Unfit(lost.reason)
}

/// Tells what a `-ERR` during the handshake means. The first subscription is the
/// inbox, and a user who may not have it can ask for nothing at all.
fn refusal(text: String, credentials: &Credentials) -> OpenFault {
    let said = said(&text);
    match Complaint::of(&text) {
        Complaint::Credentials => OpenFault::Credentials(said + &credentials.doubts()),
        Complaint::SubscribeDenied => OpenFault::Credentials(said),
        Complaint::AuthenticationTimeout
        | Complaint::Stale
        | Complaint::Full
        | Complaint::PublishDenied
        | Complaint::Refused
        | Complaint::Unknown => OpenFault::Unfit(said),
    }
}
