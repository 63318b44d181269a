//! Asks the daemons of several mounts at the same time: one that hangs must not delay the answers of the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The largest number of daemons that are asked at the same time. Each has a child process.
const MAX_THREADS: usize = 32;

/// Returns the result of `ask` for each mount, in their order.
pub(super) fn ask_all<T: Sync, R: Send>(mounts: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(mount) = mounts.get(place) else {
                return found;
            };
            found.push((place, ask(mount)));
        }
    };
    let mut found: Vec<(usize, R)> = thread::scope(|scope| {
        let threads = mounts.len().min(MAX_THREADS);
        let threads: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut found = work();
        for thread in threads {
            match thread.join() {
                Ok(more) => found.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_are_asked_at_the_same_time_and_results_have_their_order() {
        let mounts: Vec<u32> = (0..20).collect();
        let all = Barrier::new(mounts.len());
        let found = ask_all(&mounts, |mount| {
            // One after another, they would wait for ever.
            all.wait();
            mount * 2
        });
        assert_eq!(found, (0..20).map(|mount| mount * 2).collect::<Vec<_>>());
        let many: Vec<usize> = (0..1000).collect();
        assert_eq!(ask_all(&many, |mount| *mount), many);
        assert!(ask_all(&[0; 0], |mount: &u32| *mount).is_empty());
    }
}
