//! `zstd` (RFC 8878): any number of frames, including skippable ones; the library verifies checksums. Bytes
//! after the last frame are an error, as in numcodecs.

use std::cell::RefCell;

use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

use super::byte_codec::ByteCodec;
use super::error::DecodeError;
use super::stage::Decode;

thread_local! {
    static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decodes `zstd`.
#[derive(Debug)]
pub(super) struct Zstd;

impl Decode for Zstd {
    fn byte_codec(&self) -> Option<ByteCodec> {
        Some(ByteCodec::Zstd)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        if src.is_empty() {
            return Err(DecodeError::corrupt("no zstd frame: the chunk is empty"));
        }
        // The size that the first frame declares is only for the message; the buffer is the limit.
        match get_frame_content_size(src) {
            Ok(Some(claimed)) if claimed > dst.len() as u64 => {
                return Err(DecodeError::declared_size(claimed, dst.len()));
            }
            Ok(_) => {}
            Err(_) => return Err(DecodeError::corrupt("not a zstd frame")),
        }
        CONTEXT.with_borrow_mut(|context| {
            let context = match context {
                Some(context) => context,
                None => context.insert(Decompressor::new().map_err(|_| DecodeError::Memory {
                    needed: 0,
                    limit: 0,
                })?),
            };
            context
                .decompress_to_buffer(src, dst)
                .map_err(|error| DecodeError::corrupt(format!("zstd: {error}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = Zstd.decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    #[test]
    fn frames_follow_each_other() {
        let one = zstd::bulk::compress(b"hello", 1).unwrap();
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
        assert_eq!(decode(&one, 5).unwrap(), b"hello");
        assert_eq!(
            decode(&[&one[..], &one].concat(), 10).unwrap(),
            b"hellohello"
        );
        assert_eq!(
            decode(&[&one[..], &skippable, &one].concat(), 10).unwrap(),
            b"hellohello"
        );
        assert!(decode(&[&one[..], &one].concat(), 9).is_err());
        assert!(decode(&[&one[..], b"junk"].concat(), 100).is_err());
    }

    #[test]
    fn truncated_frames_and_flipped_checksums_are_errors() {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, b"hello hello hello").unwrap();
        let frame = encoder.finish().unwrap();
        assert_eq!(decode(&frame, 17).unwrap(), b"hello hello hello");
        for n in 0..frame.len() {
            assert!(decode(&frame[..n], 17).is_err(), "{n}");
        }
        let mut bad = frame.clone();
        *bad.last_mut().unwrap() ^= 1;
        assert!(decode(&bad, 17).is_err());
    }

    #[test]
    fn a_declared_size_of_a_tebibyte_is_refused() {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        frame.extend((1u64 << 40).to_le_bytes());
        frame.extend([1, 0, 0]);
        let fault = format!("{:?}", decode(&frame, 4).unwrap_err());
        assert!(fault.contains("claims 1099511627776 bytes"), "{fault}");
    }
}
