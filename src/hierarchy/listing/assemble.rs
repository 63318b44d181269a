//! The names of a prefix, from its metadata and from the listing of the inner store.

use std::sync::Arc;

use super::MetadataListingStore;
use super::documents::Documents;
use super::metadata::{KeyMeaning, NodeChildren, PrefixMetadata};
use super::names::AssembledListing;
use super::own::OwnDocuments;
use super::resolve::{Resolved, ResolvedKey};
use crate::store::{Key, Kind, StoreError};

impl MetadataListingStore {
    /// Returns the names of a prefix, and whether the metadata or a listing of the inner store gave them.
    pub(super) async fn assemble(
        &self,
        prefix: &Key,
        resolved: &Resolved,
    ) -> Result<(AssembledListing, bool), StoreError> {
        let not_a_prefix = || StoreError::NotAPrefix {
            key: prefix.clone(),
        };
        let mut names = AssembledListing::new(prefix.clone());
        let mut is_listed = true;
        match &resolved.found {
            ResolvedKey::Metadata(metadata, KeyMeaning::Node(path)) => {
                let copied = resolved.copied.as_ref();
                let own = copied.and_then(|copied| copied.own.as_ref());
                return self.names(prefix, metadata, path, own).await;
            }
            ResolvedKey::Metadata(metadata, KeyMeaning::ChunkDirectory(chunks, cell)) => {
                if metadata.is_consolidated() || !self.push_inner(&mut names, prefix).await? {
                    names.push_chunks(Arc::clone(chunks), *cell);
                }
            }
            ResolvedKey::Metadata(_, KeyMeaning::AbsentDocument) => {
                return Err(StoreError::NotFound {
                    key: prefix.clone(),
                });
            }
            ResolvedKey::Metadata(
                _,
                KeyMeaning::InnerKey | KeyMeaning::Undecided(_) | KeyMeaning::Unknown,
            ) => {
                if self.inner.stat(prefix).await?.kind != Kind::Prefix {
                    return Err(not_a_prefix());
                }
                is_listed = self.push_inner(&mut names, prefix).await?;
            }
            ResolvedKey::Inner(stat) if stat.kind == Kind::Prefix => {
                is_listed = self.push_inner(&mut names, prefix).await?;
            }
            ResolvedKey::Inner(_) => return Err(not_a_prefix()),
        }
        Ok((names, is_listed))
    }

    /// Returns all names of a node, and whether the metadata or a listing of the inner store gave them.
    async fn names(
        &self,
        prefix: &Key,
        metadata: &PrefixMetadata,
        path: &str,
        own: Option<&OwnDocuments>,
    ) -> Result<(AssembledListing, bool), StoreError> {
        let mut names = AssembledListing::new(prefix.clone());
        let lost = match path {
            "" => metadata.lost(),
            _ => Documents::default(),
        };
        for document in metadata.documents(path).union(lost).iter() {
            names.push(document.name().as_bytes(), Kind::Object, None);
        }
        for child in metadata.children(path) {
            let is_absent = metadata.is_consolidated() && self.is_known_absent(prefix, child);
            if !is_absent {
                names.push(child.as_bytes(), Kind::Prefix, None);
            }
        }
        if let Some(OwnDocuments::More(own)) = own {
            for child in own.children("") {
                names.push(child.as_bytes(), Kind::Prefix, None);
            }
        }
        let is_listed = match metadata.contents(path) {
            NodeChildren::Array(chunks) => {
                if metadata.is_consolidated() || !self.push_inner(&mut names, prefix).await? {
                    names.push_chunks(chunks, Default::default());
                }
                true
            }
            NodeChildren::UnknownChunks => false,
            NodeChildren::Group | NodeChildren::Unknown => metadata.is_consolidated(),
        };
        match &metadata.failure {
            None => {}
            Some(_) if metadata.is_consolidated() => {}
            Some(StoreError::Denied { .. }) if metadata.undecided().is_none() => {}
            Some(error) => return Err(error.clone()),
        }
        let is_listed = is_listed || self.push_inner(&mut names, prefix).await?;
        Ok((names, is_listed))
    }

    /// Adds the names that the inner store lists. Returns whether the inner store has a listing.
    ///
    /// # Errors
    /// The inner store supports listings, but this listing failed.
    async fn push_inner(
        &self,
        names: &mut AssembledListing,
        prefix: &Key,
    ) -> Result<bool, StoreError> {
        match self.list_inner(prefix).await? {
            None => Ok(false),
            Some(listing) => match names.push_listing(listing).await {
                Err(error) if self.is_unlisted(&error) => Ok(false),
                listed => listed.map(|()| true),
            },
        }
    }
}
