//! Checks of SOURCE and MOUNTPOINT together: which of them is wrong, and whether they are swapped.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::mountpoint::MountpointError;
use super::{Failure, Source};
use crate::cli::{MountOptions, key_of};
use crate::hierarchy::{KEY_CLASSES, NODE_DOCUMENTS};
use crate::inspect::{self, NoMetadata};
use crate::runtime::block_on;
use crate::store::{
    DatabaseOptions, DirOptions, ErrorKind, Key, OpenOptions, SourceName, Store, is_remote_url,
    with_lower_scheme,
};

/// The largest number of hierarchies of a collection that are logged.
const MAX_LOGGED: usize = 20;

/// Returns whether a path is a Zarr hierarchy, a zip archive or a URL, and so cannot be a mountpoint.
pub(in crate::daemon) fn is_source(path: &Path) -> bool {
    let text = path.to_str().map(with_lower_scheme);
    if let Some((scheme, _)) = text.as_ref().and_then(|text| text.split_once("://")) {
        return scheme == "file" || text.as_deref().is_some_and(is_remote_url);
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let mut names = NODE_DOCUMENTS.iter();
            names.any(|document| path.join(document.name()).is_file())
        }
        Ok(metadata) if metadata.is_file() => {
            let mut magic = [0; 4];
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
            read.is_ok() && magic == *b"PK\x03\x04"
        }
        _ => false,
    }
}

/// Returns the root of the mounted hierarchy.
///
/// # Errors
/// If `--path` is not a key.
pub(super) fn root(base: &Key, options: &MountOptions) -> Result<Key, Failure> {
    let Some(path) = &options.path else {
        return Ok(base.clone());
    };
    let invalid = |error| ErrorKind::Usage.failure(format!("--path {error}"));
    let below = key_of(path).map_err(invalid)?;
    Ok(base.join_key(&below))
}

/// Rejects a source that is neither a hierarchy nor a collection of them, unless the options allow it. For a remote
/// source, the search for metadata took place when it was opened.
///
/// # Errors
/// A description of the root. `swapped` is set if the mountpoint is a source.
pub(super) async fn check_zarr(
    store: &dyn Store,
    base: &Key,
    root: &Key,
    options: &MountOptions,
    swapped: Option<(&Source, &Path)>,
) -> Result<(), Failure> {
    if options.force || !inspect::is_listed_here(store) {
        return Ok(());
    }
    match inspect::no_metadata(store, base, root).await {
        None => Ok(()),
        Some(no_metadata) => match (no_metadata.collection(), swapped) {
            (Some(collection), None) => {
                let names = collection.summary(MAX_LOGGED);
                log::info!("{}: a collection of hierarchies: {names}", store.label());
                Ok(())
            }
            _ => Err(ErrorKind::NotZarr.failure(refusal(&no_metadata, swapped))),
        },
    }
}

fn refusal(no_metadata: &NoMetadata, swapped: Option<(&Source, &Path)>) -> String {
    match swapped {
        Some((source, mountpoint)) => format!("{no_metadata}{}", swap_back(source, mountpoint)),
        None => format!("{no_metadata} (--force mounts it as it is)"),
    }
}

fn swap_back(source: &Source, mountpoint: &Path) -> String {
    let source = match source {
        Source::Argument(source) => source.display().to_string(),
        Source::Demo => crate::cli::DEMO.to_owned(),
    };
    let mountpoint = mountpoint.display();
    format!(" (SOURCE and MOUNTPOINT look swapped: zarrfs {mountpoint} {source})")
}

/// Returns the error of a local source if it has one, else the error of choosing a mountpoint.
pub(super) fn source_first(failure: Failure, source: &Source, options: &MountOptions) -> Failure {
    let error = MountpointError::Unsuitable(failure);
    root_cause(error, source, Path::new(""), options)
}

/// Returns the error of a local source if it has one, else that of the mountpoint.
pub(super) fn root_cause(
    error: MountpointError,
    source: &Source,
    mountpoint: &Path,
    options: &MountOptions,
) -> Failure {
    match error {
        MountpointError::Other(failure) => ErrorKind::Mountpoint.or(failure),
        MountpointError::Unsuitable(failure) => {
            let swapped = is_source(mountpoint).then_some((source, mountpoint));
            block_on(check_source(source, options, swapped))
                .err()
                .unwrap_or_else(|| ErrorKind::Mountpoint.or(failure))
        }
    }
}

async fn check_source(
    source: &Source,
    options: &MountOptions,
    swapped: Option<(&Source, &Path)>,
) -> Result<(), Failure> {
    let Source::Argument(given) = source else {
        return Ok(());
    };
    let name = SourceName::parse(given)?;
    let Some(path) = name.path() else {
        return Ok(());
    };
    let open = OpenOptions {
        dir: DirOptions {
            follow_symlinks: options.follow_symlinks,
        },
        database: DatabaseOptions {
            timeout: options.remote.timeout,
            ..DatabaseOptions::default()
        },
        targets: options.targets.options(),
        classes: KEY_CLASSES,
        ..OpenOptions::default()
    };
    let store = name.open(&open).await.map_err(|error| match swapped {
        Some((source, mountpoint)) if path.exists() => {
            let message = format!("{error}{}", swap_back(source, mountpoint));
            ErrorKind::of(&error).failure(message)
        }
        _ => error.into(),
    })?;
    check_zarr(
        &*store,
        name.root(),
        &root(name.root(), options)?,
        options,
        swapped,
    )
    .await
}
