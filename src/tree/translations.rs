//! The hierarchy in another Zarr version. Each version is an ordinary tree over a translating
//! store. Its root directory is among the views of the root.

use std::sync::Arc;

use super::mux::{TRANSLATED_BIT, VIEW_BIT};
use super::views::ListedName;
use super::{HashedTree, Ino, Node, Tree};
use crate::store::{Key, Store, StoreError};
use crate::translate::{Target, Translated};
use crate::view::{FormatSet, Nodes};

/// The trees of all translation targets.
#[derive(Debug)]
pub(super) struct Translations([Translation; 3]);

#[derive(Debug)]
struct Translation {
    target: Target,
    store: Arc<Translated>,
    tree: HashedTree,
}

/// The number of bits of an inode number below those of the target.
const NUMBER_BITS: u32 = TRANSLATED_BIT.trailing_zeros() - 2;

impl Translations {
    pub(super) fn new(nodes: &Nodes, root: &Key) -> Self {
        Self(Target::ALL.map(|target| {
            let (store, engine) = (Arc::clone(nodes.store()), Arc::clone(nodes.engine()));
            let ttl = nodes.options().ttl;
            let store = Arc::new(Translated::new(store, root.clone(), target, ttl, engine));
            let shown = Arc::clone(&store) as Arc<dyn Store>;
            Translation {
                target,
                store,
                tree: HashedTree::beside(shown, root.clone(), root_number(target).0, NUMBER_BITS),
            }
        }))
    }

    /// Returns the tree that owns a number.
    pub(super) fn tree(&self, ino: Ino) -> Option<&HashedTree> {
        if !(TRANSLATED_BIT..VIEW_BIT).contains(&ino.0) {
            return None;
        }
        let target = usize::try_from((ino.0 >> NUMBER_BITS) & 3).ok()?;
        self.0.get(target).map(|translation| &translation.tree)
    }

    /// Returns the root of the translation with a name.
    ///
    /// # Errors
    /// The errors of [`Tree::stat`] for the root of the translation.
    pub(super) async fn root(&self, name: &[u8]) -> Result<Option<Node>, StoreError> {
        let named = |translation: &&Translation| translation.target.name().as_bytes() == name;
        let Some(translation) = self.0.iter().find(named) else {
            return Ok(None);
        };
        let ino = root_number(translation.target);
        let stat = translation.tree.stat(ino).await?;
        Ok(Some(Node { ino, stat }))
    }

    /// Returns the roots of the listed translations: those in `formats` that differ from the store.
    pub(super) async fn listed(&self, formats: &FormatSet) -> Vec<ListedName> {
        let mut names = Vec::new();
        let listed = self
            .0
            .iter()
            .filter(|it| formats.lists_translation(it.target));
        for Translation { target, store, .. } in listed {
            let name = target.name();
            match store.differs().await {
                Ok(false) => {}
                Err(error) if error.is_lasting() => log::warn!("{name} is not listed: {error}"),
                // Listed despite a temporary failure: a lookup then returns the error.
                Ok(true) | Err(_) => {
                    names.push(ListedName::directory(name.as_bytes(), root_number(*target)));
                }
            }
        }
        names
    }

    pub(super) fn known_inodes(&self) -> usize {
        // The root of a translation takes no memory.
        let known = |translation: &Translation| translation.tree.known_inodes().saturating_sub(1);
        self.0.iter().map(known).fold(0, usize::saturating_add)
    }
}

fn root_number(target: Target) -> Ino {
    Ino(TRANSLATED_BIT | (target as u64) << NUMBER_BITS)
}
