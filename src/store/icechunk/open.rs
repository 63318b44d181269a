//! Opens the store of a repository as a store of the hierarchy in it.

use std::sync::Arc;

use super::refs::{Layout, detect};
use super::{Icechunk, IcechunkError};
use crate::store::reference::{BaseLocation, ReferenceStore, Targets};
use crate::store::{Key, KeyClasses, OpenOptions, Store};

/// Returns the layout of a local store that is a repository and not itself a hierarchy; otherwise `None`.
pub(in crate::store) async fn detect_local(
    store: &dyn Store,
    classes: KeyClasses,
) -> Option<Layout> {
    if store.capabilities().is_remote {
        return None;
    }
    for name in classes.node_documents {
        let document = Key::new(name.as_bytes()).ok()?;
        if store.stat(&document).await.is_ok() {
            return None;
        }
    }
    let layout = detect(store).await;
    let layout = layout.inspect_err(|error| {
        log::warn!(
            "{}: it may be an Icechunk repository: {error}",
            store.label()
        );
    });
    layout.ok().flatten()
}

/// Opens a repository. `refs` is its store for files that change, `files` its store for all other files, and
/// `base` its location: virtual chunks below it need no option.
///
/// # Errors
/// [`IcechunkError`].
pub(in crate::store) async fn open(
    layout: Layout,
    refs: Arc<dyn Store>,
    files: Arc<dyn Store>,
    base: BaseLocation,
    options: &OpenOptions,
) -> Result<ReferenceStore, IcechunkError> {
    let label = files.label().to_owned();
    let (own, ttl) = (Arc::clone(&files), options.remote.ttl);
    let repository = Icechunk::open(layout, refs, files, &options.icechunk, ttl).await?;
    // Virtual chunks have their own checksums.
    let targets = Targets::new(base, options, None);
    let references = Box::new(repository);
    Ok(ReferenceStore::new(label, references, Some(own), targets))
}
