//! TLS without I/O: what is wanted, the session that is made of it, and what its
//! failures mean. Bytes go through it in `stream`.
//!
//! All files are read anew for each connection. Keys are not shared between
//! connections: none is resumed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    SignatureScheme,
};

use super::{calendar, secret};
use crate::core::text::sanitize;

/// What TLS is wanted, and where its files are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who may sign a server's certificate; the system's roots when not given.
    pub ca: Option<PathBuf>,
    /// Our certificate, with those that lead to its root, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether TLS begins before the server has said anything.
    pub first: bool,
}

impl Tls {
    /// Returns whether any of it was asked for: then no server is talked to without.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self != Tls::default()
    }

    /// Prepares a session with a server whose certificate must name `name`.
    ///
    /// # Errors
    ///
    /// Which of the files cannot be used, and why.
    pub(super) fn session(&self, name: &str) -> Result<Session, String> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("{name}: no certificate can name that"))?;
        let provider = Arc::new(ring::default_provider());
        let badge = self.badge(&provider)?;
        let badge = badge.map(Arc::new);
        let door = Arc::new(Door {
            badge,
            asked: AtomicBool::new(false),
        });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.roots()?)
            .with_client_cert_resolver(Arc::<Door>::clone(&door));
        config.resumption = Resumption::disabled();
        let tls = ClientConnection::new(Arc::new(config), name);
        let tls = tls.map_err(|error| error.to_string())?;
        Ok(Session { tls, door })
    }

    /// Checks that the files can be used, as far as that is seen without a server.
    ///
    /// # Errors
    ///
    /// Which of them cannot, and why.
    pub fn check(&self) -> Result<(), String> {
        self.session("localhost").map(|_| ())
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            let found = rustls_native_certs::load_native_certs().certs;
            if roots.add_parsable_certificates(found).0 == 0 {
                return Err("this system has no trusted roots; set --tlsca".to_owned());
            }
            return Ok(roots);
        };
        let unfit = |error: Error| format!("{}: {error}", path.display());
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(unfit)?;
        }
        Ok(roots)
    }

    fn badge(&self, provider: &CryptoProvider) -> Result<Option<CertifiedKey>, String> {
        let Some((certificate, key)) = &self.certificate else {
            return Ok(None);
        };
        let chain = certificates(certificate)?;
        let text = secret::read_secret(key)?;
        let shown = key.display();
        let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            format!("{shown}: no private key in PEM, without a passphrase, is in it")
        })?;
        match CertifiedKey::from_der(chain, der, provider) {
            Ok(badge) => Ok(Some(badge)),
            Err(Error::InconsistentKeys(_)) => Err(format!(
                "{shown}: is not the key of {}",
                certificate.display()
            )),
            Err(error) => Err(format!("{shown}: {error}")),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = secret::read_public(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(format!(
            "{}: no certificates in PEM are in it",
            path.display()
        )),
    }
}

/// One connection's TLS.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) tls: ClientConnection,
    door: Arc<Door>,
}

impl Session {
    /// Returns whether the server asked for a certificate that we do not have. It
    /// may close the connection for that without a word that arrives.
    pub(super) fn lacks_badge(&self) -> bool {
        self.door.badge.is_none() && self.door.asked.load(Relaxed)
    }
}

/// What is shown when the server asks who we are.
#[derive(Debug)]
struct Door {
    badge: Option<Arc<CertifiedKey>>,
    asked: AtomicBool,
}

impl ResolvesClientCert for Door {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Relaxed);
        self.badge.clone()
    }

    fn has_certs(&self) -> bool {
        self.badge.is_some()
    }
}

/// What a failure of TLS says about the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has not proved who it is, and will not until somebody changes
    /// something: it must not be talked to.
    Unproven,
    /// The server does not accept our certificate.
    Refused,
    /// Anything else, such as a certificate that is expired by a clock that may be
    /// set yet.
    Broken,
}

/// A failure of TLS, in our words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsFault {
    pub(super) verdict: Verdict,
    text: String,
}

impl TlsFault {
    /// Makes an I/O error of it, from which [`TlsFault::of`] gets it back.
    pub(super) fn of_rustls(error: &Error) -> io::Error {
        io::Error::other(judge(error))
    }

    /// Returns the failure of TLS that an I/O error is, if it is one.
    pub(super) fn of(error: &io::Error) -> Option<&TlsFault> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TlsFault {}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "rustls has dozens, and says them itself"
)]
fn judge(error: &Error) -> TlsFault {
    let (verdict, text) = match error {
        Error::InvalidCertificate(why) => return judge_certificate(why),
        Error::AlertReceived(alert) => match badge_refused(*alert) {
            Some(why) => (Verdict::Refused, why.to_owned()),
            None => (Verdict::Broken, format!("the server ended TLS: {alert:?}")),
        },
        Error::InvalidMessage(_) => (
            Verdict::Unproven,
            "it does not answer with TLS; is it the right port, and is handshake_first set \
             there exactly if --tlsfirst is here?"
                .to_owned(),
        ),
        other => (Verdict::Broken, format!("TLS: {other}")),
    };
    TlsFault { verdict, text }
}

/// Tells why our certificate is refused, `None` if it is something else.
#[allow(clippy::wildcard_enum_match_arm, reason = "see judge")]
fn badge_refused(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired => WANTS_BADGE,
        AlertDescription::CertificateExpired => "it says that our certificate has expired",
        AlertDescription::CertificateRevoked => "it says that our certificate was revoked",
        AlertDescription::UnknownCA => "it does not trust who signed our certificate",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it does not accept our certificate",
        _ => return None,
    })
}

/// What is said when we have no certificate and the server wants one.
pub(super) const WANTS_BADGE: &str = "it wants a client certificate; set --tlscert and --tlskey";

#[allow(clippy::wildcard_enum_match_arm, reason = "see judge")]
fn judge_certificate(why: &CertificateError) -> TlsFault {
    let moment = |time: &UnixTime| calendar::utc(time.as_secs());
    // By the day: a reason that is new every second would be told every second.
    let day = |time: &UnixTime| calendar::day(time.as_secs());
    let (verdict, text) = match why {
        // A bad signature is of another authority that has the name of a known one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            Verdict::Unproven,
            "its certificate is signed by nobody who is trusted here; see --tlsca".to_owned(),
        ),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let names = match names.is_empty() {
                true => "nobody".to_owned(),
                false => names.join(", "),
            };
            let expected = expected.to_str();
            (
                Verdict::Unproven,
                format!("its certificate is not for {expected} but for {names}"),
            )
        }
        CertificateError::ExpiredContext { time, not_after } => (
            Verdict::Broken,
            format!(
                "its certificate expired at {}; it is {} here",
                moment(not_after),
                day(time)
            ),
        ),
        CertificateError::NotValidYetContext { time, not_before } => (
            Verdict::Broken,
            format!(
                "its certificate is valid from {}; it is {} here",
                moment(not_before),
                day(time)
            ),
        ),
        other => (
            Verdict::Unproven,
            format!("its certificate is refused: {other}"),
        ),
    };
    // Names in a certificate are the server's words, and must not make lines.
    let text = sanitize(&text);
    TlsFault { verdict, text }
}

/// Returns the name in `DnsName("n1.example")` or `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> &str {
    let inside = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"')
}
