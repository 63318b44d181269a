//! Lists names below a prefix, and processes several keys concurrently.

use std::future::Future;
use std::ops::ControlFlow;

use futures_util::stream::{self, StreamExt};

use super::{Key, Kind, Listed, Listing, Store, StoreError, Visit, Visited};

impl Listed<'_> {
    /// Whether this is a prefix below the listed one, not `.` or `..`.
    pub fn is_below(&self) -> bool {
        self.kind == Kind::Prefix && !matches!(self.name, b"." | b"..")
    }
}

/// Visits all names of a listing, loading more while `visit` continues.
///
/// # Errors
/// Errors of the listing.
pub async fn visit_all(
    listing: &mut dyn Listing,
    visit: &mut (dyn FnMut(Listed<'_>) -> ControlFlow<()> + Send),
) -> Result<(), StoreError> {
    let mut cookie = 0;
    loop {
        let visited = {
            let start = cookie;
            let counted: &mut Visit<'_> = &mut |listed| {
                let next = listed.next;
                let flow = visit(listed);
                if flow.is_continue() {
                    cookie = next;
                }
                flow
            };
            listing.visit_names(start, counted)?
        };
        match visited {
            Visited::Pending => listing.load().await?,
            Visited::Stopped | Visited::End => return Ok(()),
        }
    }
}

/// Returns the sorted names of the prefixes directly below a key: all of them, or `most` + 1 if there are
/// more than `most`.
///
/// # Errors
/// Errors of the store.
pub async fn list_prefixes(
    store: &dyn Store,
    key: &Key,
    most: usize,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut names = Vec::new();
    let mut listing = store.list(key).await?;
    visit_all(&mut *listing, &mut |listed| {
        if listed.is_below() {
            names.push(listed.name.to_vec());
        }
        match names.len() > most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
    .await?;
    names.sort();
    Ok(names)
}

/// Number of futures that [`map_concurrent`] polls at a time.
const MAX_CONCURRENT: usize = 8;

/// Applies `load` to `items` with bounded concurrency; the results are in the order of the items.
pub async fn map_concurrent<T, R, F>(
    items: impl IntoIterator<Item = T>,
    load: impl FnMut(T) -> F,
) -> Vec<R>
where
    F: Future<Output = R>,
{
    let loads = stream::iter(items).map(load);
    loads.buffered(MAX_CONCURRENT).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;
    use std::sync::Arc;
    use tokio::sync::Barrier;

    #[test]
    fn prefixes_are_sorted_and_no_more_than_wanted_are_read() {
        let keys = ["g/c/0", "g/a/0", "g/b/0/1", "g/x", "h/0"];
        let key = |key: &str| Key::new(key.as_bytes()).unwrap();
        let store = MemoryStore::new(keys.map(|name| (key(name), Vec::new())));
        let below = |most| block_on(list_prefixes(&store, &key("g"), most)).unwrap();
        assert_eq!(below(3), [b"a", b"b", b"c"]);
        assert_eq!(below(1).len(), 2);
    }

    #[test]
    fn loads_run_at_the_same_time_and_results_keep_their_order() {
        let all = Arc::new(Barrier::new(4));
        let loaded = map_concurrent([1, 2, 3, 4], |item| {
            let all = Arc::clone(&all);
            async move {
                // No load completes before all have started.
                all.wait().await;
                item * 10
            }
        });
        assert_eq!(block_on(loaded), [10, 20, 30, 40]);
    }
}
