//! The names below a prefix.

use std::ops::ControlFlow;

use super::{Key, Kind, Listed, Store, StoreError};

impl Listed<'_> {
    /// Whether it is a prefix below the one that is listed, and not that one or the one above.
    pub fn is_below(&self) -> bool {
        self.kind == Kind::Prefix && !matches!(self.name, b"." | b"..")
    }
}

/// The names of the prefixes directly below a key, sorted; where there are more than `most`, so
/// many of them and one more.
///
/// # Errors
/// Those of the store.
pub fn list_prefixes(
    store: &dyn Store,
    key: &Key,
    most: usize,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut names = Vec::new();
    store.list(key)?.visit(0, &mut |listed| {
        if listed.is_below() {
            names.push(listed.name.to_vec());
        }
        match names.len() > most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn prefixes_are_sorted_and_no_more_than_wanted_are_read() {
        let keys = ["g/c/0", "g/a/0", "g/b/0/1", "g/x", "h/0"];
        let key = |key: &str| Key::new(key.as_bytes()).unwrap();
        let store = MemoryStore::new(keys.map(|name| (key(name), Vec::new())));
        let below = |most| list_prefixes(&store, &key("g"), most).unwrap();
        assert_eq!(below(3), [b"a", b"b", b"c"]);
        assert_eq!(below(1).len(), 2);
    }
}
