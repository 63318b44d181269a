//! Decoding into a buffer of known size. An entry is decoded whole, or, if it is a large deflated one,
//! in segments from checkpoints, so that random reads cost the same at every offset.

use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;

use flate2::Crc;
use lru::LruCache;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::index::Node;
use crate::store::{Position, StoreError, part_mut};
use crate::sync::Mutex;

/// Entries up to this size, in bytes, are decoded whole.
pub(super) const WHOLE_MAX_BYTES: u64 = 64 << 20;
/// Size of the segments of larger deflated entries, in bytes.
pub(super) const SEGMENT_BYTES: u64 = 4 << 20;
/// Longest distance of back-references in deflate, in bytes (RFC 1951).
const WINDOW_BYTES: usize = 32 << 10;
/// Number of checkpoints of one entry (about 43 KiB each), which limits their memory.
const MAX_CHECKPOINTS: u32 = 128;
/// Number of large entries whose checkpoints are kept.
const MAX_INFLATERS: usize = 16;

/// Memory could not be allocated.
#[derive(Debug)]
pub(super) struct NoMemory;

/// Resizes `bytes` to exactly `length`, without aborting if memory cannot be allocated.
pub(super) fn resize(bytes: &mut Vec<u8>, length: usize) -> Result<(), NoMemory> {
    bytes
        .try_reserve_exact(length.saturating_sub(bytes.len()))
        .map_err(|_| NoMemory)?;
    bytes.resize(length, 0);
    Ok(())
}

/// Inflates to exactly the length of `target`.
pub(super) fn deflate_exact(compressed: &[u8], target: &mut [u8]) -> Result<(), String> {
    thread_local! {
        static DECODER: RefCell<libdeflater::Decompressor> = RefCell::new(libdeflater::Decompressor::new());
    }
    let expected = target.len();
    match DECODER.with_borrow_mut(|decoder| decoder.deflate_decompress(compressed, target)) {
        Ok(n) if n == expected => Ok(()),
        Ok(n) => Err(format!("inflates to {n} bytes, {expected} declared")),
        Err(libdeflater::DecompressionError::InsufficientSpace) => Err(format!(
            "inflates to more than the {expected} bytes declared"
        )),
        Err(libdeflater::DecompressionError::BadData) => Err("bad deflate data".into()),
    }
}

/// Returns the decoded size in the header of a zstd frame.
pub(super) fn zstd_content_bytes(compressed: &[u8]) -> Option<u64> {
    zstd::zstd_safe::get_frame_content_size(compressed)
        .ok()
        .flatten()
}

/// Decodes zstd frames to exactly the length of `target`.
pub(super) fn zstd_exact(compressed: &[u8], target: &mut [u8]) -> Result<(), String> {
    thread_local! {
        static DECODER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let expected = target.len();
    let decoded = DECODER.with_borrow_mut(|decoder| {
        if decoder.is_none() {
            *decoder = Some(zstd::bulk::Decompressor::new()?);
        }
        match decoder {
            Some(decoder) => decoder.decompress_to_buffer(compressed, target),
            None => Ok(0),
        }
    });
    match decoded {
        Ok(n) if n == expected => Ok(()),
        Ok(n) => Err(format!("decodes to {n} bytes, {expected} declared")),
        Err(e) => Err(format!("bad zstd data: {e}")),
    }
}

/// Decodes zstd frames to exactly `size` bytes; memory grows with the actual output.
pub(super) fn zstd_growing(
    compressed: &[u8],
    size: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let bad = |e: std::io::Error| format!("bad zstd data: {e}");
    let decoder = zstd::stream::read::Decoder::with_buffer(compressed).map_err(bad)?;
    growing(decoder, size, bytes, bad)
}

/// Reads exactly `size` bytes, after which the decoder must end; memory grows with the actual output.
pub(super) fn growing(
    decoder: impl Read,
    size: usize,
    bytes: &mut Vec<u8>,
    bad: impl Fn(std::io::Error) -> String,
) -> Result<(), String> {
    // Reserved memory that is never written takes no physical memory.
    bytes
        .try_reserve_exact(size.saturating_add(1))
        .map_err(|_| format!("no memory for {size} bytes"))?;
    decoder
        .take((size as u64).saturating_add(1))
        .read_to_end(bytes)
        .map_err(bad)?;
    match bytes.len() {
        n if n == size => Ok(()),
        n if n > size => Err(format!("decodes to more than the {size} bytes declared")),
        n => Err(format!("decodes to {n} bytes, {size} declared")),
    }
}

/// Why a segment could not be decoded.
#[derive(Debug)]
pub(super) enum SegmentError {
    /// Compressed bytes from this offset on are not in memory; decoding continues from the checkpoint.
    NeedsInput(u64, Box<Checkpoint>),
    /// The compressed bytes could not be read.
    Store(StoreError),
    /// The compressed bytes are invalid.
    Corrupt(String),
    /// The whole entry has this checksum, which is not the expected one.
    Crc(u32),
}

/// The inflaters of the large entries that were read last.
#[derive(Debug)]
pub(super) struct Inflaters(Mutex<LruCache<Position, Arc<Mutex<Inflater>>>>);

impl Default for Inflaters {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl Inflaters {
    pub(super) fn of(&self, entry: Position) -> Arc<Mutex<Inflater>> {
        let mut inflaters = self.0.lock();
        let inflater = Arc::clone(inflaters.get_or_insert(entry, Default::default));
        if inflaters.len() > MAX_INFLATERS {
            inflaters.pop_lru();
        }
        inflater
    }
}

/// The state of the decoder at the beginning of a segment, from which decoding can continue.
#[derive(Clone, Default)]
pub(super) struct Checkpoint {
    decoder: Box<DecompressorOxide>,
    /// The last 32 KiB before the segment.
    window: Vec<u8>,
    compressed_offset: u64,
    segment: u32,
}

impl Checkpoint {
    /// The offset of the checkpoint in the compressed bytes of the entry.
    pub(super) fn compressed_offset(&self) -> u64 {
        self.compressed_offset
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoint(segment {})", self.segment)
    }
}

/// Decodes the segments of one large entry.
#[derive(Debug, Default)]
pub(super) struct Inflater {
    /// Checkpoints at regular distances, up to where the stream was decoded.
    checkpoints: Vec<Checkpoint>,
    /// The furthest checkpoint that was reached; `crc` is the checksum of all bytes before it.
    furthest: Checkpoint,
    crc: Crc,
    /// Whether all compressed bytes were fetched at once before.
    pub(super) was_fetched: bool,
}

/// Reads compressed bytes at an offset; returns how many are in memory.
pub(super) type ReadInput<'a> = dyn Fn(&mut [u8], u64) -> Result<usize, StoreError> + 'a;

impl Inflater {
    /// Decodes segment `wanted`, from `from` or else from the nearest checkpoint before it; `keep` receives
    /// every segment that is decoded on the way.
    ///
    /// When the end is reached for the first time, the checksum of the whole entry is verified.
    pub(super) fn segment(
        &mut self,
        wanted: u32,
        from: Option<Box<Checkpoint>>,
        node: &Node,
        read: &ReadInput<'_>,
        keep: &dyn Fn(u32, Arc<Vec<u8>>),
    ) -> Result<Arc<Vec<u8>>, SegmentError> {
        let segments = u32::try_from(node.size_bytes().div_ceil(SEGMENT_BYTES)).unwrap_or(u32::MAX);
        let spacing = segments.div_ceil(MAX_CHECKPOINTS).max(1);
        let mut state = match from {
            Some(state) => *state,
            None => self.nearest(wanted),
        };
        loop {
            let number = state.segment;
            let start = state.clone();
            let decoded = decode_segment(&mut state, node, read);
            let bytes = decoded.map_err(|failed| match failed {
                Stopped::NeedsInput(offset) => SegmentError::NeedsInput(offset, Box::new(start)),
                Stopped::Failed(error) => error,
            })?;
            let bytes = Arc::new(bytes);
            keep(number, Arc::clone(&bytes));
            if number == self.furthest.segment {
                self.crc.update(&bytes);
                self.furthest = state.clone();
                if state.segment % spacing == 0 {
                    self.checkpoints.push(state.clone());
                }
                if state.segment == segments && !node.verify_crc(self.crc.sum()) {
                    return Err(SegmentError::Crc(self.crc.sum()));
                }
            }
            if number == wanted {
                return Ok(bytes);
            }
        }
    }

    fn nearest(&self, wanted: u32) -> Checkpoint {
        if wanted >= self.furthest.segment {
            return self.furthest.clone();
        }
        let before = self
            .checkpoints
            .partition_point(|state| state.segment <= wanted);
        let checkpoint = before.checked_sub(1).and_then(|i| self.checkpoints.get(i));
        checkpoint.cloned().unwrap_or_default()
    }
}

/// Compressed bytes that are read at a time.
const INPUT_BYTES: usize = 256 << 10;

/// Why decoding of a segment stopped.
enum Stopped {
    NeedsInput(u64),
    Failed(SegmentError),
}

/// Decodes one segment and moves `state` to its end.
fn decode_segment(
    state: &mut Checkpoint,
    node: &Node,
    read: &ReadInput<'_>,
) -> Result<Vec<u8>, Stopped> {
    let corrupt = |what: String| Stopped::Failed(SegmentError::Corrupt(what));
    let done = u64::from(state.segment).saturating_mul(SEGMENT_BYTES);
    let left = node.size_bytes().saturating_sub(done);
    let is_last = left <= SEGMENT_BYTES;
    let size = usize::try_from(left.min(SEGMENT_BYTES)).unwrap_or(usize::MAX);
    let window = state.window.len();
    let end = window.saturating_add(size);
    // One extra byte at the end shows whether the stream ends where it should.
    let mut output = state.window.clone();
    resize(&mut output, end.saturating_add(is_last.into()))
        .map_err(|NoMemory| corrupt("no memory for a segment".into()))?;
    let mut input = vec![0; INPUT_BYTES];
    let mut at = window;
    let mut status = TINFLStatus::NeedsMoreInput;
    while status == TINFLStatus::NeedsMoreInput {
        let rest = node
            .compressed_bytes()
            .saturating_sub(state.compressed_offset);
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(INPUT_BYTES);
        let failed = |error| Stopped::Failed(SegmentError::Store(error));
        let piece = part_mut(&mut input, 0..length).map_err(failed)?;
        let length = read(piece, state.compressed_offset).map_err(failed)?;
        if length == 0 && rest > 0 {
            return Err(Stopped::NeedsInput(state.compressed_offset));
        }
        let piece = part_mut(piece, 0..length).map_err(failed)?;
        let more = if rest > length as u64 {
            TINFL_FLAG_HAS_MORE_INPUT
        } else {
            0
        };
        let flags = more | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (now, consumed, written) =
            decompress(&mut state.decoder, piece, &mut output, at, flags);
        status = now;
        at = at.saturating_add(written);
        state.compressed_offset = state.compressed_offset.saturating_add(consumed as u64);
        if consumed == 0 && written == 0 && status == TINFLStatus::NeedsMoreInput {
            break;
        }
    }
    let complete = match status {
        TINFLStatus::Done => is_last && at == end,
        TINFLStatus::HasMoreOutput => !is_last && at == end,
        _ => false,
    };
    if !complete {
        return Err(corrupt(format!(
            "bad deflate data: {status:?} at {} of {} bytes",
            done.saturating_add(at.saturating_sub(window) as u64),
            node.size_bytes()
        )));
    }
    output.truncate(end);
    state.window = output
        .get(end.saturating_sub(WINDOW_BYTES)..)
        .unwrap_or_default()
        .to_vec();
    state.segment = state.segment.saturating_add(1);
    output.drain(..window);
    output.shrink_to_fit();
    Ok(output)
}
