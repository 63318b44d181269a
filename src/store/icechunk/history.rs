//! All versions of a repository, for users who look for one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::id::ObjectId;
use super::refs::{Layout, NamedRef, in_repo, named_refs};
use super::repository::RefKind;
use super::{Shared, time};
use crate::store::{History, NamedVersion, StoreError, VersionInfo};

/// Largest number of listed snapshots.
const MAX_VERSIONS: usize = 1000;
/// Largest number of listed characters of a message.
const MAX_MESSAGE: usize = 1000;

/// Snapshots by their identifiers, each with its date in microseconds since 1970 and its message.
type Versions = BTreeMap<ObjectId, (u64, String)>;

fn shortened(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

impl Shared {
    /// Branches, tags and snapshots.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn history(&self) -> Result<History, StoreError> {
        let shown = self.state.lock().index.snapshot().id();
        let (refs, versions, incomplete) = match self.refs.layout {
            Layout::Repo => self.of_repo().await?,
            Layout::Files => self.of_files(shown).await?,
        };
        let names = |kind: RefKind| {
            let refs = refs.iter().filter(|named| named.kind == kind);
            let named = refs.map(|named| NamedVersion {
                name: named.name.clone(),
                version: named.snapshot.to_string(),
            });
            named.collect()
        };
        let mut snapshots: Vec<_> = versions.iter().collect();
        snapshots.sort_by_key(|(_, (date, _))| Reverse(*date));
        let snapshots = snapshots
            .into_iter()
            .map(|(id, (date, message))| VersionInfo {
                version: id.to_string(),
                written: time(*date),
                message: message.clone(),
            });
        Ok(History {
            name: self.name.clone(),
            shown: shown.to_string(),
            branches: names(RefKind::Branch),
            tags: names(RefKind::Tag),
            versions: snapshots.collect(),
            incomplete,
        })
    }

    async fn of_repo(&self) -> Result<(Vec<NamedRef>, Versions, Option<String>), StoreError> {
        let info = self.refs.repository().await?;
        let refs = named_refs(&info).map_err(in_repo)?;
        let mut versions = Versions::new();
        let mut incomplete = None;
        for snapshot in info.snapshots().map_err(in_repo)? {
            let snapshot = snapshot.map_err(in_repo)?;
            if versions.len() == MAX_VERSIONS {
                incomplete = Some(format!("only {MAX_VERSIONS} snapshots are listed"));
                break;
            }
            let described = (snapshot.flushed_at_us, shortened(snapshot.message));
            versions.insert(snapshot.id, described);
        }
        Ok((refs, versions, incomplete))
    }

    /// In version 1 of the format, snapshots are found from branches and tags, and then from child to parent.
    async fn of_files(
        &self,
        shown: ObjectId,
    ) -> Result<(Vec<NamedRef>, Versions, Option<String>), StoreError> {
        let (refs, mut incomplete) = match self.refs.list().await {
            Ok(refs) => (refs, None),
            Err(StoreError::Unsupported { what, .. }) => {
                let what = format!("branches and tags cannot be listed: {what}");
                (Vec::new(), Some(what))
            }
            Err(error) => return Err(error),
        };
        let mut wanted: BTreeSet<ObjectId> = refs.iter().map(|named| named.snapshot).collect();
        wanted.insert(shown);
        let mut versions = Versions::new();
        while let Some(id) = wanted.pop_first() {
            if versions.len() == MAX_VERSIONS {
                incomplete = Some(format!("only {MAX_VERSIONS} snapshots are listed"));
                break;
            }
            let snapshot = match self.files.snapshot(id).await {
                Ok(snapshot) => snapshot,
                // Older snapshots may have expired.
                Err(StoreError::Corrupt { key, what }) => {
                    incomplete = Some(format!("{key}: {what}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let failed = |error: super::FormatError| {
                error.of(&crate::store::Key::root(), &format!("snapshots/{id}"))
            };
            let described = (
                snapshot.flushed_at_us(),
                shortened(snapshot.message().map_err(failed)?),
            );
            versions.insert(id, described);
            let parent = snapshot.parent().map_err(failed)?;
            wanted.extend(parent.filter(|parent| !versions.contains_key(parent)));
        }
        Ok((refs, versions, incomplete))
    }
}
