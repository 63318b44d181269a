//! What stands in the directories of views.

use std::collections::HashSet;
use std::sync::Arc;

use super::place::{Made, Place, What};
use super::{ESCAPE, ViewTree};
use crate::store::{Kind, StoreError, list_prefixes};
use crate::tree::{Directory, Entry, Visit};
use crate::view::{ChunkEntry, ChunkNames, Format, NoContent, Renderer, ViewNode};

/// The names of a directory, each once.
#[derive(Debug, Default)]
struct Listed {
    names: Vec<Made>,
    taken: HashSet<Vec<u8>>,
    /// Those whose plain names others have.
    escaped: Vec<Made>,
}

/// What a file is called, plain and escaped.
type FileName = (String, String);

impl Listed {
    /// All of them: plain names win over escaped ones.
    fn into_names(mut self) -> Vec<Made> {
        for made in self.escaped {
            if self.taken.insert(made.name.clone()) {
                self.names.push(made);
            }
        }
        self.names
    }
}

impl ViewTree {
    /// The names in the directory of a node's views.
    pub(super) fn names(&self, place: &Place) -> Result<Vec<Made>, StoreError> {
        let node = &place.node;
        let children = match node.is_array() {
            true => Vec::new(),
            false => self.child_names(node)?,
        };
        let is_group = |name: &str| {
            let name = name.as_bytes();
            if children
                .binary_search_by(|child| child[..].cmp(name))
                .is_err()
            {
                return Ok(false);
            }
            match self.is_group(place, name) {
                Err(error) if error.is_lasting() => Ok(false),
                found => found,
            }
        };
        let mut listed = Listed::default();
        self.add_files(node, &mut listed, &is_group, |format| {
            let escaped = format.escaped_name(node.name(), ESCAPE);
            Some((format.own_name(node.name()), escaped))
        })?;
        for name in &children {
            // One node that can not be read does not hide the others; one that can not be read now
            // is not missing.
            let child = match self.child(node, name) {
                Ok(Some(child)) => child,
                Ok(None) => continue,
                Err(error) if error.is_lasting() => {
                    log::warn!("its views are not listed: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            if child.is_array() {
                let escaped = format!("{}{ESCAPE}", child.name());
                self.add_files(&child, &mut listed, &is_group, |format| {
                    let plain = format.name_beside(child.name())?;
                    Some((plain, format.name_beside(&escaped)?))
                })?;
            } else if place.what == What::Group {
                let place = Place {
                    node: child,
                    what: What::Group,
                };
                listed.taken.insert(name.clone());
                listed.names.push(Made {
                    name: name.clone(),
                    ino: place.number(),
                    kind: Kind::Prefix,
                });
            }
        }
        Ok(listed.into_names())
    }

    /// What may be nodes in a group, in order. A file is named after its array only in UTF-8.
    fn child_names(&self, node: &ViewNode) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut names = list_prefixes(&**self.nodes.store(), node.key(), usize::MAX)?;
        names.retain(|name| std::str::from_utf8(name).is_ok());
        Ok(names)
    }

    /// Names of the formats of a node that are listed and can be made. Those of all others are
    /// taken as well: they are found before what has the same name.
    fn add_files(
        &self,
        node: &Arc<ViewNode>,
        listed: &mut Listed,
        is_group: &dyn Fn(&str) -> Result<bool, StoreError>,
        name: impl Fn(Format) -> Option<FileName>,
    ) -> Result<(), StoreError> {
        for format in Format::all().filter(|format| format.suits(node.is_array())) {
            let Some((plain, escaped)) = name(format) else {
                continue;
            };
            let is_free = !is_group(&plain)? && listed.taken.insert(plain.clone().into_bytes());
            if !self.nodes.lists(format) {
                continue;
            }
            match self.nodes.check(node, format) {
                Ok(()) => {}
                Err(NoContent::Failed(error @ StoreError::WouldWait { .. })) => return Err(error),
                // It may well be there: why it can not be had is said when it is looked up.
                Err(NoContent::Failed(_)) => {}
                Err(NoContent::Absent(_)) => continue,
            }
            let place = Place {
                node: Arc::clone(node),
                what: What::File(format, None),
            };
            let (kind, ino) = match format.is_directory() {
                true => (
                    Kind::Prefix,
                    place.cells_number(matches!(format.renderer(), Renderer::Inner)),
                ),
                false => (Kind::Object, place.number()),
            };
            let (target, name) = match is_free {
                true => (&mut listed.names, plain),
                false => (&mut listed.escaped, escaped),
            };
            target.push(Made {
                name: name.into_bytes(),
                ino,
                kind,
            });
        }
        Ok(())
    }

    pub(super) fn visit_made(
        &self,
        directory: &Directory,
        length: u64,
        nth: impl Fn(u64) -> Option<Made>,
        cookie: u64,
        visit: &mut Visit<'_>,
    ) {
        for (next, name, ino) in [(1, &b"."[..], directory.ino), (2, b"..", directory.parent)] {
            let entry = Entry {
                name,
                ino,
                kind: Kind::Prefix,
                stat: None,
                next,
            };
            if next > cookie && visit(entry).is_break() {
                return;
            }
        }
        for place in cookie.saturating_sub(2)..length {
            let Some(made) = nth(place) else {
                return;
            };
            let entry = Entry {
                name: &made.name,
                ino: made.ino,
                kind: made.kind,
                stat: None,
                next: place.saturating_add(3),
            };
            if visit(entry).is_break() {
                return;
            }
        }
    }

    /// Names of a directory of chunks are made as they are asked for.
    pub(super) fn nth_cell(place: &Place, names: &ChunkNames, number: u64) -> Option<Made> {
        let What::Cells {
            names: shared,
            cell,
            inner,
        } = &place.what
        else {
            return None;
        };
        let (name, found) = names.nth(*cell, number)?;
        let (what, kind) = match found {
            ChunkEntry::Directory(cell) => (
                What::Cells {
                    names: Arc::clone(shared),
                    cell,
                    inner: *inner,
                },
                Kind::Prefix,
            ),
            ChunkEntry::Chunk(chunk) if *inner => (What::Inner(chunk), Kind::Object),
            ChunkEntry::Chunk(chunk) => (What::Chunk(chunk), Kind::Object),
        };
        Some(Made {
            name: name.into_bytes(),
            ino: place.with(what).number(),
            kind,
        })
    }
}
