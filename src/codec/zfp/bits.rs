//! The bits of a zfp stream, starting with the lowest bit of the first byte.

/// Reads bits. After the end of the bytes all bits are zero, and [`BitReader::overrun_bits`] returns how many
/// of them were read.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    /// The index of the first byte that is not buffered.
    next: usize,
    /// The next bits. Bits above `buffered` are zero, or equal to the bits of the byte at `next`.
    buffer: u64,
    buffered: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(src: &'a [u8]) -> Self {
        Self {
            src,
            next: 0,
            buffer: 0,
            buffered: 0,
        }
    }

    /// Returns the number of bits before the next bit.
    pub(super) fn position(&self) -> u64 {
        (self.next as u64 * 8).saturating_sub(u64::from(self.buffered))
    }

    /// Returns the number of bits that were read or skipped after the end.
    pub(super) fn overrun_bits(&self) -> u64 {
        self.position().saturating_sub(self.src.len() as u64 * 8)
    }

    /// Skips to the end of `least` bits, of which `used` were read.
    pub(super) fn skip_to_least(&mut self, used: u64, least: u32) {
        if used < u64::from(least) {
            self.skip(u64::from(least) - used);
        }
    }

    /// Skips `count` bits.
    pub(super) fn skip(&mut self, count: u64) {
        let position = self.position().saturating_add(count);
        self.next = usize::try_from(position / 8).unwrap_or(usize::MAX / 16);
        self.buffer = 0;
        self.buffered = 0;
        self.read((position % 8) as u32);
    }

    /// Returns the next `count` bits, at most 64; the first bit is the lowest.
    pub(super) fn read(&mut self, count: u32) -> u64 {
        if count <= self.buffered {
            return self.take(count);
        }
        if count <= 56 {
            self.refill();
            return self.take(count);
        }
        let low = self.read(32);
        low | self.read(count - 32) << 32
    }

    /// Returns the next `count` bits, at most 32.
    #[allow(clippy::cast_possible_truncation, reason = "at most 32 bits")]
    pub(super) fn read_u32(&mut self, count: u32) -> u32 {
        self.read(count) as u32
    }

    /// Returns whether the next bit is one.
    pub(super) fn bit(&mut self) -> bool {
        if self.buffered == 0 {
            self.refill();
        }
        self.take(1) == 1
    }

    /// Reads zeros up to the next one, at most `limit` bits. Returns the number of zeros, and whether the one
    /// was read.
    pub(super) fn zeros(&mut self, limit: u32) -> (u32, bool) {
        let mut zeros = 0;
        while zeros < limit {
            if self.buffered == 0 {
                self.refill();
            }
            let window = self.buffered.min(limit - zeros);
            let run = self.buffer.trailing_zeros();
            if run < window {
                self.take(run + 1);
                return (zeros + run, true);
            }
            self.take(window);
            zeros += window;
        }
        (zeros, false)
    }

    /// Removes and returns `count` buffered bits, at most 63.
    fn take(&mut self, count: u32) -> u64 {
        let bits = self.buffer & ((1 << count) - 1);
        self.buffer >>= count;
        self.buffered -= count;
        bits
    }

    /// Buffers at least 56 bits.
    fn refill(&mut self) {
        let rest = self.src.get(self.next..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => last_word(rest),
        };
        self.buffer |= word << self.buffered;
        self.next += ((63 - self.buffered) / 8) as usize;
        self.buffered |= 56;
    }
}

#[cold]
fn last_word(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}
