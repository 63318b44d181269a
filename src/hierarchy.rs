//! The metadata documents of a hierarchy (Zarr v2, v3 or N5): the documents of a node, the keys of
//! stores without listings, and the byte ranges of inner chunks in shards.
//!
//! **Architecture Invariant:** only this module reads documents, and only it has a list of their names.

mod collection;
mod document;
mod key_classes;
mod listing;
mod n5;
mod node_documents;
mod not_shown;
mod separator;
mod shard_index;

pub use collection::{Collection, NODE_DOCUMENTS, find_hierarchies, is_hierarchy, relative};
pub use document::{
    DOCUMENT_NAMES, Document, MAX_DOCUMENT_BYTES, NODE_DOCUMENT_NAMES, StoredDocument, is_document,
    is_document_name, read_document,
};
pub use key_classes::KEY_CLASSES;
pub(crate) use listing::AssembledListing;
pub use listing::MetadataListingStore;
pub use n5::is_in_n5;
pub use node_documents::{LongDocument, NodeDocuments, OwnVersions, UnreadableDocument};
pub use not_shown::{NamedMembers, NotShown, not_shown};
pub use shard_index::{
    CachedIndex, ShardId, ShardIndexCache, ShardVersion, codec_error, read_shard_index,
    shard_index_range,
};
