//! A stream of zlib whose length follows from the maximum length of its content (RFC 1950, RFC 1951).
//!
//! The content is in stored blocks. What it lacks to its maximum length is filled with blocks without content.

use simd_adler32::Adler32;

/// The maximum length of a stored block.
const MAX_STORED_BYTES: usize = u16::MAX as usize;
/// The length of the header of a stored block, and of a whole one without content.
const STORED_HEADER_BYTES: usize = 5;
/// 32 KiB of window, no dictionary, the fastest compression.
const START: [u8; 2] = [0x78, 0x01];
/// One to three blocks without content with the fixed codes, the last one final: 10 bits each, and zeros.
const FIXED_BLOCKS: [&[u8]; 3] = [&[0x03, 0], &[0x02, 0x0c, 0], &[0x02, 0x08, 0x30, 0]];

/// Bytes of a sequence from an offset on, as many as fit.
#[derive(Debug)]
pub(super) struct Window<'a> {
    skip: u64,
    target: &'a mut [u8],
    filled: usize,
}

impl<'a> Window<'a> {
    /// Returns a window that begins `skip` bytes after the start of the sequence.
    pub(super) fn new(skip: u64, target: &'a mut [u8]) -> Self {
        Self {
            skip,
            target,
            filled: 0,
        }
    }

    /// Adds the next bytes of the sequence.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.skip)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.skip -= skipped as u64;
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let free = self.target.get_mut(self.filled..).unwrap_or_default();
        let length = bytes.len().min(free.len());
        if let (Some(free), Some(bytes)) = (free.get_mut(..length), bytes.get(..length)) {
            free.copy_from_slice(bytes);
        }
        self.filled += length;
    }

    /// Returns the number of bytes that are filled.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }
}

/// Returns the length of the stream of a content of this length, if no other content is longer.
pub(super) fn stream_bytes(content: u64) -> Option<u64> {
    let blocks = content.div_ceil(MAX_STORED_BYTES as u64).max(1);
    let headers = blocks.checked_mul(STORED_HEADER_BYTES as u64)?;
    content
        .checked_add(headers)?
        .checked_add(START.len() as u64 + 4)
}

/// Adds the stream of a content, which has this length. `None` if the content is too long for it.
pub(super) fn push_stream(content: &[u8], size_bytes: u64, window: &mut Window<'_>) -> Option<()> {
    let lacking = size_bytes.checked_sub(stream_bytes(content.len() as u64)?)?;
    let (stored, rest) = (
        lacking / STORED_HEADER_BYTES as u64,
        lacking % STORED_HEADER_BYTES as u64,
    );
    window.push(&START);
    let last = content.len().div_ceil(MAX_STORED_BYTES).saturating_sub(1);
    for (number, part) in content.chunks(MAX_STORED_BYTES).enumerate() {
        let is_final = number == last && lacking <= 1;
        match (number, rest) {
            // A fixed block, whose last two bits are in the byte that begins the stored one.
            (0, 1) => window.push(&[0x02, u8::from(is_final) << 2]),
            _ => window.push(&[is_final.into()]),
        }
        push_length(part, window);
        window.push(part);
    }
    for number in 1..=stored {
        let is_final = number == stored && rest <= 1;
        window.push(&[is_final.into()]);
        push_length(&[], window);
    }
    if let Some(index) = rest.checked_sub(2) {
        window.push(FIXED_BLOCKS.get(usize::try_from(index).ok()?)?);
    }
    let mut sum = Adler32::new();
    sum.write(content);
    window.push(&sum.finish().to_be_bytes());
    Some(())
}

/// Adds the length of a stored block and its complement.
fn push_length(part: &[u8], window: &mut Window<'_>) {
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    window.push(&length.to_le_bytes());
    window.push(&(!length).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    fn stream(content: &[u8], size: u64) -> Vec<u8> {
        let mut target = vec![0xaa; usize::try_from(size).unwrap() + 1];
        let mut window = Window::new(0, &mut target);
        push_stream(content, size, &mut window).unwrap();
        let filled = window.filled();
        target.truncate(filled);
        target
    }

    #[test]
    fn streams_have_the_same_length_and_decode_to_their_content() {
        for most in [30, 65535, 65546, 131_080] {
            let whole: Vec<u8> = (0..=250).cycle().take(most).collect();
            let size = stream_bytes(most as u64).unwrap();
            for lacking in 0..30 {
                let content = &whole[..most - lacking];
                let stream = stream(content, size);
                assert_eq!(stream.len() as u64, size, "{most} - {lacking}");
                let mut decoder = ZlibDecoder::new(&stream[..]);
                let mut found = Vec::new();
                decoder.read_to_end(&mut found).unwrap();
                assert!(found == content, "{most} - {lacking}");
                assert_eq!(decoder.total_in(), size);
            }
            assert!(stream(&whole, size).starts_with(&[0x78, 1]));
        }
        let mut none = [];
        let mut window = Window::new(0, &mut none);
        assert_eq!(push_stream(&[0; 9], 19, &mut window), None);
    }

    #[test]
    fn windows_have_each_part_of_a_stream() {
        let content = [7; 40];
        let size = stream_bytes(47).unwrap();
        let whole = stream(&content, size);
        for start in 0..whole.len() {
            for end in start..=whole.len() {
                let mut target = vec![0; end - start];
                let mut window = Window::new(start as u64, &mut target);
                push_stream(&content, size, &mut window).unwrap();
                assert_eq!(window.filled(), end - start);
                assert_eq!(target, whole[start..end]);
            }
        }
    }
}
