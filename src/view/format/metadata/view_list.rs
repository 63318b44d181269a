//! The views of a node with a description and an example each, and the diagnostics: the content of
//! `README.txt` and `views.json`.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{Either, ready};
use serde_json::{Map, Value as Json, json};

use super::hierarchy_findings::{LeftOut, ViewNotes};
use super::readme::{AvailableView, Diagnostic, Readme};
use crate::conventions::anndata;
use crate::conventions::description::{Description, Field};
use crate::conventions::georef::context::Notes;
use crate::conventions::members;
use crate::hierarchy::{Collection, find_hierarchies, not_shown};
use crate::node::{ContentError, ViewNode};
use crate::runtime;
use crate::store::{Key, list_prefixes, map_concurrent};
use crate::translate::{HierarchyError, Target, Translated};
use crate::view::file::content::{Content, InputTime};
use crate::view::file::nodes::Nodes;
use crate::view::format::{Format, Renderer, image_stack, packed};

/// The subject of diagnostics about all translations.
const TRANSLATIONS: &str = "nodes that as-v2, as-v3 and unsharded leave out";

/// The maximum number of nodes of a group whose descriptions are compared with what its files express.
const MAX_DESCRIBED: usize = 64;
/// The number of these that are described concurrently.
const MAX_CONCURRENT: usize = 8;

impl Format {
    /// Returns whether the list of views of a node explains why the node has no view of this format.
    pub fn is_expected_of(self, node: &ViewNode) -> bool {
        // Few arrays need this format: the diagnostics of the `.tif` name the reference system.
        let is_rare = matches!(self.renderer(), Renderer::UncheckedArray(_));
        // Few arrays have chunks in the encoding of other formats.
        let is_rare = is_rare || (self.is_packed() && !packed::has_zlib(node));
        // Most arrays have several axes.
        let is_rare = is_rare || self.is_unlisted(node.is_array());
        let is_plane = || {
            node.metadata()
                .as_array()
                .is_some_and(|array| array.shape.len() > 1)
        };
        let is_of_kind = match self.renderer() {
            Renderer::GroupOfKind(is_of_kind, _) | Renderer::Loaded(is_of_kind, ..) => {
                is_of_kind(node)
            }
            Renderer::Image(_) if self.name() == "png" => is_plane(),
            // Most nodes are no images.
            Renderer::Image(_) => image_stack::is_named(node),
            _ => true,
        };
        !is_rare && is_of_kind
    }
}

impl Nodes {
    /// Returns the views of a node, and when the oldest of their inputs was requested.
    pub(in crate::view) async fn view_list(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<(Readme, InputTime), ContentError> {
        let problems = node.problems.iter();
        let is_array = node.is_array();
        let mut readme = Readme {
            node: node.name.clone(),
            key: String::from_utf8_lossy(node.key.as_bytes()).into_owned(),
            is_array,
            views: Vec::new(),
            unlisted: self.unlisted_of_arrays(node),
            collection: self.collection(node).await,
            diagnostics: problems.map(Diagnostic::of_node).collect(),
        };
        let metadata = (!node.is_implicit).then(|| node.metadata());
        let absent = not_shown(
            &**self.store(),
            &self.options().root,
            &node.key,
            metadata,
            members::named,
        )
        .await;
        let absent = absent
            .into_iter()
            .map(|absent| Diagnostic::of_node(absent.what));
        readme.diagnostics.extend(absent);
        let mut inputs = InputTime::now();
        let (notes, left_out) = self.notes_of_views(node, &mut inputs).await;
        for (format, notes) in notes {
            let name = format.unique_name(&node.name, is_array);
            match notes {
                Ok(notes) => {
                    let notes = notes.iter();
                    let notes = notes.map(|note| Diagnostic::of_view(&name, note));
                    readme.diagnostics.extend(notes);
                    readme.views.push(AvailableView {
                        format: format.name(),
                        description: format.description(),
                        example: format.example(&name),
                        is_listed: self.lists(format, is_array) && !format.is_unlisted(is_array),
                        name,
                        unexpressed: Vec::new(),
                    });
                }
                Err(ContentError::Absent(_)) if !format.is_expected_of(node) => {}
                Err(ContentError::Absent(reason)) => {
                    readme.diagnostics.push(Diagnostic::of_view(&name, reason));
                }
                Err(ContentError::Unresolved) => return Err(ContentError::Unresolved),
                // The list would be wrong for as long as it is cached.
                Err(ContentError::Failed(error)) if error.lacks_memory() => {
                    return Err(error.into());
                }
                Err(ContentError::Failed(error)) => {
                    inputs.has_failed_input = true;
                    let reason = error.to_string();
                    readme.diagnostics.push(Diagnostic::of_view(&name, reason));
                }
            }
        }
        self.add_unexpressed(node, &mut readme, &mut inputs).await?;
        match self.stale_copies(node).await {
            Ok(stale) => {
                let stale = stale.into_iter().map(Diagnostic::of_node);
                readme.diagnostics.extend(stale);
            }
            Err(error) if error.lacks_memory() => return Err(error.into()),
            Err(error) => {
                inputs.has_failed_input = true;
                let problem = Diagnostic::of_node(format!("consolidated metadata: {error}"));
                readme.diagnostics.push(problem);
            }
        }
        if node.key == self.options().root {
            self.add_translations(node, &mut readme, &mut inputs).await;
            add_left_out(node, left_out, &mut readme, &mut inputs);
        }
        // Listed views come first, and metadata last.
        let is_metadata = |word: &str| word.parse().is_ok_and(Format::is_of_node);
        readme
            .views
            .sort_by_key(|view| (is_metadata(view.format), !view.is_listed));
        Ok((readme, inputs))
    }

    /// Returns the notes of the views of a node, in the order of formats, or why it has no such view; and the nodes
    /// that translations leave out. Another thread reads the documents of the hierarchy, unless each takes a request.
    async fn notes_of_views(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        inputs: &mut InputTime,
    ) -> (Vec<(Format, ViewNotes)>, Option<LeftOut>) {
        let (nodes, own) = (Arc::clone(self), Arc::clone(node));
        let findings = async move { nodes.hierarchy_findings(&own).await };
        let findings = match self.store().capabilities().is_remote {
            true => Either::Left(ready(findings.await)),
            false => Either::Right(runtime::spawn(findings)),
        };
        let is_list =
            |format: Format| matches!(format.renderer(), Renderer::Readme | Renderer::ViewList);
        let is_array = node.is_array();
        let formats = Format::all().filter(|format| format.suits(is_array) && !is_list(*format));
        let mut found = Vec::new();
        for format in formats {
            let is_checked_only = format.is_packed() || format.is_unlisted(is_array);
            let notes = match format.renderer() {
                // They are filled in below.
                Renderer::Hierarchy(_) => Ok(Vec::new()),
                _ if format.is_of_many() && !is_checked_only => {
                    let content = self.content(node, format).await;
                    content.map(|content| notes_of(content, inputs))
                }
                _ => self.check(node, format).await.map(|()| Vec::new()),
            };
            found.push((format, notes));
        }
        let mut of_hierarchy = findings.await;
        for (format, notes) in &mut found {
            if let Some(known) = of_hierarchy.take_notes(*format) {
                *notes = known;
            }
        }
        (found, of_hierarchy.left_out)
    }

    /// Adds what attributes and coordinates say of an array, of the finest level of an image, or of the arrays of a
    /// group, and the files of a format do not.
    async fn add_unexpressed(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        readme: &mut Readme,
        inputs: &mut InputTime,
    ) -> Result<(), ContentError> {
        let found = match self.description(node).await {
            Ok((description, _)) => Ok(description.fields()),
            Err(ContentError::Absent(_)) if !node.is_array() => {
                self.fields_of_arrays(node, readme).await
            }
            Err(ContentError::Absent(_)) => return Ok(()),
            Err(error) => Err(error),
        };
        let fields = match found {
            Ok(fields) => fields,
            Err(ContentError::Failed(error)) if !error.lacks_memory() => {
                inputs.has_failed_input = true;
                let reason = format!("what attributes say of it is not known: {error}");
                readme.diagnostics.push(Diagnostic::of_node(reason));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for view in &mut readme.views {
            let format: Option<Format> = view.format.parse().ok();
            if let Some(expressed) = format.and_then(Format::expresses) {
                let lost = fields.iter().filter(|field| !expressed.contains(field));
                view.unexpressed = lost.copied().collect();
            }
        }
        Ok(())
    }

    /// Returns the fields that are known of any array of a group, if the group has files of arrays.
    ///
    /// # Errors
    /// Errors of the store.
    async fn fields_of_arrays(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        readme: &mut Readme,
    ) -> Result<Vec<Field>, ContentError> {
        let has_arrays = |view: &AvailableView| {
            let format: Option<Format> = view.format.parse().ok();
            format.is_some_and(|format| format.expresses().is_some())
        };
        let is_listable = self.store().incomplete_listing(&node.key).await?.is_none();
        if !readme.views.iter().any(has_arrays) {
            return Ok(Vec::new());
        }
        if !is_listable {
            readme.diagnostics.push(Diagnostic::of_node(
                "what files of the group do not express is in the lists of its arrays, because the source lists \
                 no names",
            ));
            return Ok(Vec::new());
        }
        let mut names = list_prefixes(&**self.store(), &node.key, MAX_DESCRIBED).await?;
        if names.len() > MAX_DESCRIBED {
            names.truncate(MAX_DESCRIBED);
            readme.diagnostics.push(Diagnostic::of_node(format!(
                "what files of the group do not express was found from {MAX_DESCRIBED} of its nodes: \
                 the lists of the arrays are complete"
            )));
        }
        let mut keys = Vec::new();
        for name in &names {
            keys.extend(node.key.join(name).ok());
        }
        let mut fields = BTreeSet::new();
        let mut has_groups = false;
        // A source that fails is asked for few members more, so that the list does not wait for each of them.
        for keys in keys.chunks(MAX_CONCURRENT) {
            let describe = |key: Key| async move {
                let described = self.fields_of_array(&key).await;
                (key, described)
            };
            for (key, found) in map_concurrent(keys.to_vec(), describe).await {
                match found {
                    Ok(Some(found)) => fields.extend(found),
                    Ok(None) => has_groups = true,
                    Err(ContentError::Absent(_)) => {}
                    // One member that cannot be read takes no line of the others away.
                    Err(ContentError::Failed(error)) if error.is_lasting() => {
                        readme.diagnostics.push(Diagnostic::of_node(format!(
                            "what files do not express of {key} is not known: {error}"
                        )));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if has_groups {
            readme.diagnostics.push(Diagnostic::of_node(
                "what files do not express of the groups below is in their lists of views",
            ));
        }
        Ok(fields.into_iter().collect())
    }

    /// Returns the fields that are known of an array, or of a group that is a column of a table; `None` for other
    /// groups.
    async fn fields_of_array(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<Option<Vec<Field>>, ContentError> {
        let member = self.node(key).await?;
        match member.is_array() {
            true => Ok(Some(self.description(&member).await?.0.fields())),
            false => Ok(anndata::column_fields(&member)),
        }
    }

    /// Returns the description of an array, or of the finest level of a group that is an image, and what was not
    /// understood.
    ///
    /// # Errors
    /// The node has no description; or errors of the store.
    pub(in crate::view) async fn description(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<(Description, Vec<String>), ContentError> {
        self.resolve(|nodes| {
            let finest = match node.is_array() {
                true => None,
                false => Some(image_stack::finest_level(node, nodes)?),
            };
            let node = finest.as_ref().unwrap_or(node);
            let view = node.array_view();
            let view = view.ok_or_else(|| "its elements are not numbers".to_owned())?;
            let mut notes = Notes::default();
            let description = Description::of(&view, nodes, &mut notes)?;
            Ok((description, notes.0))
        })
        .await
    }

    /// Returns the description of an array or image as JSON, with `not_understood`, what attributes declare and no
    /// file has. Empty if nothing is known.
    ///
    /// # Errors
    /// As [`Nodes::content`].
    pub async fn description_json(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<Map<String, Json>, ContentError> {
        match self.description(node).await {
            Ok((description, notes)) => {
                let mut members = description.json();
                if !notes.is_empty() {
                    members.insert("not_understood".into(), json!(notes));
                }
                Ok(members)
            }
            Err(ContentError::Absent(_)) => Ok(Map::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the hierarchies below the root of the mount, if it is no hierarchy itself.
    async fn collection(&self, node: &ViewNode) -> Collection {
        let is_root = node.key == self.options().root;
        match is_root && node.is_implicit && node.broken().is_none() {
            true => find_hierarchies(&**self.store(), &node.key).await,
            false => Collection::default(),
        }
    }

    /// Returns the suffixes of those formats of arrays that the directory of a group contains but does not
    /// list.
    fn unlisted_of_arrays(&self, node: &ViewNode) -> Vec<String> {
        let formats = Format::all()
            .filter(|format| !node.is_array() && format.suits(true))
            .filter(|format| !self.lists(*format, false) || format.is_unlisted_in_group());
        formats
            .filter_map(|format| format.name_beside(""))
            .collect()
    }

    async fn add_translations(&self, node: &ViewNode, readme: &mut Readme, inputs: &mut InputTime) {
        for target in Target::ALL {
            let (store, engine) = (Arc::clone(self.store()), Arc::clone(self.engine()));
            let (root, ttl) = (node.key.clone(), self.options().ttl);
            let translated = Translated::new(store, root, target, ttl, engine);
            match translated.differs().await {
                Ok(true) => readme.views.push(AvailableView {
                    name: target.name().to_owned(),
                    format: target.name(),
                    description: target.description(),
                    example: format!("zarrfs tree {}", target.name()),
                    is_listed: self.options().formats.lists_translation(target),
                    unexpressed: Vec::new(),
                }),
                // The diagnostics of the nodes that are left out say why a translation cannot be made.
                Ok(false) => {}
                Err(error) => {
                    inputs.has_failed_input = true;
                    let reason = error.to_string();
                    let diagnostic = Diagnostic::of_view(target.name(), reason);
                    readme.diagnostics.push(diagnostic);
                }
            }
        }
    }
}

/// Adds the nodes that translations leave out.
fn add_left_out(
    node: &ViewNode,
    left_out: Option<LeftOut>,
    readme: &mut Readme,
    inputs: &mut InputTime,
) {
    let diagnostics = match left_out {
        None => Vec::new(),
        // A translation that leaves out the root is absent as a whole.
        Some(Ok(nodes)) => nodes
            .into_iter()
            .filter(|left| left.key != node.key)
            .map(|node| Diagnostic::of_node(node.to_string()))
            .collect(),
        Some(Err(HierarchyError::Absent(reason))) => {
            vec![Diagnostic::of_view(TRANSLATIONS, reason)]
        }
        Some(Err(HierarchyError::Failed(error))) => {
            inputs.has_failed_input = true;
            vec![Diagnostic::of_view(TRANSLATIONS, error.to_string())]
        }
    };
    readme.diagnostics.extend(diagnostics);
}

/// Returns the notes of a file, and takes the time of its inputs.
fn notes_of(content: Content, inputs: &mut InputTime) -> Vec<String> {
    match content {
        Content::File(file) => {
            inputs.oldest = inputs.oldest.min(file.inputs.oldest);
            file.file.notes.clone()
        }
        _ => Vec::new(),
    }
}
