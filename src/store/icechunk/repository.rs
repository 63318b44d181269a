//! The file `repo` of version 2 of the format: branches, tags and snapshots (`repo.fbs`).

use super::containers;
use super::flatbuffers::{Offsets, Table};
use super::format::{FileType, FormatError, decode, required};
use super::id::ObjectId;

/// Slots of the tables.
mod slot {
    pub(super) const TAGS: usize = 1;
    pub(super) const BRANCHES: usize = 2;
    pub(super) const SNAPSHOTS: usize = 4;
    pub(super) const STATUS: usize = 5;
    pub(super) const CONFIG: usize = 9;

    pub(super) const REF_NAME: usize = 0;
    pub(super) const REF_SNAPSHOT: usize = 1;

    pub(super) const SNAPSHOT_ID: usize = 0;
    pub(super) const SNAPSHOT_FLUSHED_AT: usize = 2;
    pub(super) const SNAPSHOT_MESSAGE: usize = 3;

    pub(super) const STATUS_AVAILABILITY: usize = 0;
    pub(super) const STATUS_REASON: usize = 2;
}

/// The availability status of a repository that must not be read.
const OFFLINE: u8 = 2;

/// The state of a repository.
#[derive(Debug)]
pub(super) struct RepositoryInfo {
    bytes: Vec<u8>,
}

/// The kind of a reference to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefKind {
    /// A branch, which moves with every commit.
    Branch,
    /// A tag, which never moves.
    Tag,
}

/// A snapshot as the file `repo` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnapshotInfo<'a> {
    pub(super) id: ObjectId,
    /// Commit time, in microseconds since 1970.
    pub(super) flushed_at_us: u64,
    pub(super) message: &'a str,
}

impl RepositoryInfo {
    /// Decodes the file `repo`.
    pub(super) fn decode(file: &[u8], limit_bytes: u64) -> Result<Self, FormatError> {
        let bytes = decode(file, FileType::Repository, limit_bytes)?;
        Ok(Self { bytes })
    }

    fn root(&self) -> Result<Table<'_>, FormatError> {
        Table::root(&self.bytes)
    }

    /// Why the repository must not be read; `None` if it may be read.
    pub(super) fn offline(&self) -> Result<Option<&str>, FormatError> {
        let status = required(self.root()?.table(slot::STATUS)?, "status")?;
        match status.u8(slot::STATUS_AVAILABILITY)? {
            Some(OFFLINE) => Ok(Some(
                status.string(slot::STATUS_REASON)?.unwrap_or_default(),
            )),
            _ => Ok(None),
        }
    }

    /// Returns the names of branches or tags, each with its snapshot.
    pub(super) fn refs(
        &self,
        kind: RefKind,
    ) -> Result<impl Iterator<Item = Result<(&str, ObjectId), FormatError>>, FormatError> {
        let (slot, name) = match kind {
            RefKind::Branch => (slot::BRANCHES, "branches"),
            RefKind::Tag => (slot::TAGS, "tags"),
        };
        let refs: Offsets<'_> = required(self.root()?.vector(slot)?, name)?;
        Ok(refs.tables().map(|table| {
            let table = table?;
            let name = required(table.string(slot::REF_NAME)?, "name of a branch or tag")?;
            let index = usize::try_from(table.u32(slot::REF_SNAPSHOT)?).unwrap_or(usize::MAX);
            Ok((name, self.snapshot(index)?.id))
        }))
    }

    /// Returns the snapshot of a branch or tag; `None` if the name does not exist.
    pub(super) fn find(&self, kind: RefKind, name: &str) -> Result<Option<ObjectId>, FormatError> {
        for found in self.refs(kind)? {
            let (there, id) = found?;
            if there == name {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn snapshot(&self, index: usize) -> Result<SnapshotInfo<'_>, FormatError> {
        let snapshots: Offsets<'_> = required(self.root()?.vector(slot::SNAPSHOTS)?, "snapshots")?;
        let table = snapshots.table(index)?;
        Ok(SnapshotInfo {
            id: ObjectId(required(
                table.fixed(slot::SNAPSHOT_ID)?,
                "id of a snapshot",
            )?),
            flushed_at_us: table.u64(slot::SNAPSHOT_FLUSHED_AT)?,
            message: table.string(slot::SNAPSHOT_MESSAGE)?.unwrap_or_default(),
        })
    }

    /// Returns all snapshots, in no particular order.
    pub(super) fn snapshots(
        &self,
    ) -> Result<impl Iterator<Item = Result<SnapshotInfo<'_>, FormatError>>, FormatError> {
        let snapshots: Offsets<'_> = required(self.root()?.vector(slot::SNAPSHOTS)?, "snapshots")?;
        Ok((0..snapshots.len()).map(|index| self.snapshot(index)))
    }

    /// Returns the names of containers of virtual chunks, with their URL prefixes.
    pub(super) fn containers(&self) -> Result<Vec<(String, String)>, FormatError> {
        match self.root()?.bytes(slot::CONFIG)? {
            Some(config) => containers::read(config),
            None => Ok(Vec::new()),
        }
    }
}
