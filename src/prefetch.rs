//! Prefetches the keys of a remote store that a program will open next.
//!
//! A tree has one [`KeyReadahead`] for values, and one for attributes if the store cannot list them. It tells each of
//! them which keys are opened or looked up, and which directories. The readahead asks [`KeyOrders`] whether the last
//! keys follow each other in an order of their directories: as listed, by name, by inode number or by the numbers in
//! names. If they do, it starts a stream, which asks the store to prefetch the next keys of that order
//! ([`Store::prefetch`](crate::store::Store::prefetch)). A stream that is not continued ends and cancels its requests.
//!
//! A prefetch puts bytes into the caches of the store, and nothing else. A wrong order costs requests; it never
//! changes a reply. The readahead within one array or one object is `array::readahead` and `store::readahead`.

mod key_order;
mod key_readahead;

pub use key_order::{FileNumbers, KeyOrders};
pub use key_readahead::KeyReadahead;

/// Numbers against the order of the listing.
#[cfg(test)]
#[derive(Debug)]
struct Backwards;

#[cfg(test)]
impl FileNumbers for Backwards {
    fn listed(
        &self,
        _prefix: &crate::store::Key,
        listed: &crate::store::Listed<'_>,
    ) -> Option<u64> {
        Some(u64::MAX - listed.next)
    }
}
