//! From a name in a directory of views to its place.

use std::sync::Arc;

use super::current::rendering_of;
use super::place::{Place, Spotted, What};
use super::{ESCAPE, ViewTree};
use crate::store::{Kind, StoreError};
use crate::view::{ChunkEntry, ChunkNames, Content, Format, NoContent, ViewNode};

impl ViewTree {
    /// The place of a name in a directory of views.
    pub(super) fn find(&self, place: &Place, name: &[u8]) -> Result<Spotted, StoreError> {
        let absent = || StoreError::NotFound {
            key: place.key().join(name).unwrap_or_default(),
        };
        let node = &place.node;
        match &place.what {
            What::Cells { names, cell, inner } => {
                let what = match names.find(*cell, name).ok_or_else(absent)? {
                    ChunkEntry::Directory(cell) => What::Cells {
                        names: Arc::clone(names),
                        cell,
                        inner: *inner,
                    },
                    ChunkEntry::Chunk(number) if *inner => What::Inner(number),
                    ChunkEntry::Chunk(number) => What::Chunk(number),
                };
                Ok(place.with(what).into())
            }
            What::Group if !node.is_array() => {
                if let Some(child) = self.child(node, name)?
                    && !child.is_array()
                {
                    let what = What::Group;
                    return Ok(Place { node: child, what }.into());
                }
                self.find_file(place, name)?.ok_or_else(absent)
            }
            What::Group | What::Hidden => self.find_file(place, name)?.ok_or_else(absent),
            What::File(..) | What::Chunk(_) | What::Inner(_) => {
                Err(StoreError::NotAPrefix { key: place.key() })
            }
        }
    }

    /// A file of a node, or of a node in a group. Plain names win over escaped ones, and the node
    /// over those in it.
    fn find_file(&self, place: &Place, name: &[u8]) -> Result<Option<Spotted>, StoreError> {
        let node = &place.node;
        let formats = || Format::all().filter(|format| format.suits(node.is_array()));
        let plain = |format: Format| format.own_name(node.name());
        if let Some(format) = formats().find(|format| plain(*format).as_bytes() == name) {
            return self.file(node, format);
        }
        if let Some((child, format)) = self.find_beside(node, name, "")? {
            return self.file(&child, format);
        }
        for format in formats() {
            if format.escaped_name(node.name(), ESCAPE).as_bytes() == name {
                let plain_name = plain(format);
                let first = formats().find(|other| plain(*other) == plain_name);
                if first != Some(format) || self.is_group(place, plain_name.as_bytes())? {
                    return self.file(node, format);
                }
            }
        }
        match self.find_beside(node, name, ESCAPE)? {
            Some((child, format)) => self.file(&child, format),
            None => Ok(None),
        }
    }

    /// Whether a directory of views has a group of this name.
    pub(super) fn is_group(&self, place: &Place, name: &[u8]) -> Result<bool, StoreError> {
        if place.what != What::Group || place.node.is_array() {
            return Ok(false);
        }
        let child = self.child(&place.node, name)?;
        Ok(child.is_some_and(|child| !child.is_array()))
    }

    /// The node in a group, and its format, that has a name with this escape.
    fn find_beside(
        &self,
        node: &ViewNode,
        name: &[u8],
        escape: &str,
    ) -> Result<Option<(Arc<ViewNode>, Format)>, StoreError> {
        if node.is_array() {
            return Ok(None);
        }
        for (stem, format) in Format::parse_beside(name) {
            if let Some(stem) = stem.strip_suffix(escape.as_bytes())
                && let Some(child) = self.child(node, stem)?
                && format.suits(child.is_array())
            {
                return Ok(Some((child, format)));
            }
        }
        Ok(None)
    }

    pub(super) fn child(
        &self,
        node: &ViewNode,
        name: &[u8],
    ) -> Result<Option<Arc<ViewNode>>, StoreError> {
        let Ok(key) = node.key().join(name) else {
            return Ok(None);
        };
        let found = self.nodes.store().stat(&key);
        let found = found.and_then(|stat| match stat.kind {
            Kind::Prefix => self.nodes.node(&key).map(Some),
            Kind::Object => Ok(None),
        });
        match found {
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
            found => found,
        }
    }

    fn file(&self, node: &Arc<ViewNode>, format: Format) -> Result<Option<Spotted>, StoreError> {
        let content = match self.nodes.content(node, format) {
            Ok(content) => content,
            Err(NoContent::Absent(_)) => return Ok(None),
            Err(NoContent::Failed(error)) => return Err(error),
        };
        let cells = |names: &ChunkNames, inner| What::Cells {
            names: Arc::new(names.clone()),
            cell: Default::default(),
            inner,
        };
        let what = match &content {
            Content::Chunks(_, names) => cells(names, false),
            Content::Inner(_, names) => cells(names, true),
            // What is not in the node's own metadata is part of what it is.
            content => What::File(format, rendering_of(content)),
        };
        let node = Arc::clone(node);
        Ok(Some(Spotted {
            place: Place { node, what },
            content: Some(content),
        }))
    }
}
