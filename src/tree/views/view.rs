//! Views of nodes, and their inode numbers.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::{ERRORS_FILE, VIEWS_DIR};
use crate::node::ViewNode;
use crate::recent_errors::ErrorsText;
use crate::store::{Key, Kind, Stat, Version};
use crate::tree::Ino;
use crate::tree::mux::VIEW_BIT;
use crate::view::{ChunkDir, ChunkNames, Content, ContentId, Format, Nodes, ViewFile};

/// A view of a node.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) node: Arc<ViewNode>,
    pub(super) kind: ViewKind,
}

/// The kind of a view.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ViewKind {
    /// The directory of the node's views, beside its keys.
    Hidden,
    /// The directory of the node in the view tree.
    Group,
    /// A directory of chunks, or of inner chunks.
    Chunks {
        names: Arc<ChunkNames>,
        dir: ChunkDir,
        inner: bool,
    },
    /// A file of a format; the ID identifies content that depends on more than the node's metadata.
    File(Format, Option<ContentId>),
    /// A chunk, by its number.
    Chunk(u64),
    /// An inner chunk, by its number.
    Inner(u64),
    /// The file of the last failed requests, and the number of failures until then.
    Errors(Arc<ErrorsText>),
}

/// A view that was found, with its content if it is a file of a format.
#[derive(Debug)]
pub(super) struct FoundView {
    pub(super) view: View,
    pub(super) content: Option<Content>,
}

impl From<View> for FoundView {
    fn from(view: View) -> Self {
        Self {
            view,
            content: None,
        }
    }
}

/// Two views are equal if their kind, node and version of the node are equal. Then their directory
/// entries and numbers are equal too.
impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.node.key() == other.node.key()
            && self.node.version() == other.node.version()
            && self.kind == other.kind
    }
}

impl View {
    /// Returns another view of the same node.
    pub(super) fn with(&self, kind: ViewKind) -> Self {
        Self {
            node: Arc::clone(&self.node),
            kind,
        }
    }

    /// Returns whether the view is a directory of views of the node at `key`.
    pub(super) fn is_dir_of(&self, key: &Key) -> bool {
        matches!(self.kind, ViewKind::Hidden | ViewKind::Group) && self.node.key() == key
    }

    /// Returns the number of the view, unless another view has the same number.
    pub(super) fn number(&self) -> Ino {
        let (kind, index, depth) = match &self.kind {
            ViewKind::Hidden => (0, 0, 0),
            ViewKind::Group => (1, 0, 0),
            ViewKind::Chunks { dir, inner, .. } => (2 + u8::from(*inner), dir.index, dir.depth),
            // Does not depend on the content ID, so that a listing needs none. Another content takes
            // the next number while the kernel knows this one.
            ViewKind::File(format, _) => (4, u64::from(format.number()), 0),
            ViewKind::Chunk(number) => (6, *number, 0),
            ViewKind::Inner(number) => (7, *number, 0),
            ViewKind::Errors(errors) => (5, errors.count, 0),
        };
        self.hash(kind, index, depth)
    }

    /// Returns the number of the directory `chunks/` or `inner/`.
    pub(super) fn chunk_dir_ino(&self, inner: bool) -> Ino {
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

    /// Returns the key of the view below the mount, for messages.
    pub(super) fn key(&self) -> Key {
        let node = self.node.key();
        let below = match &self.kind {
            ViewKind::Hidden | ViewKind::Group => return node.join(VIEWS_DIR).unwrap_or_default(),
            ViewKind::Chunks { inner: true, .. } => "inner".to_owned(),
            ViewKind::Chunks { .. } => "chunks".to_owned(),
            ViewKind::File(format, _) => format.own_name(self.node.name()),
            ViewKind::Chunk(number) => format!("chunk {number}"),
            ViewKind::Inner(number) => format!("inner chunk {number}"),
            ViewKind::Errors(_) => String::from_utf8_lossy(ERRORS_FILE).into_owned(),
        };
        let hidden = node.join(VIEWS_DIR).unwrap_or_default();
        hidden.join(below.as_bytes()).unwrap_or_default()
    }

    /// Returns the file of the view; `content` is that of its format. `None` for a directory.
    pub(super) fn object(
        &self,
        content: Option<Content>,
        nodes: &Arc<Nodes>,
    ) -> Option<Arc<ViewFile>> {
        let (version, modified) = (Version(self.node.version()), self.node.modified());
        let reader = || self.node.reader().map(Arc::clone);
        let file = match &self.kind {
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

    /// Returns the attributes for stat(2).
    pub(super) fn stat(&self, object: Option<&ViewFile>) -> Stat {
        match object {
            Some(object) => object.stat(),
            None => Stat {
                kind: Kind::Prefix,
                size_bytes: 0,
                modified: self.node.modified(),
                version: Version(self.node.version()),
                links: 2,
            },
        }
    }
}
