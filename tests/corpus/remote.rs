//! The same archives on a server: the results must equal those of a local file.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use zarrfs::runtime::block_on;
use zarrfs::store::{
    Key, SnapshotError, SnapshotReader, Store, StoreError, ZipError, ZipOptions, ZipStore,
};

use crate::in_process::{listing, memory_file, open_file, open_object, read_to_end};

/// The size of the first request for the end of an archive, in bytes: the usual one, and one so
/// small that the rest has to be fetched.
pub const TAILS: [usize; 2] = [64 << 10, 300];
/// Of archives with more files, only some files are read.
const MANY_FILES: usize = 1000;

/// An archive on a server.
#[derive(Debug)]
struct Remote {
    content: Vec<u8>,
    requests: AtomicUsize,
}

#[async_trait]
impl SnapshotReader for Remote {
    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn modified(&self) -> SystemTime {
        // The modification time of `memory_file`.
        UNIX_EPOCH + Duration::from_secs(1_600_000_000)
    }

    async fn read_exact_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        assert_ne!(length, 0, "a request for nothing");
        self.requests.fetch_add(1, Ordering::Relaxed);
        let rest = self.content.get(offset as usize..);
        match rest.and_then(|rest| rest.get(..length)) {
            Some(bytes) => Ok(Arc::new(bytes.to_vec())),
            None => panic!("a request for {length} bytes at {offset}"),
        }
    }

    fn check(&self) -> Result<(), SnapshotError> {
        Ok(())
    }
}

/// Opens an archive as if it were on a server.
pub fn open(archive: &[u8], tail: usize, options: ZipOptions) -> Result<ZipStore, ZipError> {
    let remote = Arc::new(Remote {
        content: archive.to_vec(),
        requests: AtomicUsize::new(0),
    });
    let tail = archive[archive.len().saturating_sub(tail)..].to_vec();
    let store = ZipStore::open_remote(Arc::clone(&remote) as _, tail, "corpus", options);
    let store = block_on(store);
    let requests = remote.requests.load(Ordering::Relaxed);
    assert!(requests <= 2, "{requests} requests");
    store
}

fn read(store: &ZipStore, path: &[u8]) -> Result<Vec<u8>, StoreError> {
    let object = open_object(store, &Key::new(path).unwrap())?;
    read_to_end(object.as_ref(), 1 << 20)
}

/// Returns whether two reads have the same bytes, or both failed. Short entries have another
/// decoder, with other error messages.
fn is_same(one: &Result<Vec<u8>, StoreError>, other: &Result<Vec<u8>, StoreError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => discriminant(one) == discriminant(other),
        _ => false,
    }
}

/// Returns the differences between a remote archive and the same archive in a local file.
pub fn differences(archive: &[u8], options: ZipOptions) -> Vec<String> {
    let mut problems = Vec::new();
    let file = memory_file(archive);
    for tail in TAILS {
        let local = open_file(&file, options);
        let (local, remote) = match (local, open(archive, tail, options)) {
            (Ok(local), Ok(remote)) => (local, remote),
            (Err(local), Err(remote)) if local.to_string() == remote.to_string() => continue,
            // Fetched bytes count towards the limit too.
            (Err(ZipError::TooLarge { .. }), Err(ZipError::TooLarge { .. })) => continue,
            // For an archive that is certainly invalid, the number of further requests is limited.
            (Err(_), Err(remote)) if tail < TAILS[0] && remote.to_string().contains("strewn") => {
                continue;
            }
            (local, remote) => {
                let local = local.map(|_| ()).map_err(|e| e.to_string());
                let remote = remote.map(|_| ()).map_err(|e| e.to_string());
                problems.push(format!("tail of {tail}: {local:?}, but remote {remote:?}"));
                continue;
            }
        };
        let (listed, listed_remote) = (listing(&local), listing(&remote));
        if listed != listed_remote {
            problems.push(format!("tail of {tail}: other files are listed"));
        }
        let promised = [
            local.capabilities().open_infallible,
            remote.capabilities().open_infallible,
        ];
        if promised[0] != promised[1]
            || !remote.capabilities().is_remote
            || local.capabilities().is_remote
        {
            problems.push(format!("tail of {tail}: other capabilities"));
        }
        if tail == TAILS[0] && archive.len() > tail {
            // The same files as with the shorter tail; the table of cases reads them too.
            continue;
        }
        let step = if listed.len() > MANY_FILES { 997 } else { 1 };
        let files = listed.iter().filter(|(_, (is_directory, _))| !is_directory);
        for (path, _) in files.step_by(step) {
            let (bytes, bytes_remote) = (read(&local, path), read(&remote, path));
            if !is_same(&bytes, &bytes_remote) {
                let shown = path.escape_ascii();
                let say = |read: Result<Vec<u8>, StoreError>| read.map(|bytes| bytes.len());
                problems.push(format!(
                    "tail of {tail}, {shown}: {:?}, but remote {:?}",
                    say(bytes),
                    say(bytes_remote)
                ));
            }
        }
    }
    problems
}
