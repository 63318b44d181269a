//! Parses the SOURCE that a user writes, and opens it as a store.
//!
//! A source is a path or a URL, and perhaps what is there and which part of it is meant (Zarr URL pipelines, ZEP 8):
//! `URL|zip:KEY`, `URL|icechunk:@VERSION/KEY`, `URL|zarr3:KEY`, one behind the other. `zip::URL` (as written by fsspec)
//! and `icechunk+URL` mean the same as `URL|zip:` and `URL|icechunk:`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::remote::{self, RemoteOpenError};
use super::stac::StacError;
use super::url_scheme::with_lower_scheme;
use super::zip::ZipError;
use super::{
    DatabaseError, DatabaseOptions, DirOptions, IcechunkError, IcechunkOptions, InvalidKey, Key,
    KeyClasses, ListingSupport, ReferenceError, RemoteOptions, Store, TargetOptions, ZipOptions,
    ZipStore, system,
};

mod advice;
mod open;

/// The demo hierarchy, made by `scripts/make-demo-store`.
static DEMO: &[u8] = include_bytes!("../demo/demo.zarr.zip");

/// Options for opening sources.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Options of zip archives.
    pub zip: ZipOptions,
    /// Options of directories.
    pub dir: DirOptions,
    /// Options of databases.
    pub database: DatabaseOptions,
    /// Options of remote sources.
    pub remote: RemoteOptions,
    /// Options of targets of references.
    pub targets: TargetOptions,
    /// Options of Icechunk repositories.
    pub icechunk: IcechunkOptions,
    /// The time for which an asset of a STAC document that could not be opened is not tried again; `None` is that for
    /// which absence is trusted, but at most a second: a failure is no state of a source.
    pub failure_ttl: Option<Duration>,
    /// The classes of the keys of the source.
    pub classes: KeyClasses,
    /// Gives a store without complete listings the names that its metadata have; `None` leaves it as it is.
    pub list_by_metadata: Option<ListByMetadata>,
}

/// Wraps a store so that names come from its metadata, which are trusted for the first time, and their absence for
/// the second one.
pub type ListByMetadata = fn(Arc<dyn Store>, Duration, Duration) -> Box<dyn Store>;

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A URL with an unsupported scheme.
    #[error(
        "{source_name}: sources of the kind `{scheme}` are not supported by this version; {}",
        advice::of_scheme(scheme)
    )]
    UnknownScheme {
        /// The source, without secrets.
        source_name: String,
        /// The part before `://`.
        scheme: String,
    },
    /// An unknown part of a pipeline.
    #[error(
        "`|{part}`: only `|zip:KEY`, `|icechunk:@VERSION/KEY` and `|zarr:KEY` can stand behind a source, and each but \
         the last once"
    )]
    UnknownPart {
        /// The part after the bar.
        part: String,
    },
    /// The part after the bar is not a valid key.
    #[error("`|{part}`: {error}")]
    InvalidPart {
        /// The part after the bar.
        part: String,
        /// The reason why it is invalid.
        error: InvalidKey,
    },
    /// The path is neither a directory nor a regular file.
    #[error("{}: neither a directory nor a zip archive: it is no regular file", path.display())]
    WrongKind {
        /// The path of the source.
        path: PathBuf,
    },
    /// A zip archive without its end.
    #[error(
        "source {}: no end of central directory: the zip archive is truncated, {size_bytes} bytes are \
         there; copy or download it again",
        path.display()
    )]
    Truncated {
        /// The path of the source.
        path: PathBuf,
        /// The size of the file in bytes.
        size_bytes: u64,
    },
    /// A file of another format.
    #[error(
        "source {}: {what}; zarrfs mounts a directory with a Zarr hierarchy, or a zip archive of one, \
         or a database with one",
        path.display()
    )]
    OtherFormat {
        /// The path of the source.
        path: PathBuf,
        /// The format of the file.
        what: &'static str,
    },
    /// A database that cannot be mounted.
    #[error("source {}: {error}", path.display())]
    Database {
        /// The path of the source.
        path: PathBuf,
        /// The reason.
        error: DatabaseError,
    },
    /// References that cannot be mounted.
    #[error("source {source_name}: {error}")]
    Reference {
        /// The source, without secrets.
        source_name: String,
        /// The reason.
        error: ReferenceError,
    },
    /// A STAC document that cannot be mounted.
    #[error("source {source_name}: {error}")]
    Stac {
        /// The source, without secrets.
        source_name: String,
        /// The reason.
        error: StacError,
    },
    /// An Icechunk repository that cannot be mounted.
    #[error("source {source_name}: {error}")]
    Icechunk {
        /// The source, without secrets.
        source_name: String,
        /// The reason.
        error: IcechunkError,
    },
    /// A version was requested of a source that is not versioned.
    #[error(
        "source {source_name}: --ref {name}: it is no Icechunk repository, and has one version"
    )]
    NoVersions {
        /// The source, without secrets.
        source_name: String,
        /// The requested version.
        name: String,
    },
    /// A source that is said to be an Icechunk repository is none.
    #[error("source {source_name}: it is no Icechunk repository")]
    NotIcechunk {
        /// The source, without secrets.
        source_name: String,
    },
    /// Two versions are named.
    #[error("--ref {option}: the source names the version {part}; leave out one of them")]
    TwoVersions {
        /// The version of the option.
        option: String,
        /// The version of the source.
        part: String,
    },
    /// An archive that cannot be mounted.
    #[error("{source_name}: {error}")]
    Zip {
        /// The source, without secrets.
        source_name: String,
        /// The reason.
        error: ZipError,
    },
    /// A remote source does not respond, or has nothing to mount.
    #[error(transparent)]
    Remote(#[from] RemoteOpenError),
    /// The operating system could not open the source.
    #[error("source {}: {error}{}", path.display(), advice::of_path(path, error))]
    Io {
        /// The path of the source.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl OpenError {
    /// Whether the system had no memory. The same source can be opened when it has.
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::Zip {
                error: ZipError::NoMemory(_),
                ..
            }
            | Self::Reference {
                error: ReferenceError::NoMemory(_),
                ..
            } => true,
            Self::Zip {
                error: ZipError::Source(error),
                ..
            }
            | Self::Reference {
                error: ReferenceError::Store(error),
                ..
            }
            | Self::Database {
                error: DatabaseError::Store(error),
                ..
            }
            | Self::Stac {
                error: StacError::Store(error),
                ..
            }
            | Self::Icechunk {
                error: IcechunkError::Store(error),
                ..
            }
            | Self::Remote(RemoteOpenError::Failed { error, .. }) => error.lacks_memory(),
            Self::Zip {
                error: ZipError::Io(error),
                ..
            }
            | Self::Reference {
                error: ReferenceError::Io(error),
                ..
            }
            | Self::Database {
                error: DatabaseError::Io(error),
                ..
            }
            | Self::Stac {
                error: StacError::Io(error),
                ..
            }
            | Self::Remote(RemoteOpenError::System { error, .. })
            | Self::Io { error, .. } => error.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }
}

/// A parsed source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    location: SourceLocation,
    /// What the source must be; `None` finds it out.
    kind: Option<SourceKind>,
    /// The version of an Icechunk repository.
    version: Option<String>,
    /// The key in the source that is the root of the store.
    root: Key,
    /// Whether a STAC document names the source, which then is no such document itself.
    is_asset: bool,
}

/// What a source must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Zip,
    Icechunk,
}

/// Where a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum SourceLocation {
    /// A file or a directory.
    Path(PathBuf),
    /// The URL of a remote source.
    Url(String),
}

impl SourceName {
    /// Parses the source that a user has written.
    ///
    /// # Errors
    /// [`OpenError`] if it is not a valid source.
    pub fn parse(source: &Path) -> Result<Self, OpenError> {
        let Some(mut text) = source.to_str() else {
            return Self::local(source);
        };
        let mut kind = None;
        for (words, meant) in PREFIXES {
            if let Some(behind) = text.strip_prefix(words) {
                (kind, text) = (*meant, behind);
                break;
            }
        }
        let (mut first, mut parts) = (text, "");
        if let Some((before, behind)) = text.split_once('|')
            && (scheme_of(before).is_some() || is_part(behind))
        {
            (first, parts) = (before, behind);
        }
        let lower = with_lower_scheme(first);
        let first = lower.as_ref();
        let mut name = match scheme_of(first) {
            Some("file") => {
                let path = first.split_once("://").map_or(first, |(_, path)| path);
                Self::local(Path::new(path.strip_prefix("localhost").unwrap_or(path)))?
            }
            Some(_) if remote::is_remote_url(first) => {
                Self::at(SourceLocation::Url(first.to_owned()))
            }
            Some(scheme) => {
                // The rest may contain a password, so the message omits it.
                return Err(OpenError::UnknownScheme {
                    source_name: format!("{scheme}://..."),
                    scheme: scheme.to_owned(),
                });
            }
            None => Self::local(Path::new(first.strip_prefix("file:").unwrap_or(first)))?,
        };
        for part in parts.split('|').filter(|part| !part.is_empty()) {
            let unknown = || OpenError::UnknownPart { part: part.into() };
            let (word, mut below) = part.split_once(':').ok_or_else(unknown)?;
            match (word, kind) {
                ("zip", None) => kind = Some(SourceKind::Zip),
                ("icechunk", None) => {
                    kind = Some(SourceKind::Icechunk);
                    if let Some(behind) = below.strip_prefix('@') {
                        let (version, key) = behind.split_once('/').unwrap_or((behind, ""));
                        name.version = Some(version.to_owned());
                        below = key;
                    }
                }
                ("zarr" | "zarr2" | "zarr3", _) => {}
                _ => return Err(unknown()),
            }
            let key = Key::new(below.trim_matches('/').as_bytes());
            let key = key.map_err(|error| OpenError::InvalidPart {
                part: part.into(),
                error,
            })?;
            name.root = name.root.join_key(&key);
        }
        name.kind = kind;
        Ok(name)
    }

    fn at(location: SourceLocation) -> Self {
        Self {
            location,
            kind: None,
            version: None,
            root: Key::root(),
            is_asset: false,
        }
    }

    /// Returns the source that is an asset of a STAC document. `version` is that of an asset that must be an Icechunk
    /// repository; `None` inside is its branch `main`.
    pub(in crate::store) fn asset(
        location: SourceLocation,
        version: Option<Option<String>>,
    ) -> Self {
        Self {
            kind: version.is_some().then_some(SourceKind::Icechunk),
            version: version.flatten(),
            is_asset: true,
            ..Self::at(location)
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as its callers return it")]
    fn local(path: &Path) -> Result<Self, OpenError> {
        Ok(Self::at(SourceLocation::Path(path.to_owned())))
    }

    /// The path of a local source; `None` for a remote one.
    pub fn path(&self) -> Option<&Path> {
        match &self.location {
            SourceLocation::Path(path) => Some(path),
            SourceLocation::Url(_) => None,
        }
    }

    /// The URL of a remote source in messages, without secrets.
    pub fn remote_label(&self) -> Option<String> {
        match &self.location {
            SourceLocation::Path(_) => None,
            SourceLocation::Url(url) => Some(remote::label(url)),
        }
    }

    /// The key in the source that is the root of the store.
    pub fn root(&self) -> &Key {
        &self.root
    }

    /// Opens the source: a local one by its content, a remote one by its URL.
    ///
    /// # Errors
    /// [`OpenError`], which names the source.
    pub async fn open(&self, options: &OpenOptions) -> Result<Box<dyn Store>, OpenError> {
        let store = open::open(self, options).await?;
        // A collection has done this for each of its members.
        let is_listed = store.capabilities().listing == ListingSupport::Complete;
        match options.list_by_metadata {
            Some(list) if !is_listed && store.members().is_none() => {
                let (ttl, absent_ttl) = (options.remote.ttl, options.remote.absent_ttl);
                Ok(list(Arc::from(store), ttl, absent_ttl))
            }
            _ => Ok(store),
        }
    }
}

/// Returns the part before `://`, if it can be a scheme.
fn scheme_of(source: &str) -> Option<&str> {
    let (scheme, _) = source.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.:".contains(c));
    is_scheme.then_some(scheme)
}

/// What can stand before a source, and what it says the source is.
const PREFIXES: &[(&str, Option<SourceKind>)] = &[
    ("zip::", Some(SourceKind::Zip)),
    ("icechunk+", Some(SourceKind::Icechunk)),
    ("zarr+", None),
    ("zarr2+", None),
    ("zarr3+", None),
];

/// Whether the text after a bar is a part of a pipeline, not of a path.
fn is_part(text: &str) -> bool {
    ["zip:", "icechunk:", "zarr:", "zarr2:", "zarr3:"]
        .iter()
        .any(|kind| text.starts_with(kind))
}

/// Opens the demo store that is embedded in the binary.
///
/// # Errors
/// [`OpenError`], if the system cannot create a memory file for it.
pub fn open_demo(options: &OpenOptions) -> Result<Box<dyn Store>, OpenError> {
    let path = Path::new("demo");
    let failed = |error: io::Error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let mut file = system::memory_file().map_err(failed)?;
    file.write_all(DEMO).map_err(failed)?;
    ZipStore::open(file, "demo", options.zip)
        .map(|store| Box::new(store) as _)
        .map_err(|error| OpenError::Zip {
            source_name: "demo".into(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str) -> (Option<String>, bool, String) {
        let name = SourceName::parse(Path::new(source)).unwrap();
        let root = String::from_utf8(name.root.as_bytes().to_vec()).unwrap();
        let url = match name.location {
            SourceLocation::Path(path) => format!("path {}", path.display()),
            SourceLocation::Url(url) => url,
        };
        (Some(url), name.kind == Some(SourceKind::Zip), root)
    }

    fn is(location: &str, is_zip: bool, root: &str) -> (Option<String>, bool, String) {
        (Some(location.to_owned()), is_zip, root.to_owned())
    }

    #[test]
    fn only_known_schemes_are_recognized_as_urls() {
        assert_eq!(parse("/a/b"), is("path /a/b", false, ""));
        assert_eq!(parse("file:///a/b"), is("path /a/b", false, ""));
        assert_eq!(parse("file:a/b"), is("path a/b", false, ""));
        assert_eq!(parse("zarr3+s3://b/x"), is("s3://b/x", false, ""));
        assert_eq!(parse("HTTP://Host/B"), is("http://Host/B", false, ""));
        assert_eq!(parse("File:///A|zip:B"), is("path /A", true, "B"));
        assert_eq!(parse("./odd ://name"), is("path ./odd ://name", false, ""));
        assert_eq!(parse("a|b"), is("path a|b", false, ""));
        let secret = SourceName::parse(Path::new("ftp://key:secret@host/b"));
        let secret = secret.unwrap_err().to_string();
        assert!(secret.contains("ftp") && !secret.contains("secret"));
    }

    #[test]
    fn a_repository_can_be_named_with_a_version_and_a_key() {
        let parse = |source: &str| {
            let name = SourceName::parse(Path::new(source)).unwrap();
            assert_eq!(name.kind, Some(SourceKind::Icechunk), "{source}");
            let root = String::from_utf8(name.root.as_bytes().to_vec()).unwrap();
            (name.location, name.version, root)
        };
        let url = || SourceLocation::Url("s3://b/r/".into());
        let version = |name: &str| Some(name.to_owned());
        assert_eq!(parse("s3://b/r/|icechunk:"), (url(), None, "".into()));
        let tagged = parse("s3://b/r/|icechunk:@tag.v5/|zarr3:a/");
        assert_eq!(tagged, (url(), version("tag.v5"), "a".into()));
        let below = parse("s3://b/r/|icechunk:@branch.main/g|zarr3:a");
        assert_eq!(below, (url(), version("branch.main"), "g/a".into()));
        let prefixed = parse("icechunk+s3://b/r/");
        assert_eq!(prefixed, (url(), None, "".into()));
        let local = SourceLocation::Path("r".into());
        assert_eq!(parse("r|icechunk:a"), (local, None, "a".into()));
        for wrong in [
            "r|icechunk:|icechunk:",
            "r|zip:|icechunk:",
            "r|icechunk:../a",
        ] {
            assert!(SourceName::parse(Path::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_zip_can_be_named_in_two_ways_with_a_key_inside() {
        assert_eq!(parse("s3://b/x"), is("s3://b/x", false, ""));
        assert_eq!(parse("S3://B/x"), is("s3://B/x", false, ""));
        assert_eq!(parse("FILE:///A/b"), is("path /A/b", false, ""));
        assert_eq!(parse("HTTP://h/X|zip:A"), is("http://h/X", true, "A"));
        assert_eq!(parse("s3://b/x|zip:"), is("s3://b/x", true, ""));
        assert_eq!(parse("http://h/x|zip:a/b/"), is("http://h/x", true, "a/b"));
        assert_eq!(parse("zip::http://h/x"), is("http://h/x", true, ""));
        assert_eq!(parse("x.zip|zip:a|zarr2:b"), is("path x.zip", true, "a/b"));
        assert_eq!(parse("zip::/x"), is("path /x", true, ""));
        assert!(SourceName::parse(Path::new("http://h/x|tar:")).is_err());
        assert!(SourceName::parse(Path::new("http://h/x|zip:../y")).is_err());
    }
}
