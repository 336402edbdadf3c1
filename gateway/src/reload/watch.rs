//! What asks for a reload: SIGHUP, and changes of the file or of a part of it that stands in a file of its own.
//!
//! Folders are watched, not the file alone: editors and mounts put another file in its place, and a watch on the old one
//! hears nothing more. An event is a hint only, to look whether the file is another one; a slow poll looks too, for file
//! systems that tell of nothing. A change is taken when the file has been quiet for a moment.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::{self, MissedTickBehavior},
};

use super::{Reloader, Trigger};

/// A file that has not changed for this long is taken to be whole.
const QUIET: Duration = Duration::from_millis(200);
/// Between two looks at a folder where much happens.
const PAUSE: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_secs(3);
/// Where folders cannot be watched, polling alone must be in time.
const POLL_ALONE: Duration = Duration::from_millis(500);
/// Links followed at most, as in the kernel.
const MAX_LINKS: usize = 40;

/// Catches SIGHUP from now on.
pub(super) fn hangups() -> Option<Signal> {
    signal(SignalKind::hangup())
        .inspect_err(|error| tracing::warn!("SIGHUP cannot be waited for: {error}"))
        .ok()
}

/// Reloads on SIGHUP; for ever.
pub(super) async fn signals(reloader: &Arc<Reloader>, hangups: Option<Signal>) {
    let Some(mut hangups) = hangups else { return };
    while hangups.recv().await.is_some() {
        let reloader = Arc::clone(reloader);
        blocking(move || reloader.reload(Trigger::Signal)).await;
    }
}

/// Reloads on changes of the files; for ever.
pub(super) async fn files(reloader: &Arc<Reloader>) {
    let hint = Arc::new(Notify::new());
    let mut paths = reloader.watched();
    let mut folders = Folders::new(&paths, &hint);
    let mut poll = time::interval(if folders.watcher.is_some() { POLL } else { POLL_ALONE });
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = stamps(&paths);
    loop {
        let is_poll = tokio::select! {
            _ = poll.tick() => true,
            () = hint.notified() => false,
        };
        let found = stamps(&paths);
        let is_changed = found != known || {
            // A file system that tells of nothing may also keep no exact times.
            let reloader = Arc::clone(reloader);
            is_poll && blocking(move || reloader.is_changed()).await.unwrap_or(false)
        };
        if is_changed {
            known = settled(&paths, found).await;
            let again = Arc::clone(reloader);
            blocking(move || again.reload_if_changed()).await;
        }
        // Whoever reloaded, there may be other parts now.
        paths = reloader.watched();
        if is_changed || is_poll {
            folders.watch(&paths);
        }
        if is_changed && stamps(&paths) != known {
            // One changed while it was read, or before its folders were watched, or is new: look again.
            hint.notify_one();
        }
        time::sleep(PAUSE).await;
    }
}

async fn blocking<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    tokio::task::spawn_blocking(f)
        .await
        .inspect_err(|error| tracing::error!("a reload failed: {error}"))
        .ok()
}

/// The files' stamps when they have been the same for [`QUIET`].
async fn settled(paths: &[PathBuf], mut found: Vec<Stamp>) -> Vec<Stamp> {
    loop {
        time::sleep(QUIET).await;
        let now = stamps(paths);
        if now == found {
            return now;
        }
        found = now;
    }
}

/// What tells one state of a file from another, without reading it; `None` where there is no file.
type Stamp = Option<Changed>;

/// Which file it is, and when it or its permissions changed. A tool may set the time of the last write back, not this one.
#[derive(PartialEq, Eq)]
struct Changed {
    device: u64,
    inode: u64,
    bytes: u64,
    at: (i64, i64),
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    paths.iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    // Links are followed: another file behind one is another file.
    let metadata = fs::metadata(path).ok()?;
    Some(Changed {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        at: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// The folders in which something may happen to the files.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(paths: &[PathBuf], hint: &Arc<Notify>) -> Self {
        let hint = Arc::clone(hint);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event too.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                hint.notify_one();
            }
        });
        let mut folders = Self {
            watcher: watcher
                .inspect_err(|error| tracing::warn!("folders cannot be watched: {error}"))
                .ok(),
            watched: BTreeSet::new(),
        };
        folders.watch(paths);
        folders
    }

    /// Watches the folders that matter now, and no others. Those that are watched are watched again: a folder may have
    /// been replaced under its name.
    fn watch(&mut self, paths: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else { return };
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let wanted: BTreeSet<PathBuf> = paths.iter().flat_map(|path| folders(&absolute(path))).collect();
        for gone in self.watched.difference(&wanted) {
            // A folder that is no more is not watched either.
            watcher.unwatch(gone).ok();
        }
        self.watched = wanted;
        for folder in &self.watched {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::debug!("{} is not watched: {error}", folder.display());
            }
        }
    }
}

/// The folder of the file, of every link on the way to it, and of what they lead to; and the file that is there in the end.
fn folders(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let is_link = |prefix: &&Path| fs::symlink_metadata(prefix).is_ok_and(|metadata| metadata.is_symlink());
        // The link nearest to the root is followed first, as the kernel does.
        let prefixes: Vec<&Path> = path.ancestors().collect();
        let Some(link) = prefixes.into_iter().rev().find(is_link) else {
            break;
        };
        let (Some(parent), Ok(target)) = (link.parent(), fs::read_link(link)) else {
            break;
        };
        folders.insert(parent.to_owned());
        let rest = path.strip_prefix(link).unwrap_or(Path::new(""));
        let target = parent.join(target);
        path = if rest.as_os_str().is_empty() {
            target
        } else {
            target.join(rest)
        };
    }
    folders.extend(path.parent().map(Path::to_owned));
    // A file that is mounted by itself, as into a container, is written to without anything happening in its folder.
    folders.insert(path);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn folders_of_a_plain_file() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let file = root.join("gateway.yaml");
        assert_eq!(folders(&file), BTreeSet::from([root, file.clone()]));
    }

    #[test]
    fn folders_of_a_mounted_config_map() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir(root.join("..v1")).unwrap();
        fs::write(root.join("..v1/gateway.yaml"), "").unwrap();
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/gateway.yaml", root.join("gateway.yaml")).unwrap();
        let expected = BTreeSet::from([root.clone(), root.join("..v1"), root.join("..v1/gateway.yaml")]);
        assert_eq!(folders(&root.join("gateway.yaml")), expected);
    }

    #[test]
    fn links_in_a_circle_end() {
        let root = tempfile::tempdir().unwrap();
        symlink(root.path().join("b"), root.path().join("a")).unwrap();
        symlink(root.path().join("a"), root.path().join("b")).unwrap();
        assert!(!folders(&root.path().join("a")).is_empty());
    }
}
