//! Branches and tags: in the file `repo` in version 2 of the format, or in a file each below `refs` in
//! version 1. No other part of a repository changes.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use super::files::read;
use super::format::{self, FormatError};
use super::id::ObjectId;
use super::repository::{RefKind, RepositoryInfo};
use super::{Containers, IcechunkError};
use crate::store::{AccessHint, Key, Store, StoreError, read_range, visit_all};

/// The branch that is shown by default.
pub(super) const MAIN: &str = "main";
/// The file that holds all branches and tags.
const REPO: &str = "repo";
/// A file `repo` up to this size, in bytes, is fetched with one request.
const MAX_FIRST_BYTES: u64 = 1 << 20;
/// Size of the longest file of one branch or tag, in bytes.
const MAX_REF_BYTES: u64 = 64 << 10;
/// Largest number of names in a message.
const MAX_NAMES: usize = 20;
/// Largest number of listed branches and tags.
const MAX_LISTED: usize = 10_000;

/// Where a repository stores its branches and tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Layout {
    /// In a file each: version 1 of the format.
    Files,
    /// In the file `repo`: version 2 of the format.
    Repo,
}

/// Reads branches and tags.
#[derive(Debug)]
pub(super) struct Refs {
    store: Arc<dyn Store>,
    pub(super) layout: Layout,
    limit_bytes: u64,
}

/// The version that a name refers to.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) snapshot: ObjectId,
    pub(super) containers: Containers,
    /// The name of the branch, which can move; `None` for a tag or a snapshot.
    pub(super) branch: Option<String>,
    /// Whether the name is the ID of a snapshot, which may not exist.
    pub(super) is_by_id: bool,
}

/// A branch or a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedRef {
    pub(super) kind: RefKind,
    pub(super) name: String,
    pub(super) snapshot: ObjectId,
}

impl RefKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Branch => "branch.",
            Self::Tag => "tag.",
        }
    }

    /// Parses the name of a directory below `refs` into the kind and the name of a reference.
    fn of_directory(directory: &str) -> Option<(Self, &str)> {
        [Self::Branch, Self::Tag]
            .into_iter()
            .find_map(|kind| Some((kind, directory.strip_prefix(kind.prefix())?)))
    }
}

fn key(text: &str) -> Option<Key> {
    Key::new(text.as_bytes()).ok()
}

/// Returns the layout of a repository; `None` if the store is no repository.
///
/// # Errors
/// Errors of the store, if it cannot be determined.
pub(in crate::store) async fn detect(store: &dyn Store) -> Result<Option<Layout>, StoreError> {
    match has_repo(store).await {
        Ok(true) => return Ok(Some(Layout::Repo)),
        Ok(false) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
        Err(error) => return Err(error),
    }
    let Some(main) = key(&format!("refs/{}{MAIN}/ref.json", RefKind::Branch.prefix())) else {
        return Ok(None);
    };
    match read(store, &main, MAX_REF_BYTES).await {
        // A web server may return an HTML page for any name, so the file must begin like JSON.
        Ok(file) if file.bytes(&[])?.trim_ascii_start().starts_with(b"{") => {
            Ok(Some(Layout::Files))
        }
        Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error @ StoreError::TooLarge { .. }) if error.is_lasting() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file `repo` has the magic bytes of a repository.
async fn has_repo(store: &dyn Store) -> Result<bool, StoreError> {
    let repo = key(REPO).unwrap_or_default();
    let object = store
        .open(&repo, AccessHint::Whole(MAX_FIRST_BYTES))
        .await?;
    let end = object.size_bytes().min(format::MAGIC.len() as u64);
    let head = read_range(&*object, &repo, 0..end).await?;
    Ok(head.bytes(&[])? == format::MAGIC)
}

impl Refs {
    pub(super) fn new(store: Arc<dyn Store>, layout: Layout, limit_bytes: u64) -> Self {
        Self {
            store,
            layout,
            limit_bytes,
        }
    }

    /// Reads the file `repo`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the repository is offline, [`StoreError::Stale`] if it is gone.
    pub(super) async fn repository(&self) -> Result<RepositoryInfo, StoreError> {
        let file = Key::new(REPO.as_bytes()).unwrap_or_default();
        let bytes = match read(&*self.store, &file, self.limit_bytes).await {
            Err(StoreError::NotFound { key } | StoreError::NotAPrefix { key }) => {
                let what = "the repository is gone".into();
                return Err(StoreError::Stale { key, what });
            }
            bytes => bytes?,
        };
        let failed = |error: FormatError| error.of(&file, REPO);
        let info = RepositoryInfo::decode(bytes.bytes(&[])?, self.limit_bytes).map_err(failed)?;
        match info.offline().map_err(failed)? {
            None => Ok(info),
            Some(reason) => Err(StoreError::Unavailable {
                key: file,
                what: format!("the repository is offline: {}", reason.escape_debug()),
            }),
        }
    }

    /// Returns the snapshot of a branch or tag that has its own file; `None` if the name does not exist.
    async fn ref_file(&self, kind: RefKind, name: &str) -> Result<Option<ObjectId>, StoreError> {
        let directory = format!("refs/{}{name}", kind.prefix());
        let file = key(&format!("{directory}/ref.json")).filter(|_| !name.contains('/'));
        let Some(file) = file else {
            return Ok(None);
        };
        if kind == RefKind::Tag && self.is_deleted(&directory).await? {
            return Ok(None);
        }
        let bytes = match read(&*self.store, &file, MAX_REF_BYTES).await {
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let document: Option<Value> = serde_json::from_slice(bytes.bytes(&[])?).ok();
        let id = document.and_then(|document| ObjectId::parse(document.get("snapshot")?.as_str()?));
        let corrupt = || StoreError::Corrupt {
            key: file,
            what: "no JSON object with the identifier of a snapshot".into(),
        };
        id.map(Some).ok_or_else(corrupt)
    }

    /// Whether a tag was deleted; its file remains in that case.
    async fn is_deleted(&self, directory: &str) -> Result<bool, StoreError> {
        let Some(tombstone) = key(&format!("{directory}/ref.json.deleted")) else {
            return Ok(false);
        };
        // The tombstone is an empty file, so its bytes are not read.
        match self.store.stat(&tombstone).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the current snapshot of a branch; `None` if the branch is gone.
    pub(super) async fn branch(
        &self,
        name: &str,
    ) -> Result<Option<(ObjectId, Containers)>, StoreError> {
        match self.layout {
            Layout::Files => {
                let id = self.ref_file(RefKind::Branch, name).await?;
                Ok(id.map(|id| (id, Ok(Vec::new()))))
            }
            Layout::Repo => {
                let info = self.repository().await?;
                let id = info.find(RefKind::Branch, name).map_err(in_repo)?;
                Ok(id.map(|id| (id, info.containers())))
            }
        }
    }

    /// Resolves a name as a branch, else as a tag, else as the ID of a snapshot, else, after `branch.` or `tag.`, as
    /// what these words say (URL pipelines of Neuroglancer). Whether a snapshot exists is known only when it is read.
    pub(super) async fn resolve(&self, name: &str) -> Result<Resolved, IcechunkError> {
        let info = match self.layout {
            Layout::Files => None,
            Layout::Repo => Some(self.repository().await?),
        };
        let containers = || {
            info.as_ref()
                .map_or_else(|| Ok(Vec::new()), |info| info.containers())
        };
        let names = [(RefKind::Branch, name), (RefKind::Tag, name)];
        for (kind, name) in names.into_iter().chain(RefKind::of_directory(name)) {
            let found = match &info {
                Some(info) => info.find(kind, name).map_err(in_repo)?,
                None => self.ref_file(kind, name).await?,
            };
            if let Some(snapshot) = found {
                return Ok(Resolved {
                    snapshot,
                    containers: containers(),
                    branch: (kind == RefKind::Branch).then(|| name.to_owned()),
                    is_by_id: false,
                });
            }
        }
        match ObjectId::parse(name) {
            Some(snapshot) => Ok(Resolved {
                snapshot,
                containers: containers(),
                branch: None,
                is_by_id: true,
            }),
            None => Err(self.unknown(name).await),
        }
    }

    /// Returns the error for a name that does not exist, listing those that do.
    pub(super) async fn unknown(&self, name: &str) -> IcechunkError {
        let known = match self.list().await {
            Ok(refs) if refs.is_empty() => "it has neither branches nor tags".to_owned(),
            Ok(refs) => {
                let names = |kind| names_of(&refs, kind);
                format!(
                    "branches: {}; tags: {}",
                    names(RefKind::Branch),
                    names(RefKind::Tag)
                )
            }
            Err(error) => format!("its branches and tags cannot be listed: {error}"),
        };
        IcechunkError::UnknownRef {
            name: name.to_owned(),
            known,
        }
    }

    /// Lists all branches, then all tags.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if the server lists no names; errors of the store.
    pub(super) async fn list(&self) -> Result<Vec<NamedRef>, StoreError> {
        match self.layout {
            Layout::Repo => named_refs(&self.repository().await?).map_err(in_repo),
            Layout::Files => self.list_files().await,
        }
    }

    async fn list_files(&self) -> Result<Vec<NamedRef>, StoreError> {
        let mut directories = Vec::new();
        let Some(prefix) = key("refs") else {
            return Ok(Vec::new());
        };
        let mut listing = self.store.list(&prefix).await?;
        visit_all(&mut *listing, &mut |listed| {
            directories.extend(std::str::from_utf8(listed.name).ok().map(str::to_owned));
            match directories.len() < MAX_LISTED {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
        .await?;
        directories.sort();
        let mut refs = Vec::new();
        for directory in &directories {
            let Some((kind, name)) = RefKind::of_directory(directory) else {
                continue;
            };
            if let Some(snapshot) = self.ref_file(kind, name).await? {
                let name = name.to_owned();
                refs.push(NamedRef {
                    kind,
                    name,
                    snapshot,
                });
            }
        }
        Ok(refs)
    }
}

/// Converts an error in the file `repo`.
pub(super) fn in_repo(error: FormatError) -> StoreError {
    error.of(&key(REPO).unwrap_or_default(), REPO)
}

/// Returns the branches and tags in the file `repo`.
pub(super) fn named_refs(info: &RepositoryInfo) -> Result<Vec<NamedRef>, FormatError> {
    let mut refs = Vec::new();
    for kind in [RefKind::Branch, RefKind::Tag] {
        for found in info.refs(kind)?.take(MAX_LISTED) {
            let (name, snapshot) = found?;
            let name = name.to_owned();
            refs.push(NamedRef {
                kind,
                name,
                snapshot,
            });
        }
    }
    Ok(refs)
}

/// Joins names for a message.
fn names_of(refs: &[NamedRef], kind: RefKind) -> String {
    let names = refs.iter().filter(|named| named.kind == kind);
    let mut names: Vec<String> = names
        .map(|named| named.name.escape_debug().to_string())
        .collect();
    if names.is_empty() {
        return "none".into();
    }
    if names.len() > MAX_NAMES {
        let more = names.len() - MAX_NAMES;
        names.truncate(MAX_NAMES);
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
