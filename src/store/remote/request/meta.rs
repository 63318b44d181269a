//! Attributes of an object, and the comparison of versions.

use std::hash::{Hash, Hasher};
use std::time::SystemTime;

use siphasher::sip::SipHasher13;

use crate::store::{Kind, Stat, Version};

/// Attributes of an object, as reported by its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::remote) struct Meta {
    pub(in crate::store::remote) size_bytes: u64,
    /// The entity tag as sent, with quotes, and with `W/` if it is weak.
    pub(in crate::store::remote) etag: Option<String>,
    pub(in crate::store::remote) modified: Option<SystemTime>,
}

impl Meta {
    /// Whether the tag is marked as weak. (Some listings omit the quotes; such a tag may begin with any
    /// letters.)
    pub(in crate::store::remote) fn is_weak(&self) -> bool {
        let tag = self.etag.as_deref();
        tag.is_some_and(|tag| tag.starts_with("W/\""))
    }

    /// The tag without quotes and without the mark of a weak tag, because a proxy that compresses bytes
    /// makes the tag weak.
    pub(in crate::store::remote) fn opaque_tag(&self) -> Option<&str> {
        let tag = self.etag.as_deref()?;
        let tag = if self.is_weak() { tag.get(2..)? } else { tag };
        Some(tag.trim_matches('"'))
    }

    /// The tag for `If-Match`; `None` if it is weak.
    pub(in crate::store::remote) fn strong_tag(&self) -> Option<String> {
        let tag = self.opaque_tag().filter(|_| !self.is_weak())?;
        Some(format!("\"{tag}\""))
    }

    /// Whether both have the same content, as far as the source can distinguish contents.
    pub(in crate::store::remote) fn is_same(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && match (self.opaque_tag(), other.opaque_tag()) {
                (Some(one), Some(two)) => one == two,
                // If neither has a tag nor a time, the size alone decides, which is a weaker guarantee.
                (None, None) => self.modified_seconds() == other.modified_seconds(),
                // A tag or a time that only one of them has proves nothing.
                _ => false,
            }
    }

    /// The time in whole seconds, because headers and listings have different precisions.
    pub(in crate::store::remote) fn modified_seconds(&self) -> Option<u64> {
        let since = self.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }

    pub(in crate::store::remote) fn version(&self) -> Version {
        let mut hasher = SipHasher13::new();
        self.size_bytes.hash(&mut hasher);
        match self.opaque_tag() {
            Some(tag) => tag.hash(&mut hasher),
            None => self.modified_seconds().hash(&mut hasher),
        }
        Version(hasher.finish())
    }

    pub(in crate::store::remote) fn stat(&self) -> Stat {
        Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes,
            modified: self.modified.unwrap_or(SystemTime::UNIX_EPOCH),
            version: self.version(),
            links: 1,
        }
    }
}
