//! SOURCE and MOUNTPOINT judged together: which one is at fault, and whether they are swapped.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::mountpoint::Unusable;
use super::{Failure, Source};
use crate::cli::MountOptions;
use crate::inspect::{self, NoMetadata};
use crate::store::{DirOptions, Key, OpenOptions, REMOTE_SCHEMES, SourceName, Store};

/// Whether a path is a Zarr hierarchy, a zip archive or a URL, and so no place to mount on.
pub(super) fn is_source(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://"));
    if let Some((scheme, _)) = scheme {
        return scheme == "file" || REMOTE_SCHEMES.contains(&scheme);
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let mut names = inspect::NODE_DOCUMENTS.iter();
            names.any(|name| path.join(name).is_file())
        }
        Ok(metadata) if metadata.is_file() => {
            let mut magic = [0; 4];
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
            read.is_ok() && magic == *b"PK\x03\x04"
        }
        _ => false,
    }
}

/// The root of the hierarchy that is mounted.
///
/// # Errors
/// `--path` is no key.
pub(super) fn root(base: &Key, options: &MountOptions) -> Result<Key, Failure> {
    let Some(path) = &options.path else {
        return Ok(base.clone());
    };
    let below = Key::new(path.trim_matches('/').as_bytes());
    Ok(base.join_key(&below.map_err(|e| format!("--path {path}: {e}"))?))
}

/// Refuses a source without Zarr metadata at its top, unless the options allow it. A remote
/// hierarchy has been looked for when it was opened.
///
/// # Errors
/// What is there instead; `mountpoint` is given if it is a source itself.
pub(super) fn check_zarr(
    store: &dyn Store,
    base: &Key,
    root: &Key,
    options: &MountOptions,
    swapped: Option<(&Source, &Path)>,
) -> Result<(), Failure> {
    if options.force || !inspect::is_listed_here(store) {
        return Ok(());
    }
    match inspect::no_metadata(store, base, root) {
        None => Ok(()),
        Some(no_zarr) => Err(refusal(&no_zarr, swapped).into()),
    }
}

fn refusal(no_zarr: &NoMetadata, swapped: Option<(&Source, &Path)>) -> String {
    match swapped {
        Some((source, mountpoint)) => format!("{no_zarr}{}", swap_back(source, mountpoint)),
        None => format!("{no_zarr} (--force mounts it as it is)"),
    }
}

fn swap_back(source: &Source, mountpoint: &Path) -> String {
    let source = match source {
        Source::Given(source) => source.display().to_string(),
        Source::Demo => crate::cli::DEMO.to_owned(),
    };
    let mountpoint = mountpoint.display();
    format!(" (SOURCE and MOUNTPOINT look swapped: zarrfs {mountpoint} {source})")
}

/// What to say if a mountpoint cannot be used: that, or what is wrong with a local source.
pub(super) fn at_fault(
    unusable: Unusable,
    source: &Source,
    mountpoint: &Path,
    options: &MountOptions,
) -> Failure {
    match unusable {
        Unusable::Other(failure) => failure,
        Unusable::Unfit(failure) => {
            let swapped = is_source(mountpoint).then_some((source, mountpoint));
            judge_source(source, options, swapped)
                .err()
                .unwrap_or(failure)
        }
    }
}

fn judge_source(
    source: &Source,
    options: &MountOptions,
    swapped: Option<(&Source, &Path)>,
) -> Result<(), Failure> {
    let Source::Given(given) = source else {
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
        ..OpenOptions::default()
    };
    let store = name.open(&open).map_err(|error| match swapped {
        Some((source, mountpoint)) if path.exists() => {
            format!("{error}{}", swap_back(source, mountpoint))
        }
        _ => error.to_string(),
    })?;
    check_zarr(
        &*store,
        name.root(),
        &root(name.root(), options)?,
        options,
        swapped,
    )
}
