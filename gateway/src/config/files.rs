//! The files that a configuration names.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::document;

/// What a file is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A certificate or its key: looked at with every reload.
    Certificate,
    /// A part of the configuration: watched as that is.
    Part,
}

impl Use {
    /// No certificate is larger, nor a bundle of all authorities there are; a part is a configuration.
    fn max_bytes(self) -> u64 {
        match self {
            Self::Certificate => 4 << 20,
            Self::Part => document::MAX_BYTES,
        }
    }
}

/// A file that the configuration names, as it was when the configuration was read.
#[derive(Clone, PartialEq, Eq)]
pub struct UsedFile {
    path: PathBuf,
    used: Use,
    /// `None` where it could not be read.
    content: Option<Arc<[u8]>>,
}

// It may hold a key.
impl fmt::Debug for UsedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UsedFile").field(&self.path).finish()
    }
}

impl UsedFile {
    /// Reads the file `name`, which is relative to `folder`; beside it, why it cannot be read.
    pub(super) fn read(folder: &Path, name: &str, used: Use) -> (Self, Option<String>) {
        let path = folder.join(name);
        let (content, error) = match read(&path, used.max_bytes()) {
            Ok(content) => (Some(content.into()), None),
            Err(error) => (None, Some(format!("`{}` cannot be read: {error}", path.display()))),
        };
        (Self { path, used, content }, error)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it held.
    pub(super) fn content(&self) -> &[u8] {
        self.content.as_deref().unwrap_or_default()
    }

    /// Whether it is watched, as the configuration is.
    pub(crate) fn is_watched(&self) -> bool {
        self.used == Use::Part
    }

    /// Whether it holds something else by now, or can no longer be read, or can be by now.
    pub(crate) fn is_changed(&self) -> bool {
        read(&self.path, self.used.max_bytes()).ok().as_deref() != self.content.as_deref()
    }
}

fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        return Err(io::Error::other("it is too large"));
    }
    Ok(content)
}
