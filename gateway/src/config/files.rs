//! The files that a configuration names.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

/// No certificate is larger, nor a bundle of all authorities there are.
const MAX_BYTES: u64 = 4 << 20;

/// A file that the configuration names, as it was when the configuration was read.
#[derive(Clone, PartialEq, Eq)]
pub struct UsedFile {
    path: PathBuf,
    content: Arc<[u8]>,
}

// It may hold a key.
impl fmt::Debug for UsedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UsedFile").field(&self.path).finish()
    }
}

impl UsedFile {
    /// Reads the file `name`, which is relative to `folder`.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(name);
        match read(&path) {
            Ok(content) => Ok(Self {
                path,
                content: content.into(),
            }),
            Err(error) => Err(format!("`{}` cannot be read: {error}", path.display())),
        }
    }

    /// What it held.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Whether it holds something else by now, or cannot be read.
    pub(crate) fn is_changed(&self) -> bool {
        read(&self.path).ok().is_none_or(|found| found[..] != self.content[..])
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok(content)
}
