//! Opening a link: INFO, then TLS, CONNECT, PING and PONG.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use super::*;
use crate::nats::auth::Credentials;
use crate::nats::connect_options::{ConnectOptions, RefuseAlone};
use crate::nats::dial::{self, Handshake};
use crate::nats::pool::{Candidate, Failure, INFO_LIMIT};
use crate::nats::tls::{self, CERTIFICATE_WANTED, Session, Tls};

impl Link {
    /// Makes a connection to a candidate, with a limit until INFO and one for the whole
    /// handshake. Nobody logs in for a connection that was given up.
    pub(in crate::nats) fn make(
        next: &Candidate,
        address: IpAddr,
        options: &ConnectOptions,
        progress: &Handshake,
        by: Instant,
    ) -> Result<Link, (Failure, StoreError)> {
        let info_by = sys::now().after(INFO_LIMIT).min(by);
        let credentials = next.server.login.read().map_err(|error| (Failure::Unreached, error))?;
        let late = |by, late, failure| if sys::now() >= by { late } else { failure };
        let unreached = |error| (late(info_by, Failure::Silent, Failure::Unreached), error);
        let mut link =
            Link::open(next, address, options, &credentials, info_by).map_err(unreached)?;
        progress.is_greeted.store(true, Ordering::Relaxed);
        if progress.is_given_up.load(Ordering::Relaxed) {
            let error = Kind::Unreachable.error("another server answered before");
            return Err((Failure::Unreached, error));
        }
        let refused = |error: StoreError| {
            // A missing file: the server has refused nothing.
            let is_local = error.kind == Kind::Unreachable;
            let failure = if is_local { Failure::Unreached } else { Failure::Refused };
            (late(by, Failure::Slow, failure), error)
        };
        link.log_in(options, &credentials, by).map_err(refused)?;
        Ok(link)
    }

    /// Connects to a candidate, whose address is `address`, and receives INFO by `deadline`.
    fn open(
        Candidate { id, server, .. }: &Candidate,
        address: IpAddr,
        options: &ConnectOptions,
        credentials: &Credentials,
        deadline: Instant,
    ) -> Result<Link, StoreError> {
        let unreachable = |error| Kind::Unreachable.error(io_error_text(&error));
        let random = sys::random().map_err(unreachable)?;
        let began = sys::now();
        let alarm = Alarm::new().map_err(no_timer)?;
        let address = SocketAddr::new(address, server.port);
        let tcp = dial::connect(address, &alarm, deadline).map_err(unreachable)?;
        let mut link = Link {
            stream: Stream { tcp, tls: None },
            alarm,
            decoder: Decoder::default(),
            chunk: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            server: server.clone(),
            candidate: *id,
            info: ServerInfo { address: server.to_string(), ..ServerInfo::default() },
            ping_after: options.ping_after(),
            opened_at: began,
            received_at: began,
            pinged_at: None,
            inbox: format!("{}.{random:032x}.", options.inbox),
            last_sid: INBOX_SID,
            shared_subject: String::new(),
            shared_reply: String::new(),
            queue: VecDeque::new(),
        };
        if options.tls.first {
            link.start_tls(&options.tls, deadline)?;
        }
        link.receive_info(credentials, deadline)?;
        Ok(link)
    }

    /// Performs the handshake after INFO, and subscribes to an inbox. Only the PONG after CONNECT
    /// proves success: a server that refuses the login reads no further.
    fn log_in(
        &mut self,
        options: &ConnectOptions,
        credentials: &Credentials,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let refuses_alone = options.refuse_alone == RefuseAlone::Always;
        if let Some(why) = self.info.not_one_cluster().filter(|_| refuses_alone) {
            return Err(Kind::Unsafe.error(why));
        }
        let inbox = encode::sub(&format!("{}*", self.inbox), INBOX_SID);
        let inbox = inbox.map_err(|text| Kind::Unreachable.error(text))?;
        let wanted = self.server.tls || options.tls.is_wanted();
        if self.stream.tls.is_none() && (wanted || self.info.tls_required) {
            if !self.info.tls_available {
                return Err(Kind::Unsafe
                    .error("it has no TLS, and is not talked to without; write nats://"));
            }
            self.start_tls(&options.tls, deadline)?;
        }
        let nonce = self.info.nonce.as_deref();
        let connect = encode::connect(&options.name, self.stream.tls.is_some(), credentials, nonce)
            .map_err(|why| Kind::Credentials.error(why))?;
        let frame = [connect.as_bytes(), inbox.as_bytes(), encode::PING].concat();
        if let Err(reason) = self.write(&frame, deadline) {
            return Err(match self.final_error() {
                Some(text) => refusal(&text, credentials),
                None => self.judge(Kind::Unfit.error(reason)),
            });
        }
        self.receive_pong(credentials, deadline)?;
        self.opened_at = sys::now();
        Ok(())
    }

    /// Waits for INFO and checks that the server supports headers.
    fn receive_info(&mut self, credentials: &Credentials, by: Instant) -> Result<(), StoreError> {
        // A server that waits for TLS says nothing, and closes the connection after some seconds.
        let hint = if self.stream.tls.is_none() {
            "; is it nats-server? one with handshake_first needs --tlsfirst"
        } else {
            ""
        };
        let received = self.step(None, by).map_err(|error| {
            let StoreError { kind, text } = self.judge(error);
            kind.error(if self.decoder.is_blank() { text + hint } else { text })
        })?;
        match received {
            Received::Op(ServerOp::Info(json)) => self.accept_info(&json)?,
            Received::Op(ServerOp::Err(text)) => return Err(refusal(&text, credentials)),
            Received::Op(_) => {
                return Err(Kind::Unfit.error("it does not begin with INFO: not a NATS server"));
            }
            Received::Elapsed | Received::Woken => {
                return Err(Kind::Unreachable
                    .error(format!("it does not answer: it sent no INFO in time{hint}")));
            }
        }
        match self.info.headers {
            true => Ok(()),
            false => Err(Kind::Unfit.error("it does not support headers")),
        }
    }

    /// Starts TLS and verifies the server's certificate.
    fn start_tls(&mut self, tls: &Tls, deadline: Instant) -> Result<(), StoreError> {
        // Bytes received before TLS must not be taken for bytes under TLS.
        if !self.decoder.is_blank() {
            return Err(Kind::Unfit.error("it said more than INFO before TLS began"));
        }
        self.stream.tls = Some(tls.session(&self.server.tls_name)?.into());
        loop {
            let want = match self.stream.continue_handshake() {
                Ok(None) => return Ok(()),
                Ok(Some(want)) => want,
                Err(error) => {
                    let fault = match error.downcast() {
                        Ok(error) => tls::judge(&error),
                        Err(error) => Kind::Unfit
                            .error(format!("TLS was not agreed upon: {}", io_error_text(&error))),
                    };
                    return Err(self.judge(fault));
                }
            };
            let ready = self.alarm.wait([(self.stream.tcp.as_fd(), want)], Some(deadline));
            let [ready] = ready.map_err(|error| Kind::Unreachable.error(io_error_text(&error)))?;
            // Bytes that arrive one by one must not extend the deadline.
            if !ready || sys::now() >= deadline {
                return Err(Kind::Unreachable.error("TLS was not agreed upon in time"));
            }
        }
    }

    /// Returns the error for a link that was lost during the handshake. A server may close
    /// the connection of a client without a certificate before it sends the reason.
    fn judge(&self, error: StoreError) -> StoreError {
        let is_lacking = self.stream.tls.as_deref().is_some_and(Session::lacks_client_certificate);
        match is_lacking && error.kind != Kind::Unsafe {
            true => Kind::Credentials.error(CERTIFICATE_WANTED),
            false => error,
        }
    }

    /// Waits for PONG: then the server has processed what was sent before PING.
    fn receive_pong(&mut self, credentials: &Credentials, by: Instant) -> Result<(), StoreError> {
        loop {
            match self.step(None, by).map_err(|error| self.judge(error))? {
                Received::Op(ServerOp::Pong) => return Ok(()),
                Received::Op(ServerOp::Err(text)) => return Err(refusal(&text, credentials)),
                Received::Op(ServerOp::Info(json)) => self.accept_info(&json)?,
                Received::Op(ServerOp::Ping) => self.send_now(encode::PONG, Some(by))?,
                Received::Op(ServerOp::Ok | ServerOp::Msg { .. })
                | Received::Elapsed
                | Received::Woken => {}
            }
            if sys::now() >= by {
                return Err(Kind::Unfit.error("it did not answer CONNECT in time"));
            }
        }
    }
}

/// Returns the error for a `-ERR` during the handshake. The first subscription is the
/// inbox: a user without the right to it cannot make any request.
fn refusal(text: &str, credentials: &Credentials) -> StoreError {
    let reason = server_says(text);
    match ServerError::of(text) {
        ServerError::Credentials => Kind::Credentials.error(reason + &credentials.refusal_hint()),
        ServerError::SubscribeDenied => {
            let instead = "write --inbox-prefix with a subject that this user may subscribe to";
            Kind::Credentials.error(format!("{reason}; {instead}"))
        }
        ServerError::PublishDenied | ServerError::Refused | ServerError::Closing => {
            Kind::Unfit.error(reason)
        }
    }
}
