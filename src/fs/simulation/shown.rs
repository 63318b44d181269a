//! What a mount has to show.

use std::sync::Arc;
use std::time::Duration;

use super::archive::{ARCHIVE, Published};
use super::content::{Array, Writer};
use crate::store::simulated::{History, SimulatedServer};

/// What a mount has to show.
#[derive(Debug)]
pub(super) enum Shown {
    /// The keys of a server, each as it is.
    Keys(Arc<SimulatedServer>, Arc<Writer>),
    /// An archive as it was when it was mounted.
    Archive {
        server: Arc<SimulatedServer>,
        content: Arc<Published>,
        mounted_at: Duration,
    },
}

impl Shown {
    /// Calls `look` with all versions of all keys.
    pub(super) fn history<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        match self {
            Self::Keys(server, _) => server.history(look),
            Self::Archive { content, .. } => look(&content.keys),
        }
    }

    /// Returns the elements that a view of an array has, if each chunk is as it is now; `None` if it does not exist.
    pub(super) fn present_elements(&self, array: Array) -> Option<Vec<u8>> {
        match self {
            Self::Keys(_, writer) => writer.present_elements(array),
            Self::Archive { content, .. } => content.elements(array),
        }
    }

    /// Whether the root has the metadata of all nodes.
    pub(super) fn is_consolidated(&self) -> bool {
        match self {
            Self::Keys(_, writer) => writer.is_consolidated(),
            Self::Archive { .. } => false,
        }
    }

    /// Whether nothing that is shown changes.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Self::Archive { .. })
    }

    /// Whether reads may fail for good, because the archive was replaced or gone since it was mounted.
    pub(super) fn is_lost(&self, now: Duration) -> bool {
        match self {
            Self::Keys(..) => false,
            Self::Archive {
                server, mounted_at, ..
            } => server.history(|history| history.states(ARCHIVE, *mounted_at, now).len() > 1),
        }
    }
}
