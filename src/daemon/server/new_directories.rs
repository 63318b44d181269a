//! The directories that `--mkdir` creates, and removes again if the mount fails.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Failure, mountpoint};

/// New directories, the innermost first. They are removed on drop, unless they are kept or no
/// longer empty.
#[derive(Debug, Default)]
pub(super) struct NewDirectories(Vec<PathBuf>);

impl NewDirectories {
    /// Creates a mountpoint and the directories above it.
    ///
    /// # Errors
    /// If a directory cannot be created, or would be in the source, which is never written to.
    pub(super) fn create(path: &Path, source: Option<&Path>) -> Result<Self, Failure> {
        let shown = path.display();
        let is_missing = |path: &&Path| {
            let kind = fs::symlink_metadata(path).err().map(|error| error.kind());
            !path.as_os_str().is_empty() && kind == Some(io::ErrorKind::NotFound)
        };
        let missing: Vec<PathBuf> = path
            .ancestors()
            .take_while(is_missing)
            .map(Path::to_owned)
            .collect();
        if !missing.is_empty() && source.is_some_and(|source| mountpoint::is_within(path, source)) {
            return Err(format!(
                "mountpoint {shown}: lies inside the source; choose a directory outside of it"
            )
            .into());
        }
        if missing.is_empty() {
            // What is there is judged later: below a dead mount, mkdir(2) cannot tell that it is a directory.
            return Ok(Self::default());
        }
        // Removed even if only some of them can be created.
        let created = Self(missing);
        fs::create_dir_all(path).map_err(|e| format!("mountpoint {shown}: --mkdir: {e}"))?;
        Ok(created)
    }

    /// Keeps the directories.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewDirectories {
    fn drop(&mut self) {
        for directory in &self.0 {
            // The failure of the mount is reported, but not a directory that cannot be removed.
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_directories_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("old");
        fs::create_dir(&old).unwrap();
        let inner = old.join("a/b");
        drop(NewDirectories::create(&inner, None).unwrap());
        assert!(old.is_dir() && !old.join("a").exists());
        NewDirectories::create(&inner, None).unwrap().keep();
        assert!(inner.is_dir());
        drop(NewDirectories::create(&inner, Some(&old)).unwrap());
        assert!(inner.is_dir());
    }

    #[test]
    fn nothing_is_created_in_the_source() {
        let directory = tempfile::tempdir().unwrap();
        let refused = NewDirectories::create(&directory.path().join("a"), Some(directory.path()));
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("lies inside the source")
        );
        assert!(!directory.path().join("a").exists());
    }
}
