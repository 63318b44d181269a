//! The directory in which several processes, also of several machines, write one file.
//!
//! The directory is beside the file. It has the file `data`, which is as long as the complete file, and an empty file for
//! each part that is written, whose name is the number of the part. Whoever sees all numbers gives `data` its final
//! name. No lock is needed, which some network file systems do not have:
//!
//! - A directory comes into being together with its `data`, by a rename, so the numbers are always those of its `data`.
//! - A number is created after its part is written and synchronized, and before the other numbers are looked up, so the
//!   process that creates the last one sees all of them.
//! - If two processes see all of them, the rename of one fails, because `data` has gone.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::rename;
use crate::inspect::{Failure, Part};
use crate::store::ErrorKind;

const DATA: &str = "data";

/// The incomplete file of several processes.
#[derive(Debug)]
pub(super) struct PartialFile {
    path: PathBuf,
    directory: File,
    /// As long as the complete file.
    pub(super) data: File,
}

impl PartialFile {
    /// Opens the incomplete file that is to become `file`, or creates it. `version` is one of the content that all
    /// processes know.
    pub(super) fn open(file: &Path, version: u128, size: u64, part: Part) -> Result<Self, Failure> {
        let mut name = OsString::from(".");
        name.push(file.file_name().unwrap_or_default());
        name.push(format!(".{version:x}-{size}.of-{}.parts", part.count()));
        let path = file.with_file_name(name);
        let opened = match Self::existing(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(&path, size, part).and_then(|()| Self::existing(&path))
            }
            opened => opened,
        };
        opened.map_err(|error| ErrorKind::at(&path, error))
    }

    fn existing(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let data = File::from(openat(&directory, DATA, flags, Mode::empty())?);
        Ok(Self {
            path: path.to_owned(),
            directory,
            data,
        })
    }

    /// Returns whether a part is written.
    pub(super) fn has(&self, part: u32) -> Result<bool, Failure> {
        match statat(&self.directory, part.to_string(), AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(error.into())),
        }
    }

    /// Declares a part as written. If it was the last one, the file gets its name. Returns a part that is not yet
    /// written.
    pub(super) fn finish(
        self,
        part: Part,
        file: &Path,
        overwrite: bool,
    ) -> Result<Option<u32>, Failure> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let created = openat(
            &self.directory,
            part.index().to_string(),
            flags,
            Mode::from_raw_mode(0o666),
        );
        match created {
            // Another process has completed the file and removed the directory.
            Err(Errno::NOENT) => return self.completed_by_another(file),
            created => drop(created.map_err(|error| self.failed(error.into()))?),
        }
        for other in 1..=part.count() {
            if !self.has(other)? {
                // The numbers are gone too after another process has completed the file.
                return match self.is(file) {
                    true => Ok(None),
                    false => Ok(Some(other)),
                };
            }
        }
        match rename(&self.directory, Path::new(DATA), file, overwrite) {
            Ok(()) => {}
            Err(_) if self.is(file) => return Ok(None),
            Err(failure) => return Err(failure),
        }
        fs::remove_dir_all(&self.path).map_err(|error| self.failed(error))?;
        Ok(None)
    }

    fn completed_by_another(&self, file: &Path) -> Result<Option<u32>, Failure> {
        match self.is(file) {
            true => Ok(None),
            false => Err(ErrorKind::Changed.failure(format!(
                "{}: another process has removed it; run all parts again",
                self.path.display()
            ))),
        }
    }

    /// Returns whether a file is the one that this process has written to.
    fn is(&self, file: &Path) -> bool {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let (own, other) = (self.data.metadata(), fs::metadata(file));
        own.ok()
            .map(id)
            .is_some_and(|own| other.ok().map(id) == Some(own))
    }

    pub(super) fn failed(&self, error: io::Error) -> Failure {
        ErrorKind::at(&self.path, error)
    }
}

/// Creates a directory with its `data`, unless another process does.
fn create(path: &Path, size: u64, part: Part) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", part.index()));
    let new = PathBuf::from(new);
    let missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    // Left by a process that was killed.
    missing(fs::remove_dir_all(&new))?;
    fs::create_dir(&new)?;
    let created = File::create_new(new.join(DATA)).and_then(|data| data.set_len(size));
    let renamed = created.and_then(|()| match fs::rename(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            match path.join(DATA).exists() {
                true => Ok(()),
                // Left by a process that was killed after it had completed the file.
                false => fs::remove_dir_all(path).and_then(|()| fs::rename(&new, path)),
            }
        }
        renamed => renamed,
    });
    missing(fs::remove_dir_all(&new)).and(renamed)
}
