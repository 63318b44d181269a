//! Versions of values in a database that another process may change.
//!
//! The hash of a small value is its version. A long value has no number that every writer changes: SQLite
//! keeps the row of an updated value, and LMDB reuses pages. Within one generation of the database,
//! its content cannot change. From one generation to the next, a digest of all its bytes proves that.
//! Once a writer was noticed, digests are computed when values are opened. A generation is one state of the files
//! of a database, so a database that is overwritten by another one has a new generation, whatever its header says.

use std::hash::{Hash as _, Hasher};
use std::sync::OnceLock;

use siphasher::sip::SipHasher13;

use super::{Failure, Snapshot, ValueMeta};
use crate::cache::WeightedLru;
use crate::store::{Key, Version};
use crate::sync::Mutex;

/// Whether all bytes of a long value may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Digest {
    /// All bytes may be read if that is necessary.
    Allowed,
    /// The call returns `None` if it would have to read all bytes.
    Forbidden,
}

/// Evidence for the version of a long value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VersionProof {
    size_bytes: u64,
    /// The last generation for which the proof holds.
    generation: u64,
    /// The digest of all bytes.
    digest: Option<u64>,
    pub(super) version: Version,
}

impl VersionProof {
    /// Whether the proof holds for a snapshot.
    pub(super) fn is_of(&self, snapshot: &dyn Snapshot) -> bool {
        self.generation == snapshot.generation()
    }
}

/// Number of remembered long values.
const MAX_REMEMBERED: usize = 4096;

/// The versions of long values that were opened.
#[derive(Debug)]
pub(super) struct ValueVersions {
    opened: Mutex<WeightedLru<Key, VersionProof>>,
    /// The first generation that was seen. Any other generation proves that a writer is active.
    first_generation: OnceLock<u64>,
}

impl Default for ValueVersions {
    fn default() -> Self {
        Self {
            opened: Mutex::new(WeightedLru::new(u64::MAX, MAX_REMEMBERED)),
            first_generation: OnceLock::new(),
        }
    }
}

impl ValueVersions {
    /// Returns the version of a value; `None` if that requires a digest, and `digests` forbids it.
    pub(super) fn version(
        &self,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        value: ValueMeta,
        digests: Digest,
    ) -> Result<Option<Version>, Failure> {
        if let Some(identity) = value.identity {
            return Ok(Some(Version(identity)));
        }
        let Some(known) = self.cached_proof(key) else {
            return Ok(Some(new_version(snapshot, value)));
        };
        let proof = revalidate(snapshot, key, value, known, digests)?;
        Ok(proof.map(|proof| self.cache(key, proof)))
    }

    /// As [`ValueVersions::version`], for a value that will be read.
    pub(super) fn open(
        &self,
        snapshot: &mut dyn Snapshot,
        key: &Key,
        value: ValueMeta,
        digests: Digest,
    ) -> Result<Option<VersionProof>, Failure> {
        let known = self.cached_proof(key).filter(|_| value.identity.is_none());
        let proof = match known {
            Some(known) => revalidate(snapshot, key, value, known, digests)?,
            None => Some(new_proof(snapshot, value)),
        };
        let Some(mut proof) = proof else {
            return Ok(None);
        };
        if value.identity.is_none() && proof.digest.is_none() && self.has_writer(snapshot) {
            if digests == Digest::Forbidden {
                return Ok(None);
            }
            proof.digest = Some(digest(snapshot, key, value)?);
        }
        self.cache(key, proof);
        Ok(Some(proof))
    }

    fn cached_proof(&self, key: &Key) -> Option<VersionProof> {
        self.opened.lock().get(key).copied()
    }

    fn cache(&self, key: &Key, proof: VersionProof) -> Version {
        let evicted = self.opened.lock().insert(key.clone(), proof, 1);
        drop(evicted);
        proof.version
    }

    /// Whether the database has changed since the first snapshot, or another process may change it.
    fn has_writer(&self, snapshot: &dyn Snapshot) -> bool {
        let generation = snapshot.generation();
        *self.first_generation.get_or_init(|| generation) != generation
            || snapshot.may_have_writer()
    }
}

/// Returns the proof of a value for the generation of the snapshot. The version is the same if the content
/// is the same. `None` if that requires a digest, and `digests` forbids it.
pub(super) fn revalidate(
    snapshot: &mut dyn Snapshot,
    key: &Key,
    value: ValueMeta,
    known: VersionProof,
    digests: Digest,
) -> Result<Option<VersionProof>, Failure> {
    let is_same_size = known.size_bytes == value.size_bytes;
    if is_same_size && known.generation == snapshot.generation() {
        return Ok(Some(known));
    }
    let fresh = new_proof(snapshot, value);
    if value.identity.is_some() || !is_same_size || known.digest.is_none() {
        return Ok(Some(fresh));
    }
    if digests == Digest::Forbidden {
        return Ok(None);
    }
    let digest = Some(digest(snapshot, key, value)?);
    Ok(Some(VersionProof {
        digest,
        version: match digest == known.digest {
            true => known.version,
            false => fresh.version,
        },
        ..fresh
    }))
}

fn new_proof(snapshot: &dyn Snapshot, value: ValueMeta) -> VersionProof {
    VersionProof {
        size_bytes: value.size_bytes,
        generation: snapshot.generation(),
        digest: None,
        version: match value.identity {
            Some(identity) => Version(identity),
            None => new_version(snapshot, value),
        },
    }
}

fn new_version(snapshot: &dyn Snapshot, value: ValueMeta) -> Version {
    let mut hasher = SipHasher13::new();
    (value.size_bytes, snapshot.generation()).hash(&mut hasher);
    Version(hasher.finish())
}

/// Hashes the content of a value to identify it.
pub(super) fn identity_of(content: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(content);
    hasher.write_usize(content.len());
    hasher.finish()
}

/// Bytes hashed at a time.
const PIECE_BYTES: usize = 1 << 20;

fn digest(snapshot: &mut dyn Snapshot, key: &Key, value: ValueMeta) -> Result<u64, Failure> {
    let longest = usize::try_from(value.size_bytes).map_or(PIECE_BYTES, |all| all.min(PIECE_BYTES));
    let mut piece = vec![0; longest];
    let mut hasher = SipHasher13::new();
    let mut offset = 0;
    while offset < value.size_bytes {
        let left = usize::try_from(value.size_bytes - offset).unwrap_or(usize::MAX);
        let piece = piece.get_mut(..left.min(longest)).unwrap_or_default();
        snapshot.read_at(key.as_bytes(), offset, piece)?;
        hasher.write(piece);
        offset = offset.saturating_add(piece.len() as u64);
    }
    Ok(hasher.finish())
}
