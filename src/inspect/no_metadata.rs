//! The message for a directory without Zarr or N5 metadata: its contents, and the hierarchies below it.

use std::fmt;
use std::ops::ControlFlow;

use serde_json::Value;

use super::output::printable;
use crate::hierarchy::{Collection, find_hierarchies, is_hierarchy, is_in_n5};
use crate::store::{
    AccessHint, FORMAT_HEADER_BYTES, Key, Kind, Omission, Store, StoreError, file_format,
    list_prefixes, read_to_end, visit_all,
};

/// The largest number of hierarchies in the message.
const MAX_NAMED: usize = 5;
/// The largest number of names in a directory that are counted.
const MAX_COUNTED: usize = 10_000;
/// The largest number of children of one directory that tell its format.
const MAX_CHILDREN: usize = 1_000;
/// The largest size of a document of another format that is read, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// A directory without Zarr or N5 metadata.
#[derive(Debug)]
pub struct NoMetadata {
    label: String,
    /// The directory, relative to the root that the source names.
    path: String,
    contents: DirectoryContents,
    collection: Collection,
    /// What the source has and does not show.
    omissions: Vec<Omission>,
}

/// A format that zarrfs does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherFormat {
    /// The draft of version 3 that zarr-python 2.12 to 2.18 could write.
    DraftOfV3,
    /// A repository of Icechunk before its version 1.0.
    OldIcechunk,
}

#[derive(Debug)]
enum DirectoryContents {
    Other(OtherFormat),
    Names {
        first: Vec<String>,
        count: usize,
        /// The first file of a known format, and the name of its format.
        file: Option<(String, &'static str)>,
    },
}

/// Describes the directory at `root` if the absence of metadata is proven. `--path` is relative to
/// `base`, the key in the name of the source.
pub async fn no_metadata(store: &dyn Store, base: &Key, root: &Key) -> Option<NoMetadata> {
    let is_draft = !store.capabilities().is_remote && is_draft_of_v3(store, root).await;
    // An unreadable directory may be a node.
    if !is_draft && has_metadata(store, root).await.unwrap_or(true) {
        return None;
    }
    let other = match is_draft {
        true => Some(OtherFormat::DraftOfV3),
        false if is_old_icechunk(store, root).await => Some(OtherFormat::OldIcechunk),
        false => None,
    };
    let contents = match other {
        Some(other) => DirectoryContents::Other(other),
        None => names(store, root).await.ok()?,
    };
    Some(NoMetadata {
        label: store.label().to_owned(),
        path: crate::hierarchy::relative(root, base),
        contents,
        collection: find_hierarchies(store, root).await,
        omissions: store.omissions().await,
    })
}

/// Returns whether a directory has Zarr metadata, or belongs to an N5 hierarchy.
///
/// # Errors
/// The error of the store, if neither presence nor absence is proven.
async fn has_metadata(store: &dyn Store, directory: &Key) -> Result<bool, StoreError> {
    Ok(is_hierarchy(store, directory).await? || is_in_n5(store, directory).await?)
}

/// Reads a short JSON document below a directory.
async fn document(store: &dyn Store, directory: &Key, name: &[u8]) -> Option<Value> {
    let key = directory.join(name).ok()?;
    let hint = AccessHint::Whole(MAX_DOCUMENT_BYTES);
    let object = store.open(&key, hint).await.ok()?;
    let text = read_to_end(&*object, &key, MAX_DOCUMENT_BYTES).await.ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns whether `zarr.json` is that of the draft, in which documents are below `meta/root`.
async fn is_draft_of_v3(store: &dyn Store, directory: &Key) -> bool {
    let entry = document(store, directory, b"zarr.json").await;
    entry.is_some_and(|entry| {
        let has = |member| entry.get(member).is_some();
        (has("metadata_key_suffix") || has("metadata_encoding")) && !has("node_type")
    })
}

/// Returns whether a directory has the branches and snapshots of Icechunk, which are not those of version 1.0.
async fn is_old_icechunk(store: &dyn Store, directory: &Key) -> bool {
    let children = async |name: &[u8]| match directory.join(name) {
        Ok(key) => list_prefixes(store, &key, MAX_CHILDREN)
            .await
            .unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let Ok(names) = list_prefixes(store, directory, MAX_CHILDREN).await else {
        return false;
    };
    let has = |name: &[u8]| names.iter().any(|found| **found == *name);
    if !has(b"refs") || !has(b"snapshots") {
        return false;
    }
    let mut branches = children(b"refs").await.into_iter();
    branches.any(|name| name.starts_with(b"branch.") || name.starts_with(b"branch:"))
}

async fn names(store: &dyn Store, key: &Key) -> Result<DirectoryContents, StoreError> {
    let mut names = Vec::new();
    let mut listing = store.list(key).await?;
    visit_all(&mut *listing, &mut |listed| {
        if !matches!(listed.name, b"." | b"..") {
            let slash = if listed.kind == Kind::Prefix { "/" } else { "" };
            names.push(format!("{}{slash}", String::from_utf8_lossy(listed.name)));
        }
        match names.len() < MAX_COUNTED {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })
    .await?;
    names.sort();
    let count = names.len();
    names.truncate(3);
    let mut file = None;
    if !store.capabilities().is_remote {
        for name in names.iter().filter(|name| !name.ends_with('/')) {
            let format = format_of(store, key, name).await;
            file = file.or(format.map(|format| (name.clone(), format)));
        }
    }
    Ok(DirectoryContents::Names {
        first: names,
        count,
        file,
    })
}

/// Returns the format of a file, by its first bytes; `None` for an unknown format or an unreadable file.
async fn format_of(store: &dyn Store, directory: &Key, name: &str) -> Option<&'static str> {
    let key = directory.join(name.as_bytes()).ok()?;
    let object = store.open(&key, AccessHint::Ranges).await.ok()?;
    let length = usize::try_from(object.size_bytes()).unwrap_or(usize::MAX);
    let header = object.read(0, length.min(FORMAT_HEADER_BYTES)).await.ok()?;
    file_format(header.bytes(&[]).ok()?)
}

impl fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DraftOfV3 => {
                "a draft of Zarr version 3 (meta/root), which only programs of its time read: copy it with \
                 zarr-python 2.12 to 2.18 and ZARR_V3_EXPERIMENTAL_API=1, which wrote such stores, into \
                 one of version 2"
            }
            Self::OldIcechunk => {
                "a repository of Icechunk before 1.0, which no later version reads: write it again with \
                 the version that wrote it as Zarr, or with Icechunk 1.0 or later from its origin"
            }
        })
    }
}

impl NoMetadata {
    /// Returns the hierarchies below the directory, if it is a collection of them.
    pub fn collection(&self) -> Option<&Collection> {
        let is_other = matches!(self.contents, DirectoryContents::Other(_));
        (!is_other && !self.collection.is_empty()).then_some(&self.collection)
    }

    /// Returns what the search below the directory has found.
    pub(super) fn found(&self) -> &Collection {
        &self.collection
    }

    /// Returns whether the absence of hierarchies below the directory is proven, too.
    pub fn is_proven(&self) -> bool {
        let is_other = matches!(self.contents, DirectoryContents::Other(_));
        is_other || (self.collection.is_empty() && !self.collection.is_partial)
    }

    /// Returns the description of the directory, without the name of the source.
    pub fn description(&self) -> String {
        let contents = match &self.contents {
            DirectoryContents::Other(other) => format!("it is {other}"),
            DirectoryContents::Names { count: 0, .. } => "it is empty".to_owned(),
            DirectoryContents::Names { first, count, file } => {
                let more = match *count {
                    MAX_COUNTED => ", and many more".to_owned(),
                    count if count > first.len() => format!(", and {} more", count - first.len()),
                    _ => String::new(),
                };
                let file = file.as_ref();
                let file = file.map(|(name, what)| format!("; {name} is {what}"));
                let file = file.unwrap_or_default();
                format!("it contains {}{more}{file}", first.join(", "))
            }
        };
        let below = match self.collection.is_empty() {
            // The directories were all read.
            true if !self.collection.is_partial => String::new(),
            true => ", and none is in the directories below it that were searched".to_owned(),
            false => format!(
                "; hierarchies are below it: {}",
                self.collection.summary(MAX_NAMED)
            ),
        };
        let text = format!(
            "no Zarr metadata (zarr.json, .zgroup, .zarray or .zmetadata) and no N5 metadata \
             (attributes.json) here: {contents}{below}"
        );
        let omissions = self.omissions.iter();
        let omissions = omissions.map(|omission| format!("; {}", omission.what));
        let text = text + &omissions.collect::<String>();
        printable(&text).into_owned()
    }
}

impl fmt::Display for NoMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, path, .. } = self;
        match path.is_empty() {
            true => write!(f, "{}: {}", printable(label), self.description()),
            false => write!(
                f,
                "{}: {}: {}",
                printable(label),
                printable(path),
                self.description()
            ),
        }
    }
}
