//! Authorities and certificates of one test's own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::support::folder::{Folder, write_secret};

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as files.
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = params(&[]);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    /// Writes its own certificate into `folder`.
    pub(crate) fn file(&self, folder: &Folder, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, self.0.pem()).expect("written");
        path
    }

    /// Certifies that the holder of a new key is called any of `names`.
    pub(crate) fn certify(&self, folder: &Folder, file: &str, names: &[&str]) -> CertificateFiles {
        self.sign(folder, file, params(names))
    }

    /// The same, but for 2020 only.
    pub(crate) fn certify_expired(
        &self,
        folder: &Folder,
        file: &str,
        names: &[&str],
    ) -> CertificateFiles {
        let mut params = params(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        self.sign(folder, file, params)
    }

    fn sign(&self, folder: &Folder, file: &str, params: CertificateParams) -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        let files = CertificateFiles {
            certificate: folder.join(format!("{file}.pem")),
            key: folder.join(format!("{file}.key")),
        };
        fs::write(&files.certificate, certificate.pem()).expect("written");
        write_secret(&files.key, &key.serialize_pem());
        files
    }
}

impl CertificateFiles {
    /// The TLS part of a server's configuration; `more` follows.
    pub(crate) fn server(&self, more: &str) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", {more} }}\n")
    }

    /// The TLS part of a server's configuration that asks for certificates of `ca`.
    pub(crate) fn verifying_server(&self, ca: &Path) -> String {
        self.server(&format!("ca_file: \"{}\", verify: true", ca.display()))
    }

    pub(crate) fn pair(&self) -> Option<(PathBuf, PathBuf)> {
        Some((self.certificate.clone(), self.key.clone()))
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names")
}
