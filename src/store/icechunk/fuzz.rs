//! The decoders as a function of arbitrary bytes, for tests/fuzz.

use super::flatbuffers::Table;
use super::format::{FileType, FormatError, decode};
use super::id::ObjectId;
use super::manifest::{Location, Manifest};
use super::repository::{RefKind, RepositoryInfo};
use super::snapshot::{NodeIndex, Snapshot};

const MEMORY_BYTES: u64 = 16 << 20;
/// Number of nodes, arrays, references and names that are inspected.
const MOST: usize = 256;

/// Decodes a metadata file: either it is refused, or each part of it can be read or is refused.
///
/// # Panics
/// If a decoder violates its contract.
pub fn fuzz_icechunk(file: &[u8]) {
    // A refused file is a valid outcome.
    let _ = snapshot(file);
    let _ = manifest(file);
    let _ = repository(file);
}

/// Returns the ID in a file.
fn id(file: &[u8], of: FileType) -> Result<ObjectId, FormatError> {
    let body = decode(file, of, MEMORY_BYTES)?;
    let id = Table::root(&body)?.fixed(0)?;
    Ok(ObjectId(id.unwrap_or_default()))
}

fn snapshot(file: &[u8]) -> Result<(), FormatError> {
    let snapshot = Snapshot::decode(id(file, FileType::Snapshot)?, file, MEMORY_BYTES)?;
    let mut nodes: Vec<NodeIndex> = vec![snapshot.locate(b"").0];
    let mut seen = 0;
    while let Some(node) = nodes.pop().filter(|_| seen < MOST) {
        seen += 1;
        if let Ok(Some(range)) = snapshot.document(node) {
            assert!(snapshot.bytes().get(range).is_some(), "a document outside");
        }
        let _ = snapshot.array(node, MEMORY_BYTES);
        for (child, name) in snapshot.children(node).take(MOST) {
            assert!(!name.is_empty() && child != node, "a node below itself");
            nodes.push(child);
        }
    }
    let _ = (snapshot.message(), snapshot.parent());
    Ok(())
}

fn manifest(file: &[u8]) -> Result<(), FormatError> {
    let manifest = Manifest::decode(id(file, FileType::Manifest)?, file, MEMORY_BYTES)?;
    for (node, dimensions) in manifest.arrays().take(MOST) {
        let Ok(Some(refs)) = manifest.refs(&node, dimensions) else {
            continue;
        };
        for place in 0..refs.len().min(MOST) {
            let coordinates: Vec<u32> = refs.coordinates(place)?.iter().collect();
            assert_eq!(
                refs.find(&coordinates),
                Ok(Some(place)),
                "a reference is lost"
            );
            if let Ok(Location::Inline(range)) = refs.location(place) {
                assert!(manifest.bytes().get(range).is_some(), "a value outside");
            }
        }
    }
    Ok(())
}

fn repository(file: &[u8]) -> Result<(), FormatError> {
    let info = RepositoryInfo::decode(file, MEMORY_BYTES)?;
    for kind in [RefKind::Branch, RefKind::Tag] {
        let _ = info.refs(kind).map(|refs| refs.take(MOST).count());
    }
    let _ = info
        .snapshots()
        .map(|snapshots| snapshots.take(MOST).count());
    let _ = (info.offline(), info.containers());
    Ok(())
}
