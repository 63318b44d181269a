//! A source that is one zip archive, which is written anew after each change of its content.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::content::{Array, ArrayState};
use crate::clock;
use crate::runtime;
use crate::runtime::simulated::below;
use crate::store::ZipBuilder;
use crate::store::simulated::{History, SimulatedServer, Tags};
use crate::sync::Mutex;

/// A version of the archive.
#[derive(Debug)]
pub(super) struct Published {
    /// The entity tag of the server.
    etag: String,
    since: Duration,
    /// Whether all of it was uploaded.
    is_whole: bool,
    /// The keys in it.
    pub(super) keys: History,
    arrays: [ArrayState; 3],
}

/// The writer of the archive.
#[derive(Debug)]
pub(super) struct ArchiveWriter {
    server: Arc<SimulatedServer>,
    /// The content of the next version.
    staged: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    published: Mutex<Vec<Arc<Published>>>,
}

/// The key of the archive on the server.
pub(super) const ARCHIVE: &str = "";

impl Published {
    /// Returns the elements of an array; `None` if it does not exist.
    pub(super) fn elements(&self, array: Array) -> Option<Vec<u8>> {
        self.arrays[array.number as usize].elements(array, &self.keys)
    }
}

fn now() -> Duration {
    clock::virtual_now().unwrap_or_default()
}

fn some_bytes(most: u64) -> Vec<u8> {
    vec![0xc5; usize::try_from(below(most + 1)).expect("short")]
}

impl ArchiveWriter {
    pub(super) fn new(server: &Arc<SimulatedServer>) -> Self {
        Self {
            server: Arc::clone(server),
            staged: Mutex::default(),
            published: Mutex::default(),
        }
    }

    /// Changes a key in the next version.
    pub(super) fn stage(&self, key: &str, bytes: Option<Vec<u8>>) {
        let mut staged = self.staged.lock();
        match bytes {
            Some(bytes) => drop(staged.insert(key.to_owned(), Arc::new(bytes))),
            None => drop(staged.remove(key)),
        }
    }

    /// Returns the version with an entity tag.
    pub(super) fn version(&self, etag: &str) -> Option<Arc<Published>> {
        let published = self.published.lock();
        published.iter().find(|own| own.etag == etag).cloned()
    }

    /// Returns whether a part of the archive was all that was there at some moment since `from`.
    pub(super) fn was_cut(&self, from: Duration) -> bool {
        let published = self.published.lock();
        let ends = published.iter().skip(1).map(|next| next.since);
        let mut versions = published.iter().zip(ends.chain([Duration::MAX]));
        versions.any(|(version, end)| !version.is_whole && end >= from)
    }

    /// Writes the archive.
    pub(super) fn publish_now(&self, arrays: [ArrayState; 3]) {
        let bytes = self.archive();
        self.put((bytes, true), arrays);
    }

    /// Replaces the archive: at once, by an upload that shows its beginning first, or after the old one was removed.
    pub(super) async fn publish(&self, arrays: [ArrayState; 3]) {
        let bytes = self.archive();
        match below(6) {
            0 => {
                let length = usize::try_from(below(bytes.len() as u64)).expect("in memory");
                self.wait_for_another_time().await;
                self.put((bytes[..length].to_vec(), false), arrays);
                runtime::sleep(Duration::from_millis(below(2000))).await;
            }
            1 => {
                self.server.write(ARCHIVE, None);
                runtime::sleep(Duration::from_millis(below(2000))).await;
            }
            _ => {}
        }
        self.wait_for_another_time().await;
        self.put((bytes, true), arrays);
    }

    /// Waits until a version has another time than the one before, if nothing else tells them apart.
    async fn wait_for_another_time(&self) {
        let last = self.published.lock().last().map(|last| last.since);
        let last = last.filter(|last| last.as_secs() >= now().as_secs());
        if self.server.tags() == Tags::None && last.is_some() {
            let subsecond = Duration::from_nanos(now().subsec_nanos().into());
            runtime::sleep(Duration::from_secs(1) - subsecond).await;
        }
    }

    fn put(&self, (bytes, is_whole): (Vec<u8>, bool), arrays: [ArrayState; 3]) {
        self.server.write(ARCHIVE, Some(bytes));
        let present = |history: &History| history.present(ARCHIVE).map(|own| own.etag.clone());
        let staged = self.staged.lock();
        let values = staged
            .iter()
            .map(|(key, bytes)| (key.clone(), Arc::clone(bytes)));
        let published = Published {
            etag: self.server.history(present).unwrap_or_default(),
            since: now(),
            is_whole,
            keys: History::of_values(values),
            arrays,
        };
        self.published.lock().push(Arc::new(published));
    }

    /// Returns an archive of what is staged, as one of many writers would write it.
    fn archive(&self) -> Vec<u8> {
        let mut builder = ZipBuilder {
            zip64: below(4) == 0,
            ..ZipBuilder::default()
        };
        if !builder.zip64 && below(4) == 0 {
            builder.prefix = some_bytes(3000);
        }
        if below(4) == 0 {
            builder.comment = some_bytes(3000);
        }
        builder.extra = usize::try_from(below(2) * below(400)).expect("short");
        let staged = self.staged.lock();
        for (key, bytes) in &*staged {
            builder.add(key.clone(), bytes.to_vec(), below(2) == 0);
        }
        let first = usize::try_from(below(builder.entries.len() as u64)).expect("in memory");
        builder.entries.rotate_left(first);
        builder.make().0
    }
}
