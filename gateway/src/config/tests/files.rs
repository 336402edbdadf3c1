//! Files that a configuration names.

use std::{fs, path::PathBuf};

use limiter_core::test_util::Certificates;
use tempfile::TempDir;

use super::*;

/// A folder with certificates, and the file `gateway.yaml` in it, which need not be there.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        let made = Certificates::make();
        for (name, from) in [
            ("ca.pem", made.ca()),
            ("other-ca.pem", made.stranger_ca()),
            ("client.pem", made.client_cert()),
            ("client.key", made.client_key()),
            ("other.key", made.server_key()),
        ] {
            fs::copy(from, folder.path(name)).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn parse(&self, redis: &str) -> Result<Config, ConfigError> {
        let text = format!("store: {{redis: {{{redis}}}}}\n");
        parse(self.path("gateway.yaml").to_str().unwrap(), &text)
    }

    fn parsed(&self, redis: &str) -> Config {
        self.parse(redis).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What is told, without the name of the file and of the folder.
    fn told(&self, redis: &str) -> String {
        let told = self.parse(redis).expect_err(redis).to_string();
        told.replace(&format!("{}/", self.0.path().display()), "")
    }
}

const URL: &str = "url: 'rediss://:hunter2@10.0.0.9'";

#[test]
fn certificates_are_read_from_beside_the_file() {
    let folder = Folder::new();
    for (scheme, rest) in [("rediss", ""), ("rediss-cluster", ""), ("rediss-sentinel", "/n")] {
        let tls = "tls: {ca: ca.pem, cert: client.pem, key: client.key}";
        let config = folder.parsed(&format!("url: '{scheme}://h{rest}', {tls}"));
        assert_eq!(config.files.len(), 3);
        let Store::Redis(redis) = &config.store else {
            panic!("{config:?}")
        };
        assert!(redis.access.tls.is_some());
        if let Servers::Sentinel { access, .. } = &redis.servers {
            assert_eq!(access.tls, redis.access.tls);
        }
        assert!(!format!("{config:?}").contains("BEGIN"));
    }
    let absolute = folder.path("ca.pem");
    folder.parsed(&format!("{URL}, tls: {{ca: {}}}", absolute.display()));
}

#[test]
fn another_content_is_another_store() {
    let folder = Folder::new();
    let redis = format!("{URL}, tls: {{ca: ca.pem}}");
    let config = folder.parsed(&redis);
    assert_eq!(folder.parsed(&redis).store, config.store);
    assert!(!config.files.iter().any(UsedFile::is_changed));
    fs::copy(folder.path("other-ca.pem"), folder.path("ca.pem")).unwrap();
    assert!(config.files.iter().any(UsedFile::is_changed));
    assert_ne!(folder.parsed(&redis).store, config.store);
    fs::remove_file(folder.path("ca.pem")).unwrap();
    assert!(config.files.iter().any(UsedFile::is_changed));
}

#[test]
fn what_is_wrong_with_them_is_told_with_its_place() {
    let folder = Folder::new();
    fs::write(folder.path("empty.pem"), "").unwrap();
    fs::write(folder.path("large.pem"), vec![b'a'; (4 << 20) + 1]).unwrap();
    for (redis, expected) in [
        (
            "tls: {ca: none.pem}",
            "tls.ca: `none.pem` cannot be read: No such file or directory (os error 2)",
        ),
        ("tls: {ca: .}", "tls.ca: `.` cannot be read: it is not a file"),
        (
            "tls: {ca: large.pem}",
            "tls.ca: `large.pem` cannot be read: it is too large",
        ),
        ("tls: {ca: ''}", "tls.ca: is empty, expected the path of a file"),
        (
            "tls: {ca: 1}",
            "tls.ca: 1 is a number, expected a text; put it in quotes",
        ),
        (
            "tls: {ca: empty.pem}",
            "tls.ca: the certificates of the authorities: there is no PEM block `CERTIFICATE`",
        ),
        (
            "tls: {ca: ca.pem, cert: client.key, key: client.key}",
            "tls.cert: the client certificate: there is no PEM block `CERTIFICATE`",
        ),
        (
            "tls: {ca: ca.pem, cert: client.pem, key: client.pem}",
            "tls.key: the key of the client certificate: there is no PEM block `PRIVATE KEY`",
        ),
        (
            "tls: {ca: ca.pem, cert: client.pem, key: other.key}",
            "tls.key: the key does not belong to the client certificate",
        ),
        (
            "tls: {ca: ca.pem, cert: client.pem}",
            "tls.key: is missing, expected the file of the certificate's private key",
        ),
        (
            "tls: {ca: ca.pem, key: client.key}",
            "tls.cert: is missing, expected the file of the key's certificate",
        ),
    ] {
        let told = folder.told(&format!("{URL}, {redis}"));
        let (_, told) = told.split_once("store.redis.").unwrap();
        assert_eq!(told, expected, "{redis}");
    }
}
