//! One computed file, open for reading.

use std::sync::Arc;
use std::time::SystemTime;

use super::content::{MadeFile, Rendering};
use super::node::ViewNode;
use super::nodes::Nodes;
use crate::array::ArrayReader;
use crate::store::{Data, Kind, Object, Patience, Stat, StoreError, Version};

/// A computed file.
#[derive(Debug)]
pub struct ViewFile {
    made_of: MadeOf,
    version: Version,
    modified: SystemTime,
}

#[derive(Debug)]
enum MadeOf {
    Text(Arc<Vec<u8>>),
    Elements(Arc<Nodes>, Arc<ViewNode>, Rendering),
    Made(Arc<MadeFile>),
    Chunk(Arc<ArrayReader>, u64),
    Inner(Arc<ArrayReader>, u64),
}

impl ViewFile {
    fn new(made_of: MadeOf, version: Version, modified: SystemTime) -> Self {
        Self {
            made_of,
            version,
            modified,
        }
    }

    /// A file with this text.
    pub fn text(text: Arc<Vec<u8>>, version: Version, modified: SystemTime) -> Self {
        Self::new(MadeOf::Text(text), version, modified)
    }

    /// The text of decoded elements.
    pub fn elements(
        nodes: Arc<Nodes>,
        node: Arc<ViewNode>,
        rendering: Rendering,
        version: Version,
        modified: SystemTime,
    ) -> Self {
        Self::new(MadeOf::Elements(nodes, node, rendering), version, modified)
    }

    /// A file of parts.
    pub fn made(file: Arc<MadeFile>, version: Version, modified: SystemTime) -> Self {
        Self::new(MadeOf::Made(file), version, modified)
    }

    /// One chunk.
    pub fn chunk(
        reader: Arc<ArrayReader>,
        chunk: u64,
        version: Version,
        modified: SystemTime,
    ) -> Self {
        Self::new(MadeOf::Chunk(reader, chunk), version, modified)
    }

    /// One inner chunk.
    pub fn inner(
        reader: Arc<ArrayReader>,
        piece: u64,
        version: Version,
        modified: SystemTime,
    ) -> Self {
        Self::new(MadeOf::Inner(reader, piece), version, modified)
    }
}

fn part_of(text: Arc<Vec<u8>>, offset: u64, size: usize) -> Data {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(text.len());
    let end = start.saturating_add(size).min(text.len());
    Data::Shared(text, start..end)
}

impl Object for ViewFile {
    fn size_bytes(&self) -> u64 {
        match &self.made_of {
            MadeOf::Text(text) => text.len() as u64,
            MadeOf::Elements(_, _, rendering) => rendering.size_bytes,
            MadeOf::Made(file) => file.size_bytes(),
            MadeOf::Chunk(reader, _) => reader.chunk_bytes(),
            MadeOf::Inner(reader, _) => reader.piece_bytes(),
        }
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes(),
            modified: self.modified,
            version: self.version,
            links: 1,
        })
    }

    fn read(
        &self,
        offset: u64,
        size: usize,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Data, StoreError> {
        match &self.made_of {
            MadeOf::Text(text) => Ok(part_of(Arc::clone(text), offset, size)),
            MadeOf::Elements(nodes, node, rendering) => {
                let text = nodes.text(node, *rendering, patience)?;
                Ok(part_of(text, offset, size))
            }
            MadeOf::Made(file) => file.made.read(offset, size, buffer, patience),
            MadeOf::Chunk(reader, chunk) => {
                reader.read_chunk(*chunk, offset, size, buffer, patience)
            }
            MadeOf::Inner(reader, piece) => {
                reader.read_inner(*piece, offset, size, buffer, patience)
            }
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn is_constant(&self) -> bool {
        match &self.made_of {
            // Another text is another place: the node's version or the rendering says so.
            MadeOf::Text(_) | MadeOf::Elements(..) => true,
            MadeOf::Made(file) => file.is_constant(),
            MadeOf::Chunk(reader, _) | MadeOf::Inner(reader, _) => reader.is_constant(),
        }
    }
}
