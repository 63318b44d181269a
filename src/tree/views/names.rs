//! What stands in the directories of views.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::place::{Made, Place, What};
use super::{BESIDE_A_GROUP, ViewTree};
use crate::store::{Kind, StoreError};
use crate::tree::{Directory, Entry, Visit};
use crate::view::{ChunkNames, Format, Found, Make, NoContent, ViewNode};

impl ViewTree {
    /// The names in the directory of a node's views.
    pub(super) fn names(&self, place: &Place) -> Result<Vec<Made>, StoreError> {
        let node = &place.node;
        let mut names = Vec::new();
        let own = |format: Format| Some(format.own_name(node.name()));
        self.add_files(node, &mut names, own)?;
        if node.is_array() {
            return Ok(names);
        }
        let mut children = Vec::new();
        let mut listing = self.nodes.store().list(node.key())?;
        listing.visit(0, &mut |listed| {
            if listed.kind == Kind::Prefix && !matches!(listed.name, b"." | b"..") {
                children.push(listed.name.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        children.sort();
        // A file is named after its array only in UTF-8.
        for name in children
            .into_iter()
            .filter(|name| std::str::from_utf8(name).is_ok())
        {
            // One node that can not be read does not hide the others.
            let child = match self.child(node, &name) {
                Ok(Some(child)) => child,
                Ok(None) => continue,
                Err(error @ StoreError::WouldWait { .. }) => return Err(error),
                Err(error) => {
                    log::warn!("its views are not listed: {error}");
                    continue;
                }
            };
            if child.is_array() {
                let mut would_wait = None;
                let beside = |format: Format| {
                    let plain = format.name_beside(child.name())?;
                    if place.what != What::Group {
                        return Some(plain);
                    }
                    match self.child(node, plain.as_bytes()) {
                        Ok(Some(there)) if !there.is_array() => {
                            let escaped = String::from_utf8_lossy(BESIDE_A_GROUP);
                            format.name_beside(&format!("{}{escaped}", child.name()))
                        }
                        Err(error @ StoreError::WouldWait { .. }) => {
                            would_wait = Some(error);
                            Some(plain)
                        }
                        _ => Some(plain),
                    }
                };
                self.add_files(&child, &mut names, beside)?;
                if let Some(error) = would_wait {
                    return Err(error);
                }
            } else if place.what == What::Group {
                let place = Place {
                    node: child,
                    what: What::Group,
                };
                names.push(Made {
                    name,
                    ino: place.number(),
                    kind: Kind::Prefix,
                });
            }
        }
        Ok(names)
    }

    /// Names of the formats of a node that are listed and can be made.
    fn add_files(
        &self,
        node: &Arc<ViewNode>,
        names: &mut Vec<Made>,
        mut name: impl FnMut(Format) -> Option<String>,
    ) -> Result<(), StoreError> {
        for format in Format::all() {
            if !self.nodes.lists(format) || !format.suits(node.is_array()) {
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
                    place.cells_number(matches!(format.make(), Make::Inner)),
                ),
                false => (Kind::Object, place.number()),
            };
            let Some(name) = name(format) else {
                continue;
            };
            names.push(Made {
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
            Found::Directory(cell) => (
                What::Cells {
                    names: Arc::clone(shared),
                    cell,
                    inner: *inner,
                },
                Kind::Prefix,
            ),
            Found::Chunk(chunk) if *inner => (What::Inner(chunk), Kind::Object),
            Found::Chunk(chunk) => (What::Chunk(chunk), Kind::Object),
        };
        Some(Made {
            name: name.into_bytes(),
            ino: place.with(what).number(),
            kind,
        })
    }
}
