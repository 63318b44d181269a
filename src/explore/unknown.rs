//! What no metadata and no listing tell of the names at a prefix.

use std::sync::atomic::Ordering;

use super::known::{Known, Said, What};
use super::{Answer, Depth, ExploredStore};
use crate::store::{IncompleteListing, Key, Kind, StoreError};

impl ExploredStore {
    /// Why names at a prefix may be missing in its listing, or be listed and not there; none if the
    /// metadata name everything.
    pub(super) fn find_unknown(&self, prefix: &Key) -> Option<IncompleteListing> {
        let (known, said) = match self.resolve(prefix, Depth::Listing) {
            Ok(Answer::Known(known, said)) => (known, said),
            Ok(Answer::Told(stat)) if stat.kind == Kind::Object => return None,
            Ok(Answer::Told(_)) => return Some(self.unknown_children(prefix)),
            Err(error) => return Some(failed(&error)),
        };
        match said {
            Said::Chunks(..) => Some(self.unknown_chunks(prefix, &known, true)),
            Said::Node(path) => match known.what(&path) {
                What::Array(names) => Some(self.unknown_chunks(prefix, &known, names.is_some())),
                What::Group if known.is_consolidated() => None,
                What::Group => Some(self.unknown_children(prefix)),
            },
            Said::Nothing | Said::Value | Said::NoDocument => None,
        }
    }

    fn unknown_chunks(
        &self,
        prefix: &Key,
        known: &Known,
        is_understood: bool,
    ) -> IncompleteListing {
        // The names of a consolidated array are never asked for.
        let is_asked = !known.is_consolidated() || !is_understood;
        let is_listed = is_asked && matches!(self.lists(prefix), Ok(true));
        let what = match (is_listed, is_understood) {
            (true, _) => "chunks: the server's listing may lack some; names can be opened",
            (false, true) => {
                "chunks: all that the shape has room for are listed; whether one is there is known \
                 when it is opened"
            }
            (false, false) => {
                "chunks: the chunk grid is not understood; names that are known otherwise can be \
                 opened"
            }
        };
        IncompleteListing {
            is_unlisted: !is_listed,
            what: what.into(),
        }
    }

    fn unknown_children(&self, prefix: &Key) -> IncompleteListing {
        let (is_unlisted, why) = match self.lists(prefix) {
            Ok(true) => (false, "the server's listing may lack some"),
            Ok(false) => (true, "the server lists nothing"),
            Err(error) => return failed(&error),
        };
        IncompleteListing {
            is_unlisted,
            what: format!(
                "children: {why} and there are no consolidated metadata; names can be opened"
            ),
        }
    }

    /// Whether the inner store lists a prefix.
    fn lists(&self, prefix: &Key) -> Result<bool, StoreError> {
        if self.lists_nothing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.inner.list(prefix) {
            Ok(_) => Ok(true),
            Err(
                StoreError::Unsupported { .. }
                | StoreError::Denied { .. }
                | StoreError::NotFound { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Nothing is known at all.
fn failed(error: &StoreError) -> IncompleteListing {
    IncompleteListing {
        is_unlisted: true,
        what: format!("anything: {error}"),
    }
}
