//! The content of a server: a map that a test changes, or a directory.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A value and its validators.
#[derive(Debug, Clone)]
pub struct Entity {
    pub bytes: Arc<Vec<u8>>,
    pub modified: SystemTime,
    /// A strong ETag with its quotes, which is the same for the same content.
    pub etag: String,
}

impl Entity {
    pub fn new(bytes: Vec<u8>, modified: SystemTime) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self {
            etag: format!("\"{:016x}-{}\"", hasher.finish(), bytes.len()),
            bytes: Arc::new(bytes),
            modified,
        }
    }
}

/// Generated keys: `prefix` and seven digits, each with a value of four bytes.
#[derive(Debug)]
pub struct Counted {
    pub prefix: String,
    pub count: u32,
}

impl Counted {
    fn key(&self, i: u32) -> String {
        format!("{}{i:07}", self.prefix)
    }

    fn number(&self, key: &str) -> Option<u32> {
        let digits = key.strip_prefix(&self.prefix).filter(|d| d.len() == 7)?;
        digits.parse().ok().filter(|&i| i < self.count)
    }

    /// Returns the first key after `after`.
    fn next(&self, after: &str) -> Option<String> {
        if self.count == 0 || after < self.key(0).as_str() {
            return (self.count > 0).then(|| self.key(0));
        }
        // Keys are in the order of their numbers, so a binary search finds the first greater one.
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle).as_str() > after {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        (low < self.count).then(|| self.key(low))
    }
}

/// The source of values.
#[derive(Debug)]
enum ValueSource {
    Memory(BTreeMap<String, Entity>),
    Directory(PathBuf),
}

/// All values of a server.
#[derive(Debug)]
pub struct Content {
    place: ValueSource,
    counted: Vec<Counted>,
}

impl Content {
    pub fn memory() -> Self {
        Self {
            place: ValueSource::Memory(BTreeMap::new()),
            counted: Vec::new(),
        }
    }

    pub fn directory(path: &Path) -> Self {
        Self {
            place: ValueSource::Directory(path.to_owned()),
            counted: Vec::new(),
        }
    }

    pub fn count(&mut self, counted: Counted) {
        self.counted.push(counted);
    }

    pub fn put(&mut self, key: &str, bytes: Vec<u8>) {
        match &mut self.place {
            ValueSource::Memory(values) => {
                values.insert(key.to_owned(), Entity::new(bytes, SystemTime::now()));
            }
            ValueSource::Directory(root) => {
                let path = root.join(key);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
    }

    pub fn remove(&mut self, key: &str) {
        match &mut self.place {
            ValueSource::Memory(values) => {
                values.remove(key).expect("a key that is there");
            }
            ValueSource::Directory(root) => fs::remove_file(root.join(key)).unwrap(),
        }
    }

    pub fn get(&self, key: &str) -> Option<Entity> {
        if let Some(i) = self.counted.iter().find_map(|c| c.number(key)) {
            let bytes = i.to_le_bytes().to_vec();
            return Some(Entity::new(bytes, SystemTime::UNIX_EPOCH));
        }
        match &self.place {
            ValueSource::Memory(values) => values.get(key).cloned(),
            ValueSource::Directory(root) => {
                let inside = !key.split('/').any(|c| matches!(c, "" | "." | ".."));
                let path = root.join(key);
                let bytes = inside.then(|| fs::read(&path).ok())??;
                let modified = fs::metadata(&path).ok()?.modified().ok()?;
                Some(Entity::new(bytes, modified))
            }
        }
    }

    /// Returns the first key after `after` that begins with `prefix`.
    pub fn next(&self, after: &str, prefix: &str) -> Option<String> {
        // No upper bound is needed, because no key after the last one below `prefix` begins with it.
        let from = if after < prefix { prefix } else { after };
        let is_new = |key: &String| key.as_str() > after && key.starts_with(prefix);
        let stored = match &self.place {
            ValueSource::Memory(values) => values
                .range::<str, _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded))
                .map(|(key, _)| key.clone())
                .find(|key| key.as_str() > after),
            ValueSource::Directory(root) => {
                let mut keys = Vec::new();
                keys_below(root, "", &mut keys);
                keys.sort();
                keys.into_iter()
                    .find(|k| k.as_str() > after && k.as_str() >= prefix)
            }
        };
        let counted = self.counted.iter().filter_map(|c| {
            let at = if after < prefix { prefix } else { after };
            c.number(at)
                .filter(|_| at > after)
                .map(|_| at.to_owned())
                .or_else(|| c.next(at))
        });
        stored.into_iter().chain(counted).filter(is_new).min()
    }

    /// Returns whether any key is below `key` and a slash.
    pub fn is_prefix(&self, key: &str) -> bool {
        let prefix = match key {
            "" => String::new(),
            _ => format!("{key}/"),
        };
        self.next("", &prefix).is_some()
    }
}

fn keys_below(directory: &Path, prefix: &str, keys: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let key = format!("{prefix}{name}");
        match path.is_dir() {
            true => keys_below(&path, &format!("{key}/"), keys),
            false => keys.push(key),
        }
    }
}
