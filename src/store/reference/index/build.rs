//! Builds an index of references.

use std::borrow::Cow;
use std::fmt::Display;

use hashbrown::{HashMap, HashTable};
use log::warn;

use super::{Directory, Form, Item, Node, ReferenceIndex, name_of};
use crate::fallible::{self, List, NoMemory};
use crate::store::reference::ReferenceError;
use crate::store::reference::embedded::TargetText;
use crate::store::{Key, Omission, check_component};

/// Estimated bytes of a directory besides its key.
const DIRECTORY_BYTES: u64 = 160;
/// Estimated bytes of a URL besides its text.
const URL_BYTES: u64 = 48;
const NODE_BYTES: u64 = size_of::<Node>() as u64;

/// Builds a [`ReferenceIndex`].
#[derive(Debug)]
pub(in crate::store::reference) struct IndexBuilder {
    nodes: List<Node>,
    names: List<u8>,
    inline: List<u8>,
    directories: Vec<Directory>,
    by_key: HashMap<Key, u32>,
    /// The directory of the last key, since most keys are in the same directory as the key before.
    last_directory: u32,
    urls: List<Box<str>>,
    by_url: HashTable<u32>,
    last_url: u32,
    /// Estimated bytes of directories and URLs.
    other_bytes: u64,
    limit_bytes: u64,
    /// The first invalid key, and the number of invalid keys.
    invalid: Option<(String, u64)>,
    omissions: Vec<Omission>,
}

fn hash_of(text: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl IndexBuilder {
    pub(in crate::store::reference) fn new(limit_bytes: u64) -> Self {
        Self {
            nodes: List::default(),
            names: List::default(),
            inline: List::default(),
            directories: vec![Directory::default()],
            by_key: HashMap::from([(Key::root(), 0)]),
            last_directory: 0,
            urls: List::default(),
            by_url: HashTable::new(),
            last_url: 0,
            other_bytes: 0,
            limit_bytes,
            invalid: None,
            omissions: Vec::new(),
        }
    }

    /// Adds a key; a key that cannot be a file name is counted and left out.
    pub(in crate::store::reference) fn add(
        &mut self,
        key: &[u8],
        item: Item<'_>,
    ) -> Result<(), ReferenceError> {
        let slash = key.iter().rposition(|byte| *byte == b'/');
        let name = key.get(slash.map_or(0, |at| at + 1)..).unwrap_or_default();
        let directory = key.get(..slash.unwrap_or(0)).unwrap_or_default();
        // A leading slash is an empty component, which is invalid even at the root.
        let is_key = check_component(name).is_ok() && slash != Some(0);
        let place = match is_key {
            true => self.directory(directory)?,
            false => None,
        };
        let Some(directory) = place else {
            let first = || (String::from_utf8_lossy(key).into_owned(), 0);
            self.invalid.get_or_insert_with(first).1 += 1;
            return Ok(());
        };
        let (form, url, start, length) = match item {
            Item::Inline(bytes) => {
                let start = self.inline.len() as u64;
                self.inline.extend_from_slice(bytes);
                (Form::Inline, 0, start, bytes.len() as u64)
            }
            Item::Target(url, None) => (Form::Whole, self.url(url)?, 0, 0),
            Item::Target(url, Some((start, length))) => {
                if start
                    .checked_add(length)
                    .is_none_or(|end| end > i64::MAX.unsigned_abs())
                {
                    return Err(ReferenceError::Invalid(format!(
                        "{}: {length} bytes at offset {start} are no range of a file",
                        String::from_utf8_lossy(key)
                    )));
                }
                (Form::Part, self.url(url)?, start, length)
            }
        };
        let name_start = self.number(self.names.len())?;
        self.names.extend_from_slice(name);
        self.nodes.push(Node {
            start,
            length,
            directory,
            name_start,
            url,
            name_length: u8::try_from(name.len()).unwrap_or(u8::MAX),
            form,
        });
        self.check_limit()
    }

    /// Converts a position to 32 bits, the width of all stored positions.
    fn number(&self, number: usize) -> Result<u32, ReferenceError> {
        let limit_bytes = self.limit_bytes;
        u32::try_from(number).map_err(|_| ReferenceError::TooLarge { limit_bytes })
    }

    fn check_limit(&self) -> Result<(), ReferenceError> {
        self.nodes.check()?;
        self.names.check()?;
        self.inline.check()?;
        // While a vector grows, its old and its new buffer exist.
        let nodes = (self.nodes.capacity() as u64).saturating_mul(NODE_BYTES + NODE_BYTES / 2);
        let bytes = (self.names.capacity() as u64).saturating_add(self.inline.capacity() as u64);
        let need_bytes = nodes
            .saturating_add(bytes.saturating_add(bytes / 2))
            .saturating_add(self.other_bytes);
        match need_bytes <= self.limit_bytes {
            true => Ok(()),
            false => Err(ReferenceError::TooLarge {
                limit_bytes: self.limit_bytes,
            }),
        }
    }

    /// Returns the number of a directory, adding it if needed; `None` if the key is invalid.
    fn directory(&mut self, key: &[u8]) -> Result<Option<u32>, ReferenceError> {
        let last = self.directories.get(self.last_directory as usize);
        if last.is_some_and(|last| last.key.as_bytes() == key) {
            return Ok(Some(self.last_directory));
        }
        let Ok(key) = Key::new(key) else {
            return Ok(None);
        };
        let number = self.make_directory(&key)?;
        self.last_directory = number;
        Ok(Some(number))
    }

    fn make_directory(&mut self, key: &Key) -> Result<u32, ReferenceError> {
        let mut missing = Vec::new();
        let mut at = key.clone();
        let mut number = loop {
            match self.by_key.get(&at) {
                Some(number) => break *number,
                None => {
                    let parent = at.parent();
                    missing.push(at);
                    at = parent;
                }
            }
        };
        for key in missing.into_iter().rev() {
            let count = self.directories.len();
            let own = self.number(count)?;
            self.other_bytes += DIRECTORY_BYTES + 2 * key.as_bytes().len() as u64;
            (self.directories.try_reserve(1)).map_err(|_| NoMemory::of::<Directory>(count))?;
            (self.by_key.try_reserve(1)).map_err(|_| NoMemory::of::<(Key, u32)>(count))?;
            self.directories.push(Directory {
                key: key.clone(),
                ..Directory::default()
            });
            if let Some(parent) = self.directories.get_mut(number as usize) {
                let below = &mut parent.subdirectories;
                (below.try_reserve(1)).map_err(|_| NoMemory::of::<u32>(below.len()))?;
                below.push(own);
            }
            self.by_key.insert(key, own);
            number = own;
        }
        Ok(number)
    }

    fn url(&mut self, url: &str) -> Result<u32, ReferenceError> {
        let is_url = |number: &u32| {
            self.urls
                .get(*number as usize)
                .is_some_and(|own| **own == *url)
        };
        if is_url(&self.last_url) {
            return Ok(self.last_url);
        }
        if let Some(number) = self.by_url.find(hash_of(url), is_url) {
            self.last_url = *number;
            return Ok(self.last_url);
        }
        let number = self.number(self.urls.len())?;
        self.urls.push(fallible::text(url)?.into_boxed_str());
        self.urls.check()?;
        self.other_bytes += URL_BYTES + 2 * url.len() as u64;
        let urls = &self.urls;
        let hash = |number: &u32| urls.get(*number as usize).map_or(0, |url| hash_of(url));
        (self.by_url.try_reserve(1, hash)).map_err(|_| NoMemory::of::<u32>(urls.len()))?;
        self.by_url.insert_unique(hash_of(url), number, hash);
        self.last_url = number;
        Ok(number)
    }

    /// Whether any key ends with one of these names.
    pub(in crate::store::reference) fn has_name(&self, names: &[&[u8]]) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| names.contains(&name_of(&self.names, node)))
    }

    /// Sorts the index; `url` converts the texts that were added to URLs.
    ///
    /// # Errors
    /// Errors of `url`; [`ReferenceError::NoMemory`].
    pub(in crate::store::reference) fn finish(
        self,
        label: &dyn Display,
        mut url: impl FnMut(&str) -> Result<Cow<'_, str>, ReferenceError>,
    ) -> Result<ReferenceIndex, ReferenceError> {
        drop(self.by_url);
        let mut index = ReferenceIndex {
            nodes: self.nodes.finish()?,
            names: fallible::compact(self.names.finish()?),
            inline: self.inline.finish()?,
            directories: self.directories,
            by_key: self.by_key,
            targets: Vec::new(),
            omissions: self.omissions,
        };
        if let Some((first, count)) = &self.invalid {
            index.omissions.push(Omission::lost(format!(
                "{count} keys are no names of files and are not shown, such as {first:?}"
            )));
        }
        let mut targets = List::default();
        for text in self.urls.finish()? {
            targets.push(TargetText::new(&url(&text)?));
        }
        index.targets = targets.finish()?;
        index.sort();
        index.hide_values_of_directories();
        for omission in &index.omissions {
            warn!("{label}: {}", omission.what);
        }
        let mut start = 0;
        for (number, directory) in (0..).zip(&mut index.directories) {
            let rest = index.nodes.get(start..).unwrap_or_default();
            let end = start + rest.partition_point(|node| node.directory <= number);
            directory.nodes = start..end;
            start = end;
        }
        index.nodes = fallible::compact(index.nodes);
        Ok(index)
    }
}
