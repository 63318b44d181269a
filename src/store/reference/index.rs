//! An in-memory index of references: sorted, 32 bytes per key besides its last name, and each URL only once.

mod build;

pub(super) use build::IndexBuilder;

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::embedded::TargetText;
use super::{Child, Entry, Page, Reference};
use crate::fallible::{self, List, NoMemory};
use crate::store::{Key, Omission, StoreError};

/// Number of children in one page of a listing.
const PAGE_CHILDREN: usize = 1024;

/// The value that is added under a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// A range of the target at a URL, given as offset and length; the whole target if there is no range.
    Target(&'a str, Option<(u64, u64)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Inline,
    Part,
    Whole,
}

/// One key. For an inline value, `start` and `length` are a range of `inline`.
#[derive(Debug, Clone, Copy)]
struct Node {
    start: u64,
    length: u64,
    directory: u32,
    name_start: u32,
    url: u32,
    name_length: u8,
    form: Form,
}

#[derive(Debug, Default)]
struct Directory {
    key: Key,
    /// The range of its nodes.
    nodes: Range<usize>,
    subdirectories: Vec<u32>,
}

fn name_of<'a>(names: &'a [u8], node: &Node) -> &'a [u8] {
    let start = node.name_start as usize;
    let name = names.get(start..start.saturating_add(node.name_length.into()));
    name.unwrap_or_default()
}

/// An index of references.
#[derive(Debug)]
pub(super) struct ReferenceIndex {
    nodes: Vec<Node>,
    names: Vec<u8>,
    inline: Vec<u8>,
    directories: Vec<Directory>,
    by_key: HashMap<Key, u32>,
    targets: Vec<TargetText>,
    omissions: Vec<Omission>,
}

impl ReferenceIndex {
    /// Sorts the nodes by directory and name. If a key has several values, the last one counts, as in other JSON
    /// readers.
    fn sort(&mut self) {
        let names = &self.names;
        let place = |node: &Node| (node.directory, name_of(names, node));
        if self
            .nodes
            .is_sorted_by(|one, other| place(one) < place(other))
        {
            return;
        }
        // A stable sort allocates memory. Names are in the order in which the keys were added.
        self.nodes.sort_unstable_by(|one, other| {
            let order = place(one).cmp(&place(other));
            order.then(one.name_start.cmp(&other.name_start))
        });
        let before = self.nodes.len();
        self.nodes.reverse();
        self.nodes.dedup_by(|one, other| place(one) == place(other));
        self.nodes.reverse();
        if self.nodes.len() < before {
            let twice = before - self.nodes.len();
            self.omissions.push(Omission {
                what: format!("{twice} keys occur twice; the last value of each is shown"),
                is_lost: false,
            });
        }
    }

    /// Removes the values of keys that are also prefixes of other keys.
    fn hide_values_of_directories(&mut self) {
        if self.directories.len() == 1 {
            return;
        }
        let (names, directories, by_key) = (&self.names, &self.directories, &self.by_key);
        let is_hidden = |node: &Node| {
            let directory = directories.get(node.directory as usize);
            directory.is_some_and(|directory| {
                !directory.subdirectories.is_empty()
                    && directory
                        .key
                        .join(name_of(names, node))
                        .is_ok_and(|key| by_key.contains_key(&key))
            })
        };
        let before = self.nodes.len();
        self.nodes.retain(|node| !is_hidden(node));
        let hidden = before - self.nodes.len();
        if hidden > 0 {
            self.omissions.push(Omission::lost(format!(
                "{hidden} keys are also prefixes of others; their values are not shown"
            )));
        }
    }

    /// The keys that are not shown.
    pub(super) fn omissions(&self) -> &[Omission] {
        &self.omissions
    }

    /// The number of keys.
    pub(super) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    fn nodes_of(&self, directory: &Directory) -> &[Node] {
        self.nodes.get(directory.nodes.clone()).unwrap_or_default()
    }

    fn directory(&self, key: &Key) -> Option<&Directory> {
        let number = self.by_key.get(key)?;
        self.directories.get(*number as usize)
    }

    fn reference(&self, node: &Node) -> Result<Reference, StoreError> {
        let lost = || StoreError::internal("a reference without its URL or value");
        let (start, end) = (node.start, node.start.saturating_add(node.length));
        let range = match node.form {
            Form::Inline => {
                let range = crate::store::in_memory(start)?..crate::store::in_memory(end)?;
                let bytes = self.inline.get(range).ok_or_else(lost)?;
                return Ok(Reference::Inline(Arc::new(fallible::copy(bytes)?)));
            }
            Form::Part => Some(start..end),
            Form::Whole => None,
        };
        let target = self.targets.get(node.url as usize).ok_or_else(lost)?;
        target.reference(range).map_err(|what| StoreError::Corrupt {
            key: Key::root(),
            what,
        })
    }

    fn value(&self, key: &Key) -> Option<&Node> {
        let directory = self.directory(&key.parent())?;
        let name = key.as_bytes().rsplit(|byte| *byte == b'/').next()?;
        let nodes = self.nodes_of(directory);
        let place = nodes.binary_search_by(|node| name_of(&self.names, node).cmp(name));
        nodes.get(place.ok()?)
    }

    /// Returns the entry of a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] or [`StoreError::NotAPrefix`], which prove absence: the index has all keys.
    pub(super) fn find(&self, key: &Key) -> Result<Entry, StoreError> {
        if self.by_key.contains_key(key) {
            return Ok(Entry::Prefix);
        }
        if let Some(node) = self.value(key) {
            let reference = self.reference(node).map(Entry::Value);
            return reference.map_err(|error| error.with_key(key.clone()));
        }
        let mut above = key.parent();
        while !above.is_root() && !self.by_key.contains_key(&above) {
            if self.value(&above).is_some() {
                return Err(StoreError::NotAPrefix { key: key.clone() });
            }
            above = above.parent();
        }
        Err(StoreError::NotFound { key: key.clone() })
    }

    /// Returns a page of the children of a prefix: prefixes first, then values.
    ///
    /// # Errors
    /// As [`ReferenceIndex::find`].
    pub(super) fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError> {
        let Some(directory) = self.directory(prefix) else {
            self.find(prefix)?;
            let key = prefix.clone();
            return Err(StoreError::NotAPrefix { key });
        };
        let (below, nodes) = (&directory.subdirectories, self.nodes_of(directory));
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let end = start
            .saturating_add(PAGE_CHILDREN)
            .min(below.len() + nodes.len());
        let mut children = List::default();
        for at in start..end {
            let child = match (below.get(at), nodes.get(at.wrapping_sub(below.len()))) {
                (Some(number), _) => {
                    let own = self.directories.get(*number as usize);
                    let key = own.map(|own| own.key.as_bytes()).unwrap_or_default();
                    let name = key.rsplit(|byte| *byte == b'/').next();
                    Child {
                        name: name.unwrap_or_default().into(),
                        reference: None,
                    }
                }
                (None, Some(node)) => Child {
                    name: name_of(&self.names, node).into(),
                    reference: Some(match self.reference(node) {
                        Err(StoreError::Corrupt { .. }) => Reference::Unreadable,
                        reference => reference?,
                    }),
                },
                (None, None) => break,
            };
            children.push(child);
        }
        let no_memory = |failure: NoMemory| StoreError::from(failure).of(prefix);
        let children = children.finish().map_err(no_memory)?;
        let next = (end < below.len() + nodes.len()).then_some(end as u64);
        Ok(Page { children, next })
    }

    /// Visits the inline values with a given name in all directories.
    pub(super) fn inline_named<'a>(
        &'a self,
        name: &'a [u8],
    ) -> impl Iterator<Item = (&'a Key, &'a [u8])> {
        let named = self
            .nodes
            .iter()
            .filter(move |node| node.form == Form::Inline && name_of(&self.names, node) == name);
        named.filter_map(|node| {
            let start = usize::try_from(node.start).ok()?;
            let end = start.checked_add(usize::try_from(node.length).ok()?)?;
            let directory = self.directories.get(node.directory as usize)?;
            Some((&directory.key, self.inline.get(start..end)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::reference::ReferenceError;

    fn index(keys: &[(&str, Item<'_>)]) -> ReferenceIndex {
        let mut builder = IndexBuilder::new(1 << 20);
        for (key, item) in keys {
            builder.add(key.as_bytes(), *item).unwrap();
        }
        builder.finish(&"test", |url| Ok(url.into())).unwrap()
    }

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn names(index: &ReferenceIndex, prefix: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = Some(0);
        while let Some(position) = next {
            let page = index.children(&key(prefix), position).unwrap();
            let own = page.children.iter().map(|child| &child.name[..]);
            names.extend(own.map(|name| String::from_utf8_lossy(name).into_owned()));
            next = page.next;
        }
        names
    }

    #[test]
    fn keys_are_found_in_any_order_and_the_last_value_counts() {
        let part = |url, start| Item::Target(url, Some((start, 5)));
        let index = index(&[
            ("b/1", part("u", 7)),
            ("b/0", part("v", 1)),
            (".zgroup", Item::Inline(b"{}")),
            ("b/0", part("u", 3)),
            ("b/c/2", Item::Target("w", None)),
            ("b/c", Item::Inline(b"hidden")),
            ("b/0", part("u", 4)),
            ("/absolute", Item::Inline(b"")),
            ("a//b", Item::Inline(b"")),
            ("a/../b", Item::Inline(b"")),
            ("", Item::Inline(b"")),
        ]);
        let target = |name: &str| match index.find(&key(name)).unwrap() {
            Entry::Value(Reference::Target { url, range, .. }) => (url.to_string(), range),
            other => panic!("{other:?}"),
        };
        assert_eq!(target("b/0"), ("u".into(), Some(4..9)));
        assert_eq!(target("b/1"), ("u".into(), Some(7..12)));
        assert_eq!(target("b/c/2"), ("w".into(), None));
        assert!(matches!(index.find(&key("b/c")), Ok(Entry::Prefix)));
        assert!(matches!(index.find(&Key::root()), Ok(Entry::Prefix)));
        for absent in ["b/2", "x", "b/c/2x", "a"] {
            let found = index.find(&key(absent));
            assert!(
                matches!(found, Err(StoreError::NotFound { .. })),
                "{absent}"
            );
        }
        let below = index.find(&key("b/0/x/y"));
        assert!(matches!(below, Err(StoreError::NotAPrefix { .. })));
        assert_eq!(names(&index, ""), ["b", ".zgroup"]);
        assert_eq!(names(&index, "b"), ["c", "0", "1"]);
        assert_eq!(index.inline_named(b".zgroup").count(), 1);
    }

    #[test]
    fn a_page_starts_at_the_end_of_the_page_before_it() {
        let keys: Vec<String> = (0..3000).map(|i| format!("x/{i}")).collect();
        let all: Vec<_> = keys
            .iter()
            .map(|key| (key.as_str(), Item::Inline(b"v")))
            .collect();
        let index = index(&all);
        let mut found = names(&index, "x");
        assert_eq!(found.len(), 3000);
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 3000);
    }

    #[test]
    fn ranges_that_no_file_has_and_too_many_keys_are_refused() {
        let mut builder = IndexBuilder::new(100_000);
        let overflow = Item::Target("u", Some((u64::MAX, 1)));
        assert!(builder.add(b"x", overflow).is_err());
        let mut all =
            (0..1_000_000).map(|i| builder.add(format!("{i}").as_bytes(), Item::Inline(b"")));
        assert!(matches!(
            all.find_map(Result::err),
            Some(ReferenceError::TooLarge { .. })
        ));
    }
}
