//! A global allocator whose n-th large allocation fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The size in bytes from which an allocation is large.
pub const LARGE_BYTES: usize = 64 << 10;

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Whether large allocations are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// The number of large allocations since [`fail`].
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The number of the allocation that fails, from 1.
static FAILS: AtomicU64 = AtomicU64::new(0);
/// Whether the stack of the allocation that fails is printed.
static IS_TRACED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread prints a stack, whose own allocations are not counted.
    static IS_PRINTING: Cell<bool> = const { Cell::new(false) };
}

/// Makes the n-th large allocation from now on fail, of all threads of the process.
pub fn fail(n: u64, is_traced: bool) {
    IS_TRACED.store(is_traced, Relaxed);
    FAILS.store(n, Relaxed);
    COUNT.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
}

/// Ends the failures; returns the number of large allocations since [`fail`].
pub fn end() -> u64 {
    COUNTS.store(false, Relaxed);
    COUNT.load(Relaxed)
}

fn is_refused(size: usize) -> bool {
    if size < LARGE_BYTES || !COUNTS.load(Relaxed) {
        return false;
    }
    // A thread that is ending no longer has the cell.
    if IS_PRINTING.try_with(Cell::get).unwrap_or(true) {
        return false;
    }
    let is_refused = COUNT.fetch_add(1, Relaxed) + 1 == FAILS.load(Relaxed);
    if is_refused && IS_TRACED.load(Relaxed) {
        IS_PRINTING.set(true);
        eprintln!("refused {size} bytes to\n{}", Backtrace::force_capture());
        IS_PRINTING.set(false);
    }
    is_refused
}

// SAFETY: every call is passed to the system's allocator unchanged, or returns null, as an allocator may. Printing a
// stack allocates, but not recursively, and does not unwind.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_refused(layout.size()) {
            true => null_mut(),
            // SAFETY: the caller keeps the contract of `alloc`.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_refused(layout.size()) {
            true => null_mut(),
            // SAFETY: the caller keeps the contract of `alloc_zeroed`.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match is_refused(new_size) {
            true => null_mut(),
            // SAFETY: the caller keeps the contract of `realloc`.
            false => unsafe { System.realloc(pointer, layout, new_size) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn the_chosen_large_allocation_fails_and_no_other() {
    let _alone = crate::alone();
    fail(2, false);
    let reserve = |bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    let found = [LARGE_BYTES, 10, LARGE_BYTES, LARGE_BYTES].map(reserve);
    assert_eq!(end(), 3);
    assert_eq!(found, [true, true, false, true]);
}
