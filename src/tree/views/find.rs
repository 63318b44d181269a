//! Lookup of names in a directory of views.

use std::sync::Arc;

use super::current::content_id_of;
use super::view::{FoundView, View, ViewKind};
use super::{ERRORS_FILE, ViewTree};
use crate::node::{ContentError, ViewNode};
use crate::store::{Key, Kind, StoreError};
use crate::view::{ChunkEntry, ChunkNames, Content, Format, Nodes, ParsedName, alias};

/// Finds a name in a directory of chunks; `None` in any other directory.
pub(super) fn find_chunk(view: &View, name: &[u8]) -> Option<Result<FoundView, StoreError>> {
    let ViewKind::Chunks { names, dir, inner } = &view.kind else {
        return None;
    };
    let kind = names.find(*dir, name).map(|entry| match entry {
        ChunkEntry::Directory(dir) => ViewKind::Chunks {
            names: Arc::clone(names),
            dir,
            inner: *inner,
        },
        ChunkEntry::Chunk(number) if *inner => ViewKind::Inner(number),
        ChunkEntry::Chunk(number) => ViewKind::Chunk(number),
    });
    let found = kind.map(|kind| view.with(kind).into());
    Some(found.ok_or_else(|| absent(view, name)))
}

impl ViewTree {
    /// Finds the view of a name in a directory of views.
    pub(super) async fn find(&self, view: &View, name: &[u8]) -> Result<FoundView, StoreError> {
        if let Some(found) = find_chunk(view, name) {
            return found;
        }
        let node = &view.node;
        match &view.kind {
            ViewKind::Group if !node.is_array() => {
                if let Some(child) = self.child(node, name).await?
                    && !child.is_array()
                {
                    let kind = ViewKind::Group;
                    return Ok(View { node: child, kind }.into());
                }
            }
            ViewKind::Group | ViewKind::Hidden | ViewKind::Chunks { .. } => {}
            ViewKind::File(..) | ViewKind::Chunk(_) | ViewKind::Inner(_) | ViewKind::Errors(_) => {
                return Err(StoreError::NotAPrefix { key: view.key() });
            }
        }
        if name == ERRORS_FILE && *node.key() == self.root {
            let kind = ViewKind::Errors(Arc::new(self.recent_errors.text()));
            return Ok(view.with(kind).into());
        }
        let file = self.find_file(view, name).await?;
        file.ok_or_else(|| absent(view, name))
    }

    /// Finds a file of a node, or of a node in a group. Plain names take precedence over escaped
    /// ones, and the node over its children.
    async fn find_file(&self, view: &View, name: &[u8]) -> Result<Option<FoundView>, StoreError> {
        let node = &view.node;
        let parsed: Vec<_> = Format::parse_name(name).collect();
        let own = |is_escaped| {
            let own = parsed.iter();
            let own = own.filter(move |it| it.is_own(node.name(), is_escaped));
            let formats = own.map(|it| it.format);
            formats.filter(|format| format.suits(node.is_array()))
        };
        if let Some(format) = own(false).next() {
            return self.file(node, format).await;
        }
        // Checked before the children: whatever the name of the source is, `root.nc` is the file of its root.
        if let Some(format) = self.find_alias(node, &parsed, false) {
            return self.file(node, format).await;
        }
        if let Some((child, format)) = self.find_beside(node, &parsed, false).await? {
            return self.file(&child, format).await;
        }
        for format in own(true) {
            let plain = format.own_name(node.name());
            let is_first = format.unique_name(node.name(), node.is_array()) == plain;
            if !is_first || self.is_group(view, plain.as_bytes()).await? {
                return self.file(node, format).await;
            }
        }
        if let Some((child, format)) = self.find_beside(node, &parsed, true).await? {
            return self.file(&child, format).await;
        }
        match self.find_alias(node, &parsed, true) {
            Some(format) => self.file(node, format).await,
            None => Ok(None),
        }
    }

    /// Returns the format of a root alias, which every source has and no listing shows.
    fn find_alias(
        &self,
        node: &ViewNode,
        parsed: &[ParsedName<'_>],
        is_escaped: bool,
    ) -> Option<Format> {
        if *node.key() != self.root {
            return None;
        }
        let alias = alias(node.is_array()).as_bytes();
        let formats = parsed
            .iter()
            .filter(|it| it.beside(is_escaped) == Some(alias));
        let mut formats = formats.map(|it| it.format);
        formats.find(|format| format.is_named_after_node() && format.suits(node.is_array()))
    }

    /// Returns whether a directory of views has a group of this name.
    pub(super) async fn is_group(&self, view: &View, name: &[u8]) -> Result<bool, StoreError> {
        if view.kind != ViewKind::Group || view.node.is_array() {
            return Ok(false);
        }
        let child = self.child(&view.node, name).await?;
        Ok(child.is_some_and(|child| !child.is_array()))
    }

    /// Finds the child node and the format of a name.
    async fn find_beside(
        &self,
        node: &ViewNode,
        parsed: &[ParsedName<'_>],
        is_escaped: bool,
    ) -> Result<Option<(Arc<ViewNode>, Format)>, StoreError> {
        if node.is_array() {
            return Ok(None);
        }
        for name in parsed {
            if let Some(stem) = name.beside(is_escaped)
                && let Some(child) = self.child(node, stem).await?
                && name.format.suits(child.is_array())
            {
                return Ok(Some((child, name.format)));
            }
        }
        Ok(None)
    }

    /// Returns whether the node of a listed file is cached, and so is the file if it depends on anything else, so that
    /// finding it does not wait.
    pub(super) fn is_cached(&self, view: &View, name: &[u8]) -> bool {
        let is_cached = |stem: &[u8], format: Format| {
            let key = view.node.key().join(stem);
            let node = key.ok().and_then(|key| self.nodes.cached_node(&key));
            node.is_some_and(|node| {
                !format.is_costly() || self.nodes.cached_file(&node, format).is_some()
            })
        };
        let mut parsed = Format::parse_name(name).filter(|it| it.format.suits(true));
        let first = parsed.next().filter(|_| view.kind == ViewKind::Hidden);
        first.is_some_and(|it| {
            let stem = it.beside(false);
            stem.is_some_and(|stem| is_cached(stem, it.format))
        })
    }

    pub(super) async fn child(
        &self,
        node: &ViewNode,
        name: &[u8],
    ) -> Result<Option<Arc<ViewNode>>, StoreError> {
        match node.key().join(name) {
            Ok(key) => find_child(&self.nodes, &key).await,
            Err(_) => Ok(None),
        }
    }

    async fn file(
        &self,
        node: &Arc<ViewNode>,
        format: Format,
    ) -> Result<Option<FoundView>, StoreError> {
        let content = match self.nodes.content(node, format).await {
            Ok(content) => content,
            Err(ContentError::Absent(_)) => return Ok(None),
            Err(error) => return Err(error.into_error(node.key())),
        };
        let chunk_dir = |names: &ChunkNames, inner| ViewKind::Chunks {
            names: Arc::new(names.clone()),
            dir: Default::default(),
            inner,
        };
        let kind = match &content {
            Content::Chunks(_, names) => chunk_dir(names, false),
            Content::Inner(_, names) => chunk_dir(names, true),
            // Content that the metadata of the node do not determine is part of the view's identity.
            content => ViewKind::File(format, content_id_of(content)),
        };
        let node = Arc::clone(node);
        Ok(Some(FoundView {
            view: View { node, kind },
            content: Some(content),
        }))
    }
}

/// Returns the node at a key; `None` if the key is no prefix.
pub(super) async fn find_child(
    nodes: &Nodes,
    key: &Key,
) -> Result<Option<Arc<ViewNode>>, StoreError> {
    if let Some(node) = nodes.cached_node(key) {
        return Ok(Some(node));
    }
    let found = match nodes.store().stat(key).await {
        Ok(stat) if stat.kind == Kind::Object => return Ok(None),
        Ok(_) => nodes.node(key).await.map(Some),
        Err(error) => Err(error),
    };
    match found {
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        found => found,
    }
}

fn absent(view: &View, name: &[u8]) -> StoreError {
    StoreError::NotFound {
        key: view.key().join(name).unwrap_or_default(),
    }
}
