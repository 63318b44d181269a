//! A global allocator that records the largest single allocation of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static BIGGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    // A thread that is ending no longer has the cell, and nothing to measure.
    let _ = BIGGEST.try_with(|biggest| biggest.set(biggest.get().max(size)));
}

// SAFETY: every call is handed on to the system's allocator unchanged; noting a size neither
// allocates (the cell is constant-initialised and has no destructor) nor unwinds.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work`. Returns the largest single allocation that this thread requested meanwhile, in bytes.
pub fn biggest_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    BIGGEST.set(0);
    let result = work();
    (result, BIGGEST.get())
}

/// Returns the largest permitted allocation during the open and the listing of an archive, in bytes.
pub fn allowed(archive_bytes: usize) -> usize {
    archive_bytes * 1100 + (16 << 20)
}

#[test]
fn the_counting_allocator_counts() {
    let (vector, biggest) = biggest_during(|| vec![1_u8; 12_345]);
    assert_eq!(vector.len(), 12_345);
    assert_eq!(biggest, 12_345);
    let (_, biggest) = biggest_during(|| Vec::<u8>::new().try_reserve(1 << 50));
    assert_eq!(biggest, 1 << 50);
}
