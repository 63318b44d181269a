//! The files at places, and whether they are still what their nodes say.

use std::sync::Arc;

use super::ViewTree;
use super::place::{Place, What};
use crate::store::StoreError;
use crate::view::{Content, Format, NoContent, Rendering, ViewNode};

impl ViewTree {
    fn content(&self, node: &Arc<ViewNode>, format: Format) -> Result<Content, StoreError> {
        self.nodes
            .content(node, format)
            .map_err(|error| match error {
                NoContent::Absent(_) => StoreError::NotFound {
                    key: node.key().clone(),
                },
                NoContent::Failed(error) => error,
            })
    }

    /// Fails if the metadata that a place was made of are not those of its node any more.
    pub(super) fn check(&self, place: &Place) -> Result<(), StoreError> {
        if self.nodes.store().capabilities().immutable {
            return Ok(());
        }
        let key = place.node.key();
        self.nodes.store().stat(key)?;
        if self.nodes.node(key)?.version() != place.node.version() {
            return Err(has_changed(place));
        }
        match &place.what {
            What::File(format, Some(rendering)) if format.is_of_many() => {
                let content = self.content(&place.node, *format)?;
                match rendering_of(&content) == Some(*rendering) {
                    true => Ok(()),
                    false => Err(has_changed(place)),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Which content it is, where the metadata of the node alone do not tell.
pub(super) fn rendering_of(content: &Content) -> Option<Rendering> {
    match content {
        Content::Elements(rendering) => Some(*rendering),
        Content::File(file) => file.rendering,
        _ => None,
    }
}

fn has_changed(place: &Place) -> StoreError {
    StoreError::Stale {
        key: place.node.key().clone(),
        what: "its metadata have changed".into(),
    }
}
