//! Places in the namespace of views, and their numbers.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::{ERRORS_FILE, HIDDEN};
use crate::recent_errors::ErrorsText;
use crate::store::{Key, Kind, Object, Stat, StoreError, Version};
use crate::tree::Ino;
use crate::view::{ChunkDir, ChunkNames, Content, Format, Nodes, Rendering, ViewFile, ViewNode};

/// Set in the numbers of views, and in no number of the native trees below 2^62.
pub(super) const VIEW_BIT: u64 = 1 << 61;

/// ViewKind is made of a node.
#[derive(Debug, Clone)]
pub(in crate::tree) struct ViewPath {
    pub(super) node: Arc<ViewNode>,
    pub(super) what: ViewKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ViewKind {
    /// The directory of its views.
    Hidden,
    /// Its directory in the view tree.
    Group,
    /// A directory of chunks, or of inner chunks.
    Chunks {
        names: Arc<ChunkNames>,
        dir: ChunkDir,
        inner: bool,
    },
    /// A file; which content it has, if its node's metadata alone do not tell.
    File(Format, Option<Rendering>),
    /// A chunk, by its number.
    Chunk(u64),
    /// An inner chunk, by its number.
    Inner(u64),
    /// The last failed requests; how many failed until then.
    Errors(Arc<ErrorsText>),
}

/// A place that was found, with what is there if it is a file of a format.
#[derive(Debug)]
pub(super) struct FoundView {
    pub(super) place: ViewPath,
    pub(super) content: Option<Content>,
}

impl From<ViewPath> for FoundView {
    fn from(place: ViewPath) -> Self {
        Self {
            place,
            content: None,
        }
    }
}

/// A place that the kernel knows.
#[derive(Debug)]
pub(super) struct InodeEntry {
    pub(super) place: ViewPath,
    pub(super) parent: Ino,
    /// The file, if it is one.
    pub(super) object: Option<Arc<ViewFile>>,
    pub(super) lookups: u64,
}

/// A name that was made for a listing.
#[derive(Debug, Clone)]
pub(in crate::tree) struct ListedView {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: Kind,
}

impl PartialEq for ViewPath {
    fn eq(&self, other: &Self) -> bool {
        self.node.key() == other.node.key()
            && self.node.version() == other.node.version()
            && self.what == other.what
    }
}

impl ViewPath {
    /// Something else of the same node.
    pub(super) fn with(&self, what: ViewKind) -> Self {
        Self {
            node: Arc::clone(&self.node),
            what,
        }
    }

    pub(super) fn is_group_at(&self, key: &Key) -> bool {
        self.what == ViewKind::Group && self.node.key() == key
    }

    /// The number of the place, unless another place has it.
    pub(super) fn number(&self) -> Ino {
        let (kind, index, depth) = match &self.what {
            ViewKind::Hidden => (0, 0, 0),
            ViewKind::Group => (1, 0, 0),
            ViewKind::Chunks { dir, inner, .. } => (2 + u8::from(*inner), dir.index, dir.depth),
            // Whatever its rendering: a listing has the number without making it. Another rendering
            // takes the next number while the kernel knows this one.
            ViewKind::File(format, _) => (4, u64::from(format.number()), 0),
            ViewKind::Chunk(number) => (6, *number, 0),
            ViewKind::Inner(number) => (7, *number, 0),
            ViewKind::Errors(errors) => (5, errors.count, 0),
        };
        self.hash(kind, index, depth)
    }

    /// The number that the top of `chunks/` or `inner/` has.
    pub(super) fn cells_number(&self, inner: bool) -> Ino {
        self.hash(2 + u8::from(inner), 0, 0)
    }

    fn hash(&self, kind: u8, index: u64, depth: u8) -> Ino {
        let mut hasher = SipHasher13::new();
        hasher.write(self.node.key().as_bytes());
        hasher.write_u64(self.node.version());
        hasher.write_u8(kind);
        hasher.write_u64(index);
        hasher.write_u8(depth);
        Ino((hasher.finish() & (VIEW_BIT - 1)) | VIEW_BIT)
    }

    /// The path below the mount that leads here, for messages.
    pub(super) fn key(&self) -> Key {
        let node = self.node.key();
        let below = match &self.what {
            ViewKind::Hidden | ViewKind::Group => return node.join(HIDDEN).unwrap_or_default(),
            ViewKind::Chunks { inner: true, .. } => "inner".to_owned(),
            ViewKind::Chunks { .. } => "chunks".to_owned(),
            ViewKind::File(format, _) => format.own_name(self.node.name()),
            ViewKind::Chunk(number) => format!("chunk {number}"),
            ViewKind::Inner(number) => format!("inner chunk {number}"),
            ViewKind::Errors(_) => String::from_utf8_lossy(ERRORS_FILE).into_owned(),
        };
        let hidden = node.join(HIDDEN).unwrap_or_default();
        hidden.join(below.as_bytes()).unwrap_or_default()
    }

    /// The file here; `content` is what its format says.
    pub(super) fn object(
        &self,
        content: Option<Content>,
        nodes: &Arc<Nodes>,
    ) -> Option<Arc<ViewFile>> {
        let (version, modified) = (Version(self.node.version()), self.node.modified());
        let reader = || self.node.reader().map(Arc::clone);
        let file = match &self.what {
            ViewKind::File(..) => ViewFile::of(nodes, &self.node, content?)?,
            ViewKind::Chunk(number) => ViewFile::chunk(reader()?, *number, version, modified),
            ViewKind::Inner(number) => ViewFile::inner(reader()?, *number, version, modified),
            ViewKind::Errors(errors) => {
                let text = errors.text.clone().into_bytes();
                ViewFile::text(text, version, errors.modified.unwrap_or(modified))
            }
            _ => return None,
        };
        Some(Arc::new(file))
    }

    /// ViewKind stat(2) tells.
    pub(super) fn stat(&self, object: Option<&ViewFile>) -> Result<Stat, StoreError> {
        match object {
            Some(object) => object.stat(),
            None => Ok(Stat {
                kind: Kind::Prefix,
                size_bytes: 0,
                modified: self.node.modified(),
                version: Version(self.node.version()),
                links: 2,
            }),
        }
    }
}
