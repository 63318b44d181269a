//! Compressed data, valid and invalid.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use crate::records::put64;

/// Encodes `content` as raw deflate data.
pub fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Encodes `content` as stored deflate blocks of at most 65,535 bytes each.
pub fn deflate_without_compression(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Encodes `content` as one zstd frame with its content size.
pub fn zstd_frame(content: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(content, 3).unwrap()
}

/// Encodes `content` as one zstd frame without its content size.
pub fn zstd_frame_without_size(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Returns a zstd frame that declares `claimed` bytes and has one raw block of `content` (RFC 8878,
/// section 3.1.1), which is shorter than 128 KiB.
pub fn zstd_frame_claiming(claimed: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x28\xb5\x2f\xfd".to_vec();
    // An eight-byte content size, and no single segment, so that a window descriptor (1 MiB) comes first.
    bytes.extend_from_slice(&[0xc0, 10 << 3]);
    put64(&mut bytes, claimed);
    let block = (u32::try_from(content.len()).unwrap() << 3) | 1;
    bytes.extend_from_slice(&block.to_le_bytes()[..3]);
    bytes.extend_from_slice(content);
    bytes
}

/// Returns a zstd frame without a content size, with a window of this exponent and mantissa (RFC
/// 8878, section 3.1.1.1.2), and one raw block of `content`, which is shorter than 128 KiB.
pub fn zstd_frame_of_window(window: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x28\xb5\x2f\xfd\0".to_vec();
    bytes.push(window);
    let block = (u32::try_from(content.len()).unwrap() << 3) | 1;
    bytes.extend_from_slice(&block.to_le_bytes()[..3]);
    bytes.extend_from_slice(content);
    bytes
}

/// Encodes `content` as deflate data with the fastest compression.
pub fn deflate_fast(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
