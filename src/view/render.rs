//! Renders the files of a node when they are requested, and reports why a file is not available.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use siphasher::sip::SipHasher13;

use super::array_view::ArrayView;
use super::content::{CachedFile, Content, ContentError, ContentId, InputTime};
use super::format::{Format, Renderer};
use super::group_tree::TreeScope;
use super::layout::VirtualFile;
use super::node::{NodeElements, ViewNode};
use super::nodes::Nodes;
use super::ome_tiff;
use super::packed::{self, hdf5_encoding};
use super::table;
use crate::runtime::leave_session_thread;
use crate::store::StoreError;
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
        match (format.renderer(), &node.elements) {
            (Renderer::Node(make), _) => Ok(Content::Text(make(node)?)),
            (Renderer::Readme | Renderer::ViewList, _) => match self.cached_file(node, format) {
                Some(file) => Ok(Content::File(file)),
                None => {
                    let begun = Instant::now();
                    let (list, inputs) = self.view_list(node).await?;
                    let text = match format.renderer() {
                        Renderer::ViewList => list.json(),
                        _ => list.text(),
                    };
                    let rendered = VirtualFile::text(text);
                    Ok(Content::File(
                        self.cache_file(node, format, rendered, inputs, begun)?,
                    ))
                }
            },
            (Renderer::Elements, NodeElements::Variable(..)) => {
                Ok(Content::Elements(self.content_id(node).await?))
            }
            (Renderer::Elements, _) => {
                array_of(node)?;
                Err("elements of constant size: they are in .npy"
                    .to_owned()
                    .into())
            }
            (Renderer::Hierarchy(_), _) if node.is_array() || node.is_implicit => {
                Err("no document says that it is a group".to_owned().into())
            }
            (Renderer::Group(..) | Renderer::GroupOfKind(..), _) if node.is_array() => {
                Err("this is an array".to_owned().into())
            }
            (Renderer::Table(..), _) if node.is_array() && table::dimension_of(node).is_none() => {
                Err("the columns of a table have one axis".to_owned().into())
            }
            (Renderer::GroupOfKind(is_of_kind, _), _) if !is_of_kind(node) => {
                let what = format.description();
                Err(format!("the group has no metadata of {what}").into())
            }
            (
                Renderer::Hierarchy(_)
                | Renderer::Group(..)
                | Renderer::GroupOfKind(..)
                | Renderer::Table(..),
                _,
            )
            | (Renderer::StoredChunks(..), NodeElements::None) => {
                self.rendered_file(node, format).await
            }
            (Renderer::StoredChunks(..), _) => {
                hdf5_encoding(&array_of(node)?)?;
                self.rendered_file(node, format).await
            }
            (
                Renderer::ArrayWithNodes(..)
                | Renderer::StoredArray(..)
                | Renderer::UncheckedArray(_),
                _,
            ) => {
                array_of(node)?;
                self.rendered_file(node, format).await
            }
            (Renderer::Image(_), NodeElements::None) if !ome_tiff::is_image(node) => {
                Err("the group is no image of OME-NGFF".to_owned().into())
            }
            (Renderer::Image(_), elements) => {
                if !matches!(elements, NodeElements::None) {
                    array_of(node)?;
                }
                self.rendered_file(node, format).await
            }
            (Renderer::Array(make), _) => {
                let file = make(&array_of(node)?)?;
                let file = self.file(node, format, file, None, InputTime::now())?;
                Ok(Content::File(Arc::new(file)))
            }
            (Renderer::Chunks, _) => {
                let reader = array_of(node)?.reader;
                let chunks = reader.chunks();
                let names = ChunkNames::of_keys(chunks.chunk_keys(), chunks.grid().shape());
                Ok(Content::Chunks(Arc::clone(reader), names))
            }
            (Renderer::Inner, _) => {
                let reader = array_of(node)?.reader;
                let counts = reader.chunks().inner_counts();
                let why = match reader.chunks().is_regular() {
                    true => "its chunks are no shards with inner chunks",
                    false => "its chunks have several shapes: they are decoded whole",
                };
                let counts = counts.ok_or_else(|| why.to_owned())?;
                Ok(Content::Inner(
                    Arc::clone(reader),
                    ChunkNames::nested(counts),
                ))
            }
        }
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
        let is_certain = match (format.renderer(), &node.elements) {
            // This function provides the entries of both lists. Decoding elements can fail, but the file
            // exists in any case.
            (Renderer::Readme | Renderer::ViewList, _)
            | (Renderer::Elements, NodeElements::Variable(..)) => true,
            (Renderer::ArrayWithNodes(is_certain, _), NodeElements::Fixed(_)) => {
                let array = array_of(node)?;
                self.resolve(|nodes| is_certain(&array, nodes)).await?
            }
            // Listing a directory must not look up the size of each chunk.
            (Renderer::StoredArray(check, _), _) => {
                let array = array_of(node)?;
                packed::check_sizes(&array)?;
                self.resolve(|nodes| check(&array, nodes)).await?;
                true
            }
            (Renderer::StoredChunks(_), NodeElements::None) => {
                let is_certain = |node: &ViewNode| packed::is_certain(node);
                match self.store().capabilities().is_remote {
                    true => {
                        return Err("not listed: the sizes of chunks take requests"
                            .to_owned()
                            .into());
                    }
                    false
                        if self
                            .has_certain(node, TreeScope::Subtree, is_certain)
                            .await? =>
                    {
                        true
                    }
                    false => {
                        let why = "no array in it has chunks that HDF5 reads as they are";
                        return Err(why.to_owned().into());
                    }
                }
            }
            (Renderer::StoredChunks(_), _) => {
                packed::check(node, &array_of(node)?)?;
                true
            }
            // The other columns do not matter.
            (Renderer::Table(is_certain, _), _) if node.is_array() => match is_certain(node) {
                true => true,
                false => {
                    let why = "metadata do not prove that it is a column";
                    return Err(why.to_owned().into());
                }
            },
            // Few groups have a table, and looking for its columns takes one request per array.
            (Renderer::Table(..), _) if self.store().capabilities().is_remote => {
                let why = "not listed: whether arrays are columns takes a request for each";
                return Err(why.to_owned().into());
            }
            (Renderer::Table(is_certain, _), _) => {
                self.has_certain(node, TreeScope::Table, is_certain).await?
            }
            (Renderer::Group(scope, is_certain, _), NodeElements::None) => {
                self.has_certain(node, scope, is_certain).await?
            }
            _ => false,
        };
        match is_certain {
            true => Ok(()),
            false => self.content(node, format).await.map(drop),
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
            let inputs = InputTime::now();
            let file = nodes.render(&own, format).await?;
            nodes.cache_file(&own, format, file, inputs, inputs.oldest)
        };
        let id = (node.key.clone(), node.version, format.number());
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
                let whole = make(&**self.store(), &node.key, self.engine()).await?;
                let notes = whole.notes;
                Ok(VirtualFile {
                    notes,
                    ..VirtualFile::text(whole.text)
                })
            }
            Renderer::Group(scope, _, make) => Ok(make(&self.group_tree(node, scope).await?)?),
            Renderer::Table(_, make) => {
                let along = node.is_array().then_some(&**node);
                Ok(make(&self.table_tree(node).await?, along)?)
            }
            Renderer::GroupOfKind(_, make) => {
                Ok(make(&self.group_tree(node, TreeScope::RawSubtree).await?)?)
            }
            Renderer::StoredChunks(make) => Ok(make(&self.stored_tree(node).await?)?),
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

    fn cached_file(&self, node: &ViewNode, format: Format) -> Option<Arc<CachedFile>> {
        let id = (node.key.clone(), node.version, format.number());
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
        for header in rendered.layout.headers() {
            hasher.write(header);
        }
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
        let id = (node.key.clone(), node.version, format.number());
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
            file: rendered,
            content_id,
            inputs,
            render_time: Duration::ZERO,
            _memory: memory.map_err(ContentError::Failed)?,
        })
    }
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
