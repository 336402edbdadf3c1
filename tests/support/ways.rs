//! The ways in which a gateway.yaml is changed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::Signal;
use serde_json::json;

use super::{client::Client, gateway::Gateway, http::request};

/// A way of changing the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Opened, cut to nothing, written.
    InPlace,
    /// A new file beside it, renamed over it.
    Rename,
    /// Removed, then made anew.
    DeleteAndCreate,
    /// The old one renamed to a backup, then written anew, as vim does.
    Backup,
    /// Behind the link `..data`, which is swapped, as Kubernetes does. For a gateway that was started `mounted`.
    ConfigMap,
    /// In place, with a SIGHUP right after it.
    Signal,
    /// In place, with a POST to `/api/reload` right after it.
    Post,
    /// A PUT to `/api/config`.
    Put,
}

static MOUNTED: AtomicU64 = AtomicU64::new(0);

/// Lays out a mounted ConfigMap that holds `yaml`, or replaces its content as the kubelet does.
pub(crate) fn mount(folder: &Path, yaml: &str) {
    let old = fs::read_link(folder.join("..data")).ok();
    let name = format!("..v{}", MOUNTED.fetch_add(1, Ordering::Relaxed));
    fs::create_dir(folder.join(&name)).unwrap();
    fs::write(folder.join(&name).join("gateway.yaml"), yaml).unwrap();
    symlink(&name, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    match old {
        Some(old) => fs::remove_dir_all(folder.join(old)).unwrap(),
        None => symlink("..data/gateway.yaml", folder.join("gateway.yaml")).unwrap(),
    }
}

impl Gateway {
    /// Changes its file, and asks it to look where the way is to ask.
    pub(crate) async fn write(&self, way: Way, yaml: &str) {
        let path = self.config_path();
        let beside = |name: &str| path.with_file_name(name);
        match way {
            Way::InPlace => fs::write(&path, yaml).unwrap(),
            Way::Rename => {
                fs::write(beside("gateway.yaml.new"), yaml).unwrap();
                fs::rename(beside("gateway.yaml.new"), &path).unwrap();
            }
            Way::DeleteAndCreate => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, yaml).unwrap();
            }
            Way::Backup => {
                fs::rename(&path, beside("gateway.yaml~")).unwrap();
                fs::write(&path, yaml).unwrap();
                fs::remove_file(beside("gateway.yaml~")).unwrap();
            }
            Way::ConfigMap => mount(path.parent().unwrap(), yaml),
            Way::Signal => {
                fs::write(&path, yaml).unwrap();
                self.signal(Signal::HUP);
            }
            Way::Post => {
                fs::write(&path, yaml).unwrap();
                let answer = self.ask_admin("POST", "/api/reload").await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
            Way::Put => {
                let answer = self.put_config(yaml).await;
                assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("applied")));
            }
        }
    }

    /// PUT to `/api/config`.
    pub(crate) async fn put_config(&self, yaml: &str) -> super::Response {
        let mut put = request("PUT", "/api/config");
        put.body = yaml.as_bytes().to_vec();
        Client::to(self.admin()).send(&put).await
    }
}
