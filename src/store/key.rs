//! Store keys: `/`-separated components, kept byte for byte.

use std::borrow::Cow;
use std::fmt;

/// The longest name that Linux accepts (`NAME_MAX`), in bytes.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// The longest key in bytes: the longest path that Linux accepts (`PATH_MAX`), without the NUL at its end.
pub const MAX_KEY_BYTES: usize = 4095;

/// Why bytes are not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// An empty component: `a//b`, a leading `/`, or no bytes.
    #[error("empty component")]
    Empty,
    /// `.` or `..`.
    #[error("`.` or `..` as a component")]
    Dots,
    /// NUL or `/` inside a component.
    #[error("NUL or `/` inside a component")]
    Separator,
    /// A component longer than [`MAX_COMPONENT_BYTES`].
    #[error("component longer than 255 bytes")]
    TooLong,
    /// A key longer than [`MAX_KEY_BYTES`].
    #[error("key longer than 4095 bytes")]
    TooDeep,
}

/// Checks one component of a key.
///
/// # Errors
/// The reason why the name cannot be a file name. Any other name, UTF-8 or not, is a valid component.
pub fn check_component(name: &[u8]) -> Result<(), InvalidKey> {
    match name {
        b"" => Err(InvalidKey::Empty),
        b"." | b".." => Err(InvalidKey::Dots),
        _ if name.len() > MAX_COMPONENT_BYTES => Err(InvalidKey::TooLong),
        _ if name.iter().any(|b| matches!(b, 0 | b'/')) => Err(InvalidKey::Separator),
        _ => Ok(()),
    }
}

/// Checks all components of a key, and its length. The empty key is the root.
///
/// # Errors
/// The error of the first invalid component, or [`InvalidKey::TooDeep`].
pub fn check_key(key: &[u8]) -> Result<(), InvalidKey> {
    match key.len() {
        0 => Ok(()),
        length if length > MAX_KEY_BYTES => Err(InvalidKey::TooDeep),
        _ => key.split(|b| *b == b'/').try_for_each(check_component),
    }
}

/// A key, or a prefix of keys, relative to the root of the store. The root is the empty key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key(Box<[u8]>);

impl Key {
    /// The root prefix.
    pub fn root() -> Self {
        Self::default()
    }

    /// Creates a key from all its components, after checking them; the empty key is the root.
    ///
    /// # Errors
    /// As [`check_key`].
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidKey> {
        check_key(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The key of a child.
    ///
    /// # Errors
    /// As [`check_component`].
    pub fn join(&self, name: &[u8]) -> Result<Self, InvalidKey> {
        check_component(name)?;
        if self.is_root() {
            return Ok(Self(name.into()));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Ok(Self(bytes.into()))
    }

    /// A key below this one; `below` may have several components, or be the root.
    pub fn join_key(&self, below: &Self) -> Self {
        match (self.is_root(), below.is_root()) {
            (true, _) => below.clone(),
            (_, true) => self.clone(),
            _ => Self([&self.0[..], b"/", &below.0[..]].concat().into()),
        }
    }

    /// The parent prefix of this key; the root is its own parent.
    pub fn parent(&self) -> Self {
        let cut = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Self(self.0.get(..cut).unwrap_or_default().into())
    }

    /// The rest of the key below `prefix`, empty at the prefix itself; `None` if the key is not below it.
    pub fn below(&self, prefix: &Self) -> Option<&[u8]> {
        let below = self.as_bytes().strip_prefix(prefix.as_bytes())?;
        match (prefix.as_bytes(), below) {
            (b"", below) | (_, below @ b"") | (_, [b'/', below @ ..]) => Some(below),
            _ => None,
        }
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, without a leading `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key as text for users.
    pub fn display(&self) -> Cow<'_, str> {
        if self.is_root() {
            "/".into()
        } else {
            String::from_utf8_lossy(&self.0)
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.display().escape_debug())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_returns_the_rest_of_a_key_behind_a_prefix() {
        let key = |text: &str| Key::new(text.as_bytes()).unwrap();
        for (of, prefix, below) in [
            ("a/b/c", "a", Some("b/c")),
            ("a/b", "", Some("a/b")),
            ("a", "a", Some("")),
            ("", "", Some("")),
            ("ab", "a", None),
            ("a", "a/b", None),
        ] {
            assert_eq!(
                key(of).below(&key(prefix)),
                below.map(str::as_bytes),
                "{of}"
            );
        }
    }

    #[test]
    fn components_that_no_directory_may_hold_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(check_component(bad).is_err(), "{bad:?}");
        }
        for good in [
            &b".zarray"[..],
            b"...",
            b"0.0",
            b"a\\b",
            b"\xff\xfe",
            &[b'x'; 255],
        ] {
            assert_eq!(check_component(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn keys_join_and_split() {
        let key = Key::new(b"a/b").unwrap();
        assert_eq!(key.join(b"c").unwrap().as_bytes(), b"a/b/c");
        assert_eq!(key.parent().as_bytes(), b"a");
        assert_eq!(key.parent().parent(), Key::root());
        assert_eq!(Key::root().join(b"x").unwrap().as_bytes(), b"x");
        assert_eq!(Key::root().join_key(&key), key);
        assert_eq!(key.join_key(&Key::root()), key);
        assert_eq!(key.join_key(&Key::new(b"z").unwrap()).as_bytes(), b"a/b/z");
        assert!(Key::new(b"/a").is_err() && Key::new(b"a//b").is_err() && Key::new(b"a/").is_err());
    }
}
