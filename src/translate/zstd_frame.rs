//! Zstandard frames with the content size in the header (RFC 8878, 3.1.1). Streaming encoders omit
//! the size, and numcodecs before 0.16 cannot decode a frame without it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::store::{
    Data, Key, Kind, LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError, Version,
    in_memory, part_mut, read_into,
};

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// The size of magic number, descriptor, window descriptor and dictionary ID, in bytes.
const MAX_HEADER_BYTES: usize = 10;
/// The largest number of blocks; longer frames are unchanged. With blocks of 128 KiB, this is 8 GiB.
const MAX_BLOCKS: usize = 1 << 16;

/// Returns a chunk as one frame whose header has `content_bytes`. A chunk that is not a single
/// frame, or whose header has a size, is unchanged.
///
/// # Errors
/// The errors of reading the headers of the frame and its blocks.
pub(super) async fn with_content_size(
    object: Arc<dyn Object>,
    key: &Key,
    content_bytes: u64,
) -> Result<Arc<dyn Object>, StoreError> {
    let length = object.size_bytes().min(MAX_HEADER_BYTES as u64);
    let mut start = [0; MAX_HEADER_BYTES];
    let start = part_mut(&mut start, 0..in_memory(length)?)?;
    read_into(&*object, key, 0, start).await?;
    let Some((header, replaced)) = header_with_size(start, content_bytes) else {
        return Ok(object);
    };
    let has_checksum = header.get(MAGIC.len()).is_some_and(|flags| flags & 4 != 0);
    if !is_only_frame(&*object, key, replaced as u64, has_checksum).await? {
        return Ok(object);
    }
    let version = Version(super::hash(&[object.version().0, content_bytes]));
    Ok(Arc::new(SizedFrame {
        object,
        header,
        replaced: replaced as u64,
        version,
    }))
}

/// Returns the frame header with the size, and the length of the header that it replaces. `None` if
/// the bytes do not begin with a frame header without a size.
fn header_with_size(bytes: &[u8], content_bytes: u64) -> Option<(Vec<u8>, usize)> {
    let (descriptor, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
    // Two bits for the width of the size, one for a frame without a window descriptor, and one reserved bit.
    if descriptor & 0b1110_1000 != 0 {
        return None;
    }
    let dictionary_bytes = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let rest = rest.get(..1 + dictionary_bytes)?;
    let mut header = MAGIC.to_vec();
    match u32::try_from(content_bytes) {
        Ok(size) => {
            header.push(descriptor | 2 << 6);
            header.extend(rest);
            header.extend(size.to_le_bytes());
        }
        Err(_) => {
            header.push(descriptor | 3 << 6);
            header.extend(rest);
            header.extend(content_bytes.to_le_bytes());
        }
    }
    Some((header, MAGIC.len() + 1 + rest.len()))
}

/// Returns whether the frame whose blocks begin at `at` ends at the end of the chunk.
async fn is_only_frame(
    object: &dyn Object,
    key: &Key,
    mut at: u64,
    has_checksum: bool,
) -> Result<bool, StoreError> {
    let end = object.size_bytes();
    for _ in 0..MAX_BLOCKS {
        let mut block = [0; 4];
        let [header @ .., _] = &mut block;
        if end.saturating_sub(at) < header.len() as u64 {
            return Ok(false);
        }
        read_into(object, key, at, header).await?;
        let block = u32::from_le_bytes(block);
        let content = match block >> 1 & 3 {
            // RLE block: one byte that is repeated.
            1 => 1,
            _ => block >> 3,
        };
        at = at.saturating_add(3).saturating_add(content.into());
        if block & 1 == 1 {
            return Ok(at.saturating_add(if has_checksum { 4 } else { 0 }) == end);
        }
    }
    Ok(false)
}

/// A frame with a replaced header.
#[derive(Debug)]
struct SizedFrame {
    object: Arc<dyn Object>,
    header: Vec<u8>,
    /// The length of the replaced header in bytes.
    replaced: u64,
    version: Version,
}

impl SizedFrame {
    /// Returns the offset in the chunk of an offset behind the new header.
    fn shift(&self, at: u64) -> u64 {
        let behind = at.saturating_sub(self.header.len() as u64);
        self.replaced.saturating_add(behind)
    }

    /// Returns the part of the new header that is in a read.
    fn head(&self, offset: u64, size_bytes: usize) -> &[u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let head = self.header.get(start..).unwrap_or_default();
        head.get(..size_bytes).unwrap_or(head)
    }
}

/// Moves the data in `buffer` back and writes `head` before them.
fn prepend(head: &[u8], data: Data, buffer: &mut [u8]) -> Result<Data, StoreError> {
    let length = match data {
        Data::Filled(range) => {
            let length = range.len();
            buffer.copy_within(range, head.len());
            length
        }
        Data::Owned(..) | Data::Shared(..) => {
            let bytes = data.bytes(&[])?;
            let target = head.len()..head.len() + bytes.len();
            part_mut(buffer, target)?.copy_from_slice(bytes);
            bytes.len()
        }
    };
    part_mut(buffer, 0..head.len())?.copy_from_slice(head);
    Ok(Data::Filled(0..head.len() + length))
}

#[async_trait]
impl Object for SizedFrame {
    fn size_bytes(&self) -> u64 {
        self.object.size_bytes() - self.replaced + self.header.len() as u64
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(Stat {
            kind: Kind::Object,
            size_bytes: self.size_bytes(),
            version: self.version,
            links: 1,
            ..self.object.stat()?
        })
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let head = self.head(offset, size_bytes);
        if head.is_empty() {
            return self.object.read(self.shift(offset), size_bytes).await;
        }
        let mut bytes = head.to_vec();
        let rest = size_bytes - bytes.len();
        if rest > 0 {
            let data = self.object.read(self.replaced, rest).await?;
            bytes.extend_from_slice(data.bytes(&[])?);
        }
        let length = bytes.len();
        Ok(Data::Shared(Arc::new(bytes), 0..length))
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        self.object.as_local().map(|_| self as &dyn LocalObject)
    }

    fn is_parallel(&self) -> bool {
        self.object.is_parallel()
    }

    fn is_constant(&self) -> bool {
        self.object.is_constant()
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        let shift = |range: &Range<u64>| self.shift(range.start)..self.shift(range.end);
        let ranges: Vec<Range<u64>> = ranges.iter().map(shift).collect();
        self.object.prefetch(&ranges).await;
    }
}

impl LocalObject for SizedFrame {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        let local = self.object.as_local();
        let local =
            local.ok_or_else(|| StoreError::internal("a remote chunk is read as a local one"))?;
        let head = self.head(offset, size_bytes);
        if head.is_empty() {
            return local.read_local(self.shift(offset), size_bytes, buffer, mode);
        }
        let data = match size_bytes - head.len() {
            0 => Data::empty(),
            rest => local.read_local(self.replaced, rest, buffer, mode)?,
        };
        Ok(prepend(head, data, buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::runtime::block_on;
    use crate::store::{AccessHint, MemoryStore, Store as _, read_owned, read_to_end};

    /// Returns a frame as a streaming encoder writes it, without a size.
    fn frame(content: &[u8], has_checksum: bool) -> Vec<u8> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(has_checksum).unwrap();
        for part in content.chunks(100_000) {
            encoder.write_all(part).unwrap();
            encoder.flush().unwrap();
        }
        encoder.finish().unwrap()
    }

    fn stated_size(bytes: &[u8]) -> Option<u64> {
        zstd::zstd_safe::get_frame_content_size(bytes).unwrap()
    }

    fn object(bytes: &[u8]) -> (Arc<dyn Object>, Key) {
        let key = Key::new(b"c").unwrap();
        let store = MemoryStore::new([(key.clone(), bytes.to_vec())]);
        (block_on(store.open(&key, AccessHint::Ranges)).unwrap(), key)
    }

    #[test]
    fn only_the_content_size_is_added_to_the_frame_header() {
        let content: Vec<u8> = (0..300_000_u64)
            .map(|n| (n / 7 * n).to_le_bytes()[0])
            .collect();
        for has_checksum in [false, true] {
            let stored = frame(&content, has_checksum);
            assert_eq!(stated_size(&stored), None);
            let (object, key) = object(&stored);
            let sized = block_on(with_content_size(object, &key, content.len() as u64)).unwrap();
            let bytes = block_on(read_to_end(&*sized, &key, u64::MAX)).unwrap();
            assert_eq!(bytes.len(), stored.len() + 4);
            assert_eq!(sized.stat().unwrap().size_bytes, bytes.len() as u64);
            assert_eq!(stated_size(&bytes), Some(content.len() as u64));
            assert_eq!(
                zstd::bulk::decompress(&bytes, content.len()).unwrap(),
                content
            );
            // Reads at any offset and of any length return the same bytes.
            for offset in [0, 1, 5, 9, 10, 11, 1000, bytes.len() - 1, bytes.len()] {
                for size in [1, 4, 9, 4096, bytes.len()] {
                    let expected = &bytes[offset..bytes.len().min(offset + size)];
                    let offset = offset as u64;
                    for mode in [ReadMode::NonBlocking, ReadMode::Blocking] {
                        let local = sized.as_local().unwrap();
                        let read = read_owned(local, offset, size, mode).unwrap();
                        assert_eq!(read.bytes(&[]).unwrap(), expected);
                    }
                    let awaited = block_on(sized.read(offset, size)).unwrap();
                    assert_eq!(awaited.bytes(&[]).unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn sizes_of_more_than_four_bytes_have_eight() {
        let stored = frame(b"content", false);
        let (header, replaced) = header_with_size(&stored, 1 << 32).unwrap();
        let bytes = [&header, &stored[replaced..]].concat();
        assert_eq!(stated_size(&bytes), Some(1 << 32));
    }

    #[test]
    fn other_content_than_one_frame_without_a_size_is_unchanged() {
        let content = vec![7; 300_000];
        let sized = zstd::bulk::compress(&content, 1).unwrap();
        let one = frame(&content, false);
        let two = [one.clone(), one.clone()].concat();
        let damaged = one[..one.len() - 1].to_vec();
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], &one[..]].concat();
        for stored in [sized, two, damaged, skippable, b"no frame".to_vec(), vec![]] {
            let (object, key) = object(&stored);
            let same = block_on(with_content_size(object, &key, content.len() as u64)).unwrap();
            assert_eq!(
                block_on(read_to_end(&*same, &key, u64::MAX)).unwrap(),
                stored
            );
        }
    }
}
