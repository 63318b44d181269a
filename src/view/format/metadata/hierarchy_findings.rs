//! What the documents of a group and of all nodes below it mean for the list of the views of the group.

use std::sync::Arc;

use crate::node::{ContentError, ViewNode};
use crate::translate::{
    Hierarchy, HierarchyDocument, HierarchyError, TranslationDiagnostic, diagnostics,
};
use crate::view::file::nodes::Nodes;
use crate::view::file::render::check_kind;
use crate::view::format::{Format, Renderer};

/// The nodes that translations leave out, or why they are not known.
pub(super) type LeftOut = Result<Vec<TranslationDiagnostic>, HierarchyError>;

/// The notes of a view, or why the node has no such view.
pub(super) type ViewNotes = Result<Vec<String>, ContentError>;

/// What the documents of all nodes below a group mean for its views. They are read once for the whole list.
#[derive(Debug, Default)]
pub(super) struct HierarchyFindings {
    /// The notes of the documents of the hierarchy, or why the group has no such document.
    notes: Vec<(Format, ViewNotes)>,
    /// The nodes that translations leave out; `None` below the root.
    pub(super) left_out: Option<LeftOut>,
}

impl HierarchyFindings {
    /// Takes the notes of a format that is a document of the hierarchy; `None` for other formats.
    pub(super) fn take_notes(&mut self, format: Format) -> Option<ViewNotes> {
        let place = self.notes.iter().position(|(own, _)| *own == format)?;
        Some(self.notes.swap_remove(place).1)
    }
}

impl Nodes {
    /// Returns what the documents of a node and of all nodes below it mean for its views.
    pub(super) async fn hierarchy_findings(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> HierarchyFindings {
        let (store, engine, key) = (self.store(), self.engine(), node.key());
        let mut found = HierarchyFindings::default();
        let documents = Format::all().filter_map(|format| match format.renderer() {
            Renderer::Hierarchy(render) if format.suits(node.is_array()) => Some((format, render)),
            _ => None,
        });
        let documents: Vec<_> = documents.collect();
        let has_document = |(format, _): &(Format, _)| check_kind(node, *format).is_ok();
        let read = match documents.iter().any(has_document) {
            true => Some(Hierarchy::read_documents(&**store, key, engine).await),
            false => None,
        };
        for (format, render) in documents {
            let notes = match (check_kind(node, format), &read) {
                (Ok(()), Some(read)) => HierarchyDocument::of(read, key, render)
                    .map(|document| document.notes)
                    .map_err(ContentError::from),
                (Err(why), _) => Err(why.into()),
                (Ok(()), None) => continue,
            };
            found.notes.push((format, notes));
        }
        if *key == self.options().root {
            let read = match read {
                // Diagnostics of a remote source do not read documents one by one.
                Some(read) if !store.capabilities().is_remote => read,
                _ => Hierarchy::read_for_diagnostics(&**store, key, engine).await,
            };
            found.left_out = Some(match read {
                Ok(read) => diagnostics(&read, store, key, engine).await,
                Err(none) => Err(none),
            });
        }
        found
    }
}
