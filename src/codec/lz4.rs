//! `lz4` of numcodecs: the decoded size as a little-endian `u32`, then one LZ4 block, which must end at the
//! end of the chunk.

use super::error::{DecodeError, split_head};
use super::stage::Decode;

/// Decodes `lz4`.
#[derive(Debug)]
pub(super) struct Lz4;

impl Decode for Lz4 {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (claimed, block) = split_head(src)?;
        let claimed = u32::from_le_bytes(claimed) as usize;
        let limit = dst.len();
        let dst = dst
            .get_mut(..claimed)
            .ok_or_else(|| DecodeError::declared_size(claimed as u64, limit))?;
        decode_block(block, dst)?;
        Ok(claimed)
    }
}

/// Decodes one LZ4 block to exactly the size of `dst`.
///
/// # Errors
/// [`DecodeError::Corrupt`] if the block is damaged or has a different size.
pub(super) fn decode_block(block: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
    let size = dst.len();
    let decoded = lz4_flex::block::decompress_into(block, dst)
        .map_err(|error| DecodeError::corrupt(format!("lz4 block: {error}")))?;
    match decoded == size {
        true => Ok(()),
        false => Err(DecodeError::corrupt(format!(
            "the block holds {decoded} of {size} bytes"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// numcodecs: 24 times "a".
    const CHUNK: &[u8] = &[
        24, 0, 0, 0, 0x1f, b'a', 1, 0, 0, 0x40, b'a', b'a', b'a', b'a',
    ];

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = Lz4.decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    #[test]
    fn a_block_decodes_and_damage_is_an_error() {
        assert_eq!(decode(CHUNK, 24).unwrap(), [b'a'; 24]);
        for n in 0..CHUNK.len() {
            assert!(decode(&CHUNK[..n], 24).is_err(), "{n}");
        }
        assert!(decode(&[CHUNK, b"x"].concat(), 30).is_err());
        assert!(decode(CHUNK, 23).is_err());
        let mut bad = CHUNK.to_vec();
        bad[3] = 0xff;
        assert!(format!("{:?}", decode(&bad, 24)).contains("claims 4278190104 bytes"));
    }
}
