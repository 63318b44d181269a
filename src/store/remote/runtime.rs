//! The threads that talk to the network, and how a thread that may wait gets their answers.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

/// Threads that move bytes between sockets and memory.
const NETWORK_THREADS: usize = 2;
/// Threads that fetch ahead of readers.
const AHEAD_THREADS: usize = 32;

/// Runs requests until it is dropped.
#[derive(Debug)]
pub(super) struct Network(Option<Runtime>);

impl Network {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .max_blocking_threads(AHEAD_THREADS)
            .thread_name("zarrfs-net")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn runtime(&self) -> &Runtime {
        // It is taken only when this is dropped.
        match &self.0 {
            Some(runtime) => runtime,
            None => unreachable!("the network has ended"),
        }
    }

    /// Waits on this thread for the answer to a request.
    pub(super) fn wait<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime().block_on(request)
    }

    /// Has something done by a thread that may wait.
    pub(super) fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        drop(self.runtime().spawn_blocking(job));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Requests that nobody waits for are given up.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
