//! Making the files of a node, each when it is asked for, and telling why there is none.

use std::hash::Hasher;
use std::sync::{Arc, PoisonError};

use siphasher::sip::SipHasher13;

use super::around::ArrayView;
use super::content::{Asked, CachedFile, Content, NoContent, Rendering};
use super::format::{Format, Renderer};
use super::layout::VirtualFile;
use super::node::{Elements, ViewNode};
use super::nodes::Nodes;
use super::readme::{AvailableView, Diagnostic, Readme};
use crate::store::{StoreError, may_wait};
use crate::translate::{NoOutline, left_out};
use crate::zarr::chunk_names::ChunkNames;

/// The subject of diagnostics about all translations.
const TRANSLATIONS: &str = "nodes that as-v2, as-v3 and unsharded leave out";

impl Nodes {
    /// What a format of a node is.
    ///
    /// # Errors
    /// Why there is no such file, or that it could not be found out.
    pub fn content(&self, node: &Arc<ViewNode>, format: Format) -> Result<Content, NoContent> {
        match (format.renderer(), &node.elements) {
            (Renderer::Node(make), _) => Ok(Content::Text(make(node)?)),
            (Renderer::Readme, _) => match self.still_kept(node, format) {
                Some(file) => Ok(Content::File(file)),
                None => {
                    let (text, asked) = self.readme(node)?;
                    let made = VirtualFile::text(text);
                    Ok(Content::File(self.keep(node, format, made, asked)?))
                }
            },
            (Renderer::Elements, Elements::Variable(..)) => {
                let rendering = self.rendering(node).map_err(NoContent::Failed)?;
                Ok(Content::Elements(rendering))
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
            (Renderer::Hierarchy(make), _) => self.kept(node, format, || {
                let whole = make(&**self.store(), &node.key, self.engine())?;
                let notes = whole.notes;
                Ok(VirtualFile {
                    notes,
                    ..VirtualFile::text(whole.text)
                })
            }),
            (Renderer::Group(depth, _, make), _) => {
                if node.is_array() {
                    return Err("this is an array".to_owned().into());
                }
                self.kept(node, format, || Ok(make(&self.branch(node, depth)?)?))
            }
            (Renderer::Array(make), _) => {
                let made = make(&array_of(node)?)?;
                let made = self.file(node, format, made, None, Asked::now())?;
                Ok(Content::File(made))
            }
            (Renderer::ArrayWithNodes(_, make), _) => {
                let array = array_of(node)?;
                self.kept(node, format, || make(&array, self))
            }
            (Renderer::UncheckedArray(make), _) => {
                let array = array_of(node)?;
                self.kept(node, format, || make(&array, self))
            }
            (Renderer::Chunks, _) => {
                let reader = array_of(node)?.reader;
                let pieces = reader.pieces();
                let names = ChunkNames::of_keys(pieces.chunk_keys(), pieces.grid().shape());
                Ok(Content::Chunks(Arc::clone(reader), names))
            }
            (Renderer::Inner, _) => {
                let reader = array_of(node)?.reader;
                let counts = reader.pieces().inner_counts();
                let counts =
                    counts.ok_or("its chunks are no shards with inner chunks".to_owned())?;
                Ok(Content::Inner(
                    Arc::clone(reader),
                    ChunkNames::nested(counts),
                ))
            }
        }
    }

    /// Whether a node has a file or directory of a format: whether [`Nodes::content`] returns one.
    /// What is costly to make is not made where metadata alone prove that it can be.
    ///
    /// # Errors
    /// Those of [`Nodes::content`].
    pub fn check(&self, node: &Arc<ViewNode>, format: Format) -> Result<(), NoContent> {
        let is_certain = match (format.renderer(), &node.elements) {
            // The first is made of the answers of this function. The second is decoded, which fails
            // or succeeds, but never proves that there is no such file.
            (Renderer::Readme, _) | (Renderer::Elements, Elements::Variable(..)) => true,
            (Renderer::ArrayWithNodes(is_certain, _), Elements::Fixed(_)) => {
                is_certain(&array_of(node)?, self)?
            }
            (Renderer::Group(depth, is_certain, _), Elements::None) => {
                self.has_certain(node, depth, is_certain)?
            }
            _ => false,
        };
        match is_certain {
            true => Ok(()),
            false => self.content(node, format).map(drop),
        }
    }

    /// A file of several nodes: kept, or made again, once however many ask for it at the same time.
    fn kept(
        &self,
        node: &ViewNode,
        format: Format,
        make: impl FnOnce() -> Result<VirtualFile, NoContent>,
    ) -> Result<Content, NoContent> {
        if let Some(file) = self.still_kept(node, format) {
            return Ok(Content::File(file));
        }
        let failed = NoContent::Failed;
        may_wait(&node.key).map_err(failed)?;
        let place = (node.key.clone(), node.version, format.number());
        let deadline = self.engine().deadline();
        let answer = self.in_the_making.answer(place, deadline, || {
            let asked = Asked::now();
            match make().and_then(|made| self.keep(node, format, made, asked)) {
                Ok(file) => Ok(Ok(file)),
                Err(NoContent::Absent(why)) => Ok(Err(why)),
                Err(NoContent::Failed(error)) => Err(error),
            }
        });
        let timed_out = || StoreError::TimedOut {
            key: node.key.clone(),
            what: format!("its {format}, which is being made"),
        };
        match answer.unwrap_or_else(|| Err(timed_out())).map_err(failed)? {
            Ok(file) => Ok(Content::File(file)),
            Err(why) => Err(NoContent::Absent(why)),
        }
    }

    fn still_kept(&self, node: &ViewNode, format: Format) -> Option<Arc<CachedFile>> {
        let place = (node.key.clone(), node.version, format.number());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let file = made.get(&place)?;
        let is_pinned = self.store().capabilities().immutable && !file.asked.is_in_vain;
        let is_trusted = is_pinned || file.asked.when.elapsed() < self.options().ttl;
        is_trusted.then(|| Arc::clone(file))
    }

    fn keep(
        &self,
        node: &ViewNode,
        format: Format,
        made: VirtualFile,
        asked: Asked,
    ) -> Result<Arc<CachedFile>, NoContent> {
        let mut hasher = SipHasher13::new();
        for header in made.layout.headers() {
            hasher.write(header);
        }
        for reader in &made.sources {
            hasher.write(reader.key().as_bytes());
            hasher.write_u64(reader.document_version());
        }
        let rendering = Rendering {
            hash: hasher.finish(),
            size_bytes: made.layout.size_bytes(),
        };
        let file = self.file(node, format, made, Some(rendering), asked)?;
        let bytes = file.made.layout.header_bytes();
        let most = self.engine().memory_limit_bytes() / 16;
        let place = (node.key.clone(), node.version, format.number());
        let mut kept = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(place, Arc::clone(&file), bytes, most, usize::MAX);
        Ok(file)
    }

    fn file(
        &self,
        node: &ViewNode,
        format: Format,
        made: VirtualFile,
        rendering: Option<Rendering>,
        asked: Asked,
    ) -> Result<Arc<CachedFile>, NoContent> {
        let bytes = made.layout.header_bytes();
        let most = self.engine().memory_limit_bytes() / 8;
        if bytes > most {
            let why = format!("a header of {bytes} bytes; {most} are the limit for {format}");
            return Err(NoContent::Absent(why));
        }
        let memory = self.engine().reserve_now(&node.key, bytes);
        Ok(Arc::new(CachedFile {
            made,
            rendering,
            asked,
            _memory: memory.map_err(NoContent::Failed)?,
        }))
    }

    /// Returns the text of `README.txt`.
    fn readme(&self, node: &Arc<ViewNode>) -> Result<(String, Asked), NoContent> {
        let problems = node.problems.iter();
        let mut readme = Readme {
            node: node.name.clone(),
            is_array: node.is_array(),
            is_root: node.key == self.options().root,
            views: Vec::new(),
            diagnostics: problems.map(Diagnostic::of_node).collect(),
        };
        let mut asked = Asked::now();
        let formats = Format::all().filter(|format| format.suits(node.is_array()));
        for format in formats.filter(|format| !matches!(format.renderer(), Renderer::Readme)) {
            let name = format.own_name(&node.name);
            let content = match format.is_of_many() {
                true => self.content(node, format).map(Some),
                false => self.check(node, format).map(|()| None),
            };
            match content {
                Ok(content) => {
                    if let Some(Content::File(file)) = content {
                        asked.when = asked.when.min(file.asked.when);
                        let notes = file.made.notes.iter();
                        readme
                            .diagnostics
                            .extend(notes.map(|note| Diagnostic::of_view(&name, note)));
                    }
                    readme.views.push(AvailableView {
                        description: format.description(),
                        example: format.example(&name),
                        name,
                    });
                }
                // Few arrays need one: the diagnostics of the `.tif` name the reference system.
                Err(NoContent::Absent(_))
                    if matches!(format.renderer(), Renderer::UncheckedArray(_)) => {}
                Err(NoContent::Absent(reason)) => {
                    readme.diagnostics.push(Diagnostic::of_view(&name, reason));
                }
                Err(NoContent::Failed(error @ StoreError::WouldWait { .. })) => {
                    return Err(NoContent::Failed(error));
                }
                Err(NoContent::Failed(error)) => {
                    asked.is_in_vain = true;
                    let reason = error.to_string();
                    readme.diagnostics.push(Diagnostic::of_view(&name, reason));
                }
            }
        }
        if readme.is_root {
            let left_out = match left_out(&**self.store(), &node.key, self.engine()) {
                // A translation that leaves out the root is absent as a whole.
                Ok(nodes) => nodes
                    .into_iter()
                    .filter(|left| left.key != node.key)
                    .map(|node| Diagnostic::of_node(node.to_string()))
                    .collect(),
                Err(NoOutline::Failed(error @ StoreError::WouldWait { .. })) => {
                    return Err(NoContent::Failed(error));
                }
                Err(NoOutline::Absent(reason)) => vec![Diagnostic::of_view(TRANSLATIONS, reason)],
                Err(NoOutline::Failed(error)) => {
                    asked.is_in_vain = true;
                    vec![Diagnostic::of_view(TRANSLATIONS, error.to_string())]
                }
            };
            readme.diagnostics.extend(left_out);
        }
        Ok((readme.text(), asked))
    }
}

/// The node as an array with elements of constant size, or why it is none.
fn array_of(node: &ViewNode) -> Result<ArrayView<'_>, String> {
    match &node.elements {
        Elements::None => Err("this is a group".into()),
        Elements::Variable(..) => Err("elements of variable length: they are in .json".into()),
        Elements::Unreadable(why) => Err(why.clone()),
        Elements::Fixed(_) => node.array_view().ok_or_else(|| "this is a group".into()),
    }
}
