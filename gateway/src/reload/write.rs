//! A file's new content, whole or not at all.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// Of a file that is not there yet: it may hold secrets.
const NEW_MODE: u32 = 0o600;

/// Writes `text` over the file at `path`, by a rename within its folder: whoever reads it meanwhile, and a loss of power,
/// find the old content or the new. Where `path` is a link, what it leads to is replaced and the link stays. Mode and, as
/// far as we may, owner stay too.
///
/// # Errors
/// The folder cannot be written to, or the file is mounted by itself. The old content stays then.
pub(super) fn over(path: &Path, text: &str) -> io::Result<()> {
    let target = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => std::path::absolute(path)?,
        target => target?,
    };
    let beside = beside(&target)?;
    let written = write(&beside, &target, text);
    if written.is_err() {
        // It may not even be there.
        fs::remove_file(&beside).ok();
    }
    written
}

/// A name in the same folder that nobody else has.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{:016x}", fastrand::u64(..)));
    Ok(target.with_file_name(beside))
}

fn write(beside: &Path, target: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(NEW_MODE)
        .open(beside)?;
    file.write_all(text.as_bytes())?;
    if let Ok(old) = fs::metadata(target) {
        // Only root may give a file away, and the mode is changed last: a change of the owner clears bits of it.
        fchown(&file, Some(old.uid()), Some(old.gid())).ok();
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    }
    file.sync_all()?;
    fs::rename(beside, target)?;
    // The name is as good as written. Its folder may be one that we may write to but not read.
    let folder = target.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all());
    if let Err(error) = folder {
        tracing::warn!(
            "a loss of power may bring the former {} back: {error}",
            target.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let (before, mut open) = (fs::metadata(&path).unwrap(), File::open(&path).unwrap());
        over(&path, "new").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!((after.mode(), after.uid()), (before.mode(), before.uid()));
        assert_ne!(after.ino(), before.ino());
        assert_eq!(io::read_to_string(&mut open).unwrap(), "old", "not written in place");
        assert_eq!(names(folder.path()), ["gateway.yaml"]);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, link) = (folder.path().join("elsewhere"), folder.path().join("gateway.yaml"));
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("real.yaml"), "old").unwrap();
        symlink("elsewhere/real.yaml", &link).unwrap();
        over(&link, "new").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("elsewhere/real.yaml"));
        assert_eq!(fs::read_to_string(elsewhere.join("real.yaml")).unwrap(), "new");
        assert_eq!(names(&elsewhere), ["real.yaml"]);
    }

    #[test]
    fn a_file_that_went_away_is_written_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        over(&path, "new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_nothing_lies_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        fs::create_dir(&path).unwrap();
        assert!(over(&path, "new").is_err());
        assert!(over(&folder.path().join("no/such/file"), "new").is_err());
        assert_eq!(names(folder.path()), ["gateway.yaml"]);
    }
}
