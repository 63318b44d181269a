//! The body of a response, of which readers may have the first bytes before the last ones have arrived.

use std::collections::TryReserveError;
use std::ops::Range;

use tokio::sync::oneshot;

use super::Meta;
use super::body::Body;
use crate::store::ReadBuffer;
use crate::sync::Mutex;

/// The bytes that one request has received so far.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Arrival(Mutex<Arrived>);

#[derive(Debug, Default)]
struct Arrived {
    bytes: Body,
    /// The version whose bytes these are, from its first one on; `None` if they are not for readers.
    version: Option<Meta>,
    /// Readers, and the number of bytes that each needs.
    waiting: Vec<(usize, oneshot::Sender<()>)>,
}

impl Arrival {
    /// Begins a body. Readers may have its bytes if they are those of `version`, from its first one on.
    pub(in crate::store::remote) fn begin(&self, bytes: Body, version: Option<&Meta>) {
        let mut arrived = self.0.lock();
        arrived.bytes = bytes;
        arrived.version = version.cloned();
    }

    /// Allocates memory for the first bytes; see [`Body::try_reserve`].
    pub(in crate::store::remote) fn reserve(&self, bytes: usize) -> Result<(), TryReserveError> {
        self.0.lock().bytes.try_reserve(bytes)
    }

    /// Appends bytes, and wakes the readers that need no more; see [`Body::try_extend`].
    pub(in crate::store::remote) fn extend(&self, bytes: &[u8]) -> Result<(), TryReserveError> {
        let mut arrived = self.0.lock();
        arrived.bytes.try_extend(bytes)?;
        let length = arrived.bytes.len();
        for (_, reader) in arrived.waiting.extract_if(.., |(end, _)| *end <= length) {
            // A reader that is gone needs nothing.
            let _ = reader.send(());
        }
        Ok(())
    }

    /// Returns the number of bytes that have arrived.
    pub(in crate::store::remote) fn len(&self) -> usize {
        self.0.lock().bytes.len()
    }

    /// Ends the body and returns it. Readers wait no longer for a part of it.
    pub(in crate::store::remote) fn take(&self) -> Body {
        std::mem::take(&mut *self.0.lock()).bytes
    }

    /// Waits until `end` bytes have arrived, or the body has ended, and returns a copy of a range of them. `None` if
    /// the range of this version has not arrived by then, or if memory for the copy cannot be allocated.
    pub(in crate::store::remote) async fn read(
        &self,
        version: &Meta,
        range: Range<usize>,
    ) -> Option<ReadBuffer> {
        if let Some(ready) = self.wait(range.end) {
            ready.await.ok()?;
        }
        self.copy(version, range)
    }

    /// Returns a copy of a range of a version, if it has arrived and memory for it can be allocated.
    pub(in crate::store::remote) fn copy(
        &self,
        version: &Meta,
        range: Range<usize>,
    ) -> Option<ReadBuffer> {
        let arrived = self.0.lock();
        if !arrived.version.as_ref()?.is_same(version) {
            return None;
        }
        let own = arrived.bytes.first_piece().get(range)?;
        let mut copy = ReadBuffer::new(own.len())?;
        copy.copy_from_slice(own);
        Some(copy)
    }

    /// Returns what is ready once `end` bytes have arrived; `None` if they have.
    fn wait(&self, end: usize) -> Option<oneshot::Receiver<()>> {
        let mut arrived = self.0.lock();
        if arrived.bytes.len() >= end {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        arrived.waiting.push((end, sender));
        Some(receiver)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{join, join_all};

    use super::*;
    use crate::runtime::block_on;

    fn meta(etag: &str) -> Meta {
        Meta {
            size_bytes: 100,
            etag: Some(etag.into()),
            modified: None,
        }
    }

    #[test]
    fn a_reader_has_its_bytes_as_soon_as_they_have_arrived() {
        let arrival = Arrival::default();
        let bytes: Vec<u8> = (0..100).collect();
        let (own, other) = (meta("\"a\""), meta("\"b\""));
        let reads = join_all([
            arrival.read(&own, 0..10),
            arrival.read(&own, 5..60),
            arrival.read(&other, 0..10),
            arrival.read(&own, 90..100),
        ]);
        let arrive = async {
            arrival.begin(Body::new(0), Some(&own));
            for part in bytes[..60].chunks(7) {
                arrival.extend(part).unwrap();
            }
            assert_eq!(arrival.0.lock().waiting.len(), 1, "only the last one waits");
            assert_eq!(
                arrival.read(&own, 3..50).await.as_deref(),
                Some(&bytes[3..50])
            );
            assert_eq!(arrival.len(), 60);
        };
        let end = async {
            arrive.await;
            // The woken readers copy before the body ends.
            tokio::task::yield_now().await;
            assert_eq!(arrival.take().into_bytes(), bytes[..60]);
        };
        let (read, ()) = block_on(join(reads, end));
        let read: Vec<_> = read.iter().map(Option::as_deref).collect();
        assert_eq!(read, [Some(&bytes[..10]), Some(&bytes[5..60]), None, None]);
        assert_eq!(arrival.len(), 0);
    }

    #[test]
    fn bytes_of_an_unknown_version_are_not_read() {
        let arrival = Arrival::default();
        arrival.begin(Body::new(0), None);
        arrival.extend(&[1; 20]).unwrap();
        assert!(block_on(arrival.read(&meta("\"a\""), 0..10)).is_none());
    }
}
