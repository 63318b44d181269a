//! What users are told about a source, apart from its keys and values.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{Key, StoreError, TransferStats};

/// The size of a source, for statfs(2); zero where computing it would take a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes that the source occupies.
    pub bytes: u64,
    /// Number of keys.
    pub keys: u64,
}

/// Content of a source that no key shows, or not all of it, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// What is not shown, and why.
    pub what: String,
    /// Whether data are missing from the tree; else it is only to be known.
    pub is_lost: bool,
}

impl Omission {
    pub(crate) fn lost(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_lost: true,
        }
    }
}

/// The version history of a versioned source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The name that the user gave for the version that is shown.
    pub name: String,
    /// The ID of the version that is shown.
    pub shown: String,
    /// Names that move from version to version (branches).
    pub branches: Vec<NamedVersion>,
    /// Names that never move (tags).
    pub tags: Vec<NamedVersion>,
    /// All versions, latest first.
    pub versions: Vec<VersionInfo>,
    /// What the lists lack, and why.
    pub incomplete: Option<String>,
}

/// A name that refers to a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVersion {
    /// The name of the branch or tag.
    pub name: String,
    /// The ID of the version.
    pub version: String,
}

/// One version of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// The ID of the version.
    pub version: String,
    /// When the version was written.
    pub written: SystemTime,
    /// The message that the writer stored with the version.
    pub message: String,
}

/// What users are told about a source.
#[async_trait]
pub trait SourceInfo: Send + Sync {
    /// The size of the source.
    fn extent(&self) -> Extent {
        Extent::default()
    }

    /// Counters of network transfers; `None` if the store uses no network.
    fn transfer_stats(&self) -> Option<TransferStats> {
        None
    }

    /// The hierarchies that the source itself names, if it is a collection of them; `None` for a source that has to be
    /// searched.
    fn members(&self) -> Option<Vec<Key>> {
        None
    }

    /// The content of the source that the tree does not show. A database is searched for it, within limits.
    async fn omissions(&self) -> Vec<Omission> {
        Vec::new()
    }

    /// The versions of the source; `None` if it is not versioned.
    async fn history(&self) -> Option<Result<History, StoreError>> {
        None
    }
}
