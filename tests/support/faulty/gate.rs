//! Gates: requests wait until a test opens the gate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::rules::is_like;
use super::{TICK, lock};

#[derive(Debug)]
struct State {
    pattern: String,
    is_open: AtomicBool,
    held: AtomicUsize,
}

/// A gate that holds requests until it is opened or dropped.
#[derive(Debug)]
#[must_use = "a gate that is dropped is open"]
pub struct Gate(Arc<State>);

impl Gate {
    /// Returns the number of waiting requests. A request whose client has disconnected no longer waits.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests wait, and fails if they do not come.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        let came = self.came(count, Duration::from_secs(10));
        assert!(came, "{} of {count} requests came", self.held());
    }

    /// Waits for at most `limit` until `count` requests wait. Returns whether they do.
    pub fn came(&self, count: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.held() < count {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }

    /// Releases all requests, and all later ones.
    pub fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.is_open.store(true, Ordering::SeqCst);
    }
}

/// All gates of a server.
#[derive(Debug, Default)]
pub struct Gates(Mutex<Vec<Arc<State>>>);

impl Gates {
    pub fn add(&self, pattern: &str) -> Gate {
        let state = Arc::new(State {
            pattern: pattern.to_owned(),
            is_open: AtomicBool::new(false),
            held: AtomicUsize::new(0),
        });
        lock(&self.0).push(Arc::clone(&state));
        Gate(state)
    }

    /// Waits until no gate holds this key; `false` if the client disconnects first.
    pub fn pass(&self, key: &str, is_there: impl Fn() -> bool) -> bool {
        let mut gates = lock(&self.0).clone();
        gates.retain(|gate| is_like(&gate.pattern, key));
        for gate in gates {
            gate.held.fetch_add(1, Ordering::SeqCst);
            let mut stays = true;
            while stays && !gate.is_open.load(Ordering::SeqCst) {
                std::thread::sleep(TICK);
                stays = is_there();
            }
            gate.held.fetch_sub(1, Ordering::SeqCst);
            if !stays {
                return false;
            }
        }
        true
    }
}
