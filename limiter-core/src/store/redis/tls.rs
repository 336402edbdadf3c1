//! Encrypted connections: whom we trust, and who we are.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

/// How connections are encrypted: TLS 1.2 or 1.3, with a server whose certificate is for the host that the
/// configuration names.
///
/// Two are the same if they were made from the same bytes.
#[derive(Clone)]
pub struct Tls {
    made_from: Arc<Pem>,
    client: Arc<ClientConfig>,
}

#[derive(PartialEq, Eq)]
struct Pem {
    ca: Option<Box<[u8]>>,
    cert: Option<Box<[u8]>>,
    key: Option<Box<[u8]>>,
}

/// The certificate that we show to a server that asks for one. PEM.
#[derive(Clone, Copy)]
pub struct ClientIdentity<'a> {
    /// The certificate, and those between it and the authority, in this order.
    pub cert: &'a [u8],
    /// Its private key, not encrypted.
    pub key: &'a [u8],
}

impl fmt::Debug for ClientIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts the authorities in `ca`, or where there is none those that the system trusts; shows `identity`, if any.
    ///
    /// # Errors
    /// [`TlsError`], which names the part that is wrong.
    pub fn new(ca: Option<&[u8]>, identity: Option<ClientIdentity<'_>>) -> Result<Self, TlsError> {
        let roots = ca.map_or_else(system_roots, roots)?;
        // The provider is named, not looked up: what else is in the process must not decide.
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Unusable(error.to_string()))?
            .with_root_certificates(roots);
        let client = match identity {
            None => builder.with_no_client_auth(),
            Some(ClientIdentity { cert, key }) => builder
                .with_client_auth_cert(certificates(cert).map_err(TlsError::Cert)?, private_key(key)?)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch,
                    rustls::Error::InvalidCertificate(error) => TlsError::Cert(PemProblem::Unusable(error.to_string())),
                    error => TlsError::Key(PemProblem::Unusable(error.to_string())),
                })?,
        };
        let made_from = Pem {
            ca: ca.map(Into::into),
            cert: identity.map(|identity| identity.cert.into()),
            key: identity.map(|identity| identity.key.into()),
        };
        Ok(Self {
            made_from: Arc::new(made_from),
            client: Arc::new(client),
        })
    }

    /// Trusts the authorities that the system trusts, and shows no certificate.
    ///
    /// # Errors
    /// [`TlsError::NoSystemRoots`] where there are none.
    pub fn with_system_roots() -> Result<Self, TlsError> {
        Self::new(None, None)
    }

    pub(super) fn client(&self) -> &ClientConfig {
        &self.client
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.made_from == other.made_from
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pem { ca, cert, .. } = &*self.made_from;
        f.debug_struct("Tls")
            .field("ca", if ca.is_some() { &"given" } else { &"of the system" })
            .field("client_certificate", &cert.is_some())
            .finish()
    }
}

/// Why connections cannot be encrypted as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Nobody can be trusted.
    #[error("the system has no certificates of authorities: {0}")]
    NoSystemRoots(String),
    /// The certificates of the authorities.
    #[error("the certificates of the authorities: {0}")]
    Ca(PemProblem),
    /// The certificate that we are to show.
    #[error("the client certificate: {0}")]
    Cert(PemProblem),
    /// The key of the certificate that we are to show.
    #[error("the key of the client certificate: {0}")]
    Key(PemProblem),
    /// The key is one, but of another certificate.
    #[error("the key does not belong to the client certificate")]
    KeyMismatch,
    /// The cryptography in this program cannot do it.
    #[error("TLS is not possible: {0}")]
    Unusable(String),
}

/// What is wrong with the content of a PEM file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemProblem {
    /// There is no block of the kind that is due.
    #[error("there is no PEM block `{0}`")]
    Missing(&'static str),
    /// A block is there, but spoilt.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A block is well-formed, but its content cannot be used.
    #[error("it cannot be used: {0}")]
    Unusable(String),
}

fn roots(ca: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca).map_err(TlsError::Ca)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Ca(PemProblem::Unusable(error.to_string())))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One of them that is odd must not keep us from the others.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let why = found
        .errors
        .first()
        .map_or("none is installed".into(), ToString::to_string);
    Err(TlsError::NoSystemRoots(why))
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemProblem> {
    let list = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| problem(&error, "CERTIFICATE"))?;
    if list.is_empty() {
        return Err(PemProblem::Missing("CERTIFICATE"));
    }
    Ok(list)
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| TlsError::Key(problem(&error, "PRIVATE KEY")))
}

fn problem(error: &pem::Error, due: &'static str) -> PemProblem {
    match error {
        pem::Error::NoItemsFound => PemProblem::Missing(due),
        // Its own text would show what stands in the file.
        pem::Error::MissingSectionEnd { .. } => PemProblem::Unreadable("a block does not end".to_owned()),
        pem::Error::IllegalSectionStart { .. } => PemProblem::Unreadable("a block does not begin as one".to_owned()),
        pem::Error::Base64Decode(_) => PemProblem::Unreadable("a block is not base64".to_owned()),
        _ => PemProblem::Unreadable("not PEM".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read;

    use super::*;
    use crate::test_util::Certificates;

    #[test]
    fn what_was_made_from_the_same_files_is_the_same() {
        let files = Certificates::make();
        let (ca, other) = (read(files.ca()).unwrap(), read(files.stranger_ca()).unwrap());
        let (cert, key) = (read(files.client_cert()).unwrap(), read(files.client_key()).unwrap());
        let identity = ClientIdentity { cert: &cert, key: &key };
        let tls = Tls::new(Some(&ca), Some(identity)).unwrap();
        assert_eq!(tls, Tls::new(Some(&ca), Some(identity)).unwrap());
        assert_ne!(tls, Tls::new(Some(&other), Some(identity)).unwrap());
        assert_ne!(tls, Tls::new(Some(&ca), None).unwrap());
        let shown = format!("{tls:?} {identity:?}");
        assert_eq!(
            shown,
            r#"Tls { ca: "given", client_certificate: true } ClientIdentity { .. }"#
        );
    }

    #[test]
    fn each_part_that_is_wrong_is_named() {
        let files = Certificates::make();
        let ca = read(files.ca()).unwrap();
        let (cert, key) = (read(files.client_cert()).unwrap(), read(files.client_key()).unwrap());
        let other_key = read(files.server_key()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let cut = |bytes: &[u8]| text(bytes).replace("-----END", "-----AND").into_bytes();
        let spoilt = |bytes: &[u8]| text(bytes).replacen("MI", "!!", 1).into_bytes();
        let not_der = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        let error = |ca: &[u8], cert: &[u8], key: &[u8]| {
            let identity = ClientIdentity { cert, key };
            Tls::new(Some(ca), Some(identity)).unwrap_err().to_string()
        };
        let (of_ca, of_cert) = ("the certificates of the authorities: ", "the client certificate: ");
        let of_key = "the key of the client certificate: ";
        for (error, begin, end) in [
            (error(b"", &cert, &key), of_ca, "there is no PEM block `CERTIFICATE`"),
            (error(&key, &cert, &key), of_ca, "there is no PEM block `CERTIFICATE`"),
            (
                error(&cut(&ca), &cert, &key),
                of_ca,
                "it cannot be read: a block does not end",
            ),
            (
                error(&spoilt(&ca), &cert, &key),
                of_ca,
                "it cannot be read: a block is not base64",
            ),
            (error(&not_der, &cert, &key), of_ca, "it cannot be used: "),
            (error(&ca, b"x", &key), of_cert, "there is no PEM block `CERTIFICATE`"),
            (error(&ca, &not_der, &key), of_cert, "it cannot be used: "),
            (error(&ca, &cert, &cert), of_key, "there is no PEM block `PRIVATE KEY`"),
            (
                error(&ca, &cert, &cut(&key)),
                of_key,
                "it cannot be read: a block does not end",
            ),
            (
                error(&ca, &cert, &other_key),
                "the key does not belong to the client certificate",
                "",
            ),
        ] {
            assert!(
                error.starts_with(begin) && error.contains(end),
                "{error} is not {begin}{end}"
            );
        }
    }
}
