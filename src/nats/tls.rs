//! TLS without I/O: the options, the session that they configure, and the meaning of
//! its failures. `stream` passes the bytes through the session.
//!
//! All files are read again for each connection. Sessions are not resumed, so that
//! connections share no keys.

#![allow(clippy::wildcard_enum_match_arm, reason = "rustls has dozens, with texts of their own")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    SignatureScheme,
};

use super::file;
use crate::core::{StoreError, StoreErrorKind as Kind, sanitize};

/// The TLS options and their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may sign a server's certificate; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate with its chain, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether TLS starts before the server sends INFO.
    pub first: bool,
}

impl Tls {
    /// Returns whether any option is set: then a connection without TLS is refused.
    pub fn is_wanted(&self) -> bool {
        *self != Tls::default()
    }

    /// Prepares a session with a server whose certificate must name `name`.
    ///
    /// # Errors
    ///
    /// See [`file::read_secret`].
    pub(super) fn session(&self, name: &str) -> Result<Session, StoreError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Kind::Unsafe.error(format!("{name}: no certificate can name that")))?;
        let refuse = |error: Error| Kind::Unsafe.error(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let client_certificate = self.client_certificate(&provider)?.map(Arc::new);
        let resolver =
            Arc::new(CertResolver { client_certificate, requested: AtomicBool::new(false) });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(refuse)?
            .with_root_certificates(self.roots()?)
            .with_client_cert_resolver(Arc::<CertResolver>::clone(&resolver));
        config.resumption = Resumption::disabled();
        Ok(Session { tls: ClientConnection::new(config.into(), name).map_err(refuse)?, resolver })
    }

    /// Checks the files, as far as that is possible without a server.
    ///
    /// # Errors
    ///
    /// See [`file::read_secret`].
    pub fn check(&self) -> Result<(), StoreError> {
        self.session("localhost").map(|_| ())
    }

    fn roots(&self) -> Result<RootCertStore, StoreError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            let found = rustls_native_certs::load_native_certs().certs;
            if roots.add_parsable_certificates(found).0 == 0 {
                return Err(Kind::Unsafe.error("this system has no trusted roots; set --tlsca"));
            }
            return Ok(roots);
        };
        let unfit = |error: Error| Kind::Unsafe.error(format!("{}: {error}", path.display()));
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(unfit)?;
        }
        Ok(roots)
    }

    fn client_certificate(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Option<CertifiedKey>, StoreError> {
        let Some((certificate, key)) = &self.certificate else { return Ok(None) };
        let chain = certificates(certificate)?;
        let text = file::read_secret(key)?;
        let refuse = |why: String| Kind::Unsafe.error(format!("{}: {why}", key.display()));
        let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            refuse("no private key in PEM, without a passphrase, is in it".to_owned())
        })?;
        match CertifiedKey::from_der(chain, der, provider) {
            Ok(client_certificate) => Ok(Some(client_certificate)),
            Err(Error::InconsistentKeys(_)) => {
                Err(refuse(format!("is not the key of {}", certificate.display())))
            }
            Err(error) => Err(refuse(error.to_string())),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let text = file::read_public(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let none = || format!("{}: no certificates in PEM are in it", path.display());
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| Kind::Unsafe.error(none()))
}

/// The TLS state of one connection.
pub(super) struct Session {
    pub(super) tls: ClientConnection,
    resolver: Arc<CertResolver>,
}

impl Session {
    /// Returns whether the server requested a client certificate and none is configured.
    /// A server may close the connection for that before its alert arrives.
    pub(super) fn lacks_client_certificate(&self) -> bool {
        self.resolver.client_certificate.is_none() && self.resolver.requested.load(Relaxed)
    }
}

/// Answers the server's request for a client certificate, and records the request.
#[derive(Debug)]
struct CertResolver {
    client_certificate: Option<Arc<CertifiedKey>>,
    requested: AtomicBool,
}

impl ResolvesClientCert for CertResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.requested.store(true, Relaxed);
        self.client_certificate.clone()
    }

    fn has_certs(&self) -> bool {
        self.client_certificate.is_some()
    }
}

/// The text for a server that requires a client certificate when none is configured.
pub(super) const CERTIFICATE_WANTED: &str =
    "it wants a client certificate; set --tlscert and --tlskey";

/// Returns what a failure of TLS proves about the server or about this client. No text contains
/// the time: a text that changes is logged each time.
pub(super) fn judge(error: &Error) -> StoreError {
    match error {
        Error::InvalidCertificate(why) => match why {
            // A bad signature comes from another authority with the name of a trusted one.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Kind::Unsafe
                .error("its certificate is signed by nobody who is trusted here; see --tlsca"),
            CertificateError::NotValidForNameContext { expected, .. } => {
                let why = "name the server as its certificate does";
                Kind::Unsafe
                    .error(format!("its certificate is not for {}; {why}", expected.to_str()))
            }
            // The clock here may not be set yet.
            CertificateError::ExpiredContext { .. } => {
                Kind::Unfit.error("its certificate has expired, by the clock here")
            }
            CertificateError::NotValidYetContext { .. } => {
                Kind::Unfit.error("its certificate is not valid yet, by the clock here")
            }
            // A certificate that openssl made with -x509, for example.
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => Kind::Unsafe.error(
                "its certificate is that of an authority (CA:TRUE): give the server one that an \
                 authority has signed, with CA:FALSE",
            ),
            other => Kind::Unsafe.error(sanitize(&format!("its certificate is refused: {other}"))),
        },
        // Some alerts name the reason why the server refuses the client certificate.
        Error::AlertReceived(alert) => Kind::Credentials.error(match alert {
            AlertDescription::CertificateRequired => CERTIFICATE_WANTED,
            AlertDescription::CertificateExpired => "it says that our certificate has expired",
            AlertDescription::CertificateRevoked => "it says that our certificate was revoked",
            AlertDescription::UnknownCA => "it does not trust who signed our certificate",
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied => "it does not accept our certificate",
            _ => return Kind::Unfit.error(format!("the server ended TLS: {alert:?}")),
        }),
        Error::InvalidMessage(_) => Kind::Unsafe.error(
            "it does not answer with TLS; is it the right port, and is handshake_first set there \
             exactly if --tlsfirst is here?",
        ),
        other => Kind::Unfit.error(format!("TLS: {other}")),
    }
}
