//! Certificates for servers that speak TLS, and for clients that have to show one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// PEM files in a folder that ends with this: an authority, and what it signed for a server on 127.0.0.1 and `localhost`
/// and for a client. And an authority that signed neither.
///
/// Its methods panic where anything goes wrong: this is for tests.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Makes new ones.
    ///
    /// # Panics
    /// Where they cannot be made or written.
    #[must_use]
    pub fn make() -> Self {
        let made = Self {
            dir: tempfile::tempdir().expect("a temporary folder for certificates"),
        };
        let authority = authority("authority");
        made.write(&made.ca(), &authority.pem());
        made.write(&made.stranger_ca(), &self::authority("stranger").pem());
        made.sign(
            &authority,
            &["127.0.0.1", "localhost"],
            ExtendedKeyUsagePurpose::ServerAuth,
            [made.server_cert(), made.server_key()],
        );
        made.sign(
            &authority,
            &["gateway"],
            ExtendedKeyUsagePurpose::ClientAuth,
            [made.client_cert(), made.client_key()],
        );
        made
    }

    /// The authority that signed both.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// An authority that signed neither.
    #[must_use]
    pub fn stranger_ca(&self) -> PathBuf {
        self.dir.path().join("stranger.pem")
    }

    /// The server's certificate.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.dir.path().join("server.pem")
    }

    /// The server's private key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.dir.path().join("server.key")
    }

    /// The client's certificate.
    #[must_use]
    pub fn client_cert(&self) -> PathBuf {
        self.dir.path().join("client.pem")
    }

    /// The client's private key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.dir.path().join("client.key")
    }

    /// Writes a certificate for `names` and its key into two files.
    fn sign(
        &self,
        authority: &CertifiedIssuer<'_, KeyPair>,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        [cert_file, key_file]: [PathBuf; 2],
    ) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names for a certificate");
        params.extended_key_usages = vec![purpose];
        let key = new_key();
        let cert = params.signed_by(&key, authority).expect("a signed certificate");
        self.write(&cert_file, &cert.pem());
        self.write(&key_file, &key.serialize_pem());
    }

    fn write(&self, file: &Path, text: &str) {
        fs::write(file, text).expect("a file in the folder for certificates");
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, new_key()).expect("a certificate of an authority")
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key pair")
}
