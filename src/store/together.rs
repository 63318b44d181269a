//! Questions that are asked at the same time.

use std::panic::resume_unwind;
use std::thread;

use super::{Key, Store, may_wait};

/// Asks about each of `items`, in their order: all at the same time where asking takes a network
/// and this thread may wait for it, else each when its answer is taken.
pub fn map_concurrent<'a, T, R>(
    store: &dyn Store,
    key: &Key,
    items: &'a [T],
    ask: impl Fn(&'a T) -> R + Sync + 'a,
) -> Box<dyn Iterator<Item = R> + 'a>
where
    T: Sync,
    R: Send + 'a,
{
    let (Some((last, others)), true, true) = (
        items.split_last(),
        store.capabilities().is_remote,
        may_wait(key).is_ok(),
    ) else {
        return Box::new(items.iter().map(ask));
    };
    let answers = thread::scope(|scope| {
        let ask = &ask;
        let asking: Vec<_> = others
            .iter()
            .map(|item| {
                let thread = thread::Builder::new().name("names".into());
                (item, thread.spawn_scoped(scope, move || ask(item)))
            })
            .collect();
        let last = ask(last);
        let mut answers: Vec<R> = asking
            .into_iter()
            .map(|(item, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // No thread is to be had.
                Err(_) => ask(item),
            })
            .collect();
        answers.push(last);
        answers
    });
    Box::new(answers.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    use crate::store::{
        Capabilities, Extent, Listing, ListingSupport, MemoryStore, Object, Stat, StoreError,
        never_waiting,
    };

    #[derive(Debug)]
    struct Far(MemoryStore);

    impl Store for Far {
        fn label(&self) -> &str {
            "far"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                immutable: false,
                open_infallible: false,
                is_remote: true,
                listing: ListingSupport::Complete,
            }
        }

        fn extent(&self) -> Extent {
            self.0.extent()
        }

        fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
            self.0.stat(key)
        }

        fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
            self.0.open(key)
        }

        fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
            self.0.list(prefix)
        }
    }

    #[test]
    fn a_far_store_is_asked_at_the_same_time_and_answers_in_order() {
        let far = Far(MemoryStore::default());
        let all = Barrier::new(4);
        let answers = map_concurrent(&far, &Key::root(), &[1, 2, 3, 4], |item| {
            // Nobody goes on before all are here.
            all.wait();
            item * 10
        });
        assert_eq!(answers.collect::<Vec<_>>(), [10, 20, 30, 40]);
        let none = map_concurrent(&far, &Key::root(), &[0; 0], |item| *item);
        assert_eq!(none.count(), 0);
    }

    #[test]
    fn who_does_not_wait_and_who_is_near_asks_only_for_what_is_taken() {
        let asked = AtomicUsize::new(0);
        let ask = |item: &i32| {
            asked.fetch_add(1, Ordering::Relaxed);
            *item
        };
        let key = Key::root();
        let near = MemoryStore::default();
        assert_eq!(map_concurrent(&near, &key, &[1, 2, 3], ask).next(), Some(1));
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
        let far = Far(near);
        let caller = thread::current().id();
        let first = never_waiting(|| {
            let on = |item: &i32| (ask(item), thread::current().id());
            map_concurrent(&far, &key, &[1, 2, 3], on).next()
        });
        assert_eq!(first, Some((1, caller)));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
