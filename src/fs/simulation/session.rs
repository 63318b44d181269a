//! Requests to a file system, sent and cancelled as by the FUSE session.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::fs::{
    Entry, EntryAttributes, Fs, FsError, Handle, Ino, Node, OpenDir, OpenedFile, Visited,
};
use crate::runtime::simulated::spawn_on_session_thread;
use crate::runtime::{caller, timeout};
use crate::tree::DirStream;

/// The time after the deadline of the store at which the session fails a request, as in `fuse::in_flight`.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How a request has ended.
#[derive(Debug)]
pub(super) enum End<T> {
    Answered(Result<T, FsError>),
    /// The session has cancelled it at its deadline.
    Late,
    /// The caller had a fatal signal.
    Interrupted,
}

/// A name in the reply to READDIR or READDIRPLUS.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) name: String,
    next: u64,
    /// The number whose lookup count the reply has incremented.
    counted: Option<Ino>,
}

/// The session of a mount.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) fs: Arc<Fs>,
    /// The deadline of the store.
    pub(super) timeout: Duration,
}

impl Session {
    /// Runs the future of a request until it is ready, its deadline has passed, or its caller is interrupted.
    async fn run<T: Send + 'static>(
        &self,
        interrupt: Option<Duration>,
        request: impl Future<Output = Result<T, FsError>> + Send + 'static,
    ) -> End<T> {
        let (sender, receiver) = oneshot::channel();
        let request = caller::on_behalf_of(caller::process().unwrap_or(0), request);
        let task = spawn_on_session_thread(async move {
            // The caller may be interrupted.
            let _ = sender.send(request.await);
        });
        let deadline = self.timeout + GRACE;
        let limit = interrupt.map_or(deadline, |interrupt| interrupt.min(deadline));
        let end = timeout(limit, receiver).await;
        // Cancels a request that is not answered.
        drop(task);
        match end {
            Some(answer) => End::Answered(answer.unwrap_or(Err(FsError::Panicked))),
            None if limit < deadline => End::Interrupted,
            None => End::Late,
        }
    }

    pub(super) async fn lookup(
        &self,
        interrupt: Option<Duration>,
        parent: Ino,
        name: &str,
    ) -> End<Node> {
        let (fs, name) = (Arc::clone(&self.fs), name.to_owned());
        let request = async move { fs.lookup(parent, name.as_bytes()).await };
        self.run(interrupt, request).await
    }

    pub(super) async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> End<Node> {
        let fs = Arc::clone(&self.fs);
        let request = async move { fs.getattr(ino, handle).await };
        self.run(None, request).await
    }

    pub(super) async fn open(&self, interrupt: Option<Duration>, ino: Ino) -> End<OpenedFile> {
        let fs = Arc::clone(&self.fs);
        self.run(interrupt, async move { fs.open(ino).await }).await
    }

    pub(super) async fn read(
        &self,
        interrupt: Option<Duration>,
        (ino, handle): (Ino, Handle),
        offset: u64,
        size: usize,
    ) -> End<Vec<u8>> {
        let fs = Arc::clone(&self.fs);
        let request = async move {
            let reader = fs.reader(ino, Some(handle), offset, size).await?;
            let data = reader.read().await?;
            Ok(data.bytes(&[])?.to_vec())
        };
        self.run(interrupt, request).await
    }

    pub(super) async fn opendir(&self, ino: Ino) -> End<Handle> {
        let fs = Arc::clone(&self.fs);
        self.run(None, async move { fs.opendir(ino).await }).await
    }

    /// Returns names from a cookie on; none at the end of the directory.
    pub(super) async fn readdir(
        &self,
        interrupt: Option<Duration>,
        (ino, handle): (Ino, Handle),
        cookie: u64,
        (most, is_plus): (usize, bool),
    ) -> End<Vec<Name>> {
        let fs = Arc::clone(&self.fs);
        let request = async move {
            let mut names = Vec::new();
            let directory: OpenDir = fs.directory(ino, Some(handle)).await?;
            let mut stream = directory.lock().await;
            loop {
                let part = (ino, cookie, most, is_plus);
                match fill(&fs, part, &mut **stream, &mut names) {
                    Ok(Visited::Pending) if names.is_empty() => stream.load().await?,
                    // The kernel requests the remaining names, and that request fails.
                    Err(_) if !names.is_empty() => return Ok(names),
                    listed => return listed.map(|_| names),
                }
            }
        };
        self.run(interrupt, request).await
    }
}

fn fill(
    fs: &Fs,
    (ino, cookie, most, is_plus): (Ino, u64, usize, bool),
    directory: &mut dyn DirStream,
    names: &mut Vec<Name>,
) -> Result<Visited, FsError> {
    let mut put = |entry: &Entry<'_>, attributes: EntryAttributes| {
        if names.len() == most {
            return ControlFlow::Break(());
        }
        names.push(Name {
            name: String::from_utf8_lossy(entry.name).into_owned(),
            next: entry.next,
            counted: attributes.counted(),
        });
        ControlFlow::Continue(())
    };
    match is_plus {
        true => fs.readdirplus(ino, directory, cookie, &mut put),
        false => fs.readdir(directory, cookie, &mut |entry| {
            put(entry, EntryAttributes::None)
        }),
    }
}

impl Name {
    /// Returns the cookie of the next name.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Decrements the lookup count that the listing has incremented.
    pub(super) fn forget(&self, fs: &Fs) {
        if let Some(ino) = self.counted {
            fs.forget(ino, 1);
        }
    }
}
