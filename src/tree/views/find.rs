//! From a name in a directory of views to its place.

use std::sync::Arc;

use super::place::{Place, What};
use super::{BESIDE_A_GROUP, ViewTree};
use crate::store::{Kind, StoreError};
use crate::view::{Content, Format, Found, NoContent, ViewNode};

impl ViewTree {
    /// The place of a name in a directory of views.
    pub(super) fn find(&self, place: &Place, name: &[u8]) -> Result<Place, StoreError> {
        let absent = || StoreError::NotFound {
            key: place.key().join(name).unwrap_or_default(),
        };
        let node = &place.node;
        match &place.what {
            What::Cells { names, cell, inner } => {
                let what = match names.find(*cell, name).ok_or_else(absent)? {
                    Found::Directory(cell) => What::Cells {
                        names: Arc::clone(names),
                        cell,
                        inner: *inner,
                    },
                    Found::Chunk(number) if *inner => What::Inner(number),
                    Found::Chunk(number) => What::Chunk(number),
                };
                Ok(place.with(what))
            }
            What::Group if !node.is_array() => {
                if let Some(child) = self.child(node, name)?
                    && !child.is_array()
                {
                    return Ok(Place {
                        node: child,
                        what: What::Group,
                    });
                }
                self.find_file(node, name)?.ok_or_else(absent)
            }
            What::Group | What::Hidden => self.find_file(node, name)?.ok_or_else(absent),
            What::File(..) | What::Chunk(_) | What::Inner(_) => {
                Err(StoreError::NotAPrefix { key: place.key() })
            }
        }
    }

    /// A file of a node, or of a node in a group.
    fn find_file(&self, node: &Arc<ViewNode>, name: &[u8]) -> Result<Option<Place>, StoreError> {
        for format in Format::all() {
            // A node in a group may have the group's name.
            let is_own = format.suits(node.is_array());
            if is_own && format.own_name(node.name()).as_bytes() == name {
                return self.file(node, format);
            }
        }
        if node.is_array() {
            return Ok(None);
        }
        for (stem, format) in Format::parse_beside(name) {
            // A node may be called so itself.
            let escaped = stem.strip_suffix(BESIDE_A_GROUP);
            for stem in [Some(stem), escaped].into_iter().flatten() {
                if let Some(child) = self.child(node, stem)?
                    && format.suits(child.is_array())
                {
                    return self.file(&child, format);
                }
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
        match self.nodes.store().stat(&key) {
            Ok(stat) if stat.kind == Kind::Prefix => Ok(Some(self.nodes.node(&key)?)),
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(&self, node: &Arc<ViewNode>, format: Format) -> Result<Option<Place>, StoreError> {
        let what = match self.nodes.content(node, format) {
            Ok(Content::Chunks(_, names)) => What::Cells {
                names: Arc::new(names),
                cell: Default::default(),
                inner: false,
            },
            Ok(Content::Inner(_, names)) => What::Cells {
                names: Arc::new(names),
                cell: Default::default(),
                inner: true,
            },
            // What is not in the node's own metadata is part of what it is.
            Ok(Content::Elements(rendering)) => What::File(format, Some(rendering)),
            Ok(Content::Made(file)) => What::File(format, file.rendering),
            Ok(_) => What::File(format, None),
            Err(NoContent::Absent(_)) => return Ok(None),
            Err(NoContent::Failed(error)) => return Err(error),
        };
        Ok(Some(Place {
            node: Arc::clone(node),
            what,
        }))
    }
}
