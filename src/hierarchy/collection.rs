//! Collections: directories without metadata of their own that contain hierarchies.

use std::collections::VecDeque;

use super::document::{Document, read_v1};
use super::n5::is_n5_root;
use crate::store::{Key, Kind, Store, StoreError, list_prefixes};

/// Any one of these documents makes a directory a node.
pub const NODE_DOCUMENTS: [Document; 4] = [
    Document::ZarrJson,
    Document::Zgroup,
    Document::Zarray,
    Document::Zmetadata,
];

/// The largest number of directories that are searched for a hierarchy.
const MAX_DIRECTORIES: usize = 10_000;
/// The largest number of directories of a remote source that are searched: the first hierarchy ends the
/// search, so that hundreds of them take one listing.
const MAX_REMOTE_DIRECTORIES: usize = 16;
/// The largest number of levels that are searched.
const MAX_DEPTH: usize = 8;
/// The largest number of hierarchies that are named.
const MAX_HIERARCHIES: usize = 1_000;

/// The hierarchies below a directory that is no node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collection {
    /// The keys of the hierarchies, relative to the directory, by level and name.
    pub hierarchies: Vec<String>,
    /// Directories beside the first hierarchy of a remote source, which the search did not read.
    pub unread: Vec<String>,
    /// Whether the search ended before it had read all directories.
    pub is_partial: bool,
}

impl Collection {
    /// Returns whether the directory contains no hierarchy, as far as the search has read it.
    pub fn is_empty(&self) -> bool {
        self.hierarchies.is_empty()
    }

    /// Returns the names of the first `most` hierarchies, and how many more there are.
    pub fn summary(&self, most: usize) -> String {
        let names: Vec<&str> = self.names().take(most).collect();
        let more = self.names().count().saturating_sub(most);
        match (more, self.is_partial && self.unread.is_empty()) {
            (0, false) => names.join(", "),
            (0, true) => format!("{}, and more", names.join(", ")),
            (more, false) => format!("{}, and {more} more", names.join(", ")),
            (more, true) => format!("{}, and more than {more} more", names.join(", ")),
        }
    }

    /// Returns the hierarchies, and those directories that the search did not read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.hierarchies.iter().chain(&self.unread);
        names.map(String::as_str)
    }
}

/// Searches for hierarchies below `root` level by level, but not inside other hierarchies. `root` itself
/// and the directories above it are not in one.
///
/// A directory that cannot be read is left out, and makes the result partial. A source that names its hierarchies is
/// not searched.
pub async fn find_hierarchies(store: &dyn Store, root: &Key) -> Collection {
    if root.is_root()
        && let Some(members) = store.members()
    {
        let named = members.iter().take(MAX_HIERARCHIES);
        return Collection {
            hierarchies: named.map(|key| relative(key, root)).collect(),
            unread: Vec::new(),
            is_partial: members.len() > MAX_HIERARCHIES,
        };
    }
    let is_remote = store.capabilities().is_remote && store.index().is_none();
    let most = match is_remote {
        true => MAX_REMOTE_DIRECTORIES,
        false => MAX_DIRECTORIES,
    };
    let mut found = Collection::default();
    let mut pending = VecDeque::from([(root.clone(), 0)]);
    let mut searched = 0;
    while let Some((directory, depth)) = pending.pop_front() {
        let Ok(names) = list_prefixes(store, &directory, MAX_DIRECTORIES).await else {
            found.is_partial = true;
            continue;
        };
        let mut names = names.into_iter();
        while let Some(name) = names.next() {
            let Ok(key) = directory.join(&name) else {
                continue;
            };
            searched += 1;
            if searched > most || found.hierarchies.len() == MAX_HIERARCHIES {
                found.is_partial = true;
                return found;
            }
            match is_hierarchy(store, &key).await {
                Ok(true) => {
                    found.hierarchies.push(relative(&key, root));
                    if is_remote {
                        let beside = names.filter_map(|name| directory.join(&name).ok());
                        found.unread = beside.map(|key| relative(&key, root)).collect();
                        found.is_partial = !found.unread.is_empty() || !pending.is_empty();
                        return found;
                    }
                }
                Ok(false) if depth < MAX_DEPTH => pending.push_back((key, depth + 1)),
                Ok(false) | Err(_) => found.is_partial = true,
            }
        }
    }
    found
}

/// Returns whether a directory, above which there is no hierarchy, is the root of one.
///
/// # Errors
/// The error of the store, if neither presence nor absence is proven.
pub async fn is_hierarchy(store: &dyn Store, directory: &Key) -> Result<bool, StoreError> {
    for document in NODE_DOCUMENTS {
        let Ok(key) = directory.join(document.name().as_bytes()) else {
            continue;
        };
        match store.stat(&key).await {
            Ok(stat) if stat.kind == Kind::Object => return Ok(true),
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(is_n5_root(store, directory).await? || read_v1(store, directory).await?.is_some())
}

/// Returns a key relative to a key above it.
pub fn relative(key: &Key, base: &Key) -> String {
    let path = key.as_bytes().strip_prefix(base.as_bytes());
    let path = path.unwrap_or(key.as_bytes());
    String::from_utf8_lossy(path)
        .trim_start_matches('/')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn found(keys: &[&str]) -> Collection {
        let values = keys.iter().map(|key| {
            let text = match key.ends_with("attributes.json") {
                true => r#"{"dimensions":[1],"blockSize":[1],"dataType":"int8"}"#,
                false => "{}",
            };
            (Key::new(key.as_bytes()).unwrap(), text.as_bytes().to_vec())
        });
        block_on(find_hierarchies(&MemoryStore::new(values), &Key::root()))
    }

    #[test]
    fn hierarchies_of_all_formats_are_found_and_not_those_inside_others() {
        let keys = [
            "v3/zarr.json",
            "v3/inner/zarr.json",
            "deep/v2/.zgroup",
            "deep/array/.zarray",
            "deep/only/.zmetadata",
            "n5/s0/attributes.json",
            "plain/file",
            "readme",
        ];
        let found = found(&keys);
        let expected = ["v3", "deep/array", "deep/only", "deep/v2", "n5/s0"];
        assert_eq!(found.hierarchies, expected);
        assert!(!found.is_partial);
        assert_eq!(found.summary(2), "v3, deep/array, and 3 more");
    }

    #[test]
    fn a_search_that_ends_early_is_partial() {
        let deep = format!("{}zarr.json", "d/".repeat(30));
        let found = found(&[&deep]);
        assert!(found.is_empty() && found.is_partial);
    }
}
