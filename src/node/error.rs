//! The reason why a format has no content.

use crate::fallible::NoMemory;
use crate::store::{Key, StoreError};
use crate::translate::HierarchyError;

/// The reason why a format has no content.
#[derive(Debug, Clone)]
pub enum ContentError {
    /// The format does not support this node, for this reason.
    Absent(String),
    /// An input could not be read.
    Failed(StoreError),
    /// The format needs a node or numbers that are not read yet ([`NodeResolver`](super::NodeResolver)).
    Unresolved,
}

impl ContentError {
    /// Names the key of a lack of memory that has none.
    pub fn of(self, key: &Key) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.of(key)),
            other => other,
        }
    }

    /// Returns the reason as an error of the key that a user or the kernel requested.
    pub fn into_error(self, key: &Key) -> StoreError {
        match self {
            Self::Absent(_) => StoreError::NotFound { key: key.clone() },
            Self::Failed(error) => error,
            Self::Unresolved => StoreError::internal("a node that was not resolved"),
        }
    }
}

impl From<StoreError> for ContentError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<NoMemory> for ContentError {
    fn from(failure: NoMemory) -> Self {
        Self::Failed(failure.into())
    }
}

impl From<&str> for ContentError {
    fn from(why: &str) -> Self {
        Self::Absent(why.into())
    }
}

impl From<String> for ContentError {
    fn from(why: String) -> Self {
        Self::Absent(why)
    }
}

impl From<HierarchyError> for ContentError {
    fn from(none: HierarchyError) -> Self {
        match none {
            HierarchyError::Absent(why) => Self::Absent(why),
            HierarchyError::Failed(error) => Self::Failed(error),
        }
    }
}
