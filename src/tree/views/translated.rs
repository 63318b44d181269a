//! The hierarchy as one of another version: directories of their own at the root of the views, each
//! an ordinary tree over a store that translates.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::path::{ListedView, VIEW_BIT, ViewKind, ViewPath};
use super::{HashedTree, Ino, ViewTree};
use crate::store::{Key, Kind, Store, StoreError};
use crate::translate::{Target, Translated};
use crate::tree::{Node, Tree};
use crate::view::{Nodes, attributes_at};

/// The trees of all targets.
#[derive(Debug)]
pub(super) struct Translations([Translation; 3]);

#[derive(Debug)]
struct Translation {
    target: Target,
    store: Arc<Translated>,
    tree: HashedTree,
}

/// Set in the numbers of translations, and in no others below [`VIEW_BIT`].
const TRANSLATED_BIT: u64 = VIEW_BIT >> 1;
/// Below it stand two bits for the target.
const NUMBER_BITS: u32 = TRANSLATED_BIT.trailing_zeros() - 2;

impl Translations {
    pub(super) fn new(nodes: &Nodes, root: &Key) -> Self {
        Self(Target::ALL.map(|target| {
            let (store, engine) = (Arc::clone(nodes.store()), Arc::clone(nodes.engine()));
            let ttl = nodes.options().ttl;
            let store = Arc::new(Translated::new(store, root.clone(), target, ttl, engine));
            let base = TRANSLATED_BIT | (target as u64) << NUMBER_BITS;
            let shown = Arc::clone(&store) as Arc<dyn Store>;
            Translation {
                target,
                store,
                tree: HashedTree::beside(shown, root.clone(), base, NUMBER_BITS),
            }
        }))
    }

    /// The tree that has a number.
    pub(super) fn tree(&self, ino: Ino) -> Option<&HashedTree> {
        const NUMBERS: RangeInclusive<u64> = TRANSLATED_BIT..=VIEW_BIT - 1;
        let target = usize::try_from((ino.0 >> NUMBER_BITS) & 3).ok()?;
        let translation = self.0.get(target)?;
        NUMBERS.contains(&ino.0).then_some(&translation.tree)
    }

    pub(super) fn known_inodes(&self) -> usize {
        // The roots take no memory.
        let known = self
            .0
            .iter()
            .map(|translation| translation.tree.known_inodes());
        known.fold(0, |sum: usize, known| {
            sum.saturating_add(known.saturating_sub(1))
        })
    }

    /// The root of the tree of that name.
    fn root(&self, name: &[u8]) -> Option<&Translation> {
        self.0
            .iter()
            .find(|translation| translation.target.word().as_bytes() == name)
    }
}

impl Translation {
    async fn node(&self) -> Result<Node, StoreError> {
        let ino = self.ino();
        let stat = self.tree.stat(ino).await?;
        Ok(Node { ino, stat })
    }

    fn ino(&self) -> Ino {
        Ino(TRANSLATED_BIT | (self.target as u64) << NUMBER_BITS)
    }
}

impl ViewTree {
    /// Whether translations are beside the views of a place.
    fn has_translations(&self, place: &ViewPath) -> bool {
        matches!(place.what, ViewKind::Hidden | ViewKind::Group) && *place.node.key() == self.root
    }

    /// The root of a translation, where a directory of views has one of that name.
    pub(super) async fn find_translation(
        &self,
        place: &ViewPath,
        name: &[u8],
    ) -> Result<Option<Node>, StoreError> {
        match self.translations.root(name) {
            Some(translation) if self.has_translations(place) => translation.node().await.map(Some),
            _ => Ok(None),
        }
    }

    /// Adds the translations that are listed beside the views of a place.
    pub(super) async fn add_translations(
        &self,
        place: &ViewPath,
        names: &mut Vec<ListedView>,
    ) -> Result<(), StoreError> {
        if !self.has_translations(place) {
            return Ok(());
        }
        let formats = &self.nodes.options().formats;
        for translation in &self.translations.0 {
            let name = translation.target.word().as_bytes();
            let is_taken = names.iter().any(|made| made.name == name);
            if is_taken || !formats.lists_translation(translation.target) {
                continue;
            }
            match translation.store.differs().await {
                Ok(false) => {}
                Err(error) if error.is_lasting() => {
                    log::warn!("{} is not listed: {error}", translation.target.word());
                }
                // What cannot be read now is not missing: it fails when it is looked up.
                Ok(true) | Err(_) => names.push(ListedView {
                    name: name.to_vec(),
                    ino: translation.ino(),
                    kind: Kind::Prefix,
                }),
            }
        }
        Ok(())
    }

    /// ViewKind the documents say that are shown in a directory of a translation.
    pub(super) async fn translated_attributes(
        tree: &HashedTree,
        ino: Ino,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        if tree.stat(ino).await?.kind != Kind::Prefix {
            return Ok(Vec::new());
        }
        attributes_at(tree.store(), &tree.key(ino)?).await
    }
}
