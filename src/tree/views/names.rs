//! The names in directories of views.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};

use super::ViewTree;
use super::find::find_child;
use super::listing::ListedName;
use super::view::{View, ViewKind};
use crate::node::{ContentError, ViewNode};
use crate::runtime;
use crate::store::{Key, Kind, MAX_COMPONENT_BYTES, StoreError, list_prefixes};
use crate::view::{ChunkEntry, ESCAPE, Format, Nodes, Renderer, alias};

/// The names of a directory, without duplicates.
#[derive(Debug, Default)]
struct NameCollector {
    names: Vec<ListedName>,
    /// The names that may be those of other files, too.
    taken: HashSet<Vec<u8>>,
    /// Names in escaped form, because their plain names are taken.
    escaped: Vec<ListedName>,
}

/// The number of nodes of a local store that one task reads: enough that a task costs little beside them, and so few
/// that other tasks of the CPU pool wait for some milliseconds at most.
const NODES_PER_TASK: usize = 64;
/// The number of nodes of a remote store that are read at the same time.
const MAX_REMOTE_LOADS: usize = 8;

/// A child of a group; `None` if the name has no node.
type LoadedChild = Result<Option<Arc<ViewNode>>, StoreError>;

/// Reads the node at a key that was listed as a prefix.
async fn load_listed(nodes: &Nodes, key: &Key) -> LoadedChild {
    if !nodes.store().capabilities().is_remote
        && let Ok(node) = nodes.node(key).await
        && !node.is_implicit
    {
        return Ok(Some(node));
    }
    // A prefix without documents may have been removed since it was listed.
    find_child(nodes, key).await
}

/// The name of a file, plain and escaped.
type FileName = (String, String);

impl NameCollector {
    /// Returns all names. Plain names take precedence over escaped ones.
    fn into_names(mut self) -> Vec<ListedName> {
        // The kernel opens no longer names.
        self.names
            .retain(|listed| listed.name.len() <= MAX_COMPONENT_BYTES);
        for made in self.escaped {
            if self.taken.insert(made.name.clone()) {
                self.names.push(made);
            }
        }
        self.names
    }
}

impl ViewTree {
    /// Returns the names in the directory of a node's views.
    pub(super) async fn names(&self, view: &View) -> Result<Vec<ListedName>, StoreError> {
        let node = &view.node;
        let children = match node.is_array() {
            true => Vec::new(),
            false => self.child_names(node).await?,
        };
        let mut listed = NameCollector::default();
        let own = FileNames {
            view,
            children: &children,
            beside: false,
        };
        self.add_files(node, &mut listed, own).await?;
        if *node.key() == self.root {
            listed.taken.extend(aliases(node));
        }
        let mut loaded = pin!(self.load_children(node, &children));
        for name in &children {
            // An unreadable node does not hide the other nodes. After a temporary failure the
            // listing fails, because the node may exist.
            let child = match loaded.next().await.unwrap_or(Ok(None)) {
                Ok(Some(child)) => child,
                Ok(None) => continue,
                Err(error) if error.is_lasting() => {
                    log::warn!("its views are not listed: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            if child.is_array() {
                let beside = FileNames {
                    view,
                    children: &children,
                    beside: true,
                };
                self.add_files(&child, &mut listed, beside).await?;
            } else if view.kind == ViewKind::Group {
                let view = View {
                    node: child,
                    kind: ViewKind::Group,
                };
                listed.taken.insert(name.clone());
                listed.names.push(ListedName {
                    name: name.clone(),
                    ino: view.number(),
                    kind: Kind::Prefix,
                });
            }
        }
        Ok(listed.into_names())
    }

    /// Reads the children of a group, in the order of their names, on several threads and some ahead of the caller.
    /// `None` is a name without a node.
    fn load_children<'a>(
        &'a self,
        node: &'a ViewNode,
        names: &'a [Vec<u8>],
    ) -> impl Stream<Item = LoadedChild> + Send + 'a {
        let (at_once, ahead) = match self.nodes.store().capabilities().is_remote {
            true => (1, MAX_REMOTE_LOADS),
            false => (NODES_PER_TASK, runtime::threads().saturating_mul(2)),
        };
        let load = move |names: &'a [Vec<u8>]| {
            let keys: Vec<_> = names.iter().map(|name| node.key().join(name)).collect();
            let nodes = Arc::clone(&self.nodes);
            runtime::spawn(async move {
                let mut loaded = Vec::with_capacity(keys.len());
                for key in keys {
                    loaded.push(match key {
                        Ok(key) => load_listed(&nodes, &key).await,
                        Err(_) => Ok(None),
                    });
                }
                loaded
            })
        };
        let loads = stream::iter(names.chunks(at_once)).map(load);
        loads.buffered(ahead).flat_map(stream::iter)
    }

    /// Returns the names of possible nodes in a group, in order. Only names in UTF-8 have views.
    async fn child_names(&self, node: &ViewNode) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut names = list_prefixes(&**self.nodes.store(), node.key(), usize::MAX).await?;
        names.retain(|name| std::str::from_utf8(name).is_ok());
        Ok(names)
    }

    /// Adds the names of the listed formats that a node has. The names of all other formats are
    /// reserved too, because a lookup finds them before other files of the same name.
    async fn add_files(
        &self,
        node: &Arc<ViewNode>,
        listed: &mut NameCollector,
        names: FileNames<'_>,
    ) -> Result<(), StoreError> {
        let may_collide = !names.beside || names.may_collide(node.name().as_bytes());
        for format in Format::all().filter(|format| format.suits(node.is_array())) {
            let is_listed = self.nodes.lists(format, names.view.node.is_array())
                && !format.is_unlisted(node.is_array())
                && !(names.beside && format.is_unlisted_in_group());
            if !is_listed && !may_collide {
                continue;
            }
            let Some((plain, escaped)) = names.of(node, format) else {
                continue;
            };
            let is_group = self.is_child_group(names, plain.as_bytes()).await?;
            let is_taken = match may_collide {
                true => !listed.taken.insert(plain.clone().into_bytes()),
                false => listed.taken.contains(plain.as_bytes()),
            };
            let is_free = !is_group && !is_taken;
            if !is_listed {
                continue;
            }
            match self.nodes.check(node, format).await {
                Ok(()) => {}
                // Listed although the check failed: a lookup then returns the error.
                Err(ContentError::Failed(_) | ContentError::Unresolved) => {}
                Err(ContentError::Absent(_)) => continue,
            }
            let view = View {
                node: Arc::clone(node),
                kind: ViewKind::File(format, None),
            };
            let (kind, ino) = match format.is_directory() {
                true => (
                    Kind::Prefix,
                    view.chunk_dir_ino(matches!(format.renderer(), Renderer::Inner)),
                ),
                false => (Kind::Object, view.number()),
            };
            let (target, name) = match is_free {
                true => (&mut listed.names, plain),
                false => (&mut listed.escaped, escaped),
            };
            target.push(ListedName {
                name: name.into_bytes(),
                ino,
                kind,
            });
        }
        Ok(())
    }

    /// Returns whether the directory of views has a group of this name.
    async fn is_child_group(&self, names: FileNames<'_>, name: &[u8]) -> Result<bool, StoreError> {
        let is_child = names
            .children
            .binary_search_by(|child| child[..].cmp(name))
            .is_ok();
        if !is_child {
            return Ok(false);
        }
        match self.is_group(names.view, name).await {
            Err(error) if error.is_lasting() => Ok(false),
            found => found,
        }
    }
}

/// The naming of a node's files in a directory of views.
#[derive(Clone, Copy)]
struct FileNames<'a> {
    view: &'a View,
    /// The names of the nodes in the group of the directory, sorted.
    children: &'a [Vec<u8>],
    /// Whether the node is one of `children`, and not the node of the directory.
    beside: bool,
}

impl FileNames<'_> {
    /// Returns whether a file of this child may have the name of another child's file. Names of files are names
    /// of nodes, a dot and an extension. Not all of them are remembered, because a group can have very many arrays.
    fn may_collide(self, name: &[u8]) -> bool {
        let dotted = [name, b"."].concat();
        let next = (self.children).partition_point(|child| child[..] < dotted[..]);
        let next = self.children.get(next);
        name.contains(&b'.')
            || name.ends_with(ESCAPE.as_bytes())
            || next.is_some_and(|child| child.starts_with(&dotted))
    }

    fn of(self, node: &ViewNode, format: Format) -> Option<FileName> {
        if !self.beside {
            let escaped = format.escaped_name(node.name(), ESCAPE);
            return Some((format.own_name(node.name()), escaped));
        }
        let escaped = format!("{}{ESCAPE}", node.name());
        let plain = format.name_beside(node.name())?;
        Some((plain, format.name_beside(&escaped)?))
    }
}

/// Returns the second names of the views of the root, which a lookup finds before the files of a child
/// with the name of the alias.
fn aliases(root: &ViewNode) -> impl Iterator<Item = Vec<u8>> {
    let is_array = root.is_array();
    Format::all()
        .filter(move |format| format.is_named_after_node() && format.suits(is_array))
        .map(move |format| format.own_name(alias(is_array)).into_bytes())
}

impl View {
    /// Returns the number of names in a directory of chunks.
    pub(super) fn chunk_entries(&self) -> u64 {
        match &self.kind {
            ViewKind::Chunks { names, dir, .. } => names.len(*dir),
            _ => 0,
        }
    }

    /// Returns a name of a directory of chunks by its number.
    pub(super) fn nth_chunk_entry(&self, number: u64) -> Option<ListedName> {
        let ViewKind::Chunks { names, dir, inner } = &self.kind else {
            return None;
        };
        let (name, entry) = names.nth(*dir, number)?;
        let (view, kind) = match entry {
            ChunkEntry::Directory(dir) => (
                ViewKind::Chunks {
                    names: Arc::clone(names),
                    dir,
                    inner: *inner,
                },
                Kind::Prefix,
            ),
            ChunkEntry::Chunk(chunk) if *inner => (ViewKind::Inner(chunk), Kind::Object),
            ChunkEntry::Chunk(chunk) => (ViewKind::Chunk(chunk), Kind::Object),
        };
        Some(ListedName {
            name: name.into_bytes(),
            ino: self.with(view).number(),
            kind,
        })
    }
}
