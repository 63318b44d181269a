//! Checks whether views match the current metadata of their nodes.

use super::ViewTree;
use super::view::{View, ViewKind};
use crate::store::StoreError;
use crate::view::{Content, ContentId};

impl ViewTree {
    /// Returns whether a view is known to be current without a request: the node was read less than `--ttl` ago,
    /// and nothing else determines the view.
    pub(super) fn is_current(&self, view: &View) -> bool {
        if self.nodes.store().capabilities().immutable {
            return true;
        }
        let is_of_many = matches!(&view.kind, ViewKind::File(format, _) if format.is_costly());
        let cached = || self.nodes.cached_node(view.node.key());
        !is_of_many && cached().is_some_and(|node| node.version() == view.node.version())
    }

    /// Fails if the metadata of a node have changed since the view was created.
    pub(super) async fn check(&self, view: &View) -> Result<(), StoreError> {
        if self.nodes.store().capabilities().immutable {
            return Ok(());
        }
        let key = view.node.key();
        self.nodes.store().stat(key).await?;
        let node = self.nodes.node(key).await?;
        if node.version() != view.node.version() {
            return Err(has_changed(view));
        }
        match &view.kind {
            ViewKind::File(format, Some(content_id)) if format.is_of_many() => {
                let content = self.nodes.content(&view.node, *format).await;
                let content = content.map_err(|error| error.into_error(key))?;
                match content_id_of(&content) == Some(*content_id) {
                    true => Ok(()),
                    false => Err(has_changed(view)),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Returns the identity of a content that the metadata of its node alone do not determine.
pub(super) fn content_id_of(content: &Content) -> Option<ContentId> {
    match content {
        Content::Elements(content_id) => Some(*content_id),
        Content::File(file) => file.content_id,
        _ => None,
    }
}

fn has_changed(view: &View) -> StoreError {
    StoreError::Stale {
        key: view.node.key().clone(),
        what: "its metadata have changed".into(),
    }
}
