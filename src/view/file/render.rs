//! Renders the files of a node when they are requested, and reports why a file is not available.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use siphasher::sip::SipHasher13;

use super::content::{CachedFile, Content, ContentId, InputTime};
use super::layout::VirtualFile;
use super::nodes::{FileId, Nodes};
use crate::array::ArrayReader;
use crate::clock::Instant;
use crate::node::{ArrayView, ContentError, NodeElements, ViewNode};
use crate::runtime::leave_session_thread;
use crate::store::StoreError;
use crate::translate::{Hierarchy, HierarchyDocument};
use crate::view::format::image_stack;
use crate::view::format::packed::{self, hdf5_encoding};
use crate::view::format::{Format, Renderer};
use crate::view::group::table;
use crate::view::group::tree::TreeScope;
use crate::zarr::chunk_names::ChunkNames;

impl Nodes {
    /// Returns the content of a node in a format.
    ///
    /// # Errors
    /// Returns why the node has no such file, or why the content could not be determined.
    pub fn content<'a>(
        self: &'a Arc<Self>,
        node: &'a Arc<ViewNode>,
        format: Format,
    ) -> BoxFuture<'a, Result<Content, ContentError>> {
        self.find_content(node, format).boxed()
    }

    async fn find_content(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<Content, ContentError> {
        check_kind(node, format)?;
        match format.renderer() {
            Renderer::Node(make) => Ok(Content::Text(make(node)?)),
            Renderer::Readme | Renderer::ViewList => self.rendered_view_list(node, format).await,
            Renderer::Elements => Ok(Content::Elements(self.content_id(node).await?)),
            Renderer::Array(make) => {
                let file = make(&array_of(node)?)?;
                let file = self.file(node, format, file, None, InputTime::now())?;
                Ok(Content::File(Arc::new(file)))
            }
            Renderer::Chunks => {
                let reader = array_of(node)?.reader;
                let chunks = reader.chunks();
                let names = ChunkNames::of_keys(chunks.chunk_keys(), chunks.grid().shape());
                Ok(Content::Chunks(Arc::clone(reader), names))
            }
            Renderer::Inner => {
                let reader = array_of(node)?.reader;
                let names = ChunkNames::nested(inner_counts(reader)?);
                Ok(Content::Inner(Arc::clone(reader), names))
            }
            Renderer::Hierarchy(_)
            | Renderer::Group(..)
            | Renderer::Variables(..)
            | Renderer::GroupOfKind(..)
            | Renderer::Loaded(..)
            | Renderer::Table(..)
            | Renderer::StoredChunks(_)
            | Renderer::ArrayWithNodes(..)
            | Renderer::StoredArray(..)
            | Renderer::UncheckedArray(_)
            | Renderer::Image(_) => self.rendered_file(node, format).await,
        }
    }

    async fn rendered_view_list(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<Content, ContentError> {
        if let Some(file) = self.cached_file(node, format) {
            return Ok(Content::File(file));
        }
        let begun = Instant::now();
        let (list, inputs) = self.view_list(node).await?;
        let text = match format.renderer() {
            Renderer::ViewList => list.json(),
            _ => list.text(),
        };
        let file = VirtualFile::text(text);
        let file = self.cache_file(node, format, file, inputs, begun)?;
        Ok(Content::File(file))
    }

    /// Checks that a node has a file or directory of a format, that is, that [`Nodes::content`] succeeds. A
    /// costly file is not rendered if metadata alone prove that it exists.
    ///
    /// # Errors
    /// As [`Nodes::content`].
    pub async fn check(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<(), ContentError> {
        match self.metadata_prove(node, format).await? {
            true => Ok(()),
            false => self.content(node, format).await.map(drop),
        }
    }

    /// Returns whether metadata alone prove that a node has a file or directory of a format.
    ///
    /// # Errors
    /// Returns why the node has no such file, or why directories do not list it.
    async fn metadata_prove(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<bool, ContentError> {
        let is_remote = self.store().capabilities().is_remote;
        match (format.renderer(), &node.elements) {
            // Directories always list both files. Decoding elements can fail, but the file exists in any case.
            (Renderer::Readme | Renderer::ViewList, _)
            | (Renderer::Elements, NodeElements::Variable(..)) => Ok(true),
            (Renderer::ArrayWithNodes(metadata_prove, _), NodeElements::Fixed(_)) => {
                let array = array_of(node)?;
                self.resolve(|nodes| metadata_prove(&array, nodes)).await
            }
            // Listing a directory must not look up the size of each chunk.
            (Renderer::StoredArray(check, _), _) => {
                let array = array_of(node)?;
                packed::check_sizes(&array)?;
                self.resolve(|nodes| check(&array, nodes)).await?;
                Ok(true)
            }
            (Renderer::StoredChunks(_), NodeElements::None) if is_remote => {
                Err(absent("not listed: the sizes of chunks take requests"))
            }
            (Renderer::StoredChunks(_), NodeElements::None) => {
                let metadata_prove = |node: &ViewNode| packed::metadata_prove(node);
                let scope = TreeScope::Subtree;
                match self
                    .metadata_prove_group(node, scope, metadata_prove)
                    .await?
                {
                    true => Ok(true),
                    false => Err(absent(
                        "no array in it has chunks that HDF5 reads as they are",
                    )),
                }
            }
            (Renderer::StoredChunks(_), _) => {
                packed::check(node, &array_of(node)?)?;
                Ok(true)
            }
            // The other columns do not matter.
            (Renderer::Table(metadata_prove, _), _) if node.is_array() => {
                match metadata_prove(node) {
                    true => Ok(true),
                    false => Err(absent("metadata do not prove that it is a column")),
                }
            }
            // Few groups have a table, and looking for its columns takes one request per array.
            (Renderer::Table(..), _) if is_remote => Err(absent(
                "not listed: whether arrays are columns takes a request for each",
            )),
            (Renderer::Table(metadata_prove, _), _) => {
                self.metadata_prove_group(node, TreeScope::Table, metadata_prove)
                    .await
            }
            // Listing a directory must not read the texts of all variants, which `ls -l` needs.
            (Renderer::Loaded(..), _) if is_remote => {
                Err(absent("not listed: its size takes requests for elements"))
            }
            (Renderer::Loaded(_, check, _), _) => check(self, node).await.map(|()| true),
            (Renderer::Group(scope, metadata_prove, _), NodeElements::None) => {
                self.metadata_prove_group(node, scope, metadata_prove).await
            }
            (Renderer::Variables(metadata_prove, _), NodeElements::None) => {
                let scope = TreeScope::Subtree;
                self.metadata_prove_group(node, scope, metadata_prove).await
            }
            (Renderer::Variables(metadata_prove, _), _) => {
                Ok(Self::metadata_prove_array(node, metadata_prove))
            }
            _ => Ok(false),
        }
    }

    /// Returns a file that depends on several nodes: from the cache, or rendered once for all callers.
    async fn rendered_file(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<Content, ContentError> {
        if let Some(file) = self.cached_file(node, format) {
            return Ok(Content::File(file));
        }
        let (nodes, own) = (Arc::clone(self), Arc::clone(node));
        let load = move || async move {
            leave_session_thread().await;
            let mut inputs = InputTime::now();
            let file = nodes.render(&own, format).await;
            let file = file.map_err(|error| error.of(own.key()))?;
            let readability = &file.readability;
            inputs.has_failed_input =
                readability.has_failed_input || !readability.errors.is_empty();
            nodes.cache_file(&own, format, file, inputs, inputs.oldest)
        };
        let id = file_id(node, format);
        let panicked = StoreError::internal(format!("a panic while {format} was made"));
        let file = self.file_loads.run(id, load, panicked.into()).await?;
        Ok(Content::File(file))
    }

    async fn render(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<VirtualFile, ContentError> {
        match format.renderer() {
            Renderer::Hierarchy(make) => {
                let (store, engine) = (self.store(), self.engine());
                let read = Hierarchy::read_documents(&**store, &node.key, engine).await;
                let whole = HierarchyDocument::of(&read, &node.key, make)?;
                let text = whole.text(&node.key)?;
                Ok(VirtualFile {
                    notes: whole.notes,
                    ..VirtualFile::text(text)
                })
            }
            Renderer::Group(scope, _, make) => {
                let mut tree = self.group_tree(node, scope).await?;
                tree.has_gap = self.files_with_gap.has(&file_id(node, format));
                Ok(make(&tree)?)
            }
            Renderer::Variables(_, make) => {
                let mut tree = match node.is_array() {
                    true => self.array_tree(node).await?,
                    false => self.group_tree(node, TreeScope::Subtree).await?,
                };
                tree.has_gap = self.files_with_gap.has(&file_id(node, format));
                Ok(make(&tree)?)
            }
            Renderer::Table(_, make) => {
                let along = node.is_array().then_some(&**node);
                Ok(make(&self.table_tree(node).await?, along)?)
            }
            Renderer::GroupOfKind(_, make) => {
                Ok(make(&self.group_tree(node, TreeScope::RawSubtree).await?)?)
            }
            Renderer::Loaded(_, _, load) => load(self, node).await,
            Renderer::StoredChunks(make) => {
                let mut tree = self.stored_tree(node).await?;
                tree.has_gap = self.files_with_gap.has(&file_id(node, format));
                let mut file = make(&tree)?;
                // Stored chunks of a remote source are not cached: a program would fetch them again.
                if self.store().capabilities().is_remote {
                    file.readability.read_to_open_bytes = 0;
                }
                Ok(file)
            }
            Renderer::ArrayWithNodes(_, make)
            | Renderer::StoredArray(_, make)
            | Renderer::UncheckedArray(make) => {
                let array = array_of(node)?;
                self.resolve(|nodes| make(&array, nodes)).await
            }
            Renderer::Image(make) => self.resolve(|nodes| make(node, nodes)).await,
            _ => Err(StoreError::internal("a format that is made of one node").into()),
        }
    }

    /// Returns a file that depends on several nodes, if it is cached and still trusted.
    pub fn cached_file(&self, node: &ViewNode, format: Format) -> Option<Arc<CachedFile>> {
        let id = file_id(node, format);
        let mut files = self.files.lock();
        let file = files.get(&id)?;
        let is_immutable = self.store().capabilities().immutable;
        let is_trusted = file.is_trusted(is_immutable, self.options().ttl.present);
        is_trusted.then(|| Arc::clone(file))
    }

    fn cache_file(
        &self,
        node: &ViewNode,
        format: Format,
        rendered: VirtualFile,
        inputs: InputTime,
        begun: Instant,
    ) -> Result<Arc<CachedFile>, ContentError> {
        let mut hasher = SipHasher13::new();
        rendered.layout.hash_into(&mut hasher);
        for table in rendered.layout.tables() {
            table.hash_into(&mut hasher);
        }
        for reader in &rendered.sources {
            hasher.write(reader.key().as_bytes());
            hasher.write_u64(reader.document_version());
        }
        let content_id = ContentId {
            hash: hasher.finish(),
            size_bytes: rendered.layout.size_bytes(),
        };
        let file = CachedFile {
            render_time: begun.elapsed(),
            ..self.file(node, format, rendered, Some(content_id), inputs)?
        };
        let file = Arc::new(file);
        let bytes = file.file.layout.header_bytes();
        let id = file_id(node, format);
        let evicted = self.files.lock().insert(id, Arc::clone(&file), bytes);
        drop(evicted);
        Ok(file)
    }

    fn file(
        &self,
        node: &ViewNode,
        format: Format,
        rendered: VirtualFile,
        content_id: Option<ContentId>,
        inputs: InputTime,
    ) -> Result<CachedFile, ContentError> {
        let bytes = rendered.layout.header_bytes();
        let most = self.engine().memory_limit_bytes() / 8;
        if bytes > most {
            let why = format!("a header of {bytes} bytes; {most} are the limit for {format}");
            return Err(ContentError::Absent(why));
        }
        let memory = self.engine().reserve_now(&node.key, bytes);
        Ok(CachedFile {
            id: file_id(node, format),
            file: rendered,
            content_id,
            inputs,
            render_time: Duration::ZERO,
            _memory: memory.map_err(ContentError::Failed)?,
        })
    }
}

fn file_id(node: &ViewNode, format: Format) -> FileId {
    (node.key.clone(), node.version, format.number())
}

/// Checks that a format applies to the kind of a node.
pub(in crate::view) fn check_kind(node: &ViewNode, format: Format) -> Result<(), String> {
    match (format.renderer(), &node.elements) {
        (Renderer::Hierarchy(_), _) if node.is_array() || node.is_implicit => {
            Err("no document says that it is a group".into())
        }
        (Renderer::Group(..) | Renderer::GroupOfKind(..) | Renderer::Loaded(..), _)
            if node.is_array() =>
        {
            Err("this is an array".into())
        }
        (Renderer::GroupOfKind(is_of_kind, _) | Renderer::Loaded(is_of_kind, ..), _)
            if !is_of_kind(node) =>
        {
            let kind = format.description();
            Err(format!("the group has no metadata of {kind}"))
        }
        (Renderer::Table(..), _) if node.is_array() && table::dimension_of(node).is_none() => {
            Err("the columns of a table have one axis".into())
        }
        (Renderer::Image(_), NodeElements::None) if !image_stack::is_image(node) => {
            Err("the group is no image of OME-NGFF".into())
        }
        (Renderer::StoredChunks(_) | Renderer::Image(_), NodeElements::None)
        | (Renderer::Elements, NodeElements::Variable(..)) => Ok(()),
        (Renderer::StoredChunks(_), _) => hdf5_encoding(&array_of(node)?).map(drop),
        (Renderer::Elements, _) => {
            array_of(node)?;
            Err("elements of constant size: they are in .npy".into())
        }
        (
            Renderer::ArrayWithNodes(..)
            | Renderer::StoredArray(..)
            | Renderer::UncheckedArray(_)
            | Renderer::Image(_),
            _,
        ) => array_of(node).map(drop),
        _ => Ok(()),
    }
}

/// Returns the numbers of inner chunks along the axes of an array.
fn inner_counts(reader: &ArrayReader) -> Result<&[u64], String> {
    let chunks = reader.chunks();
    let reason = match chunks.is_regular() {
        true => "its chunks are no shards with inner chunks",
        false => "its chunks have several shapes: they are decoded whole",
    };
    chunks.inner_counts().ok_or_else(|| reason.to_owned())
}

fn absent(reason: &str) -> ContentError {
    ContentError::Absent(reason.to_owned())
}

/// Returns the node as an array with elements of constant size, or why it is not one.
fn array_of(node: &ViewNode) -> Result<ArrayView<'_>, String> {
    match &node.elements {
        NodeElements::None => Err("this is a group".into()),
        NodeElements::Variable(..) => Err("elements of variable length: they are in .json".into()),
        NodeElements::Unreadable(why) => Err(why.clone()),
        NodeElements::Fixed(_) => node.array_view().ok_or_else(|| "this is a group".into()),
    }
}
