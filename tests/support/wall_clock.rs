//! A wall clock that a test steps, for processes that it starts; their monotonic clock is left alone.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

/// The clock: as far from the real one as it was last set.
#[derive(Debug)]
pub(crate) struct WallClock {
    dir: TempDir,
}

impl WallClock {
    /// One that shows the real time, at first.
    pub(crate) fn new() -> Self {
        let clock = Self {
            dir: TempDir::new().unwrap(),
        };
        clock.set(0);
        clock
    }

    /// Sets it so many seconds from the real time, ahead or back.
    pub(crate) fn set(&self, seconds: i64) {
        // By rename: a process that reads half of it would take some other time.
        let new = self.dir.path().join("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    /// What a process has to have in its environment to go by this clock.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", library().to_str().unwrap().to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().to_str().unwrap().to_owned()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("clock")
    }
}

/// # Panics
///
/// If `libfaketime` is missing: these tests do not pass without it.
fn library() -> PathBuf {
    let below = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
    let mut libraries = folders
        .into_iter()
        .flat_map(|folder| below(folder).map(|entry| entry.path()).chain([folder.into()]))
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries
        .find(|library| library.exists())
        .expect("libfaketime (of the package faketime), which these tests need installed")
}
