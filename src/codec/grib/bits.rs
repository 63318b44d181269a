//! Whole numbers of some bits each, most significant bit first, and sections of a message.

use crate::codec::error::{DecodeError, part};

/// Numbers of a constant width in bits.
#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    width: u8,
    at: usize,
}

impl<'a> Bits<'a> {
    /// Returns the numbers of `width` bits, at most 64.
    pub(super) fn new(bytes: &'a [u8], width: u8) -> Self {
        Self {
            bytes,
            width,
            at: 0,
        }
    }

    /// Returns the next number.
    ///
    /// # Errors
    /// The bytes end.
    pub(super) fn next(&mut self) -> Result<u64, DecodeError> {
        let (mut number, mut left) = (0, usize::from(self.width));
        while left > 0 {
            let Some(byte) = self.bytes.get(self.at / 8) else {
                return Err(DecodeError::corrupt("the packed values end early"));
            };
            let unread = 8 - self.at % 8;
            let taken = unread.min(left);
            let bits = (u64::from(*byte) >> (unread - taken)) & ((1 << taken) - 1);
            number = (number << taken) | bits;
            self.at += taken;
            left -= taken;
        }
        Ok(number)
    }
}

/// Which points of a field have a value.
#[derive(Debug, Clone)]
pub(super) struct Bitmap<'a>(Option<Bits<'a>>);

impl<'a> Bitmap<'a> {
    /// Returns a bitmap of one bit for each point; all points have a value if there are no bytes.
    pub(super) fn new(bytes: Option<&'a [u8]>) -> Self {
        Self(bytes.map(|bytes| Bits::new(bytes, 1)))
    }

    /// Returns whether the next point has a value.
    pub(super) fn next(&mut self) -> Result<bool, DecodeError> {
        match &mut self.0 {
            Some(bits) => Ok(bits.next()? == 1),
            None => Ok(true),
        }
    }

    /// Returns how many of the first `points` points have a value.
    pub(super) fn count(&self, points: usize) -> Result<usize, DecodeError> {
        let mut rest = self.clone();
        let mut count = 0;
        if rest.0.is_none() {
            return Ok(points);
        }
        for _ in 0..points {
            count += usize::from(rest.next()?);
        }
        Ok(count)
    }
}

/// Returns a big-endian number of `N` bytes at an offset.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], DecodeError> {
    let found = part(bytes, at..at.saturating_add(N))?;
    found
        .try_into()
        .map_err(|_| DecodeError::internal("a part has another size"))
}

/// Returns a whole number of two bytes, whose first bit is its sign.
pub(super) fn signed16(bytes: &[u8], at: usize) -> Result<i32, DecodeError> {
    let word = i32::from(u16::from_be_bytes(array(bytes, at)?));
    let magnitude = word & 0x7fff;
    Ok(if word == magnitude {
        magnitude
    } else {
        -magnitude
    })
}
