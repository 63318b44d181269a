//! From what a person writes as SOURCE to an open store.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use super::zip::ZipError;
use super::{DirOptions, DirStore, Store, ZipOptions, ZipStore};

/// The demo hierarchy, made by `scripts/make-demo-store`.
static DEMO: &[u8] = include_bytes!("../demo/demo.zarr.zip");

/// How sources are opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// For zip archives.
    pub zip: ZipOptions,
    /// For directories.
    pub dir: DirOptions,
}

/// Why a source can not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A URL of a kind that is not built in.
    #[error("{source_name}: sources of the kind `{scheme}` are not supported by this version")]
    UnknownScheme {
        /// The source, without secrets.
        source_name: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// Neither a directory nor a regular file.
    #[error("{}: neither a directory nor a zip archive", path.display())]
    WrongKind {
        /// The source.
        path: PathBuf,
    },
    /// A file that is no archive that can be mounted.
    #[error("{}: {error}", path.display())]
    Zip {
        /// The source.
        path: PathBuf,
        /// What is wrong with it.
        error: ZipError,
    },
    /// The system could not open it.
    #[error("{}: {error}", path.display())]
    Io {
        /// The source.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The local path that a source names, if it is a local one.
///
/// # Errors
/// [`OpenError::UnknownScheme`] for any URL but `file://`.
pub fn local_path(source: &Path) -> Result<&Path, OpenError> {
    let Some((scheme, rest)) = source.to_str().and_then(|s| s.split_once("://")) else {
        return Ok(source);
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.|:".contains(c));
    if !is_scheme {
        return Ok(source);
    }
    if scheme == "file" {
        return Ok(Path::new(rest.strip_prefix("localhost").unwrap_or(rest)));
    }
    // What follows may hold a password: it is not repeated.
    Err(OpenError::UnknownScheme {
        source_name: format!("{scheme}://..."),
        scheme: scheme.to_owned(),
    })
}

/// Opens a directory or, by its content, a zip archive.
///
/// # Errors
/// [`OpenError`], which names the source.
pub fn open_source(source: &Path, options: &OpenOptions) -> Result<Box<dyn Store>, OpenError> {
    let path = local_path(source)?;
    let failed = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Ok(Box::new(DirStore::open(path, options.dir).map_err(failed)?));
    }
    if !metadata.is_file() {
        return Err(OpenError::WrongKind {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(failed)?;
    ZipStore::open(file, &path.to_string_lossy(), options.zip)
        .map(|store| Box::new(store) as _)
        .map_err(|error| OpenError::Zip {
            path: path.to_owned(),
            error,
        })
}

/// Opens the demo store that is inside the binary.
///
/// # Errors
/// [`OpenError`], if the system has no memory file for it.
pub fn open_demo(options: &OpenOptions) -> Result<Box<dyn Store>, OpenError> {
    let path = Path::new("demo");
    let failed = |error: io::Error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let memory = rustix::fs::memfd_create("zarrfs-demo", MemfdFlags::CLOEXEC)
        .map_err(|e| failed(e.into()))?;
    let mut file = File::from(memory);
    file.write_all(DEMO).map_err(failed)?;
    ZipStore::open(file, "demo", options.zip)
        .map(|store| Box::new(store) as _)
        .map_err(|error| OpenError::Zip {
            path: path.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_schemes_are_taken_for_urls() {
        assert_eq!(local_path(Path::new("/a/b")).unwrap(), Path::new("/a/b"));
        assert_eq!(
            local_path(Path::new("file:///a/b")).unwrap(),
            Path::new("/a/b")
        );
        assert_eq!(
            local_path(Path::new("./odd ://name")).unwrap(),
            Path::new("./odd ://name")
        );
        let secret = local_path(Path::new("s3://key:secret@host/b"))
            .unwrap_err()
            .to_string();
        assert!(
            secret.contains("s3") && !secret.contains("secret"),
            "{secret}"
        );
    }
}
