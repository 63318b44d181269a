//! View files, and their open handles.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::beginning::LastRead;
use super::content::{CachedFile, Content, ContentId};
use super::nodes::Nodes;
use super::whole_file::WholeFile;
use crate::array::{ArrayReader, OpenReader, Selection, ServedHandle, ServedVersions};
use crate::node::ViewNode;
use crate::store::{Data, Kind, Object, Stat, StoreError, Version};

/// A view file, as one inode. While it is open, it serves a single version of each chunk.
#[derive(Debug)]
pub struct ViewFile {
    content: FileContent,
    version: Version,
    modified: SystemTime,
    /// The versions of the served chunks, if the source can change.
    served: Option<Arc<ServedVersions>>,
}

#[derive(Debug)]
enum FileContent {
    Text(Arc<Vec<u8>>),
    Elements(Arc<Nodes>, Arc<ViewNode>, ContentId),
    File(Arc<Nodes>, Arc<CachedFile>, LastRead),
    Whole(WholeFile),
    Chunk(Arc<ArrayReader>, u64),
    Inner(Arc<ArrayReader>, u64),
}

impl ViewFile {
    fn new(content: FileContent, version: Version, modified: SystemTime) -> Self {
        let readers = content.readers();
        let changeable = readers.iter().find(|reader| !reader.is_constant());
        let served = changeable.map(|reader| Arc::new(ServedVersions::new(reader.engine())));
        Self {
            content,
            version,
            modified,
            served,
        }
    }

    /// Creates the file of a node from the content of a format; `None` if the content is a directory.
    pub fn of(nodes: &Arc<Nodes>, node: &Arc<ViewNode>, content: Content) -> Option<Self> {
        let content = match content {
            Content::Text(text) => FileContent::Text(Arc::new(text)),
            Content::Elements(content_id) => {
                FileContent::Elements(Arc::clone(nodes), Arc::clone(node), content_id)
            }
            Content::File(file) if file.file.layout.whole_read_bytes().is_some() => {
                FileContent::Whole(WholeFile::new(nodes, file))
            }
            Content::File(file) => FileContent::File(Arc::clone(nodes), file, LastRead::default()),
            Content::Chunks(..) | Content::Inner(..) => return None,
        };
        Some(Self::new(content, Version(node.version()), node.modified()))
    }

    /// Creates a file with a text.
    pub fn text(text: Vec<u8>, version: Version, modified: SystemTime) -> Self {
        Self::new(FileContent::Text(Arc::new(text)), version, modified)
    }

    /// Returns the rendered file and when its beginning was last read; `None` for other content.
    pub(in crate::view) fn netcdf(&self) -> Option<(&Nodes, &CachedFile, &LastRead)> {
        match &self.content {
            FileContent::File(nodes, file, last) => Some((nodes, file, last)),
            _ => None,
        }
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the file has changed while another handle is open, so that its name must
    /// be looked up again.
    pub async fn open(self: &Arc<Self>) -> Result<Arc<dyn Object>, StoreError> {
        let readers = self.content.readers();
        let handle = match &self.served {
            Some(served) => Some(self.open_version(served, readers).await?),
            None => None,
        };
        Ok(Arc::new(OpenView {
            file: Arc::clone(self),
            handle,
            _readers: readers.iter().filter_map(ArrayReader::opened).collect(),
        }))
    }

    async fn open_version(
        &self,
        served: &Arc<ServedVersions>,
        readers: &[Arc<ArrayReader>],
    ) -> Result<ServedHandle, StoreError> {
        let arrays: Vec<_> = readers.iter().map(|reader| reader.chunks()).collect();
        let handle = served.open(&arrays).await;
        let handle = handle.ok_or_else(|| StoreError::Stale {
            key: readers
                .first()
                .map(|reader| reader.key().clone())
                .unwrap_or_default(),
            what: "a chunk may have changed; another inode has the present content".into(),
        })?;
        if let FileContent::Whole(whole) = &self.content
            && !handle.keeps_pages()
        {
            whole.renew();
        }
        Ok(handle)
    }

    /// Returns whether the file cannot be opened any more, so that a lookup returns another inode.
    pub fn is_retired(&self) -> bool {
        let readers = self.content.readers().iter();
        let arrays: Vec<_> = readers.map(|reader| reader.chunks()).collect();
        self.served
            .as_ref()
            .is_some_and(|served| served.is_retired(&arrays))
    }

    /// Creates the file of one chunk.
    pub fn chunk(
        reader: Arc<ArrayReader>,
        chunk: u64,
        version: Version,
        modified: SystemTime,
    ) -> Self {
        Self::new(FileContent::Chunk(reader, chunk), version, modified)
    }

    /// Creates the file of one inner chunk.
    pub fn inner(
        reader: Arc<ArrayReader>,
        inner: u64,
        version: Version,
        modified: SystemTime,
    ) -> Self {
        Self::new(FileContent::Inner(reader, inner), version, modified)
    }
}

impl FileContent {
    /// Returns the arrays whose elements the file contains.
    fn readers(&self) -> &[Arc<ArrayReader>] {
        match self {
            Self::Text(_) | Self::Elements(..) => &[],
            Self::File(_, file, _) => &file.file.sources,
            Self::Whole(whole) => &whole.file.file.sources,
            Self::Chunk(reader, _) | Self::Inner(reader, _) => std::slice::from_ref(reader),
        }
    }
}

impl ViewFile {
    fn size_bytes(&self) -> u64 {
        match &self.content {
            FileContent::Text(text) => text.len() as u64,
            FileContent::Elements(_, _, content_id) => content_id.size_bytes,
            FileContent::File(_, file, _) => file.size_bytes(),
            FileContent::Whole(whole) => whole.file.size_bytes(),
            FileContent::Chunk(reader, chunk) => reader.chunk_bytes(*chunk),
            FileContent::Inner(reader, _) => reader.read_chunk_bytes(),
        }
    }

    /// Returns the attributes for stat(2).
    pub fn stat(&self) -> Stat {
        Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes(),
            modified: self.modified,
            version: self.version,
            links: 1,
        }
    }
}

/// An open handle of a view file.
#[derive(Debug)]
struct OpenView {
    file: Arc<ViewFile>,
    /// The handle of the record of served versions, if the source can change.
    handle: Option<ServedHandle>,
    _readers: Vec<OpenReader>,
}

#[async_trait]
impl Object for OpenView {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn version(&self) -> Version {
        self.file.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.file.stat())
    }

    async fn read(&self, offset: u64, size: usize) -> Result<Data, StoreError> {
        let served = self.file.served.as_deref();
        match &self.file.content {
            FileContent::Text(text) => Ok(Data::part_of(text, offset, size)),
            FileContent::Elements(nodes, node, content_id) => {
                let text = nodes.text(node, *content_id).await?;
                Ok(Data::part_of(&text, offset, size))
            }
            FileContent::File(_, file, _) => file.file.read(offset, size, served).await,
            FileContent::Whole(whole) => {
                let bytes = whole.bytes(self.file.served.as_ref()).await?;
                Ok(Data::part_of(&bytes, offset, size))
            }
            FileContent::Chunk(reader, chunk) => {
                reader
                    .read(Selection::Chunk(*chunk), offset, size, served)
                    .await
            }
            FileContent::Inner(reader, inner) => {
                reader
                    .read(Selection::Inner(*inner), offset, size, served)
                    .await
            }
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    // Another text has another inode, because the node's version or the content ID differs.
    fn is_constant(&self) -> bool {
        self.handle.as_ref().is_none_or(ServedHandle::keeps_pages)
    }
}
