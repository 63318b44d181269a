//! The separator of chunk keys of arrays whose `.zarray` has none.
//!
//! The default is `.`, but before its version 2.8 zarr-python wrote nested chunk keys (`NestedDirectoryStore`,
//! `FSStore`) without a separator. By the default such an array has no chunks and would read as fill values.
//! So its keys decide if the store is local, where a listing takes no request.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::store::{Key, Kind, Listed, Store, StoreError, Visited};
use crate::zarr::{self, ChunkNames};

/// The number of names that are visited.
const MAX_NAMES: usize = 64;

/// Returns the `.zarray` of an array, with the separator `/` if it has none and the chunk keys are nested.
///
/// # Errors
/// The errors of listing the array, unless it can never be listed.
pub(super) async fn with_separator<'a>(
    store: &dyn Store,
    array: &Key,
    zarray: &'a [u8],
) -> Result<Cow<'a, [u8]>, StoreError> {
    if store.capabilities().is_remote {
        return Ok(zarray.into());
    }
    let Some(names) = zarr::chunk_names_without_separator(zarray) else {
        return Ok(zarray.into());
    };
    let is_nested = match has_nested_keys(store, array, &names).await {
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => false,
        Err(error) if error.is_lasting() => false,
        is_nested => is_nested?,
    };
    Ok(match is_nested {
        true => zarr::with_nested_chunks(zarray),
        false => zarray.into(),
    })
}

/// Returns whether the first names of an array are directories of chunks, and none is a chunk of `flat`.
async fn has_nested_keys(
    store: &dyn Store,
    array: &Key,
    [flat, nested]: &[ChunkNames; 2],
) -> Result<bool, StoreError> {
    let (mut is_flat, mut is_nested, mut count) = (false, false, 0);
    let mut listing = store.list(array).await?;
    let mut cookie = 0;
    loop {
        let visited = listing.visit_names(
            cookie,
            &mut |Listed {
                      name, kind, next, ..
                  }| {
                cookie = next;
                count += 1;
                match kind {
                    Kind::Object => is_flat |= flat.find_path(name).is_some(),
                    Kind::Prefix => is_nested |= nested.find_path(name).is_some(),
                }
                match is_flat || count == MAX_NAMES {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        )?;
        match visited {
            Visited::Pending if !is_flat && count < MAX_NAMES => listing.load().await?,
            _ => return Ok(is_nested && !is_flat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;
    use crate::zarr::Array;

    const ZARRAY: &str = r#" {"zarr_format":2,"shape":[20,30],"chunks":[10,10],"dtype":"<i2",
        "compressor":null,"fill_value":NaN,"order":"C","filters":null}"#;

    /// Returns the key of the last chunk of an array that has these keys.
    fn last_chunk(zarray: &str, keys: &[&str]) -> String {
        let key = |name: &str| Key::new(name.as_bytes()).unwrap();
        let values = keys.iter().map(|name| (key(name), vec![0]));
        let store = MemoryStore::new(values);
        let text = block_on(with_separator(&store, &key("a"), zarray.as_bytes())).unwrap();
        let array = Array::from_v2(&text, None).unwrap();
        array.chunk_keys.unwrap().encode(&[1, 2])
    }

    #[test]
    fn keys_decide_if_the_document_has_no_separator() {
        assert_eq!(last_chunk(ZARRAY, &["a/.zarray", "a/0/1"]), "1/2");
        assert_eq!(last_chunk(ZARRAY, &["a/.zarray", "a/1/0"]), "1/2");
        assert_eq!(last_chunk(ZARRAY, &["a/0/1", "a/1.1"]), "1.2");
        for other in ["a/0.1", "a/2/0", "a/x/0", "a/00/0", "a/0", "b/0/1"] {
            assert_eq!(last_chunk(ZARRAY, &[other]), "1.2", "{other}");
        }
    }

    #[test]
    fn a_separator_in_the_document_decides_alone() {
        for (separator, expected) in [(".", "1.2"), ("/", "1/2")] {
            let member = format!("{{\"dimension_separator\":\"{separator}\",");
            let zarray = ZARRAY.replacen('{', &member, 1);
            assert_eq!(last_chunk(&zarray, &["a/0/1"]), expected);
        }
    }
}
