//! Lists and texts whose growth fails, rather than ends the process, if the system has no memory.
//!
//! `Vec` and `String` end the process then, and with it all mounts of a daemon. Content whose size follows from a source
//! is collected in a [`List`] or a [`Text`]. These keep the first failure and take nothing more, so that code that
//! appends to them needs no error of its own; [`List::finish`] and [`Text::finish`] return the content or the failure.

use std::fmt;
use std::io;
use std::ops::Deref;

/// The system has no memory for this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("needs {0} bytes of memory, and the system has none left")]
pub struct NoMemory(pub u64);

impl NoMemory {
    /// Returns the failure to allocate a list of `count` items of this type.
    pub fn of<T>(count: usize) -> Self {
        Self((count as u64).saturating_mul(size_of::<T>() as u64))
    }
}

/// A list that grows fallibly.
#[derive(Debug)]
pub struct List<T> {
    items: Vec<T>,
    failure: Option<NoMemory>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            failure: None,
        }
    }
}

impl<T> List<T> {
    /// Reserves memory for `count` more items; returns false if there is none, or was none before.
    fn grow(&mut self, count: usize) -> bool {
        if self.failure.is_none() && self.items.try_reserve(count).is_err() {
            self.failure = Some(NoMemory::of::<T>(self.items.len().saturating_add(count)));
        }
        self.failure.is_none()
    }

    /// Appends an item.
    pub fn push(&mut self, item: T) {
        if self.grow(1) {
            self.items.push(item);
        }
    }

    /// Returns the number of items for which there is memory.
    pub fn capacity(&self) -> usize {
        self.items.capacity()
    }

    /// Removes all items from the index `length`.
    pub fn truncate(&mut self, length: usize) {
        self.items.truncate(length);
    }

    /// Returns the first failure.
    ///
    /// # Errors
    /// The system had no memory for all items.
    pub fn check(&self) -> Result<(), NoMemory> {
        self.failure.map_or(Ok(()), Err)
    }

    /// Returns the items.
    ///
    /// # Errors
    /// The system had no memory for all of them.
    pub fn finish(self) -> Result<Vec<T>, NoMemory> {
        match self.failure {
            None => Ok(self.items),
            Some(failure) => Err(failure),
        }
    }
}

impl<T: Clone> List<T> {
    /// Appends copies of an item up to a length.
    pub fn resize(&mut self, length: usize, item: T) {
        if self.grow(length.saturating_sub(self.items.len())) {
            self.items.resize(length, item);
        }
    }
}

impl<T: Copy> List<T> {
    /// Appends copies of items.
    pub fn extend_from_slice(&mut self, items: &[T]) {
        if self.grow(items.len()) {
            self.items.extend_from_slice(items);
        }
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let items = items.into_iter();
        if !self.grow(items.size_hint().0) {
            return;
        }
        for item in items {
            self.push(item);
            if self.failure.is_some() {
                return;
            }
        }
    }
}

/// A writer fails, because it could otherwise write without an end.
impl io::Write for List<u8> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend_from_slice(bytes);
        match self.failure {
            None => Ok(bytes.len()),
            Some(failure) => Err(io::Error::new(io::ErrorKind::OutOfMemory, failure)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects items.
///
/// # Errors
/// The system has no memory for them.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let mut list = List::default();
    list.extend(items);
    list.finish()
}

/// Returns a list of copies of an item.
///
/// # Errors
/// The system has no memory for it.
pub fn repeat<T: Clone>(item: T, count: usize) -> Result<Vec<T>, NoMemory> {
    let mut list = List::default();
    list.resize(count, item);
    list.finish()
}

/// Returns a list of zero bytes.
///
/// # Errors
/// The system has no memory for it.
pub fn zeros(count: usize) -> Result<Vec<u8>, NoMemory> {
    bytemuck::try_zeroed_vec(count).map_err(|()| NoMemory(count as u64))
}

/// Returns a list without its unused memory, if that is much and the system has memory for a copy. Shrinking a `Vec`
/// ends the process if it fails.
pub fn compact<T>(mut items: Vec<T>) -> Vec<T> {
    let unused = items.capacity().saturating_sub(items.len());
    let mut copy = Vec::new();
    if unused > items.len() / 3 && copy.try_reserve_exact(items.len()).is_ok() {
        copy.append(&mut items);
        return copy;
    }
    items
}

/// Returns a copy of bytes.
///
/// # Errors
/// The system has no memory for it.
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>, NoMemory> {
    let mut list = List::default();
    list.extend_from_slice(bytes);
    list.finish()
}

/// Returns a copy of a text.
///
/// # Errors
/// The system has no memory for it.
pub fn text(text: &str) -> Result<String, NoMemory> {
    let mut copy = Text::default();
    copy.push_str(text);
    copy.finish()
}

/// A text that grows fallibly.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    failure: Option<NoMemory>,
}

impl Text {
    /// Appends a text.
    pub fn push_str(&mut self, text: &str) {
        if self.failure.is_none() && self.text.try_reserve(text.len()).is_err() {
            let length = self.text.len().saturating_add(text.len());
            self.failure = Some(NoMemory::of::<u8>(length));
        }
        if self.failure.is_none() {
            self.text.push_str(text);
        }
    }

    /// Shortens the text to a length in bytes, at which a character begins.
    pub fn truncate(&mut self, length: usize) {
        if length <= self.text.len() {
            self.text.truncate(length);
        }
    }

    /// Returns the text.
    ///
    /// # Errors
    /// The system had no memory for all of it.
    pub fn finish(self) -> Result<String, NoMemory> {
        match self.failure {
            None => Ok(self.text),
            Some(failure) => Err(failure),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Never fails: [`Text::finish`] returns the failure.
impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn lists_and_texts_have_what_was_appended() {
        let mut list = List::default();
        list.push(1);
        list.extend_from_slice(&[2, 3]);
        list.extend([4, 5]);
        list.resize(6, 9);
        list.truncate(6);
        assert_eq!((list.len(), list.first()), (6, Some(&1)));
        assert_eq!(list.finish(), Ok(vec![1, 2, 3, 4, 5, 9]));
        assert_eq!(collect(["a", "b"]), Ok(vec!["a", "b"]));
        assert_eq!(copy(b"ab"), Ok(b"ab".to_vec()));
        assert_eq!(super::text("ab"), Ok("ab".to_owned()));
        let mut long = Vec::with_capacity(100);
        long.extend(0..10);
        let short = compact(long);
        assert_eq!(short.len(), 10);
        assert!(short.capacity() < 100 && short.iter().eq(&(0..10).collect::<Vec<_>>()));
        let mut text = Text::default();
        text.push_str("ab");
        let _ = write!(text, "{}", 12);
        text.truncate(3);
        assert_eq!((text.len(), text.finish()), (3, Ok("ab1".to_owned())));
    }

    #[test]
    fn a_failure_is_kept_and_nothing_is_appended_after_it() {
        let mut list = List::default();
        list.push(7_u8);
        assert!(!list.grow(usize::MAX / 2));
        list.push(8);
        list.extend([9]);
        list.resize(9, 1);
        assert_eq!(list[..], [7]);
        assert!(list.check().is_err() && List::<u8>::default().check().is_ok());
        assert!(list.finish().is_err());
        assert_eq!(
            repeat(0_u32, usize::MAX / 8),
            Err(NoMemory((usize::MAX / 8) as u64 * 4))
        );
        let mut text = Text {
            text: "a".into(),
            failure: Some(NoMemory(3)),
        };
        text.push_str("b");
        assert_eq!(write!(text, "c"), Ok(()));
        assert_eq!(&*text, "a");
        assert_eq!(text.finish(), Err(NoMemory(3)));
    }
}
